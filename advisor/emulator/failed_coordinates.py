"""Coordinates of failed requests on their way through registers. Imports its own room.

`get_first_ctaid` on a failed response is undefined. Compilers may place it before the test of the predicate and throw
the result away, so it is no fault by itself: it is one where the value is *used*, in an address, in a value that is
stored, in a coordinate of a copy, in a branch, or in any other operand that something outside of registers depends on.

A lane that has decoded a failed response makes its warp *hot*. Hot warps run another form of each block
(`lowering_failed`), which carries a mark beside each register that can hold such a value. All others pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator import warps
from advisor.emulator.report import Event

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine
    from advisor.emulator.scheduler import Group

Array = NDArray[Any]
_NONE = np.False_


class FailedCoordinates:
    """The marks of a machine: which register of which lane holds what came out of a failed response."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.hot: Array | None = None  # [row]: None until the first one
        self.marks: dict[int, Array] = {}  # by register slot: [row, lane]
        self.frame: Array | None = None  # by byte of local memory
        self.decoded: dict[int, tuple[int, int]] = {}  # by row: the instruction and the lane that decoded

    def begin(self, g: Group, site: int, failed: Array, slots: tuple[int, ...]) -> None:
        """Lanes of `failed` [n, 32] have decoded a failed response into the registers of these slots."""
        if self.hot is None:
            self.hot = np.zeros(self.machine.rows, bool)
        rows = g.rows[failed.any(axis=1)]
        self.hot[rows] = True
        for index in np.flatnonzero(failed.any(axis=1)).tolist():
            self.decoded[int(g.rows[index])] = (site, int(failed[index].argmax()))
        for slot in slots:
            self.keep(slot, g.rows, g.lanes(), failed)

    def forget(self, rows: Array) -> None:
        """Another cluster starts in these rows."""
        if self.hot is not None:
            self.hot[rows] = False
            for each in self.marks.values():
                each[rows] = False
            if self.frame is not None:
                self.frame.reshape(self.machine.rows, -1)[rows] = False

    # --- from generated code --------------------------------------------------------------------------------------

    def of(self, slot: int, rows: Any) -> Any:
        """The marks of a register, or a false that stands for all lanes."""
        found = self.marks.get(slot)
        return _NONE if found is None else found[rows]

    def keep(self, slot: int, rows: Any, lanes: Array, mark: Any) -> None:
        """A register that outlives its block is written in `lanes`."""
        held = self.marks.get(slot)
        if held is None:
            if not np.count_nonzero(mark):
                return
            held = self.marks[slot] = np.zeros((self.machine.rows, 32), bool)
        held[rows] = np.where(lanes, mark, held[rows])

    def decode(self, g: Group, site: int, failed: Array | None) -> Any:
        if failed is None:
            return _NONE
        self.begin(g, site, failed, ())
        return failed

    def use(self, g: Group, site: int, mark: Any, lanes: Array | None) -> None:
        """Something outside of registers depends on the value. Raises EMU_CLC_FAILED_COORDINATE."""
        if mark is _NONE:
            return
        used = mark & (g.lanes() if lanes is None else lanes)
        if not used.any():
            return
        machine = self.machine
        index, lane = (int(each) for each in np.argwhere(used)[0])
        row = int(g.rows[index])
        who = machine.who(row)
        history: tuple[Event, ...] = ()
        if row in self.decoded:
            where, decoder = self.decoded[row]
            history = (machine.reporter.event("the failed response was decoded", who, where, decoder),)
        machine.reporter.fail(
            "EMU_CLC_FAILED_COORDINATE",
            f"`{machine.program.instructions[site].text}` depends on the coordinates of a request that has failed",
            who,
            site,
            lane,
            history=history,
            fix="test query_cancel.is_canceled, and use the coordinates only where it holds: they are undefined else",
        )

    def shuffled(self, mode: str, mark: Any, by: Array, control: Array) -> Any:
        return mark if mark is _NONE else warps.shuffle(mode, np.broadcast_to(mark, by.shape), by, control)[0]

    def anywhere(self, mark: Any, lanes: Array | None) -> Any:
        """Of an instruction whose result in every lane comes from all lanes."""
        if mark is _NONE:
            return mark
        some = (mark if lanes is None else mark & lanes).any(axis=1, keepdims=True)
        return np.broadcast_to(some, mark.shape)

    # --- local memory: a register that was spilled -------------------------------------------------------------------

    def store_local(self, g: Group, address: Array, size: int, mark: Any, lanes: Array | None) -> None:
        local = self.machine.local
        if self.frame is None:
            if mark is _NONE:
                return
            self.frame = np.zeros(local.bytes.data.size, bool)
        on = g.lanes() if lanes is None else lanes
        start = (self.machine.thread[g.sel] * local.frame + address.view(np.int64))[on]
        marks = np.broadcast_to(mark, on.shape)[on]
        for each in range(size):
            self.frame[start + each] = marks

    def load_local(self, g: Group, address: Array, size: int, lanes: Array | None) -> Any:
        if self.frame is None:
            return _NONE
        local = self.machine.local
        on = g.lanes() if lanes is None else lanes
        start = np.where(on, self.machine.thread[g.sel] * local.frame + address.view(np.int64), 0)
        found = np.zeros(on.shape, bool)
        for each in range(size):
            found |= self.frame[start + each]
        return found & on
