"""The expression language of launch.json: unsigned 64-bit integers, one text for Python and for C++.

    value      : names and decimal numbers, `+ - * // %`, `min`, `max`, `ceil_div`, `align_up`
    condition  : comparisons, `and`, `or`, `not`, `True`, `False`
    in `when`  : also `loadable('id')`, `max_active_clusters('id')`, `aligned('BUFFER', bytes)`

Values and conditions do not mix. Every intermediate result must lie in [0, 2**64): overflow, a negative difference
and a division by zero are errors, here and in the translation, where the operators belong to a checked `Number`.
Imports only `errors`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from advisor.errors import BundleError

MAX_VALUE = 2**64 - 1
MAX_TEXT = 2000  # characters
MAX_DEPTH = 64  # nested operators and calls

Functions = Mapping[str, Callable[..., int]]

_CHARACTERS = re.compile(r"[A-Za-z0-9_ ()+\-*/%<>=!,'\"]*")
_NUMBER_THEN_NAME = re.compile(r"(?<![A-Za-z0-9_])[0-9]+[A-Za-z_]")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_COMPARISON: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_VALUE_CALLS = {"min": None, "max": None, "ceil_div": 2, "align_up": 2}  # None: two arguments or more
# Calls that only `when` may make, and what they take: an id, a buffer, a number.
_QUERY_CALLS = {"loadable": ("id",), "max_active_clusters": ("id",), "aligned": ("buffer", "number")}
_CONDITION_QUERIES = ("loadable", "aligned")


def evaluate(expression: str | int, names: Mapping[str, int], functions: Functions | None = None) -> int:
    """The value of `expression` over `names`; a condition gives True or False.

    `functions` holds the queries of `when`. Raises BundleError: EXPRESSION_INVALID for text outside the language,
    EXPRESSION_NAME for a name or query that is not given, EXPRESSION_VALUE for overflow, a negative difference and
    a division by zero.
    """
    if isinstance(expression, int):
        return _in_range(int(expression), str(expression))
    return _Evaluation(expression, names, functions or {}).of(_parse(expression))


def is_condition(expression: str | int) -> bool:
    """True where the expression gives a truth value, False where it gives a number. Raises BundleError."""
    return isinstance(expression, str) and _is_condition(_parse(expression))


def names_in(expression: str | int) -> frozenset[str]:
    """The free names of an expression (called functions are not among them). Raises BundleError."""
    if isinstance(expression, int):
        return frozenset()
    return frozenset(node.id for node in _walk(_parse(expression)) if isinstance(node, ast.Name))


def queries_in(expression: str | int) -> frozenset[tuple[str, str]]:
    """(query, id or buffer) of every `loadable`, `max_active_clusters` and `aligned` call. Raises BundleError."""
    if isinstance(expression, int):
        return frozenset()
    calls = [node for node in _walk(_parse(expression)) if isinstance(node, ast.Call)]
    return frozenset((_callee(call), _string(call.args[0])) for call in calls if _callee(call) in _QUERY_CALLS)


def to_cpp(expression: str | int) -> str:
    """The same expression in C++, over the checked `Number` of the host launcher. Raises BundleError."""
    if isinstance(expression, int):
        return f"Number({_literal(_in_range(int(expression), str(expression)))})"
    body = _parse(expression)
    text = _cpp(body)
    return f"Number({text})" if isinstance(body, ast.Constant) and not _is_condition(body) else text


def to_cpp_terms(expression: str) -> list[str]:
    """A condition in C++ as the terms that must all hold, in order. Raises BundleError."""
    body = _parse(expression)
    if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And):
        return [f"({_cpp(each)})" if isinstance(each, ast.BoolOp) else _cpp(each) for each in body.values]
    return [_cpp(body)]


# --- reading -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr:
    """The checked syntax tree. The character set is narrower than Python's, so that nothing surprising (attributes,
    subscripts, lambdas, walrus, f-strings, comments, other alphabets) even reaches Python's parser."""
    if len(text) > MAX_TEXT:
        raise _invalid(text, f"it has {len(text)} characters, at most {MAX_TEXT} are read")
    if not _CHARACTERS.fullmatch(text):
        bad = next(each for each in text if not _CHARACTERS.fullmatch(each))
        raise _invalid(text, f"the character {bad!r} is not part of the language")
    if _NUMBER_THEN_NAME.search(text):
        raise _invalid(text, "a number runs into a letter")
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise _invalid(text, "it is not an expression") from error
    _check(body, text, 0)
    return body


