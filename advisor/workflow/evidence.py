"""A bundle to its evidence and its report, and all of it at once.

Imports `bundles`; validation and report inside the functions that use them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import EXIT_DONE, EXIT_NO, OutputError
from advisor.records.evidence import Evidence
from advisor.records.plan import Plan
from advisor.workflow.bundles import DEFAULT_OUTPUT, Generated, build, generated_for
from advisor.workflow.devices import NOT_ASKED, DeviceChoice, at_hand, parse_device
from advisor.workflow.plans import read, resolve_target
from advisor.workflow.progress import Advanced, Noted, Progress, silent, stage

if TYPE_CHECKING:
    from advisor.bundle import Bundle
    from advisor.runtime import Device

VALIDATED_REPORT = "report.validated.md"
VALIDATION = "validation.json"


@dataclass(frozen=True, slots=True)
class Validated:
    """A bundle with its evidence."""

    bundle: Bundle
    evidence: Evidence

    @property
    def exit_status(self) -> int:
        return EXIT_NO if self.evidence.verdict == "fail" else EXIT_DONE


@dataclass(frozen=True, slots=True)
class Ran:
    """All of `run`: generated, and validated where there was a bundle."""

    generated: Generated
    validated: Validated | None

    @property
    def exit_status(self) -> int:
        return max(self.generated.exit_status, self.validated.exit_status if self.validated else EXIT_DONE)


def validate_bundle(
    folder: str | Path,
    *,
    device: str = "auto",
    experiment: str | None = None,
    keep: Path | None = None,
    full: bool = False,
    progress: Progress = silent,
) -> Validated:
    """Validate a bundle on a GPU, in the emulator, or each kernel on the one that runs it, and write validation.json
    and the validated report beside it. `full` emulates the product of cases, policies and seeds.

    What an earlier validation of the same bundle showed on a device that this one does not use stays. Without a GPU,
    `auto` records every gate that needs one as not run, with the reason. Raises BundleError, DeviceError, OutputError,
    ToolError.
    """
    from advisor.bundle import read_bundle

    choice = parse_device(device)
    _check_options(experiment, keep)
    bundle = read_bundle(folder)
    if choice.kind == "emulator":
        return _validate(bundle, None, NOT_ASKED, choice, experiment, keep, progress, full=full)
    with at_hand(choice) as (gpu, reason):
        return _validate(bundle, gpu, reason, choice, experiment, keep, progress, full=full)


def _check_options(experiment: str | None, keep: Path | None) -> None:
    """What would otherwise come up when everything before the validation has been done. Raises InputError."""
    if experiment is not None:
        from advisor.validation.experiment import check_experiment

        check_experiment(experiment)
    if keep is not None:
        place = next(each for each in (keep.absolute(), *keep.absolute().parents) if os.path.lexists(each))
        if not place.is_dir() or not os.access(place, os.W_OK):
            raise OutputError(
                "OUTPUT_NOT_WRITABLE",
                f"{keep} cannot be written: {place} is {'read-only' if place.is_dir() else 'not a folder'}",
                fix="pass another --keep",
                numbers={"path": str(keep)},
            )


def _check_hashes(bundle: Bundle, rows: Sequence[Mapping[str, Any]]) -> None:
    """The images say of which source they are; evidence must not name another. Raises BundleError BUILD_EDITED."""
    from advisor.bundle import bad_build, units
    from advisor.toolchain import Unit, kernel_hash

    for unit, row in zip(units(bundle), rows, strict=True):
        wanted = Unit(unit.name, unit.source, unit.headers, unit.target, unit.defines, unit.flags)
        if kernel_hash(wanted) != row["kernel_hash"]:
            raise bad_build(bundle, row["image"])


def built_rows(bundle: Bundle, progress: Progress = silent) -> list[dict[str, Any]]:
    """The rows of build.json; a bundle that is not built is built. Raises BundleError BUILD_EDITED, ToolError."""
    from advisor.bundle import read_build, write_build

    built = read_build(bundle)
    if built is None:
        write_build(bundle, build(bundle, progress))
        return read_build(bundle) or []
    _check_hashes(bundle, built)
    return built


def _validate(
    bundle: Bundle,
    gpu: Device | None,
    reason: str,
    choice: DeviceChoice,
    experiment: str | None,
    keep: Path | None,
    progress: Progress,
    *,
    full: bool = False,
) -> Validated:
    from advisor.bundle import write_derived
    from advisor.records.base import canonical_json
    from advisor.report import render_report
    from advisor.validation import Emulation, merged, validate

    built_rows(bundle, progress)
    with stage(progress, "validate", bundle.name) as result:
        found = validate(
            bundle,
            device=gpu,
            emulation=Emulation(full=full) if choice.emulates else None,
            reason=reason,
            experiment=experiment,
            keep=keep,
            progress=_cases(progress),
        )
        result.append(_summary(found))
    evidence = merged(_earlier(bundle), found)
    kept = [each for each in evidence.devices if each not in found.devices]
    if kept:
        progress(Noted(f"what an earlier validation showed stays: {', '.join(kept)}"))
    write_derived(bundle, VALIDATION, canonical_json(evidence))
    with stage(progress, "report", f"{bundle.name}/{VALIDATED_REPORT}"):
        write_derived(bundle, VALIDATED_REPORT, render_report(bundle.plan, evidence))
    return Validated(bundle, evidence)


def _earlier(bundle: Bundle) -> Evidence | None:
    """The evidence that the bundle has; none where it is of another version's schema."""
    from pydantic import ValidationError

    try:
        return Evidence.model_validate_json((bundle.folder / VALIDATION).read_bytes())
    except (OSError, ValidationError):
        return None


