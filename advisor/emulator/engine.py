"""What works beside the warps: mbarriers, and what copies and products share. Imports its own room.

The machine's generated code comes here with groups of warps; what one thread starts (an elected lane, as a rule) is
done lane by lane. When an operation lands is the policy's choice (`policy.AsyncQueue`); who may see what it did is the
business of `happens_before`. A wait for a thread's own work lands it on the spot: later is not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator import fragments
from advisor.emulator.happens_before import Scope, Sem
from advisor.emulator.mbarrier import BarrierUnit, By, Mbarrier
from advisor.emulator.memory import RANK_SHIFT, SHARED_START, AccessFault, pieces_of
from advisor.emulator.policy import Pending
from advisor.emulator.ptx.graph import Block
from advisor.emulator.ptx.ir import Address, Instruction, Register, Sink
from advisor.emulator.shared_operand import Major, Placement, TileBox, mismatch, other_element

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine
    from advisor.emulator.scheduler import Group, Parked

Array = NDArray[Any]
_LOCAL = (1 << RANK_SHIFT) - 1


@dataclass(slots=True)
class _Cta:
    """The asynchronous side of a resident CTA."""

    barriers: BarrierUnit
    boxes: dict[int, TileBox] = field(default_factory=dict)
    judged: dict[tuple[object, ...], bool] = field(default_factory=dict)


class Engine:
    """The asynchronous side of a machine's CTAs. `transfers`, `warpgroups`, `tcgen05` and `clc` of the machine build on
    it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ctas: dict[int, _Cta] = {}  # by slot

    # --- CTAs ---------------------------------------------------------------------------------------------------

    def begin(self, slot: int, cluster: int, rank: int) -> None:
        machine = self.machine
        unit = BarrierUnit(
            machine.order,
            machine.shared_shadow,
            cluster,
            rank,
            base=slot * machine.shared.stride - SHARED_START,
            on_phase=lambda barrier: self._phase_over(barrier, cluster, rank),
        )
        self.ctas[slot] = _Cta(unit)

    def _phase_over(self, barrier: Mbarrier, cluster: int, rank: int) -> None:
        machine = self.machine
        machine.phases["mbarrier"] += 1
        offset = barrier.address - SHARED_START
        machine.counts.phase(offset, (cluster, rank), barrier.arrived, barrier.announced)
        self.wake()

    def end(self, slot: int, rows: Array) -> None:
        """The last warp of a CTA has exited: nothing may be on its way to it any more."""
        machine = self.machine
        order_rows = machine.order_row[rows]
        last = By(int(order_rows[-1]), machine.exit_site)
        self.ctas[slot].barriers.at_exit(order_rows.tolist(), last)
        if machine.races:
            start = slot * machine.shared.stride
            machine.order.at_exit(machine.shared_shadow, start, machine.shared.stride, order_rows, machine.exit_site)
        machine.transfers.forget(rows)
        machine.warpgroups.forget(rows)

    def submit(
        self, row: int, stages: list[Callable[[], None]], label: str, after: tuple[Pending, ...] = ()
    ) -> Pending:
        """An operation that a warp (a row of `order`) has issued."""
        owner = int(self.machine.order.cluster_of[row])
        return self.machine.queue.submit(stages, label, after, owner)

    def wake(self) -> None:
        self.machine.scheduler.woken = True

    # --- lanes --------------------------------------------------------------------------------------------------

    def each_lane(self, g: Group, lanes: Array | None) -> Iterator[tuple[int, int]]:
        on = g.lanes() if lanes is None else lanes
        rows, lanes_on = np.nonzero(on)
        yield from zip(rows.tolist(), lanes_on.tolist(), strict=True)

    def by(self, g: Group, index: int, site: int, lane: int | None) -> By:
        return By(int(self.machine.order_row[g.rows[index]]), site, lane)

    def unit(self, g: Group, index: int, address: int, site: int, lane: int) -> tuple[BarrierUnit, int]:
        """The barriers of the CTA that a shared address names, and the address in its window."""
        slot = self.slot_of(g, index, address, site, lane)
        return self.ctas[slot].barriers, address & _LOCAL

    def slot_of(self, g: Group, index: int, address: int, site: int, lane: int) -> int:
        machine = self.machine
        row = int(g.rows[index])
        rank = address >> RANK_SHIFT
        if rank != int(machine.rank[row, 0]):
            started = machine.order.knows_started(int(machine.order_row[row]), rank) if rank < machine.ranks else False
            machine.world.check_peer(machine.who(row), rank, started, site, lane)
        return int(machine.first_slot[row, 0]) + rank

    # --- mbarrier -----------------------------------------------------------------------------------------------

    def barrier(
        self, operation: str, g: Group, site: int, place: Array, count: Array | None, lanes: Array | None
    ) -> None:
        for index, lane in self.each_lane(g, lanes):
            by = self.by(g, index, site, lane)
            unit, address = self.unit(g, index, int(place[index, lane]), site, lane)
            number = 0 if count is None else int(count[index, lane])
            if operation == "init":
                self._inside(g, index, address, site, lane)
                unit.init(address, number, by)
                cluster = self.machine.who(int(g.rows[index])).cluster
                self.machine.counts.initialised(address - SHARED_START, cluster, number)
                self._mark(unit, address)
            elif operation == "inval":
                unit.inval(address, by)
            elif operation == "expect_tx":
                unit.expect_tx(address, number, by)
            else:
                unit.complete_tx(address, number, by)

    def _inside(self, g: Group, index: int, address: int, site: int, lane: int) -> None:
        offset = address - SHARED_START
        if not 0 <= offset <= self.machine.shared.size - 8:
            message = f"an mbarrier at offset {offset} of a shared window that has {self.machine.shared.size}"
            self.machine.fail(g, site, "EMU_OUT_OF_BOUNDS", message, index, lane)

    def _mark(self, unit: BarrierUnit, address: int) -> None:
        start = unit.base + address
        self.machine.shared.bytes.written[start : start + 8] = 1

    def arrive(
        self,
        g: Group,
        site: int,
        place: Array,
        count: Array | None,
        bytes_: Array | None,
        lanes: Array | None,
        *,
        drop: bool,
        no_complete: bool,
        relaxed: bool,
        cluster: bool,
    ) -> Array:
        states = np.zeros((g.n, 32), np.uint64)
        for index, lane in self.each_lane(g, lanes):
            unit, address = self.unit(g, index, int(place[index, lane]), site, lane)
            states[index, lane] = unit.arrive(
                address,
                self.by(g, index, site, lane),
                1 if count is None else int(count[index, lane]),
                expect_tx=0 if bytes_ is None else int(bytes_[index, lane]),
                drop=drop,
                no_complete=no_complete,
                sem=Sem.RELAXED if relaxed else Sem.RELEASE,
                scope=Scope.CLUSTER if cluster else Scope.CTA,
            )
        return states

    def arrive_after_copies(self, g: Group, site: int, place: Array, no_increment: bool, lanes: Array | None) -> None:
        """`cp.async.mbarrier.arrive`: here the thread's copies land first."""
        self.machine.copies.wait_all(g, lanes)
        for index, lane in self.each_lane(g, lanes):
            unit, address = self.unit(g, index, int(place[index, lane]), site, lane)
            by = self.by(g, index, site, lane)
            if not no_increment:
                unit.count_in(address, by)
            unit.arrive(address, by)

    def wait(self, group: Group, block: Block, instruction: Instruction) -> bool:
        """`mbarrier.try_wait` and `.test_wait`. A try_wait stands until its phase is complete."""
        machine = self.machine
        known = {"try_wait", "test_wait", "parity", "acquire", "relaxed", "cta", "cluster", "b64"}
        for qualifier in instruction.qualifiers:
            if qualifier not in known and qualifier not in ("shared", "shared::cta"):
                machine.refuse(instruction, f".{qualifier} is not known with {instruction.opcode}")
        done = self._test(group, block, instruction, np.ones(group.n, bool))
        if instruction.has("test_wait"):
            if done.all():
                return True
            group.block = block.successors[0]
            machine.scheduler.resting.append(group)
            return False
        if done.all():
            return True
        if done.any():
            machine.scheduler.enter(group.part(done), block.successors[0])
            group = group.part(~done)

        watched = self._watched(group, instruction)

        def retry(waiting: Group) -> Array:
            if all(barrier.phase == phase for barrier, phase in watched.items()):
                return np.zeros(waiting.n, bool)
            watched.update({barrier: barrier.phase for barrier in watched})
            return self._test(waiting, block, instruction, self._complete(waiting, instruction))

        machine.scheduler.park(group, "mbarrier", group.rows, retry)
        return False

    def _watched(self, group: Group, instruction: Instruction) -> dict[Mbarrier, int]:
        """The barriers that these warps wait at, with their phases: until one changes there is nothing to ask."""
        place, _ = self._places(group, instruction)
        on = group.lanes()
        found = {}
        for index, row in enumerate(group.rows.tolist()):
            unit = self.ctas[int(self.machine.slot_of[row])].barriers
            for address in set(place[index][on[index]].tolist()):
                barrier = unit.barriers[address & _LOCAL]
                found[barrier] = barrier.phase
        return found

    def _places(self, group: Group, instruction: Instruction) -> tuple[Array, Array]:
        """Shared addresses and the parity or state of each lane."""
        machine = self.machine
        operand = instruction.operands[1]
        assert isinstance(operand, Address)
        is_shared = instruction.has("shared") or instruction.has("shared::cta")
        wide = machine.operand(group, operand.base, "u32" if is_shared else "u64")
        place = (wide.astype(np.uint64) + np.uint64(operand.offset & 0xFFFFFFFF)).astype(np.uint32)
        return place, machine.operand(group, instruction.operands[2], "u32" if instruction.has("parity") else "u64")

    def _complete(self, group: Group, instruction: Instruction) -> Array:
        """Rows of which some lane's phase is complete, without any effect."""
        place, phase = self._places(group, instruction)
        found = np.zeros(group.n, bool)
        parity = instruction.has("parity")
        lanes = group.lanes().argmax(axis=1)
        for index, lane in enumerate(lanes.tolist()):
            slot = int(self.machine.slot_of[group.rows[index]])
            unit, address = self.ctas[slot].barriers, int(place[index, lane]) & _LOCAL
            found[index] = not parity or unit.complete(address, int(phase[index, lane]))
        return found

    def _test(self, group: Group, block: Block, instruction: Instruction, which: Array) -> Array:
        """Tests the rows that `which` names and writes the predicate of those where a lane's phase is complete."""
        place, phase = self._places(group, instruction)
        parity = instruction.has("parity")
        sem = Sem.RELAXED if instruction.has("relaxed") else Sem.ACQUIRE
        scope = Scope.CLUSTER if instruction.has("cluster") else Scope.CTA
        result = np.zeros((group.n, 32), bool)
        on = group.lanes()
        remote = on & ((place >> np.uint32(RANK_SHIFT)) != self.machine.rank[group.sel])
        if remote.any():
            row, first = (int(each) for each in np.argwhere(remote)[0])
            message = f"a wait on the mbarrier at {int(place[row, first]):#x} of another CTA: only its own CTA can"
            self.machine.fail(group, block.end, "EMU_BARRIER_OTHER_CTA", message, row, first)
        for index in np.flatnonzero(which).tolist():
            answers: dict[tuple[int, int], bool] = {}
            for lane in np.flatnonzero(on[index]).tolist():
                key = (int(place[index, lane]), int(phase[index, lane]))
                if key not in answers:
                    by = self.by(group, index, block.end, lane)
                    unit, address = self.unit(group, index, key[0], block.end, lane)
                    test = unit.test_parity if parity else unit.test_state
                    answers[key] = test(address, key[1], by, sem=sem, scope=scope)
                result[index, lane] = answers[key]
        done: Array = np.asarray(result.any(axis=1))
        poll = instruction.has("test_wait")
        to = instruction.operands[0]
        if (done.any() or poll) and isinstance(to, Register | Sink):
            part = group if done.all() or poll else group.part(done)
            self.machine.set(part, to, result if done.all() or poll else result[done])
        return done

    def reason(self, parked: Parked) -> str:
        group = parked.group
        instruction = self.machine.scheduler.blocks[group.block].terminator
        assert instruction is not None
        place, phase = self._places(group, instruction)
        lane = int(group.lanes()[0].argmax())
        unit = self.ctas[int(self.machine.slot_of[group.rows[0]])].barriers
        barrier = unit.barriers.get(int(place[0, lane]) & _LOCAL)
        state = unit.describe(barrier) if barrier is not None else "an mbarrier that is not there"
        return f"for parity {int(phase[0, lane])} of {state}"

    # --- places -------------------------------------------------------------------------------------------------

    def shared_offsets(self, g: Group, index: int, lane: int, site: int, slot: int, places: Array, chunk: int) -> Array:
        shared = self.machine.shared
        offsets = places - SHARED_START
        if len(offsets) and (int(offsets.min()) < 0 or int(offsets.max()) > shared.size - chunk):
            message = (
                f"a copy over offsets {int(offsets.min())} to {int(offsets.max()) + chunk} of a shared window "
                f"that has {shared.size}"
            )
            self.machine.fail(g, site, "EMU_OUT_OF_BOUNDS", message, index, lane)
        found: Array = offsets + slot * shared.stride
        return found

    def global_offsets(
        self, g: Group, index: int, lane: int, site: int, places: Array, chunk: int, *, write: bool
    ) -> Array:
        if not len(places):
            return np.zeros(0, np.int64)
        wide = places.astype(np.uint64)[None, :]
        try:
            # Chunks are as wide as both ends allow, so their own size says nothing of the alignment of an address.
            first = self.machine.globals.offsets(wide, 1, None, -1 - site)[0]
            self.machine.globals.offsets(wide + np.uint64(chunk - 1), 1, None, -1 - site)
        except AccessFault as fault:
            self.machine.fail(g, site, fault.code, fault.message, index, lane)
        found: Array = first[0]
        if self.machine.predecessor.checks:
            self.machine.predecessor.accessed_by(g, index, lane, site, found, write=write)
        return found

    def must_be_written(self, g: Group, index: int, lane: int, site: int, offsets: Array, chunk: int) -> None:
        """What an operation reads from shared memory must have been written."""
        if not pieces_of(self.machine.shared.bytes.written, offsets, chunk).all():
            message = "an asynchronous operation reads shared memory of which some bytes were never written"
            self.machine.fail(g, site, "EMU_UNINITIALISED", message, index, lane)

    # --- tiles that copies have left in shared memory ---------------------------------------------------------------

    def judge(
        self,
        g: Group,
        index: int,
        site: int,
        slot: int,
        placement: Placement,
        extent: int,
        major: Major,
        kind: str,
        element: str,
    ) -> None:
        """Whether the descriptor describes the tile that lies there, and the instruction its elements."""
        cta = self.ctas[slot]
        key = (placement, extent, major, kind, element)
        if key in cta.judged or not cta.boxes:
            return
        boxes = list(cta.boxes.values())
        wrong = mismatch(placement, extent, major, kind, boxes)
        other = other_element(placement, extent, major, kind, element, boxes)
        if (wrong or other) and not self._copied(slot, placement.start if wrong is None else wrong.offset):
            return
        cta.judged[key] = True
        if wrong is not None:
            self.machine.fail(g, site, "EMU_DESCRIPTOR_TILE", wrong.text, index, 0)
        if other:
            text = f"the instruction takes {element}, where the tensor map of the tile has elements of {other}"
            if fragments.ELEMENT_BITS[other] != fragments.ELEMENT_BITS[element]:
                self.machine.fail(g, site, "EMU_DESCRIPTOR_TILE", text, index, 0)
            self.machine.reporter.warn("EMU_OPERAND_TYPE", text, self.machine.who(int(g.rows[index])), site)

    def _copied(self, slot: int, offset: int) -> bool:
        """Whether a copy was the last to write this place: a tile that threads have written over is no tile."""
        machine = self.machine
        start = slot * machine.shared.stride - SHARED_START
        return not machine.races or machine.order.copied(machine.shared_shadow, start + offset)
