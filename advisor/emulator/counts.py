"""What a run did, counted where the plan makes a promise: mbarriers, loads, barriers, distributed shared memory.

Imports nothing. The figures are raw: which row of a plan they belong to is the business of whoever compares them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class BarrierCount:
    """The mbarriers at one offset of the shared window, those of every CTA together."""

    expected: set[tuple[int, int]] = field(default_factory=set)  # (cluster size, count that mbarrier.init gave)
    initialised: int = 0
    phases: Counter[tuple[int, int]] = field(default_factory=Counter)  # (arrivals, announced bytes) of completed ones
    by_cta: Counter[tuple[int, int]] = field(default_factory=Counter)  # completed phases of (cluster, rank)

    @property
    def completed(self) -> int:
        return self.phases.total()


@dataclass(slots=True)
class LoadCount:
    """The tensor loads through one parameter. Bytes are those of one destination."""

    bytes_by_cta: Counter[tuple[int, int]] = field(default_factory=Counter)  # issued by (cluster, rank)
    masks: dict[tuple[int, int], set[int]] = field(default_factory=dict)  # by (cluster size, rank); 0: no multicast


@dataclass(slots=True)
class Counts:
    """`dynamic_start` is where dynamic shared memory begins in the window: offsets of `barriers` are from the window's
    first byte that a kernel owns. `sizes`: CTAs of each cluster, by its serial; a launch may mix two sizes."""

    dynamic_start: int = 0
    barriers: dict[int, BarrierCount] = field(default_factory=dict)
    loads: dict[str, LoadCount] = field(default_factory=dict)
    named_barriers: dict[int, Counter[int]] = field(default_factory=dict)  # by number: threads of each completed phase
    cluster_barriers: Counter[int] = field(default_factory=Counter)  # threads of each completed phase
    sizes: dict[int, int] = field(default_factory=dict)
    remote_bytes: int = 0  # stored by threads into the shared memory of another CTA

    def initialised(self, offset: int, cluster: int, expected: int) -> None:
        found = self.barriers.setdefault(offset, BarrierCount())
        found.expected.add((self.sizes[cluster], expected))
        found.initialised += 1

    def phase(self, offset: int, cta: tuple[int, int], arrivals: int, announced: int) -> None:
        found = self.barriers.setdefault(offset, BarrierCount())
        found.phases[arrivals, announced] += 1
        found.by_cta[cta] += 1

    def load(self, param: str, cta: tuple[int, int], bytes_: int, mask: int) -> None:
        found = self.loads.setdefault(param, LoadCount())
        found.bytes_by_cta[cta] += bytes_
        found.masks.setdefault((self.sizes[cta[0]], cta[1]), set()).add(mask)

    def named(self, number: int, threads: int) -> None:
        self.named_barriers.setdefault(number, Counter())[threads] += 1
