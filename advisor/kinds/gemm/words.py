"""What a plan says of a GEMM: steps 1, 2, 3 and 5 in its own words, what a reader should know, and how a forced pair is
dropped where the target has none.

Kinds return records; the planner puts them into its steps. Imports `kinds.words` and `records`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.kinds.words import Chosen, View, cluster_words, mib, reason, show, table
from advisor.machine.features import Feature, supports
from advisor.machine.profile import DeviceProfile
from advisor.records.candidate import Candidate
from advisor.records.plan import Decision, Finding, Reason, Rejected
from advisor.records.rows import SharingRow

MAX_COORDINATES = 16
COLUMNS = ["buffer", "producer", "consumer", "bytes", "multicast_mask", "align_bytes", "fences", "lifetime"]


def pair(f: Chosen, sharing: Sequence[SharingRow]) -> list[Decision]:
    """Step 1: one CTA or two to an MMA. No question where the family has one form."""
    if "mma_ctas" not in f.forced and len(f.axis("mma_ctas")) <= 1:
        return []
    ctas = f.candidate.work.mma_ctas
    rows = f.axis("mma_ctas")
    other = next((o for o in rows if o.label != ctas), None)
    because = []
    if "mma_ctas" in f.forced:
        because.append(reason(f"the problem forces {f.forced['mma_ctas']} CTA per MMA", "user"))
    tiles = f.tiles
    if ctas == 2:
        b = next(each for each in sharing if each.operand == "B")
        because.append(
            reason(
                f"the pair shares B: each CTA loads and holds half of its rows, {b.bytes_per_load} bytes a stage "
                f"instead of {2 * b.bytes_per_load}",
                "published",
                bytes_per_load=b.bytes_per_load,
            )
        )
    if other is not None and other.row is not None:
        because.append(
            reason(
                f"the best design with {other.label} CTA per MMA takes {other.time_us:.4g} us against "
                f"{f.time_us:.4g}, {abs(other.margin):.1%} {'slower' if other.margin >= 0 else 'faster'}",
                other.evidence,
                margin=other.margin,
            )
        )
    if tiles.launched[0] > tiles.tiles[0]:
        because.append(
            reason(
                f"M has {tiles.tiles[0]} tiles and the cluster launches {tiles.launched[0]}: "
                f"{1 - tiles.useful_share:.1%} of the launched area is padding",
                "derived",
                tiles=tiles.tiles[0],
                launched=tiles.launched[0],
            )
        )
    return [
        Decision(
            question="Is a CTA pair worth it?",
            choice="a CTA pair issues each MMA" if ctas == 2 else "one CTA issues each MMA",
            because=because or [reason("no other form is legal here", "derived")],
            rejected=f.rejections("mma_ctas", ctas, "{} CTA per MMA"),
        )
    ]


def gain(f: Chosen, one: float, many: float) -> str:
    """Step 1: what the cluster changes about the best single CTAs, which read `one` bytes from the L2, not `many`."""
    c, tiles, size = f.candidate, f.tiles, f.label("cluster_size")
    z = c.cluster[2]
    if z > 1:
        ctas = tiles.clusters[0] * tiles.clusters[1] * tiles.clusters[2] * c.unit_size
        return f"{z} slices of K spread the work over {ctas} CTAs and are summed inside the cluster"
    if many < one:
        return f"the cluster of {size} reads {mib(many)} from the L2 where single CTAs read {mib(one)}"
    return f"the cluster of {size} reads {mib(many)} from the L2, single CTAs {mib(one)}"


def mapping(f: Chosen) -> View:
    c, tiles = f.candidate, f.tiles
    x, y, z = c.unit
    rows = []
    for rank in range(min(c.unit_size, MAX_COORDINATES)):
        cx, cy, cz = rank % x, rank // x % y, rank // (x * y)
        rows.append(
            [
                rank, cx, cy, cz,
                f"first row of the cluster tile + {cx * c.tile[0]}", f"first column + {cy * c.tile[1]}",
                f"slice {cz} of {z}" if z > 1 else "all of K",
                "leader" if c.work.mma_ctas == 2 and cx % 2 == 0 else "follower" if c.work.mma_ctas == 2 else "own MMA",
            ]
        )  # fmt: skip
    clusters = tiles.clusters[0] * tiles.clusters[1] * tiles.clusters[2]
    units = min(clusters, f.timing.planned * c.cluster_size // c.unit_size)
    shown = sorted({0, min(1, clusters - 1), clusters // 2, clusters - 1})
    raster = c.work.raster
    return View(
        decisions=[_tile(f), _stages(f), _split(f, clusters), _swap(f)],
        artifact={
            "coordinates": table(["rank", "x", "y", "z", "first_row", "first_column", "k", "role"], rows),
            "sizes": table(
                ["extent", "per_cta", "per_cluster"],
                [
                    ["M", c.tile[0], c.cluster_tile[0]],
                    ["N", c.tile[1], c.cluster_tile[1]],
                    ["K step", c.tile[2], c.tile[2] * z],
                ],
            ),
            "offsets": table(
                ["cluster_tile", "tile_m", "tile_n", "batch", "slice", "first_row", "first_column"],
                [_offsets(f, index) for index in shown],
            ),
            "axes": "rows run along the problem's n, columns along its m (operands swapped)"
            if c.work.swap_ab
            else "rows run along the problem's m, columns along its n",
            "grid_blocks": units * c.unit_size,
            "grid_clusters": units * c.unit_size // c.cluster_size,
            "grid_launch": [units * x, y, z],
            "work_clusters": clusters,
            "raster": f"bands of {raster.group} cluster tiles, {raster.order.replace('_', ' ')} fastest; whole "
            f"clusters are permuted",
        },
    )


def _offsets(f: Chosen, index: int) -> list[int]:
    """Cluster tile number `index` in the raster's order: its coordinates, and the first element of rank 0."""
    c, (across, along, _) = f.candidate, f.tiles.clusters
    raster = c.work.raster
    along_m = raster.order == "along_m"
    fast, slow = (across, along) if along_m else (along, across)
    layer, place = divmod(index, across * along)
    first = place // (raster.group * slow) * raster.group
    height = min(raster.group, fast - first)
    along_slow, within = divmod(place - first * slow, height)
    tile_m, tile_n = (first + within, along_slow) if along_m else (along_slow, first + within)
    slices = c.work.split_k if c.cluster[2] == 1 else 1
    batch, slice_ = divmod(layer, slices)
    return [index, tile_m, tile_n, batch, slice_, tile_m * c.cluster_tile[0], tile_n * c.cluster_tile[1]]


