"""Tensor maps: encoding under the driver encoder's rules, an image of 128 bytes, and what a box touches.

Imports `errors` and `records`. The driver's image is opaque ("a tensor map object is an opaque value", driver API), so
the image here is the emulator's own and holds the encoder's arguments; `tensormap.replace` edits it by field. The
rules are those of cuTensorMapEncodeTiled; PTX ISA 5.5 says what a box touches.

A box is addressed as NumPy arrays in one go: for each chunk of a box row, the offset in shared memory after swizzling
and, per element, the global address and whether it lies inside the tensor. `TensorMap.transfer` gives both per chunk of
the finest run that is contiguous on both sides, so that a copy is one fancy-indexed assignment.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

import numpy as np
import numpy.typing as npt

from advisor.errors import InputError
from advisor.records.launch import ElementMapParam, TensorMapParam

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

IMAGE_BYTES = 128
MAX_RANK = 5
MAX_BOX = 256
MAX_ELEMENT_STRIDE = 8
_MAGIC = 0x50414D54  # "TMAP": tells an image from memory that nobody encoded a map into


class DataType(Enum):
    """CUtensorMapDataType: value, bits of an element, and whether it is a floating-point type.

    The order is the one of the PTX table for tensormap.replace .elemtype, not of the driver's enum.
    """

    UINT8 = (0, 8, False)
    UINT16 = (1, 16, False)
    UINT32 = (2, 32, False)
    INT32 = (3, 32, False)
    UINT64 = (4, 64, False)
    INT64 = (5, 64, False)
    FLOAT16 = (6, 16, True)
    FLOAT32 = (7, 32, True)
    FLOAT32_FTZ = (8, 32, True)
    FLOAT64 = (9, 64, True)
    BFLOAT16 = (10, 16, True)
    TFLOAT32 = (11, 32, True)
    TFLOAT32_FTZ = (12, 32, True)
    U4_ALIGN8B = (13, 4, False)  # 16U4_ALIGN8B: packed on both sides
    U4_ALIGN16B = (14, 4, False)  # 16U4_ALIGN16B: 8 bytes of values in every 16 of shared memory
    U6_ALIGN16B = (15, 6, False)  # 16U6_ALIGN16B: 12 bytes of values in every 16

    @property
    def code(self) -> int:
        return self.value[0]

    @property
    def bits(self) -> int:
        return self.value[1]

    @property
    def is_float(self) -> bool:
        return self.value[2]

    @property
    def padded(self) -> bool:
        return self in (DataType.U4_ALIGN16B, DataType.U6_ALIGN16B)


_BY_CODE = {each.code: each for each in DataType}

OF_TORCH = {
    "bfloat16": DataType.BFLOAT16,
    "float16": DataType.FLOAT16,
    "float32": DataType.FLOAT32,
    "float64": DataType.FLOAT64,
    "float8_e4m3fn": DataType.UINT8,
    "float8_e5m2": DataType.UINT8,
    "float8_e8m0fnu": DataType.UINT8,
    "float4_e2m1fn_x2": DataType.UINT8,
    "int8": DataType.UINT8,
    "uint8": DataType.UINT8,
    "int32": DataType.INT32,
    "uint32": DataType.UINT32,
    "int64": DataType.INT64,
}


class Swizzle(IntEnum):
    NONE = 0
    B32 = 1
    B64 = 2
    B128 = 3
    B128_ATOM_32B = 4
    B128_ATOM_32B_FLIP_8B = 5
    B128_ATOM_64B = 6


SPAN = {
    Swizzle.B32: 32,
    Swizzle.B64: 64,
    Swizzle.B128: 128,
    Swizzle.B128_ATOM_32B: 128,
    Swizzle.B128_ATOM_32B_FLIP_8B: 128,
    Swizzle.B128_ATOM_64B: 128,
}
# What the destination must be aligned to, beyond 128 bytes: nothing; the pattern follows the address (PTX ISA 5.5.7).
SMEM_ALIGN = 128


def swizzled(offsets: Longs, mode: Swizzle) -> Longs:
    """Shared memory addresses after swizzling: the tables of PTX ISA 5.5.7, as exclusive-or of address bits.

    The pattern is one of addresses, not of offsets into the box: a destination that does not start on the pattern's
    boundary starts within it ("base offset").
    """
    if mode is Swizzle.NONE:
        return offsets
    if mode is Swizzle.B32:
        return offsets ^ ((offsets >> 3) & 0x10)
    if mode is Swizzle.B64:
        return offsets ^ ((offsets >> 3) & 0x30)
    if mode is Swizzle.B128:
        return offsets ^ ((offsets >> 3) & 0x70)
    if mode is Swizzle.B128_ATOM_64B:
        return offsets ^ ((offsets >> 1) & 0x40)
    moved: Longs = offsets ^ ((offsets >> 2) & 0x60)
    if mode is Swizzle.B128_ATOM_32B_FLIP_8B:
        moved = moved ^ ((offsets >> 4) & 0x08)
    return moved


def atom_bytes(mode: Swizzle) -> int:
    """The largest run of bytes that the swizzle keeps together."""
    return {
        Swizzle.NONE: 128,
        Swizzle.B128_ATOM_32B: 32,
        Swizzle.B128_ATOM_32B_FLIP_8B: 8,
        Swizzle.B128_ATOM_64B: 64,
    }.get(mode, 16)


class Interleave(IntEnum):
    NONE = 0
    B16 = 1
    B32 = 2


class Fill(IntEnum):
    ZERO = 0
    NAN = 1


class L2Promotion(IntEnum):
    NONE = 0
    B64 = 1
    B128 = 2
    B256 = 3


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a box touches, in chunks of `chunk` bytes: `shared` and `globals_` are addresses of chunks, `inside` says
    per chunk whether the tensor holds it. `tx_bytes` is what complete-tx counts: the whole box, also where it lies
    outside the tensor."""

    chunk: int
    shared: Longs
    globals_: Longs
    inside: Flags
    tx_bytes: int

    @property
    def shared_bytes(self) -> int:
        return self.chunk * int(self.shared.size)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tiled tensor map. Dimensions, strides and boxes are innermost first, as the encoder takes them."""

    dtype: DataType
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]  # bytes, of dimension 1 and up
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave = Interleave.NONE
    swizzle: Swizzle = Swizzle.NONE
    l2_promotion: L2Promotion = L2Promotion.NONE
    fill: Fill = Fill.ZERO

    @property
    def rank(self) -> int:
        return len(self.dims)

    # --- the encoder --------------------------------------------------------------------------------------------------

    def violations(self) -> list[str]:
        """Every rule of cuTensorMapEncodeTiled that the map breaks."""
        broken = self._shape_violations()
        if broken:
            return broken
        return self._size_violations() + self._layout_violations()

    def _shape_violations(self) -> list[str]:
        broken = []
        if not 1 <= self.rank <= MAX_RANK:
            broken.append(f"rank {self.rank} is not 1 to {MAX_RANK}")
        elif self.interleave is not Interleave.NONE and self.rank < 3:
            broken.append(f"rank {self.rank} is below 3, which an interleaved layout needs")
        if len(self.strides) != max(0, self.rank - 1):
            broken.append(f"{len(self.strides)} strides for rank {self.rank}, which takes {max(0, self.rank - 1)}")
        for name, held in (("box", self.box), ("element strides", self.element_strides)):
            if len(held) != self.rank:
                broken.append(f"{name} of {len(held)} dimensions for rank {self.rank}")
        return broken

    def _size_violations(self) -> list[str]:
        wide = self.interleave is Interleave.B32 or self.dtype.padded
        align = 32 if wide else 16
        broken = []
        if self.address % align:
            broken.append(f"the address {self.address:#x} is no multiple of {align}")
        for at, extent in enumerate(self.dims):
            if not 1 <= extent <= 2**32:
                broken.append(f"global_dim[{at}] is {extent}, not 1 to 2^32")
        for at, stride in enumerate(self.strides):
            if stride % align or not 0 <= stride < 2**40:
                broken.append(f"global_stride_bytes[{at}] is {stride}: it must be a multiple of {align} below 2^40")
        for at, extent in enumerate(self.box):
            if not 1 <= extent <= MAX_BOX:
                broken.append(f"box_dim[{at}] is {extent}, not 1 to {MAX_BOX}")
        for at, step in enumerate(self.element_strides):
            if not 1 <= step <= MAX_ELEMENT_STRIDE:
                broken.append(f"element_strides[{at}] is {step}, not 1 to {MAX_ELEMENT_STRIDE}")
        return broken

    def _layout_violations(self) -> list[str]:
        broken = []
        inner_bits = self.box[0] * self.dtype.bits
        plain = self.interleave is Interleave.NONE
        if plain and inner_bits % 128:
            broken.append(f"the inner box extent is {inner_bits / 8:g} bytes: it must be a multiple of 16")
        span = SPAN.get(self.swizzle)
        # A padded type takes its padding along into shared memory, where the swizzle works.
        inner_bytes = self.box[0] if self.dtype.padded else inner_bits // 8
        if plain and span is not None and inner_bytes > span:
            broken.append(f"the inner box extent is {inner_bytes} bytes, above the swizzle width of {span}")
        if self.interleave is Interleave.B32 and self.swizzle is not Swizzle.B32:
            broken.append("the 32B interleave needs the 32B swizzle")
        if self.fill is Fill.NAN and not self.dtype.is_float:
            broken.append(f"NaN fill for {self.dtype.name}, which is no floating-point type")
        return broken + self._packed_violations()

    def _packed_violations(self) -> list[str]:
        broken = []
        if self.dtype is DataType.U4_ALIGN8B and self.dims[0] % 2:
            broken.append(f"global_dim[0] is {self.dims[0]}: 16U4_ALIGN8B needs an even number")
        if not self.dtype.padded:
            return broken
        if self.dims[0] % 128:
            broken.append(f"global_dim[0] is {self.dims[0]}: {self.dtype.name} needs a multiple of 128")
        if self.box[0] != 128:
            broken.append(f"box_dim[0] is {self.box[0]}: {self.dtype.name} needs 128")
        allowed = [Swizzle.NONE, Swizzle.B128, Swizzle.B128_ATOM_32B]
        if self.dtype is DataType.U6_ALIGN16B:
            allowed.append(Swizzle.B128_ATOM_64B)
            if self.interleave is not Interleave.NONE:
                broken.append("16U6_ALIGN16B takes no interleave")
        if self.swizzle not in allowed:
            broken.append(f"the swizzle {self.swizzle.name} does not exist for {self.dtype.name}")
        return broken

    def check(self, name: str = "") -> TensorMap:
        """The map itself. Raises InputError EMU_TENSOR_MAP_REFUSED where the driver says CUDA_ERROR_INVALID_VALUE."""
        broken = self.violations()
        if broken:
            raise InputError(
                "EMU_TENSOR_MAP_REFUSED",
                f"tensor map{' ' + repr(name) if name else ''}: " + "; ".join(broken),
                fix="the driver's encoder refuses these arguments too: change the launch",
                numbers={"violations": broken},
            )
        return self

    def image(self) -> bytes:
        """The emulator's 128 bytes. Every field can be replaced on its own, also to a value that the encoder refuses;
        an operation that uses such a map is stopped."""
        pad = (0,) * (MAX_RANK - self.rank)
        head = struct.pack(
            "<IBBBBBB2xQ",
            _MAGIC,
            self.rank,
            self.dtype.code,
            self.swizzle,
            self.interleave,
            self.fill,
            self.l2_promotion,
            self.address,
        )
        body = struct.pack("<5Q", *((each - 1) & (2**64 - 1) for each in self.dims), *pad)
        body += struct.pack("<4Q", *self.strides, *pad[: MAX_RANK - 1 - len(self.strides)])
        body += struct.pack("<5H", *self.box, *pad) + struct.pack("<5B", *self.element_strides, *pad)
        return (head + body).ljust(IMAGE_BYTES, b"\0")

    @classmethod
    def from_image(cls, image: bytes) -> TensorMap | None:
        """The map of an image, or None for bytes that are no image of one."""
        magic, rank, dtype, swizzle, interleave, fill, promotion, address = struct.unpack_from("<IBBBBBB2xQ", image)
        if magic != _MAGIC or not 1 <= rank <= MAX_RANK or dtype not in _BY_CODE:
            return None
        dims = struct.unpack_from("<5Q", image, 20)[:rank]
        strides = struct.unpack_from("<4Q", image, 60)[: rank - 1]
        box = struct.unpack_from("<5H", image, 92)[:rank]
        steps = struct.unpack_from("<5B", image, 102)[:rank]
        return cls(
            _BY_CODE[dtype],
            address,
            tuple(each + 1 for each in dims),
            strides,
            box,
            steps,
            Interleave(interleave),
            Swizzle(swizzle),
            L2Promotion(promotion),
            Fill(fill),
        )

    # --- what a box touches -------------------------------------------------------------------------------------------

    @property
    def box_counts(self) -> tuple[int, ...]:
        """Elements that are moved along each dimension: ceil(box / element stride). Dimension 0 has no stride without
        interleave: the encoder ignores that entry."""
        steps = self._steps()
        return tuple(-(-extent // step) for extent, step in zip(self.box, steps, strict=True))

    def _steps(self) -> tuple[int, ...]:
        if self.interleave is Interleave.NONE:
            return (1, *self.element_strides[1:])
        return self.element_strides

    @property
    def row_bytes(self) -> int:
        """Bytes of a box row in shared memory; a padded type brings its gaps."""
        elements = self.box_counts[0]
        return elements if self.dtype.padded else elements * self.dtype.bits // 8

    @property
    def tx_bytes(self) -> int:
        """What a load adds to the tx-count: every byte of the box in shared memory, in or out of bounds, without the
        gaps of a padded type. No document says the last; kernels that ran on Blackwell count so (CUTLASS, OpenGEMM)."""
        rows = 1
        for each in self.box_counts[1:]:
            rows *= each
        return self.box_counts[0] * self.dtype.bits // 8 * rows

    def transfer(self, coordinates: Sequence[int], smem_address: int) -> Transfer:
        """The box at `coordinates` (innermost first; they may be negative) with its image at `smem_address`."""
        counts, steps = self.box_counts, self._steps()
        rows_inside = np.ones(1, np.bool_)
        rows_at = np.zeros(1, np.int64)
        for axis in range(1, self.rank):
            at = coordinates[axis] + np.arange(counts[axis], dtype=np.int64) * steps[axis]
            inside = (at >= 0) & (at < self.dims[axis])
            rows_at = (rows_at[None, :] + (at * self.strides[axis - 1])[:, None]).ravel()
            rows_inside = (rows_inside[None, :] & inside[:, None]).ravel()
        return self._rows(coordinates[0], rows_at, rows_inside, smem_address)

    def gather4(self, column: int, rows: Sequence[int], smem_address: int) -> Transfer:
        """.tile::gather4 and .tile::scatter4 (PTX ISA 5.5.3.4): four rows of a 2D tensor that need not be neighbours.

        The box is one row; in shared memory the four lie one after the other.
        """
        at = np.array(rows, np.int64)
        inside = (at >= 0) & (at < self.dims[1])
        return self._rows(column, at * self.strides[0], inside, smem_address)

    def gather4_violations(self) -> list[str]:
        broken = []
        if self.rank != 2:
            broken.append(f"gather4 and scatter4 take a tensor of rank 2, not {self.rank}")
        elif self.box[1] != 1:
            broken.append(f"gather4 and scatter4 take a box of one row, not {self.box[1]}")
        if self.interleave is not Interleave.NONE:
            broken.append("gather4 and scatter4 take no interleave")
        return broken

    def _rows(self, column: int, rows_at: Longs, rows_inside: Flags, smem_address: int) -> Transfer:
        bits = self.dtype.bits
        if self.dtype.padded:
            return self._padded_rows(column, rows_at, rows_inside, smem_address)
        row_bytes = self.row_bytes
        # The finest run that is contiguous on both sides and wholly in or out of bounds.
        first_bits, limit_bits = column * bits, self.dims[0] * bits
        chunk = min(atom_bytes(self.swizzle), row_bytes & -row_bytes)
        for edge in (first_bits, limit_bits):
            while (edge // 8) % chunk:
                chunk //= 2
        starts = np.arange(0, row_bytes, chunk, dtype=np.int64)
        byte_at = first_bits // 8 + starts
        inside = rows_inside[:, None] & ((byte_at >= 0) & (byte_at < limit_bits // 8))[None, :]
        globals_ = self.address + rows_at[:, None] + byte_at[None, :]
        plain = smem_address + np.arange(rows_at.size, dtype=np.int64)[:, None] * row_bytes + starts[None, :]
        return Transfer(
            chunk, swizzled(plain.ravel(), self.swizzle), globals_.ravel(), inside.ravel(), row_bytes * rows_at.size
        )

    def _padded_rows(self, column: int, rows_at: Longs, rows_inside: Flags, smem_address: int) -> Transfer:
        """16 values in every 16 bytes of shared memory: 8 or 12 bytes of values, then a gap that keeps what it held."""
        packed = 16 * self.dtype.bits // 8
        chunk = 4
        groups = np.arange(self.box[0] // 16, dtype=np.int64)
        parts = np.arange(0, packed, chunk, dtype=np.int64)
        byte_at = (column * self.dtype.bits // 8 + groups[:, None] * packed + parts[None, :]).ravel()
        starts = (groups[:, None] * 16 + parts[None, :]).ravel()
        limit = self.dims[0] * self.dtype.bits // 8
        inside = rows_inside[:, None] & ((byte_at >= 0) & (byte_at < limit))[None, :]
        globals_ = self.address + rows_at[:, None] + byte_at[None, :]
        plain = smem_address + np.arange(rows_at.size, dtype=np.int64)[:, None] * self.box[0] + starts[None, :]
        return Transfer(
            chunk,
            swizzled(plain.ravel(), self.swizzle),
            globals_.ravel(),
            inside.ravel(),
            packed * self.box[0] // 16 * rows_at.size,
        )

    def fill_bytes(self, count: int) -> npt.NDArray[np.uint8]:
        """What the elements outside the tensor hold after a load: zeros, or for every type the 16 bits 0x7ff7 over and
        over, as an H200 gives them (PTX ISA 5.5.3.3 names it OOB-NaN and leaves its bits open)."""
        if self.fill is Fill.ZERO:
            return np.zeros(count, np.uint8)
        return np.resize(np.array([0xF7, 0x7F], np.uint8), count)

    def loaded(self, values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Bytes of the tensor as a load writes them: the tf32 types round to nearest even, subnormal numbers as well,
        and have one NaN, as an H200 does it; the others copy, FLOAT32_FTZ too."""
        if self.dtype not in (DataType.TFLOAT32, DataType.TFLOAT32_FTZ):
            return values
        words = values.view(np.uint32)
        magnitude, infinity = words & np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
        half = np.uint32(0xFFF) + ((words >> np.uint32(13)) & np.uint32(1))
        rounded = (words + half) & np.uint32(0xFFFFE000)
        found = np.where(magnitude < infinity, rounded, np.where(magnitude == infinity, words, np.uint32(0x7FFFE000)))
        return found.view(np.uint8)

    def copy_violations(self, coordinates: Sequence[int], smem_address: int, *, store: bool = False) -> list[str]:
        """What cp.async.bulk.tensor must not do with this map: shared memory on 128 bytes (PTX ISA 5.5.7), .s32
        coordinates, and what an H200 stops at: a first coordinate off a multiple of 16 bytes, in or out of bounds; a
        store that starts before the tensor; rows of a box that do not fill the swizzle's width, which take that width
        in shared memory all the same."""
        broken = []
        if smem_address % SMEM_ALIGN:
            broken.append(f"the shared memory address {smem_address:#x} is no multiple of {SMEM_ALIGN}")
        if any(not -(2**31) <= each < 2**31 for each in coordinates):
            broken.append("a coordinate does not fit 32 bits")
        if coordinates[0] * self.dtype.bits % 128:
            bytes_ = coordinates[0] * self.dtype.bits / 8
            broken.append(f"the first coordinate {coordinates[0]} is {bytes_:g} bytes into the row, no multiple of 16")
        if store and min(coordinates) < 0:
            broken.append(f"a store at {list(coordinates)}: its coordinates must not be negative")
        span = SPAN.get(self.swizzle)
        if span is not None and self.interleave is Interleave.NONE and self.row_bytes != span:
            broken.append(f"a box row has {self.row_bytes} bytes under a swizzle of {span}: it would take {span}")
        return broken

    # --- tensormap.replace --------------------------------------------------------------------------------------------

    def replaced(self, field: str, value: int, ordinal: int = 0) -> TensorMap:
        """tensormap.replace.tile.FIELD (PTX ISA 9.7.9.28). Raises InputError EMU_TENSOR_MAP_FIELD for a value that its
        table does not have. `rank` takes the rank less one."""
        if field == "global_address":
            return replace(self, address=value)
        if field == "rank":
            return self._with_rank(value + 1)
        if field in ("box_dim", "global_dim", "global_stride", "element_stride"):
            held = {
                "box_dim": self.box,
                "global_dim": self.dims,
                "global_stride": self.strides,
                "element_stride": self.element_strides,
            }[field]
            if not 0 <= ordinal < len(held):
                raise self._no_such(field, f"ordinal {ordinal} of {len(held)}")
            made = (*held[:ordinal], value, *held[ordinal + 1 :])
            if field == "box_dim":
                return replace(self, box=made)
            if field == "global_dim":
                return replace(self, dims=made)
            if field == "global_stride":
                return replace(self, strides=made)
            return replace(self, element_strides=made)
        return self._with_mode(field, value)

    def _with_mode(self, field: str, value: int) -> TensorMap:
        if field == "elemtype" and value in _BY_CODE:
            return replace(self, dtype=_BY_CODE[value])
        if field == "interleave_layout" and value in (0, 1, 2):
            return replace(self, interleave=Interleave(value))
        if field == "fill_mode" and value in (0, 1):
            return replace(self, fill=Fill(value))
        if field == "swizzle_mode" and value in (0, 1, 2, 3):
            return replace(self, swizzle=Swizzle(value))
        if field == "swizzle_atomicity" and value in (0, 1, 2, 3):
            wide = self.swizzle >= Swizzle.B128
            if wide:
                return replace(self, swizzle=Swizzle(Swizzle.B128 + value))
            if value == 0:
                return self
        raise self._no_such(field, f"value {value}")

    def _with_rank(self, rank: int) -> TensorMap:
        if not 1 <= rank <= MAX_RANK:
            raise self._no_such("rank", f"rank {rank}")

        def fit(held: tuple[int, ...], count: int, blank: int) -> tuple[int, ...]:
            return (*held, *(blank,) * MAX_RANK)[:count]

        return replace(
            self,
            dims=fit(self.dims, rank, 1),
            strides=fit(self.strides, rank - 1, 0),
            box=fit(self.box, rank, 1),
            element_strides=fit(self.element_strides, rank, 1),
        )

    def _no_such(self, field: str, what: str) -> InputError:
        return InputError(
            "EMU_TENSOR_MAP_FIELD",
            f"tensormap.replace.tile.{field} with {what}, which the PTX ISA does not have",
            fix="PTX ISA 9.7.9.28 lists the fields and their values",
            numbers={"field": field},
        )


