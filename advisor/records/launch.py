"""launch.json: the only place that says how a kernel is launched, and its resolved form with numbers for expressions.

The C++ launcher is rendered from it; the Python binding, the runtime, the emulator and the validation read it;
nothing else computes a launch. Expressions are evaluated by `bundle.expressions`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from advisor.records.base import Record
from advisor.records.candidate import Family, Schedule

ScalarType = Literal["u8", "s8", "u16", "s16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64"]
TorchType = Literal[
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
]
Expression = str  # or a plain int, where a number is already known
Value = Expression | int
Swizzle = Literal["none", "32B", "64B", "128B", "128B_ATOM_32B"]

TORCH_TYPE_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
}


class Argument(Record):
    """A run-time argument of the bundle: an extent, a stride, alpha."""

    name: str
    type: Literal["i64", "f32"]
    min: int | None = None
    max: int | None = None  # beyond it a kernel's own numbers overflow
    default: float | int | None = None  # the problem's own value


class Buffer(Record):
    """Device memory that the caller owns. `shape` is outermost first, in storage elements."""

    dtype: TorchType
    shape: list[Value]
    role: Literal["in", "out", "inout"]
    align_bytes: int = 16


class _TensorMap(Record):
    """The driver encoder's arguments, innermost dimension first; whoever runs it makes the 128 bytes."""

    kind: str
    name: str
    buffer: str
    dtype: str
    rank: int
    global_dim: list[Value]
    global_stride_bytes: list[Value]
    box_dim: list[int]
    element_strides: list[int]
    swizzle: str
    interleave: Literal["none", "16B", "32B"] = "none"
    l2_promotion: Literal["none", "64B", "128B", "256B"] = "128B"
    oob_fill: Literal["zero", "nan"] = "zero"


class TensorMapParam(_TensorMap):
    """A tensor map whose elements are those of its buffer, or bytes where two values share one."""

    kind: Literal["tensormap"] = "tensormap"
    dtype: TorchType
    swizzle: Swizzle


class ElementMapParam(_TensorMap):
    """A tensor map with the encoder's own element type and swizzle, by the driver's names: extents, boxes and
    coordinates count these elements. Only a resolved launch has it."""

    kind: Literal["element_map"] = "element_map"
    dtype: Literal[
        "UINT16",
        "UINT64",
        "FLOAT32_FTZ",
        "TFLOAT32",
        "TFLOAT32_FTZ",
        "16U4_ALIGN8B",
        "16U4_ALIGN16B",
        "16U6_ALIGN16B",
    ]
    swizzle: Literal["none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"]


class PtrParam(Record):
    """A pointer into a buffer; `buffer: null` passes a null pointer (an operand that this kernel does not read)."""

    kind: Literal["ptr"] = "ptr"
    name: str
    buffer: str | None
    offset_bytes: Value = "0"


class ScalarParam(Record):
    """A scalar: integers are expressions, a float names an argument (or is a number in a resolved launch)."""

    kind: ScalarType
    name: str
    value: Value | float


class ScratchParam(Record):
    """Memory that the launcher provides. `zeros`: a memset on the stream before every launch;
    `self_resetting`: zeroed once, the kernel leaves it zero; `none`: never read before written.
    Two kernels of a sequence that name the same scratch share it."""

    kind: Literal["scratch"] = "scratch"
    name: str
    bytes: Value
    align: int = 256
    init: Literal["none", "zeros", "self_resetting"] = "none"


Param = Annotated[TensorMapParam | PtrParam | ScalarParam | ScratchParam, Field(discriminator="kind")]


class BytesParam(Record):
    """A parameter as its bytes, in hexadecimal: a struct by value. Only a resolved launch has it."""

    kind: Literal["bytes"] = "bytes"
    name: str
    value: str


ResolvedParam = Annotated[
    TensorMapParam | ElementMapParam | PtrParam | ScalarParam | ScratchParam | BytesParam, Field(discriminator="kind")
]


