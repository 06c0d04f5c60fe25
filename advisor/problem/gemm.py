"""`kind: gemm`: D[m,n] = activation(alpha * scale_a * scale_b * A[m,k] B[k,n] + beta * C[m,n] + bias).

The model is the *resolved* problem: defaults (types, leading dimensions, batch strides) are filled while it is
read, so that dumping it and reading it again gives the same model. Extents and strides count elements.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, model_validator

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

Extent = Annotated[int, Field(ge=0, le=MAX_EXTENT)]
Positive = Annotated[int, Field(ge=1, le=2**40)]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Matrix(Frozen):
    """An operand as it lies in memory. `major` names the contiguous extent; `ld` is the stride of the other one."""

    dtype: Literal["bf16", "fp16", "tf32", "e4m3", "e5m2", "fp32"]
    major: Literal["k", "m", "n"]
    ld: Positive
    align_bytes: Annotated[int, Field(ge=1, le=4096)] = 16
    batch_stride: Annotated[int, Field(ge=0, le=2**50)]

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]


class Scale(Frozen):
    a: Literal["none", "tensor"] = "none"
    b: Literal["none", "tensor"] = "none"


class Epilogue(Frozen):
    alpha: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    beta: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    bias: Literal["none", "row", "col"] = "none"  # row: one value per n, along a row; col: one per m
    activation: Literal["none", "relu", "gelu", "silu"] = "none"


class LaunchOptions(Frozen):
    pdl: bool = False


class SharedGpu(Frozen):
    busy_sms: Annotated[int, Field(ge=0)] = 0


class Assume(Frozen):
    tile_cost_cv: Annotated[float, Field(ge=0.0, le=10.0, allow_inf_nan=False)] = 0.0
    seed: Annotated[int, Field(ge=0)] = 0


class Constraints(Frozen):
    sm_budget: Annotated[int, Field(ge=1)] | None = None
    max_cluster_size: Annotated[int, Field(ge=1, le=16)] = 16
    fallback: Literal["preferred", "required"] = "preferred"
    deterministic: bool = True


class Overrides(Frozen):
    """Forced choices; each one absent means the planner decides."""

    kernel: Literal["sm100", "sm90", "portable"] | None = None
    cluster: tuple[int, int, int] | None = None
    schedule: Literal["one_tile", "static", "ticket", "clc"] | None = None
    tile: tuple[int, int, int] | None = None  # (m, n, k) per CTA, in MMA coordinates
    stages: Annotated[int, Field(ge=1)] | None = None
    mma_ctas: Literal[1, 2] | None = None
    split_k: Annotated[int, Field(ge=1)] | None = None
    swap_ab: bool | None = None


class GemmProblem(Frozen):
    """A dense GEMM, resolved."""

    kind: Literal["gemm"]
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)] = "gemm"
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
    target: str = "auto"
    launch: LaunchOptions = LaunchOptions()
    shared_gpu: SharedGpu = SharedGpu()
    assume: Assume = Assume()
    constraints: Constraints = Constraints()
    overrides: Overrides = Overrides()

    @model_validator(mode="before")
    @classmethod
    def _fill_operands(cls, data: Any) -> Any:
        return fill_operands(data) if isinstance(data, dict) else data

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
    dtype = data.get("dtype") or _dtype_of(data.get("a")) or "bf16"
    filled["dtype"] = dtype
    is_fp8 = dtype in ("e4m3", "e5m2")
    output = "fp32" if dtype == "tf32" else "bf16" if is_fp8 else dtype
    output = _dtype_of(data.get("d")) or output
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


def _dtype_of(matrix: Any) -> Any:
    return matrix.get("dtype") if isinstance(matrix, dict) else None


def _is_extent(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