_SWIZZLES = {
    "none": Swizzle.NONE,
    "32B": Swizzle.B32,
    "64B": Swizzle.B64,
    "128B": Swizzle.B128,
    "128B_ATOM_32B": Swizzle.B128_ATOM_32B,
    "128B_ATOM_32B_FLIP_8B": Swizzle.B128_ATOM_32B_FLIP_8B,
    "128B_ATOM_64B": Swizzle.B128_ATOM_64B,
}


def encode(param: TensorMapParam | ElementMapParam, address: int) -> TensorMap:
    """The map of a resolved launch parameter over the buffer at `address`. An extent of 0 is encoded as 1.

    Raises InputError EMU_TENSOR_MAP_REFUSED.
    """
    return TensorMap(
        OF_TORCH[param.dtype] if isinstance(param, TensorMapParam) else DataType[param.dtype.removeprefix("16")],
        address,
        tuple(max(1, int(each)) for each in param.global_dim),
        tuple(int(each) for each in param.global_stride_bytes),
        tuple(param.box_dim),
        tuple(param.element_strides),
        {"none": Interleave.NONE, "16B": Interleave.B16, "32B": Interleave.B32}[param.interleave],
        _SWIZZLES[param.swizzle],
        {"none": L2Promotion.NONE, "64B": L2Promotion.B64, "128B": L2Promotion.B128, "256B": L2Promotion.B256}[
            param.l2_promotion
        ],
        {"zero": Fill.ZERO, "nan": Fill.NAN}[param.oob_fill],
    ).check(param.name)
