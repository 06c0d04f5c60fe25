"""mma.sync with block scales, of sm_120a and its like: D = (A x scale_A) x (B x scale_B) + C. Imports its own room.

The sum is exact and rounded once, as in `tcgen05_products`: nobody has measured how the chip adds.

Where the scales lie (PTX ISA 9.7.14.3; CuTe's layouts of the same instructions say which row): each lane has a
register of four bytes. For A, `thread-id-a` picks lanes 0 and 1 or lanes 2 and 3 of each four: the first of the two has
the scales of row lane / 4, the other those of row lane / 4 + 8. For B, `thread-id-b` picks the one lane of each four
that has the scales of column lane / 4. `byte-id` is the first byte of those that are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from advisor.emulator import fragments
from advisor.emulator.formats import Bits, Reals, as_real
from advisor.emulator.mma import BYTE_FLOATS, finished, operand

_GROUP = np.arange(8)


@dataclass(frozen=True, slots=True)
class ScaledMma:
    """One form. `blocks` scales of `scale` type for each row of A and column of B."""

    opcode: str
    k: int
    a: str
    b: str
    scale: str
    blocks: int

    a_registers = 4
    b_registers = 2
    d_registers = 4

    def violations(self, bytes_: tuple[int, int], threads: tuple[int, int]) -> tuple[str, ...]:
        """What is wrong with the selectors of A and of B."""
        found = []
        for name, byte, thread, last in (("a", bytes_[0], threads[0], 1), ("b", bytes_[1], threads[1], 3)):
            if byte not in range(0, 4, self.blocks):
                found.append(
                    f"byte-id-{name} is {byte}, where {self.blocks} scales start at a multiple of that below 4"
                )
            if not 0 <= thread <= last:
                found.append(f"thread-id-{name} is {thread}, of 0 to {last}")
        return tuple(found)

    def __call__(
        self,
        a: Sequence[Bits],
        b: Sequence[Bits],
        c: Sequence[Bits],
        scales: tuple[Bits, Bits],
        bytes_: tuple[int, int],
        threads: tuple[int, int],
    ) -> list[Bits]:
        """Registers of D from those of A, B and C and the two scale registers; each of shape [..., 32]."""
        left = self._values(fragments.matrix_a(fragments.stack(a), self._container(self.a)), self.a)
        right = self._values(fragments.matrix_b(fragments.stack(b), self._container(self.b)), self.b)
        rows = np.concatenate([4 * _GROUP + 2 * threads[0], 4 * _GROUP + 2 * threads[0] + 1])
        left *= self._factors(scales[0], rows, bytes_[0])
        right *= np.swapaxes(self._factors(scales[1], 4 * _GROUP + threads[1], bytes_[1]), -1, -2)
        total = left @ right + as_real(fragments.matrix_c(fragments.stack(c), "f32"), "f32")
        return fragments.unstack(fragments.registers_c(finished(total, "f32"), "f32"))

    def _container(self, kind: str) -> str:
        return "b4" if self.k == 64 else kind

    def _values(self, codes: Bits, kind: str) -> Reals:
        return as_real(codes, kind) if self.k == 64 else operand(codes, kind)

    def _factors(self, register: Bits, lanes: Bits, byte: int) -> Reals:
        """[..., rows, k]: each scale stands for the values of its block."""
        octets = np.ascontiguousarray(register)[..., None].view(np.uint8)
        values = as_real(octets[..., lanes, byte : byte + self.blocks], "ue8m0" if self.scale == "ue8m0" else "e4m3")
        return np.repeat(values if self.scale == "ue8m0" else np.abs(values), self.k // self.blocks, axis=-1)


_SHAPES = {"mxf8f6f4": ("m16n8k32", 32), "mxf4": ("m16n8k64", 64), "mxf4nvf4": ("m16n8k64", 64)}
_SCALES = {
    ("mxf8f6f4", 1): ("ue8m0",),
    ("mxf4", 2): ("ue8m0",),
    ("mxf4nvf4", 2): ("ue8m0",),
    ("mxf4nvf4", 4): ("ue4m3",),
}
_DEFAULTS = {"mxf8f6f4": 1, "mxf4": 2}


@lru_cache(maxsize=256)
def scaled_mma(opcode: str) -> ScaledMma | None:
    """The form of an opcode, or None where there is no such form."""
    words = opcode.split(".")
    if words[:3] != ["mma", "sync", "aligned"] or words[4:6] != ["row", "col"] or "block_scale" not in words[7:8]:
        return None
    kind, rest = words[6].removeprefix("kind::"), words[8:]
    blocks = _DEFAULTS.get(kind, 0)
    if rest and rest[0].startswith("scale_vec::"):
        blocks = int(rest.pop(0).removeprefix("scale_vec::").removesuffix("X"))
    if kind not in _SHAPES or len(rest) != 5 or words[3] != _SHAPES[kind][0]:
        return None
    d, a, b, c, scale = rest
    kinds = BYTE_FLOATS if kind == "mxf8f6f4" else {"e2m1"}
    if (d, c) != ("f32", "f32") or not {a, b} <= kinds or scale not in _SCALES.get((kind, blocks), ()):
        return None
    return ScaledMma(opcode, _SHAPES[kind][1], a, b, scale, blocks)
