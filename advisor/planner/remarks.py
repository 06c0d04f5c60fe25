"""What a reader should know of the choice though nothing is wrong: one function for each finding.

Imports `context` and `search`.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.planner.context import Facts, kernel_id, residency_rows, sms_under
from advisor.planner.search import Rung, rejected_counts
from advisor.records.plan import Finding

EXAMPLES = 3  # of what is rejected


def remarks(f: Facts, free: Rung | None, source: str) -> list[Finding]:
    """`free` is what the choice would be without overrides; `source` says where residency comes from."""
    return [
        *_clusters(f),
        *_nonportable(f),
        *f.workload.remarks(f),
        *_overrides(f, free),
        *_rejected(f),
        *_not_on_a_device(f, source),
    ]


def _idle_sms(f: Facts) -> int:
    """SMs that no cluster of the choice's size reaches."""
    return f.top.profile.sms - sms_under(f.top, f.timing.resident, f.candidate.cluster_size)


def _clusters(f: Facts) -> Iterator[Finding]:
    size, resident = f.candidate.cluster_size, f.timing.resident
    if size == 1:
        return
    _, resident_at_2, _, idle_at_2, _ = next(row for row in residency_rows(f.top) if row[0] == 2)
    idle = _idle_sms(f)
    yield Finding(
        code="CLUSTER_OCCUPANCY",
        severity="info",
        message=f"{resident} clusters of {size} are resident: {resident * size} CTAs, {idle} of {f.profile.sms} SMs "
        "idle" + (f"; clusters of 2 leave {idle_at_2} idle" if size > 2 else ""),
        numbers={
            "max_active_clusters": resident,
            "grid_ctas": min(resident, f.timing.tiles) * size,
            "sms_idle": idle,
            "idle_at_2": idle_at_2,
            "resident_at_2": resident_at_2,
        },
    )
    yield Finding(
        code="EXIT_CLUSTER_BARRIER",
        severity="info",
        message="every path of the kernel ends with a cluster barrier: a peer's shared memory must outlive what is in "
        "flight to it",
        numbers={"cluster_size": size},
    )


def _nonportable(f: Facts) -> Iterator[Finding]:
    if not f.candidate.nonportable:
        return
    size, idle = f.candidate.cluster_size, _idle_sms(f)
    idle_at_8 = next(row[3] for row in residency_rows(f.top) if row[0] == 8)
    yield Finding(
        code="NONPORTABLE_ATTR",
        severity="warning",
        message=f"a cluster of {size} needs the non-portable attribute before the query and the launch, and leaves "
        f"{idle} SMs idle where clusters of 8 leave {idle_at_8}; the rung of 8 is always there",
        numbers={"cluster_size": size, "sms_idle": idle, "sms_idle_at_8": idle_at_8, "fallback_size": 8},
    )


def _overrides(f: Facts, free: Rung | None) -> Iterator[Finding]:
    if free is None:
        return
    cost = f.time_us / free.time_us - 1.0
    said = "cost nothing" if abs(cost) < 0.0005 else f"cost {cost:.1%}" if cost > 0 else f"save {-cost:.1%}"
    yield Finding(
        code="OVERRIDE_COST",
        severity="info",
        message=f"the overrides ({', '.join(f.workload.forces())}) {said} against the free choice "
        f"{kernel_id(free.candidate)}, {free.candidate.part} per CTA",
        numbers={
            "cost": cost,
            "free_kernel": kernel_id(free.candidate),
            "free_time_us": free.time_us,
            "free_cluster": list(free.candidate.cluster),
        },
    )


def _rejected(f: Facts) -> Iterator[Finding]:
    reasons, counts = f.top.search.reason, rejected_counts(f.top.search)
    if counts:
        yield Finding(
            code="REJECTED_CANDIDATES",
            severity="info",
            message=f"{int((reasons >= 0).sum())} of {len(reasons)} candidates of {f.top.family} are illegal: "
            + "; ".join(f"{n} {code}" for code, n, _ in counts[:6]),
            numbers={
                "counts": {code: n for code, n, _ in counts},
                "examples": {code: text for code, _, text in counts[:EXAMPLES]},
            },
        )


def _not_on_a_device(f: Facts, source: str) -> Iterator[Finding]:
    if f.top.search.queried(f.top.row) is None:
        yield Finding(
            code="NO_DEVICE",
            severity="info",
            message="residency is the formula of the profile, an estimate until the built kernel is queried on a GPU",
            numbers={"source": source},
        )
    if f.candidate.schedule == "clc":
        yield Finding(
            code="CLC_UNVALIDATED_ON_DEVICE",
            severity="info",
            message="CLC is planned; its static twin is built beside it and can be chosen at run time",
            numbers={},
        )
