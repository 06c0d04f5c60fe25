"""Step 2: cluster shape, tiles, coordinates, grid and raster. Imports `context`."""

from __future__ import annotations

from advisor.planner.context import Facts, cluster_words, own_step, reason, rejections, show, table
from advisor.records.plan import Decision, Rejected, Step

MAX_COORDINATES = 16


def view(f: Facts) -> Step:
    top, c, tiles = f.top, f.top.candidate, f.top.tiles
    own = f.workload.mapping(c, top.profile, top.timing)
    if own is not None:
        return own_step(f, 2, "mapping", own)
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
    units = min(clusters, top.timing.planned * c.cluster_size // c.unit_size)
    shown = sorted({0, min(1, clusters - 1), clusters // 2, clusters - 1})
    raster = c.work.raster
    return Step(
        step=2,
        name="mapping",
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


def _offsets(f: Facts, index: int) -> list[int]:
    """Cluster tile number `index` in the raster's order: its coordinates, and the first element of rank 0."""
    c, (across, along, _) = f.top.candidate, f.top.tiles.clusters
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


def _tile(f: Facts) -> Decision:
    c, tiles = f.top.candidate, f.top.tiles
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
        rejected=rejections(f.axis("tile"), (c.tile[0], c.tile[1]), "tile {}")[:5]
        + rejections(f.axis("cluster"), f.top.label("cluster"), "cluster {}")[:3],
    )


def _stages(f: Facts) -> Decision:
    """Two counts are searched for every kernel: as many as fit, and the most that let two CTAs share an SM."""
    c, r = f.top.candidate, f.top.resources
    fit = f.ctas_per_sm
    smem = r.dynamic_smem_bytes + r.static_smem_bytes
    shares = bool(f.top.label("shares_sm"))
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
            reason=f"{option.time_us:.4g} us at its best, with a tile of "
            f"{show(f.top.search.candidate(option.row).tile)}",
            margin=option.margin,
            numbers={"time_us": option.time_us},
        )
        for option in f.axis("shares_sm")
        if option.label != shares and option.row is not None
    ]
    two, limit = 2 * r.threads * r.registers, f.top.profile.registers_per_sm
    if not rejected and two > limit:
        rejected.append(
            Rejected(
                option="fewer, so that two CTAs share an SM",
                reason=f"two CTAs of {r.threads} threads and {r.registers} registers would take {two} of {limit}",
                code="REGISTERS_OVER_BUDGET",
                numbers={"registers": two, "limit": limit},
            )
        )
    return Decision(question="How many stages?", choice=f"{c.stages}", because=[words], rejected=rejected)


def _split(f: Facts, clusters: int) -> Decision:
    top, c, z = f.top, f.top.candidate, f.top.candidate.cluster[2]
    where = "in the cluster" if z > 1 else "over scratch"
    choice = "no"
    if c.work.split_k > 1:
        how = "summed over DSMEM inside the cluster" if z > 1 else "summed by a second kernel from scratch memory"
        choice = f"{c.work.split_k} slices, {how}"
    because = [
        reason(
            f"{clusters} clusters of work for {top.timing.resident} resident ones, {top.tiles.k_steps} K steps each",
            "derived",
            clusters=clusters,
            resident=top.timing.resident,
            k_steps=top.tiles.k_steps,
        )
    ]
    if "split_k" in f.forced:
        because.append(reason(f"the problem forces {f.forced['split_k']} slices", "user"))
    return Decision(
        question="Split K?",
        choice=choice,
        because=because,
        rejected=rejections(f.axis("split_k"), (c.work.split_k, where), "slices: {}")[:5],
    )


def _swap(f: Facts) -> Decision:
    c, tiles = f.top.candidate, f.top.tiles
    if c.work.swap_ab:
        words = (
            f"the small extent runs along the MMA's N, whose tiles go down to {c.tile[1]}: "
            f"{tiles.useful_share:.1%} of the launched area is output"
        )
    elif tiles.useful_share < 0.5:
        words = (
            f"{tiles.useful_share:.1%} of the launched area is output, but the empty part costs no bandwidth and no "
            f"time: {f.top.timing.bound} bounds the launch"
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
        rejected=rejections(f.axis("swap_ab"), c.work.swap_ab, "swap: {}"),
    )
