"""Step 1: is one CTA limited, and what does a cluster or a CTA pair gain? Imports `context`."""

from __future__ import annotations

from advisor.planner.context import Facts, machine_table, reason, rejections, show, table
from advisor.records.plan import Decision, Step

BOUND_WORDS = {
    "tensor": "the tensor cores",
    "smem": "shared memory reads of the MMA",
    "l2": "L2 to SM bandwidth",
    "sm_fill": "what one SM takes in",
    "latency": "latency: launch, first load, too few stages in flight",
    "epilogue": "the epilogue",
    "dram": "DRAM bandwidth",
}


def view(f: Facts) -> Step:
    top, single = f.top, f.single
    size = top.candidate.cluster_size
    rows = []
    if single is not None and single.row is not None:
        lone = top.search.candidate(single.row)
        designs = [("one CTA", lone, top.search.timing(single.row), single.time_us)]
        if size > 1:
            designs.append((f"cluster {show(top.candidate.cluster)}", top.candidate, top.timing, top.time_us))
    else:
        designs = [(f"cluster {show(top.candidate.cluster)}", top.candidate, top.timing, top.time_us)]
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
    paired = "mma_ctas" in f.forced or len(f.axis("mma_ctas")) > 1
    return Step(
        step=1,
        name="necessity",
        decisions=[_cluster(f), _pair(f)] if paired else [_cluster(f)],
        artifact={
            "designs": table(
                ["design", "tile", "flops", "l2_read_bytes", "dram_bytes", "dsmem_bytes", "bound", "time_us"], rows
            ),
            "bounds_us": bounds,
            "machine": machine_table(top.profile),
            "gain": (single.time_us / top.time_us - 1.0) if single is not None else None,
        },
    )


def _cluster(f: Facts) -> Decision:
    top, single = f.top, f.single
    size = top.candidate.cluster_size
    because = [
        reason(
            f"{BOUND_WORDS[top.timing.bound]} bound the choice: {top.timing.bounds[top.timing.bound]:.4g} of "
            f"{top.time_us:.4g} us",
            "derived",
            bound=top.timing.bound,
            time_us=top.time_us,
        )
    ]
    if "cluster" in f.forced:
        because.append(reason(f"the problem forces the cluster {show(f.forced['cluster'])}", "user"))
    if size == 1:
        largest = next((o for o in f.axis("cluster_size") if o.label != 1 and o.row is not None), None)
        if largest is not None:
            gain = f.top.time_us / largest.time_us - 1.0
            because.append(
                reason(
                    f"one CTA suffices: the best cluster, of {largest.label}, gains {max(0.0, gain):.1%}, "
                    f"within the 1.5 % of a tie"
                    if gain > 0
                    else f"one CTA suffices: the best cluster, of {largest.label}, is {-gain:.1%} slower",
                    "derived",
                    cluster_size=largest.label,
                    gain=gain,
                )
            )
    elif single is not None and single.row is not None:
        one = f.workload.analysis(top.search.candidate(single.row), top.profile)
        many = f.workload.analysis(top.candidate, top.profile)
        because.append(
            reason(
                f"the cluster of {size} reads {many['l2_read_bytes'] / 2**20:.4g} MiB from the L2 where single "
                f"CTAs read "
                f"{one['l2_read_bytes'] / 2**20:.4g} MiB, and is {single.time_us / top.time_us - 1:.1%} faster",
                "derived",
                l2_read_bytes=many["l2_read_bytes"],
                l2_read_bytes_single=one["l2_read_bytes"],
                gain=single.time_us / top.time_us - 1.0,
            )
        )
    return Decision(
        question="Does a cluster pay?",
        choice="no cluster: one CTA per tile" if size == 1 else f"a cluster of {size}: {show(top.candidate.cluster)}",
        because=because,
        rejected=rejections(f.axis("cluster_size"), size, "cluster of {}"),
    )


def _pair(f: Facts) -> Decision:
    top = f.top
    ctas = top.candidate.work.mma_ctas
    rows = f.axis("mma_ctas")
    other = next((o for o in rows if o.label != ctas), None)
    because = []
    if "mma_ctas" in f.forced:
        because.append(reason(f"the problem forces {f.forced['mma_ctas']} CTA per MMA", "user"))
    tiles = top.tiles
    if ctas == 2:
        because.append(
            reason("each CTA of a pair holds half of B: shared memory and the L2 deliver it once a pair", "published")
        )
    if other is not None and other.row is not None:
        because.append(
            reason(
                f"the other way takes {other.time_us:.4g} us against {top.time_us:.4g}",
                "derived",
                margin=other.margin,
            )
        )
    if tiles.launched[0] > tiles.tiles[0]:
        because.append(
            reason(
                f"M has {tiles.tiles[0]} tiles and the cluster launches {tiles.launched[0]}: "
                f"{1 - tiles.useful_share:.1%} of the work "
                "is padding",
                "derived",
                tiles=tiles.tiles[0],
                launched=tiles.launched[0],
            )
        )
    return Decision(
        question="Is a CTA pair worth it?",
        choice="a CTA pair issues each MMA" if ctas == 2 else "one CTA issues each MMA",
        because=because or [reason("no other form is legal here", "derived")],
        rejected=rejections(rows, ctas, "{} CTA per MMA"),
    )
