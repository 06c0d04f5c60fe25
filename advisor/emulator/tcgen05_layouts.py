"""Where tcgen05 keeps its matrices in tensor memory. Imports only its own room.

The data paths of an SM are four quarters of 32 lanes. The names of the layouts are those of PTX ISA 9.7.16.10.5; the
figures there have no text, so the maps follow CuTe's layouts of the same instructions, which are public.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from advisor.emulator.tmem import QUARTER_LANES, QUARTERS, Array, Region, all_lanes, lane_of

# --- accumulators, and A in tensor memory -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataPath:
    """How the rows of a matrix lie over the lanes of one CTA.

    `rows` of them; the columns of D are in `parts` equal parts, one under the lanes of the other. A has a copy of its
    rows for each part. `half` is 16 where the rows take the upper halves of the quarters, and None where they take
    whole quarters."""

    layout: str
    rows: int
    parts: int = 1
    half: int | None = None

    def region(self, column: int, columns: int) -> Region:
        """What `columns` columns of the matrix take, from `column` on."""
        if self.half is not None:
            return Region(0, QUARTERS, self.half, self.half + 16, column, column + columns)
        return all_lanes(column, columns // self.parts)

    def gather(self, words: Array) -> Array:
        """D [rows, columns] from the words of its region."""
        columns = words.shape[-1]
        return words.reshape(self.parts, self.rows, columns).swapaxes(0, 1).reshape(self.rows, -1)

    def scatter(self, matrix: Array) -> Array:
        """The words of the region, [quarters, lanes, columns], from D."""
        columns = matrix.shape[1] // self.parts
        words = matrix.reshape(self.rows, self.parts, columns).swapaxes(0, 1)
        return words.reshape(QUARTERS, -1, columns)

    def operand_region(self, column: int, columns: int) -> Region:
        """What an A of `columns` words in a row takes in tensor memory."""
        return self.region(column, columns * self.parts)

    def copies(self, words: Array) -> Array:
        """A in tensor memory, [parts, rows, words of a row]: each part of D has its own copy under its lanes."""
        return words.reshape(self.parts, self.rows, words.shape[-1])

    def enabled(self, region: Region, disabled: Array) -> list[Region]:
        """The runs of lanes of D that a mask of 128 bits, in words, does not exclude."""
        off = np.unpackbits(np.ascontiguousarray(disabled).view(np.uint8), bitorder="little").reshape(QUARTERS, -1)
        found = []
        for quarter in range(QUARTERS):
            on = ~off[quarter, region.lane : region.lane_end].astype(np.bool_)
            edges = np.flatnonzero(np.diff(np.concatenate(([False], on, [False])).astype(np.int8)))
            for first, last in edges.reshape(-1, 2).tolist():
                lanes = (region.lane + first, region.lane + last)
                found.append(Region(quarter, quarter + 1, *lanes, region.column, region.column_end))
        return found


@lru_cache(maxsize=64)
def data_path(m: int, cta_group: int, ws: bool, address: int) -> DataPath | str:
    """The layout for an instruction of `m` rows in all, and the lane that its address names; or what is wrong."""
    lane = lane_of(address)
    if m == 64 and not ws:
        if lane not in (0, 16):
            return f"lane {lane}, where M 64 takes lane 0 or 16"
        return DataPath("F", 64, half=lane)
    if lane:
        return f"lane {lane}, where M {m} takes lane 0"
    if cta_group == 2:
        return DataPath("A", 128) if m == 256 else DataPath("B", 64, parts=2)
    return DataPath("D", 128) if m == 128 else DataPath("E", 64, parts=2) if m == 64 else DataPath("G", 32, parts=4)


# --- scale factors ----------------------------------------------------------------------------------------------------


def scale_regions(rows: int, column: int, identifier: int = 0, count: int = 1) -> list[Region]:
    """What the scales of `rows` rows of A, or columns of B, take: a word for each, 32 in a column, in every quarter;
    and the same again further on, where `count` of them do not fit into a word."""
    whole, rest = divmod(rows, QUARTER_LANES)
    found = []
    for group in range(-(-(identifier + count) // 4)):
        first = column + group * group_columns(rows)
        if whole:
            found.append(all_lanes(first, whole))
        if rest:
            found.append(Region(0, QUARTERS, 0, rest, first + whole, first + whole + 1))
    return found


def group_columns(rows: int) -> int:
    """Columns from the words of four scales in a row to those of the next four: the rows count in blocks of 128."""
    return -(-rows // 128) * 4


def scale_columns(rows: int, identifier: int, count: int) -> int:
    """Columns that hold all of them."""
    return (-(-(identifier + count) // 4) - 1) * group_columns(rows) + -(-rows // QUARTER_LANES)


def scale_bytes(words: Array, rows: int, count: int, identifier: int) -> Array:
    """Scales [rows, count] from words [lanes, columns] of one quarter.

    Row r is in lane r % 32 of column r // 32; byte `identifier` of the word is its first scale, and the fourth byte is
    followed by the first one of the next group of columns (only K 96 has so many)."""
    table = np.ascontiguousarray(words.T).view(np.uint8).reshape(-1, 4)  # [columns * lanes, 4]
    if identifier + count <= 4:
        return table[:rows, identifier : identifier + count]
    step = group_columns(rows) * QUARTER_LANES
    places = [divmod(identifier + each, 4) for each in range(count)]
    return np.stack([table[group * step : group * step + rows, byte] for group, byte in places], axis=1)


# --- tcgen05.cp -------------------------------------------------------------------------------------------------------

# Shape and multicast -> rows in shared memory, chunks of 16 bytes in a row, and the row of 32 that each quarter gets.
COPIES: dict[tuple[str, str], tuple[int, int, tuple[int, ...]]] = {
    ("128x256b", ""): (128, 2, (0, 1, 2, 3)),
    ("128x128b", ""): (128, 1, (0, 1, 2, 3)),
    ("4x256b", ""): (4, 2, (0, 1, 2, 3)),
    ("64x128b", "warpx2::02_13"): (64, 1, (0, 1, 0, 1)),
    ("64x128b", "warpx2::01_23"): (64, 1, (0, 0, 1, 1)),
    ("32x128b", "warpx4"): (32, 1, (0, 0, 0, 0)),
}


@dataclass(frozen=True, slots=True)
class CopyShape:
    """A shape of `tcgen05.cp` with its multicast."""

    shape: str
    multicast: str

    @property
    def rows(self) -> int:
        """Rows that are read from shared memory."""
        return COPIES[self.shape, self.multicast][0]

    @property
    def chunks(self) -> int:
        """Chunks of 16 bytes in a row."""
        return COPIES[self.shape, self.multicast][1]

    def region(self, address: int) -> Region | str:
        """What is written, or what is wrong with the address. The shape of four rows puts one into each quarter."""
        lane, column = lane_of(address), address & 0xFFFF
        columns = 4 * self.chunks
        if self.shape == "4x256b" and lane < QUARTER_LANES:
            return Region(0, QUARTERS, lane, lane + 1, column, column + columns)
        return all_lanes(column, columns) if not lane else f"lane {lane} of tensor memory"

    def scatter(self, rows: Array) -> Array:
        """The words of the region, [quarters, lanes, columns], from those of the rows."""
        lanes = 1 if self.shape == "4x256b" else QUARTER_LANES
        blocks = rows.reshape(-1, lanes, rows.shape[-1])
        return blocks[list(COPIES[self.shape, self.multicast][2])]


# --- tcgen05.ld and .st -----------------------------------------------------------------------------------------------

SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
_REGISTERS = {"32x32b": 1, "16x64b": 1, "16x32bx2": 1, "16x128b": 2, "16x256b": 4}  # of one repeat


@dataclass(frozen=True, slots=True)
class Fragment:
    """A shape of `tcgen05.ld` and `.st` with its repeats. `packed`: two 16-bit columns in each register."""

    shape: str
    repeats: int
    packed: bool = False

    @property
    def registers(self) -> int:
        return _REGISTERS[self.shape] * self.repeats

    @property
    def lanes(self) -> int:
        return 32 if self.shape == "32x32b" else 16

    @property
    def columns(self) -> int:
        """Columns of tensor memory, in each of the two parts of `16x32bx2`."""
        width = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 1}[self.shape] * self.repeats
        return 2 * width if self.packed else width

    def regions(self, address: int, split: int) -> list[Region]:
        """What a warp touches from `address` on. `split`: how far the second part of `16x32bx2` is from the first."""
        lane, column = lane_of(address), address & 0xFFFF
        quarter, inside = lane // 32, lane % 32
        starts = [column, column + split] if self.shape == "16x32bx2" else [column]
        return [
            Region(quarter, quarter + 1, inside, inside + self.lanes, each, each + self.columns) for each in starts
        ]  # fmt: skip


@lru_cache(maxsize=128)
def fragment_places(shape: str, repeats: int) -> tuple[Array, Array]:
    """For register r of thread t: its lane and its column, [registers, 32] each. Columns of the second part of
    `16x32bx2` follow those of the first."""
    thread = np.arange(32)
    count = _REGISTERS[shape] * repeats
    register = np.arange(count)[:, None]
    if shape == "32x32b":
        lane, column = thread + 0 * register, register + 0 * thread
    elif shape == "16x32bx2":
        lane, column = thread % 16 + 0 * register, register + thread // 16 * repeats
    elif shape == "16x64b":
        lane, column = thread // 4 + thread % 2 * 8 + 0 * register, 2 * register + thread // 2 % 2
    elif shape == "16x128b":
        lane, column = thread // 4 + register % 2 * 8, register // 2 * 4 + thread % 4
    else:
        lane = thread // 4 + register // 2 % 2 * 8
        column = register // 4 * 8 + thread % 4 * 2 + register % 2
    return lane, column


def to_registers(fragment: Fragment, words: Array) -> Array:
    """Registers [registers, 32] from words [lanes, columns] of the region, or of both one beside the other."""
    if fragment.packed:
        words = (words[:, 0::2] & np.uint32(0xFFFF)) | (words[:, 1::2] << np.uint32(16))
    lane, column = fragment_places(fragment.shape, fragment.repeats)
    return words[lane, column]


def from_registers(fragment: Fragment, registers: Array) -> Array:
    """The inverse: words [lanes, columns] from registers [registers, 32]."""
    lane, column = fragment_places(fragment.shape, fragment.repeats)
    words = np.zeros((fragment.lanes, int(column.max()) + 1), np.uint32)
    words[lane, column] = registers
    if not fragment.packed:
        return words
    both = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1)
    return both.reshape(len(words), -1)
