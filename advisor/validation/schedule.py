"""The experiment on schedules: other work holds SMs while every schedule runs the same tiles; the simulation says first
what will come out.

The tiles only take time (templates/probe/tiles.cu, under the schedulers of the GEMM kernels), so that nothing but the
schedule differs: no cache, no clock that moves. Predictions are `simulation`'s for the device's profile.

Imports `codegen` (templates), `simulation`, `machine`, `records` and `errors`; the toolchain inside `schedule_images`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.errors import AdvisorError
from advisor.machine.features import Feature, supports
from advisor.machine.occupancy import clusters_that_fit, free_clusters
from advisor.machine.profile import DeviceProfile
from advisor.records.candidate import SCHEDULES, Schedule
from advisor.simulation import Setup, simulate, skewed_costs
from advisor.validation.workers import Worker, WorkerStopped

BACKEND = "advisor.validation.schedule_gpu:ScheduleBackend"
Images = Callable[[DeviceProfile], Mapping[str, bytes]]

TILES_PER_WORKER = 16
TILE_US = 60.0
SKEW_CV = 0.5
CLUSTERS = (1, 2)
REPEATS = 5
WITHIN = 0.10  # a predicted ratio is right within this
GAIN = 1.25  # a dynamic schedule over a static one with a third of the SMs held, equal tiles, one CTA a cluster
EXAMPLE_TILES, EXAMPLE_PLANNED, EXAMPLE_PLACES, EXAMPLE_US = 12, 4, 3, 400.0  # 6 tile times static, 4 dynamic
EXAMPLE_WITHIN = 0.05


@dataclass(frozen=True, slots=True)
class Trial:
    """One launch: tiles of given costs under a schedule, on a grid of `planned` clusters, with `held` SMs taken."""

    name: str
    schedule: Schedule
    cluster: int
    held: int
    costs_ns: tuple[int, ...]
    planned: int  # clusters of the grid
    predicted_us: float


def image_name(schedule: Schedule, cluster: int) -> str:
    return f"tiles_{schedule}_{cluster}"


def schedules_of(profile: DeviceProfile) -> tuple[Schedule, ...]:
    """What the tiles can run under on this device."""
    return tuple(each for each in SCHEDULES if each != "clc" or supports(Feature.CLC, profile.arch))


def schedule_images(profile: DeviceProfile) -> dict[str, bytes]:
    """The cubins of the holders and of the tiles under every schedule and cluster size. Raises ToolError."""
    from advisor.codegen import templates
    from advisor.toolchain import Unit, compile_many

    tiles, hold = templates.load("probe/tiles.cu"), templates.load("probe/hold.cu")
    units = {"hold": Unit("hold.cu", hold, templates.headers_for(hold), profile.arch, {})}
    for number, schedule in enumerate(SCHEDULES):
        if schedule in schedules_of(profile):
            for cluster in CLUSTERS:
                defines = {"ADVISOR_SCHEDULE": number, "ADVISOR_CLUSTER": cluster}
                headers = templates.headers_for(tiles)
                units[image_name(schedule, cluster)] = Unit("tiles.cu", tiles, headers, profile.arch, defines)
    return {name: image.cubin for name, image in zip(units, compile_many(units.values()), strict=True)}


def trials(profile: DeviceProfile) -> list[Trial]:
    """Every launch of the experiment, predicted. Nothing has run yet."""
    found: list[Trial] = []
    for cluster in CLUSTERS:
        workers = clusters_that_fit(profile, 1, cluster)
        count = TILES_PER_WORKER * workers
        for skewed in (False, True):
            costs_us = skewed_costs(count, TILE_US, SKEW_CV if skewed else 0.0, seed=1)
            for held in (0, 8, profile.sms // 3):
                name = f"{'skewed' if skewed else 'equal'} tiles, clusters of {cluster}, {held} SMs held"
                places = free_clusters(profile, 1, cluster, held)
                found += [
                    _trial(profile, name, schedule, cluster, held, costs_us, workers, places)
                    for schedule in schedules_of(profile)
                ]
    name = f"{EXAMPLE_TILES} equal tiles on {EXAMPLE_PLANNED} planned clusters, {EXAMPLE_PLACES} of them resident"
    costs_us = np.full(EXAMPLE_TILES, EXAMPLE_US)
    held = profile.sms - EXAMPLE_PLACES
    found += [
        _trial(profile, name, schedule, 1, held, costs_us, EXAMPLE_PLANNED, EXAMPLE_PLACES)
        for schedule in schedules_of(profile)
        if schedule in ("static", "ticket", "clc")
    ]
    return found


def _trial(
    profile: DeviceProfile,
    name: str,
    schedule: Schedule,
    cluster: int,
    held: int,
    costs_us: Any,
    planned: int,
    places: int,
) -> Trial:
    clk = profile.max_clock_hz / 1e6
    claims = {"ticket": profile.atomic_round_trip_cycles, "clc": profile.clc_round_trip_cycles}
    persistent = schedule in ("static", "ticket")
    outcome = simulate(
        Setup(
            schedule=schedule,
            cost_us=costs_us,
            resident=places,
            planned=planned if persistent else None,
            claim_us=claims.get(schedule, 0.0) / clk,
            prefetch=1,
            throttle=1,
        )
    )
    grid = planned if persistent else len(costs_us)
    nanoseconds = tuple(round(1000 * float(each)) for each in costs_us)
    return Trial(name, schedule, cluster, held, nanoseconds, grid, profile.launch_us + outcome.makespan_us)


def experiment(device_index: int, profile: DeviceProfile, images: Images, backend: str = BACKEND) -> dict[str, Any]:
    """Predicts, then measures, then judges. What keeps it from running is the reason of `not_run`."""
    document = {"name": "schedule", "verdict": "not_run"}
    planned = trials(profile)
    try:
        compiled = images(profile)
        worker = Worker(backend)
    except AdvisorError as error:
        return {**document, "reason": str(error)}
    try:
        worker.call("open", device_index)
        measured = worker.call("run", planned, compiled, REPEATS)
    except WorkerStopped as stopped:
        return {**document, "reason": stopped.detail}
    except AdvisorError as error:
        return {**document, "reason": str(error)}
    finally:
        worker.kill()
        worker.close()
    return judge_schedules(planned, measured, profile)


def judge_schedules(
    planned: Sequence[Trial], measured: Mapping[int, Sequence[float]], profile: DeviceProfile
) -> dict[str, Any]:
    """What the measured times say of the simulation. `measured` has the samples of each trial by its number.

    The unit of a claim is a ratio: a schedule's time over the static one's of the same tiles. The simulation is right
    where every predicted ratio is within 10 % of the measured one (5 % in the example of 12 tiles). The choice of a
    dynamic schedule is right where it is 1.25 times as fast or faster with a third of the SMs held, equal tiles and one
    CTA a cluster: with larger ones the SMs that are left without a partner take some of the gain.
    """
    rows, wrong = [], []
    medians = {number: statistics.median(samples) for number, samples in measured.items()}
    static = {each.name: number for number, each in enumerate(planned) if each.schedule == "static"}
    gains = []
    for number, each in enumerate(planned):
        if number not in medians or static[each.name] not in medians:
            continue
        base = static[each.name]
        predicted = planned[base].predicted_us / each.predicted_us
        found = medians[base] / medians[number]
        error = predicted / found - 1.0
        limit = EXAMPLE_WITHIN if len(each.costs_ns) == EXAMPLE_TILES else WITHIN
        if abs(error) > limit:
            wrong.append(f"{each.name}, {each.schedule}: {predicted:.3f} predicted, {found:.3f} measured")
        third = each.held == profile.sms // 3 and each.cluster == 1 and len(set(each.costs_ns)) == 1
        if third and each.schedule in ("ticket", "clc"):
            gains.append(found)
        rows.append(
            {
                "trial": each.name,
                "schedule": each.schedule,
                "predicted_us": each.predicted_us,
                "measured_us": medians[number],
                "spread_us": max(measured[number]) - min(measured[number]),
                "predicted_gain": predicted,
                "measured_gain": found,
                "error": error,
            }
        )
    confirmed = not wrong and bool(gains) and min(gains) >= GAIN
    return {
        "name": "schedule",
        "verdict": "confirms" if confirmed else "refutes" if rows else "not_run",
        "least_gain_a_third_held": min(gains) if gains else None,
        "wrong": wrong,
        "rows": rows,
    }
