"""Problem to plan to bundle to build to query, planned again if need be, to validation and report.

Each function here is one command. Progress goes to a callback as frozen events; nothing is printed. Every result says
what was done; what was not done is in it with the reason, never left out. Rooms that only some commands need
(codegen, toolchain, runtime, validation) are imported inside the functions that use them, so that `plan` starts fast.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from advisor.errors import EXIT_DONE, EXIT_NO, DeviceError, InputError, OutputError, ProfileError, printable
from advisor.kinds import workload as make_workload
from advisor.kinds.workload import Measurements, Workload
from advisor.machine import load_profile
from advisor.machine.profile import DeviceProfile
from advisor.machine.profile_file import is_path
from advisor.planner import plan as make_plan
from advisor.problem import Problem, load_problem, place_of
from advisor.records.candidate import Candidate, Family, OccupancyKey
from advisor.records.evidence import Chip, Evidence
from advisor.records.plan import Finding, Plan

if TYPE_CHECKING:
    from advisor.bundle import Bundle, RenderedBundle
    from advisor.emulator import KernelFault, Outcome
    from advisor.emulator.expected import Comparison
    from advisor.planner.agreement import Agreement
    from advisor.planner.schedules import Simulated
    from advisor.runtime import Device
    from advisor.runtime.probe import ProbeResult
    from advisor.toolchain import Compiled

DEFAULT_TARGET = "b200"  # without a GPU at hand
HOPPER_PROFILE = "h200"  # the sm90 rung of a Blackwell plan is planned for it
DEFAULT_OUTPUT = Path("generated")
REPORT = "report.md"  # the planned-rung report: committed, the same for the same plan
VALIDATED_REPORT = "report.validated.md"
VALIDATION = "validation.json"
MAX_REPLANS = 2

Stage = Literal[
    "read", "plan", "render", "build", "query", "validate", "report", "probe", "emulate", "bench", "tune", "accept"
]


# --- progress -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    stage: Stage
    detail: str


@dataclass(frozen=True, slots=True)
class Advanced:
    """`done` of `total` units of a stage; `total` is None where it is not known."""

    stage: Stage
    detail: str
    done: int
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    stage: Stage
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Noted:
    """Something the user should know that is no failure: no GPU, a profile that stands in."""

    message: str


Event = Started | Advanced | Finished | Noted
Progress = Callable[[Event], None]


def silent(_: Event) -> None:
    """The progress callback of a caller that wants none."""


@contextmanager
def _stage(progress: Progress, stage: Stage, detail: str) -> Iterator[list[str]]:
    """Announces a stage; the body puts its one-line result into the list."""
    began = time.monotonic()
    progress(Started(stage, detail))
    result: list[str] = []
    yield result
    progress(Finished(stage, result[0] if result else detail, time.monotonic() - began))


# --- results ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Targeting:
    """The GPU that a plan is for, and where its description came from."""

    name: str  # as asked for
    profile: DeviceProfile
    source: Literal["profile", "device"]
    note: str = ""  # why `auto` is not the GPU at hand
    chip: Chip | None = None  # the GPU at hand, where the plan is for it

    @property
    def rung_profiles(self) -> dict[Family, DeviceProfile]:
        """The profile that each family is planned for: the target, and Hopper for the sm90 rung of a newer target."""
        own = self.profile
        is_hopper = own.compute_capability[0] == 9
        return {"sm100": own, "sm90": own if is_hopper else load_profile(HOPPER_PROFILE), "portable": own}


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what it was made from."""

    problem: Problem
    workload: Workload
    targeting: Targeting
    plan: Plan

    @property
    def exit_status(self) -> int:
        return EXIT_NO if self.plan.verdict == "refuse" else EXIT_DONE


@dataclass(frozen=True, slots=True)
class Generated:
    """A bundle on disk with its images, or the plan that says why there is none."""

    planned: Planned
    bundle: Bundle | None
    images: Mapping[tuple[str, str], Compiled] = field(default_factory=dict)
    broken: tuple[Finding, ...] = ()  # promises of launch.json that an image does not hold
    findings: tuple[Finding, ...] = ()  # of building and querying

    @property
    def exit_status(self) -> int:
        return EXIT_NO if self.broken else self.planned.exit_status


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


