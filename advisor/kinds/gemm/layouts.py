"""Where the rows of a GEMM plan's tables lie in the built kernels. Imports the family modules, `launches`, `records`.

The offsets are those that the kernel is compiled with (`ADVISOR_SMEM_*`), continued as its template continues them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from advisor.kinds.gemm import launches, sm90, sm100
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.rows import BarrierRow, KernelLayout, LoadLayout

BARRIER_BYTES = 8
WARPGROUP_BARRIER = 1  # the first named barrier of gemm_sm90.cu.j2; one for each consumer warpgroup from there on
PER_TILE = ("partials",)  # meetings of the cluster that every tile has; the others happen once


def layout(p: GemmProblem, c: Candidate) -> KernelLayout | None:
    """The layout of the candidate's kernel. None for the portable family, whose kernels have no mbarriers, and where
    two kernels run the candidate: their sums meet in scratch memory."""
    if c.family == "portable" or launches.slices_in_scratch(c):
        return None
    module = sm90 if c.family == "sm90" else sm100
    rows = module.barriers(p, c)
    meetings = [each for each in rows if each.scope == "cluster" and not _is_mbarrier(each, c)]
    in_warpgroups = c.family == "sm90" and sm90.stores_through_tma(p)
    return KernelLayout(
        mbarriers=_one_after_another(_start_of_barriers(module.resources(p, c).smem_parts), rows, c),
        named={"store": _warpgroups(c)} if in_warpgroups else {},
        meetings={each.name: "tile" if each.name in PER_TILE else "cluster" for each in meetings},
        loads=_loads(p, c),
        remote_rows=("partial sums",) if launches.slices_in_cluster(c) else (),
        remote_bytes={"partial sums": pushed_bytes(c)} if launches.slices_in_cluster(c) else {},
        remote_slots={"ticket_full": sm90.TICKET_BYTES} if c.schedule == "ticket" else {},
        cluster_tiles=launches.cluster_tiles(p, c),
    )


def pushed_bytes(c: Candidate) -> int:
    """Partial sums, fp32, that a CTA of a cluster of K slices stores into the others: all but its own part."""
    slices = c.cluster[2]
    return c.tile[0] * c.tile[1] * 4 * (slices - 1) // slices


def _warpgroups(c: Candidate) -> tuple[int, ...]:
    return tuple(range(WARPGROUP_BARRIER, WARPGROUP_BARRIER + sm90.consumers(c)))


def _is_mbarrier(row: BarrierRow, c: Candidate) -> bool:
    """The other rows are named barriers of a warpgroup, and barrier.cluster, at which every thread arrives."""
    return row.scope != "warpgroup" and row.arrivals != c.threads * c.unit_size


def _start_of_barriers(parts: Iterable[tuple[str, int]]) -> int:
    start = 0
    for name, size in parts:
        if name == "barriers":
            return start
        start += size
    raise AssertionError("every family has barriers in shared memory")


def _one_after_another(start: int, rows: Iterable[BarrierRow], c: Candidate) -> dict[str, tuple[int, ...]]:
    """Both templates lay the mbarrier arrays out in the order of the rows, without gaps."""
    places = {}
    for row in rows:
        if _is_mbarrier(row, c):
            places[row.name] = tuple(range(start, start + row.count * BARRIER_BYTES, BARRIER_BYTES))
            start += row.count * BARRIER_BYTES
    return places


def _loads(p: GemmProblem, c: Candidate) -> tuple[LoadLayout, ...]:
    """A tile of A is shared along y, one of B (of a pair: each half of it) along x; each receiver loads a slice and
    sends it to all. In pairs the even CTA's barrier counts the bytes of both."""
    x, y, _ = c.unit
    pair = c.work.mma_ctas
    of_a, of_b = launches.sharers(p, c)
    view = launches.mma_view(p, c)
    places = [(rank % x, rank // x % y, rank // (x * y)) for rank in range(c.unit_size)]
    owners = tuple(rank // pair * pair for rank in range(c.unit_size))
    rows = []
    for operand, rows_of_tile, k_major in (
        ("A", c.tile[0], view.a_k_major), ("B", c.tile[1] // pair, view.b_k_major)
    ):  # fmt: skip
        # Who shares a tile has the same of everything but the axis along which it is shared, and along that its group.
        receivers = of_a if operand == "A" else of_b
        keys = [(i, j // of_a, k) if operand == "A" else (i % pair, i // (pair * of_b), j, k) for i, j, k in places]
        shares = [(j if operand == "A" else i // pair) % receivers for i, j, k in places]
        slices = gcd(max(1, (rows_of_tile if k_major else c.tile[2]) // 8), receivers)
        masks: list[int | None] = []
        for key, share in zip(keys, shares, strict=True):
            mask = sum(1 << rank for rank, other in enumerate(keys) if other == key) if receivers > 1 else 0
            masks.append(mask if share < slices else None)
        rows.append(LoadLayout(operand, f"map_{operand.lower()}", "full", owners, tuple(masks)))
    return tuple(rows)
