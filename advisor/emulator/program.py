"""A kernel's PTX as Python functions, one per basic block, over all warps that stand there. Imports its own room.

Each function takes the machine, the group of warps, the register arrays ([warp, lane], unsigned integers of the
register's width, booleans for predicates), the rows of the group, and the mask of the lanes that are on (None in the
form for whole warps). Registers that do not outlive a block are local variables of its function. Blocks are translated
when a warp first comes to them. A program holds nothing of a launch, so one serves any number of runs.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import numpy as np

from advisor.emulator import (
    lowering_async,
    lowering_clc,
    lowering_matrix,
    lowering_memory,
    lowering_tcgen05,
    lowering_warp,
    wide,
)
from advisor.emulator.lowering import Emitter, opcodes
from advisor.emulator.lowering_undefined import Follower, suspects
from advisor.emulator.ptx.graph import Block, Graph, build_graph
from advisor.emulator.ptx.inline import flatten
from advisor.emulator.ptx.ir import TYPE_BITS, Function, Instruction, Module, Variable, Vector, registers_of
from advisor.emulator.ptx.parser import parse
from advisor.emulator.targets import check_target
from advisor.errors import InputError, RefusedError

EMITTERS = (lowering_async, lowering_clc, lowering_matrix, lowering_memory, lowering_tcgen05, lowering_warp)
"""The modules whose import fills the table of emitters."""

BlockFunction = Callable[..., Any]
_DTYPE: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64, 128: wide.B128}


class Program:
    """One entry of a module, ready to run. Raises InputError EMU_ENTRY for a name that the module lacks, and what
    `check_target` raises."""

    def __init__(self, module: Module, entry: str) -> None:
        if entry not in module.functions or not module.functions[entry].entry:
            raise InputError(
                "EMU_ENTRY",
                f"the module has no entry {entry!r}",
                fix=f"its entries: {', '.join(module.entries) or 'none'}",
                numbers={"entry": entry, "entries": list(module.entries)},
            )
        self.module = module
        self.function: Function = flatten(module, entry)
        self.graph: Graph = build_graph(self.function)
        self.instructions: tuple[Instruction, ...] = self.function.instructions
        check_target(module.target, self.instructions)
        self.slots = {name: index for index, name in enumerate(self.graph.registers)}
        self.dtypes = [_DTYPE[TYPE_BITS[kind]] for kind in self.graph.registers.values()]
        self.constants: dict[str, Any] = {
            "np": np, "where": np.where, "full": np.full, "some": np.count_nonzero, "joined": wide.joined,
            "NONE": np.False_,
        }  # fmt: skip
        self._names: dict[tuple[object, ...], str] = {}
        self._numbers: dict[str, int] = {}
        self.warpgroup_registers = _warpgroup_registers(self.instructions)
        count = len(self.graph.blocks)
        self.whole: list[BlockFunction | None] = [None] * count
        self.masked: list[BlockFunction | None] = [None] * count
        self.followed: list[BlockFunction | None] = [None] * count
        self._lay_out()
        self.suspects = suspects(self.instructions, frozenset(self.local))

    def _lay_out(self) -> None:
        """Offsets of everything but global memory: parameters, static SMEM, the local frame."""
        self.params, self.param_bytes = _packed(self.function.params)
        body = self.function.variables
        shared = [each for each in (*self.module.variables.values(), *body) if each.space == "shared"]
        static = [each for each in shared if not (each.external or each.elements == 0)]
        self.shared, self.static_bytes = _packed(tuple(static))
        dynamic = [each for each in shared if each.external or each.elements == 0]
        align = max((each.align for each in dynamic), default=16)
        self.dynamic_start = -(-self.static_bytes // align) * align
        self.shared.update({each.name: self.dynamic_start for each in dynamic})
        frame = tuple(each for each in body if each.space in ("local", "param"))
        frame += tuple(each for each in self.module.variables.values() if each.space == "local")
        self.local, self.frame_bytes = _packed(frame)
        self.global_variables = [
            each for each in (*self.module.variables.values(), *body) if each.space in ("global", "const")
        ]

    def constant(self, value: object, *key: object) -> str:
        """The name by which generated code reaches `value`."""
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"k{len(self._names)}"
            self.constants[name] = value
        return name

    def register_number(self, name: str) -> int:
        """A number for a register, for checks that keep sets of them."""
        return self._numbers.setdefault(name, len(self._numbers))

    def parameter_at(self, offset: int) -> str:
        """The parameter that holds this byte of all parameters; the empty name for none."""
        return next(
            (each.name for each in self.function.params if 0 <= offset - self.params[each.name] < each.bytes), ""
        )

    def block_function(self, index: int, *, masked: bool) -> BlockFunction:
        cache = self.masked if masked else self.whole
        found = cache[index]
        if found is None:
            found = cache[index] = self._translate(self.graph.blocks[index], masked)
        return found

    def followed_function(self, index: int) -> BlockFunction:
        """The form for warps that hold an undefined value; it takes a mask always."""
        found = self.followed[index]
        if found is None:
            found = self.followed[index] = self._translate(self.graph.blocks[index], True, follow=True)
        return found

    def translate_all(self) -> None:
        """Every block in both forms. Raises RefusedError EMU_UNKNOWN_OPCODE for the first that cannot be."""
        for block in self.graph.blocks:
            self.block_function(block.index, masked=False)
            self.block_function(block.index, masked=True)
            if self.suspects:
                self.followed_function(block.index)

    def _translate(self, block: Block, masked: bool, *, follow: bool = False) -> BlockFunction:
        text = self.source(block, masked=masked, follow=follow)
        scope: dict[str, Any] = {}
        exec(compile(text, f"<block {block.index}>", "exec"), self.constants, scope)
        function: BlockFunction = scope["block"]
        return function

    def source(self, block: Block, *, masked: bool, follow: bool = False) -> str:
        """The Python text of one block."""
        emitter = Emitter(self, block, masked=masked)
        if follow:
            emitter.follower = Follower(emitter, self)
        for index in range(block.start, block.end):
            emitter.instruction(index, self.instructions[index])
        return emitter.finish()


def load_program(text: str, entry: str | None = None, name: str = "kernel.ptx") -> Program:
    """Parses PTX and prepares one entry; the only one where none is named."""
    module = parse(text, name)
    if entry is None:
        if len(module.entries) != 1:
            raise InputError(
                "EMU_ENTRY",
                f"{name} has {len(module.entries)} entries",
                fix=f"name one of: {', '.join(module.entries) or 'none'}",
                numbers={"entries": list(module.entries)},
            )
        entry = module.entries[0]
    return Program(module, entry)


def _packed(variables: tuple[Variable, ...]) -> tuple[dict[str, int], int]:
    """Offsets in declaration order, each at its alignment, and the size of all."""
    offsets: dict[str, int] = {}
    end = 0
    for each in variables:
        end = -(-end // each.align) * each.align
        offsets[each.name] = end
        end += each.bytes
    return offsets, end


def _warpgroup_registers(instructions: tuple[Instruction, ...]) -> frozenset[str]:
    """Registers that are accumulators or A operands of a wgmma."""
    return frozenset(
        name
        for each in instructions
        if each.opcode == "wgmma"
        for operand in each.operands
        if isinstance(operand, Vector)
        for name in registers_of(operand)
    )


def unknown(instruction: Instruction, why: str = "") -> RefusedError:
    """The error for an instruction that is not executed, with what is near."""
    near = difflib.get_close_matches(instruction.opcode, opcodes(), n=3, cutoff=0.5)
    place = f" ({instruction.place.file}:{instruction.place.line})" if instruction.place else ""
    return RefusedError(
        "EMU_UNKNOWN_OPCODE",
        f"line {instruction.line}{place}: {instruction.text} is not executed{': ' + why if why else ''}",
        fix=f"near: {', '.join(near)}; docs/emulator.md lists what is executed" if near else "see docs/emulator.md",
        numbers={"line": instruction.line, "opcode": instruction.text, "near": near},
    )
