"""The expression language: exact 64-bit values, the same in C++, and nothing but the language."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.bundle import evaluate, is_condition, names_in, queries_in, to_cpp
from advisor.codegen import templates
from advisor.errors import BundleError

NAMES = {"m": 300, "n": 200, "k": 0, "lda": 64, "big": 2**63}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("m // 7 % 5", 300 // 7 % 5),
        ("m - n - 50", 50),
        ("m - (n - 50)", 150),
        ("ceil_div(m, 128) * ceil_div(n, 128)", 6),
        ("align_up(m, 128)", 384),
        ("min(m, n, 7)", 7),
        ("max(k, 1)", 1),
        ("18446744073709551615", 2**64 - 1),
        ("lda * 2 % 16 == 0", True),
        ("0 < k <= 5", False),
        ("not (m == n) and (k == 0 or m % k == 0)", True),
        ("k != 0 and m % k == 0", False),
        ("True", True),
        (4096, 4096),
    ],
)
def test_value(text: str | int, value: int) -> None:
    assert evaluate(text, NAMES) == value


def test_queries_are_asked_with_their_id() -> None:
    functions = {
        "loadable": lambda kernel: kernel == "sm90_static",
        "max_active_clusters": lambda kernel: {"sm90_static": 66}[kernel],
        "aligned": lambda buffer, multiple: {"A": 32}[buffer] % multiple == 0,
    }
    text = "loadable('sm90_static') and max_active_clusters('sm90_static') > 65 and aligned('A', 8 * 2)"
    assert evaluate(text, {}, functions) is True
    assert evaluate("aligned('A', 64)", {}, functions) is False
    assert queries_in(text) == {("loadable", "sm90_static"), ("max_active_clusters", "sm90_static"), ("aligned", "A")}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n - m", "negative"),
        ("m - n - n + n", "negative"),
        ("big + big", "64 bits"),
        ("big * 2 // 2", "64 bits"),
        ("align_up(18446744073709551615, 2)", "64 bits"),
        ("m // k", "divides by zero"),
        ("m % k", "divides by zero"),
        ("ceil_div(m, k)", "divides by zero"),
        ("align_up(m, k)", "divides by zero"),
    ],
)
def test_a_result_outside_the_range_is_an_error_even_in_the_middle(text: str, why: str) -> None:
    with pytest.raises(BundleError, match=why) as error:
        evaluate(text, NAMES)
    assert error.value.code == "EXPRESSION_VALUE"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "m +",
        "-m",
        "+m",
        "~m",
        "m / n",
        "m ** n",
        "m << 2",
        "m if n else k",
        "lambda: 1",
        "[m for m in n]",
        "[1]",
        "m[0]",
        "m.real",
        "(1).bit_length()",
        "f'{m}'",
        "'text'",
        "1.5",
        "1e3",
        "1j",
        "0x10",
        "1_000",
        "007",
        "1or m",
        "None",
        "...",
        "m := 3",
        "m, n",
        "m; n",
        "m\nn",
        "m # comment",
        "__import__('os')",
        "open('secret')",
        "eval('1')",
        "min(m)",
        "min(m, key=n)",
        "min(*m, n)",
        "ceil_div(m)",
        "ceil_div(m, n, k)",
        "loadable(m)",
        "loadable('a', 'b')",
        "loadable('a b')",
        "aligned('A')",
        "aligned('A', 'B')",
        "max_active_clusters()",
        "m and n",
        "not m",
        "(m < n) + 1",
        "min(m < n, 3)",
        "loadable('x') + 1",
        "loadable('x') == 1",
        "m is n",
        "m in n",
        "18446744073709551616",
        "\u217f",  # a small roman numeral that Python would read as the name m
        "m\u0000",
        "\\x41",
        "_private",
        "(" * 300 + "m" + ")" * 300,
        "m" + " + m" * 600,
        "not " * 100 + "True",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    for use in (lambda: evaluate(text, NAMES), lambda: to_cpp(text), lambda: names_in(text)):
        with pytest.raises(BundleError) as error:
            use()
        assert error.value.code == "EXPRESSION_INVALID"


@given(st.text(max_size=60))
def test_no_text_raises_anything_but_a_bundle_error(text: str) -> None:
    value = _value_or_code(text)
    assert value.startswith("EXPRESSION_") or 0 <= int(value) < 2**64


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BundleError, match="ldx") as error:
        evaluate("ldx * 2", {"m": 1, "lda": 2})
    assert (error.value.code, "lda, m" in error.value.fix) == ("EXPRESSION_NAME", True)


def test_a_query_outside_when_is_refused() -> None:
    with pytest.raises(BundleError, match="when"):
        evaluate("max_active_clusters('x') * 2", NAMES)


def test_conditions_and_numbers_are_told_apart() -> None:
    assert is_condition("m < 3")
    assert is_condition("loadable('x')")
    assert not is_condition("max_active_clusters('x')")
    assert not is_condition("min(m, 3)")
    assert names_in("min(m, 3) * ceil_div(n, lda)") == {"m", "n", "lda"}


# --- the same value in C++ ---------------------------------------------------------------------------------------

_LEAVES = [*NAMES, "0", "1", "2", "3", "7", "128", str(2**31), str(2**32), str(2**64 - 1)]


def _random_value(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(_LEAVES)
    left, right = _random_value(rng, depth - 1), _random_value(rng, depth - 1)
    if rng.random() < 0.3:
        return f"{rng.choice(['min', 'max', 'ceil_div', 'align_up'])}({left}, {right})"
    if rng.random() < 0.4:
        right = f"({right})"
    if rng.random() < 0.4:
        left = f"({left})"
    return f"{left} {rng.choice(['+', '-', '*', '//', '%'])} {right}"


def _random_condition(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        compare = [rng.choice(["<", "<=", "==", "!=", ">", ">="]) for _ in range(rng.choice([1, 1, 2]))]
        return " ".join([_random_value(rng, 1), *(f"{each} {_random_value(rng, 1)}" for each in compare)])
    left, right = _random_condition(rng, depth - 1), _random_condition(rng, depth - 1)
    if rng.random() < 0.3:
        return f"not ({left})"
    return rng.choice(["{} and {}", "{} or {}", "({}) and ({})", "({}) or ({})"]).format(left, right)


def _value_or_code(text: str) -> str:
    try:
        return str(int(evaluate(text, NAMES)))
    except BundleError as error:
        return error.code


@pytest.mark.slow
def test_the_translation_gives_the_same_value_and_the_same_errors(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Random expressions in one program, compiled as strictly as the launcher is; errors must be errors in both."""
    assert shutil.which("g++"), "this test compiles C++ with g++"
    rng = random.Random(20)
    texts = [_random_value(rng, 3) for _ in range(400)] + [_random_condition(rng, 2) for _ in range(200)]
    assert len({_value_or_code(text) for text in texts}) > 60
    folder = tmp_path_factory.mktemp("cpp")
    names = "\n".join(f"  const Number {name}({value}ull);" for name, value in NAMES.items())
    lines = "\n".join(f"  show([&] {{ return {to_cpp(text)}; }});" for text in texts)
    (folder / "arithmetic.h").write_text(templates.load("launcher/arithmetic.h"))
    (folder / "program.cpp").write_text(_PROGRAM.format(names=names, lines=lines))
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-O0", "program.cpp", "-o", "program"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:4000]
    printed = subprocess.run([folder / "program"], capture_output=True, text=True, check=True).stdout.split()
    assert printed == [_value_or_code(text) for text in texts]


_PROGRAM = """\
#include <cstdio>
#include "arithmetic.h"
template <typename Expression>
static void show(Expression expression) {{
  const Arithmetic arithmetic;
  const Number value(expression());
  if (arithmetic.failed()) std::printf("EXPRESSION_VALUE\\n");
  else std::printf("%llu\\n", static_cast<unsigned long long>(value.value));
}}
int main() {{
{names}
{lines}
}}
"""