def _cases(progress: Progress) -> Callable[[str, int, int | None], None]:
    return lambda name, done, total: progress(Advanced("validate", name, done, total))


def _summary(evidence: Evidence) -> str:
    if evidence.verdict == "not_run":
        return f"not run: {evidence.not_run_reason}"
    correct = sum(case.verdict == "correct" for case in evidence.cases)
    return f"{evidence.verdict}: {correct} of {len(evidence.cases)} cases correct"


def report_bundle(folder: str | Path) -> tuple[Plan, Evidence | None]:
    """Plan and evidence of a bundle. Evidence of another manifest is none of this bundle's. Raises BundleError."""
    from pydantic import ValidationError

    from advisor.bundle import read_bundle
    from advisor.errors import BundleError

    bundle = read_bundle(folder)
    path = bundle.folder / VALIDATION
    if not path.is_file():
        return bundle.plan, None
    try:
        evidence = Evidence.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise BundleError(
            "VALIDATION_UNREADABLE",
            f"{path} is not the evidence of this version: {str(error).splitlines()[0]}",
            fix=f"run advisor validate {folder} again",
            numbers={"path": str(path)},
        ) from error
    return bundle.plan, evidence if evidence.manifest_hash == bundle.manifest_hash else None


def run(
    path: str | Path,
    *,
    target: str | None = None,
    device: str = "auto",
    output: Path = DEFAULT_OUTPUT,
    experiment: str | None = None,
    keep: Path | None = None,
    progress: Progress = silent,
) -> Ran:
    """All of it: plan, generate, query and plan again where a GPU is at hand, validate, report."""
    _check_options(experiment, keep)
    choice = parse_device(device)
    with at_hand(choice) as (gpu, reason):
        problem = read(path, progress)
        targeting = resolve_target(problem, target, Path(path), gpu)
        generated = generated_for(problem, targeting, gpu, output, progress)
        if generated.bundle is None:
            return Ran(generated, None)
        if choice.kind == "emulator":
            gpu, reason = None, NOT_ASKED
        return Ran(generated, _validate(generated.bundle, gpu, reason, choice, experiment, keep, progress))
