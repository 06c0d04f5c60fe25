"""What a problem file may say, and how each way of getting it wrong is reported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import EXIT_INPUT, ProblemError
from advisor.problem import load_problem, parse_problem, problem_schema
from advisor.problem.gemm import GemmProblem
from advisor.problem.row_reduce import RowReduceProblem

ROOT = Path(__file__).parent.parent.parent
GOOD = "kind: gemm\nm: 128\nn: 256\nk: 64\n"


def problem(text: str, path: str = "small.yaml") -> GemmProblem:
    return parse_problem(text, path)


def refusal(text: str, path: str = "small.yaml") -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        parse_problem(text, path)
    error = caught.value
    assert error.exit_status == EXIT_INPUT
    assert error.fix
    assert error.where is not None
    assert error.where.path == path
    return error


def outcome(text: str) -> GemmProblem | ProblemError:
    try:
        return parse_problem(text, "any.yaml")
    except ProblemError as error:
        return error


def test_four_keys_make_a_problem_with_packed_bf16_operands() -> None:
    p = problem(GOOD)
    assert (p.name, p.dtype, p.d.dtype) == ("small", "bf16", "bf16")
    assert (p.a.major, p.a.ld, p.a.batch_stride) == ("k", 64, 128 * 64)
    assert (p.b.major, p.b.ld, p.b.batch_stride) == ("k", 64, 256 * 64)
    assert (p.d.major, p.d.ld) == ("n", 256)


def test_a_resolved_problem_reads_back_as_itself() -> None:
    p = problem(GOOD + "dtype: e4m3\na: {major: m}\nbatch: 3\noverrides: {cluster: [2, 1, 1]}\n")
    assert GemmProblem.model_validate(p.model_dump(mode="json")) == p


@pytest.mark.parametrize(
    ("dtype", "output"), [("bf16", "bf16"), ("fp16", "fp16"), ("tf32", "fp32"), ("e4m3", "bf16"), ("e5m2", "bf16")]
)
def test_output_type_follows_from_the_input_type(dtype: str, output: str) -> None:
    p = problem(GOOD + f"dtype: {dtype}\n")
    assert (p.a.dtype, p.b.dtype, p.c.dtype, p.d.dtype) == (dtype, dtype, output, output)


def test_fast_accumulation_is_for_fp8() -> None:
    assert problem(GOOD + "dtype: e5m2\naccumulate: fast\n").accumulate == "fast"


def test_the_two_fp8_types_mix() -> None:
    p = problem(GOOD + "dtype: e4m3\nb: {dtype: e5m2}\n")
    assert (p.a.dtype, p.b.dtype) == ("e4m3", "e5m2")


@pytest.mark.parametrize("extent", ["m", "n", "k", "batch"])
def test_zero_extents_are_valid(extent: str) -> None:
    text = "kind: gemm\n" + "".join(f"{each}: {0 if each == extent else 8}\n" for each in ("m", "n", "k", "batch"))
    assert getattr(problem(text), extent) == 0


def test_misaligned_leading_dimension_is_for_the_planner_to_adjust() -> None:
    assert problem(GOOD + "a: {ld: 65}\n").a.ld == 65


def test_inputs_may_broadcast_over_batches_and_outputs_may_interleave() -> None:
    p = problem(GOOD + "batch: 4\na: {batch_stride: 0}\nd: {ld: 1024, batch_stride: 256}\n")
    assert (p.a.batch_stride, p.d.batch_stride) == (0, 256)


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("mlp_up", "mlp_up"),
        ("MLP-Up", "mlp_up"),
        ("gemm 8k", "gemm_8k"),
        ("v1.2", "v1_2"),
        ("test", "test_gemm"),
        ("namespace", "namespace_gemm"),
    ],
)
def test_default_name_is_the_stem_made_safe(stem: str, name: str) -> None:
    assert problem(GOOD, f"{stem}.yaml").name == name


@pytest.mark.parametrize(
    "name", ["class", "and_eq", "match", "string", "math", "json", "torch", "cuda", "test", "images"]
)
def test_a_name_that_means_something_to_a_compiler_or_an_interpreter_is_refused(name: str) -> None:
    """<name>.h would stand before the system's header, <name>.py before the library's module."""
    error = refusal(GOOD + f"name: {name}\n")
    assert error.code == "PROBLEM_NAME"
    assert error.fix == f"write name: {name}_gemm"
    assert problem(GOOD + f"name: {name}_gemm\n").name == f"{name}_gemm"


@pytest.mark.parametrize("stem", ["8k", "größe", "a;rm", "x" * 65, 'a"b'])
def test_a_stem_that_makes_no_name_is_refused_with_one_that_does(stem: str) -> None:
    error = refusal(GOOD, f"{stem}.yaml")
    assert error.code == "PROBLEM_NAME"
    assert "name: " in error.fix


@pytest.mark.parametrize(
    ("extra", "code", "line", "field", "fix"),
    [
        ("typ: bf16", "PROBLEM_UNKNOWN_KEY", 5, "typ", "did you mean dtype?"),
        ("constraints: {max_cluster: 8}", "PROBLEM_UNKNOWN_KEY", 5, "constraints.max_cluster", "max_cluster_size"),
        ("a: {stride: 8}", "PROBLEM_UNKNOWN_KEY", 5, "a.stride", "batch_stride"),
        ("<<: {dtype: bf16}", "PROBLEM_UNKNOWN_KEY", 5, "<<", "known keys"),
        ("schedule: clc", "PROBLEM_UNKNOWN_KEY", 5, "schedule", "did you mean overrides: {schedule: ...}?"),
        ("schedul: clc", "PROBLEM_UNKNOWN_KEY", 5, "schedul", "did you mean overrides: {schedule: ...}?"),
        ("a: {n: 8}", "PROBLEM_UNKNOWN_KEY", 5, "a.n", "did you mean n, a key of the problem itself?"),
        ("'': 8", "PROBLEM_UNKNOWN_KEY", 5, "", "known keys"),
        ("m: 4", "PROBLEM_DUPLICATE_KEY", 5, "m", "keep one"),
        ("batch: -1", "PROBLEM_RANGE", 5, "batch", "at least 0"),
        ("batch: 99999999999", "PROBLEM_RANGE", 5, "batch", "at most 2147483647"),
        ("batch: '4'", "PROBLEM_TYPE", 5, "batch", "write batch: 4 without quotes"),
        ("batch: 4.0", "PROBLEM_TYPE", 5, "batch", "write batch: 4"),
        ("batch: true", "PROBLEM_TYPE", 5, "batch", "an integer"),
        ("batch:", "PROBLEM_TYPE", 5, "batch", "remove the line"),
        ("batch: [1]", "PROBLEM_TYPE", 5, "batch", "an integer"),
        ("batch: " + "9" * 5000, "PROBLEM_SYNTAX", 5, None, "plain number"),
        ("overrides: {stages: " + "9" * 30 + "}", "PROBLEM_RANGE", 5, "overrides.stages", "at most"),
        ("overrides: {split_k: " + "9" * 30 + "}", "PROBLEM_RANGE", 5, "overrides.split_k", "at most"),
        ("constraints: {sm_budget: " + "9" * 30 + "}", "PROBLEM_RANGE", 5, "constraints.sm_budget", "at most"),
        ("shared_gpu: {busy_sms: " + "9" * 30 + "}", "PROBLEM_RANGE", 5, "shared_gpu.busy_sms", "at most"),
        ("assume: {seed: " + "9" * 30 + "}", "PROBLEM_RANGE", 5, "assume.seed", "at most"),
        ("epilogue: {alpha: 1.0e+39}", "PROBLEM_RANGE", 5, "epilogue.alpha", "at most 3.4"),
        ("epilogue: {beta: -1.0e+39}", "PROBLEM_RANGE", 5, "epilogue.beta", "at least -3.4"),
        ('target: "\\ud800"', "PROBLEM_TYPE", 5, "target", "surrogate"),
        ("epilogue: {alpha: .nan}", "PROBLEM_TYPE", 5, "epilogue.alpha", "finite"),
        ("epilogue: {bias: rows}", "PROBLEM_CHOICE", 5, "epilogue.bias", "did you mean row?"),
        ("epilogue: relu", "PROBLEM_TYPE", 5, "epilogue", "a mapping"),
        ("dtype: bf17", "PROBLEM_CHOICE", 5, "dtype", "bf16"),
        ("dtype: null", "PROBLEM_CHOICE", 5, "dtype", "write one of"),
        ("b: {dtype: fp16}", "PROBLEM_TYPE_PAIR", 5, "b.dtype", "write b.dtype: bf16"),
        ("a: {dtype: fp16}\nb: {dtype: fp16}\ndtype: bf16", "PROBLEM_TYPE_PAIR", 7, "dtype", "fp16"),
        ("dtype: tf32\nb: {dtype: bf16}", "PROBLEM_TYPE_PAIR", 6, "b.dtype", "tf32"),
        ("a: {dtype: fp32}", "PROBLEM_DTYPE", 5, "a.dtype", "tf32"),
        ("d: {dtype: tf32}", "PROBLEM_DTYPE", 5, "d.dtype", "fp32"),
        ("d: {dtype: e4m3}", "PROBLEM_DTYPE", 5, "d.dtype", "bf16"),
        ("a: {major: n}", "PROBLEM_MAJOR", 5, "a.major", "k or m"),
        ("b: {major: m}", "PROBLEM_MAJOR", 5, "b.major", "k or n"),
        ("c: {major: k}", "PROBLEM_MAJOR", 5, "c.major", "n or m"),
        ("a:\n  ld: 63", "PROBLEM_LEADING_DIMENSION", 6, "a.ld", "64 or more"),
        ("d: {major: m, ld: 100}", "PROBLEM_LEADING_DIMENSION", 5, "d.ld", "128"),
        ("a: {align_bytes: 12}", "PROBLEM_ALIGNMENT", 5, "a.align_bytes", "16"),
        ("a: {align_bytes: 1}", "PROBLEM_ALIGNMENT", 5, "a.align_bytes", "2"),
        ("batch: 2\nd: {batch_stride: 5}", "PROBLEM_BATCH_STRIDE", 6, "d.batch_stride", "32768"),
        ("overrides: {cluster: [2, 0, 1]}", "PROBLEM_RANGE", 5, "overrides.cluster[1]", "at least 1"),
        ("overrides: {cluster: [2, 1]}", "PROBLEM_TYPE", 5, "overrides.cluster[2]", "[x, y, z]"),
        ("overrides: {cluster: [2, 1, 1, 1]}", "PROBLEM_TYPE", 5, "overrides.cluster", "[x, y, z]"),
        ("overrides: {cluster: 2}", "PROBLEM_TYPE", 5, "overrides.cluster", "three integers"),
        ("overrides: {mma_ctas: true}", "PROBLEM_TYPE", 5, "overrides.mma_ctas", "an integer"),
        ("overrides: {mma_ctas: 3}", "PROBLEM_CHOICE", 5, "overrides.mma_ctas", "1, 2"),
        ("overrides: {schedule: clk}", "PROBLEM_CHOICE", 5, "overrides.schedule", "clc"),
        ("accumulate: fast", "PROBLEM_ACCUMULATE", 5, "accumulate", "remove the line"),
        ("accumulate: quick", "PROBLEM_CHOICE", 5, "accumulate", "precise, fast"),
        ("name: 9lives", "PROBLEM_NAME", 5, "name", "lives"),
        ("name: 'x\"; system(1); //'", "PROBLEM_NAME", 5, "name", "name: x"),
        ("name: class", "PROBLEM_NAME", 5, "name", "class_gemm"),
        ('target: "b200\\n"', "PROBLEM_TYPE", 5, "target", "control characters"),
        ("target: ''", "PROBLEM_TYPE", 5, "target", "not empty"),
        ("batch: !!python/object:os.system x", "PROBLEM_SYNTAX", 5, None, "without a tag"),
        ("? [1, 2]\n: 3", "PROBLEM_SYNTAX", 5, None, "key: value"),
    ],
)
def test_a_wrong_value_is_named_with_line_field_and_fix(
    extra: str, code: str, line: int, field: str | None, fix: str
) -> None:
    error = refusal(GOOD + extra + "\n")
    assert error.where is not None
    assert (error.code, error.where.line, error.where.field) == (code, line, field)
    assert fix in f"{error.message} {error.fix}"


@pytest.mark.parametrize("key", ["m", "n", "k"])
def test_a_missing_extent_is_named_alone(key: str) -> None:
    error = refusal("".join(line + "\n" for line in GOOD.splitlines() if not line.startswith(f"{key}:")))
    assert (error.code, error.where and error.where.field) == ("PROBLEM_MISSING_KEY", key)
    assert "others" not in error.numbers


def test_every_error_of_a_file_is_listed_in_file_order() -> None:
    error = refusal(GOOD + "typ: bf16\nbatch: -1\nepilogue: {bias: up}\n")
    assert error.code == "PROBLEM_UNKNOWN_KEY"
    others = error.numbers["others"]
    assert isinstance(others, list)
    assert [each.split(":")[1] for each in others] == ["6", "7"]
    assert "also small.yaml:6" in str(error)


@pytest.mark.parametrize("kind", ["gem", "grouped_gemm", "custom", "[gemm]", "1"])
def test_a_kind_that_is_not_built_is_unknown(kind: str) -> None:
    error = refusal(GOOD.replace("kind: gemm", f"kind: {kind}"))
    assert error.code == "PROBLEM_UNKNOWN_KIND"
    assert "gemm" in error.fix


def test_a_file_without_kind_says_which_kinds_exist() -> None:
    error = refusal("m: 1\n")
    assert error.code == "PROBLEM_MISSING_KEY"
    assert "gemm" in error.fix


def test_absurd_sizes_are_refused_before_any_offset_overflows() -> None:
    error = refusal("kind: gemm\nm: 2147483647\nn: 2147483647\nk: 2147483647\n")
    assert error.code == "PROBLEM_ABSURD_SIZE"
    assert error.numbers["limit_bytes"] == 2**47


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("kind: gemm\n  m: 1\n", "PROBLEM_SYNTAX", 2),
        ("kind: [gemm\nm: 1\n", "PROBLEM_SYNTAX", 2),
        ("- kind: gemm\n", "PROBLEM_SYNTAX", 1),
        ("gemm\n", "PROBLEM_SYNTAX", 1),
        ("kind: gemm\nm: \x00\n", "PROBLEM_SYNTAX", 2),
        ("kind: *nowhere\n", "PROBLEM_SYNTAX", 1),
        ("kind: gemm\n---\nkind: gemm\n", "PROBLEM_SYNTAX", 2),
        ("%YAML 1.1\n---\nkind: gemm\n", "PROBLEM_SYNTAX", 2),
        ("", "PROBLEM_EMPTY", 1),
        (" \n\n", "PROBLEM_EMPTY", 1),
        ("# only a comment\n", "PROBLEM_EMPTY", 1),
        ("kind: " + "[" * 40 + "]" * 40 + "\n", "PROBLEM_LIMIT", 1),
        ("kind: " + "[" * 100_000, "PROBLEM_LIMIT", 1),
        ("kind: gemm\na: &a [*a]\n", "PROBLEM_LIMIT", 2),
    ],
)
def test_text_that_is_no_problem_file_is_refused_with_its_line(text: str, code: str, line: int) -> None:
    error = refusal(text)
    assert (error.code, error.where and error.where.line) == (code, line)


def test_aliases_that_explode_are_stopped() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    error = refusal("\n".join(lines))
    assert error.code == "PROBLEM_LIMIT"
    assert "aliases" in error.message


def test_yaml_1_2_numbers_are_read_as_written() -> None:
    p = problem("kind: gemm\nm: 010\nn: 8_192\nk: 0x40\nepilogue: {alpha: 1e-5, bias: none}\n")
    assert (p.m, p.n, p.k, p.epilogue.alpha) == (10, 8192, 64, 1e-5)


@given(st.text(max_size=200))
def test_any_text_is_a_problem_or_a_problem_error(text: str) -> None:
    assert isinstance(outcome(text), (GemmProblem, ProblemError))


@given(
    st.dictionaries(
        st.sampled_from(["m", "n", "k", "batch", "dtype", "a", "d", "overrides", "epilogue", "target", "name"]),
        st.one_of(st.none(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=3), st.floats()),
    )
)
def test_any_value_is_a_problem_or_a_problem_error(values: dict[str, object]) -> None:
    text = json.dumps({"kind": "gemm", "m": 1, "n": 1, "k": 1, **values})
    assert isinstance(outcome(text), (GemmProblem, ProblemError))


def test_a_missing_file_suggests_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "gemm.yaml").write_text(GOOD)
    with pytest.raises(ProblemError) as caught:
        load_problem(tmp_path / "gem.yaml")
    assert caught.value.code == "PROBLEM_UNREADABLE"
    assert "gemm.yaml" in caught.value.fix


def test_a_folder_is_not_a_problem_file(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="folder") as caught:
        load_problem(tmp_path)
    assert caught.value.code == "PROBLEM_UNREADABLE"


@pytest.mark.parametrize("data", [b"\x7fELF\x02\x01\x00\xff\xfe", b"kind: gemm\nm: \xff\n"])
def test_a_binary_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(data)
    with pytest.raises(ProblemError) as caught:
        load_problem(path)
    assert caught.value.code in ("PROBLEM_UNREADABLE", "PROBLEM_SYNTAX")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.write_bytes(b"#" * (2 << 20))
    with pytest.raises(ProblemError) as caught:
        load_problem(path)
    assert caught.value.code == "PROBLEM_LIMIT"


def test_a_file_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path: Path) -> None:
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_problem(path).m == 128


def test_the_schema_is_a_schema_and_describes_every_key() -> None:
    schema = problem_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for kind, model in zip(schema["oneOf"], (GemmProblem, RowReduceProblem), strict=True):
        assert set(kind["properties"]) == set(model.model_fields)
        assert all("description" in each for each in kind["properties"].values())


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "gemm", "m": 1, "n": 1},
        {"kind": "gemm", "m": -1, "n": 1, "k": 1},
        {"kind": "gemm", "m": 1, "n": 1, "k": 1, "typ": "bf16"},
        {"kind": "gemm", "m": 1, "n": 1, "k": 1, "a": {"major": "n"}},
        {"kind": "gemm", "m": 1, "n": 1, "k": 1, "overrides": {"cluster": [2, 1]}},
        {"kind": "grouped_gemm", "m": 1, "n": 1, "k": 1},
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(document: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, problem_schema())


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("dtype: fp8", "did you mean e4m3 or e5m2?"),
        ("dtype: float8_e5m2", "did you mean e5m2?"),
        ("dtype: bfloat16", "did you mean bf16?"),
        ("dtype: half", "did you mean fp16?"),
        ("dtype: bf16\nd: {dtype: float32}", "did you mean fp32 or tf32?"),
        ("dtype: float32", "did you mean tf32?"),
        ("dtype: bf16\nlayout: nt", "layouts are of each matrix: a: {major: k or m}"),
        ("dtype: bf16\ntrans_a: true", "layouts are of each matrix: a: {major: k or m}"),
    ],
)
def test_what_other_tools_call_it_is_understood_in_the_fix(line, fix):
    with pytest.raises(ProblemError) as caught:
        parse_problem(f"kind: gemm\nm: 64\nn: 64\nk: 64\n{line}\n", "problem.yaml")
    assert caught.value.fix.startswith(fix)


DOCUMENTED = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "problem.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", DOCUMENTED, ids=range(len(DOCUMENTED)))
def test_every_example_of_the_documentation_is_read(text: str) -> None:
    parse_problem(text, "documented.yaml")


def test_the_documentation_has_a_launch_of_two_cluster_sizes() -> None:
    problems = [parse_problem(text, "documented.yaml") for text in DOCUMENTED]
    sizes = [(p.overrides.preferred_cluster, p.overrides.cluster) for p in problems if isinstance(p, GemmProblem)]
    assert ((4, 2, 1), (2, 1, 1)) in sizes