# --- plan ---------------------------------------------------------------------------------------------------------


def plan_file(path: str | Path, *, target: str | None = None, progress: Progress = silent) -> Planned:
    """The plan of a problem file, from the profile's formula. Raises ProblemError, ProfileError."""
    problem = _read(path, progress)
    return _plan(problem, _targeting(problem, target, Path(path), progress), None, progress)


def _targeting(problem: Problem, asked: str | None, file: Path, progress: Progress) -> Targeting:
    """The target of a command that only describes a GPU and runs nothing on it."""
    if (asked if asked is not None else problem.target) == "auto":
        with at_hand(ANY_DEVICE) as (gpu, _):
            targeting = resolve_target(problem, asked, file, gpu)
    else:
        targeting = resolve_target(problem, asked, file, None)
    if targeting.note:
        progress(Noted(targeting.note))
    return targeting


def _read(path: str | Path, progress: Progress) -> Problem:
    with _stage(progress, "read", printable(str(path))) as result:
        problem = load_problem(path)
        result.append(f"{problem.name}: {problem.kind} {make_workload(problem).summary}")
    return problem


def resolve_target(problem: Problem, asked: str | None, file: Path, device: Device | None) -> Targeting:
    """The target: what the command line asks for, else the problem `file`; `auto` is `device`, else b200.

    A profile file named in the problem file is relative to that file, one on the command line to the current folder.
    """
    name = asked if asked is not None else problem.target
    if name != "auto":
        place = name if asked is not None or not is_path(name) else str(file.parent / name)
        try:
            profile = load_profile(place)
        except ProfileError as error:
            if asked is None and error.code in ("UNKNOWN_TARGET", "PROFILE_UNREADABLE"):  # the problem file is wrong
                error.message = error.message if error.where is None else f"{error.where}: {error.message}"
                error.where = place_of(file, "target")
            raise
        return Targeting(printable(Path(name).name) if is_path(name) else name, profile, "profile")
    reason = "no GPU at hand"
    if device is not None:
        try:
            return Targeting("auto", device.profile(), "device", chip=device.info.chip())
        except DeviceError as error:
            reason = error.message
    note = f"target auto: {reason}; planning for {DEFAULT_TARGET} from its profile"
    return Targeting("auto", load_profile(DEFAULT_TARGET), "profile", note)


def _plan(problem: Problem, targeting: Targeting, oracle: Oracle | None, progress: Progress) -> Planned:
    work = make_workload(problem)
    times = _known_times(work, targeting, progress)
    return Planned(problem, work, targeting, _plan_workload(work, targeting, oracle, progress, times))


def plan_with(
    problem: Problem,
    work: Workload,
    targeting: Targeting,
    measurements: Measurements,
    progress: Progress = silent,
) -> Planned:
    """The plan with measured times of this problem on the target over the predictions."""
    return Planned(problem, work, targeting, _plan_workload(work, targeting, None, progress, measurements))


def _known_times(work: Workload, targeting: Targeting, progress: Progress) -> Measurements:
    """What the store of measurements knows of this problem on the GPU at hand. A plan for a named target uses the
    profile alone: the same file gives the same bundle everywhere."""
    if targeting.chip is None:
        return {}
    from advisor.bench.contest import hash_of
    from advisor.bench.store import Store, default_path

    place = default_path()
    if place is None:
        return {}
    capability = targeting.profile.compute_capability
    try:
        rows = Store(place).known(work.document, targeting.chip, lambda each: hash_of(work, each, capability))
    except InputError as error:
        progress(Noted(f"planned without measurements: {error}"))
        return {}
    if rows:
        progress(Noted(f"{len(rows)} measured times of this problem on {targeting.chip.name}, from {place}"))
    return {each.candidate: each.time_us for each in rows}


