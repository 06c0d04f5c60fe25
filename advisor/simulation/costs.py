"""Inputs of a simulation: tile costs with a given skew, launch orders, workers that start late. Imports `machine`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from advisor.machine.occupancy import clusters_by_group, free_clusters
from advisor.machine.profile import DeviceProfile


def skewed_costs(count: int, mean_us: float, cv: float, seed: int) -> NDArray[np.float64]:
    """`count` log-normal tile costs, microseconds, with coefficient of variation `cv`; the same for the same seed.

    They are scaled so that their mean is exactly `mean_us`: schedules are then compared at equal work.
    """
    if count == 0 or cv == 0.0:
        return np.full(count, mean_us)
    sigma = math.sqrt(math.log1p(cv * cv))
    # The legacy generator, because its streams are frozen: the same seed gives the same plan under every NumPy.
    costs = np.random.RandomState(seed % 2**32).lognormal(-sigma * sigma / 2, sigma, count)
    return np.asarray(costs * (mean_us * count / costs.sum()))


def longest_first(costs_us: NDArray[np.float64]) -> NDArray[np.intp]:
    """The launch order that hands out the dearest tiles first; equal ones keep their order."""
    return np.argsort(-costs_us, kind="stable")


def boundary_counts(resident: int) -> tuple[int, ...]:
    """Tile counts at which a schedule changes its behaviour: one fewer than resident clusters, as many, one more."""
    return tuple(count for count in (resident - 1, resident, resident + 1) if count > 0)


def late_starts(
    profile: DeviceProfile, ctas: int, cluster_size: int, busy_sms: int, busy_until_us: float
) -> NDArray[np.float64]:
    """Start time of each resident cluster, microseconds, while other work holds `busy_sms` SMs until `busy_until_us`.

    `ctas` per SM as `ctas_per_sm` has it. The array is as long as the formula's answer for the idle GPU; the early
    ones come first, and `machine.occupancy.free_clusters` says how many they are.
    """
    starts = np.full(sum(clusters_by_group(profile, ctas, cluster_size)), float(busy_until_us))
    starts[: free_clusters(profile, ctas, cluster_size, busy_sms)] = 0.0
    return starts
