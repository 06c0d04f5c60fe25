"""Step 3: what goes over DSMEM or multicast, who produces, who consumes, which fences. Imports `context`."""

from __future__ import annotations

from advisor.planner.context import Facts, reason, table
from advisor.records.plan import Decision, Step


def view(f: Facts) -> Step:
    top, c = f.top, f.top.candidate
    sharing = f.workload.sharing(c)
    rows = []
    for each in sharing:
        portable = c.family == "portable"
        rows.append(
            [
                each.operand,
                "cp.async, every thread" if portable else "TMA, 1 elected thread of the load warp",
                "mma.sync fragments"
                if portable
                else "MMA of this CTA"
                if each.receivers == 1
                else f"MMA of {each.receivers} CTAs",
                each.bytes_per_load,
                each.mask,
                16 if portable else 1024,
                "cp.async.wait_group, barrier"
                if portable
                else "mbarrier full (async proxy); empty before the slot is overwritten",
                "one K step per stage",
            ]
        )
    remote = c.cluster[2] > 1
    if remote:
        rows.append(
            [
                "partial sums", "epilogue warps, remote stores", f"the CTA of slice owner, {c.cluster[2]} per tile",
                c.tile[0] * c.tile[1] * 4 // c.cluster[2], "none: unicast by rank", 32,
                "cluster barrier before the first remote store (the ring is drained) and after the last", "one tile",
            ]
        )  # fmt: skip
    rows.append(
        [
            "D", "epilogue warps", "global memory", c.tile[0] * c.tile[1], "none", 16,
            "fence.proxy.async between the shared memory writes and a TMA store", "one tile",
        ]
    )  # fmt: skip
    receivers = max((each.receivers for each in sharing), default=1)
    bytes_ = f.workload.analysis(c, top.profile)
    if remote:
        choice = f"DSMEM: partial sums of {c.cluster[2]} slices, pushed in rows of consecutive 16-byte stores"
    elif receivers > 1 or c.work.mma_ctas == 2:
        choice = "TMA multicast within the cluster" if receivers > 1 else "the CTA pair reads each other's half of B"
    else:
        choice = "nothing is shared between CTAs"
    because = [
        reason(
            f"one load reaches {receivers} CTAs; the launch reads {bytes_['l2_read_bytes'] / 2**20:.4g} MiB from the L2"
            + (f" and sends {bytes_['dsmem_bytes'] / 2**20:.4g} MiB over DSMEM" if remote else ""),
            "derived",
            receivers=receivers,
            dsmem_bytes=bytes_["dsmem_bytes"],
        )
    ]
    if remote:
        because.append(
            reason(
                f"remote stores reach {top.profile.dsmem_bytes_per_clk_per_sm:.3g} B/clk per SM and remote "
                f"reads a quarter of it, so "
                "partial sums are pushed; segments of 32 bytes and more, aligned",
                top.profile.sources["dsmem_bytes_per_clk_per_sm"].kind if top.profile.sources else "published",
            )
        )
    return Step(
        step=3,
        name="sharing",
        decisions=[Decision(question="What do CTAs share, and how?", choice=choice, because=because)],
        artifact={
            "buffers": table(
                ["buffer", "producer", "consumer", "bytes", "multicast_mask", "align_bytes", "fences", "lifetime"], rows
            ),
            "smem": table(["part", "bytes"], top.resources.smem_parts[:24]),
        },
    )