def _check(node: ast.expr, text: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _invalid(text, f"it nests more than {MAX_DEPTH} levels")
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            return
        if not isinstance(node.value, int):
            raise _invalid(text, f"{node.value!r} is not a number")
        if node.value > MAX_VALUE:
            raise _invalid(text, f"{node.value} does not fit in 64 bits")
        return
    if isinstance(node, ast.Name):
        if not _IDENTIFIER.fullmatch(node.id):
            raise _invalid(text, f"{node.id!r} is not a name of the language")
        return
    for child in _operands(node, text):
        _check(child, text, depth + 1)
    _check_types(node, text)


def _operands(node: ast.expr, text: str) -> list[ast.expr]:
    """The sub-expressions of an operator or call that the language has; everything else is refused here."""
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return [node.left, node.right]
    if isinstance(node, ast.Compare) and all(type(each) in _COMPARISON for each in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _call_operands(node, text)
    raise _invalid(text, f"{_what(node)} is not part of the language")


def _call_operands(node: ast.Call, text: str) -> list[ast.expr]:
    name = _callee(node)
    if name in _VALUE_CALLS:
        count = _VALUE_CALLS[name]
        if len(node.args) != count if count is not None else len(node.args) < 2:
            raise _invalid(text, f"{name}() takes {count or 'two or more'} arguments, {len(node.args)} given")
        return list(node.args)
    if name not in _QUERY_CALLS:
        raise _invalid(text, f"{name}() is not a function of the language")
    kinds = _QUERY_CALLS[name]
    if len(node.args) != len(kinds):
        raise _invalid(text, f"{name}() takes {len(kinds)} argument(s), {len(node.args)} given")
    first = node.args[0]
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str) and _IDENTIFIER.fullmatch(first.value)):
        raise _invalid(text, f"{name}() takes a quoted {kinds[0]} first")
    return list(node.args[1:])


def _check_types(node: ast.expr, text: str) -> None:
    if isinstance(node, (ast.BoolOp, ast.UnaryOp)):
        for child in _operands(node, text):
            if not _is_condition(child):
                raise _invalid(text, "`and`, `or` and `not` take conditions, not numbers")
        return
    for child in _operands(node, text):
        if _is_condition(child):
            raise _invalid(text, "a condition stands where a number is needed")


