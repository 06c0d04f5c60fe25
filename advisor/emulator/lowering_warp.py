"""The emitters of instructions of a whole warp: shuffles, votes, barriers, matrices. Imports its own room."""

from __future__ import annotations

from advisor.emulator.lowering import Emitter, Value, handles
from advisor.emulator.ptx.ir import Instruction, Operand, Pair, Sink


def _pair(operand: Operand) -> tuple[Operand, Operand]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())


def _members(emitter: Emitter, index: int, instruction: Instruction, mask: Operand) -> str:
    """Text of the lanes that take part: checked against the mask that the instruction names."""
    named = emitter.array(emitter.source(mask, "u32"))
    variable = emitter.fresh()
    emitter.emit(f"{variable} = M.members(g, {index}, {named}, {emitter.lanes(instruction)})")
    return variable


@handles("shfl")
def shuffle(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "sync", "up", "down", "bfly", "idx", "b32")
    if not instruction.has("sync"):
        emitter.refuse("the form without .sync is gone since sm_70")
    mode = next(each for each in instruction.qualifiers if each in ("up", "down", "bfly", "idx"))
    to, a, b, control, mask = instruction.operands
    _members(emitter, index, instruction, mask)
    texts = [emitter.array(emitter.source(each, "b32")) for each in (a, b, control)]
    value, inside = emitter.fresh(), emitter.fresh()
    emitter.emit(f"{value}, {inside} = M.shuffle({mode!r}, {', '.join(texts)})")
    first, second = _pair(to)
    emitter.define(first, Value(value, 32), instruction)
    emitter.define(second, Value(inside, 1), instruction)


@handles("vote")
def vote(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "sync", "all", "any", "uni", "ballot", "pred", "b32")
    to, predicate, mask = instruction.operands
    active = _members(emitter, index, instruction, mask)
    text = emitter.array(emitter.source(predicate, "pred"))
    if instruction.has("ballot"):
        emitter.define(to, Value(f"M.ballot({text}, {active})", 32), instruction)
    else:
        emitter.define(to, Value(f"M.vote({instruction.qualifiers[1]!r}, {text}, {active})", 1), instruction)


@handles("match")
def match(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "sync", "any", "all", "b32", "b64")
    to, value, mask = instruction.operands
    active = _members(emitter, index, instruction, mask)
    text = emitter.array(emitter.source(value, instruction.qualifiers[-1]))
    if instruction.has("any"):
        emitter.define(to, Value(f"M.match_any({text}, {active})", 32), instruction)
        return
    found, same = emitter.fresh(), emitter.fresh()
    emitter.emit(f"{found}, {same} = M.match_all({text}, {active})")
    first, second = _pair(to)
    emitter.define(first, Value(found, 32), instruction)
    emitter.define(second, Value(same, 1), instruction)


@handles("redux")
def redux(emitter: Emitter, index: int, instruction: Instruction) -> None:
    to, value, mask = instruction.operands
    active = _members(emitter, index, instruction, mask)
    if instruction.has("f32"):
        emitter.only(instruction, "sync", "min", "max", "abs", "NaN", "f32")
        text = emitter.array(emitter.source(value, "b32"))
        how = f"{instruction.qualifiers[1]!r}, {instruction.has('abs')}, {instruction.has('NaN')}"
        emitter.define(to, Value(f"M.reduce_float({how}, {text}, {active})", 32), instruction)
        return
    emitter.only(instruction, "sync", "add", "and", "or", "xor", "min", "max", "u32", "s32", "b32")
    operation, kind = instruction.qualifiers[1:3]
    text = emitter.array(emitter.source(value, kind))
    emitter.define(to, Value(f"M.reduce({operation!r}, {kind == 's32'}, {text}, {active})", 32), instruction)


@handles("elect")
def elect(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "sync")
    to, mask = instruction.operands
    active = _members(emitter, index, instruction, mask)
    leader, chosen = emitter.fresh(), emitter.fresh()
    emitter.emit(f"{leader}, {chosen} = M.elect({active}, n)")
    first, second = _pair(to)
    emitter.define(first, Value(leader, 32), instruction)
    emitter.define(second, Value(chosen, 1), instruction)


@handles("activemask")
def activemask(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "b32")
    lanes = emitter.lanes(instruction)
    emitter.define(instruction.operands[0], Value(f"M.ballot(full((n, 32), True), {lanes})", 32), instruction)


@handles("bar", "barrier")
def arrive(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """The forms that do not wait; the others end a block."""
    if instruction.has("cluster"):
        emitter.only(instruction, "cluster", "arrive", "release", "relaxed", "aligned")
        relaxed = instruction.has("relaxed")
        emitter.emit(f"M.cluster_arrive(g, {index}, {relaxed}, {emitter.lanes(instruction)})")
        return
    emitter.only(instruction, "cta", "arrive", "aligned")
    barrier, count = (emitter.array(emitter.source(each, "u32")) for each in instruction.operands)
    emitter.emit(f"M.barrier_arrive(g, {index}, {barrier}, {count}, {emitter.lanes(instruction)})")


@handles("trap", "brkpt")
def trap(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.emit(f"M.trap(g, {index}, {emitter.lanes(instruction)})")


@handles("pmevent")
def pmevent(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """An event for a profiler."""
