"""Devices that run the tiles of the schedule experiment: one as the simulation has it, others as it has not."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from advisor.errors import ToolError
from advisor.validation.schedule import Trial


class Faithful:
    """What was predicted, with the scatter of a real device and 5 us of a launch's own."""

    def __init__(self, stage: Callable[[str, float], None]) -> None:
        self.stage = stage

    def open(self, index: int) -> None:
        pass

    def run(self, trials: Sequence[Trial], images: Mapping[str, bytes], repeats: int) -> dict[int, list[float]]:
        source = np.random.default_rng(0)
        return {
            number: (self.time_us(each) * np.exp(source.normal(0.0, 0.003, repeats)) + 5.0).tolist()
            for number, each in enumerate(trials)
        }

    def time_us(self, trial: Trial) -> float:
        return trial.predicted_us


class NoGain(Faithful):
    """A device where a dynamic schedule is as slow as a static one."""

    def time_us(self, trial: Trial) -> float:
        return trial.predicted_us * (1.3 if trial.held and trial.schedule == "ticket" else 1.0)


class Crashes(Faithful):
    def run(self, trials: Sequence[Trial], images: Mapping[str, bytes], repeats: int) -> dict[int, list[float]]:
        self.stage("equal tiles: launches", 10.0)
        os._exit(9)


class Twice(Faithful):
    def run(self, trials: Sequence[Trial], images: Mapping[str, bytes], repeats: int) -> dict[int, list[float]]:
        raise ToolError("TILES_NOT_ONCE", "tile 3 was counted 12 times, not 6")