class LaunchAttributes(Record):
    programmatic_stream_serialization: bool = False
    preferred_cluster: tuple[int, int, int] | None = None


class Kernel(Record):
    """How one kernel is built and launched. `source` and `images` are paths inside the bundle."""

    id: str
    family: Family
    schedule: Schedule
    source: str
    defines: dict[str, int | str]
    entry: str
    images: dict[str, str]  # target -> cubin
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    nonportable: bool
    carveout: Literal["max", "default"] = "max"
    dynamic_smem_bytes: Value
    static_smem_bytes: int = 0
    tmem_columns: int = 0
    registers: int  # at most, per thread
    grid_blocks: tuple[Value, Value, Value]
    attributes: LaunchAttributes = LaunchAttributes()
    params: list[Param]
    tile: tuple[int, int, int]  # (M, N, K) per CTA, MMA coordinates: for reports and cases
    split_k: int = Field(default=1, ge=1, lt=2**31)
    swap_ab: bool = False


class Rung(Record):
    """`run` names a kernel or a sequence; the first rung whose `when` holds runs."""

    run: str
    when: Expression


class Launch(Record):
    schema_version: Literal[1] = 1
    name: str
    arguments: list[Argument]
    buffers: dict[str, Buffer]
    kernels: list[Kernel]
    sequences: dict[str, list[str]] = Field(default_factory=dict)
    ladder: list[Rung]

    def kernel(self, kernel_id: str) -> Kernel:
        """The kernel with this id. Raises KeyError."""
        for kernel in self.kernels:
            if kernel.id == kernel_id:
                return kernel
        raise KeyError(kernel_id)

    def kernels_of(self, run: str) -> list[Kernel]:
        """The kernels that a rung launches, in order."""
        return [self.kernel(each) for each in self.sequences.get(run, [run])]

    def uses_clc(self, run: str) -> bool:
        """Whether a rung uses Cluster Launch Control: runtime.json may switch it off."""
        return any(kernel.schedule == "clc" for kernel in self.kernels_of(run))


class BufferInit(Record):
    """A buffer of a resolved launch, and how its first bytes are made."""

    shape: list[int]
    dtype: TorchType
    init: Literal["normal", "uniform", "zeros", "ones", "nan", "randint", "poison", "arange"] = "zeros"
    seed: int = Field(default=0, ge=0)
    scale: float = 1.0


class Expected(Record):
    buffer: str
    formula: str
    bound: str


class ResolvedLaunch(Record):
    """One kernel with numbers in place of expressions: what the emulator's `--launch` takes."""

    entry: str
    target: str  # the arch of the PTX
    grid_blocks: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    nonportable: bool = False
    carveout: Literal["max", "default"] = "max"
    dynamic_smem_bytes: int
    attributes: LaunchAttributes = LaunchAttributes()
    params: list[ResolvedParam]
    buffers: dict[str, BufferInit]
    predecessor_writes: list[str] = Field(default_factory=list)
    """Buffers and scratch that the kernel before this one on the stream may still be writing when this one starts."""
    expected: list[Expected] = Field(default_factory=list)


class KernelSpec(Record):
    """What a kind hands to codegen for one kernel: the template with its typed context, and the launch.

    All kernels of one family in a bundle share one rendered source (`kernel.source`), so their `template` and
    `context` are equal; what differs between them is in `kernel.defines`. Codegen finds the headers under
    `templates/include/` that the source reaches.

    `conditions` are terms of the rung's `when` that only the caller's arguments decide: alignments and strides that
    the kernel's tensor maps need. `traced` is the kernel's twin that also adds 1 to a uint32 for every tile and slice
    that it finishes, in a buffer of `trace_shape`.
    """

    kernel: Kernel
    template: str  # path under templates/: kernels/gemm_sm90.cu.j2
    context: dict[str, Any]
    role: Literal["chosen", "static_twin", "one_tile_twin", "smaller_cluster", "portable", "reduce"]
    conditions: list[Expression] = Field(default_factory=list)
    traced: Kernel | None = None
    trace_shape: list[Value] = Field(default_factory=list)
