"""The profile of the GPU at hand, measured. Imports `devices`; codegen, runtime and toolchain inside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import InputError
from advisor.workflow.devices import parse_device
from advisor.workflow.files import write_text
from advisor.workflow.progress import Advanced, Progress, silent, stage

if TYPE_CHECKING:
    from advisor.runtime.probe import ProbeResult


def probe_gpu(device: str = "auto", *, output: Path | None = None, progress: Progress = silent) -> ProbeResult:
    """Measure the GPU at hand and, with `output`, write its profile there as TOML. Raises DeviceError, OutputError."""
    from advisor.codegen import templates
    from advisor.machine.profile_file import write_profile
    from advisor.runtime import open_device
    from advisor.runtime.probe import probe, probe_units
    from advisor.toolchain import Unit, compile_many

    choice = parse_device(device)
    if choice.kind == "emulator":
        raise InputError("DEVICE_UNKNOWN", "the emulator has nothing to measure", fix="use auto, cuda or cuda:N")
    with open_device(choice.index) as gpu:
        rows = probe_units(gpu.info.compute_capability)
        texts = [templates.load(row.template) for row in rows]
        with stage(progress, "build", f"{len(rows)} probe kernels"):
            images = compile_many(
                Unit(f"{row.name}.cu", text, templates.headers_for(text), row.target, {})
                for row, text in zip(rows, texts, strict=True)
            )
        done = 0

        def advance(detail: str) -> None:
            nonlocal done
            done += 1
            progress(Advanced("probe", detail, done))

        with stage(progress, "probe", gpu.info.name):
            cubins = {row.name: image.cubin for row, image in zip(rows, images, strict=True)}
            result = probe(gpu, cubins, progress=advance)
    if output is not None:
        write_text(output, write_profile(result.profile))
    return result
