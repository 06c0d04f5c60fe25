"""The end of the schedule experiment on a GPU: holds SMs, runs tiles, counts that each ran once. Lives in a child.

Imports `runtime`, `records`, `errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.errors import ToolError
from advisor.records.launch import PtrParam, ResolvedLaunch, ScalarParam, ScratchParam
from advisor.runtime import Device, Prepared, open_device
from advisor.runtime.contention import LIMIT_S, Holder
from advisor.validation.schedule import Trial, image_name

ENTRY = "probe_tiles"


class ScheduleBackend:
    """Made by `child.main`."""

    def __init__(self, stage: Callable[[str, float], None]) -> None:
        self._stage = stage

    def open(self, device_index: int) -> None:
        self._stage("opening the device", 60.0)
        self._device: Device = open_device(device_index)

    def run(self, trials: Sequence[Trial], images: Mapping[str, bytes], repeats: int) -> dict[int, list[float]]:
        """Microseconds of every trial by its number, `repeats` of each. Raises ToolError TILES_NOT_ONCE."""
        device = self._device
        most = max(len(each.costs_ns) for each in trials)
        costs, done = device.allocate(4 * most), device.allocate(4 * most)
        found: dict[int, list[float]] = {}
        for held in sorted({each.held for each in trials}):
            own = [(number, each) for number, each in enumerate(trials) if each.held == held]
            holder = Holder(device, images["hold"], held)
            for number, trial in own:
                device.upload(np.array(trial.costs_ns, np.uint32), costs)
                device.fill(done, 0)
                work = self._prepare(trial, images, {"costs_ns": costs.address, "done": done.address})
                self._stage(f"{trial.name}, {trial.schedule}: first launch", LIMIT_S + 5.0)
                device.time_us(work)  # on the idle device: what it sets up is set up
                device.synchronize()
                self._stage(f"{trial.name}, {trial.schedule}: launches", 3 * LIMIT_S)
                with holder:
                    found[number] = [device.time_us(work) for _ in range(repeats)]
                counts = device.download(done).view(np.uint32)[: len(trial.costs_ns)]
                wanted = trial.cluster * (repeats + 1)
                _check_once(trial, counts, wanted)
            holder.close()
        device.free(costs)
        device.free(done)
        return found

    def _prepare(self, trial: Trial, images: Mapping[str, bytes], addresses: Mapping[str, int]) -> Prepared:
        device = self._device
        kernel = device.load(images[image_name(trial.schedule, trial.cluster)], ENTRY)
        resolved = ResolvedLaunch(
            entry=ENTRY,
            target="",
            grid_blocks=(trial.planned * trial.cluster, 1, 1),
            block=(64, 1, 1),
            cluster=(trial.cluster, 1, 1),
            dynamic_smem_bytes=device.info.limits["smem_per_block_bytes"] // 2 + 1024,  # one CTA on an SM
            params=[
                PtrParam(name="costs_ns", buffer="costs_ns"),
                PtrParam(name="done", buffer="done"),
                ScalarParam(kind="u32", name="total", value=len(trial.costs_ns)),
                ScratchParam(name="tickets", bytes=4, align=256, init="zeros"),
            ],
            buffers={},
        )
        return device.prepare(kernel, resolved, addresses, device.scratch())


def _check_once(trial: Trial, counts: NDArray[np.uint32], wanted: int) -> None:
    """Every CTA of a cluster ran every tile once a launch. Raises ToolError TILES_NOT_ONCE."""
    wrong = np.flatnonzero(counts != wanted)
    if len(wrong):
        tile = int(wrong[0])
        raise ToolError(
            "TILES_NOT_ONCE",
            f"{trial.name}, {trial.schedule}: tile {tile} was counted {counts[tile]} times, not {wanted}",
            fix="this is a fault of the schedulers: report it",
            numbers={"tile": tile, "count": int(counts[tile]), "wanted": wanted},
        )
