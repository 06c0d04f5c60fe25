"""The control flow graph of a flat function: blocks, immediate post-dominators, liveness. Imports only `ir`, `errors`.

A block is straight code followed by one terminator. An instruction at which a warp may have to wait (a barrier, an
mbarrier wait, a wait for asynchronous work) is a terminator too, so that everything before it runs without stopping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from advisor.emulator.ptx.ir import Function, Instruction, Symbol, registers_of
from advisor.errors import InputError

EXIT = -1
"""The block number of the virtual exit."""

_EFFECT_ONLY = """st red bra brx ret exit trap brkpt fence membar prefetch prefetchu setmaxnreg nanosleep stmatrix
griddepcontrol discard applypriority cp tensormap call pmevent"""
_NO_DESTINATION = frozenset(_EFFECT_ONLY.split())
_DESTINATION_WITH = {
    "bar": ("red",),
    "barrier": ("red",),
    "mbarrier": ("arrive", "arrive_drop", "test_wait", "try_wait", "pending_count"),
    "clusterlaunchcontrol": ("query_cancel",),
    "tcgen05": ("ld",),
    "wgmma": ("mma_async",),
    "multimem": ("ld_reduce",),
}


MEET_FIRST = frozenset({"shfl", "vote", "match", "redux", "elect"})
"""Instructions that wait for the lanes that their mask names."""


def decodes_response(instruction: Instruction) -> bool:
    """True of clusterlaunchcontrol.query_cancel.get_first_ctaid in any form."""
    return instruction.opcode == "clusterlaunchcontrol" and any(
        each.startswith("get_first_ctaid") for each in instruction.qualifiers
    )


def gives_undefined(instruction: Instruction) -> bool:
    """True where a result may be undefined, and is a fault only where it is used: coordinates of a failed response, and
    words of tensor memory that nobody has written."""
    return decodes_response(instruction) or (instruction.opcode == "tcgen05" and instruction.has("ld"))


def is_read_and_written(instruction: Instruction) -> bool:
    """True where the destination also goes in: an accumulator, or a guard that leaves lanes as they were."""
    return instruction.guard is not None or instruction.opcode == "wgmma"


def destination_count(instruction: Instruction) -> int:
    """How many leading operands are written: 0 or 1 (which may be a vector or a pair), or 2 of tcgen05.ld.red."""
    if not instruction.operands or instruction.opcode in _NO_DESTINATION:
        return 0
    if instruction.opcode == "tcgen05" and instruction.qualifiers[:2] == ("ld", "red"):
        return 2
    wanted = _DESTINATION_WITH.get(instruction.opcode)
    return 1 if wanted is None or any(each in instruction.qualifiers for each in wanted) else 0


def written(instruction: Instruction) -> tuple[str, ...]:
    return tuple(n for each in instruction.operands[: destination_count(instruction)] for n in registers_of(each))


def read(instruction: Instruction) -> tuple[str, ...]:
    first = 0 if is_read_and_written(instruction) else destination_count(instruction)
    names = tuple(name for each in instruction.operands[first:] for name in registers_of(each))
    return names if instruction.guard is None else (*names, instruction.guard.name)


def may_wait(instruction: Instruction) -> bool:
    """True where a warp can stand still until another one does something.

    A wait for a warp's own asynchronous copies is none: what it waits for is made to land on the spot.
    """
    opcode, qualifiers = instruction.opcode, instruction.qualifiers
    if opcode in ("bar", "barrier"):
        return "arrive" not in qualifiers
    if opcode == "mbarrier":
        return "try_wait" in qualifiers or "test_wait" in qualifiers
    if opcode == "tcgen05":
        return qualifiers[0] in ("alloc", "dealloc", "relinquish_alloc_permit")
    return opcode in ("nanosleep", "griddepcontrol", "setmaxnreg")


@dataclass(slots=True)
class Block:
    """`instructions[start:end]` is straight code; `terminator` follows it, or control falls to the next block."""

    index: int
    start: int
    end: int
    kind: str  # fall, branch, table, exit, wait
    terminator: Instruction | None
    successors: tuple[int, ...]  # a branch: taken first, then the fall-through where there is one
    order: int = 0  # reverse post-order: a warp with a smaller one is further behind
    join: int = EXIT  # immediate post-dominator
    stored: tuple[str, ...] = ()  # registers written in the straight code that are read after it


@dataclass(slots=True)
class Graph:
    function: Function
    blocks: list[Block]
    registers: dict[str, str] = field(default_factory=dict)  # those that live from one block into another: name -> type


def build_graph(function: Function) -> Graph:
    """Raises InputError EMU_PTX_SYNTAX for a jump to a label that is not there."""
    blocks = _blocks(function)
    _orders(blocks)
    _joins(blocks)
    graph = Graph(function, blocks)
    _liveness(graph)
    return graph


def _blocks(function: Function) -> list[Block]:
    code = function.instructions
    ends = {index + 1 for index, each in enumerate(code) if _terminator_kind(each) is not None}
    # Lanes that a warp instruction names may come later: it begins a block, so that a warp can stand before it.
    ends |= {index for index, each in enumerate(code) if each.opcode in MEET_FIRST}
    # What may be undefined is followed from the next block on (`undefined_values`).
    ends |= {index + 1 for index, each in enumerate(code) if gives_undefined(each)}
    starts = sorted({0, *ends, *(each for each in function.labels.values())} - {len(code)})
    starts = sorted({*starts, *_warpgroups_meet(code, starts)})
    at = {start: index for index, start in enumerate(starts)}
    blocks = []
    for index, start in enumerate(starts):
        stop = starts[index + 1] if index + 1 < len(starts) else len(code)
        last = code[stop - 1] if stop > start else None
        kind = _terminator_kind(last) if last is not None else None
        following = index + 1 if index + 1 < len(starts) else EXIT
        if last is None or kind is None:
            blocks.append(Block(index, start, stop, "fall", None, (following,)))
            continue
        targets = tuple(_target(function, last, label, at) for label in _labels(function, last, kind))
        if kind in ("fall", "wait") or (kind in ("branch", "exit") and last.guard is not None):
            targets = (*targets, following)
        if kind == "exit":
            targets = (EXIT, *targets)
        blocks.append(Block(index, start, stop - 1, kind, last, targets))
    return blocks


def _warpgroups_meet(code: Sequence[Instruction], starts: Sequence[int]) -> Iterator[int]:
    """The first wgmma instruction of each block: the warps of a warpgroup may come to it one after another."""
    for start, stop in pairwise((*starts, len(code))):
        first = next((index for index in range(start, stop) if code[index].opcode == "wgmma"), None)
        if first is not None:
            yield first


def _terminator_kind(instruction: Instruction) -> str | None:
    opcode = instruction.opcode
    if opcode == "bra":
        return "branch"
    if opcode == "brx":
        return "table"
    if opcode in ("ret", "exit"):
        return "exit"
    return "wait" if may_wait(instruction) else None


def _labels(function: Function, instruction: Instruction, kind: str) -> tuple[str, ...]:
    if kind == "branch":
        label = instruction.operands[0]
        return (label.name,) if isinstance(label, Symbol) else ("",)
    if kind == "table":
        table = instruction.operands[-1]
        return function.tables.get(table.name, ("",)) if isinstance(table, Symbol) else ("",)
    return ()


def _target(function: Function, instruction: Instruction, label: str, at: dict[int, int]) -> int:
    index = function.labels.get(label)
    if index is None:
        raise InputError(
            "EMU_PTX_SYNTAX",
            f"line {instruction.line}: {instruction.text} goes to {label!r}, which is not a label of {function.name}",
            fix="pass the whole module",
            numbers={"line": instruction.line},
        )
    return at.get(index, EXIT)


def _orders(blocks: list[Block]) -> None:
    """Reverse post-order from the entry; blocks that nothing reaches come last."""
    seen: set[int] = set()
    post: list[int] = []
    stack: list[tuple[int, int]] = [(0, 0)] if blocks else []
    seen.add(0)
    while stack:
        index, position = stack[-1]
        # The fall-through first and the taken side last puts the code in the order in which it is written.
        successors = blocks[index].successors
        if position < len(successors):
            stack[-1] = (index, position + 1)
            following = successors[position]
            if following != EXIT and following not in seen:
                seen.add(following)
                stack.append((following, 0))
        else:
            post.append(index)
            stack.pop()
    for order, index in enumerate(reversed(post)):
        blocks[index].order = order
    for block in blocks:
        if block.index not in seen:
            block.order = len(blocks) + block.index


def _joins(blocks: list[Block]) -> None:
    """Immediate post-dominators by the algorithm of Cooper, Harvey and Kennedy on the reversed graph."""
    count = len(blocks)
    order = _reversed_post_order(blocks)
    number = [-1] * (count + 1)
    for position, node in enumerate(order):
        number[node] = position
    dominator = [-1] * (count + 1)
    dominator[count] = count

    def meet(a: int, b: int) -> int:
        while a != b:
            while number[a] < number[b]:
                a = dominator[a]
            while number[b] < number[a]:
                b = dominator[b]
        return a

    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            known = -1
            for each in blocks[node].successors:
                target = count if each == EXIT else each
                if dominator[target] >= 0:
                    known = target if known < 0 else meet(known, target)
            if known >= 0 and dominator[node] != known:
                dominator[node] = known
                changed = True
    for block in blocks:
        found = dominator[block.index]
        block.join = EXIT if found in (count, -1) else found


def _reversed_post_order(blocks: list[Block]) -> list[int]:
    """Post-order of the reversed graph from the virtual exit, which has the number after the last block."""
    count = len(blocks)
    sources: list[list[int]] = [[] for _ in range(count + 1)]
    for block in blocks:
        for each in block.successors:
            sources[count if each == EXIT else each].append(block.index)
    order: list[int] = []
    stack: list[tuple[int, int]] = [(count, 0)]
    seen = {count}
    while stack:
        node, position = stack[-1]
        if position < len(sources[node]):
            stack[-1] = (node, position + 1)
            following = sources[node][position]
            if following not in seen:
                seen.add(following)
                stack.append((following, 0))
        else:
            order.append(node)
            stack.pop()
    return order


class _Bits:
    """Sets of registers as integers."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.names: list[str] = []

    def of(self, names: tuple[str, ...]) -> int:
        bits = 0
        for name in names:
            if name not in self.number:
                self.number[name] = len(self.names)
                self.names.append(name)
            bits |= 1 << self.number[name]
        return bits

    def named(self, bits: int) -> tuple[str, ...]:
        found = []
        while bits:
            low = bits & -bits
            found.append(self.names[low.bit_length() - 1])
            bits ^= low
        return tuple(found)