def _plan_workload(
    work: Workload,
    targeting: Targeting,
    oracle: Oracle | None,
    progress: Progress,
    measurements: Measurements | None = None,
) -> Plan:
    with _stage(progress, "plan", f"{work.name} for {targeting.profile.name}") as result:
        plan = make_plan(
            work,
            targeting.profile,
            target_name=targeting.name,
            target_source=targeting.source,
            rung_profiles=targeting.rung_profiles,
            occupancy=oracle,
            measurements=measurements,
        )
        result.append(f"{plan.verdict}: {plan.choice.kernel_id if plan.choice else plan.conclusion}")
    return plan


# --- generate -----------------------------------------------------------------------------------------------------


class Oracle:
    """Answers for residency from the kernels that were built, on a GPU of the kernel's own compute capability.

    A key is answered when a built image has its threads, registers and shared memory; the cluster shape may be any.
    Answers are kept. None means: not built yet, or not this GPU's to say; the planner then uses its formula.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._images: dict[tuple[int, int, int], tuple[bytes, str, str]] = {}
        self._answers: dict[OccupancyKey, tuple[int, dict[str, Any]]] = {}

    def learn(
        self, planned: Planned, generated_images: Mapping[tuple[str, str], Compiled], bundle: RenderedBundle
    ) -> int:
        """Takes over the images of every rung that this GPU can load. Returns how many rungs those are."""
        from advisor.machine.features import loadable

        cc = self._device.info.compute_capability
        count = 0
        for choice in planned.plan.choices:
            kernel = bundle.launch.kernels_of(choice.kernel_id)[0]
            target = next((each for each in kernel.images if loadable(each, cc)), None)
            if target is None or planned.targeting.rung_profiles[choice.family].compute_capability != cc:
                continue
            image = generated_images[kernel.id, target]
            asked = choice.residency.derived  # the numbers that the planner's own question has
            key = (asked["threads"], asked["registers"], asked["smem_bytes"])
            self._images[key] = (image.cubin, kernel.entry, target)
            count += 1
        return count

    def __call__(self, key: OccupancyKey, profile: DeviceProfile) -> tuple[int, dict[str, Any]] | None:
        if profile.compute_capability != self._device.info.compute_capability:
            return None
        image = self._images.get((key.threads, key.registers, key.smem_bytes))
        if image is None:
            return None
        if key not in self._answers:
            cubin, entry, target = image
            count, facts = self._device.query_residency(cubin, entry, key)
            self._answers[key] = (count, {**facts, "image": target})
        return self._answers[key]


def generate(
    path: str | Path, *, target: str | None = None, output: Path = DEFAULT_OUTPUT, progress: Progress = silent
) -> Generated:
    """Plan, render, build; write OUTPUT/<name> with its build and its planned-rung report.

    A named target is planned from its profile alone, so that the same file gives the same bundle everywhere. Target
    `auto` on a machine with a GPU queries it with the built kernels and plans again. Nothing is written for a plan that
    is refused or has nothing to launch. Raises ProblemError, ProfileError, OutputError, ToolError.
    """
    problem = _read(path, progress)
    if (target if target is not None else problem.target) != "auto":
        return _generate(problem, resolve_target(problem, target, Path(path), None), None, output, progress)
    with at_hand(ANY_DEVICE) as (gpu, _):
        targeting = resolve_target(problem, target, Path(path), gpu)
        return _generate(problem, targeting, gpu, output, progress)


def _generate(
    problem: Problem, targeting: Targeting, device: Device | None, output: Path, progress: Progress
) -> Generated:
    if targeting.note:
        progress(Noted(targeting.note))
    planned = _plan(problem, targeting, None, progress)
    if not planned.plan.choices:
        return Generated(planned, None)
    rendered, images = _render_and_build(planned, progress)
    findings: list[Finding] = []
    if device is not None:
        planned, rendered, images, findings = _settle(planned, rendered, images, device, progress)
        if not planned.plan.choices:
            return Generated(planned, None, findings=tuple(findings))
    return _write(planned, rendered, images, findings, output, progress)


def _render_and_build(planned: Planned, progress: Progress) -> tuple[RenderedBundle, dict[tuple[str, str], Compiled]]:
    from advisor.codegen import render_bundle

    with _stage(progress, "render", planned.problem.name) as result:
        rendered = render_bundle(planned.plan, planned.workload)
        result.append(f"{len(rendered.files)} files, {len(rendered.launch.kernels)} kernels")
    return rendered, build(rendered, progress)


def build(bundle: Bundle | RenderedBundle, progress: Progress = silent) -> dict[tuple[str, str], Compiled]:
    """Every image of a bundle by (kernel id, target). Raises ToolError with the compiler's log."""
    from advisor.bundle import units
    from advisor.toolchain import Unit, compile_many

    rows = units(bundle)
    sources = [Unit(each.name, each.source, each.headers, each.target, each.defines, each.flags) for each in rows]
    with _stage(progress, "build", f"{len(rows)} images") as result:
        compiled = compile_many(sources)
        cached = sum(each.cached for each in compiled)
        result.append(f"{len(rows)} images ({cached} from the cache), {compiled[0].compiler}" if rows else "no image")
    return {(row.kernel_id, row.target): image for row, image in zip(rows, compiled, strict=True)}


