"""Step 7: the protocol of a dynamic claim. Imports `context`."""

from __future__ import annotations

from advisor.planner.context import Facts, reason, table
from advisor.records.plan import Decision, Step

CLC_ROWS = (
    ("arm", "each CTA's scheduler warp", "mbarrier.arrive.expect_tx of 16 bytes on its own barrier", "before "
    "the request"),
    ("request", "1 elected thread of CTA 0", "clusterlaunchcontrol.try_cancel, multicast to the "
    "cluster", "one per cluster, one tile ahead"),
    ("wait", "every reading warp", "mbarrier.try_wait.parity with acquire at cluster scope", "16 bytes have landed"),
    ("read", "every reading warp", "one 128-bit load, then is_canceled", "once"),
    ("decode", "every reading warp", "first CTA id + own rank", "only where the predicate says success"),
    ("release", "every reading warp of every CTA", "fence.proxy.async, then arrive at CTA 0", "after the read"),
    ("stop", "all", "no request after an observed failure; none in flight at exit", "a failure says stop, never "
    "all is done"),
)  # fmt: skip
TICKET_ROWS = (
    ("claim", "1 thread of CTA 0", "atomicAdd on the counter", "one per cluster tile, one ahead"),
    ("publish", "the same thread", "the ticket into every CTA's slot, then arrive with release", "after the claim"),
    ("read", "every reading warp", "the slot, after acquire", "once"),
    ("release", "every reading warp of every CTA", "arrive at CTA 0", "after the read"),
    ("reset", "the launcher", "memset of the counter on the stream", "before every launch"),
)


def view(f: Facts) -> Step:
    top, schedule = f.top, f.top.candidate.schedule
    rows: tuple[tuple[str, str, str, str], ...]
    if schedule == "clc":
        rows, choice = CLC_ROWS, "cancel one unlaunched cluster ahead, decode on success only"
        because = [
            reason(
                f"the round trip of {top.timing.claim_us:.3g} us hides under a main loop of "
                f"{top.timing.main_us:.3g} us",
                "derived",
                claim_us=top.timing.claim_us,
                main_us=top.timing.main_us,
            ),
            reason("throttled to one tile ahead: deeper, and a worker hoards the last tiles", "published"),
        ]
    elif schedule == "ticket":
        rows, choice = TICKET_ROWS, "one atomic ticket ahead"
        because = [
            reason(
                f"an atomic takes {top.timing.claim_us:.3g} us, under a main loop of {top.timing.main_us:.3g} us",
                "derived",
            )
        ]
    else:
        rows, choice = (), "no dynamic claim"
        because = [reason(f"the schedule is {schedule}: every cluster knows its tiles from its number", "derived")]
    return Step(
        step=7,
        name="clc",
        decisions=[Decision(question="How is the next tile claimed?", choice=choice, because=because)],
        artifact={
            "protocol": table(["step", "who", "what", "when"], rows),
            "prefetch_tiles": 1 if rows else 0,
            "throttle_tiles": 1 if rows else 0,
            "requests_in_flight_at_exit": 0,
        },
    )
