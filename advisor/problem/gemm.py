"""`kind: gemm`: D[m,n] = activation(alpha * scale_a * scale_b * A[m,k] B[k,n] + beta * C[m,n] + bias).

The model is the *resolved* problem: defaults (types, leading dimensions, batch strides) are filled while it is
read, so that dumping it and reading it again gives the same model. Extents and strides count elements.
"""

from __future__ import annotations

import keyword
import sys
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

InputType = Literal["bf16", "fp16", "tf32", "e4m3", "e5m2"]
OutputType = Literal["bf16", "fp16", "fp32"]

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "fp32": 4}
TORCH_NAME = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "tf32": "float32",
    "fp32": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}
MAX_EXTENT = 2**31 - 1  # TMA coordinates are signed 32-bit
MAX_FLOAT32 = 3.4028234663852886e38  # kernels take alpha and beta as float32: beyond it they would be infinite
MAX_SPAN_BYTES = 2**47  # one matrix, all batches: beyond any GPU's memory, and far from overflowing a 64-bit offset
MAX_NAME_LENGTH = 64
NAME_PATTERN = r"^[a-z][a-z0-9_]*$"

MAJORS = {"a": ("k", "m"), "b": ("k", "n"), "c": ("n", "m"), "d": ("n", "m")}  # the default first
EXTENTS = {"a": ("m", "k"), "b": ("n", "k"), "c": ("m", "n"), "d": ("m", "n")}
INPUT_TYPES: tuple[InputType, ...] = ("bf16", "fp16", "tf32", "e4m3", "e5m2")
OUTPUT_TYPES: tuple[OutputType, ...] = ("bf16", "fp16", "fp32")

# The name becomes a C++ namespace and a Python module: words of either language would not compile.
_CPP_WORDS = """alignas alignof asm auto bitand bitor bool catch char compl concept const constexpr consteval constinit
    decltype default delete do double dynamic_cast enum explicit export extern float friend goto inline int long main
    mutable namespace new noexcept not_eq nullptr operator or_eq private protected public register requires short signed
    sizeof static static_assert static_cast std struct switch template this throw true false typedef typeid typename
    union unsigned using virtual void volatile wchar_t xor and_eq xor_eq cuda advisor"""
# It becomes the files <name>.h and <name>.py too: beside these, `#include <string.h>` or `import json` would find the
# bundle's, in the launcher and the binding as in the code of whoever uses them.
_HEADERS = """aio alloca assert byteswap complex ctype dirent dlfcn elf endian err errno error fcntl features fenv float
    glob iconv inttypes iso646 langinfo libgen limits link locale malloc math memory monetary mqueue netdb poll pthread
    pwd regex sched search semaphore setjmp signal spawn stab stdalign stdarg stdatomic stdbool stddef stdint stdio
    stdlib stdnoreturn string strings syscall syslog tar termios tgmath threads time uchar ucontext unistd utime values
    wait wchar wctype wordexp builtin_types device_types driver_types host_config host_defines math_constants mma
    surface_types texture_types vector_functions vector_types nvrtc"""
_MODULES = "cupy numpy torch jax tensorflow"
# And a target of CMake.
_TARGETS = "all clean edit_cache help images install list_install_components package package_source preinstall test"
RESERVED_NAMES = frozenset(
    [
        *keyword.kwlist,
        *keyword.softkwlist,
        *sys.stdlib_module_names,
        *f"{_CPP_WORDS} {_HEADERS} {_MODULES} {_TARGETS}".split(),
    ]
)


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


Extent = Annotated[int, Field(ge=0, le=MAX_EXTENT)]
Positive = Annotated[int, Field(ge=1, le=2**40)]
AtLeastOne = Annotated[int, Field(ge=1, le=MAX_EXTENT)]
Factor = Annotated[float, Field(ge=-MAX_FLOAT32, le=MAX_FLOAT32, allow_inf_nan=False)]
Triple = Annotated[tuple[AtLeastOne, AtLeastOne, AtLeastOne], Field(strict=False)]  # JSON and YAML bring lists


class Frozen(BaseModel):
    """Frozen, no unknown keys, no silent conversion: `"8192"`, `true` and `8192.0` are not integers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


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


class SharedGpu(Frozen):
    busy_sms: Extent = 0


class Assume(Frozen):
    tile_cost_cv: Annotated[float, Field(ge=0.0, le=10.0, allow_inf_nan=False)] = 0.0
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0


class Constraints(Frozen):
    sm_budget: AtLeastOne | None = None
    max_cluster_size: Annotated[int, Field(ge=1, le=16)] = 16
    fallback: Literal["preferred", "required"] = "preferred"
    deterministic: bool = True


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


class GemmProblem(Frozen):
    """A dense GEMM, resolved."""

    kind: Literal["gemm"]
    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=MAX_NAME_LENGTH)] = "gemm"
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
    target: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]*$")] = "auto"
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
        for rule in (name_rule, _type_rule, _layout_rule, _span_rule, _overlap_rule):
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


def broken(code: str, field: str, value: object, rule: str, fix: str, **numbers: object) -> PydanticCustomError:
    """A rule between several fields, in the form that the loader turns into a ProblemError."""
    context = {"code": code, "field": field, "value": value, "rule": rule, "fix": fix, "numbers": numbers}
    return PydanticCustomError("rule", "{field}: {rule}", context)


def name_rule(p: Any) -> None:
    """Of any kind: a name that C++, Python or CMake would read otherwise."""
    if p.name in RESERVED_NAMES:
        raise broken(
            "PROBLEM_NAME",
            "name",
            p.name,
            f"{p.name!r} has a meaning in C++, Python or CMake, and the name becomes a header, a module and a target",
            f"write name: {p.name}_{p.kind}",
        )


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
