"""`validate`: what of a bundle runs where, and what it showed as Evidence.

Imports the rooms below `validation`; the toolchain only where kernels beside the bundle's are built.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from functools import partial
from pathlib import Path

from advisor.bundle import Bundle, read_build
from advisor.errors import BundleError
from advisor.records.evidence import Evidence
from advisor.runtime import Device
from advisor.validation.assemble import Build, Row, bundle_rows, toolchain_build
from advisor.validation.driver import BuildRows, Progress, Task, silent
from advisor.validation.experiment import check_experiment
from advisor.validation.gates import compiled_rows, not_run
from advisor.validation.merge import merged
from advisor.validation.on_emulator import Emulation, OnEmulator
from advisor.validation.on_gpu import GPU_BACKEND, OnGpu

NO_TIME = "times are measured on a GPU: the emulator has none"


def validate(
    bundle: Bundle,
    *,
    device: Device | None,
    emulation: Emulation | None = None,
    build: Build = toolchain_build,
    progress: Progress | None = None,
    keep: Path | None = None,
    experiment: str | None = None,
    cases: Collection[str] | None = None,
    reason: str = "no GPU at hand",
    backend: str = GPU_BACKEND,
) -> Evidence:
    """Runs `bundle` and returns what it showed: on `device` alone, with `emulation` in the emulator alone, with both
    each kernel on the device where it runs there, else in the emulator. With neither, nothing runs. What needs a GPU
    and has none is `not_run`, with `reason`.

    `build` compiles kernels that the bundle does not hold (other schedules, traced twins, the alternative). `keep` is
    a folder for every case as a resolved launch. `cases` restricts the cases by name. `backend` names what runs in
    the children that have the GPU. Raises BundleError BUILD_MISSING, InputError EXPERIMENT_UNKNOWN, DeviceError when
    the device cannot be opened again from a child.
    """
    check_experiment(experiment)
    built = read_build(bundle)
    if built is None:
        raise BundleError(
            "BUILD_MISSING",
            f"{bundle.name} is not built, or was built from another manifest",
            fix="run advisor generate again",
            numbers={"folder": str(bundle.folder)},
        )
    found: Evidence | None = None
    with tempfile.TemporaryDirectory(prefix="advisor-validate-") as folder:
        task = Task(bundle, built, Path(folder), build, progress or silent, keep, cases)
        on_gpu = None if device is None else OnGpu(task, device, only_what_runs=emulation is not None)
        if on_gpu is not None:
            found = on_gpu.run(experiment, backend)
        if emulation is not None and any(_is_left(on_gpu, row) for row in bundle_rows(bundle)):
            on_emulator = OnEmulator(task, emulation, reason=reason if on_gpu is None else None)
            found = merged(found, on_emulator.run(partial(_is_left, on_gpu)))
    if found is None:
        found = _nothing(bundle, built, reason)
    if experiment and device is None:
        why = reason if emulation is None else f"{reason}; {NO_TIME}"
        found = found.model_copy(update={"experiment": {"name": experiment, "verdict": "not_run", "reason": why}})
    return found


def _is_left(on_gpu: OnGpu | None, row: Row) -> bool:
    """Whether the emulator is to run a row: whatever does not run on the GPU."""
    return on_gpu is None or not on_gpu.runs(row)


def evidence_of_build(bundle: Bundle, reason: str) -> Evidence | None:
    """What a bundle's images show without a run; None where it is not built, or from another manifest."""
    built = read_build(bundle)
    return None if built is None else _nothing(bundle, built, reason)


def _nothing(bundle: Bundle, built: BuildRows, reason: str) -> Evidence:
    return Evidence(
        bundle=bundle.name,
        manifest_hash=bundle.manifest_hash,
        not_run_reason=reason,
        gates=[not_run(row, reason) for row in compiled_rows(bundle, built)],
        verdict="not_run",
    )
