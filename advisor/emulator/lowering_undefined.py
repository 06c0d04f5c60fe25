"""The form of a block for warps that hold an undefined value: marks beside registers. Imports its own room.

`suspects` finds, without running anything, the registers that can hold a value from get_first_ctaid or from a load of
tensor memory. For each instruction that reads one, `Follower` writes the line that marks its result, or the call that
reports a use:

- what only computes marks its result where an operand is marked, except where the operand cannot matter: the side that
  a select does not choose, an `and` with zero, a product with zero;
- what touches memory or other warps, and what decides where a warp goes, is a use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.emulator.lowering import HANDLERS
from advisor.emulator.lowering_memory import access_of, address_text
from advisor.emulator.ptx.graph import Block, decodes_response, destination_count, gives_undefined
from advisor.emulator.ptx.ir import Address, Instruction, Operand, Symbol, Vector, registers_of

if TYPE_CHECKING:
    from advisor.emulator.lowering import Emitter
    from advisor.emulator.program import Program

_PURE = "cvta isspacep mapa getctarank shfl vote match redux elect activemask mma movmatrix"
_PURE_HANDLERS = frozenset(_PURE.split())
_HINTS = "prefetch prefetchu discard applypriority pmevent"
_NO_EFFECT = frozenset(_HINTS.split())
_OF_ALL_LANES = frozenset({"vote", "match", "redux"})


def only_computes(instruction: Instruction) -> bool:
    """True where nothing outside of registers depends on the operands."""
    opcode = instruction.opcode
    if opcode == "mbarrier":
        return instruction.has("pending_count")
    if opcode == "clusterlaunchcontrol":
        return instruction.has("query_cancel")
    return opcode not in HANDLERS or opcode in _PURE_HANDLERS


def _in_frame(local: frozenset[str], instruction: Instruction) -> bool:
    """An access to local memory, or to a parameter of an inlined call, which lies there."""
    if instruction.opcode not in ("ld", "st"):
        return False
    if instruction.has("local"):
        return True
    address = next((each for each in instruction.operands if isinstance(each, Address)), None)
    return address is not None and isinstance(address.base, Symbol) and address.base.name in local


def elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _operands(instruction: Instruction) -> tuple[str, ...]:
    return tuple(n for each in instruction.operands[destination_count(instruction) :] for n in registers_of(each))


def _sources(instruction: Instruction) -> tuple[str, ...]:
    names = _operands(instruction)
    return (*names, instruction.guard.name) if instruction.guard is not None else names


def suspects(instructions: tuple[Instruction, ...], local: frozenset[str]) -> frozenset[str]:
    """Registers that can hold a value that may be undefined. `local` names variables of the frame."""
    found: set[str] = set()
    frame = False
    for each in instructions:
        if gives_undefined(each):
            found.update(n for one in each.operands[: destination_count(each)] for n in registers_of(one))
    changed = bool(found)
    while changed:
        before = (len(found), frame)
        for each in instructions:
            if _in_frame(local, each):
                if each.opcode == "st":
                    frame |= any(name in found for name in _sources(each))
                    continue
                reached = frame
            else:
                reached = only_computes(each) and any(name in found for name in _sources(each))
            if reached:
                found.update(n for one in each.operands[: destination_count(each)] for n in registers_of(one))
        changed = before != (len(found), frame)
    return frozenset(found)


class Follower:
    """Writes the marks of one block, beside the emitter of the block's own lines."""

    def __init__(self, emitter: Emitter, program: Program) -> None:
        self.emitter = emitter
        self.program = program
        self.suspects = program.suspects
        self.local = frozenset(program.local)
        self.marks: dict[str, str] = {}  # register -> text of its marks
        self.pending: dict[str, str] = {}
        self.then = ""  # a line that follows those of the instruction

    def mark(self, name: str) -> str:
        """Text of the marks of a register."""
        if name not in self.suspects:
            return "NONE"
        found = self.marks.get(name)
        if found is None:
            slot = self.program.slots.get(name)
            found = "NONE"
            if slot is not None:
                found = self.emitter.fresh()
                self.emitter.emit(f"{found} = M.undefined.of({slot}, s)")
            self.marks[name] = found
        return found

    def any_of(self, names: tuple[str, ...]) -> str:
        marked = [each for each in dict.fromkeys(self.mark(name) for name in names) if each != "NONE"]
        return f"({' | '.join(marked)})" if marked else "NONE"

    # --- before and after the lines of an instruction -----------------------------------------------------------------

    def before(self, index: int, instruction: Instruction) -> None:
        """What is known before the instruction changes its registers: uses, and the marks of its results."""
        self.pending = {}
        if instruction.opcode in _NO_EFFECT or decodes_response(instruction):
            return
        if gives_undefined(instruction):  # a load of tensor memory uses its address
            self._use(index, self.any_of(_sources(instruction)), self.emitter.lanes(instruction))
            return
        if _in_frame(self.local, instruction):
            self._frame(index, instruction)
        elif instruction.opcode == "st" and {"shared", "shared::cta"} & set(instruction.qualifiers):
            self._shared_store(index, instruction)
        elif only_computes(instruction):
            self._result(instruction, self._computed(instruction))
        else:
            if instruction.guard is not None:
                self._use(index, self.mark(instruction.guard.name), "m")
            if any(name in self.suspects for name in _operands(instruction)):
                self._use(index, self.any_of(_operands(instruction)), self.emitter.lanes(instruction))
            self._result(instruction, "NONE")

    def _shared_store(self, index: int, instruction: Instruction) -> None:
        """An undefined value that goes to shared memory leaves its bytes as if nobody had written them."""
        address, source = instruction.operands[:2]
        assert isinstance(address, Address)
        guard = (instruction.guard.name,) if instruction.guard is not None else ()
        self._use(index, self.any_of((*registers_of(address), *guard)), self.emitter.lanes(instruction))
        marks = [self.any_of(registers_of(each)) for each in elements(source)]
        if all(each == "NONE" for each in marks):
            return
        access = access_of(self.emitter, index, instruction)
        constant = self.program.constant(access, "access", index)
        place = self.emitter.fresh()
        self.emitter.emit(f"{place} = {address_text(self.emitter, access, address)}")
        lanes = self.emitter.lanes(instruction)
        self.then = f"M.undefined.store_shared(g, {index}, {constant}, {place}, [{', '.join(marks)}], {lanes})"

    def after(self, index: int, instruction: Instruction) -> None:
        if self.then:
            self.emitter.emit(self.then)
            self.then = ""
        if decodes_response(instruction):
            text = self.emitter.fresh()
            self.emitter.emit(f"{text} = M.undefined.came(g, {index}, {self.emitter.undefined})")
            self._result(instruction, text)
        elif gives_undefined(instruction):
            self._loaded(index, instruction)
        self.marks.update(self.pending)

    def _loaded(self, index: int, instruction: Instruction) -> None:
        """The marks of `tcgen05.ld`, of each register its own; what `.red` makes of them has them all."""
        names = [registers_of(each) for each in elements(instruction.operands[0])]
        made = [self.emitter.fresh() for _ in names]
        self.emitter.emit(
            f"{', '.join(made)}, = M.undefined.came_each(g, {index}, {self.emitter.undefined}, {len(made)})"
        )
        for registers, text in zip(names, made, strict=True):
            self.pending.update(dict.fromkeys(registers, text))
        if destination_count(instruction) > 1:
            self.pending.update(dict.fromkeys(registers_of(instruction.operands[1]), f"({' | '.join(made)})"))

    def finish(self, block: Block) -> None:
        """The end of the block: what its terminator uses, and the marks that outlive it."""
        end = block.terminator
        emitter = self.emitter
        if end is not None and block.kind in ("branch", "exit", "table", "wait"):
            self._use(block.end, self.any_of(_sources(end)), "m")
        for name in block.stored:
            if name in self.suspects:
                emitter.emit(f"M.undefined.keep({self.program.slots[name]}, s, m, {self.mark(name)})")
        for each in end.operands[: destination_count(end)] if end is not None and block.kind == "wait" else ():
            for name in registers_of(each):
                if name in self.suspects and name in self.program.slots:
                    emitter.emit(f"M.undefined.keep({self.program.slots[name]}, s, m, NONE)")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _use(self, index: int, text: str, lanes: str) -> None:
        if text != "NONE":
            self.emitter.emit(f"M.undefined.use(g, {index}, {text}, {lanes})")

    def _result(self, instruction: Instruction, text: str) -> None:
        """The marks of everything that an instruction writes; under a guard those of the lanes that it lets through."""
        for operand in instruction.operands[: destination_count(instruction)]:
            for name in registers_of(operand):
                if name not in self.suspects:
                    continue
                made = self.emitter.fresh()
                if instruction.guard is None:
                    self.emitter.emit(f"{made} = {text}")
                else:
                    guard = self.emitter.guard(instruction).text
                    by = self.mark(instruction.guard.name)
                    self.emitter.emit(f"{made} = where({guard}, {text}, {self.mark(name)}) | {by}")
                self.pending[name] = made

    def _computed(self, instruction: Instruction) -> str:
        sources = instruction.operands[destination_count(instruction) :]
        texts = [self.any_of(registers_of(each)) for each in sources]
        if all(each == "NONE" for each in texts):
            return "NONE"
        opcode = instruction.opcode
        special = {"selp": self._select, "setp": self._compare, "shfl": self._shuffle}.get(opcode)
        if special is not None:
            return special(instruction, sources, texts)
        if opcode in _OF_ALL_LANES:
            return f"M.undefined.anywhere({' | '.join(texts)}, {self.emitter.lanes(instruction)})"
        if opcode in ("and", "or", "mul", "mul24", "mad") and len(sources) >= 2:
            return self._absorbed(instruction, sources, texts)
        return f"({' | '.join(texts)})"

    def _value(self, operand: Operand, kind: str) -> str:
        return self.emitter.array(self.emitter.source(operand, kind))

    def _select(self, instruction: Instruction, sources: tuple[Operand, ...], texts: list[str]) -> str:
        chosen = self._value(sources[2], "pred")
        return f"(where({chosen}, {texts[0]}, {texts[1]}) | {texts[2]})"

    def _compare(self, instruction: Instruction, sources: tuple[Operand, ...], texts: list[str]) -> str:
        compared = f"({texts[0]} | {texts[1]})"
        if len(sources) < 3:
            return compared
        other = self._value(sources[2], "pred")
        if instruction.has("and"):
            compared = f"({compared} & {other})"
        elif instruction.has("or"):
            compared = f"({compared} & ~{other})"
        return f"({compared} | {texts[2]})"

    def _absorbed(self, instruction: Instruction, sources: tuple[Operand, ...], texts: list[str]) -> str:
        """`and` with zero, `or` with all ones, a product with zero: the other operand does not matter."""
        kind = instruction.qualifiers[-1]
        if kind not in ("pred", *(f"{sign}{bits}" for sign in "bus" for bits in (16, 32, 64))):
            return f"({' | '.join(texts)})"
        a, b = (self._value(each, kind) for each in sources[:2])
        if instruction.opcode == "or":
            matters = (f"({a} != ~{a}.dtype.type(0))", f"({b} != ~{b}.dtype.type(0))")
        else:
            matters = (f"({a} != 0)", f"({b} != 0)")
        first, second = texts[:2]
        parts = [f"({first} & {matters[1]})", f"({second} & {matters[0]})", f"({first} & {second})", *texts[2:]]
        return f"({' | '.join(parts)})"

    def _shuffle(self, instruction: Instruction, sources: tuple[Operand, ...], texts: list[str]) -> str:
        mode = next(each for each in instruction.qualifiers if each in ("up", "down", "bfly", "idx"))
        by, control = (self._value(each, "b32") for each in sources[1:3])
        return f"(M.undefined.shuffled({mode!r}, {texts[0]}, {by}, {control}) | {texts[1]})"

    def _frame(self, index: int, instruction: Instruction) -> None:
        emitter = self.emitter
        access = access_of(emitter, index, instruction)
        address = next(each for each in instruction.operands if isinstance(each, Address))
        lanes = emitter.lanes(instruction)
        self._use(index, self.any_of(registers_of(address)), lanes)
        place = address_text(emitter, access, address)
        if instruction.opcode == "st":
            mark = self.any_of(registers_of(instruction.operands[1]))
            emitter.emit(f"M.undefined.store_local(g, {place}, {access.size}, {mark}, {lanes})")
        else:
            text = emitter.fresh()
            emitter.emit(f"{text} = M.undefined.load_local(g, {place}, {access.size}, {lanes})")
            self._result(instruction, text)
