"""Faults of Cluster Launch Control: one macro of `tests/emulator/clc.cu` each, or one edit of its PTX.

The rows are those of `tests/emulator/test_clc.py`, which runs them under every asynchronous policy.
"""

from __future__ import annotations

from functools import cache, partial

from advisor.records.launch import LaunchAttributes
from tests.emulator import clc_kernels
from tests.emulator.faults.model import Fault, Kernel, Launch, Macro, Pattern, settings
from tests.emulator.test_clc import FAULTS as ROWS

PAIR = (2, 1, 1)
REQUESTS = ("grant", "decline:1", "decline:2", "random", "preempt", "spurious")
POLICIES = tuple(  # every policy of either kind, each with half of the other kind
    each for index, each in enumerate(settings(1, clc=REQUESTS)) if (index + index // len(REQUESTS)) % 2 == 0
)
SETTING = {"async_policy": "lazy", "seed": 0, "clc": "grant"}
FIELD_CASES = {
    "no proxy fence after the read": "K05",
    "a reader that is not counted": "K05",
    "multicast without a proxy fence after the read": "K05",
    "a peer that is not armed": "K05",
    "a request after a failure": "K20",
    "a failed response's coordinates decide": "K20",
    "an exit while peers still release slots": "K01",
}


@cache
def twin(entry: str, n: int, *macros: str) -> Kernel:
    """`unicast`: a CTA asks for itself; `multicast`: one CTA of a pair asks for both."""
    cluster = PAIR if entry == "multicast" else (1, 1, 1)
    return Kernel(
        partial(clc_kernels.ptx, *macros, cluster=cluster),
        clc_kernels.launch(entry, (60, 1, 1), cluster, n=n),
        options={"profile": clc_kernels.small(cluster[0])},
        settings=POLICIES,
    )


FAULTS = [
    Fault(f"CLC: {name}", code, twin(entry, n, *rest), Macro(macro), SETTING, FIELD_CASES.get(name, ""))
    for name, (entry, (macro, *rest), n, code) in ROWS.items()
]
FAULTS.append(
    Fault(
        "CLC: the halves of a response in the wrong order",
        "EMU_CLC_NO_RESPONSE",
        twin("unicast", 0),
        Pattern(r"mov\.b128 r, \{(%rd\d+), *(%rd\d+)\}", r"mov.b128 r, {\2, \1}"),
        SETTING,
    )
)
FAULTS.append(
    Fault(
        "CLC: each CTA of a pair asks for itself",
        "EMU_CLC_REQUEST_PER_CTA",
        twin("unicast", 0),
        Launch({"cluster": PAIR}),
        SETTING,
    )
)
FAULTS.append(
    Fault(
        "CLC: a request in a launch of two cluster sizes",
        "EMU_CLC_MIXED_CLUSTERS",
        twin("multicast", 0),
        Launch({"attributes": LaunchAttributes(preferred_cluster=(4, 1, 1))}),
        SETTING,
    )
)
