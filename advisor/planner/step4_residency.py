"""Step 4: how many clusters are co-resident, for every size. Imports `context`."""

from __future__ import annotations

from advisor.machine.profile import EvidenceKind
from advisor.planner.context import Facts, reason, residency_rows, table
from advisor.records.plan import Decision, Rejected, Step


def view(f: Facts) -> Step:
    top, c, r = f.top, f.top.candidate, f.top.resources
    queried = top.search.queried(top.row)
    source = "queried" if queried else "derived"
    rows = residency_rows(top)
    fit = max(1, f.ctas_per_sm)
    used = min(top.profile.sms, -(-top.timing.resident * c.cluster_size // fit))
    because = [
        reason(
            f"{top.timing.resident} clusters of {c.cluster_size} run at once on {used} of {top.profile.sms} SMs",
            "queried" if queried else "derived",
            max_active_clusters=top.timing.resident,
            sms_used=used,
            sms_idle=top.profile.sms - used,
        ),
        reason(
            f"{r.threads} threads of {r.registers} registers and {r.dynamic_smem_bytes + r.static_smem_bytes} "
            f"bytes of shared memory: "
            f"{fit} CTA per SM"
            + (
                f"; {r.tmem_columns} tensor memory columns, which the occupancy API does not count"
                if r.tmem_columns
                else ""
            ),
            "derived",
            smem_bytes=r.dynamic_smem_bytes,
            registers=r.registers,
            tmem_columns=r.tmem_columns,
        ),
    ]
    if not queried:
        because.append(
            reason(
                "the formula over the SM groups of the profile, not a live query of the built kernel",
                _groups_evidence(f),
            )
        )
    rejected = [
        Rejected(
            option=f"cluster of {size}",
            reason=f"{idle} of {top.profile.sms} SMs would be idle"
            + (" and the opt-in attribute is needed" if nonportable else ""),
            code="NONPORTABLE_ATTR" if nonportable else "CLUSTER_OCCUPANCY",
            margin=next((o.margin for o in f.axis("cluster_size") if o.label == size and o.row is not None), None),
            numbers={"sms_idle": idle, "max_active_clusters": count},
        )
        for size, count, _, idle, nonportable in rows
        if size != c.cluster_size
    ]
    return Step(
        step=4,
        name="residency",
        decisions=[
            Decision(
                question="How many clusters are resident?",
                choice=f"{top.timing.resident} clusters of {c.cluster_size} ({source})",
                because=because,
                rejected=rejected,
            )
        ],
        artifact={
            "by_cluster_size": table(
                ["cluster_size", "max_active_clusters", "sms_used", "sms_idle", "source", "nonportable"],
                [
                    [
                        size,
                        top.timing.resident if size == c.cluster_size else count,
                        used if size == c.cluster_size else sms,
                        top.profile.sms - used if size == c.cluster_size else idle,
                        source if size == c.cluster_size else "derived",
                        flag,
                    ]
                    for size, count, sms, idle, flag in rows
                ],
            ),
            "ctas_per_sm": fit,
            "busy_sms": f.limits["busy_sms"],
            "available_clusters": top.timing.available,
        },
    )


def _groups_evidence(f: Facts) -> EvidenceKind:
    source = f.top.profile.sources.get("sm_groups")
    return source.kind if source is not None else "derived"
