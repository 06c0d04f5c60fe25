"""The descriptors of tcgen05: instruction, shared memory, zero-column mask. Imports only its own room.

The instruction descriptor (PTX ISA 9.7.16.4.2) holds what the opcode leaves open: element types, M, N, majors, signs.
What the PTX ISA forbids in it is a row of sentences here; the machine reports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.shared_operand import CHUNK, SWIZZLE_WIDTHS, Major, Offsets, Placement, swizzled

BLOCK_SCALED = frozenset({"mxf8f6f4", "mxf4", "mxf4nvf4"})
KINDS = frozenset({"f16", "tf32", "f8f6f4", "i8"}) | BLOCK_SCALED
_SMALL = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_OPERANDS: dict[str, dict[int, str]] = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": _SMALL,
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": _SMALL,
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}
_RESULTS: dict[str, dict[int, str]] = {
    "f16": {0: "f16", 1: "f32"},
    "tf32": {1: "f32"},
    "f8f6f4": {0: "f16", 1: "f32"},
    "i8": {2: "s32"},
}
_DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
_CONTAINERS = {
    "f16": "b16",
    "tf32": "b32",
    "f8f6f4": "b8",
    "i8": "b8",
    "mxf8f6f4": "b8",
    "mxf4": "b4",
    "mxf4nvf4": "b4",
}
_RESERVED = {False: 1 << 6 | 1 << 23 | 1 << 29, True: 0b11 | 1 << 3 | 1 << 6 | 0b111 << 24}
_WS_COLUMNS = frozenset({64, 128, 256})


@dataclass(frozen=True, slots=True)
class InstructionDescriptor:
    """What one `tcgen05.mma` computes. `m` and `n` are those of the whole operation, of both CTAs of a pair."""

    kind: str
    m: int
    n: int
    k: int
    a: str
    b: str
    d: str
    major_a: Major
    major_b: Major
    negate_a: bool = False
    negate_b: bool = False
    saturate: bool = False
    sparse: bool = False
    scale_type: str = ""  # ue8m0 or ue4m3
    scale_a_id: int = 0
    scale_b_id: int = 0
    max_shift: int = 0  # of columns of B, for .ws
    reserved: int = 0  # the bits that must be zero

    @property
    def container(self) -> str:
        """How wide an element lies in shared memory: 4-bit and 6-bit types of f8f6f4 have a byte each."""
        return _CONTAINERS[self.kind]

    def violations(self, cta_group: int, *, ws: bool) -> tuple[str, ...]:
        """What of it the PTX ISA forbids, in sentences (9.7.16.2.1, 9.7.16.4.2, 9.7.16.10.1)."""
        return _violations(self, cta_group, ws)


@lru_cache(maxsize=256)
def instruction_descriptor(kind: str, value: int) -> InstructionDescriptor | str:
    """The decoded descriptor, or a sentence on the code that stands for nothing."""
    scaled = kind in BLOCK_SCALED
    code_a = value >> 7 & 7
    code_b = value >> 10 & (3 if kind in ("mxf4", "mxf4nvf4") else 7)
    code_d = 1 if scaled else value >> 4 & 3
    names = _OPERANDS[kind]
    if code_a not in names or code_b not in names:
        which, code = ("A", code_a) if code_a not in names else ("B", code_b)
        known = ", ".join(f"{each} is {name}" for each, name in names.items())
        return f"the type of {which} has the code {code}, where for kind::{kind} {known}"
    if not scaled and code_d not in _RESULTS[kind]:
        known = ", ".join(f"{each} is {name}" for each, name in _RESULTS[kind].items())
        return f"the type of D has the code {code_d}, where for kind::{kind} {known}"
    k96 = kind in ("mxf4", "mxf4nvf4") and value >> 31 & 1
    return InstructionDescriptor(
        kind=kind,
        m=(value >> 27 & 3) << 7 if scaled else (value >> 24 & 31) << 4,
        n=(value >> 17 & 63) << 3,
        k=96 if k96 else _DEPTH[kind],
        a=names[code_a],
        b=names[code_b],
        d="f32" if scaled else _RESULTS[kind][code_d],
        major_a="MN" if value >> 15 & 1 else "K",
        major_b="MN" if value >> 16 & 1 else "K",
        negate_a=bool(value >> 13 & 1),
        negate_b=bool(value >> 14 & 1),
        saturate=not scaled and bool(value >> 3 & 1),
        sparse=bool(value >> 2 & 1),
        scale_type=("ue8m0" if value >> 23 & 1 else "ue4m3") if scaled else "",
        scale_a_id=value >> 29 & 3 if scaled else 0,
        scale_b_id=value >> 4 & 3 if scaled else 0,
        max_shift=(0, 8, 16, 32)[value >> 30 & 3] if not scaled else 0,
        reserved=value & _RESERVED[scaled],
    )


@lru_cache(maxsize=256)
def _violations(form: InstructionDescriptor, cta_group: int, ws: bool) -> tuple[str, ...]:
    found = []
    if form.reserved:
        found.append(f"the reserved bits {form.reserved:#x} are set")
    if form.sparse:
        found.append("it is for a sparse A, and the instruction is tcgen05.mma without .sp")
    found += _shape_violations(form, cta_group, ws)
    if form.saturate and form.kind != "i8":
        found.append(f"saturation is for kind::i8, not for kind::{form.kind}")
    if (form.negate_a or form.negate_b) and form.kind == "i8":
        found.append("kind::i8 cannot negate an operand")
    if form.max_shift and not ws:
        found.append("a shift of B is for .ws alone")
    for name, kind, major in (("A", form.a, form.major_a), ("B", form.b, form.major_b)):
        if major == "MN" and (form.kind in ("mxf4", "mxf4nvf4") or kind in ("e2m3", "e3m2", "e2m1")):
            found.append(f"{name} is {kind} and cannot be {'M' if name == 'A' else 'N'}-major")
    if form.kind == "f16" and form.d == "f16" and "bf16" in (form.a, form.b):
        found.append("D is f16, which takes f16 operands alone")
    if form.major_b == "MN" and form.container == "b8" and form.n % (16 * cta_group):
        found.append(f"an N-major B of bytes takes N in steps of {16 * cta_group}, not {form.n}")
    return tuple(found)


@lru_cache(maxsize=256)
def scale_violations(form: InstructionDescriptor, blocks: int) -> tuple[str, ...]:
    """What the PTX ISA forbids in the scales of an instruction with `blocks` of them in a row (9.7.16.10.7)."""
    if form.kind not in BLOCK_SCALED:
        return ()
    found = []
    size = form.k // blocks
    if form.k % blocks or size not in (16, 32):
        found.append(f"{blocks} scales for K {form.k}, where a block has 16 or 32 elements")
    if form.scale_type == "ue4m3" and (form.kind != "mxf4nvf4" or size != 16):
        found.append(f"ue4m3 scales are for blocks of 16 of kind::mxf4nvf4, not for {size} of kind::{form.kind}")
    steps = {1: (0, 1, 2, 3), 2: (0, 2), 3: (0, 1, 2, 3), 4: (0,), 6: (0, 2)}.get(blocks, (0,))
    for name, identifier in (("A", form.scale_a_id), ("B", form.scale_b_id)):
        if identifier not in steps:
            taken = ", ".join(str(each) for each in steps)
            found.append(f"the id {identifier} of the scales of {name}, where {blocks} in a row take {taken}")
    return tuple(found)


def _shape_violations(form: InstructionDescriptor, cta_group: int, ws: bool) -> list[str]:
    m, n = form.m, form.n
    if ws:
        if form.kind in BLOCK_SCALED or cta_group == 2:
            return [f"there is no .ws of kind::{form.kind} with cta_group::{cta_group}"]
        rows, columns, said = {32, 64, 128}, _WS_COLUMNS, "N 64, 128 or 256"
    else:
        first = 128 if form.kind in BLOCK_SCALED or cta_group == 2 else 64
        rows = {128, 256} if cta_group == 2 else {first, 128}
        step = (16 if form.kind == "i8" else 8) * cta_group
        columns = frozenset(range(step, 257, step))
        if form.kind == "i8" and cta_group == 1:
            columns |= {8, 24}
            said = "N 8, 16, 24, 32 and then in steps of 16"
        else:
            said = f"N {step} to 256 in steps of {step}"
    if m not in rows or n not in columns:
        names = " or ".join(str(each) for each in sorted(rows))
        where = f"kind::{form.kind}{' with .ws' if ws else ''} and cta_group::{cta_group}"
        return [f"M {m} and N {n}, where {where} takes M {names} and {said}"]
    return []


# --- shared memory ----------------------------------------------------------------------------------------------------

_SWIZZLES = {0: "none", 1: "128B_32B", 2: "128B", 4: "64B", 6: "32B"}  # by the code in bits 61 to 63
_SWIZZLE_CODES = {name: code for code, name in _SWIZZLES.items()}


@dataclass(frozen=True, slots=True)
class SharedDescriptor(Placement):
    """A decoded shared memory descriptor of tcgen05 (9.7.16.4.1). Its swizzle codes are not those of wgmma."""

    absolute: bool = False  # the leading dimension is an address (sm_103a)
    constant: int = 1  # bits 46 to 48
    reserved: int = 0  # the bits that must be zero
    swizzle_code: int = 0

    @classmethod
    def decode(cls, value: int) -> SharedDescriptor:
        return _decoded(value)

    def encode(self) -> int:
        """The 64-bit value."""
        value = (self.start & 0x3FFFF) >> 4 | (self.leading_bytes & 0x3FFFF) >> 4 << 16
        value |= (self.stride_bytes & 0x3FFFF) >> 4 << 32 | self.constant << 46 | self.base_offset << 49
        return value | int(self.absolute) << 52 | _SWIZZLE_CODES[self.swizzle] << 61 | self.reserved

    def violations(self, kind: str, major: Major, k: int = 0) -> tuple[str, ...]:
        """What the PTX ISA forbids in it for an operand of this kind."""
        return _shared_violations(self, kind, major, k)

    def long_chunks(self, extent: int) -> Offsets:
        """Byte offsets of the chunks of an operand of K 96, [extent, 3]: 48 bytes of each row. Where the leading
        dimension is an address, what would leave the 128 bytes of a row goes on at that address (9.7.16.3.1.2)."""
        row = np.arange(extent)[:, None]
        chunk = np.arange(3)[None, :]
        plain = self.start + chunk * CHUNK
        if self.absolute:
            beyond = self.start % 128 + chunk * CHUNK - 128
            plain = np.where(beyond >= 0, self.leading_bytes + beyond, plain)
        width = SWIZZLE_WIDTHS[self.swizzle]
        return swizzled(plain + row % 8 * width + row // 8 * self.stride_bytes, self.swizzle, self.base_offset)


@lru_cache(maxsize=4096)
def _decoded(value: int) -> SharedDescriptor:
    def field(low: int) -> int:
        return (value >> low & 0x3FFF) << 4

    code = value >> 61 & 7
    reserved = value & (0b11 << 14 | 0b11 << 30 | 0xFF << 53)
    return SharedDescriptor(
        field(0),
        field(16),
        field(32),
        value >> 49 & 7,
        _SWIZZLES.get(code, "none"),
        bool(value >> 52 & 1),
        value >> 46 & 7,
        reserved,
        code,
    )


@lru_cache(maxsize=1024)
def _shared_violations(found: SharedDescriptor, kind: str, major: Major, k: int) -> tuple[str, ...]:
    wrong = []
    if found.swizzle_code not in _SWIZZLES:
        wrong.append(f"the swizzle code {found.swizzle_code} stands for nothing (0, 1, 2, 4 and 6 do)")
    if found.constant != 1:
        wrong.append(f"bits 46 to 48 are {found.constant:#05b}, where the constant 0b001 belongs")
    if found.reserved:
        wrong.append(f"the reserved bits {found.reserved:#x} are set")
    if found.absolute and (k != 96 or found.swizzle != "128B" or found.base_offset):
        wrong.append("the leading dimension is an address, which is for K 96 with 128-byte swizzling alone")
    if k == 96 and found.swizzle == "none":
        wrong.append("K 96 without swizzling")
    if (kind == "tf32" and major == "MN") != (found.swizzle == "128B_32B") and (
        found.swizzle == "128B_32B" or kind == "tf32"
    ):
        wrong.append(
            "128-byte swizzling with 32-byte atoms and MN-major tf32 belong together: "
            f"this is {kind}, {major}-major, swizzle {found.swizzle}"
        )
    return tuple(wrong)


# --- the zero-column mask ---------------------------------------------------------------------------------------------


def zero_columns(value: int, m: int, n: int) -> tuple[NDArray[np.bool_], int]:
    """Which columns of B count as zero, [n], and by how many columns B is shifted (9.7.16.4.3).

    The mask has one part for M 128, two for 64, four for 32. A part is spans of zeroed and of used columns in turn: it
    starts with the kind that its first-span bit names, after its start count of columns of that cycle."""
    shift = value >> 56 & 63
    if not value >> 39 & 1:
        return np.zeros(n, np.bool_), shift
    # The text of the table swaps the two spans; its examples, and CUTLASS, have them so.
    skipped, used = (value >> 40 & 255) + 1, (value >> 48 & 255) + 1
    parts = {128: 1, 64: 2, 32: 4}[m]
    length = n // parts
    masks = []
    for part in range(parts):
        start, first = value >> (8 * part) & 255, value >> (32 + part) & 1
        spans = (np.ones(skipped, np.bool_), np.zeros(used, np.bool_))
        cycle = np.concatenate(spans if first else spans[::-1])
        masks.append(np.resize(np.roll(cycle, -start), length))
    return np.concatenate(masks), shift