def _settle(
    planned: Planned,
    rendered: RenderedBundle,
    images: dict[tuple[str, str], Compiled],
    device: Device,
    progress: Progress,
) -> tuple[Planned, RenderedBundle, dict[tuple[str, str], Compiled], list[Finding]]:
    """Query every rung with the built kernels, put the answers over the formula, and plan again: twice at most.

    A plan is settled when planning with the answers keeps every choice. One that still moves after the second time
    falls back to the last choice whose kernels were all built and queried, with a warning.
    """
    oracle = Oracle(device)
    for _ in range(MAX_REPLANS):
        with _stage(progress, "query", f"residency on {device.info.name}") as result:
            rungs = oracle.learn(planned, images, rendered)
            result.append(f"{rungs} of {len(planned.plan.choices)} rungs answered by {device.info.name}")
        if rungs == 0:
            return planned, rendered, images, []
        again = _plan(planned.problem, planned.targeting, oracle, progress)
        settled = _candidates(again.plan) == _candidates(planned.plan)
        if settled or not again.plan.choices:
            new_rendered, new_images = _render_and_build(again, progress) if again.plan.choices else (rendered, images)
            return again, new_rendered, new_images, []
        last, planned = planned, again
        rendered, images = _render_and_build(planned, progress)
    oracle.learn(planned, images, rendered)
    built = [_pinned(planned, each.plan.choices[0].candidate(), oracle, progress) for each in (last, planned)]
    kept = min((each for each in built if each.plan.choices), key=lambda each: each.plan.choices[0].prediction.time_us)
    finding = Finding(
        code="REPLAN_UNSETTLED",
        severity="warning",
        message=f"the choice still moved after {MAX_REPLANS} rounds of querying and planning; kept "
        f"{kept.plan.choices[0].kernel_id}, the best that was built and queried",
        numbers={"rounds": MAX_REPLANS},
    )
    kept = replace(kept, plan=kept.plan.model_copy(update={"findings": [*kept.plan.findings, finding]}))
    rendered, images = _render_and_build(kept, progress)
    return kept, rendered, images, [finding]


def _candidates(plan: Plan) -> list[Candidate]:
    return [choice.candidate() for choice in plan.choices]


def _pinned(planned: Planned, candidate: Candidate, oracle: Oracle, progress: Progress) -> Planned:
    """The plan with `candidate` as its first choice; the problem and the other rungs stay as they are."""
    work = planned.workload
    pins = work.pins(candidate)

    class Pinned:
        """The workload, with the search of one family bound to one candidate."""

        def __getattr__(self, name: str) -> Any:
            return getattr(work, name)

        def explore(self, profile: DeviceProfile, family: Family, **how: Any) -> Any:
            if family == candidate.family and how.get("occupancy") is not None:  # the ladder's own search
                how["overrides"] = {**pins, **(how.get("overrides") or {})}
            return work.explore(profile, family, **how)

    pinned = _plan_workload(cast(Workload, Pinned()), planned.targeting, oracle, progress)
    return replace(planned, plan=pinned)


