"""Step 7: how a cluster comes to its next tile; the protocol of a dynamic claim, used or not.

Imports `context` and `search`.
"""

from __future__ import annotations

from typing import Any

from advisor.kinds.words import reason, table
from advisor.machine.features import Feature, supports
from advisor.planner.context import Facts
from advisor.planner.search import schedules_of
from advisor.records.candidate import Schedule
from advisor.records.plan import Decision, Reason, Step

CLC_ROWS = (
    ("throttle", "the load warp of CTA 0", "mbarrier.arrive as it begins a {unit.one}", "before the next one is "
    "asked for"),
    ("arm", "each CTA's scheduler warp", "mbarrier.arrive.expect_tx of 16 bytes on its own barrier", "before "
    "the request"),
    ("request", "1 elected thread of CTA 0", "clusterlaunchcontrol.try_cancel, multicast to the "
    "cluster", "one per cluster, one {unit.one} ahead"),
    ("wait", "every reading warp", "mbarrier.try_wait.parity with acquire at cluster scope", "16 bytes have landed"),
    ("read", "every reading warp", "one 128-bit load, then is_canceled", "once"),
    ("decode", "every reading warp", "first CTA id + own rank", "only where the predicate says success"),
    ("release", "every reading warp of every CTA", "fence.proxy.async, then arrive at CTA 0", "after the read"),
    ("stop", "all", "no request after an observed failure; none in flight at exit", "a failure says stop, never "
    "all is done"),
)  # fmt: skip
TICKET_ROWS = (
    ("claim", "1 thread of CTA 0", "atomicAdd on the counter", "one per {unit.whole}, one ahead"),
    ("publish", "the same thread", "the ticket into every CTA's slot, then arrive with release", "after the claim"),
    ("read", "every reading warp", "the slot, after acquire", "once"),
    ("release", "every reading warp of every CTA", "arrive at CTA 0", "after the read"),
    ("stop", "every reading warp", "a ticket of at least the number of {unit.wholes} ends the loop", "once"),
    ("reset", "the launcher", "memset of the counter on the stream", "before every launch"),
)
STATIC_ROWS = (
    ("first", "every warp that needs it", "cluster number", "at start; nothing is read or written"),
    ("next", "every warp that needs it", "+ clusters of the grid", "after each {unit.one}"),
    (
        "stop",
        "every warp that needs it",
        "a number of at least the {unit.wholes} ends the loop",
        "after the last {unit.one}",
    ),
)
ONE_TILE_ROWS = (
    ("first", "every warp that needs it", "cluster number", "at start; nothing is read or written"),
    ("stop", "every warp", "the cluster leaves and the hardware places the next one", "after its {unit.one}"),
)
ROWS: dict[Schedule, tuple[tuple[str, str, str, str], ...]] = {
    "one_tile": ONE_TILE_ROWS,
    "static": STATIC_ROWS,
    "ticket": TICKET_ROWS,
    "clc": CLC_ROWS,
}
CHOICES: dict[Schedule, str] = {
    "one_tile": "no claim: a cluster's number is its {unit.one}",
    "static": "no claim: a cluster's number and the size of the grid give its {unit.many}",
    "ticket": "one atomic ticket ahead",
    "clc": "cancel one unlaunched cluster ahead, decode on success only",
}


def view(f: Facts) -> Step:
    top, schedule = f.top, f.top.candidate.schedule
    dynamic = schedule in ("ticket", "clc")
    counts = [
        [row.name, row.count, row.arrivals, row.arrivals_from, row.tx_bytes]
        for row in f.workload.barriers(top.candidate)
        if row.name.startswith(("clc_", "ticket_"))
    ]
    artifact = {
        "protocol": _protocol(f, schedule),
        "prefetch_tiles": top.timing.claims_ahead if dynamic else 0,
        "throttle_tiles": top.timing.claims_ahead if dynamic else 0,
        "requests_in_flight_at_exit": 0,
        "drain": "the response of every request is awaited before the cluster leaves, a failed one too"
        if schedule == "clc"
        else "nothing is in flight: the claim is answered before it is used"
        if dynamic
        else "nothing to drain",
    }
    if counts:
        artifact["arrivals"] = table(["barrier", "slots", "arrivals", "arithmetic", "tx_bytes"], counts)
    if schedule != "clc" and top.family == "sm100" and ("schedule" in f.forced or "clc" in schedules_of(top)):
        artifact["unused_clc_protocol"] = _protocol(f, "clc")
    return Step(
        step=7,
        name="clc",
        decisions=[
            Decision(
                question=f"How is the next {f.unit.one} claimed?",
                choice=CHOICES[schedule].format(unit=f.unit),
                because=_because(f, schedule),
            )
        ],
        artifact=artifact,
    )


def _protocol(f: Facts, schedule: Schedule) -> dict[str, Any]:
    rows = f.workload.claim(f.top.candidate.with_schedule(schedule)) or ROWS[schedule]
    return table(["step", "who", "what", "when"], [[each.format(unit=f.unit) for each in row] for row in rows])


def _because(f: Facts, schedule: Schedule) -> list[Reason]:
    timing, profile = f.top.timing, f.top.profile
    if schedule in ("ticket", "clc"):
        name = "clc_round_trip_cycles" if schedule == "clc" else "atomic_round_trip_cycles"
        source = profile.sources.get(name)
        hides = timing.claim_us <= timing.main_us
        what = "the round trip of a try_cancel" if schedule == "clc" else "an atomic"
        found = [
            reason(
                f"{what}, {timing.claim_us:.3g} us, "
                + (
                    f"hides under a main loop of {timing.main_us:.3g} us"
                    if hides
                    else f"is longer than a main loop of {timing.main_us:.3g} us, and each {f.unit.one} waits for "
                    "the rest"
                ),
                source.kind if source is not None else "assumed",
                claim_us=timing.claim_us,
                main_us=timing.main_us,
            )
        ]
        if schedule == "clc":
            ahead = timing.claims_ahead
            held = f"throttled to one {f.unit.one} ahead"
            if ahead > 1:  # the copies of what is computed next have begun
                copied = "the one that is" if ahead == 2 else f"{ahead - 1} that are"
                held = f"claims are at most {ahead} {f.unit.many} ahead, {copied} being copied and the one after"
            found.append(
                reason(
                    f"{held}: claims further ahead on uneven tiles made up to 42 % longer runs (sched-pass)",
                    "published",
                    throttle_tiles=ahead,
                )
            )
        return found
    own = f.unit.many if schedule == "static" else f.unit.one
    found = [
        reason(
            f"the schedule is {schedule}: every cluster knows its {own} from its number, {timing.planned} clusters for "
            f"{timing.tiles} {f.unit.many}",
            "derived",
            clusters=timing.planned,
            tiles=timing.tiles,
        )
    ]
    if not supports(Feature.CLC, profile.arch):
        found.append(
            reason(
                f"{profile.arch} has no Cluster Launch Control: it begins with sm_100", "published", arch=profile.arch
            )
        )
    return found
