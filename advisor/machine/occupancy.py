"""How many CTAs fit on an SM and how many clusters on a GPU, from a profile alone. Imports only `machine.profile`.

    max_active_clusters(size) = sum over SM groups g with sms(g) >= size of floor(sms(g) * min(8, ctas_per_sm) / size)

A cluster never leaves its group, so the SMs of a small group (a lone TPC) are lost to a cluster that does not fit in
it, with however many free slots. The rule agrees with every row that cuOccupancyMaxActiveClusters returned on an
H200 and with the values published for B200, B300 and RTX 5090; units of one product differ, so a live query replaces
it wherever a GPU is at hand. Tensor memory is no part of it: the occupancy API does not know TMEM, the planner does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from advisor.machine.profile import DeviceProfile

WARP_THREADS = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_REGISTERS_PER_THREAD = 255
REGISTER_UNIT = 256  # registers are handed to a warp in units of 256 (cuda_occupancy.h)
SUB_PARTITIONS = 4  # each holds a quarter of the register file and every fourth warp of a block
SMEM_UNIT = 128  # shared memory is handed to a block in units of 128 bytes
QUERY_CTAS_PER_SM = 8  # the driver's cluster query never counts more CTAs on one SM: measured on an H200, size 1 too

KIB = 1024
_BIG_STEPS = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
# Shared memory sizes that the L1 can be split at, KiB, by compute capability (cuda_occupancy.h; programming guide).
CARVEOUT_STEPS_KIB: dict[tuple[int, int], tuple[int, ...]] = {
    (8, 0): (0, 8, 16, 32, 64, 100, 132, 164),
    (8, 6): (0, 8, 16, 32, 64, 100),
    (8, 7): (0, 8, 16, 32, 64, 100, 132, 164),
    (8, 9): (0, 8, 16, 32, 64, 100),
    (9, 0): _BIG_STEPS,
    (10, 0): _BIG_STEPS,
    (10, 3): _BIG_STEPS,
    (11, 0): _BIG_STEPS,
    (12, 0): (0, 8, 16, 32, 64, 100),
    (12, 1): (0, 8, 16, 32, 64, 100),
}


class OccupancyLike(Protocol):
    """The question put to the formula; `records.OccupancyKey` is one. `smem_bytes` is static plus dynamic."""

    @property
    def threads(self) -> int: ...
    @property
    def registers(self) -> int: ...
    @property
    def smem_bytes(self) -> int: ...
    @property
    def carveout(self) -> str: ...
    @property
    def cluster_size(self) -> int: ...


def block_smem_bytes(profile: DeviceProfile, smem_bytes: int) -> int:
    """What one resident block takes from the SM's shared memory: its own bytes and the system's, in whole units."""
    needed = smem_bytes + profile.smem_reserved_bytes
    return -(-needed // SMEM_UNIT) * SMEM_UNIT


def smem_capacity(profile: DeviceProfile, smem_bytes: int, carveout: str | int = "max") -> int:
    """Shared memory of one SM, bytes, under a preferred carve-out: `max`, `default` or a percentage.

    The driver rounds a percentage up to a step of the architecture, and up again until one block fits. `default`
    leaves the choice to the driver, which may pick any step that the block fits in; the occupancy query then assumes
    the largest one, and so does this.
    """
    if not isinstance(carveout, int):
        return profile.smem_per_sm_bytes
    steps = CARVEOUT_STEPS_KIB.get(profile.compute_capability)
    if steps is None:
        return profile.smem_per_sm_bytes
    wanted = max(profile.smem_per_sm_bytes * carveout // 100, block_smem_bytes(profile, smem_bytes))
    fitting = [step * KIB for step in steps if wanted <= step * KIB <= profile.smem_per_sm_bytes]
    return fitting[0] if fitting else profile.smem_per_sm_bytes


def ctas_per_sm(
    profile: DeviceProfile, threads: int, registers: int, smem_bytes: int, carveout: str | int = "max"
) -> int:
    """CTAs of one kernel that one SM holds at once; 0 when not even one fits.

    `registers` per thread at launch (0: they limit nothing), `smem_bytes` static plus dynamic of one CTA.
    """
    if not 0 < threads <= MAX_THREADS_PER_BLOCK or registers > MAX_REGISTERS_PER_THREAD:
        return 0
    if smem_bytes > profile.smem_per_block_bytes:
        return 0
    warps = -(-threads // WARP_THREADS)
    fit = min(profile.max_blocks_per_sm, profile.max_threads_per_sm // (warps * WARP_THREADS))
    if registers > 0:
        per_warp = -(-registers * WARP_THREADS // REGISTER_UNIT) * REGISTER_UNIT
        warps_held = profile.registers_per_sm // SUB_PARTITIONS // per_warp * SUB_PARTITIONS
        fit = min(fit, warps_held // (-(-warps // SUB_PARTITIONS) * SUB_PARTITIONS))
    needed = block_smem_bytes(profile, smem_bytes)
    if needed > 0:
        fit = min(fit, smem_capacity(profile, smem_bytes, carveout) // needed)
    return fit


def max_active_clusters(profile: DeviceProfile, key: OccupancyLike) -> int:
    """Clusters of the kernel that `key` describes which are resident at once on an idle GPU; 0: it cannot launch.

    A size above `profile.max_cluster_size` is 0. Sizes above `max_portable_cluster_size` count as if the
    non-portable attribute were set. On a GPU without clusters, size 1 is the plain occupancy.
    """
    fit = ctas_per_sm(profile, key.threads, key.registers, key.smem_bytes, key.carveout)
    return clusters_that_fit(profile, fit, key.cluster_size)


def counted_ctas(profile: DeviceProfile, ctas: int) -> int:
    """Of `ctas` CTAs per SM, those that the cluster query and the formula count: more of them may be resident."""
    return min(QUERY_CTAS_PER_SM, ctas) if profile.has_clusters else ctas


def clusters_that_fit(profile: DeviceProfile, ctas: int, cluster_size: int) -> int:
    """The cluster formula for `ctas` CTAs per SM."""
    if not 0 < cluster_size <= profile.max_cluster_size:
        return 0
    if not profile.has_clusters:
        return profile.sms * ctas
    return sum(_per_group(profile.sm_groups, counted_ctas(profile, ctas), cluster_size))


def clusters_by_group(profile: DeviceProfile, ctas: int, cluster_size: int) -> tuple[int, ...]:
    """Clusters that each SM group holds at once, in the order of `profile.sm_groups`; their sum is the formula."""
    if not 0 < cluster_size <= profile.max_cluster_size:
        return (0,) * len(profile.sm_groups)
    return _per_group(profile.sm_groups, counted_ctas(profile, ctas), cluster_size)


def free_clusters(profile: DeviceProfile, ctas: int, cluster_size: int, busy_sms: int) -> int:
    """Clusters that run at once while other work holds `busy_sms` SMs, spread over the groups in proportion.

    A cluster needs all its SMs free within one group, so half of the SMs busy can cost more than half of the clusters.
    """
    taken = min(max(busy_sms, 0), profile.sms)
    busy = [sms * taken // profile.sms for sms in profile.sm_groups]
    for group in range(taken - sum(busy)):  # fewer than there are groups: each division dropped less than one SM
        busy[group] += 1
    free = tuple(sms - held for sms, held in zip(profile.sm_groups, busy, strict=True))
    return sum(clusters_by_group(replace(profile, sm_groups=free), ctas, cluster_size))


@lru_cache(maxsize=4096)
def _per_group(sm_groups: tuple[int, ...], ctas: int, cluster_size: int) -> tuple[int, ...]:
    return tuple(sms * ctas // cluster_size if sms >= cluster_size else 0 for sms in sm_groups)
