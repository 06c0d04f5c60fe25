"""Backends of an acceptance without a GPU: one that computes, and one for each way in which a kernel can go wrong."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.accept.backend import AcceptSetup
from advisor.bundle import resolve
from advisor.emulator import KernelFault, load_program
from advisor.emulator import run as emulate
from advisor.emulator.world import cut_profile
from advisor.errors import DeviceError
from advisor.machine import load_profile
from advisor.records.case import Case
from advisor.validation.gpu import CaseOutcome

_spec = importlib.util.spec_from_file_location(
    "validation_backends", Path(__file__).parent.parent / "validation" / "backends.py"
)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules["validation_backends"] = _module
_spec.loader.exec_module(_module)
Simulated: Any = _module.Simulated


class Right(Simulated):  # type: ignore[misc]
    """Every kernel right. 4 clusters of each are resident."""

    def open(self, setup: AcceptSetup) -> None:
        self.limit_s = setup.launch_limit_s
        assert setup.hold
        super().open(setup.gpu)

    def libraries(self) -> dict[str, str]:
        return {"numpy": "1"}

    def load(self) -> dict[str, str]:
        return dict.fromkeys(self.setup.images, "")

    def calibrate(self, images: Mapping[str, bytes]) -> tuple[str, dict[str, Any]]:
        assert "hold" not in images
        return "name = 'measured'\n", {"images": sorted(images)}

    def run_held(self, run: str, kernel_ids: Sequence[str], case: Case, sms: int) -> CaseOutcome:
        return replace(self.run_case(run, kernel_ids, case, False), launches=2)

    def run_graph(self, run: str, kernel_ids: Sequence[str], case: Case) -> CaseOutcome:
        return replace(self.run_case(run, kernel_ids, case, False), launches=257)

    def run_many(self, run: str, kernel_ids: Sequence[str], case: Case) -> CaseOutcome:
        return replace(self.run_case(run, kernel_ids, case, False), launches=1001)

    def broken(self, run: str, case: Case, got: Any) -> Any:
        self.stage(f"{case.name}: launch", self.limit_s)
        self.launch(run, case)
        return self.stored(run, case, got)

    def launch(self, run: str, case: Case) -> None:
        """What a kernel does to its process."""

    def stored(self, run: str, case: Case, got: Any) -> Any:
        """What a kernel leaves in its output."""
        return got


class ClcHangs(Right):
    def launch(self, run: str, case: Case) -> None:
        if "clc" in run and case.name == "clusters_waves":
            time.sleep(600)


class ClcIsWrong(Right):
    def stored(self, run: str, case: Case, got: Any) -> Any:
        wrong = got.copy()
        if "clc" in run and case.name == "clusters_waves":
            wrong[0] = 1000
        return wrong


class PairHangs(Right):
    """The cluster kernels never come back."""

    def launch(self, run: str, case: Case) -> None:
        if "2x1x1" in run:
            time.sleep(600)


class OneTileCrashes(Right):
    def launch(self, run: str, case: Case) -> None:
        if run.startswith("portable"):
            os.kill(os.getpid(), signal.SIGSEGV)


class PortableFaults(Right):
    def launch(self, run: str, case: Case) -> None:
        if run.startswith("portable") and case.name == "k_deep":
            raise DeviceError("KERNEL_FAULT", "cuCtxSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS")


class TalksGarbage(Right):
    """The child writes something else than the protocol into the connection, and lives on."""

    def launch(self, run: str, case: Case) -> None:
        if run.startswith("portable"):
            descriptor = self.stage.__closure__[0].cell_contents.fileno()
            os.write(descriptor, b"\x00\x00\x00\x08garbage!")
            time.sleep(600)


class NothingResident(Right):
    def survey(self) -> Any:
        return {
            name: replace(each, max_active_clusters=0 if "2x1x1" in name else 4)
            for name, each in super().survey().items()
        }


class DoesNotLoad(Right):
    def load(self) -> dict[str, str]:
        return dict.fromkeys(self.setup.images, "the driver is too old")


class CalibrationFails(Right):
    def calibrate(self, images: Mapping[str, bytes]) -> tuple[str, dict[str, Any]]:
        raise DeviceError("DEVICE_OUT_OF_MEMORY", "no memory for the copy")


class NobodyHolds(Right):
    def run_held(self, run: str, kernel_ids: Sequence[str], case: Case, sms: int) -> CaseOutcome:
        raise DeviceError("HOLDERS_MISSING", f"3 of {sms} CTAs that hold an SM each are running")


class NeverOpens(Right):
    def open(self, setup: AcceptSetup) -> None:
        raise DeviceError("DEVICE_UNREADABLE", "the device does not answer any more")


class ClcInTheEmulator(Right):
    """Kernels of Cluster Launch Control run as they were built: their PTX, in the emulator, on a GPU of which other
    work leaves room for one cluster. A launch that cannot end there does not come back here either; one that ends
    leaves what the kernels beside it do, whose last bits are the reference's."""

    def broken(self, run: str, case: Case, got: Any) -> Any:
        if "clc" not in run:
            return super().broken(run, case, got)
        self.stage(f"{case.name}: emulation", 300.0)
        image = self.setup.images[run]
        kernel = self.setup.launch.kernel(run)
        program = load_program(Path(image.path).with_suffix(".ptx").read_text(), kernel.entry, run)
        launch = resolve(self.setup.launch, run, case.arguments, self.facts(), image.target)
        arrays = self.workload.inputs(case)
        device = cut_profile(load_profile("b200"), 2)
        try:
            outcome = emulate(program, launch, inputs=arrays, profile=device, busy_sms=device.sms - 2)
        except KernelFault as fault:
            if fault.code != "EMU_DEADLOCK":
                raise
            self.stage(f"{case.name}: launch", self.limit_s)
            time.sleep(600)
        result = outcome.buffers["D"].view(got.dtype).reshape(got.shape).astype(np.float64)
        assert np.allclose(result, got.astype(np.float64), rtol=0.01, atol=0.01, equal_nan=True)
        return got
