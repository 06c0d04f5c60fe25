"""Backends without a GPU that answer as a noisy one does: a drift that all share, and a scatter of each sample's own.

A kernel's true time is that of `true_us`; subclasses change it, or end the ways that kernels end.
"""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Callable

import numpy as np

from advisor.bench.gpu import Greeting, Job, Measured, Outcome
from advisor.bench.results import State
from advisor.errors import DeviceError
from advisor.records.evidence import Chip

SCATTER = 0.004  # of a sample: what an H200 shows
DRIFT = 0.02  # of the clock over a run


class Noisy:
    def __init__(self, stage: Callable[[str, float], None]) -> None:
        self.stage = stage
        self.calls = 0

    def open(self, index: int) -> None:
        self.index = index

    def greet(self) -> Greeting:
        chip = Chip(name="NVIDIA H200", compute_capability=(9, 0), uuid_hash="0" * 16, driver="580.1")
        return Greeting(chip, 60 * 2**20, {"numpy": np.__version__, "torch": "2.11"}, "made up")

    def measure(self, job: Job) -> Outcome:
        self.calls += 1
        self.stage("inputs", 60.0)
        found: dict[str, Measured] = {}
        seed = zlib.crc32(f"{job.name} {len(job.entries)}".encode())
        source = np.random.default_rng(seed)
        drift = 1.0 + DRIFT * np.linspace(0, 1, job.rounds)
        for entry in job.entries:
            self.stage(f"{entry.name}: launch", self.limit(entry.name))
            self.run(entry.name)
            if (wrong := self.wrong(entry.name)) is not None:
                found[entry.name] = wrong
                continue
            for name in [entry.name, *([f"{entry.name} twin"] if entry.name in job.twins else [])]:
                samples = self.true_us(job, entry.name) * drift * np.exp(source.normal(0.0, SCATTER, job.rounds))
                state = State(sm_mhz=1700.0, watts=650.0, celsius=50.0)
                found[name] = Measured("correct", "", "", samples.tolist(), 40, state)
        for name in job.baselines:
            self.stage(f"{name}: launch", 60.0)
            samples = 100.0 * drift * np.exp(source.normal(0.0, SCATTER, job.rounds))
            found[name] = Measured("not_run", "", f"made-up {name}", samples.tolist(), 40)
        return Outcome({"m": 1}, 2 * 10**12, 10**9, 3, 3 * 10**9, found)

    def true_us(self, job: Job, name: str) -> float:
        return 110.0 + zlib.crc32(name.encode()) % 50 if name != "pick" else 100.0

    def limit(self, name: str) -> float:
        return 60.0

    def run(self, name: str) -> None:
        """What the kernel does to its process."""

    def wrong(self, name: str) -> Measured | None:
        return None


class FastRival(Noisy):
    """Rival 3 is 10 % faster than the pick."""

    def true_us(self, job: Job, name: str) -> float:
        return 90.0 if name == "rival 3" else super().true_us(job, name)


class Tied(Noisy):
    """Every kernel takes the same: whoever comes first in a contest is chance."""

    def true_us(self, job: Job, name: str) -> float:
        return 100.0


class Fluke(Noisy):
    """Rival 1 wins the contest by 5 % and loses the duel."""

    def true_us(self, job: Job, name: str) -> float:
        if name == "rival 1":
            return 95.0 if len(job.entries) > 2 else 101.0
        return super().true_us(job, name)


class Crashing(Noisy):
    """Rival 2 takes its process along, rival 4 hangs, rival 5 faults, rival 6 is wrong."""

    def limit(self, name: str) -> float:
        return 0.3 if name == "rival 4" else 60.0

    def run(self, name: str) -> None:
        if name == "rival 2":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "rival 4":
            time.sleep(600)
        if name == "rival 5":
            raise DeviceError("KERNEL_FAULT", "an illegal address", numbers={"entry": name})

    def wrong(self, name: str) -> Measured | None:
        return Measured("mismatch", "D: 3 elements outside the bound") if name == "rival 6" else None


class BrokenPick(Noisy):
    """The planner's own kernel is wrong."""

    def wrong(self, name: str) -> Measured | None:
        return Measured("mismatch", "D: 1 element outside the bound") if name == "pick" else None


class Library(Noisy):
    """The library crashes: it is no kernel of ours."""

    def measure(self, job: Job) -> Outcome:
        if "library" in job.baselines:
            self.stage("library: launch", 60.0)
            os._exit(5)
        return super().measure(job)


class Hopeless(Noisy):
    """The device cannot be used at all once work begins."""

    def measure(self, job: Job) -> Outcome:
        self.stage("inputs", 60.0)
        raise DeviceError("DEVICE_OUT_OF_MEMORY", "no memory for the copies")
