"""Who runs next: groups of warps in step, divergence and reconvergence, barriers. Imports its own room.

A group is a set of warps that stand at the same block with the same claim on the future, with the lanes that are on. It
runs as one NumPy vector. Where a branch parts the lanes of one warp, both sides owe each other a meeting at the
immediate post-dominator (a `Join`); warps that part as a whole owe each other nothing. Groups that come to the same
place with the same join become one again, and the group that is furthest behind usually runs first, so that they do.

Nothing is ever decided by who happens to be batched with whom: a seed moves that, and the answer must not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.ptx.graph import EXIT, Block
from advisor.emulator.ptx.ir import Immediate, Instruction, Not, Operand
from advisor.emulator.report import Event
from advisor.emulator.warp_meetings import Meetings

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine

Array = NDArray[Any]
BARRIERS = 16
_LANES = np.arange(32)
REPORT_STEPS = 20_000  # blocks between two reports of progress: a second or so
REST = 24  # how many other groups run before one that found nothing to do looks again
LONG = 512  # blocks that a group runs alone before time passes for what is in flight: it may be polling for that


class LanesMissing(Exception):
    """A warp instruction names lanes that are not here: they may come, or exit. `where` is the row and the lane.

    `complete` names those warps of the group that lack nobody and can go on.
    """

    def __init__(self, site: int, message: str, where: tuple[int, int], complete: Array | None = None) -> None:
        super().__init__(message)
        self.site = site
        self.message = message
        self.where = where
        self.complete = complete


class Join:
    """Where lanes of a warp that took different ways meet: rows of `needed` are those that are still apart."""

    __slots__ = ("arrived", "needed", "parent", "target")

    def __init__(self, parent: Join | None, target: int, rows: int) -> None:
        self.parent = parent
        self.target = target
        self.needed: Array = np.zeros((rows, 32), bool)
        self.arrived: Array = np.zeros((rows, 32), bool)


class Group:
    """Warps in step. `rows` is sorted; `sel` selects them in an array of all rows; `mask` None: every lane is on."""

    __slots__ = ("block", "join", "mask", "n", "rows", "sel")

    def __init__(self, rows: Array, mask: Array | None, block: int, join: Join | None) -> None:
        self.rows = rows
        self.n = len(rows)
        first, last = int(rows[0]), int(rows[-1])
        self.sel: slice | Array = slice(first, last + 1) if last - first + 1 == self.n else rows
        self.mask = None if mask is None or mask.all() else mask
        self.block = block
        self.join = join

    def lanes(self) -> Array:
        """[n, 32]: which lanes are on."""
        return np.ones((self.n, 32), bool) if self.mask is None else self.mask

    def part(self, which: Array) -> Group:
        """The rows of the group that `which` names, as a group of its own."""
        mask = None if self.mask is None else self.mask[which]
        return Group(self.rows[which], mask, self.block, self.join)


@dataclass(slots=True, eq=False)
class Parked:
    """A group that stands at an instruction, with what it waits for: one number for each row."""

    group: Group
    kind: str  # barrier, warp, cluster, mbarrier
    keys: Array
    retry: Any = None  # for kinds that are asked again: a function that gives the rows that may go on
    detail: dict[str, Any] = field(default_factory=dict)


class Scheduler:
    """Runs the blocks of a machine's program until every cluster of the grid is done."""

    def __init__(self, machine: Machine, seed: int, scatter: float) -> None:
        self.machine = machine
        self.random = random.Random(seed)
        self.scatter = scatter
        self.blocks: list[Block] = machine.program.graph.blocks
        self.ready: dict[tuple[int, int], Group] = {}
        self.resting: list[Group] = []
        self.rested = 0
        self.standing: list[Group] = []  # before an instruction that names lanes that are not there yet
        self.fruitless = 0
        self.meetings = Meetings(self)
        self.parked: list[Parked] = []
        self.joins: dict[tuple[int, int], list[Join]] = {}
        self.counts = [0] * len(self.blocks)
        self.steps = 0
        rows = machine.rows
        slots = machine.slots
        self.barrier_arrived: Array = np.zeros(slots * BARRIERS, np.int64)  # threads
        self.barrier_wanted: Array = np.zeros(slots * BARRIERS, np.int64)  # 0: every warp of the CTA
        self.barrier_votes: Array = np.zeros((slots * BARRIERS, 2), np.int64)  # lanes whose predicate holds, lanes
        self.warp_come: dict[int, Array] = {}  # lanes that have come to a bar.warp.sync, by row and mask
        self.warp_lanes: Array = np.zeros((rows, 32), bool)  # lanes that have come to a barrier of the CTA
        self.awaited: Array = np.full(rows, -1, np.int64)  # the barrier where some lanes wait for others of their warp
        self.awaited_threads: Array = np.zeros(rows, np.int64)
        self.cluster_lanes: Array = np.zeros((rows, 32), bool)
        self.cluster_relaxed: Array = np.zeros(rows, bool)
        self.cluster_due: Array = np.zeros((rows, 32), bool)  # lanes that have arrived and not waited
        self.cluster_arrived: Array = np.zeros(machine.cluster_slots, np.int64)  # warps
        self.cluster_phase: Array = np.zeros(machine.cluster_slots, np.int64)
        self.row_phase: Array = np.zeros(rows, np.int64)  # the phase that a warp's last arrival completes
        self.woken = False

    # --- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until nothing is left. Raises KernelFault EMU_DEADLOCK, EMU_STEP_LIMIT and what the machine raises."""
        limit = self.machine.step_limit
        progress = self.machine.progress
        due = REPORT_STEPS
        total = self.machine.world.launch.total_clusters
        while True:
            if self.woken:
                self._ask_again()
            group = self._pick()
            if group is None:
                if self.woken or self.machine.start_clusters():
                    continue
                if self.machine.idle():
                    self.woken = True
                    continue
                if not self.parked and not self._held():
                    return
                if not self._unblock():
                    self._deadlock()
                continue
            self.run_group(group)
            if progress is not None and self.steps >= due:
                due = self.steps + REPORT_STEPS
                progress(self.machine.world.started - len(self.machine.world.resident), total)
            if self.steps > limit:
                self._step_limit(group)

    def _pick(self) -> Group | None:
        self.machine.queue.tick()
        if self.standing and (not self.ready or self.rested > REST):
            standing, self.standing, self.rested = self.standing, [], 0
            for group in standing:
                self.add(group)
        if self.resting and (not self.ready or self.rested > REST):
            resting, self.resting, self.rested = self.resting, [], 0
            for group in resting:
                self.enter(group, group.block)
        if not self.ready:
            return None
        if len(self.ready) == 1:
            return self.ready.popitem()[1]
        self.rested += 1
        if self.random.random() < self.scatter:
            key = self.random.choice(list(self.ready))
        else:
            key = min(self.ready, key=lambda each: self.blocks[each[0]].order)
        return self.ready.pop(key)

    def add(self, group: Group) -> None:
        """The group may run; it joins one that stands at the same place."""
        key = (group.block, id(group.join))
        other = self.ready.get(key)
        self.ready[key] = group if other is None else _merged(other, group)

    def enter(self, group: Group, block: int) -> None:
        """The group goes to a block: it may have to wait there for lanes of its warps."""
        if block == EXIT:
            self._exit(group, group.lanes())
            return
        group.block = block
        if group.join is not None and group.join.target == block:
            self._arrive(group)
        else:
            self.add(group)

    def _function(self, group: Group, block: Block) -> tuple[Any, Array | None]:
        """The function of a block for this group, and the lanes that it is told."""
        program, hot = self.machine.program, self.machine.undefined.hot
        if hot is not None and hot[group.sel].any():
            return program.followed_function(block.index), group.lanes()
        found = (program.whole if group.mask is None else program.masked)[block.index]
        return found or program.block_function(block.index, masked=group.mask is not None), group.mask

    def run_group(self, group: Group) -> None:
        """Runs the group from its block on, until it parts, waits, or somebody else is due."""
        machine = self.machine
        registers = machine.registers
        ran = 0
        while True:
            ran += 1
            block = self.blocks[group.block]
            self.counts[block.index] += group.n
            self.steps += 1
            mask = group.mask
            function, lanes = self._function(group, block)
            try:
                result = function(machine, group, registers, group.sel, group.n, lanes)
            except LanesMissing as missing:
                self._stand_before(group, block, missing)
                return
            self.fruitless = 0
            if self.meetings.elsewhere is not None:
                self.meetings.over()
            kind = block.kind
            if kind == "fall":
                following = block.successors[0]
            elif kind == "branch":
                if result is None:
                    following = block.successors[0]
                else:
                    taken = np.count_nonzero(result if mask is None else result & mask)
                    if taken == 0:
                        following = block.successors[1]
                    elif taken == (result.size if mask is None else np.count_nonzero(mask)):
                        following = block.successors[0]
                    else:
                        self._split(group, block, [result, ~result], list(block.successors))
                        return
            elif kind == "wait":
                if not self._wait(group, block):
                    return
                following = block.successors[0]
            elif kind == "exit":
                self._leave(group, block, result)
                return
            else:
                self._table(group, block, result)
                return
            if following == EXIT or (group.join is not None and group.join.target == following) or self.ready:
                self.enter(group, following)
                return
            group.block = following
            if self._gives_way(ran):
                self.add(group)
                return

    def _gives_way(self, ran: int) -> bool:
        """Whether a group that nobody else is ready beside stops after `ran` blocks all the same."""
        if ran == LONG:
            self.machine.queue.now += ran
            return True
        return bool(self.resting) or self.woken or self.steps > self.machine.step_limit

    def _stand_before(self, group: Group, block: Block, missing: LanesMissing) -> None:
        """The block begins with an instruction that names lanes that are elsewhere: the group looks again later."""
        self.counts[block.index] -= group.n
        self.meetings.over()
        if missing.complete is not None and missing.complete.any():
            self.add(group.part(missing.complete))
            self.standing.append(group.part(~missing.complete))
            return
        if self.meetings.attempt(group, block):
            self.fruitless = 0
            return
        self.fruitless += 1
        if self.fruitless > 2 * (len(self.ready) + len(self.resting)) + 8:
            if self.machine.idle():  # the missing lanes may wait for what is in flight
                self.woken, self.fruitless = True, 0
                self.standing.append(group)
                return
            if self._wait_for_registers(int(group.rows[missing.where[0]])):
                self._deadlock()
            self.machine.fail(group, missing.site, "EMU_WARP_SYNC", missing.message, *missing.where)
        self.standing.append(group)

    def _wait_for_registers(self, row: int) -> bool:
        """Whether warps of this warp's warpgroup stand at a setmaxnreg: they are not here because the pool is empty."""
        warps = self.machine.warps
        mine = (row // warps, row % warps // 4)
        rows = [each for parked in self.parked if parked.kind == "registers" for each in parked.group.rows.tolist()]
        return any((each // warps, each % warps // 4) == mine for each in rows)

    # --- parting and meeting ------------------------------------------------------------------------------------

    def _split(self, group: Group, block: Block, sides: list[Array], targets: list[int]) -> None:
        """Lanes go different ways. Warps that stay whole owe nothing; parted ones meet at the post-dominator."""
        on = group.lanes()
        sides = [each & on for each in sides]
        some = [each.any(axis=1) for each in sides]
        mixed: Array = np.add.reduce(some, axis=0, dtype=np.int64) > 1
        join = group.join
        if mixed.any() and block.join != EXIT and not (join is not None and join.target == block.join):
            join = self._join(group.join, block.join, group.rows[mixed], on[mixed])
        for side, has, target in zip(sides, some, targets, strict=True):
            alone = has & ~mixed
            if alone.any():
                self.enter(Group(group.rows[alone], side[alone], target, group.join), target)
            parted = has & mixed
            if parted.any():
                self.enter(Group(group.rows[parted], side[parted], target, join), target)

    def _join(self, parent: Join | None, target: int, rows: Array, lanes: Array) -> Join:
        """One join serves all warps that part under the same parent for the same place, so that they stay in step."""
        known = self.joins.setdefault((id(parent), target), [])
        for each in known:
            if not each.needed[rows].any():
                each.needed[rows] = lanes
                return each
        join = Join(parent, target, self.machine.rows)
        join.needed[rows] = lanes
        known.append(join)
        return join

    def _arrive(self, group: Group) -> None:
        join = group.join
        assert join is not None
        join.arrived[group.rows] |= group.lanes()
        self._meet(join, group.rows)

    def _meet(self, join: Join, rows: Array) -> None:
        """Lets go on the warps of which every lane that is still alive has come."""
        needed = join.needed[rows] & self.machine.alive[rows]
        arrived = join.arrived[rows]
        done = (arrived.any(axis=1)) & ~(needed & ~arrived).any(axis=1)
        if not done.any():
            return
        free = rows[done]
        lanes = arrived[done] & self.machine.alive[free]
        join.needed[free] = False
        join.arrived[free] = False
        some = lanes.any(axis=1)
        if some.any():
            self.enter(Group(free[some], lanes[some], join.target, join.parent), join.target)

    def _held(self) -> bool:
        return any(each.arrived.any() for several in self.joins.values() for each in several)

    def _unblock(self) -> bool:
        """Nobody can run. Lanes that wait only to meet others of their warp go on alone: each thread makes progress."""
        for several in list(self.joins.values()):
            for join in several:
                rows = np.flatnonzero(join.arrived.any(axis=1))
                if len(rows):
                    lanes = join.arrived[rows] & self.machine.alive[rows]
                    join.needed[rows] &= ~join.arrived[rows]
                    join.arrived[rows] = False
                    self.enter(Group(rows, lanes, join.target, join.parent), join.target)
                    return True
        return False

    def _table(self, group: Group, block: Block, index: Array) -> None:
        sides = [index == np.uint32(each) for each in range(len(block.successors))]
        on = group.lanes()
        covered = np.logical_or.reduce(sides)
        if (on & ~covered).any():
            row, lane = (int(each) for each in np.argwhere(on & ~covered)[0])
            message = f"brx.idx with index {int(index[row, lane])} of {len(block.successors)} targets"
            self.machine.fail(group, self._site(block), "EMU_BRANCH_TABLE", message, row, lane)
        self._split(group, block, sides, list(block.successors))

    # --- the end of threads -------------------------------------------------------------------------------------

    def _leave(self, group: Group, block: Block, guard: Array | None) -> None:
        self.machine.exit_site = block.end
        on = group.lanes()
        gone = on if guard is None else on & guard
        left = on & ~gone
        stay = left.any(axis=1)
        if stay.any():
            self.enter(Group(group.rows[stay], left[stay], group.block, group.join), block.successors[-1])
        if gone.any():
            self._exit(group, gone)

    def _exit(self, group: Group, gone: Array) -> None:
        machine = self.machine
        machine.alive[group.rows] &= ~gone
        join = group.join
        while join is not None:
            self._meet(join, group.rows)
            join = join.parent
        ended = group.rows[~machine.alive[group.rows].any(axis=1)]
        if len(ended):
            machine.warps_ended(ended)
            keys = np.unique(machine.slot_of[ended])[:, None] * BARRIERS + np.arange(BARRIERS)
            self._release_barriers(keys.ravel())
            self._release_clusters(np.unique(machine.cluster_slot_of[ended]))
        partial = np.unique(group.rows[gone.any(axis=1)])
        self._come_without(partial[machine.alive[partial].any(axis=1)])
        if any(each.kind == "warp" for each in self.parked):
            self._release_warps(partial)

    def _come_without(self, rows: Array) -> None:
        """Lanes of these warps have exited; others may have waited for them at a barrier."""
        machine = self.machine
        alive = machine.alive[rows]
        come = rows[(self.awaited[rows] >= 0) & ~(alive & ~self.warp_lanes[rows]).any(axis=1)]
        for row in come.tolist():
            keys, threads = self.awaited[[row]], self.awaited_threads[[row]]
            self.awaited[row] = -1
            group = Group(np.array([row]), machine.alive[[row]], 0, None)
            self._count_in(group, machine.exit_site, keys, threads if threads[0] else None, np.ones(1, bool))
        come = rows[self.cluster_lanes[rows].any(axis=1) & ~(alive & ~self.cluster_lanes[rows]).any(axis=1)]
        if len(come):
            self._cluster_come(come, self.cluster_relaxed[come])

    # --- waiting ------------------------------------------------------------------------------------------------

    def _wait(self, group: Group, block: Block) -> bool:
        """The instruction at the end of a block. True: go on; False: the group is parked or has been parted."""
        instruction = block.terminator
        assert instruction is not None
        if instruction.guard is not None:
            guard = self.machine.operand(group, instruction.guard, "pred") != instruction.guard_negated
            on = group.lanes()
            inside, outside = on & guard, on & ~guard
            if not inside.any():
                return True
            if outside.any():
                apart = outside.any(axis=1)
                self.enter(Group(group.rows[apart], outside[apart], group.block, group.join), block.successors[0])
                stay = inside.any(axis=1)
                group = Group(group.rows[stay], inside[stay], group.block, group.join)
                if self._wait_here(group, block, instruction):
                    self.enter(group, block.successors[0])
                return False
        return self._wait_here(group, block, instruction)

    def _wait_here(self, group: Group, block: Block, instruction: Instruction) -> bool:
        opcode = instruction.opcode
        if opcode in ("bar", "barrier"):
            if instruction.has("warp"):
                return self._warp_barrier(group, block, instruction)
            if instruction.has("cluster"):
                return self._cluster_wait(group, block, instruction)
            return self._barrier(group, block, instruction)
        if opcode == "nanosleep":
            group.block = block.successors[0]
            self.resting.append(group)
            return False
        if opcode == "griddepcontrol":
            return self.machine.predecessor.control(group, block, instruction)
        if opcode == "setmaxnreg":
            return self.machine.register_pool.change(group, block, instruction)
        return self.machine.wait(group, block, instruction)

    def _site(self, block: Block) -> int:
        return block.end

    def _barrier(self, group: Group, block: Block, instruction: Instruction) -> bool:
        known = {"cta", "sync", "aligned"}
        operands = list(instruction.operands)
        vote = None
        if instruction.has("red"):
            known = {"cta", "red", "aligned", "popc", "and", "or", "u32", "pred"}
            operands.pop(0)
            vote = operands.pop()
        for qualifier in instruction.qualifiers:
            if qualifier not in known:
                self.machine.refuse(instruction, f".{qualifier} is not known with {instruction.opcode}")
        machine = self.machine
        rows = group.rows
        if group.mask is not None:  # the lanes of a warp may come one after another; it counts when all have
            self.warp_lanes[rows] |= group.mask
            whole: Array = np.asarray(~(machine.alive[rows] & ~self.warp_lanes[rows]).any(axis=1))
        else:
            whole = np.ones(group.n, bool)
        number = self._each_row(group, operands[0])
        wanted = self._each_row(group, operands[1]) if len(operands) > 1 else None
        keys = machine.slot_of[rows] * BARRIERS + number
        if (number >= BARRIERS).any():
            row = int(np.flatnonzero(number >= BARRIERS)[0])
            message = f"barrier {int(number[row])}: a CTA has {BARRIERS}"
            machine.fail(group, self._site(block), "EMU_BARRIER", message, row, 0)
        if vote is not None:
            self._vote(group, keys, vote)
        self.parked.append(Parked(group, "barrier", keys))
        self.awaited[rows] = np.where(whole, -1, keys)
        self.awaited_threads[rows] = 0 if wanted is None else wanted
        self._count_in(group, self._site(block), keys, wanted, whole)
        return False

    def _vote(self, group: Group, keys: Array, vote: Operand) -> None:
        """`barrier.red`: counts the lanes that come, and those whose predicate holds."""
        register = vote.register if isinstance(vote, Not) else vote
        holds = self.machine.operand(group, register, "pred") != isinstance(vote, Not)
        on = group.lanes()
        np.add.at(self.barrier_votes[:, 0], keys, (holds & on).sum(axis=1))
        np.add.at(self.barrier_votes[:, 1], keys, on.sum(axis=1))

    def _give_votes(self, group: Group, keys: Array, instruction: Instruction) -> None:
        holds, lanes = self.barrier_votes[keys].T
        if instruction.has("popc"):
            value = holds.astype(np.uint32)
        else:
            value = holds == lanes if instruction.has("and") else holds > 0
        self.machine.set(group, instruction.operands[0], np.repeat(value[:, None], 32, axis=1))

    def arrive(self, group: Group, site: int, number: Array, count: Array, lanes: Array | None) -> None:
        """`bar.arrive`: counts without waiting."""
        on: Array = group.lanes() if lanes is None else lanes
        which: Array = np.asarray(on.any(axis=1))
        first = on.argmax(axis=1)
        index = np.arange(group.n)
        keys = self.machine.slot_of[group.rows] * BARRIERS + number[index, first].astype(np.int64)
        self.machine.ordered_barrier_arrival(group.rows[which], keys[which])
        self._count_in(group, site, keys, count[index, first].astype(np.int64), which)

    def _count_in(self, group: Group, site: int, keys: Array, wanted: Array | None, which: Array) -> None:
        if wanted is not None:
            known = self.barrier_wanted[keys]
            bad = which & (known != 0) & (known != wanted)
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                message = (
                    f"barrier {int(keys[row]) % BARRIERS} is used with {int(wanted[row])} threads "
                    f"while others expect {int(known[row])}"
                )
                self.machine.fail(group, site, "EMU_BARRIER", message, row, 0)
            if (wanted % 32).any():
                row = int(np.flatnonzero(wanted % 32)[0])
                message = f"{int(wanted[row])} threads at a barrier are not whole warps"
                self.machine.fail(group, site, "EMU_BARRIER", message, row, 0)
            self.barrier_wanted[keys[which]] = wanted[which]
        np.add.at(self.barrier_arrived, keys[which], 32)
        touched = np.unique(keys)
        over = (self.barrier_wanted[touched] > 0) & (self.barrier_arrived[touched] > self.barrier_wanted[touched])
        if over.any():
            key = int(touched[over][0])
            message = (
                f"barrier {key % BARRIERS} expects {int(self.barrier_wanted[key])} threads "
                f"and {int(self.barrier_arrived[key])} have come"
            )
            self.machine.fail(group, site, "EMU_BARRIER", message, int(np.flatnonzero(keys == key)[0]), 0)
        self._release_barriers(touched)

    def _each_row(self, group: Group, operand: Any) -> Array:
        """A number that the lanes of a warp agree on."""
        if isinstance(operand, Immediate):
            return np.full(group.n, operand.value, np.int64)
        value = self.machine.operand(group, operand, "u32")
        first = group.lanes().argmax(axis=1)
        found: Array = value[np.arange(group.n), first].astype(np.int64)
        return found

    def _release_barriers(self, keys: Array) -> None:
        machine = self.machine
        arrived = self.barrier_arrived[keys]
        wanted = self.barrier_wanted[keys]
        wanted = np.where(wanted > 0, wanted, machine.live_warps[keys // BARRIERS] * 32)
        done = keys[(arrived > 0) & (arrived >= wanted)]
        if not len(done):
            return
        for key in done.tolist():
            machine.counts.named(key % BARRIERS, int(self.barrier_arrived[key]))
        self.barrier_arrived[done] = 0
        self.barrier_wanted[done] = 0
        machine.phases["CTA barrier"] += len(done)
        released = self._release("barrier", lambda parked: np.isin(parked.keys, done))
        for key in done:
            rows = [each.rows[keys_ == key] for each, keys_ in released]
            machine.ordered_barrier(int(key), np.concatenate(rows) if rows else np.zeros(0, np.int64))
        for group, group_keys in released:
            self.warp_lanes[group.rows] = False
            instruction = self.blocks[group.block].terminator
            if instruction is not None and instruction.has("red"):
                self._give_votes(group, group_keys, instruction)
        self.barrier_votes[done] = 0
        for group, _ in released:
            self.enter(group, self.blocks[group.block].successors[0])

    def _release(self, kind: str, free: Any) -> list[tuple[Group, Array]]:
        """Takes the rows that `free` names out of what is parked, with their keys."""
        released = []
        kept = []
        for parked in self.parked:
            if parked.kind != kind:
                kept.append(parked)
                continue
            which = free(parked)
            if which.all():
                released.append((parked.group, parked.keys))
            elif which.any():
                released.append((parked.group.part(which), parked.keys[which]))
                kept.append(Parked(parked.group.part(~which), kind, parked.keys[~which], parked.retry, parked.detail))
            else:
                kept.append(parked)
        self.parked = kept
        return released

    def _warp_barrier(self, group: Group, block: Block, instruction: Instruction) -> bool:
        named = self.machine.operand(group, instruction.operands[0], "u32")
        names = ((named >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(bool)
        on = group.lanes()
        stray = on & ~names
        if stray.any():
            row, lane = (int(each) for each in np.argwhere(stray)[0])
            message = f"lane {lane} is not in the mask that it names ({int(named[row, lane]):#010x})"
            self.machine.fail(group, self._site(block), "EMU_WARP_SYNC", message, row, lane)
        if not (names & self.machine.alive[group.rows] & ~on).any():
            self.machine.ordered_warp_barrier(group.rows)
            return True
        first = on.argmax(axis=1)
        keys = group.rows.astype(np.int64) << 32 | named[np.arange(group.n), first]
        for key, lanes in zip(keys.tolist(), on, strict=True):
            come = self.warp_come.setdefault(key, np.zeros(32, bool))
            come |= lanes
        self.parked.append(Parked(group, "warp", keys))
        self._release_warps(group.rows)
        return False

    def _release_warps(self, rows: Array) -> None:
        """Lanes that wait with one mask go on when all that it names and that are alive have come, from wherever."""
        done = []
        for key, come in self.warp_come.items():
            row, named = key >> 32, key & 0xFFFFFFFF
            if row in rows:
                names = ((named >> _LANES) & 1).astype(bool)
                if not (names & self.machine.alive[row] & ~come).any():
                    done.append(key)
        if not done:
            return
        released = self._release("warp", lambda parked: np.isin(parked.keys, done))
        for key in done:
            del self.warp_come[key]
        for group, _ in released:
            self.machine.ordered_warp_barrier(group.rows)
            self.enter(group, self.blocks[group.block].successors[0])

    # --- cluster barriers ---------------------------------------------------------------------------------------

    def cluster_arrive(self, group: Group, site: int, relaxed: bool, lanes: Array | None) -> None:
        machine = self.machine
        on = group.lanes() if lanes is None else lanes
        rows = group.rows
        again = self.cluster_due[rows] & on
        if again.any():
            row, lane = (int(each) for each in np.argwhere(again)[0])
            message = "barrier.cluster.arrive a second time without a wait between"
            machine.fail(group, site, "EMU_BARRIER", message, row, lane)
        self.cluster_due[rows] |= on
        self.cluster_lanes[rows] |= on
        some = rows[on.any(axis=1)]
        self.cluster_relaxed[some] = relaxed
        self.row_phase[some] = self.cluster_phase[machine.cluster_slot_of[some]] + 1
        whole = on.any(axis=1) & ~(machine.alive[rows] & ~self.cluster_lanes[rows]).any(axis=1)
        if not whole.any():
            return
        self._cluster_come(rows[whole], self.cluster_relaxed[rows[whole]])

    def _cluster_come(self, rows: Array, relaxed: Array) -> None:
        """Every lane of these warps has arrived at the cluster barrier."""
        self.cluster_lanes[rows] = False
        slots = self.machine.cluster_slot_of[rows]
        self.machine.ordered_cluster_arrival(rows, relaxed)
        np.add.at(self.cluster_arrived, slots, 1)
        self._release_clusters(np.unique(slots))

    def _release_clusters(self, slots: Array) -> None:
        arrived = self.cluster_arrived[slots]
        done = slots[(arrived > 0) & (arrived >= self.machine.cluster_live[slots])]
        if not len(done):
            return
        self.cluster_arrived[done] = 0
        self.cluster_phase[done] += 1
        self.machine.phases["cluster barrier"] += len(done)
        rows_of = self.machine.ranks * self.machine.warps
        for slot in done.tolist():
            threads = int(np.count_nonzero(self.machine.alive[slot * rows_of : (slot + 1) * rows_of]))
            self.machine.counts.cluster_barriers[threads] += 1
        for group, _ in self._release("cluster", lambda parked: np.isin(parked.keys, done)):
            self.machine.ordered_cluster_wait(group.rows)
            self.enter(group, self.blocks[group.block].successors[0])

    def _cluster_wait(self, group: Group, block: Block, instruction: Instruction) -> bool:
        slots = self.machine.cluster_slot_of[group.rows]
        on = group.lanes()
        early = on & ~self.cluster_due[group.rows]
        if early.any():
            row, lane = (int(each) for each in np.argwhere(early)[0])
            message = "barrier.cluster.wait without an arrive before it"
            self.machine.fail(group, self._site(block), "EMU_BARRIER", message, row, lane)
        self.cluster_due[group.rows] &= ~on
        waiting = self.row_phase[group.rows] > self.cluster_phase[slots]
        if not waiting.any():
            self.machine.ordered_cluster_wait(group.rows)
            return True
        if not waiting.all():
            free = group.part(~waiting)
            self.machine.ordered_cluster_wait(free.rows)
            self.enter(free, block.successors[0])
            group = group.part(waiting)
        self.parked.append(Parked(group, "cluster", self.machine.cluster_slot_of[group.rows]))
        return False

    # --- waits that are asked again -----------------------------------------------------------------------------

    def park(self, group: Group, kind: str, keys: Array, retry: Any) -> None:
        """Until `retry(group)` names rows that may go on; it is asked whenever something has changed (`woken`)."""
        self.parked.append(Parked(group, kind, keys, retry))

    def _ask_again(self) -> None:
        self.woken = False
        for parked in [each for each in self.parked if each.retry is not None]:
            free = parked.retry(parked.group)
            if not free.any():
                continue
            self.parked.remove(parked)
            group = parked.group if free.all() else parked.group.part(free)
            if not free.all():
                rest = parked.group.part(~free)
                self.parked.append(Parked(rest, parked.kind, parked.keys[~free], parked.retry, parked.detail))
            self.enter(group, self.blocks[group.block].successors[0])

    # --- nothing goes on ----------------------------------------------------------------------------------------

    def _deadlock(self) -> None:
        machine = self.machine
        history: list[Event] = []
        for parked in self.parked[:12]:
            group = parked.group
            who = machine.who(int(group.rows[0]))
            what = f"{group.n} warp{'s' if group.n > 1 else ''} wait" + ("" if group.n > 1 else "s")
            history.append(machine.reporter.event(f"{what} {self._reason(parked)}", who, self.blocks[group.block].end))
        first = self.parked[0].group if self.parked else None
        machine.reporter.fail(
            "EMU_DEADLOCK",
            f"no warp can go on: {sum(each.group.n for each in self.parked)} wait",
            None if first is None else machine.who(int(first.rows[0])),
            -1 if first is None else self.blocks[first.block].end,
            history=tuple(history),
            numbers={"waiting_warps": sum(each.group.n for each in self.parked)},
            fix="look at who should have come: a count that is too high, an arrival that a branch skips, an exit",
        )

    def _reason(self, parked: Parked) -> str:
        if parked.kind == "barrier":
            key = int(parked.keys[0])
            wanted = int(self.barrier_wanted[key]) or int(self.machine.live_warps[key // BARRIERS]) * 32
            return f"at barrier {key % BARRIERS}: {int(self.barrier_arrived[key])} of {wanted} threads have come"
        if parked.kind == "warp":
            return "for other lanes of the warp"
        if parked.kind == "cluster":
            slot = int(parked.keys[0])
            live = int(self.machine.cluster_live[slot])
            return f"at the cluster barrier: {int(self.cluster_arrived[slot])} of {live} warps have come"
        return self.machine.reason(parked)

    def _step_limit(self, group: Group) -> None:
        self.machine.reporter.fail(
            "EMU_STEP_LIMIT",
            f"still running after {self.steps} steps",
            self.machine.who(int(group.rows[0])),
            self.blocks[group.block].start,
            numbers={"steps": self.steps},
            fix="a loop that nobody ends, or a launch that is larger than this limit: raise step_limit",
        )


def _merged(a: Group, b: Group) -> Group:
    """Both groups as one; lanes of one warp may come from both."""
    if a.mask is None and b.mask is None:
        return Group(np.sort(np.concatenate((a.rows, b.rows))), None, a.block, a.join)
    rows = np.union1d(a.rows, b.rows)
    mask = np.zeros((len(rows), 32), bool)
    for each in (a, b):
        mask[np.searchsorted(rows, each.rows)] |= each.lanes()
    return Group(rows, mask, a.block, a.join)
