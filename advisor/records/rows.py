"""Rows of the plan's tables, and the verdict of one legality clause. Plain frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Violation:
    """A clause that a candidate breaks: the code that `explain` documents, and the arithmetic."""

    code: str
    message: str
    numbers: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TileMap:
    """How the output is cut: counts of tiles and of clusters, and what the padding wastes."""

    tiles: tuple[int, int, int]  # useful CTA tiles along MMA M, MMA N, batch
    launched: tuple[int, int, int]  # after rounding up to whole clusters
    clusters: tuple[int, int, int]  # cluster tiles along M, N, batch (times split_k where slices are clusters)
    k_steps: int  # K tiles of one slice, at most
    useful_share: float  # useful output elements / elements of all launched tiles, 0 to 1


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one output tile of one CTA moves, and the launch as a whole."""

    tma_bytes_per_tile: int  # issued by this CTA
    smem_fill_bytes_per_tile: int  # received by this CTA, multicast included
    l2_read_bytes: int  # whole launch
    dram_bytes: int  # whole launch, compulsory plus what the L2 cannot hold
    store_bytes: int  # whole launch
    dsmem_bytes: int  # whole launch


@dataclass(frozen=True, slots=True)
class SharingRow:
    """Step 3: one operand. Who loads it, who receives it, what goes over the wire."""

    operand: str
    shared_along: str  # x, y, z or none
    receivers: int  # CTAs that one load reaches
    mask: str  # how the 16-bit mask is made, in terms of the CTA's rank
    bytes_per_load: int
    loads_per_stage: int


@dataclass(frozen=True, slots=True)
class BarrierRow:
    """Step 5: one barrier array. Arrivals and bytes are derived; a count too high deadlocks, one too low races."""

    name: str
    scope: str  # warp, warpgroup, cta, pair, cluster
    count: int  # how many such barriers
    arrivals: int  # expected arrivals of one phase
    arrivals_from: str  # the arithmetic: 2 consumer warpgroups x 2 CTAs
    tx_bytes: int  # expected by one phase; 0 for a plain barrier
    phases: str  # when it completes
    failure: str  # what breaks when it is wrong


@dataclass(frozen=True, slots=True)
class LoadLayout:
    """How the loads of one operand (a row of step 3) are recognised in the built kernel."""

    operand: str
    param: str  # the kernel's tensor map
    barrier: str  # the row of step 5 that paces them: each CTA's part of one stage for each of its phases
    owners: tuple[int, ...]  # by rank: of the CTA whose barrier counts what the rank loads
    masks: tuple[int | None, ...]  # by rank: its multicast mask; 0: loads for itself; None: loads nothing


@dataclass(frozen=True, slots=True)
class KernelLayout:
    """Where the rows of steps 3 and 5 lie in the built kernel: what ties a count to its row. By name of the row.

    A barrier is one of three kinds: mbarriers, named barriers of the CTA, meetings of the whole cluster.
    """

    mbarriers: dict[str, tuple[int, ...]]  # byte offsets in dynamic shared memory, one for each of the row's count
    named: dict[str, tuple[int, ...]]  # numbers of barriers
    meetings: dict[str, str]  # "cluster": the row's count for each cluster; "tile": for each of its tiles
    loads: tuple[LoadLayout, ...]
    remote_rows: tuple[str, ...]  # of step 3: what threads store into other CTAs, bytes for each tile of a CTA
    remote_slots: dict[str, int]  # bytes that CTA 0 stores into each other CTA for each phase of this barrier there
    cluster_tiles: str  # of a launch, an expression over its arguments
    remote_bytes: dict[str, int] = field(default_factory=dict)  # of `remote_rows`, where the kind says them itself
