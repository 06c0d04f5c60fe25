"""Step 3: what goes over DSMEM or multicast, who produces, who consumes, which fences. Imports `context`."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.planner.context import Facts, mib, own_step, reason, table
from advisor.records.candidate import Candidate
from advisor.records.plan import Decision, Reason, Step
from advisor.records.rows import SharingRow

COLUMNS = ["buffer", "producer", "consumer", "bytes", "multicast_mask", "align_bytes", "fences", "lifetime"]


def view(f: Facts) -> Step:
    top, c = f.top, f.top.candidate
    own = f.workload.exchange(c, top.profile)
    if own is not None:
        return own_step(f, 3, "sharing", own)
    sharing = f.workload.sharing(c)
    smaller = {}
    if c.work.preferred_cluster is not None:
        loads = [_load_row(each, c) for each in f.workload.sharing(c.in_smaller_clusters)]
        smaller = {"buffers_of_smaller_clusters": table(COLUMNS, loads)}
    portable, pair, slices = c.family == "portable", c.work.mma_ctas == 2, c.cluster[2]
    bytes_ = f.workload.analysis(c, top.profile)
    rows = [_load_row(each, c) for each in sharing]
    if slices > 1:
        rows.append(
            [
                "partial sums", "epilogue warps, remote stores",
                f"the epilogue of the CTA that owns the part: each of {slices} owns 1/{slices} of the tile",
                c.tile[0] * c.tile[1] * 4 * (slices - 1) // slices, "none: unicast by rank", 32,
                "cluster barrier before the first remote store (every ring is drained), after the last, and before "
                "the rings fill again", "one tile",
            ]
        )  # fmt: skip
    if c.work.split_k > 1 and slices == 1:
        rows.append(
            [
                "partial sums", "epilogue warps", "the second kernel, through scratch memory",
                c.tile[0] * c.tile[1] * 4, "none", 4, "the end of the launch", "two launches",
            ]
        )  # fmt: skip
    else:
        if bytes_["c_bytes_per_tile"]:
            rows.append(_added_row(portable, bytes_))
        rows.append(_output_row(portable, bytes_))
    receivers = max((each.receivers for each in sharing), default=1)
    return Step(
        step=3,
        name="sharing",
        decisions=[
            Decision(
                question="What do CTAs share, and how?",
                choice=_choice(slices, receivers, pair),
                because=_because(f, slices, pair, bytes_),
            )
        ],
        artifact={
            "buffers": table(COLUMNS, rows),
            **smaller,
            "smem": table(["part", "bytes"], top.resources.smem_parts[:24]),
        },
    )


def _load_row(each: SharingRow, c: Candidate) -> list[object]:
    """A or B. The bytes are what a CTA loads for a stage."""
    portable, halves = c.family == "portable", c.work.mma_ctas == 2 and each.operand == "B"
    if portable:
        consumer = "every warp of this CTA, ldmatrix and mma.sync"
    elif halves:
        consumer = "the pair's MMA, which reads this half and the peer's" + (
            f", in {each.receivers} pairs" if each.receivers > 1 else ""
        )
    else:
        consumer = "MMA of this CTA" if each.receivers == 1 else f"MMA of {each.receivers} CTAs"
    return [
        each.operand,
        "cp.async, every thread" if portable else "TMA, 1 elected thread of the load warp",
        consumer,
        each.bytes_per_load,
        each.mask,
        16 if portable else 1024,
        "cp.async.wait_group, then a CTA barrier"
        if portable
        else "mbarrier full (async proxy) before it is read; mbarrier empty of every receiver before it is overwritten",
        "one K step per stage",
    ]


def _added_row(portable: bool, bytes_: Mapping[str, float]) -> list[object]:
    """C. (A split over scratch memory reads it in the second kernel.)"""
    size = int(bytes_["c_bytes_per_tile"])
    if bytes_["loads_c_through_tma"]:
        fence = (
            "mbarrier c_full before it is read; fence.proxy.async, then mbarrier c_empty of the epilogue warps, before "
            "it is overwritten"
        )
        return [
            "C",
            "TMA, 1 elected thread of a warp of its own",
            "epilogue warps",
            size,
            "none",
            128,
            fence,
            "a chunk",
        ]
    reader = "every warp" if portable else "epilogue warps"
    return ["C", "global memory", f"{reader}, ordinary loads", size, "none", 4, "none", "one tile"]


def _output_row(portable: bool, bytes_: Mapping[str, float]) -> list[object]:
    size = int(bytes_["store_bytes_per_tile"])
    if bytes_["stores_through_tma"]:
        fence = (
            "fence.proxy.async, then a barrier of the storing warps, before the TMA store; "
            "cp.async.bulk.wait_group.read before a slab is filled again"
        )
        how = ("epilogue warps, through shared memory", "global memory, TMA store")
        return ["D", *how, size, "none", 16, fence, "one tile"]
    producer = "every warp, parked in shared memory" if portable else "epilogue warps, from registers"
    fence = "a CTA barrier before the stages' memory is reused" if portable else "none: ordinary stores"
    return ["D", producer, "global memory, ordinary stores", size, "none", 4, fence, "one tile"]


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _choice(slices: int, receivers: int, pair: bool) -> str:
    parts = []
    if slices > 1:
        parts.append(f"partial sums of {slices} slices over DSMEM, pushed to the owner of each part")
    if pair:
        parts.append("B within each CTA pair: each CTA loads half, the pair's MMA reads both halves")
    if receivers > 1:
        parts.append(f"operand tiles by TMA multicast, one load for up to {receivers} {'pairs' if pair else 'CTAs'}")
    return "; ".join(parts) or "nothing is shared between CTAs"


def _because(f: Facts, slices: int, pair: bool, bytes_: Mapping[str, float]) -> list[Reason]:
    top, c = f.top, f.top.candidate
    receivers = {each.operand: each.receivers for each in f.workload.sharing(c)}
    alone = bytes_["l2_read_bytes_unshared"]
    because = [
        reason(
            f"the launch asks the L2 for {mib(bytes_['l2_read_bytes'])}"
            + (f", {mib(alone)} if no CTA shared a load" if alone > bytes_["l2_read_bytes"] else ""),
            "derived",
            l2_read_bytes=bytes_["l2_read_bytes"],
            l2_read_bytes_unshared=alone,
        )
    ]
    if max(receivers.values(), default=1) > 1:
        because.append(
            reason(
                f"a load of A reaches {receivers['A']} {_plural('CTA', receivers['A'])} along y, one of B "
                f"{receivers['B']} {_plural('pair' if pair else 'CTA', receivers['B'])} along x; each receiver issues "
                "one share of a tile",
                "derived",
                receivers_a=receivers["A"],
                receivers_b=receivers["B"],
            )
        )
    if slices > 1:
        rate = top.profile.sources.get("dsmem_bytes_per_clk_per_sm")
        because.append(
            reason(
                f"{mib(bytes_['dsmem_bytes'])} of partial sums cross between SMs at "
                f"{top.profile.dsmem_bytes_per_clk_per_sm:.3g} B/clk per SM",
                rate.kind if rate is not None else "assumed",
                dsmem_bytes=bytes_["dsmem_bytes"],
                dsmem_bytes_per_clk_per_sm=top.profile.dsmem_bytes_per_clk_per_sm,
            )
        )
        because.append(
            reason(
                "pushed, not pulled: remote reads reach 4.8 B/clk where remote stores reach 21.4 on an H100 (CR26, "
                "table II); a warp stores 512 consecutive bytes, 16 a lane, so every 32-byte segment is whole",
                "published",
                remote_read_bytes_per_clk=4.8,
                remote_store_bytes_per_clk=21.4,
            )
        )
    return because
