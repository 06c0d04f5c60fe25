"""Faults of Cluster Launch Control: one macro of `tests/emulator/clc.cu` each, or one edit of its PTX."""

from __future__ import annotations

from functools import partial

from tests.emulator import clc_kernels
from tests.emulator.faults.model import Fault, Kernel, Macro, Pattern, settings

PAIR = (2, 1, 1)
REQUESTS = ("grant", "decline:1", "decline:2", "random", "preempt", "spurious")
POLICIES = tuple(  # every policy of either kind, each with half of the other kind
    each for index, each in enumerate(settings(1, clc=REQUESTS)) if (index + index // len(REQUESTS)) % 2 == 0
)


def unicast(n: int = 0) -> Kernel:
    """A CTA asks for itself until it is declined."""
    return Kernel(
        clc_kernels.ptx,
        clc_kernels.launch("unicast", (60, 1, 1), n=n),
        options={"profile": clc_kernels.small()},
        settings=POLICIES,
    )


ONE = unicast()
TWO = Kernel(
    partial(clc_kernels.ptx, cluster=PAIR),
    clc_kernels.launch("multicast", (60, 1, 1), PAIR),
    options={"profile": clc_kernels.small(2)},
    settings=POLICIES,
)
SETTING = {"async_policy": "lazy", "seed": 0, "clc": "grant"}


def _fault(name: str, code: str, twin: Kernel, edit: Macro | Pattern, field_case: str = "") -> Fault:
    return Fault(name, code, twin, edit, SETTING, field_case)


FAULTS = [
    _fault("a response slot that some warps still read", "EMU_CLC_SLOT_IN_USE", ONE, Macro("NO_BARRIER")),
    _fault("a response slot used again without a proxy fence", "EMU_CLC_SLOT_IN_USE", ONE, Macro("NO_FENCE"), "K05"),
    _fault("two requests into one slot", "EMU_CLC_SLOT_IN_USE", ONE, Macro("TWICE")),
    _fault("a request whose bytes nobody expects", "EMU_DATA_RACE", ONE, Macro("NO_EXPECT")),
    _fault("an exit with a request in flight", "EMU_CLC_IN_FLIGHT", unicast(1), Macro("NO_DRAIN")),
    _fault("a granted response that nobody decodes", "EMU_CLC_WORK_LOST", unicast(2), Macro("IGNORE")),
    _fault("a response read before its phase", "EMU_DATA_RACE", ONE, Macro("READ_EARLY")),
    _fault("a request after one that failed", "EMU_CLC_AFTER_FAILURE", ONE, Macro("AFTER_FAILURE"), "K20"),
    _fault("a response off its alignment", "EMU_MISALIGNED", ONE, Macro("SHIFT=8")),
    _fault(
        "the halves of a response in the wrong order",
        "EMU_CLC_NO_RESPONSE",
        ONE,
        Pattern(r"mov\.b128 r, \{(%rd\d+), *(%rd\d+)\}", r"mov.b128 r, {\2, \1}"),
    ),
    _fault("a warp that reads the response and is not counted", "EMU_CLC_SLOT_IN_USE", TWO, Macro("UNCOUNTED"), "K05"),
    _fault("multicast responses whose slots are not fenced", "EMU_CLC_SLOT_IN_USE", TWO, Macro("NO_FENCE"), "K05"),
    _fault("a multicast response to a CTA that may not run", "EMU_PEER_NOT_STARTED", TWO, Macro("NO_MEET")),
    _fault("a multicast response to a CTA that leaves", "EMU_CLC_IN_FLIGHT", TWO, Macro("PEER_LEAVES")),
    _fault("a multicast response to a CTA that is not armed", "EMU_DEADLOCK", TWO, Macro("PEER_NOT_ARMED"), "K05"),
    _fault("an exit while peers still give back slots", "EMU_PEER_EXITED", TWO, Macro("NO_FAREWELL"), "K01"),
]
