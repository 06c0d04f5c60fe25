"""Step 4: how many clusters are co-resident, for every size. Imports `context`."""

from __future__ import annotations

from advisor.machine.profile import EvidenceKind
from advisor.planner.context import Facts, reason, residency_rows, table
from advisor.records.plan import Decision, Rejected, Step


def view(f: Facts) -> Step:
    top, c, r = f.top, f.top.candidate, f.top.resources
    source: EvidenceKind = "queried" if top.search.queried(top.row) else "derived"
    fit = max(1, f.ctas_per_sm)
    used = min(top.profile.sms, -(-top.timing.resident * c.cluster_size // fit))
    idle = top.profile.sms - used
    # The pick's own row carries the answer that the plan stands on, the other sizes the formula's.
    rows = [
        (size, top.timing.resident, used, idle, source, flag)
        if size == c.cluster_size
        else (size, count, sms, unused, "derived", flag)
        for size, count, sms, unused, flag in residency_rows(top)
    ]
    unit = f"clusters of {c.cluster_size}" if c.cluster_size > 1 else "single CTAs"
    because = [
        reason(
            f"{top.timing.resident} {unit} run at once on {used} of {top.profile.sms} SMs",
            source,
            max_active_clusters=top.timing.resident,
            sms_used=used,
            sms_idle=idle,
        ),
        reason(
            f"{r.threads} threads of {r.registers} registers and {r.dynamic_smem_bytes + r.static_smem_bytes} "
            f"bytes of shared memory: {fit} CTA{'s' if fit > 1 else ''} per SM"
            + (
                f"; {r.tmem_columns} of {top.profile.tmem_columns} tensor memory columns, which the occupancy API "
                "does not count"
                if r.tmem_columns
                else ""
            ),
            "derived",
            threads=r.threads,
            smem_bytes=r.dynamic_smem_bytes + r.static_smem_bytes,
            registers=r.registers,
            tmem_columns=r.tmem_columns,
            ctas_per_sm=fit,
        ),
    ]
    if source == "derived":
        groups = list(top.profile.sm_groups)
        because.append(
            reason(
                f"the formula over SM groups of {', '.join(map(str, groups))}, not a live query of the built kernel",
                _groups_evidence(f),
                sm_groups=groups,
            )
        )
    if f.limits["busy_sms"]:
        because.append(
            reason(
                f"other work holds {f.limits['busy_sms']} SMs: {top.timing.available} clusters run at once",
                "user",
                busy_sms=f.limits["busy_sms"],
                available=top.timing.available,
            )
        )
    if f.limits["sm_budget"] is not None:
        because.append(
            reason(
                f"sm_budget {f.limits['sm_budget']} holds {top.timing.available} clusters of {c.cluster_size}",
                "user",
                sm_budget=f.limits["sm_budget"],
                available=top.timing.available,
            )
        )
    return Step(
        step=4,
        name="residency",
        decisions=[
            Decision(
                question="How many clusters are resident?",
                choice=f"{top.timing.resident} {unit} ({source})",
                because=because,
                rejected=_other_sizes(f),
            )
        ],
        artifact={
            "by_cluster_size": table(
                ["cluster_size", "max_active_clusters", "sms_used", "sms_idle", "source", "nonportable"], rows
            ),
            "ctas_per_sm": fit,
            "busy_sms": f.limits["busy_sms"],
            "available_clusters": top.timing.available,
            "sms_left_over": idle,
            "preferred_cluster": _preferred(c.cluster_size, idle),
        },
    )


def _preferred(size: int, idle: int) -> str:
    """What a launch with a preferred cluster and a smaller fallback could still use. No kernel is planned for one: its
    cluster size would have to be read at run time."""
    if size <= 2 or not idle:
        return "none: no SM is out of reach of the chosen cluster size"
    return (
        f"none planned: {idle} SMs are out of reach of clusters of {size}; a launch with {size} preferred and a "
        "smaller fallback could use them, with a kernel that reads its cluster size at run time"
    )


def _other_sizes(f: Facts) -> list[Rejected]:
    top, found = f.top, []
    best = {each.label: each for each in f.axis("cluster_size")}
    for size, count, _, idle, nonportable in residency_rows(top):
        if size == top.candidate.cluster_size:
            continue
        option = best.get(size)
        words = f"{count} clusters at this footprint, {idle} of {top.profile.sms} SMs idle"
        if nonportable:
            words += ", with the opt-in attribute"
        margin = None
        if option is not None and option.row is not None:
            margin = option.margin
            words += f"; {option.time_us:.4g} us at its best"
        elif option is not None and option.violation is not None:
            words += f"; {option.violation.message}"
        found.append(
            Rejected(
                option=f"cluster of {size}",
                reason=words,
                code="NONPORTABLE_ATTR" if nonportable else "CLUSTER_OCCUPANCY",
                margin=margin,
                numbers={"sms_idle": idle, "max_active_clusters": count},
            )
        )
    return found


def _groups_evidence(f: Facts) -> EvidenceKind:
    source = f.top.profile.sources.get("sm_groups")
    return source.kind if source is not None else "derived"