def _liveness(graph: Graph) -> None:
    function, blocks = graph.function, graph.blocks
    registers = _Bits()
    uses, kills, straight, ends = [], [], [], []
    for block in blocks:
        use = kill = 0
        for instruction in function.instructions[block.start : block.end]:
            use |= registers.of(read(instruction)) & ~kill
            kill |= registers.of(written(instruction))
        straight.append(kill)
        last = block.terminator
        end = (registers.of(read(last)), registers.of(written(last))) if last is not None else (0, 0)
        ends.append(end)
        uses.append(use | (end[0] & ~kill))
        kills.append(kill | end[1])
    live_in, live_out = _solved(blocks, uses, kills)
    shared = 0
    for block in blocks:
        end_use, end_kill = ends[block.index]
        needed = live_out[block.index] & ~end_kill
        if block.kind == "wait":  # it reads its operands where they are stored; a branch is handed its guard
            needed |= end_use
            shared |= end_kill
        stored = straight[block.index] & needed
        block.stored = registers.named(stored)
        shared |= live_in[block.index] | stored
    graph.registers = {name: function.registers[name] for name in registers.named(shared)}


def _solved(blocks: list[Block], uses: list[int], kills: list[int]) -> tuple[list[int], list[int]]:
    """Registers that live into and out of each block."""
    live_in = [0] * len(blocks)
    live_out = [0] * len(blocks)
    backwards = sorted(blocks, key=lambda each: -each.order)
    changed = True
    while changed:
        changed = False
        for block in backwards:
            out = 0
            for each in block.successors:
                if each != EXIT:
                    out |= live_in[each]
            into = uses[block.index] | (out & ~kills[block.index])
            live_out[block.index] = out
            if into != live_in[block.index]:
                live_in[block.index] = into
                changed = True
    return live_in, live_out
