"""Undefined values on their way through registers. Imports its own room.

`get_first_ctaid` on a failed response is undefined, and so are words of tensor memory that nobody has written.
Compilers may place the first before the test of the predicate and throw the result away; a load of tensor memory has a
fixed shape and often brings more than the kernel wants. So neither is a fault by itself: it is one where the value is
*used*, in an address, in a value that is stored to global memory, in a coordinate of a copy, in a branch, or in any
other operand that something outside of registers depends on. In shared memory it leaves its bytes unwritten.

A lane that has got such a value makes its warp *hot*. Hot warps run another form of each block (`lowering_undefined`),
which carries a mark beside each register that can hold such a value. All others pay nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator import warps

if TYPE_CHECKING:
    from advisor.emulator.lowering_memory import Access
    from advisor.emulator.machine import Machine
    from advisor.emulator.scheduler import Group

Array = NDArray[Any]
_NONE = np.False_
_CLC = (
    "EMU_CLC_FAILED_COORDINATE",
    "the coordinates of a request that has failed",
    "the failed response was decoded",
    "test query_cancel.is_canceled, and use the coordinates only where it holds: they are undefined else",
)
_TMEM = (
    "EMU_TMEM_UNINITIALISED",
    "words of tensor memory that were never written",
    "tensor memory was read",
    "read the lanes and columns that the product has, and after it: a tile of 64 rows fills half of the lanes",
)


class UndefinedValues:
    """The marks of a machine: which register of which lane holds an undefined value."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.hot: Array | None = None  # [row]: None until the first one
        self.marks: dict[int, Array] = {}  # by register slot: [row, lane]
        self.frame: Array | None = None  # by byte of local memory
        self.origin: dict[int, tuple[int, int]] = {}  # by row: the instruction that gave such a value, and the lane

    def begin(self, g: Group, site: int, marks: Array | Sequence[Array], slots: tuple[int | None, ...]) -> None:
        """Values in the registers of these slots are undefined in the lanes that `marks` [n, 32] names; one for all
        slots, or one for each. A slot that is None is no register that outlives the block."""
        if self.hot is None:
            self.hot = np.zeros(self.machine.rows, bool)
        each = [marks] * len(slots) if isinstance(marks, np.ndarray) else list(marks)
        anywhere = marks if isinstance(marks, np.ndarray) else np.logical_or.reduce(each)
        rows = g.rows[anywhere.any(axis=1)]
        self.hot[rows] = True
        for index in np.flatnonzero(anywhere.any(axis=1)).tolist():
            self.origin[int(g.rows[index])] = (site, int(anywhere[index].argmax()))
        for slot, mark in zip(slots, each, strict=True):
            if slot is not None:
                self.keep(slot, g.rows, g.lanes(), mark)

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

    def came(self, g: Group, site: int, marks: Array | None) -> Any:
        """A hot warp gets the results of an instruction, undefined in the lanes of `marks`."""
        if marks is None:
            return _NONE
        self.begin(g, site, marks, ())
        return marks

    def came_each(self, g: Group, site: int, marks: Sequence[Array] | None, count: int) -> Sequence[Any]:
        """The same for `count` registers, each with marks of its own."""
        if marks is None:
            return [_NONE] * count
        self.begin(g, site, np.logical_or.reduce(list(marks)), ())
        return marks

    def use(self, g: Group, site: int, mark: Any, lanes: Array | None) -> None:
        """Something outside of registers depends on the value. Raises EMU_CLC_FAILED_COORDINATE and
        EMU_TMEM_UNINITIALISED."""
        if mark is _NONE:
            return
        used = mark & (g.lanes() if lanes is None else lanes)
        if not used.any():
            return
        machine = self.machine
        index, lane = (int(each) for each in np.argwhere(used)[0])
        row = int(g.rows[index])
        who = machine.who(row)
        where, first = self.origin[row]
        text = machine.program.instructions[site].text
        code, what, came, fix = _CLC
        if machine.program.instructions[where].opcode == "tcgen05":
            code, what, came, fix = _TMEM
        history = (machine.reporter.event(came, who, where, first),)
        machine.reporter.fail(code, f"`{text}` depends on {what}", who, site, lane, history=history, fix=fix)

    def shuffled(self, mode: str, mark: Any, by: Array, control: Array) -> Any:
        return mark if mark is _NONE else warps.shuffle(mode, np.broadcast_to(mark, by.shape), by, control)[0]

    def anywhere(self, mark: Any, lanes: Array | None) -> Any:
        """Of an instruction whose result in every lane comes from all lanes."""
        if mark is _NONE:
            return mark
        some = (mark if lanes is None else mark & lanes).any(axis=1, keepdims=True)
        return np.broadcast_to(some, mark.shape)

    def store_shared(
        self, g: Group, site: int, access: Access, address: Array, marks: Sequence[Any], lanes: Array | None
    ) -> None:
        """Elements of a store to shared memory: words of tensor memory leave their bytes without a value."""
        machine = self.machine
        on = g.lanes() if lanes is None else lanes
        for element, mark in enumerate(marks):
            stored = on & mark
            if not stored.any():
                continue
            rows = g.rows[stored.any(axis=1)].tolist()
            if any(machine.program.instructions[self.origin[row][0]].opcode != "tcgen05" for row in rows):
                self.use(g, site, mark, lanes)
            start = machine.shared_places(g, access, address, stored)[stored] + element * access.width
            for each in range(access.width):
                machine.shared.bytes.written[start + each] = 0

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
