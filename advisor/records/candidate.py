"""One point of the search space, and what it costs in hardware resources. Plain frozen dataclasses: the
planner makes thousands of them, so they carry no validation of their own; legality is the clauses' job.

Coordinates are those of the MMA: with `swap_ab`, MMA M runs along the problem's n.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal

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


class Work(ABC):
    """The part of a candidate that only its kind understands, and what other rooms ask of any kind's."""

    __slots__ = ()

    def suffix(self, c: Candidate) -> str:
        """What a kernel's id has behind family, schedule and cluster."""
        return ""

    def on_cluster(self, c: Candidate, x: int, y: int, z: int) -> Candidate:
        """The candidate on clusters of another shape, for a twin."""
        return replace(c, cluster=(x, y, z))

    def conditions(self, c: Candidate) -> list[str]:
        """What the kind itself asks of a problem that the kernel runs, in words, beside image, residency, alignment."""
        return []

    def cluster_tile(self, c: Candidate) -> tuple[int, int]:
        """(M, N) elements of one unit of work: its CTAs lie side by side along both."""
        return c.tile[0] * c.unit[0], c.tile[1] * c.unit[1]

    @abstractmethod
    def order_of_sums(self, c: Candidate) -> tuple[Any, ...]:
        """Candidates that have it in common add in the same order: they give the same bits."""


@dataclass(frozen=True, slots=True)
class GemmWork(Work):
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

    def suffix(self, c: Candidate) -> str:
        """The preferred cluster, and the slices that a second kernel sums."""
        mixed = "_or_" + "x".join(map(str, self.preferred_cluster)) if self.preferred_cluster is not None else ""
        return mixed + (f"_s{self.split_k}" if self.split_k > 1 and c.cluster[2] == 1 else "")

    def on_cluster(self, c: Candidate, x: int, y: int, z: int) -> Candidate:
        """Multicast as the shape has it; a single CTA is no pair; slices of K follow z where they sit in a cluster."""
        work = replace(
            self,
            mma_ctas=1 if x * y * z == 1 else self.mma_ctas,
            multicast_a=y,
            multicast_b=x,
            split_k=z if c.cluster[2] > 1 else self.split_k,
            preferred_cluster=None,
        )
        return replace(c, cluster=(x, y, z), work=work)

    def order_of_sums(self, c: Candidate) -> tuple[Any, ...]:
        if self.split_k > 1:
            return (c.family, c.tile, self, c.cluster[2] > 1)
        return (c.family, c.tile, self.swap_ab)


STREAM_SLOTS = 8  # vectors of a thread in flight where a row is streamed


@dataclass(frozen=True, slots=True)
class RowWork(Work):
    """The part of a candidate that only row reductions understand. A candidate's `tile` is (rows of a CTA side by side,
    columns of one CTA's run, elements of a vector), its `stages` the slots of a thread."""

    row_threads: int = 256  # of one CTA that share a row
    vectors: int = 0  # of 16 bytes that a thread keeps of a row; 0: the row is streamed
    batch: int = 1  # vectors of a thread that are computed at a time
    ctas_per_sm: int = 1  # that an SM's registers must hold: what caps the registers of a thread

    # What the planner asks of any kind's work: a reduction has no MMA.
    @property
    def mma_ctas(self) -> int:
        return 1

    @property
    def split_k(self) -> int:
        return 1

    @property
    def swap_ab(self) -> bool:
        return False

    @property
    def preferred_cluster(self) -> None:
        return None

    def kept_columns(self, c: Candidate) -> int:
        """Columns that a cluster keeps on chip; 0 where it streams."""
        return self.vectors * self.row_threads * c.cluster_size * c.tile[2]

    def conditions(self, c: Candidate) -> list[str]:
        return [f"a row has at most {self.kept_columns(c)} columns"] if self.vectors else []

    def suffix(self, c: Candidate) -> str:
        return "" if self.vectors else "_streamed"

    def on_cluster(self, c: Candidate, x: int, y: int, z: int) -> Candidate:
        """A smaller cluster may not hold the row, so it streams it: rows of any length pass through."""
        held = max(1, 1024 // c.threads)  # 64 registers a thread
        work = RowWork(row_threads=c.threads, vectors=0, batch=min(self.batch, 2), ctas_per_sm=held)
        return replace(c, cluster=(x, y, z), work=work, stages=STREAM_SLOTS, tile=(1, *c.tile[1:]))

    def cluster_tile(self, c: Candidate) -> tuple[int, int]:
        """(rows, columns) of one cluster: all of its CTAs share a row."""
        return c.tile[0], c.tile[1] * c.cluster_size

    def order_of_sums(self, c: Candidate) -> tuple[Any, ...]:
        return (c.family, c.tile, self, c.cluster, c.stages)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel configuration. `tile` is what one CTA computes per output tile and K step: (M, N, K) elements."""

    family: Family
    cluster: tuple[int, int, int]
    schedule: Schedule
    tile: tuple[int, int, int]
    stages: int
    threads: int
    work: Any = GemmWork()  # the `Work` of its kind, which reads its own fields of it

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
        tile: tuple[int, int] = self.work.cluster_tile(self)
        return tile

    @property
    def in_smaller_clusters(self) -> Candidate:
        """What the smaller clusters of a mixed launch run: the same without a preferred cluster."""
        x, y, _ = self.cluster
        return replace(self, work=replace(self.work, preferred_cluster=None, multicast_a=y, multicast_b=x))

    @property
    def kernel_id(self) -> str:
        """`{family}_{schedule}`, the cluster above one CTA, and what the kind adds."""
        x, y, z = self.cluster
        shape = f"_{x}x{y}x{z}" if self.cluster_size > 1 else ""
        suffix: str = self.work.suffix(self)
        return f"{self.family}_{self.schedule}{shape}{suffix}"

    def on_cluster(self, x: int, y: int, z: int) -> Candidate:
        """The candidate on clusters of another shape, for a twin."""
        found: Candidate = self.work.on_cluster(self, x, y, z)
        return found

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
