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

from advisor.accept.backend import AcceptSetup
from advisor.errors import DeviceError
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
