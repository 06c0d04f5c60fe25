"""One kernel of a PTX file in the emulator, as a launch file says. Imports `files`; the emulator inside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from advisor.errors import EXIT_DONE, EXIT_NO, InputError
from advisor.workflow.files import check_writable, write_bytes
from advisor.workflow.progress import Advanced, Noted, Progress, silent, stage

if TYPE_CHECKING:
    from advisor.emulator import KernelFault, Outcome
    from advisor.emulator.expected import Comparison


@dataclass(frozen=True, slots=True)
class Emulated:
    """What a kernel did on the CPU: its outcome with the formulas held against it, or the fault that ended it."""

    entry: str
    outcome: Outcome | None
    fault: KernelFault | None
    comparisons: tuple[Comparison, ...]
    ignored: tuple[str, ...]  # keys of the launch file that are not known

    @property
    def exit_status(self) -> int:
        return EXIT_NO if self.fault or not all(each.passed for each in self.comparisons) else EXIT_DONE


def emulate(
    ptx: Path,
    *,
    launch: Path,
    inputs: Path | None = None,
    outputs: Path | None = None,
    seed: int = 0,
    async_policy: str = "random",
    clc: str = "grant",
    cluster_mix: str = "fill",
    busy_sms: int = 0,
    predecessor_writes: Collection[str] | None = None,
    numerics: str = "fp32",
    profile: str | None = None,
    progress: Progress = silent,
) -> Emulated:
    """Executes the kernel of a PTX file as a launch file says. `outputs` is written where the kernel comes to its end.
    `predecessor_writes` replaces what the file says; `all` names every buffer and scratch.

    Raises InputError where the files do not fit together or the hardware would refuse the launch."""
    from advisor.emulator import KernelFault, load_program
    from advisor.emulator import run as run_kernel
    from advisor.emulator.expected import compare, expectations
    from advisor.emulator.launch_file import check_layout, read_arrays, read_launch, read_ptx
    from advisor.emulator.launching import check_inputs

    if numerics not in ("fp32", "model"):
        raise InputError("EMU_POLICY", f"unknown arithmetic {numerics!r}", fix="use --mma fp32 or --mma model")
    if outputs is not None:
        check_writable(outputs)
    read = read_launch(launch)
    for key in read.ignored:
        progress(Noted(f"{launch}: {key} is not known and was ignored"))
    program = load_program(read_ptx(ptx), read.launch.entry, ptx.name)
    check_layout(program, read)
    arrays = read_arrays(inputs) if inputs is not None else {}
    entry = read.launch.entry
    late = predecessor_writes
    if late is not None and list(late) == ["all"]:
        late = [*read.launch.buffers, *(each.name for each in read.launch.params if each.kind == "scratch")]
    with stage(progress, "emulate", entry) as result:
        try:
            check_inputs(read.launch, arrays)
            expected = expectations(read.launch, arrays)
            outcome = run_kernel(
                program,
                read.launch,
                inputs=arrays,
                seed=seed,
                async_policy=async_policy,
                clc=clc,
                cluster_mix=cluster_mix,
                busy_sms=busy_sms,
                predecessor_writes=late,
                numerics=cast("Literal['fp32', 'model']", numerics),
                profile=profile,
                progress=lambda done, total: progress(Advanced("emulate", "clusters", done, total)),
            )
        except KernelFault as fault:
            result.append(f"{entry} failed: {fault.finding.code}")
            return Emulated(entry, None, fault, (), read.ignored)
        except MemoryError as error:
            raise InputError(
                "EMU_BUFFER",
                f"{launch}: this machine has no memory for the buffers",
                fix="emulate a smaller problem: the checks see the same code",
            ) from error
        result.append(f"{entry}: {outcome.warp_instructions} warp instructions")
    if outputs is not None:
        _write_arrays(outputs, outcome.buffers)
    buffers = read.launch.buffers
    comparisons = tuple(compare(each, outcome.buffers[each.buffer], buffers[each.buffer]) for each in expected)
    return Emulated(entry, outcome, None, comparisons, read.ignored)


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """A NumPy archive, whole or not at all. Raises OutputError."""
    import io

    import numpy as np

    content = io.BytesIO()
    np.savez(content, **arrays)
    write_bytes(path, content.getvalue())
