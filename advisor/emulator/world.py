"""What stands around the kernel: SM groups, which clusters are resident, the pool of those that wait, busy SMs.

Imports `machine`, `errors` and its own room. The rule for what fits is `machine.occupancy`'s: a cluster never leaves
its SM group. Clusters start in the order of their numbers, x fastest, as observed on hardware; the pool hands out the
others one by one, to a cluster that exits or, under Cluster Launch Control, to one that asks (`take`). Each cluster of
the grid is started or taken exactly once. Where a launch prefers larger clusters, the pool holds those, and each starts
as one or as the smaller clusters that make it up (`policy.ClusterMix`).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from advisor.emulator.memory import RANK_SHIFT
from advisor.emulator.policy import ClusterMix
from advisor.emulator.report import Reporter, Who
from advisor.errors import InputError
from advisor.machine.occupancy import ctas_per_sm
from advisor.machine.profile import DeviceProfile

Dim3 = tuple[int, int, int]
GRID_LIMITS = (2**31 - 1, 65_535, 65_535)
SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Grid in CTAs, block in threads, cluster in CTAs; `preferred`: the larger cluster of a launch that mixes two."""

    grid: Dim3
    block: Dim3
    cluster: Dim3 = (1, 1, 1)
    registers: int = 32
    smem_bytes: int = 0
    nonportable: bool = False
    preferred: Dim3 | None = None

    @property
    def largest(self) -> Dim3:
        """The largest cluster that the launch may hold."""
        return self.preferred or self.cluster

    @property
    def largest_size(self) -> int:
        return size_of(self.largest)

    @property
    def cluster_size(self) -> int:
        return size_of(self.cluster)

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def clusters(self) -> Dim3:
        """Clusters of the grid; where it mixes two sizes, those of the larger one."""
        gx, gy, gz = self.grid
        cx, cy, cz = self.largest
        return gx // cx, gy // cy, gz // cz

    @property
    def total_clusters(self) -> int:
        """The most clusters that the grid can have: all of the smaller size."""
        return size_of(self.grid) // self.cluster_size


def size_of(extents: Dim3) -> int:
    x, y, z = extents
    return x * y * z


class CtaState(Enum):
    RUNNING = "running"
    EXITED = "exited"


@dataclass(slots=True)
class Cluster:
    """A resident cluster. `serial` counts clusters in the order of their start; `number` is its place in the grid.
    Where a grid mixes two sizes, the smaller ones that make up a preferred one have its number."""

    serial: int
    number: int
    first_ctaid: Dim3
    group: int
    smids: list[int]
    states: list[CtaState]
    shape: Dim3

    @property
    def size(self) -> int:
        return len(self.states)

    @property
    def gone(self) -> bool:
        return all(each is CtaState.EXITED for each in self.states)


class Pool:
    """Numbers of the clusters that have neither started nor been taken, in their order. A grid has up to 2^31 of them:
    what is kept are those that went out of turn."""

    def __init__(self, count: int) -> None:
        self._next = 0
        self._end = count
        self._gone: list[int] = []  # ascending, from _next on

    def __len__(self) -> int:
        return self._end - self._next - len(self._gone)

    def __getitem__(self, place: int) -> int:
        number = self._next + place
        for gone in self._gone:
            if gone > number:
                break
            number += 1
        return number

    def pop(self, place: int = 0) -> int:
        number = self[place]
        insort(self._gone, number)
        while self._gone and self._gone[0] == self._next:
            del self._gone[0]
            self._next += 1
        return number