def _tile(f: Chosen) -> Decision:
    c, tiles = f.candidate, f.tiles
    waste = tiles.launched[0] * tiles.launched[1] - tiles.tiles[0] * tiles.tiles[1]
    because = [
        reason(
            f"{tiles.tiles[0]} x {tiles.tiles[1]} tiles x {tiles.tiles[2]} batch; {tiles.launched[0]} x "
            f"{tiles.launched[1]} launched, {tiles.useful_share:.1%} of the launched area is output",
            "derived",
            tiles=list(tiles.tiles),
            launched=list(tiles.launched),
            useful_share=tiles.useful_share,
        )
    ]
    if waste:
        because.append(
            reason(
                f"whole clusters round {tiles.tiles[0]} tiles up to {tiles.launched[0]} and {tiles.tiles[1]} up to "
                f"{tiles.launched[1]}: {waste} tiles of padding per batch",
                "derived",
                padding_tiles=waste,
            )
        )
    if c.work.preferred_cluster is not None:
        because.append(
            reason(
                f"the launch mixes clusters of {c.cluster_size} and {c.unit_size}: a tile of the mapping is made for "
                f"{c.unit_size} CTAs, and {c.unit_size // c.cluster_size} clusters of {c.cluster_size} do it where one "
                f"of {c.unit_size} has no room. A CTA finds its place from blockIdx, never from %clusterid, which each "
                "size counts by itself",
                "published",
                cluster=list(c.cluster),
                preferred_cluster=list(c.unit),
            )
        )
    for name in ("tile", "cluster", "preferred_cluster"):
        if name in f.forced:
            because.append(reason(f"the problem forces the {name.replace('_', ' ')} {show(f.forced[name])}", "user"))
    return Decision(
        question="Which tile and which cluster shape?",
        choice=f"tile {show(c.tile)} per CTA, cluster {cluster_words(c)}",
        because=because,
        rejected=f.rejections("tile", (c.tile[0], c.tile[1]), "tile {}")[:5]
        + f.rejections("cluster", f.label("cluster"), "cluster {}")[:3],
    )


