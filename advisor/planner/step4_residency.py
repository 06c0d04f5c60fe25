"""Step 4: how many clusters are co-resident, for every size. Imports `context`."""

from __future__ import annotations

from advisor.kinds.words import Option, reason, show, table
from advisor.machine.occupancy import clusters_that_fit, counted_ctas
from advisor.machine.profile import EvidenceKind
from advisor.planner.context import Facts, residency_rows, sms_under
from advisor.planner.search import MIX_GAIN
from advisor.records.plan import Decision, Rejected, Step


def view(f: Facts) -> Step:
    top, c, r = f.top, f.top.candidate, f.top.resources
    source: EvidenceKind = "queried" if top.search.queried(top.row) else "derived"
    fit = max(1, f.ctas_per_sm)
    counted = counted_ctas(top.profile, fit)
    used = sms_under(top, top.timing.resident, c.cluster_size)
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
            + (f", of which the cluster query counts {counted}" if counted < fit else "")
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
            ),
            *_mix(f, idle),
        ],
        artifact={
            "by_cluster_size": table(
                ["cluster_size", "max_active_clusters", "sms_used", "sms_idle", "source", "nonportable"], rows
            ),
            "ctas_per_sm": fit,
            "busy_sms": f.limits["busy_sms"],
            "available_clusters": top.timing.available,
            "sms_left_over": idle,
            "preferred_cluster": _preferred(f, idle),
        },
    )


def _preferred(f: Facts, idle: int) -> str:
    """The larger clusters of a launch that mixes two sizes, or why it has one size."""
    c = f.top.candidate
    if c.work.preferred_cluster is not None:
        held = _held(f)
        return f"{show(c.unit)}: on {held} of {f.top.profile.sms} SMs; clusters of {show(c.cluster)} on those left over"
    if c.cluster_size <= 2 or not idle:
        return "none: no SM is out of reach of the chosen cluster size"
    mixed = _best_mix(f)
    words = f"none: {idle} SMs are out of reach of clusters of {c.cluster_size}; "
    if mixed is None and "cluster" in f.forced:
        return words + "the problem forces that size alone"
    if mixed is None:
        return words + "no launch of two cluster sizes is legal here"
    return words + f"with clusters of {mixed.label} none would be, and the launch would take {_against(mixed)}"


def _held(f: Facts) -> int:
    """SMs under the preferred clusters of the choice, if all that fit run as such."""
    size = f.top.candidate.unit_size
    return sms_under(f.top, clusters_that_fit(f.top.profile, f.ctas_per_sm, size), size)


def _best_mix(f: Facts) -> Option | None:
    """The best launch of two cluster sizes that is not the choice. (Such sizes are labelled in words.)"""
    own = f.top.label("cluster_size")
    mixes = (o for o in f.axis("cluster_size") if isinstance(o.label, str) and o.label != own and o.row is not None)
    return next(mixes, None)


def _against(option: Option) -> str:
    if option.margin >= 0:
        return f"{option.time_us:.4g} us, {option.margin:.1%} more"
    return (
        f"{option.time_us:.4g} us, {-option.margin:.1%} less: it has to be {MIX_GAIN - 1.0:.0%}, for the hardware "
        "promises no share of the larger ones"
    )


def _mix(f: Facts, idle: int) -> list[Decision]:
    """Whether to prefer larger clusters and fill the SMs that they cannot reach with smaller ones. No question where
    the family has no such kernel."""
    top, c = f.top, f.top.candidate
    chosen = c.work.preferred_cluster is not None
    mixed = _best_mix(f)
    if not chosen and mixed is None:
        return []
    if not chosen:
        assert mixed is not None
        text = (
            f"{idle} SMs are out of reach of clusters of {c.cluster_size}: too few to pay"
            if idle
            else f"clusters of {c.cluster_size} reach every SM: larger ones could only save bytes from the L2"
        )
        because = [reason(text, "derived", sms_idle=idle)]
        words = f"its launch would take {_against(mixed)}"
        rejected = [Rejected(option=f"clusters of {mixed.label}", reason=words, margin=mixed.margin)]
        return [Decision(question="Mix two cluster sizes?", choice="no: one size", because=because, rejected=rejected)]
    held = _held(f)
    because = [
        reason(
            f"clusters of {c.unit_size} reach {held} of {top.profile.sms} SMs; with clusters of {c.cluster_size} on "
            f"the others {top.profile.sms - idle} work, and {held / max(1, top.profile.sms - idle):.0%} of the CTAs "
            "share loads as the larger ones do",
            "derived",
            sms_of_preferred=held,
            sms_idle=idle,
        ),
        reason(
            "a best effort of the hardware: any mix of the two sizes is correct, and the launch never fails for it",
            "published",
        ),
    ]
    if "preferred_cluster" in f.forced:
        because.append(reason(f"the problem forces the preferred cluster {show(c.unit)}", "user"))
    alone = next((o for o in f.axis("cluster_size") if not isinstance(o.label, str) and o.row is not None), None)
    rejected = []
    if alone is not None:
        words = f"{alone.time_us:.4g} us at its best"
        rejected = [Rejected(option=f"clusters of {alone.label} alone", reason=words, margin=alone.margin)]
    choice = f"yes: {show(c.unit)} preferred, {show(c.cluster)} where it has no room"
    return [Decision(question="Mix two cluster sizes?", choice=choice, because=because, rejected=rejected)]


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
