"""What a single-instruction case is, and the writer of its PTX text."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from advisor.emulator.numbers import quiet
from advisor.records.launch import BytesParam, ElementMapParam, TensorMapParam

Arrays = dict[str, np.ndarray]
HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def seed_of(name: str) -> int:
    return zlib.crc32(name.encode())


@dataclass(frozen=True)
class Bound:
    """How far the chip's result may be from ours: units in the last place, or an absolute, or a relative distance."""

    ulps: int = 0
    absolute: float = 0.0
    relative: float = 0.0

    def __str__(self) -> str:
        parts = [f"{self.ulps} units in the last place"] if self.ulps else []
        parts += [f"{self.absolute:.2g}"] if self.absolute else []
        parts += [f"{self.relative:.2g} of the value"] if self.relative else []
        return " and ".join(parts) or "no bit"


@dataclass(frozen=True)
class Case:
    name: str
    ptx: str
    inputs: Arrays
    outputs: dict[str, tuple[tuple[int, ...], Any]]
    blocks: int
    threads: int
    function: Callable[[Arrays], Arrays]
    bound: Bound = Bound()
    kinds: dict[str, str] = field(default_factory=dict)  # of the outputs, where a bound needs them
    cluster: int = 1
    extra: tuple[TensorMapParam | ElementMapParam | BytesParam, ...] = ()  # parameters after the pointers

    def expected(self) -> Arrays:
        """What the emulator computes."""
        with quiet():
            return self.function(self.inputs)

    @property
    def parameters(self) -> list[str]:
        return [*self.inputs, *self.outputs, *(each.name for each in self.extra)]


# --- kernels ----------------------------------------------------------------------------------------------------------


class Writer:
    """PTX text of one kernel; registers are declared as they are asked for."""

    def __init__(self, parameters: Sequence[str]) -> None:
        self.parameters = list(parameters)
        self.lines: list[str] = []
        self.counts = {"p": 0, "h": 0, "r": 0, "d": 0}
        self.shared = ""

    def register(self, width: int) -> str:
        """A new register of 1, 16, 32 or 64 bits; 8-bit values live in 16-bit ones."""
        letter = {1: "p", 8: "h", 16: "h", 32: "r", 64: "d"}[width]
        self.counts[letter] += 1
        return f"%{letter}{self.counts[letter] - 1}"

    def emit(self, line: str) -> None:
        self.lines.append(f"    {line}")

    def pointer(self, parameter: str) -> str:
        base = self.register(64)
        self.emit(f"ld.param.u64 {base}, [{parameter}];")
        self.emit(f"cvta.to.global.u64 {base}, {base};")
        return base

    def address(self, base: str, index: str, size: int) -> str:
        where = self.register(64)
        self.emit(f"mad.wide.u32 {where}, {index}, {size}, {base};")
        return where

    def load(self, width: int, address: str, offset: int = 0) -> str:
        if width == 1:
            raw = self.register(16)
            self.emit(f"ld.global.u8 {raw}, [{address}+{offset}];")
            predicate = self.register(1)
            self.emit(f"setp.ne.u16 {predicate}, {raw}, 0;")
            return predicate
        to = self.register(width)
        self.emit(f"ld.global.{'u8' if width == 8 else f'b{width}'} {to}, [{address}+{offset}];")
        return to

    def store(self, width: int, address: str, value: str, offset: int = 0) -> None:
        if width == 1:
            byte = self.register(16)
            self.emit(f"selp.u16 {byte}, 1, 0, {value};")
            width, value = 8, byte
        self.emit(f"st.global.{'u8' if width == 8 else f'b{width}'} [{address}+{offset}], {value};")

    def thread_index(self) -> str:
        index, block, size = (self.register(32) for _ in range(3))
        self.emit(f"mov.u32 {index}, %tid.x;")
        self.emit(f"mov.u32 {block}, %ctaid.x;")
        self.emit(f"mov.u32 {size}, %ntid.x;")
        self.emit(f"mad.lo.u32 {index}, {block}, {size}, {index};")
        return index

    def text(self) -> str:
        names = {"p": ".pred %p", "h": ".b16 %h", "r": ".b32 %r", "d": ".b64 %d"}
        declared = [f"    .reg {names[each]}<{count}>;" for each, count in self.counts.items() if count]
        parameters = ",\n".join(f"    .param .u64 {each}" for each in self.parameters)
        body = "\n".join([*declared, *([self.shared] if self.shared else []), *self.lines, "    ret;"])
        return f"{HEADER}.visible .entry kernel(\n{parameters}\n)\n{{\n{body}\n}}\n"


_REGISTERS = ".reg .pred %p<16>; .reg .b16 %h<32>; .reg .b32 %r<96>; .reg .b64 %d<48>; .reg .b128 %q<4>;"


def assembled(
    pointers: Sequence[str],
    body: Sequence[str],
    *,
    extra: Sequence[TensorMapParam | ElementMapParam | BytesParam] = (),
    shared_bytes: int = 0,
    module: str = "",
    directives: str = "",
) -> str:
    """A kernel around `body`, for cases of memory and of synchronisation.

    A pointer `in` is in %in; of an extra parameter `map` %map is the generic address. %t is the thread in its CTA, %g
    the thread in the grid, %cta the CTA. `tile` is shared memory on 1024 bytes, %base its address; registers %p, %h,
    %r, %d and %q are free.
    """
    sizes = [len(each.value) // 2 if isinstance(each, BytesParam) else 128 for each in extra]
    declared = [f"    .param .u64 {each}" for each in pointers]
    declared += [f"    .param .align 64 .b8 {each.name}[{size}]" for each, size in zip(extra, sizes, strict=True)]
    lines = [_REGISTERS, ".reg .b32 %t, %g, %base, %cta;"]
    if shared_bytes:
        lines.append(f".shared .align 1024 .b8 tile[{shared_bytes}];")
    for each in pointers:
        lines += [f".reg .b64 %{each};", f"ld.param.u64 %{each}, [{each}];", f"cvta.to.global.u64 %{each}, %{each};"]
    for each in extra:
        lines += [f".reg .b64 %{each.name};", f"mov.b64 %{each.name}, {each.name};"]
        lines += [f"cvta.param.u64 %{each.name}, %{each.name};"]
    lines += ["mov.u32 %t, %tid.x;", "mov.u32 %cta, %ctaid.x;", "mov.u32 %g, %ntid.x;", "mad.lo.u32 %g, %cta, %g, %t;"]
    if shared_bytes:
        lines.append("mov.u32 %base, tile;")
    text = "\n".join(f"    {line}" for line in [*lines, *body, "ret;"])
    parameters = ",\n".join(declared)
    return f"{HEADER}{module}.visible .entry kernel(\n{parameters}\n)\n{directives}{{\n{text}\n}}\n"


def at(pointer: str, size: int, to: str = "%d0", index: str = "%g") -> str:
    """`to` = pointer + index * size."""
    return f"mad.wide.u32 {to}, {index}, {size}, %{pointer};"