def _is_condition(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    if isinstance(node, ast.Call):
        return _callee(node) in _CONDITION_QUERIES
    return isinstance(node, (ast.Compare, ast.BoolOp, ast.UnaryOp))


def _walk(node: ast.expr) -> Iterator[ast.expr]:
    """Every sub-expression, without the names of called functions."""
    yield node
    if not isinstance(node, (ast.Constant, ast.Name)):
        for child in _operands(node, ""):
            yield from _walk(child)


def _callee(node: ast.Call) -> str:
    assert isinstance(node.func, ast.Name)
    return node.func.id


def _string(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, str)
    return node.value


def _what(node: ast.expr) -> str:
    if isinstance(node, (ast.BinOp, ast.UnaryOp)):
        return f"the operator {type(node.op).__name__}"
    return type(node).__name__


def _invalid(text: str, why: str) -> BundleError:
    shown = text if len(text) <= 120 else text[:120] + "..."
    return BundleError(
        "EXPRESSION_INVALID",
        f"the expression {shown!r} cannot be read: {why}",
        fix="use + - * // %, comparisons, and/or/not, min, max, ceil_div, align_up over the arguments",
        numbers={"expression": shown},
    )


# --- evaluating --------------------------------------------------------------------------------------------------


class _Evaluation:
    """One walk over a checked tree."""

    def __init__(self, text: str, names: Mapping[str, int], functions: Functions) -> None:
        self.text = text
        self.names = names
        self.functions = functions

    def of(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant):
            assert isinstance(node.value, int)
            return node.value
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.BinOp):
            return self._arithmetic(_ARITHMETIC[type(node.op)], self.of(node.left), self.of(node.right))
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.BoolOp):
            if isinstance(node.op, ast.And):
                return all(self.of(each) for each in node.values)
            return any(self.of(each) for each in node.values)
        if isinstance(node, ast.UnaryOp):
            return not self.of(node.operand)
        assert isinstance(node, ast.Call)
        return self._call(node)

    def _name(self, name: str) -> int:
        value = self.names.get(name)
        if value is None:
            known = ", ".join(sorted(self.names)) or "none"
            raise BundleError(
                "EXPRESSION_NAME",
                f"the expression {self.text!r} uses {name!r}, which has no value here",
                fix=f"known names: {known}",
                numbers={"expression": self.text, "name": name},
            )
        return _in_range(int(value), self.text)

    def _arithmetic(self, operator: str, left: int, right: int) -> int:
        if operator in ("//", "%") and right == 0:
            raise _bad_value(self.text, f"{left} {operator} 0 divides by zero")
        if operator == "+":
            value = left + right
        elif operator == "-":
            value = left - right
        elif operator == "*":
            value = left * right
        elif operator == "//":
            value = left // right
        else:
            value = left % right
        return _in_range(value, self.text)

    def _comparison(self, node: ast.Compare) -> bool:
        left = self.of(node.left)
        for operator, operand in zip(node.ops, node.comparators, strict=True):
            right = self.of(operand)
            if not _compare(_COMPARISON[type(operator)], left, right):
                return False
            left = right
        return True

    def _call(self, node: ast.Call) -> int:
        name = _callee(node)
        if name in _QUERY_CALLS:
            function = self.functions.get(name)
            if function is None:
                raise BundleError(
                    "EXPRESSION_NAME",
                    f"the expression {self.text!r} calls {name}(), which only a rung's `when` may do",
                    fix="move the test to the ladder",
                    numbers={"expression": self.text, "name": name},
                )
            value = function(_string(node.args[0]), *(self.of(each) for each in node.args[1:]))
            return bool(value) if name in _CONDITION_QUERIES else _in_range(int(value), self.text)
        values = [self.of(each) for each in node.args]
        if name == "min":
            return min(values)
        if name == "max":
            return max(values)
        value, unit = values
        if unit == 0:
            raise _bad_value(self.text, f"{name}({value}, 0) divides by zero")
        quotient = -(-value // unit)
        return quotient if name == "ceil_div" else _in_range(quotient * unit, self.text)


def _compare(operator: str, left: int, right: int) -> bool:
    if operator == "==":
        return left == right
    if operator == "!=":
        return left != right
    if operator == "<":
        return left < right
    if operator == "<=":
        return left <= right
    return left > right if operator == ">" else left >= right


def _in_range(value: int, text: str) -> int:
    if value < 0:
        raise _bad_value(text, f"the result {value} is negative")
    if value > MAX_VALUE:
        raise _bad_value(text, f"the result {value} does not fit in 64 bits")
    return value


def _bad_value(text: str, why: str) -> BundleError:
    return BundleError(
        "EXPRESSION_VALUE",
        f"the expression {text!r} has no value: {why}",
        fix="check the arguments of the launch: an extent or a stride is out of range",
        numbers={"expression": text},
    )


# --- translating -------------------------------------------------------------------------------------------------


def _cpp(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            return "true" if node.value else "false"
        assert isinstance(node.value, int)
        return _literal(node.value)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.BinOp):
        operator = _ARITHMETIC[type(node.op)].replace("//", "/")
        # The operators are left associative in both languages, so only a compound right operand needs parentheses;
        # C++ ranks * / % above + - as Python does.
        left, right = _as_numbers([node.left, node.right])
        outer = _precedence(node)
        if _precedence(node.left) < outer:
            left = f"({left})"
        if _precedence(node.right) <= outer:
            right = f"({right})"
        return f"{left} {operator} {right}"
    if isinstance(node, ast.Compare):
        return _cpp_comparison(node)
    if isinstance(node, ast.BoolOp):
        joined = (" && " if isinstance(node.op, ast.And) else " || ").join(
            f"({_cpp(each)})" if isinstance(each, ast.BoolOp) else _cpp(each) for each in node.values
        )
        return joined
    if isinstance(node, ast.UnaryOp):
        return f"!({_cpp(node.operand)})"
    assert isinstance(node, ast.Call)
    return _cpp_call(node)


def _cpp_comparison(node: ast.Compare) -> str:
    """`a < b < c` becomes `a < b && b < c`: operands have no side effects, and both forms stop at the first false."""
    operands = [node.left, *node.comparators]
    links = []
    for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
        first, second = _as_numbers([left, right])
        links.append(f"{first} {_COMPARISON[type(operator)]} {second}")
    return links[0] if len(links) == 1 else f"({' && '.join(links)})"


def _cpp_call(node: ast.Call) -> str:
    name = _callee(node)
    if name in _QUERY_CALLS:
        arguments = [f'"{_string(node.args[0])}"', *(_cpp(each) for each in node.args[1:])]
        return f"{name}({', '.join(arguments)})"
    arguments = _as_numbers(list(node.args))
    if name in ("min", "max"):  # two at a time: min(a, b, c) is min(min(a, b), c)
        text = f"{name}({arguments[0]}, {arguments[1]})"
        for each in arguments[2:]:
            text = f"{name}({text}, {each})"
        return text
    return f"{name}({', '.join(arguments)})"


def _as_numbers(operands: list[ast.expr]) -> list[str]:
    """The operands in C++. Where all are literals, the first becomes a Number, so that the arithmetic stays checked."""
    texts = [_cpp(each) for each in operands]
    if all(isinstance(each, ast.Constant) for each in operands):
        texts[0] = f"Number({texts[0]})"
    return texts


def _literal(value: int) -> str:
    return str(value) if value < 2**31 else f"{value}ull"


def _precedence(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp):
        return 1 if isinstance(node.op, (ast.Add, ast.Sub)) else 2
    return 3