@dataclass(slots=True)
class World:
    """Residency of one launch on one device."""

    profile: DeviceProfile
    launch: LaunchShape
    busy_sms: int = 0
    reporter: Reporter = field(default_factory=Reporter)
    mix: ClusterMix = field(default_factory=ClusterMix)
    slots_per_sm: int = field(init=False)
    waiting: Pool = field(init=False)
    resident: dict[int, Cluster] = field(init=False, default_factory=dict)
    started: int = field(init=False, default=0)
    taken: int = field(init=False, default=0)
    claimed: int = field(init=False, default=0)  # SMs that a kernel of higher priority still waits for
    _parts: deque[tuple[int, Dim3]] = field(init=False, default_factory=deque)  # smaller clusters that start next
    _hosts_largest: bool = field(init=False)  # whether a preferred cluster has room beside what other work holds
    _held: list[tuple[int, int]] = field(init=False, default_factory=list)  # (group, SM) that it has
    _free: list[list[int]] = field(init=False)  # per group, free slots of each SM
    _first_sm: list[int] = field(init=False)

    def __post_init__(self) -> None:
        check_launch(self.profile, self.launch)
        self.slots_per_sm = ctas_per_sm(
            self.profile, self.launch.threads, self.launch.registers, self.launch.smem_bytes
        )  # fmt: skip
        self._first_sm = [sum(self.profile.sm_groups[:each]) for each in range(len(self.profile.sm_groups))]
        self.waiting = Pool(size_of(self.launch.clusters))
        least = self.launch.largest_size if self.mix.policy == "preferred" else self.launch.cluster_size
        if not self._room_beside(self.busy_sms, least):
            self._refuse_room(least)
        self._hosts_largest = self._roomiest(self.launch.largest_size) is not None

    def _room_beside(self, busy_sms: int, size: int) -> bool:
        """Whether a cluster of this size fits while other work holds this many SMs, which it does from here on."""
        self._free = [[self.slots_per_sm] * sms for sms in self.profile.sm_groups]
        self.occupy(busy_sms)
        return self._roomiest(size) is not None

    def _refuse_room(self, size: int) -> NoReturn:
        launch, profile = self.launch, self.profile
        needs = (
            f"a cluster of {size} CTA{'s' if size > 1 else ''} of {launch.threads} threads, {launch.registers} "
            f"registers a thread and {launch.smem_bytes} bytes of shared memory"
        )
        numbers = {"slots_per_sm": self.slots_per_sm, "sm_groups": list(profile.sm_groups), "busy_sms": self.busy_sms}
        fewer = range(min(self.busy_sms, profile.sms), -1, -1)
        most = next((each for each in fewer if self._room_beside(each, size)), None)
        if most is None:
            raise refused(f"no SM group of {profile.name} has room for {needs}", numbers)
        raise refused(
            f"other work holds {self.busy_sms} SMs, {profile.name} has {profile.sms}, and no SM group has room left "
            f"for {needs}",
            {**numbers, "most_busy_sms": most},
            f"leave it room: at most {most} busy SMs",
        )

    # --- residency ----------------------------------------------------------------------------------------------------

    def start(self, most: int | None = None) -> list[Cluster]:
        """Start waiting clusters while there is room, `most` at most. Call at the launch and after every exit."""
        begun: list[Cluster] = []
        while self.pending and (most is None or len(begun) < most):
            made = self._next()
            if made is None:
                break
            begun.append(made)
        return begun

    @property
    def pending(self) -> bool:
        """Whether some cluster of the grid has neither started nor been taken."""
        return bool(self.waiting or self._parts)

    def _next(self) -> Cluster | None:
        """Starts the next cluster of the grid. None where it has no room."""
        launch = self.launch
        if not self._parts:
            room = self._roomiest(launch.largest_size)
            if launch.preferred is None or self.mix.whole(
                self.waiting[0], fits=room is not None, ever=self._hosts_largest
            ):
                if room is None:
                    return None
                number = self.waiting.pop()
                return self._place(number, self.first_ctaid(number), launch.largest, room)
        room = self._roomiest(launch.cluster_size)
        if room is None:
            return None
        if not self._parts:
            number = self.waiting.pop()
            self._parts.extend((number, each) for each in self._smaller(self.first_ctaid(number)))
        return self._place(*self._parts.popleft(), launch.cluster, room)

    def _smaller(self, first: Dim3) -> list[Dim3]:
        """The first CTAs of the smaller clusters that make up a preferred one, x fastest."""
        (cx, cy, cz), (px, py, pz) = self.launch.cluster, self.launch.largest
        x, y, z = first
        return [(x + i, y + j, z + k) for k in range(0, pz, cz) for j in range(0, py, cy) for i in range(0, px, cx)]

    def exit_cta(self, serial: int, rank: int) -> bool:
        """A CTA has exited; its slot is free. Returns whether its whole cluster is gone."""
        cluster = self.resident[serial]
        cluster.states[rank] = CtaState.EXITED
        index = cluster.smids[rank] - self._first_sm[cluster.group]
        self._free[cluster.group][index] += 1
        if self.claimed:
            self._hold(cluster.group, index)
        if cluster.gone:
            del self.resident[serial]
            return True
        return False

    def take(self, place: int = 0) -> int | None:
        """Take a waiting cluster out of the pool without starting it: its number, or None when the pool is empty.
        `place` counts from the one that would start next."""
        if not self.waiting:
            return None
        self.taken += 1
        return self.waiting.pop(place)

    def first_ctaid(self, number: int) -> Dim3:
        """%ctaid of the first CTA of a cluster of the grid, of the larger size where there are two."""
        x, y, _ = self.launch.clusters
        cx, cy, cz = self.launch.largest
        return (number % x) * cx, (number // x % y) * cy, (number // (x * y)) * cz

    def occupy(self, sms: int) -> None:
        """Other work takes this many SMs, from the last group backwards, where they are free."""
        left = sms
        for group in reversed(self._free):
            for index in range(len(group) - 1, -1, -1):
                if left and group[index] == self.slots_per_sm:
                    group[index] = 0
                    left -= 1

    def vacate(self) -> None:
        """All other work gives every SM back."""
        self._held.clear()
        self.claimed = 0
        used: dict[int, int] = {}
        for cluster in self.resident.values():
            for smid, state in zip(cluster.smids, cluster.states, strict=True):
                used[smid] = used.get(smid, 0) + (state is CtaState.RUNNING)
        for number, group in enumerate(self._free):
            for index in range(len(group)):
                group[index] = self.slots_per_sm - used.get(self._first_sm[number] + index, 0)

    def claim(self, sms: int) -> None:
        """A kernel of higher priority wants this many SMs: those that are free now, and those that become free."""
        self.claimed += sms
        for group in range(len(self._free)):
            for index in range(len(self._free[group])):
                self._hold(group, index)

    def _hold(self, group: int, index: int) -> None:
        if self.claimed and self._free[group][index] == self.slots_per_sm:
            self._free[group][index] = 0
            self._held.append((group, index))
            self.claimed -= 1

    def give_back(self) -> None:
        """The kernel of higher priority is over: its SMs are free again."""
        for group, index in self._held:
            self._free[group][index] = self.slots_per_sm
        self._held.clear()
        self.claimed = 0

    def _fits(self, group: int, size: int) -> bool:
        """A group hosts a cluster only if it has at least as many SMs, however many slots each has."""
        return len(self._free[group]) >= size and sum(self._free[group]) >= size

    def _roomiest(self, size: int) -> int | None:
        """The group with the most free slots among those that can host a cluster: the least loaded first."""
        fitting = [each for each in range(len(self._free)) if self._fits(each, size)]
        return max(fitting, key=lambda each: sum(self._free[each]), default=None)

    def _place(self, number: int, first_ctaid: Dim3, shape: Dim3, group: int) -> Cluster:
        free = self._free[group]
        smids = []
        for _ in range(size_of(shape)):
            # The emptiest SM, the lowest of those: CTAs spread over SMs, and a pair lies in one TPC.
            index = max(range(len(free)), key=lambda each: (free[each], -each))
            free[index] -= 1
            smids.append(self._first_sm[group] + index)
        made = Cluster(self.started, number, first_ctaid, group, smids, [CtaState.RUNNING] * len(smids), shape)
        self.resident[made.serial] = made
        self.started += 1
        return made

    # --- peers --------------------------------------------------------------------------------------------------------

    def check_peer(self, who: Who, rank: int, started: bool, pc: int, lane: int | None = None) -> None:
        """An access to the shared memory of CTA `rank` of the warp's cluster.

        `started`: whether something orders the start of that CTA before the access (`Order.knows_started`). Only a
        cluster barrier guarantees that a peer runs; none, that it has not exited. Raises EMU_PEER_NOT_STARTED,
        EMU_PEER_EXITED, or EMU_NO_SUCH_PEER for a rank outside the cluster.
        """
        cluster = self.resident.get(who.cluster)
        size = self.launch.largest_size if cluster is None else cluster.size
        if not 0 <= rank < size:
            self.reporter.fail(
                "EMU_NO_SUCH_PEER",
                f"an access to CTA rank {rank} of a cluster of {size}",
                who,
                pc,
                lane,
                numbers={"rank": rank, "cluster_size": size},
                fix="mapa and multicast masks take ranks below %cluster_nctarank",
            )
        if cluster is None or cluster.states[rank] is CtaState.EXITED:
            self.reporter.fail(
                "EMU_PEER_EXITED",
                f"an access to the shared memory of CTA rank {rank}, which has exited",
                who,
                pc,
                lane,
                numbers={"rank": rank},
                fix="a cluster barrier at the end keeps every CTA alive until the last access",
            )
        if rank != who.rank and not started:
            self.reporter.fail(
                "EMU_PEER_NOT_STARTED",
                f"an access to the shared memory of CTA rank {rank}, which may not have started yet",
                who,
                pc,
                lane,
                numbers={"rank": rank},
                fix="barrier.cluster.arrive and .wait before the first access to a peer",
            )


# --- launches --------------------------------------------------------------------------------------------------------


def check_launch(profile: DeviceProfile, launch: LaunchShape) -> None:
    """Raise InputError EMU_LAUNCH_REFUSED for a launch that the hardware would refuse."""
    for name, dims, limits in (
        ("grid", launch.grid, GRID_LIMITS),
        ("block", launch.block, (1024, 1024, 64)),
    ):
        for axis, extent, limit in zip("xyz", dims, limits, strict=True):
            if not 1 <= extent <= limit:
                raise refused(f"{name}.{axis} is {extent}, it must be 1 to {limit}", {name: list(dims)})
    if launch.threads > 1024:
        raise refused(f"{launch.threads} threads per CTA are more than 1024", {"block": list(launch.block)})
    size = launch.largest_size
    limit = profile.max_cluster_size if launch.nonportable else min(
        profile.max_cluster_size, profile.max_portable_cluster_size
    )  # fmt: skip
    if min(launch.cluster) < 1 or size > max(1, limit):
        raise refused(
            f"a cluster of {size} CTAs, where {profile.name} takes {max(1, limit)}"
            + ("" if launch.nonportable else " without the non-portable attribute"),
            {"cluster": list(launch.cluster), "limit": limit},
        )
    if any(extent % part for extent, part in zip(launch.grid, launch.largest, strict=True)):
        raise refused(
            f"the grid {launch.grid} is no multiple of the cluster {launch.largest}",
            {"grid": list(launch.grid), "cluster": list(launch.largest)},
        )
    _check_preferred(profile, launch)
    if launch.smem_bytes > profile.smem_per_block_bytes:
        raise refused(
            f"{launch.smem_bytes} bytes of shared memory, where {profile.name} gives a CTA "
            f"{profile.smem_per_block_bytes}",
            {"smem_bytes": launch.smem_bytes, "limit": profile.smem_per_block_bytes},
        )


def _check_preferred(profile: DeviceProfile, launch: LaunchShape) -> None:
    """The rules of a preferred cluster beside the regular one (driver_types.h)."""
    if launch.preferred is None:
        return
    numbers: dict[str, object] = {"cluster": list(launch.cluster), "preferred_cluster": list(launch.preferred)}
    if profile.compute_capability < (10, 0):
        raise refused(f"{profile.title} has no preferred clusters: they begin with compute capability 10.0", numbers)
    parts = zip(launch.preferred, launch.cluster, strict=True)
    if any(larger % part for larger, part in parts) or launch.preferred[2] != launch.cluster[2]:
        raise refused(
            f"the preferred cluster {launch.preferred} is no multiple of the cluster {launch.cluster} in x and y, and "
            "its equal in z",
            numbers,
        )


def refused(message: str, numbers: dict[str, object], fix: str = "change the launch") -> InputError:
    return InputError("EMU_LAUNCH_REFUSED", f"the hardware refuses this launch: {message}", fix=fix, numbers=numbers)


def cut_profile(profile: DeviceProfile, cluster_size: int = 1, *, smaller: int | None = None) -> DeviceProfile:
    """The profile with 8 to 12 SMs (18 for clusters above 8) and the same kinds of SM group, so that waves, tails and
    lone TPCs occur with few tiles: one group that holds a cluster with SMs to spare, a smaller one where the cluster
    is larger than a TPC, a lone TPC. `smaller`: the size is a preferred one, beside clusters of this size; then there
    are groups that only these reach, whatever the chip has, as many as make up another preferred one, so that both
    sizes run at once with few tiles."""
    has_lone_tpc = 2 in profile.sm_groups
    if cluster_size <= 4:
        groups: Sequence[int] = (6, 2) if cluster_size <= 2 and has_lone_tpc else (6, 4, 2)
    elif cluster_size <= 8:
        groups = (10, 2)
    else:
        groups = (16, 2)
    if len(set(profile.sm_groups)) == 1:
        groups = (sum(groups),)
    elif not has_lone_tpc:
        groups = [each for each in groups if each > 2]
    if smaller is not None:
        left = sum(each % cluster_size // smaller for each in groups)
        more = max(0, cluster_size // smaller - left)
        groups = sorted((*groups, *(smaller,) * more), reverse=True)
    return replace(profile, name=f"{profile.name}_cut", sms=sum(groups), sm_groups=tuple(groups))


def sectors(addresses: npt.NDArray[np.int64], size: int) -> tuple[int, int]:
    """32-byte sectors that one warp's request to distributed shared memory touches, and the fewest that could hold its
    bytes in each of the CTAs that it goes to: remote accesses go in 32-byte segments (Hopper tuning guide)."""
    touched = np.unique(np.concatenate([addresses // SECTOR_BYTES, (addresses + size - 1) // SECTOR_BYTES]))
    _, distinct = np.unique(np.unique(addresses) >> RANK_SHIFT, return_counts=True)
    return int(touched.size), int((-(-distinct * size // SECTOR_BYTES)).sum())


def warn_uncoalesced(reporter: Reporter, addresses: npt.NDArray[np.int64], size: int, who: Who, pc: int) -> None:
    """Warn EMU_DSMEM_UNCOALESCED when a request takes at least twice the sectors that it needs."""
    used, needed = sectors(addresses, size)
    if used >= 2 * needed and used > 1:
        reporter.warn(
            "EMU_DSMEM_UNCOALESCED",
            f"a request to distributed shared memory touches {used} sectors of 32 bytes where {needed} would do",
            who,
            pc,
            numbers={"sectors": used, "needed": needed},
            fix="let neighbouring lanes access neighbouring addresses of one peer",
        )
