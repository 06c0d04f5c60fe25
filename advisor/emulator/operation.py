"""What one PTX instruction on numbers is to the executor, and how its name is read. Imports only its own room."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

WIDTH = {
    "pred": 1,
    "b8": 8, "u8": 8, "s8": 8, "e2m1x2": 8,
    "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "e4m3x2": 16, "e5m2x2": 16, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "e2m1x4": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "tf32": 32, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32,
    "e4m3x4": 32, "e5m2x4": 32, "e2m3x4": 32, "e3m2x4": 32,
    "b64": 64, "u64": 64, "s64": 64, "f64": 64, "f32x2": 64,
}  # fmt: skip
UNSIGNED: dict[int, type[Any]] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, type[Any]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
ROUNDINGS = frozenset({"rn", "rz", "rm", "rp"})


def unsigned(kind: str) -> type[Any]:
    """The NumPy type of a register of this PTX type: bool for a predicate, else an unsigned integer."""
    return UNSIGNED[WIDTH[kind]]


def signed(kind: str) -> type[Any]:
    return SIGNED[WIDTH[kind]]


@dataclass(frozen=True, slots=True)
class Operation:
    """A pure function over bit arrays.

    `function` takes one array per entry of `sources`, of the NumPy type of that PTX type, and gives one array, or a
    tuple where `results` has several. Arrays broadcast; none is written to; a result may be a view of an operand.
    Sources follow the order of PTX's operands. `approximate`: the chip's result may differ in the last places.
    """

    opcode: str
    function: Callable[..., Any]
    sources: tuple[str, ...]
    results: tuple[str, ...]
    approximate: bool = False


@dataclass(frozen=True, slots=True)
class Mnemonic:
    """An opcode taken apart: the name, the types in their order, every other qualifier in its order."""

    opcode: str
    root: str
    qualifiers: tuple[str, ...]
    types: tuple[str, ...]
    destinations: int
    sources: int

    def only(self, *allowed: str | Iterable[str]) -> bool:
        """True where no qualifier stands outside `allowed`, and none twice."""
        names = {name for each in allowed for name in ([each] if isinstance(each, str) else each)}
        return set(self.qualifiers) <= names and len(set(self.qualifiers)) == len(self.qualifiers)

    def has(self, qualifier: str) -> bool:
        return qualifier in self.qualifiers

    def one_of(self, choices: Iterable[str], default: str = "") -> str | None:
        """The qualifier that is among `choices`; `default` where there is none, None where there are several."""
        found = [each for each in self.qualifiers if each in choices]
        return default if not found else found[0] if len(found) == 1 else None


def read(opcode: str, destinations: int, sources: int) -> Mnemonic:
    root, *rest = opcode.split(".")
    types = tuple(each for each in rest if each in WIDTH)
    return Mnemonic(opcode, root, tuple(each for each in rest if each not in WIDTH), types, destinations, sources)
