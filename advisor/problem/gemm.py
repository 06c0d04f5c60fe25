"""`kind: gemm`: D[m,n] = activation(alpha * scale_a * scale_b * A[m,k] B[k,n] + beta * C[m,n] + bias).

The model is the *resolved* problem: defaults (types, leading dimensions, batch strides) are filled while it is
read, so that dumping it and reading it again gives the same model. Extents and strides count elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeGuard

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from advisor.problem.base import (
    ELEMENT_BYTES,
    MAX_EXTENT,
    MAX_SPAN_BYTES,
    Assume,
    AtLeastOne,
    Constraints,
    Extent,
    Factor,
    Frozen,
    Name,
    Positive,
    Problem,
    SharedGpu,
    Target,
    Triple,
    broken,
    name_rule,
    written,
)

InputType = Literal["bf16", "fp16", "tf32", "e4m3", "e5m2"]
OutputType = Literal["bf16", "fp16", "fp32"]

MAJORS = {"a": ("k", "m"), "b": ("k", "n"), "c": ("n", "m"), "d": ("n", "m")}  # the default first
EXTENTS = {"a": ("m", "k"), "b": ("n", "k"), "c": ("m", "n"), "d": ("m", "n")}
INPUT_TYPES: tuple[InputType, ...] = ("bf16", "fp16", "tf32", "e4m3", "e5m2")
OUTPUT_TYPES: tuple[OutputType, ...] = ("bf16", "fp16", "fp32")


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


class Matrix(Frozen):
    """An operand as it lies in memory. `major` names the contiguous extent; `ld` is the stride of the other one."""

    dtype: Literal["bf16", "fp16", "tf32", "e4m3", "e5m2", "fp32"]
    major: Literal["k", "m", "n"]
    ld: Positive
    align_bytes: Annotated[int, Field(ge=1, le=4096)] = 16
    batch_stride: Annotated[int, Field(ge=0, le=2**63 - 1)]

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]


class Scale(Frozen):
    a: Literal["none", "tensor"] = "none"
    b: Literal["none", "tensor"] = "none"


class Epilogue(Frozen):
    alpha: Factor = 1.0
    beta: Factor = 0.0
    bias: Literal["none", "row", "col"] = "none"  # row: one value per n, along a row; col: one per m
    activation: Literal["none", "relu", "gelu", "silu"] = "none"


class LaunchOptions(Frozen):
    pdl: bool = False


class Overrides(Frozen):
    """Forced choices; each one absent means the planner decides."""

    kernel: Literal["sm100", "sm90", "portable"] | None = None
    cluster: Triple | None = None
    preferred_cluster: Triple | None = None  # beside `cluster`, or beside pairs: the launch mixes both sizes
    schedule: Literal["one_tile", "static", "ticket", "clc"] | None = None
    tile: Triple | None = None  # (m, n, k) per CTA, in MMA coordinates
    stages: AtLeastOne | None = None
    mma_ctas: Annotated[Literal[1, 2], BeforeValidator(_no_bool)] | None = None
    split_k: AtLeastOne | None = None
    swap_ab: bool | None = None


class GemmProblem(Problem):
    """A dense GEMM, resolved."""

    derived: ClassVar[tuple[str, ...]] = ("ld", "batch_stride")
    extents: ClassVar[tuple[str, ...]] = ("m", "n", "k", "batch")
    other_names: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("layout", "transpose", "trans", "trans_a", "trans_b", "transa", "transb"),
        "layouts are of each matrix: a: {major: k or m}, b: {major: k or n}, c and d: {major: n or m}",
    )
    begins: ClassVar[str] = "kind: gemm, m:, n:, k: and dtype:"

    kind: Literal["gemm"]
    name: Name = "gemm"
    m: Extent
    n: Extent
    k: Extent
    batch: Annotated[int, Field(ge=0, le=MAX_EXTENT)] = 1
    dtype: InputType = "bf16"
    a: Matrix
    b: Matrix
    c: Matrix
    d: Matrix
    scale: Scale = Scale()
    accumulate: Literal["precise", "fast"] = "precise"
    epilogue: Epilogue = Epilogue()
    target: Target = "auto"
    launch: LaunchOptions = LaunchOptions()
    shared_gpu: SharedGpu = SharedGpu()
    assume: Assume = Assume()
    constraints: Constraints = Constraints()
    overrides: Overrides = Overrides()

    @model_validator(mode="before")
    @classmethod
    def _fill_operands(cls, data: Any) -> Any:
        return fill_operands(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _check_rules(self) -> GemmProblem:
        for rule in (name_rule, _type_rule, _accumulate_rule, _layout_rule, _span_rule, _overlap_rule):
            rule(self)
        return self

    @property
    def uses_c(self) -> bool:
        """C is compiled in only when beta is given and not 0."""
        return self.epilogue.beta != 0.0

    @property
    def is_fp8(self) -> bool:
        return ELEMENT_BYTES[self.a.dtype] == 1

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def words(self) -> str:
        batch = f", batch {self.batch}" if self.batch != 1 else ""
        types = "/".join(each.dtype for each in (self.a, self.b, self.d))
        return f"gemm m={self.m} n={self.n} k={self.k}{batch}, a/b/d {types}"

    @classmethod
    def file_schema(cls) -> dict[str, Any]:
        schema = cls.model_json_schema()
        definitions = schema["$defs"]
        matrix = definitions.pop("Matrix")
        for name in ("a", "b", "c", "d"):
            types = INPUT_TYPES if name in "ab" else OUTPUT_TYPES
            properties = {key: dict(value) for key, value in matrix["properties"].items()}
            properties["dtype"] = {"enum": list(types)}
            properties["major"] = {"enum": list(MAJORS[name]), "default": MAJORS[name][0]}
            properties["ld"]["description"] = "Elements between neighbours along the other extent. Default: packed."
            properties["batch_stride"]["description"] = (
                "Elements between batches. 0 broadcasts an input. Default: packed."
            )
            properties["align_bytes"]["description"] = "What the base pointer is aligned to; TMA needs 16."
            schema["properties"][name] = {
                "type": "object",
                "properties": properties,
                "additionalProperties": False,
                "description": f"{EXTENTS[name][0]} x {EXTENTS[name][1]}",
            }
        return written(schema, "A dense GEMM", ("kind", "m", "n", "k"), _DESCRIPTIONS)


_DESCRIPTIONS = {
    "kind": "What the problem is. gemm: D = activation(alpha * scale_a * scale_b * A B + beta * C + bias).",
    "m": "Rows of D. 0 is valid: nothing to launch.",
    "n": "Columns of D. 0 is valid: nothing to launch.",
    "k": "Depth of the product. 0 is valid: the epilogue alone is written.",
    "batch": "Independent products of one launch.",
    "dtype": "Shorthand for the types of a and b. d and c then default to it; tf32 to fp32, fp8 to bf16.",
    "a": "Operand A, m x k.",
    "b": "Operand B, k x n (stored n x k when k is its contiguous extent).",
    "c": "Operand C, m x n: compiled in when epilogue.beta is not 0.",
    "d": "Result D, m x n.",
    "scale": "Per-tensor scale factors: tensor reads one float from the device.",
    "accumulate": "fp8 on Hopper: precise promotes the partial sums to fp32, fast does not.",
    "epilogue": "alpha and beta, the bias vector and the activation.",
    "launch": "pdl: programmatic dependent launch.",
}


def fill_operands(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with `a`, `b`, `c`, `d` complete: type from `dtype`, `ld` packed, batch stride of a packed matrix.

    Values of the wrong type are left as they are: the model that follows names them.
    """
    filled = dict(data)
    dtype = data["dtype"] if "dtype" in data else _dtype_of(data.get("a"), INPUT_TYPES) or "bf16"
    filled["dtype"] = dtype
    is_fp8 = dtype in ("e4m3", "e5m2")
    output = "fp32" if dtype == "tf32" else "bf16" if is_fp8 else dtype
    output = _dtype_of(data.get("d"), OUTPUT_TYPES) or output
    for name, default_type, default_major, rows, cols in (
        ("a", dtype, "k", "m", "k"),
        ("b", dtype, "k", "n", "k"),
        ("c", output, "n", "m", "n"),
        ("d", output, "n", "m", "n"),
    ):
        given = data.get(name, {})
        if not isinstance(given, dict):
            continue
        matrix = {"dtype": default_type, "major": default_major, **given}
        row_extent, col_extent = data.get(rows), data.get(cols)
        if _is_extent(row_extent) and _is_extent(col_extent):
            inner, outer = (col_extent, row_extent) if matrix["major"] == cols else (row_extent, col_extent)
            matrix.setdefault("ld", max(1, inner))
            if _is_extent(matrix["ld"]):
                matrix.setdefault("batch_stride", matrix["ld"] * outer)
        filled[name] = matrix
    return filled


