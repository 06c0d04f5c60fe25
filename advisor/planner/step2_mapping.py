"""Step 2: cluster shape, tiles, coordinates, grid and raster. Imports `context`."""

from __future__ import annotations

from advisor.planner.context import Facts, reason, rejections, show, table
from advisor.records.plan import Decision, Step

MAX_COORDINATES = 16


def view(f: Facts) -> Step:
    top, c, tiles = f.top, f.top.candidate, f.top.tiles
    x, y, z = c.cluster
    m, n = ("n", "m") if c.work.swap_ab else ("m", "n")
    rows = []
    for rank in range(min(c.cluster_size, MAX_COORDINATES)):
        cx, cy, cz = rank % x, rank // x % y, rank // (x * y)
        rows.append(
            [
                rank, cx, cy, cz,
                f"{m} + {cx * c.tile[0]}", f"{n} + {cy * c.tile[1]}",
                f"slice {cz} of {z}" if z > 1 else "all of K",
                "leader" if c.work.mma_ctas == 2 and cx % 2 == 0 else "follower" if c.work.mma_ctas == 2 else "own MMA",
            ]
        )  # fmt: skip
    clusters = tiles.clusters[0] * tiles.clusters[1] * tiles.clusters[2]
    grid_clusters = min(clusters, top.timing.planned)
    waste = tiles.launched[0] * tiles.launched[1] - tiles.tiles[0] * tiles.tiles[1]
    because = [
        reason(
            f"{tiles.tiles[0]} x {tiles.tiles[1]} tiles x {tiles.tiles[2]} batch; {tiles.launched[0]} x "
            f"{tiles.launched[1]} launched, "
            f"{tiles.useful_share:.1%} of the launched area is output",
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
    raster = c.work.raster
    decisions = [
        Decision(
            question="Which tile and which cluster shape?",
            choice=f"tile {show(c.tile)} per CTA, cluster {show(c.cluster)}",
            because=because,
            rejected=rejections(f.axis("tile"), (c.tile[0], c.tile[1]), "tile {}")[:5]
            + rejections(f.axis("cluster"), c.cluster, "cluster {}")[:3],
        ),
        Decision(
            question="Split K?",
            choice="no"
            if c.work.split_k == 1
            else f"{c.work.split_k} slices, "
            + ("summed over DSMEM inside the cluster" if z > 1 else "summed by a second kernel from scratch memory"),
            because=[
                reason(
                    f"{clusters} clusters of work for {top.timing.resident} resident ones, {tiles.k_steps} K "
                    f"steps each",
                    "derived",
                    clusters=clusters,
                    resident=top.timing.resident,
                )
            ],
            rejected=rejections(
                f.axis("split_k"), (c.work.split_k, "in the cluster" if z > 1 else "over scratch"), "{} slices"
            )[:5],
        ),
        Decision(
            question="Swap the operands?",
            choice="yes: the MMA's M runs along n" if c.work.swap_ab else "no",
            because=[reason(_swap_words(f), "derived")],
            rejected=rejections(f.axis("swap_ab"), c.work.swap_ab, "swap: {}"),
        ),
    ]
    return Step(
        step=2,
        name="mapping",
        decisions=decisions,
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
            "grid_blocks": grid_clusters * c.cluster_size,
            "grid_clusters": grid_clusters,
            "grid_launch": [grid_clusters * x, y, z],
            "work_clusters": clusters,
            "raster": f"bands of {raster.group} cluster tiles, {raster.order.replace('_', ' ')} fastest; whole "
            f"clusters are permuted",
        },
    )


def _swap_words(f: Facts) -> str:
    c, tiles = f.top.candidate, f.top.tiles
    if c.work.swap_ab:
        return (
            f"the small extent runs along the MMA's N, whose tiles go down to {c.tile[1]}: "
            f"{tiles.useful_share:.1%} of the work is output"
        )
    return f"the problem's m fills the MMA's M: {tiles.useful_share:.1%} of the work is output"
