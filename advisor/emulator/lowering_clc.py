"""The emitters of clusterlaunchcontrol. Imports its own room.

The generated lines call the machine's `clc`.
"""

from __future__ import annotations

from advisor.emulator.lowering import Emitter, Value, handles
from advisor.emulator.lowering_async import shared_address
from advisor.emulator.ptx.ir import Instruction, Vector, registers_of

_KNOWN = "try_cancel async shared::cta mbarrier::complete_tx::bytes multicast::cluster::all b128"
_REQUEST = frozenset(_KNOWN.split())
_AXES = {"get_first_ctaid::x": 0, "get_first_ctaid::y": 1, "get_first_ctaid::z": 2}


@handles("clusterlaunchcontrol")
def cluster_launch_control(emitter: Emitter, index: int, instruction: Instruction) -> None:
    if instruction.has("try_cancel"):
        emitter.only(instruction, _REQUEST)
        if not instruction.has("mbarrier::complete_tx::bytes") or not instruction.has("async"):
            emitter.refuse("a request completes on an mbarrier: .async and .mbarrier::complete_tx::bytes")
        place, barrier = (shared_address(emitter, instruction, each) for each in instruction.operands)
        everywhere = instruction.has("multicast::cluster::all")
        emitter.emit(f"M.clc.request(g, {index}, {place}, {barrier}, {everywhere}, {emitter.lanes(instruction)})")
        return
    emitter.only(instruction, "query_cancel", "is_canceled", "get_first_ctaid", set(_AXES), "pred", "v4", "b32", "b128")
    to, source = instruction.operands
    response = emitter.array(emitter.source(source, "b128"))
    lanes = emitter.lanes(instruction)
    if instruction.has("is_canceled"):
        emitter.define(to, Value(f"M.clc.is_canceled(g, {index}, {response}, {lanes})", 1), instruction)
        return
    names = [emitter.fresh() for _ in range(4)]
    emitter.emit(f"{', '.join(names)} = M.clc.first_ctaid(g, {index}, {response}, {lanes})")
    emitter.undefined = names[3]
    if emitter.follower is None:
        slots = tuple(emitter.program.slots[each] for each in registers_of(to) if each in emitter.program.slots)
        emitter.emit(f"if {names[3]} is not None: M.undefined.begin(g, {index}, {names[3]}, {slots})")
    axis = next((_AXES[each] for each in instruction.qualifiers if each in _AXES), None)
    if axis is not None:
        emitter.define(to, Value(names[axis], 32), instruction)
        return
    if not isinstance(to, Vector) or len(to.elements) != 4 or not instruction.has("v4"):
        emitter.refuse("the coordinates are four registers, the last one without meaning")
    unspecified = emitter.constant(0xBAD3BAD3, 32)
    for each, value in zip(to.elements, [*(Value(name, 32) for name in names[:3]), unspecified], strict=True):
        emitter.define(each, value, instruction)
