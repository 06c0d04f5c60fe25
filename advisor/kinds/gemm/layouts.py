"""Where the rows of a GEMM plan's tables lie in the built kernels. Imports the family modules and `records`.

The offsets are those that the kernel is compiled with (`ADVISOR_SMEM_*`), continued as its template continues them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from advisor.kinds.gemm import launches, sm90
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.rows import KernelLayout, LoadLayout

WARPGROUP_BARRIER = 1  # the first named barrier of gemm_sm90.cu.j2; one for each consumer warpgroup from there on
TICKET_BYTES = 8  # index and "more", of scheduler.cuh


def layout(p: GemmProblem, c: Candidate) -> KernelLayout | None:
    """The layout of the candidate's kernel; None for the families whose kernels have no mbarriers, or no template."""
    return of_sm90(p, c) if c.family == "sm90" else None


def of_sm90(p: GemmProblem, c: Candidate) -> KernelLayout | None:
    """None where two kernels run the candidate: their sums meet in scratch memory, and the tables are of the first."""
    if launches.slices_in_scratch(c):
        return None
    parts = sm90.resources(p, c).smem_parts
    start = sum(size for _, size in parts[:-1])
    assert parts[-1][0] == "barriers"
    rows = [("full", c.stages), ("empty", c.stages)]
    if c.schedule == "ticket":
        rows += [("ticket_full", 1), ("ticket_empty", 1)]
    places = _one_after_another(start, rows)
    consumers = tuple(range(WARPGROUP_BARRIER, WARPGROUP_BARRIER + sm90.consumers(c)))
    meetings = {"partials": "tile"} if launches.slices_in_cluster(c) else {}
    if c.cluster_size > 1:
        meetings |= {"start": "cluster", "exit": "cluster"}
    return KernelLayout(
        mbarriers=places,
        named={"store": consumers} if sm90.stores_through_tma(p) else {},
        meetings=meetings,
        loads=_loads(p, c),
        remote_rows=("partial sums",) if launches.slices_in_cluster(c) else (),
        remote_slots={"ticket_full": TICKET_BYTES} if c.schedule == "ticket" else {},
        cluster_tiles=launches.cluster_tiles(p, c),
    )


def _one_after_another(start: int, rows: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    places = {}
    for name, count in rows:
        places[name] = tuple(range(start, start + count * sm90.BARRIER_BYTES, sm90.BARRIER_BYTES))
        start += count * sm90.BARRIER_BYTES
    return places


def _loads(p: GemmProblem, c: Candidate) -> tuple[LoadLayout, ...]:
    """A tile of A is shared along y, one of B along x; each receiver loads a slice and sends it to all."""
    x, y, _ = c.cluster
    view = launches.mma_view(p, c)
    ranks = [(rank % x, rank // x % y, rank // (x * y)) for rank in range(c.cluster_size)]
    rows = []
    for operand, rows_of_tile, k_major, receivers, axis in (
        ("A", c.tile[0], view.a_k_major, y, 1), ("B", c.tile[1], view.b_k_major, x, 0)
    ):  # fmt: skip
        lines = rows_of_tile if k_major else c.tile[2]
        slices = gcd(max(1, lines // 8), receivers)
        masks: list[int | None] = []
        for place in ranks:
            peers = [
                rank for rank, other in enumerate(ranks) if all(other[i] == place[i] for i in range(3) if i != axis)
            ]
            mask = sum(1 << rank for rank in peers) if receivers > 1 else 0
            masks.append(mask if place[axis] < slices else None)
        rows.append(LoadLayout(operand, f"map_{operand.lower()}", "full", tuple(range(c.cluster_size)), tuple(masks)))
    return tuple(rows)