def _write(
    planned: Planned,
    rendered: RenderedBundle,
    images: Mapping[tuple[str, str], Compiled],
    findings: list[Finding],
    output: Path,
    progress: Progress,
) -> Generated:
    from advisor.bundle import changed_meanwhile, read_bundle, write_build, write_bundle, write_derived
    from advisor.report import render_report
    from advisor.toolchain import broken_promises

    folder = write_bundle(output / rendered.name, rendered)
    bundle = read_bundle(folder)
    if bundle.files != rendered.files:  # another process has put its own bundle there since
        raise changed_meanwhile(folder)
    write_build(bundle, images)
    with _stage(progress, "report", f"{rendered.name}/{REPORT}"):
        write_derived(bundle, REPORT, render_report(planned.plan))
    broken: list[Finding] = []
    for kernel in bundle.launch.kernels:
        for target in kernel.images:
            broken += broken_promises(images[kernel.id, target], kernel)
            findings += images[kernel.id, target].findings
    unique = {(each.code, each.message): each for each in findings}
    return Generated(planned, bundle, images, tuple(broken), tuple(unique.values()))


def write_text(path: Path, text: str) -> None:
    """`text` at `path`, whole or not at all. Raises OutputError."""
    _write_bytes(path, text.encode())


def _write_bytes(path: Path, content: bytes) -> None:
    staged = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        try:
            staged.write_bytes(content)
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            "OUTPUT_NOT_WRITABLE",
            f"{path} cannot be written: {error.strerror or error}",
            fix="check the permissions and the free space, or pass another --output",
            numbers={"path": str(path), "errno": error.errno},
        ) from error


# --- validate -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """What `--device` asks for. `auto`: each kernel on GPU 0 where it runs there, else in the emulator."""

    kind: Literal["auto", "cuda", "emulator"]
    index: int = 0

    @property
    def required(self) -> bool:
        """Whether there must be a GPU."""
        return self.kind == "cuda"

    @property
    def emulates(self) -> bool:
        """Whether what does not run on a GPU is emulated."""
        return self.kind != "cuda"


ANY_DEVICE = DeviceChoice("auto")  # of a command that only describes a GPU


def parse_device(text: str) -> DeviceChoice:
    """`auto`, `emulator`, `cuda` or `cuda:N`. Raises InputError."""
    if text == "auto":
        return ANY_DEVICE
    if text == "emulator":
        return DeviceChoice("emulator")
    kind, _, number = text.partition(":")
    if kind == "cuda" and ((number.isascii() and number.isdecimal() and len(number) < 4) or text == "cuda"):
        return DeviceChoice("cuda", int(number or 0))
    raise InputError(
        "DEVICE_UNKNOWN",
        f"unknown device {text!r}",
        fix="use auto, emulator, cuda, or cuda:N with the number of a GPU",
        numbers={"device": text},
    )


NOT_ASKED = "--device emulator asks for none"


@contextmanager
def at_hand(choice: DeviceChoice) -> Iterator[tuple[Device | None, str]]:
    """The GPU that `choice` asks for, or None with the reason. Raises DeviceError where a GPU was required."""
    from advisor.runtime import open_device

    try:
        device = open_device(choice.index)
    except DeviceError as error:
        if choice.required:
            raise
        yield None, f"{error.message} [{error.code}]"
        return
    with device:
        yield device, ""


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
    with _stage(progress, "validate", bundle.name) as result:
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
    with _stage(progress, "report", f"{bundle.name}/{VALIDATED_REPORT}"):
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


# --- report, run --------------------------------------------------------------------------------------------------


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
        problem = _read(path, progress)
        targeting = resolve_target(problem, target, Path(path), gpu)
        generated = _generate(problem, targeting, gpu, output, progress)
        if generated.bundle is None:
            return Ran(generated, None)
        if choice.kind == "emulator":
            gpu, reason = None, NOT_ASKED
        return Ran(generated, _validate(generated.bundle, gpu, reason, choice, experiment, keep, progress))


