"""Backends without a GPU: one for each way a kernel's process can end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.bundle import Facts, resolve
from advisor.errors import DeviceError
from advisor.kinds import workload
from advisor.problem import parse_problem
from advisor.records.case import Case
from advisor.records.evidence import Timing
from advisor.validation.checks import NumpyArrays, compare, traced_once
from advisor.validation.emulator import CaseShown, EmulatorBackend
from advisor.validation.gpu import CaseOutcome, KernelFacts, Setup


class Healthy:
    def __init__(self, stage: Callable[[str, float], None]) -> None:
        self.stage = stage
        self.calls = 0

    def open(self, setup: Any) -> None:
        self.setup = setup

    def echo(self, value: Any) -> Any:
        self.calls += 1
        return value, self.calls, os.getpid()

    def dispatch(self, method: str, *args: Any) -> Any:
        return getattr(self, method)(*args)

    def sleep(self, stage: str, limit_s: float) -> None:
        """A kernel that never comes back."""
        self.stage(stage, limit_s)
        time.sleep(600)

    def crash(self) -> None:
        self.stage("own_shape: launch", 10.0)
        os.kill(os.getpid(), signal.SIGSEGV)

    def leave(self) -> None:
        self.stage("own_shape: launch", 10.0)
        sys.stderr.write("something was said on the way\n")
        sys.stderr.flush()
        os._exit(7)

    def garble(self, message: bytes) -> None:
        """Writes into the connection past the protocol."""
        self.stage("own_shape: launch", 10.0)
        os.write(self.stage.__closure__[0].cell_contents.fileno(), message)  # type: ignore[index]
        time.sleep(600)

    def chatter(self, text: str) -> str:
        sys.stdout.write(text)
        sys.stderr.write(text)
        return "done"

    def refuse(self) -> None:
        raise DeviceError("KERNEL_FAULT", "an illegal address", fix="look there", numbers={"value": 700})

    def bug(self) -> None:
        raise ZeroDivisionError("of the tool itself")


class NeverStarts:
    def __init__(self, stage: Callable[[str, float], None]) -> None:
        raise SystemExit(3)


class Simulated:
    """A device that computes: every output is the reference rounded once. Subclasses break it."""

    def __init__(self, stage: Callable[[str, float], None]) -> None:
        self.stage = stage

    def open(self, setup: Setup) -> None:
        self.setup = setup
        self.workload = workload(parse_problem(setup.problem_text, "problem.yaml"))

    def survey(self) -> dict[str, KernelFacts]:
        return {
            kernel.id: KernelFacts(kernel.id in self.setup.images, "no image here", 4, kernel.registers, 0)
            for kernel in self.setup.launch.kernels
        }

    def run_case(
        self, run: str, kernel_ids: Sequence[str], case: Case, repeat: bool = True, keep: str | None = None
    ) -> CaseOutcome:
        self.stage(f"{case.name}: inputs", 60.0)
        kernel = self.setup.launch.kernel(kernel_ids[0])
        resolved = resolve(
            self.setup.launch, kernel.id, case.arguments, self.facts(), self.setup.images[kernel.id].target
        )
        arrays = self.workload.inputs(case)
        reference = self.workload.reference(case, arrays)
        bound = self.workload.bound(case, arrays, kernel.family)
        got = np.where(np.isnan(reference["D"]), 0, reference["D"]).astype(np.float32).astype(arrays["D"].dtype)
        got = np.where(np.isnan(reference["D"]), arrays["D"], got)
        self.stage(f"{case.name}: launch", 1.0)
        got = self.broken(run, case, got)
        self.stage(f"{case.name}: comparison", 60.0)
        found = compare(NumpyArrays(), got, arrays["D"], reference["D"], bound["D"], exact=case.data == "integers")
        checks = dict(found.checks)
        if run.endswith("_traced"):
            checks["traced_once"], _ = traced_once(self.counts(run))
        return CaseOutcome(resolved, checks, found.detail, found.worst, found.ratio, found.digest, 129 if repeat else 1)

    def facts(self) -> Facts:
        ids = [kernel.id for kernel in self.setup.launch.kernels]
        return Facts(132, 132, dict.fromkeys(ids, 4), frozenset(ids))

    def broken(self, run: str, case: Case, got: Any) -> Any:
        return got

    def counts(self, run: str) -> Any:
        return np.ones(4, np.uint32)

    def time(self, kernel_ids: Sequence[str], case: Case) -> Timing:
        return Timing(median_us=10.0, low_us=9.0, high_us=11.0, samples=3)

    def compare_times(self, first: Sequence[str], second: Sequence[str], case: Case) -> tuple[list[float], list[float]]:
        return [10.0, 10.1, 9.9, 10.0], [12.0, 12.1, 11.9, 12.0]


class EmulatorThatHangs(EmulatorBackend):
    """One case never comes to its end, another one takes the process along."""

    def run_case(self, rung: str, images: Any, case: Case, manners: Any, keep: str | None) -> CaseShown:
        if case.name == "k_one":
            self._stage(f"{case.name}: {manners[0]}", 0.3)
            time.sleep(600)
        if case.name == "k_short":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run_case(rung, images, case, manners, keep)


class Broken(Simulated):
    """One fault of each kind, in different places."""

    def broken(self, run: str, case: Case, got: Any) -> Any:
        got = got.copy()
        if (run, case.name) == ("portable_one_tile", "tile_plus_one"):
            got[0] = 0
        if (run, case.name) == ("portable_one_tile", "clusters_one_more"):
            time.sleep(600)
        if (run, case.name) == ("portable_one_tile", "k_one"):
            raise DeviceError("KERNEL_FAULT", "cuCtxSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS")
        return got

    def run_case(self, run: str, *args: Any) -> CaseOutcome:
        outcome = super().run_case(run, *args)
        # Within the bound, but not the bits of the other schedules.
        return replace(outcome, digest="other") if run == "sm90_ticket" else outcome

    def counts(self, run: str) -> Any:
        return np.array([1, 2 if run.startswith("sm90_static") else 1, 1], np.uint32)


class NoClusters(Simulated):
    """No cluster of more than one CTA is resident."""

    def survey(self) -> dict[str, KernelFacts]:
        sizes = {kernel.id: kernel.cluster[0] for kernel in self.setup.launch.kernels}
        return {
            name: replace(each, max_active_clusters=0 if sizes[name] > 1 else 4)
            for name, each in super().survey().items()
        }


class CrashesAlways(Simulated):
    """Hopper's kernels are not resident, the portable one takes its process along."""

    def survey(self) -> dict[str, KernelFacts]:
        return {
            name: replace(each, max_active_clusters=0 if name.startswith("sm90") else 4)
            for name, each in super().survey().items()
        }

    def broken(self, run: str, case: Case, got: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)
        return got
