"""Lanes of one warp that come to one kind of warp instruction at different places. Imports its own room.

shfl.sync, vote.sync, match.sync, redux.sync and elect.sync make a thread wait "until all non-exited threads
corresponding to membermask have executed" the instruction "with the same qualifiers and same membermask value" (PTX
ISA): copies of it on the two sides of a branch serve each other, as compilers make them. Each copy runs with its own
lanes on, and sees what the others bring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.ptx.graph import MEET_FIRST, Block
from advisor.emulator.ptx.ir import Instruction, Operand, Register

if TYPE_CHECKING:
    from advisor.emulator.scheduler import Group, Scheduler

Array = NDArray[Any]
_LANES = np.arange(32, dtype=np.uint32)
_MASK_AT = {"shfl": 4, "vote": 2, "match": 2, "redux": 2, "elect": 1}
_BROUGHT_AT = {"shfl": 1, "vote": 1, "match": 1, "redux": 1}  # the operand that lanes see of each other


@dataclass(slots=True)
class _Party:
    """Lanes that stand at one copy: the mask that they name, and what they bring."""

    group: Group
    brought: Operand | None
    values: Array | None
    named: Array


class Meetings:
    """Finds the copies that complete each other, and lets them run one after another as if at once."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.machine = scheduler.machine
        self.elsewhere: Array | None = None  # [row, lane]: lanes that take part from another place
        self._borrowed: tuple[Array, Group, Array] | None = None

    def attempt(self, group: Group, block: Block) -> bool:
        """The group stands at a warp instruction and misses lanes. True where some of its warps could go on: they did,
        and what is left of the group stands where the others do."""
        form = self._form(block)
        scheduler = self.scheduler
        if form is None:
            return False
        others = [each for each in scheduler.standing if self._form(scheduler.blocks[each.block]) == form]
        if not others:
            return False
        mine = self._party(group)
        parties = [mine, *map(self._party, others)]
        ready = self._complete(mine, parties)
        if not ready.any():
            return False
        rows = group.rows[ready]
        scheduler.standing = [each for each in scheduler.standing if each not in others]
        meeting = []
        for each in parties:
            takes = np.isin(each.group.rows, rows)
            if not takes.all():
                scheduler.standing.append(each.group.part(~takes))
            if takes.any():
                meeting.append(self._party(each.group.part(takes)))
        for each in meeting:
            self._run(each, meeting)
        return True

    def _form(self, block: Block) -> tuple[object, ...] | None:
        """What copies of one instruction have in common; None where a block begins with something else."""
        instruction = self._first(block)
        if instruction is None or instruction.guard is not None:
            return None
        brought = _BROUGHT_AT.get(instruction.opcode)
        if brought is not None and not isinstance(instruction.operands[brought], Register):
            return None
        return (instruction.opcode, *instruction.qualifiers)

    def _first(self, block: Block) -> Instruction | None:
        if block.start == block.end:
            return None
        instruction: Instruction = self.machine.program.instructions[block.start]
        return instruction if instruction.opcode in MEET_FIRST else None

    def _party(self, group: Group) -> _Party:
        instruction = self._first(self.scheduler.blocks[group.block])
        assert instruction is not None
        named = self.machine.operand(group, instruction.operands[_MASK_AT[instruction.opcode]], "u32")
        at = _BROUGHT_AT.get(instruction.opcode)
        brought = None if at is None else instruction.operands[at]
        values = None
        if isinstance(brought, Register):
            values = self.machine.registers[self.machine.program.slots[brought.name]][group.sel].copy()
        first = group.lanes().argmax(axis=1)
        return _Party(group, brought, values, named[np.arange(group.n), first])

    def _complete(self, mine: _Party, parties: list[_Party]) -> Array:
        """Which warps of `mine` have all the lanes that they name here or at the other copies."""
        rows = mine.group.rows
        come: Array = np.zeros((len(rows), 32), bool)
        agree: Array = np.ones(len(rows), bool)
        for each in parties:
            place = np.searchsorted(rows, each.group.rows)
            inside = (place < len(rows)) & (rows[np.minimum(place, len(rows) - 1)] == each.group.rows)
            place = place[inside]
            come[place] |= each.group.lanes()[inside]
            agree[place] &= each.named[inside] == mine.named[place]
        named = ((mine.named[:, None] >> _LANES) & np.uint32(1)).astype(bool)
        needed = named & self.machine.alive[rows]
        hot = self.machine.undefined.hot
        calm = np.ones(len(rows), bool) if hot is None else ~hot[rows]  # marks do not travel from place to place
        found: Array = agree & calm & ~(needed & ~come).any(axis=1) & ~(come & ~named).any(axis=1)
        return found

    def _run(self, party: _Party, meeting: list[_Party]) -> None:
        """One copy: the values that other lanes bring lie in its operand while its block runs."""
        group = party.group
        machine = self.machine
        elsewhere = np.zeros((machine.rows, 32), bool)
        target = None
        if isinstance(party.brought, Register):
            target = machine.registers[machine.program.slots[party.brought.name]]
            self._borrowed = (target, group, target[group.sel].copy())
        for each in meeting:
            if each is party:
                continue
            shared = np.isin(each.group.rows, group.rows)
            rows, lanes = each.group.rows[shared], each.group.lanes()[shared]
            elsewhere[rows] |= lanes
            if target is not None and each.values is not None:
                target[rows] = np.where(lanes, each.values[shared], target[rows])
        self.elsewhere = elsewhere
        self.scheduler.run_group(group)

    def over(self) -> None:
        """The block has run: lanes that are elsewhere get their own values back."""
        self.elsewhere = None
        if self._borrowed is not None:
            target, group, before = self._borrowed
            target[group.sel] = np.where(group.lanes(), target[group.sel], before)
            self._borrowed = None
