"""Step 1: is one CTA limited, and what does a cluster or a CTA pair gain? Imports `context`."""

from __future__ import annotations

from advisor.kinds.words import cluster_words, reason, show, table
from advisor.planner.context import Facts, machine_table, rejections
from advisor.planner.search import TIE
from advisor.records.plan import Decision, Reason, Step


def view(f: Facts) -> Step:
    top, single = f.top, f.single
    size = top.candidate.cluster_size
    rows = []
    designs = [(f"cluster {cluster_words(top.candidate)}", top.candidate, top.timing, top.time_us)]
    if size == 1:
        designs = [("one CTA", top.candidate, top.timing, top.time_us)]
    elif single is not None and single.row is not None:
        lone = top.search.candidate(single.row)
        designs.insert(0, ("one CTA", lone, top.search.timing(single.row), single.time_us))
    for label, candidate, timing, time_us in designs:
        bytes_ = f.workload.analysis(candidate, top.profile)
        rows.append(
            [
                label, show(candidate.tile), bytes_["flops"], bytes_["l2_read_bytes"], bytes_["dram_bytes"],
                bytes_["dsmem_bytes"], timing.bound, time_us,
            ]
        )  # fmt: skip
    bounds = table(
        ["design", *sorted(top.timing.bounds)],
        [[label, *(timing.bounds[name] for name in sorted(timing.bounds))] for label, _, timing, _ in designs],
    )
    return Step(
        step=1,
        name="necessity",
        decisions=[_cluster(f), *f.workload.necessity(f)],
        artifact={
            "designs": table(
                ["design", "tile", "flops", "l2_read_bytes", "dram_bytes", "dsmem_bytes", "bound", "time_us"], rows
            ),
            "bounds_us": bounds,
            "machine": machine_table(f.workload, top.profile),
            "gain_over_one_cta": (single.time_us / top.time_us - 1.0) if single is not None and size > 1 else None,
        },
    )


def _cluster(f: Facts) -> Decision:
    top, single = f.top, f.single
    size, bounds = top.candidate.cluster_size, f.workload.bounds
    because = [
        reason(
            f"the choice is bound by {bounds[top.timing.bound]}: {top.timing.bounds[top.timing.bound]:.4g} of "
            f"{top.timing.time_us:.4g} us"
            + (
                f" before its {f.unit.many} are simulated one by one: {top.time_us:.4g} us then"
                if _simulated(f)
                else ""
            ),
            "derived",
            bound=top.timing.bound,
            bound_us=top.timing.bounds[top.timing.bound],
            time_us=top.timing.time_us,
        )
    ]
    if top.evidence == "measured":
        because.append(
            reason(
                f"measured: {top.time_us:.4g} us a launch, where the model says {top.timing.time_us:.4g}",
                "measured",
                time_us=top.time_us,
                model_us=top.timing.time_us,
            )
        )
    if "cluster" in f.forced:
        because.append(reason(f"the problem forces the cluster {show(f.forced['cluster'])}", "user"))
    if size == 1:
        best = next((o for o in f.axis("cluster_size") if o.label != 1 and o.row is not None), None)
        if best is not None:
            gain = f.top.time_us / best.time_us - 1.0
            because.append(
                reason(
                    f"one CTA suffices: the best cluster, of {best.label}, gains {gain:.1%}, within the "
                    f"{TIE - 1:.1%} of a tie"
                    if gain > 0
                    else f"one CTA suffices: the best cluster, of {best.label}, is {best.margin:.1%} slower",
                    best.evidence,
                    cluster_size=best.label,
                    gain=gain,
                )
            )
    elif single is not None and single.row is not None:
        because += _against_single(f, single.row, single.time_us)
    return Decision(
        question="Does a cluster pay?",
        choice=f"no cluster: one CTA per {f.unit.one}"
        if size == 1
        else f"a cluster of {top.label('cluster_size')}: {cluster_words(top.candidate)}",
        because=because,
        rejected=rejections(f.axis("cluster_size"), top.label("cluster_size"), "cluster of {}"),
    )


def _simulated(f: Facts) -> bool:
    top = f.top
    return top.evidence != "measured" and abs(top.time_us / top.timing.time_us - 1.0) > 0.005


def _against_single(f: Facts, row: int, time_us: float) -> list[Reason]:
    """What limits the best design of single CTAs, and what the cluster changes about it."""
    top = f.top
    lone, timing = top.search.candidate(row), top.search.timing(row)
    one = f.workload.analysis(lone, top.profile)["l2_read_bytes"]
    many = f.workload.analysis(top.candidate, top.profile)["l2_read_bytes"]
    gain = time_us / top.time_us - 1.0
    speed = f"{gain:.1%} faster" if gain > 0 else f"{-gain:.1%} slower"
    limit = (
        f"the best single CTAs ({lone.part}) take {time_us:.4g} us, bound by "
        f"{f.workload.bounds[timing.bound]}: {timing.bounds[timing.bound]:.4g} us"
    )
    change = f"{f.workload.gain(f, lone)}: {speed}"
    return [
        reason(limit, "derived", bound=timing.bound, time_us=time_us),
        reason(change, "derived", l2_read_bytes=many, l2_read_bytes_single=one, gain=gain),
    ]