def _stages(f: Chosen) -> Decision:
    """Two counts are searched for every kernel: as many as fit, and the most that let two CTAs share an SM."""
    c, r = f.candidate, f.resources
    fit = f.ctas_per_sm
    smem = r.dynamic_smem_bytes + r.static_smem_bytes
    shares = bool(f.label("shares_sm"))
    if "stages" in f.forced:
        words = reason(f"the problem forces {f.forced['stages']} stages: {smem} bytes", "user", smem_bytes=smem)
    elif shares:
        words = reason(f"the most with which {fit} CTAs of {smem} bytes share an SM", "derived", smem_bytes=smem)
    else:
        words = reason(
            f"as many as fit: {smem} bytes of shared memory a CTA, {fit} CTA{'s' if fit > 1 else ''} an SM",
            "derived",
            smem_bytes=smem,
            ctas_per_sm=fit,
        )
    rejected = [
        Rejected(
            option="as many as fit" if shares else "fewer, so that two CTAs share an SM",
            reason=f"{option.time_us:.4g} us at its best, with a tile of {show(f.candidate_at(option.row).tile)}",
            margin=option.margin,
            numbers={"time_us": option.time_us},
        )
        for option in f.axis("shares_sm")
        if option.label != shares and option.row is not None
    ]
    if not rejected:
        rejected += _no_two(f)
    return Decision(question="How many stages?", choice=f"{c.stages}", because=[words], rejected=rejected)


def _no_two(f: Chosen) -> list[Rejected]:
    """Why no count of stages lets two CTAs share an SM: tensor memory first, since fewer registers can be asked for."""
    r, profile = f.resources, f.profile
    columns, registers = 2 * r.tmem_columns, 2 * r.threads * r.registers
    broken = []
    if profile.tmem_columns and columns > profile.tmem_columns:
        broken.append(("TMEM_OVER_512", "tensor memory columns", columns, profile.tmem_columns))
    if registers > profile.registers_per_sm:
        broken.append(("REGISTERS_OVER_BUDGET", "registers", registers, profile.registers_per_sm))
    if not broken:
        return []
    takes = " and ".join(f"{count} of {limit} {what}" for _, what, count, limit in broken)
    return [
        Rejected(
            option="fewer, so that two CTAs share an SM",
            reason=f"two CTAs of {r.threads} threads would take {takes}",
            code=broken[0][0],
            numbers={what.replace(" ", "_"): count for _, what, count, _ in broken},
        )
    ]


def _split(f: Chosen, clusters: int) -> Decision:
    c, z = f.candidate, f.candidate.cluster[2]
    where = "in the cluster" if z > 1 else "over scratch"
    choice = "no"
    if c.work.split_k > 1:
        how = "summed over DSMEM inside the cluster" if z > 1 else "summed by a second kernel from scratch memory"
        choice = f"{c.work.split_k} slices, {how}"
    because = [
        reason(
            f"{clusters} clusters of work for {f.timing.resident} resident ones, {f.tiles.k_steps} K "
            f"step{'s' * (f.tiles.k_steps != 1)} each",
            "derived",
            clusters=clusters,
            resident=f.timing.resident,
            k_steps=f.tiles.k_steps,
        )
    ]
    if "split_k" in f.forced:
        because.append(reason(f"the problem forces {f.forced['split_k']} slices", "user"))
    return Decision(
        question="Split K?",
        choice=choice,
        because=because,
        rejected=f.rejections("split_k", (c.work.split_k, where), "slices: {}")[:5],
    )


def _swap(f: Chosen) -> Decision:
    c, tiles = f.candidate, f.tiles
    if c.work.swap_ab:
        words = (
            f"the small extent runs along the MMA's N, whose tiles go down to {c.tile[1]}: "
            f"{tiles.useful_share:.1%} of the launched area is output"
        )
    elif tiles.useful_share < 0.5:
        words = (
            f"{tiles.useful_share:.1%} of the launched area is output, but the empty part costs no bandwidth and no "
            f"time: {f.timing.bound} bounds the launch"
        )
    else:
        words = f"the problem's m fills the MMA's M: {tiles.useful_share:.1%} of the launched area is output"
    because = [reason(words, "derived", useful_share=tiles.useful_share)]
    if "swap_ab" in f.forced:
        because.append(reason(f"the problem forces swap_ab: {str(f.forced['swap_ab']).lower()}", "user"))
    return Decision(
        question="Swap the operands?",
        choice="yes: the MMA's M runs along n" if c.work.swap_ab else "no",
        because=because,
        rejected=f.rejections("swap_ab", c.work.swap_ab, "swap: {}"),
    )


