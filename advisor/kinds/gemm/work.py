"""What only the GEMM kind understands of a candidate, and that part as data. Imports `records`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from advisor.records.base import Record
from advisor.records.candidate import Candidate, Work
from advisor.records.work import WorkRecord

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Raster:
    """The order in which cluster tiles are handed out: bands of `group` cluster rows (or columns), swept along
    the other axis. It permutes whole clusters, so it can never split a CTA pair."""

    order: Literal["along_m", "along_n"] = "along_n"  # the axis that varies fastest inside a band
    group: int = 8  # height of a band, in cluster tiles


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

    @property
    def least_x(self) -> int:
        return self.mma_ctas

    def in_smaller_clusters(self, c: Candidate) -> Candidate:
        x, y, _ = c.cluster
        if self.preferred_cluster is None and (self.multicast_a, self.multicast_b) == (y, x):
            return c  # of one size: asked of every candidate of a search
        return replace(c, work=replace(self, preferred_cluster=None, multicast_a=y, multicast_b=x))

    def problem_tile(self, c: Candidate) -> tuple[int, int, int]:
        m, n, k = c.tile
        return (n, m, k) if self.swap_ab else c.tile

    def says(self) -> tuple[str, str]:
        slices = f", K in {self.split_k} slices" if self.split_k > 1 else ""
        pair = " whose CTA pairs issue one MMA" if self.mma_ctas == 2 else ""
        return pair, slices + (", operands swapped" if self.swap_ab else "")


class RasterRecord(Record):
    order: Literal["along_m", "along_n"]
    group: int


class Multicast(Record):
    a: int
    b: int


class GemmWorkRecord(WorkRecord):
    """The choice as the GEMM kind sees it."""

    mma_ctas: Literal[1, 2] = 1
    multicast: Multicast
    split_k: int = 1
    swap_ab: bool = False
    raster: RasterRecord
    preferred_cluster: Triple | None = None

    @classmethod
    def of(cls, work: GemmWork) -> GemmWorkRecord:
        return cls(
            mma_ctas=2 if work.mma_ctas == 2 else 1,
            multicast=Multicast(a=work.multicast_a, b=work.multicast_b),
            split_k=work.split_k,
            swap_ab=work.swap_ab,
            raster=RasterRecord(order=work.raster.order, group=work.raster.group),
            preferred_cluster=work.preferred_cluster,
        )

    def work(self) -> GemmWork:
        return GemmWork(
            mma_ctas=self.mma_ctas,
            multicast_a=self.multicast.a,
            multicast_b=self.multicast.b,
            split_k=self.split_k,
            swap_ab=self.swap_ab,
            raster=Raster(self.raster.order, self.raster.group),
            preferred_cluster=self.preferred_cluster,
        )

    @property
    def extents(self) -> str:
        """What the three numbers of a tile are."""
        return "M x N x K"

    def words(self) -> list[str]:
        """What is particular about the choice, for a report."""
        found = ["2-CTA MMA: each CTA loads half of B"] if self.mma_ctas > 1 else []
        receivers = (("A", self.multicast.a), ("B", self.multicast.b // self.mma_ctas))  # of one load
        found += [f"multicast of {name} to {count} CTAs" for name, count in receivers if count > 1]
        found += [f"{self.split_k} K slices"] if self.split_k > 1 else []
        return found + (["swapped operands"] if self.swap_ab else [])

    def label(self, c: Candidate) -> list[str]:
        found = [f"split {self.split_k}"] if self.split_k > 1 else []
        found += ["swapped"] if self.swap_ab else []
        own = self.raster
        return found + ([f"raster {own.order} {own.group}"] if (own.order, own.group) != ("along_n", 8) else [])

    @classmethod
    def earlier(cls, data: Mapping[str, Any]) -> GemmWorkRecord:
        preferred = data.get("preferred_cluster")
        unit = preferred or data["cluster"]
        order, group = data["raster"]
        return cls(
            mma_ctas=data["mma_ctas"],
            multicast=Multicast(a=unit[1], b=unit[0]),
            split_k=data["split_k"],
            swap_ab=data["swap_ab"],
            raster=RasterRecord(order=order, group=group),
            preferred_cluster=preferred,
        )
