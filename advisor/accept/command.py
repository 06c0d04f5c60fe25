"""The command: reads the bundle, opens the GPU once, runs the steps, writes the result, the profile and runtime.json.

Imports `workflow` and the rooms below.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.accept.drive import BACKEND, Acceptor, Options, Target
from advisor.accept.steps import STEPS, wanted_steps
from advisor.bundle import Bundle, read_bundle, read_runtime_file, write_runtime_file
from advisor.errors import EXIT_DONE, EXIT_NO, InputError, OutputError
from advisor.records.acceptance import Acceptance
from advisor.records.base import canonical_json
from advisor.records.runtime_file import RuntimeFile
from advisor.runtime.device import slug
from advisor.validation.assemble import Build, toolchain_build
from advisor.validation.driver import Task
from advisor.workflow import Advanced, Finished, Noted, Progress, Started, built_rows, parse_device, silent, write_text

LAUNCH_LIMIT_S = 20.0  # of one launch, or of one round of many
LEAST_LIMIT_S, MOST_LIMIT_S = 1.0, 3600.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result and where it lies. `profile` and `runtime` are None where there was nothing to write."""

    bundle: Bundle
    acceptance: Acceptance
    path: Path
    profile: Path | None
    runtime: Path | None

    @property
    def exit_status(self) -> int:
        return EXIT_NO if self.acceptance.verdict == "fail" else EXIT_DONE


def accept_bundle(
    folder: str | Path,
    *,
    device: str = "auto",
    output: Path = Path(),
    timeout_s: float = LAUNCH_LIMIT_S,
    steps: str | None = None,
    progress: Progress = silent,
    target: Target | None = None,
    build: Build = toolchain_build,
    backend: str = BACKEND,
    cases: Collection[str] | None = None,
) -> Accepted:
    """Runs the steps on a GPU and writes OUTPUT/<bundle>.<gpu>.accepted.json after each, and OUTPUT/<gpu>.toml, the
    measured profile. Where Cluster Launch Control does not work, runtime.json of the bundle switches it off.

    `timeout_s` is how long a launch may take. `steps` names steps with commas between; what they need runs too.
    `target`, `build`, `backend` and `cases`, which restricts them by name, are for tests without a GPU. Raises
    InputError, BundleError, OutputError, ToolError, and DeviceError where there is no GPU.
    """
    choice = parse_device(device)
    if choice.kind == "emulator":
        raise InputError(
            "DEVICE_UNKNOWN", "an acceptance is of a GPU", fix="use auto, cuda or cuda:N; advisor validate emulates"
        )
    if not LEAST_LIMIT_S <= timeout_s <= MOST_LIMIT_S:
        raise InputError(
            "ACCEPT_TIMEOUT",
            f"a launch may take {timeout_s:g} s",
            fix=f"use {LEAST_LIMIT_S:g} to {MOST_LIMIT_S:g}",
            numbers={"timeout_s": timeout_s},
        )
    wanted = wanted_steps(steps)
    bundle = read_bundle(folder)
    off = read_runtime_file(bundle)
    found = target or read_target(choice.index)
    built = built_rows(bundle, progress)
    name = slug(found.info.name)
    _make_folder(output)
    path = output / f"{bundle.name}.{name}.accepted.json"
    written: dict[str, Path] = {}

    def save(acceptance: Acceptance) -> None:
        write_text(path, canonical_json(acceptance))
        if acceptance.profile is not None and "profile" not in written:
            written["profile"] = output / f"{name}.toml"
            write_text(written["profile"], acceptance.profile)

    def switch_off(reason: str) -> None:
        written["runtime"] = write_runtime_file(bundle, RuntimeFile(clc="off", reason=reason))
        progress(Noted(f"Cluster Launch Control is switched off in {written['runtime']}: {reason}"))

    began = time.monotonic()
    progress(Started("accept", bundle.name))
    with tempfile.TemporaryDirectory(prefix="advisor-accept-") as scratch:
        task = Task(bundle, built, Path(scratch), build, _advance(progress), cases=cases)
        options = Options(wanted, timeout_s, off, lambda cc: device_images(cc, build), switch_off, save, backend)
        acceptance = Acceptor(task, found, options).run()
    progress(Finished("accept", f"{bundle.name} on {found.info.name}: {acceptance.verdict}", time.monotonic() - began))
    return Accepted(bundle, acceptance, path, written.get("profile"), written.get("runtime"))


def read_target(index: int) -> Target:
    """What a GPU is. It is closed again: what hangs later hangs in a child. Raises DeviceError."""
    from advisor.runtime import open_device

    with open_device(index) as gpu:
        return Target(gpu.info, gpu.profile())


def device_images(capability: tuple[int, int], build: Build) -> Mapping[str, bytes]:
    """The cubins of the probe by name, and of the kernel that holds SMs. Raises ToolError, DeviceError UNKNOWN_CHIP."""
    from advisor.bundle import BuildUnit
    from advisor.codegen import templates
    from advisor.runtime.probe import own_target, probe_units

    rows = [(each.name, each.template, each.target) for each in probe_units(capability)]
    rows.append(("hold", "probe/hold.cu", own_target(capability)))
    units = []
    for name, template, target in rows:
        text = templates.load(template)
        units.append(BuildUnit(name, target, f"{name}.cu", text, templates.headers_for(text), {}))
    return {unit.kernel_id: image.cubin for unit, image in zip(units, build(units), strict=True)}


def _advance(progress: Progress) -> Callable[[str, int, int | None], None]:
    return lambda detail, done, total: progress(Advanced("accept", detail, done, total or len(STEPS)))


def _make_folder(output: Path) -> None:
    """Before the work, not after it. Raises OutputError."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        if not os.access(output, os.W_OK):
            raise PermissionError(13, "it is read-only")
    except OSError as error:
        raise OutputError(
            "OUTPUT_NOT_WRITABLE",
            f"{output} cannot be written: {error.strerror or error}",
            fix="pass another --output",
            numbers={"path": str(output)},
        ) from error