def exchange(
    f: Chosen, sharing: Sequence[SharingRow], of_smaller: Sequence[SharingRow], bytes_: Mapping[str, float]
) -> View:
    """`of_smaller`: the rows of the smaller clusters of a launch that mixes two sizes; `bytes_` is the analysis."""
    c = f.candidate
    smaller = {}
    if c.work.preferred_cluster is not None:
        loads = [_load_row(each, c) for each in of_smaller]
        smaller = {"buffers_of_smaller_clusters": table(COLUMNS, loads)}
    portable, pair, slices = c.family == "portable", c.work.mma_ctas == 2, c.cluster[2]
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
    return View(
        decisions=[
            Decision(
                question="What do CTAs share, and how?",
                choice=_choice(slices, receivers, pair),
                because=_because(f, sharing, slices, bytes_),
            )
        ],
        artifact={
            "buffers": table(COLUMNS, rows),
            **smaller,
            "smem": table(["part", "bytes"], f.resources.smem_parts[:24]),
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


def _because(f: Chosen, sharing: Sequence[SharingRow], slices: int, bytes_: Mapping[str, float]) -> list[Reason]:
    pair = f.candidate.work.mma_ctas == 2
    receivers = {each.operand: each.receivers for each in sharing}
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
        rate = f.profile.sources.get("dsmem_bytes_per_clk_per_sm")
        because.append(
            reason(
                f"{mib(bytes_['dsmem_bytes'])} of partial sums cross between SMs at "
                f"{f.profile.dsmem_bytes_per_clk_per_sm:.3g} B/clk per SM",
                rate.kind if rate is not None else "assumed",
                dsmem_bytes=bytes_["dsmem_bytes"],
                dsmem_bytes_per_clk_per_sm=f.profile.dsmem_bytes_per_clk_per_sm,
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


def leader(c: Candidate) -> list[Decision]:
    """Step 5: what the leader of a pair does."""
    if c.work.mma_ctas != 2:
        return []
    return [
        Decision(
            question="What does the pair's leader do?",
            choice="the even rank issues every MMA and commit, and expects the bytes of both CTAs",
            because=[
                reason(
                    "pair mask 3 << (rank & ~1); expect_tx counts 2 CTAs, not the cluster; one cta_group in "
                    "the kernel; tensor "
                    "memory is allocated and released by both CTAs between cluster barriers",
                    "published",
                    code="PAIR_IN_CLUSTER",
                )
            ],
        )
    ]


def remarks(f: Chosen) -> list[Finding]:
    """What a reader should know of the choice though nothing is wrong."""
    tiles = f.tiles
    if f.candidate.work.mma_ctas != 2 or tiles.launched[0] <= tiles.tiles[0]:
        return []
    return [
        Finding(
            code="PAIR_WASTE",
            severity="info",
            message=f"M has {tiles.tiles[0]} tiles, its clusters launch {tiles.launched[0]}: "
            f"{tiles.launched[0] - tiles.tiles[0]} of {tiles.launched[0]} do padding",
            numbers={"tiles": tiles.tiles[0], "launched": tiles.launched[0]},
        )
    ]


def weaker(forced: Mapping[str, Any], profile: DeviceProfile) -> tuple[dict[str, Any], Finding] | None:
    """A forced pair is dropped where no CTA pair can issue an MMA."""
    if forced.get("mma_ctas") != 2 or supports(Feature.TCGEN05, profile.arch):
        return None
    finding = Finding(
        code="NO_TCGEN05",
        severity="warning",
        message=f"{profile.arch} has no tcgen05 and no tensor memory: a CTA pair cannot issue one MMA; one CTA does",
        numbers={"asked": 2, "mma_ctas": 1, "target": profile.arch},
    )
    return {"mma_ctas": None}, finding