def _dtype_of(matrix: Any, allowed: tuple[str, ...]) -> Any:
    """The operand's own type, where it is one that others may default to."""
    dtype = matrix.get("dtype") if isinstance(matrix, dict) else None
    return dtype if dtype in allowed else None


def _is_extent(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _type_rule(p: GemmProblem) -> None:
    """Operand pairs that tensor cores multiply: equal 16-bit types, tf32 with tf32, any two fp8 types."""
    for name, matrix, allowed in (
        ("a", p.a, INPUT_TYPES),
        ("b", p.b, INPUT_TYPES),
        ("c", p.c, OUTPUT_TYPES),
        ("d", p.d, OUTPUT_TYPES),
    ):
        if matrix.dtype not in allowed:
            fix = {
                "fp32": "write tf32: fp32 operands are read as tf32",
                "tf32": "write fp32: results are stored as fp32",
            }
            raise broken(
                "PROBLEM_DTYPE",
                f"{name}.dtype",
                matrix.dtype,
                f"{name} takes one of {', '.join(allowed)}",
                fix.get(matrix.dtype, f"write one of {', '.join(allowed)}"),
            )
    if p.dtype not in (p.a.dtype, p.b.dtype):
        raise broken(
            "PROBLEM_TYPE_PAIR",
            "dtype",
            p.dtype,
            f"dtype is the shorthand for a and b, but a is {p.a.dtype} and b is {p.b.dtype}",
            f"write dtype: {p.a.dtype}, or leave dtype out",
        )
    is_fp8 = ELEMENT_BYTES[p.a.dtype] == 1 and ELEMENT_BYTES[p.b.dtype] == 1
    if p.a.dtype != p.b.dtype and not is_fp8:
        raise broken(
            "PROBLEM_TYPE_PAIR",
            "b.dtype",
            p.b.dtype,
            f"no tensor-core instruction multiplies {p.a.dtype} by {p.b.dtype}: both must have one type, "
            "only e4m3 and e5m2 mix",
            f"write b.dtype: {p.a.dtype}, or convert one operand first",
        )


def _accumulate_rule(p: GemmProblem) -> None:
    if p.accumulate == "fast" and not p.is_fp8:
        raise broken(
            "PROBLEM_ACCUMULATE",
            "accumulate",
            p.accumulate,
            f"accumulate: fast is about partial sums of fp8 operands, and a is {p.a.dtype}",
            "remove the line: other types are always summed in fp32",
            dtype=p.a.dtype,
        )


def _layout_rule(p: GemmProblem) -> None:
    for name, matrix in (("a", p.a), ("b", p.b), ("c", p.c), ("d", p.d)):
        majors = MAJORS[name]
        if matrix.major not in majors:
            raise broken(
                "PROBLEM_MAJOR",
                f"{name}.major",
                matrix.major,
                f"{name} is {EXTENTS[name][0]} x {EXTENTS[name][1]}: its contiguous extent is {' or '.join(majors)}",
                f"write {name}.major: {majors[0]} or {majors[1]}",
            )
        inner, _ = inner_outer(p, name)
        if matrix.ld < inner:
            raise broken(
                "PROBLEM_LEADING_DIMENSION",
                f"{name}.ld",
                matrix.ld,
                f"ld counts elements between neighbours along the other extent, so it is at least "
                f"{matrix.major} = {inner}",
                f"write {name}.ld: {inner} or more, or leave it out for packed storage",
                ld=matrix.ld,
                inner_extent=inner,
            )
        align = matrix.align_bytes
        if align & (align - 1) or align < matrix.element_bytes:
            raise broken(
                "PROBLEM_ALIGNMENT",
                f"{name}.align_bytes",
                align,
                f"the alignment of a base pointer is a power of two and at least one element "
                f"({matrix.element_bytes} bytes)",
                f"write {name}.align_bytes: 16 where the pointer is 16-byte aligned, else {matrix.element_bytes}",
            )


def _span_rule(p: GemmProblem) -> None:
    for name, matrix in (("a", p.a), ("b", p.b), ("c", p.c), ("d", p.d)):
        inner, outer = inner_outer(p, name)
        elements = max(0, p.batch - 1) * matrix.batch_stride + max(0, outer - 1) * matrix.ld + inner
        if elements * matrix.element_bytes > MAX_SPAN_BYTES:
            terabytes = elements * matrix.element_bytes / 2**40
            raise broken(
                "PROBLEM_ABSURD_SIZE",
                EXTENTS[name][0],
                getattr(p, EXTENTS[name][0]),
                f"{name} would span {terabytes:.0f} TiB with its leading dimension and batches; "
                f"the limit is {MAX_SPAN_BYTES // 2**40} TiB",
                "check m, n, k, batch and the strides: they count elements, not bytes",
                span_bytes=elements * matrix.element_bytes,
                limit_bytes=MAX_SPAN_BYTES,
            )


def _overlap_rule(p: GemmProblem) -> None:
    """Inputs may share memory between batches (stride 0 broadcasts); outputs that share it would race."""
    inner, outer = inner_outer(p, "d")
    if p.batch <= 1 or inner == 0 or outer == 0:
        return
    stride = p.d.batch_stride
    apart = stride >= (outer - 1) * p.d.ld + inner
    interleaved = stride >= inner and p.d.ld >= (p.batch - 1) * stride + inner
    if not apart and not interleaved:
        packed = p.d.ld * outer
        raise broken(
            "PROBLEM_BATCH_STRIDE",
            "d.batch_stride",
            stride,
            f"batches of d overlap: with ld {p.d.ld} one batch spans {(outer - 1) * p.d.ld + inner} elements",
            f"write d.batch_stride: {packed}, or leave it out",
            batch_stride=stride,
            packed=packed,
        )


def inner_outer(p: GemmProblem, name: str) -> tuple[int, int]:
    """(contiguous extent, other extent) of operand `a`, `b`, `c` or `d`, in elements."""
    matrix: Matrix = getattr(p, name)
    rows, cols = EXTENTS[name]
    row_extent, col_extent = getattr(p, rows), getattr(p, cols)
    return (col_extent, row_extent) if matrix.major == cols else (row_extent, col_extent)


PROBLEM = GemmProblem
