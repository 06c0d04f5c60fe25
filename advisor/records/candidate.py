"""One point of the search space, and what it costs in hardware resources. Plain frozen dataclasses: the
planner makes thousands of them, so they carry no validation of their own; legality is the clauses' job.

Coordinates are those of the MMA: with `swap_ab`, MMA M runs along the problem's n.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Family = Literal["sm100", "sm90", "portable"]
Schedule = Literal["one_tile", "static", "ticket", "clc"]
FAMILIES: tuple[Family, ...] = ("sm100", "sm90", "portable")
SCHEDULES: tuple[Schedule, ...] = (
    "one_tile",
    "static",
    "ticket",
    "clc",
)  # simplest first: the tie rule's order


@dataclass(frozen=True, slots=True)
class Raster:
    """The order in which cluster tiles are handed out: bands of `group` cluster rows (or columns), swept along
    the other axis. It permutes whole clusters, so it can never split a CTA pair."""

    order: Literal["along_m", "along_n"] = "along_n"  # the axis that varies fastest inside a band
    group: int = 8  # height of a band, in cluster tiles


@dataclass(frozen=True, slots=True)
class GemmWork:
    """The part of a GEMM candidate that only the GEMM kind understands.

    `multicast_a` is the number of CTAs of a cluster that receive one TMA load of A (they share an M tile: they lie
    along cluster y), `multicast_b` the same for B (along cluster x). `split_k` counts K slices of one output tile;
    when `cluster[2] == split_k > 1` the slices of a tile sit in one cluster and are summed over DSMEM, else
    `cluster[2] == 1` and they are summed by a second kernel from scratch memory.

    `preferred_cluster`, where the launch mixes two sizes, is the larger one: a multiple of the candidate's `cluster`,
    which fills the SMs that the larger one cannot reach. The multicast is then that of the larger one.
    """

    mma_ctas: int = 1  # 2: a CTA pair issues one tcgen05 MMA (sm100 only)
    multicast_a: int = 1
    multicast_b: int = 1
    split_k: int = 1
    swap_ab: bool = False
    raster: Raster = Raster()
    preferred_cluster: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel configuration. `tile` is what one CTA computes per output tile and K step: (M, N, K) elements."""

    family: Family
    cluster: tuple[int, int, int]
    schedule: Schedule
    tile: tuple[int, int, int]
    stages: int
    threads: int
    work: GemmWork = GemmWork()

    @property
    def cluster_size(self) -> int:
        x, y, z = self.cluster
        return x * y * z

    @property
    def unit(self) -> tuple[int, int, int]:
        """CTAs that a unit of work is made for: the preferred cluster where there is one, else the cluster."""
        return self.work.preferred_cluster or self.cluster

    @property
    def unit_size(self) -> int:
        x, y, z = self.unit
        return x * y * z

    @property
    def nonportable(self) -> bool:
        return self.unit_size > 8

    @property
    def cluster_tile(self) -> tuple[int, int]:
        """(M, N) elements of one unit of work: what one cluster computes, or one preferred cluster."""
        return self.tile[0] * self.unit[0], self.tile[1] * self.unit[1]

    @property
    def in_smaller_clusters(self) -> Candidate:
        """What the smaller clusters of a mixed launch run: the same without a preferred cluster."""
        x, y, _ = self.cluster
        return replace(self, work=replace(self.work, preferred_cluster=None, multicast_a=y, multicast_b=x))

    def with_schedule(self, schedule: Schedule) -> Candidate:
        return replace(self, schedule=schedule)


@dataclass(frozen=True, slots=True)
class Resources:
    """What one CTA of a candidate occupies. `smem_parts` names every span of dynamic shared memory in order."""

    threads: int
    registers: int  # at launch, per thread: the budget that the compiler is held to
    static_smem_bytes: int
    dynamic_smem_bytes: int
    tmem_columns: int
    smem_parts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OccupancyKey:
    """The question put to an occupancy oracle: everything that changes its answer."""

    threads: int
    registers: int
    smem_bytes: int  # static plus dynamic, without the system's reserve
    carveout: Literal["max", "default"]
    cluster: tuple[int, int, int]

    @property
    def cluster_size(self) -> int:
        x, y, z = self.cluster
        return x * y * z
