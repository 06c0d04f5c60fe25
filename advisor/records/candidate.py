"""One point of the search space, and what it costs in hardware resources. Plain frozen dataclasses: the
planner makes thousands of them, so they carry no validation of their own; legality is the clauses' job.

Coordinates are those of the kernel: of a matrix product, M and N of its MMA. Imports nothing of this project.
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
class Unit:
    """What a cluster works through one after the other, and what its operands wait in: the words of a plan."""

    one: str = "tile"
    many: str = "tiles"
    whole: str = "cluster tile"  # the same, where all CTAs of a cluster are meant
    wholes: str = "cluster tiles"
    ring: str = "stages"


class Work(ABC):
    """The part of a candidate that only its kind understands, and what other rooms ask of any kind's.

    A kind's is a frozen dataclass, and hashable: a candidate is all of its fields.
    """

    __slots__ = ()

    @abstractmethod
    def order_of_sums(self, c: Candidate) -> tuple[Any, ...]:
        """Candidates that have it in common add in the same order: they give the same bits."""

    @property
    def preferred_cluster(self) -> tuple[int, int, int] | None:
        """The larger cluster of a launch that mixes two sizes."""
        return None

    @property
    def least_x(self) -> int:
        """CTAs along x that a smaller cluster must keep together: 2 of a pair that issues one MMA."""
        return 1

    def in_smaller_clusters(self, c: Candidate) -> Candidate:
        """What the smaller clusters of a mixed launch run."""
        return c

    def suffix(self, c: Candidate) -> str:
        """What a kernel's id has behind family, schedule and cluster."""
        return ""

    def on_cluster(self, c: Candidate, x: int, y: int, z: int) -> Candidate:
        """The candidate on clusters of another shape, for a twin."""
        return replace(c, cluster=(x, y, z))

    def on_schedule(self, c: Candidate, schedule: Schedule) -> Candidate:
        """The candidate under another schedule."""
        return replace(c, schedule=schedule)

    def conditions(self, c: Candidate) -> list[str]:
        """What the kind itself asks of a problem that the kernel runs, in words, beside image, residency, alignment."""
        return []

    def cluster_tile(self, c: Candidate) -> tuple[int, int]:
        """(M, N) elements of one unit of work: its CTAs lie side by side along both."""
        return c.tile[0] * c.unit[0], c.tile[1] * c.unit[1]

    def problem_tile(self, c: Candidate) -> tuple[int, int, int]:
        """One CTA's tile along the problem's own extents."""
        return c.tile

    def unit(self, c: Candidate) -> Unit:
        """What one cluster computes at a time, in words."""
        return Unit()

    def part(self, c: Candidate) -> str:
        """What one CTA computes at a time, in words."""
        return f"tile {' x '.join(map(str, c.tile))}"

    def says(self) -> tuple[str, str]:
        """What a plan's conclusion adds in words: right behind the cluster, and behind the schedule."""
        return "", ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel configuration. `tile` is what one CTA computes per output tile and K step: (M, N, K) elements."""

    family: Family
    cluster: tuple[int, int, int]
    schedule: Schedule
    tile: tuple[int, int, int]
    stages: int
    threads: int
    work: Any  # the `Work` of its kind, which reads its own fields of it

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
        found: Candidate = self.work.in_smaller_clusters(self)
        return found

    @property
    def unit_words(self) -> Unit:
        """What one cluster computes at a time, in words."""
        found: Unit = self.work.unit(self)
        return found

    @property
    def part(self) -> str:
        """What one CTA computes at a time, in words: "tile 128 x 256 x 64"."""
        found: str = self.work.part(self)
        return found

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
        found: Candidate = self.work.on_schedule(self, schedule)
        return found


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