# --- simulate -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SimulatedFile:
    """Every schedule of the plan's shape; `rows` is empty where the plan has no choice."""

    planned: Planned
    rows: tuple[Simulated, ...]


def simulate_file(
    path: str | Path,
    *,
    target: str | None = None,
    busy_sms: int | None = None,
    tile_cost_cv: float | None = None,
    progress: Progress = silent,
) -> SimulatedFile:
    """Every schedule on a problem; `busy_sms` and `tile_cost_cv` replace what the file says: the what-if of a shared
    GPU and of uneven tiles. Raises ProblemError, ProfileError, InputError."""
    from advisor.planner.schedules import simulate_schedules

    problem = _read(path, progress)
    changes: dict[str, object] = {}
    if busy_sms is not None:
        changes["shared_gpu"] = {**problem.shared_gpu.model_dump(), "busy_sms": busy_sms}
    if tile_cost_cv is not None:
        changes["assume"] = {**problem.assume.model_dump(), "tile_cost_cv": tile_cost_cv}
    problem = type(problem).model_validate({**problem.model_dump(), **changes})
    targeting = _targeting(problem, target, Path(path), progress)
    planned = _plan(problem, targeting, None, progress)
    if planned.plan.choice is None:
        return SimulatedFile(planned, ())
    found = simulate_schedules(planned.workload, targeting.profile, targeting.rung_profiles)
    return SimulatedFile(planned, tuple(found[1]) if found else ())


# --- agreement ----------------------------------------------------------------------------------------------------

MAX_TABLE_BYTES = 1 << 24
TUNED_CHOICES = Path(__file__).parent / "data" / "b200_tuned_choices.csv"


def agree(table: Path | None = None, *, target: str = DEFAULT_TARGET, dtypes: Sequence[str] = ()) -> list[Agreement]:
    """How often the planner picks what exhaustive tuning picked, per type; default: the shipped table of a B200.

    Raises InputError for a table that cannot be read, ProfileError.
    """
    from advisor.planner.agreement import agreement

    path = TUNED_CHOICES if table is None else table
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TABLE_BYTES + 1)
        text = content.decode("utf-8-sig")
        if len(content) > MAX_TABLE_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_TABLE_BYTES} bytes")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            "TABLE_UNREADABLE", f"{path}: {reason}", fix="give the path of a table of tuned choices, as CSV"
        ) from error
    shares = agreement(text, load_profile(target), dtypes)
    if not shares:
        raise InputError(
            "AGREEMENT_EMPTY",
            f"no row of the table has a type among {', '.join(dtypes) or 'those that the planner knows'}",
            fix="leave --dtype out to compare every type",
            numbers={"dtypes": list(dtypes)},
        )
    return shares


# --- probe --------------------------------------------------------------------------------------------------------


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
        with _stage(progress, "build", f"{len(rows)} probe kernels"):
            images = compile_many(
                Unit(f"{row.name}.cu", text, templates.headers_for(text), row.target, {})
                for row, text in zip(rows, texts, strict=True)
            )
        done = 0

        def advance(detail: str) -> None:
            nonlocal done
            done += 1
            progress(Advanced("probe", detail, done))

        with _stage(progress, "probe", gpu.info.name):
            cubins = {row.name: image.cubin for row, image in zip(rows, images, strict=True)}
            result = probe(gpu, cubins, progress=advance)
    if output is not None:
        write_text(output, write_profile(result.profile))
    return result


# --- emulate ------------------------------------------------------------------------------------------------------


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
        _check_writable(outputs)
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
    with _stage(progress, "emulate", entry) as result:
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


def _check_writable(path: Path) -> None:
    """Before the work, not after it. Raises OutputError."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise OutputError(
            "OUTPUT_NOT_WRITABLE",
            f"{path} cannot be written: {'it is a folder' if path.is_dir() else 'its folder does not exist'}",
            fix="pass a file in a folder that exists",
            numbers={"path": str(path)},
        )


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """A NumPy archive, whole or not at all. Raises OutputError."""
    import io

    import numpy as np

    content = io.BytesIO()
    np.savez(content, **arrays)
    _write_bytes(path, content.getvalue())
