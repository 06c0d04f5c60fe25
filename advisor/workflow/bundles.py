"""A plan to a bundle on disk: rendered, built, queried on the GPU at hand and planned again, written with its report.

Imports `plans`; codegen, toolchain and report inside the functions that use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from advisor.errors import EXIT_NO
from advisor.kinds.workload import Workload
from advisor.machine.profile import DeviceProfile
from advisor.problem import Problem
from advisor.records.candidate import Candidate, Family, OccupancyKey
from advisor.records.plan import Finding, Plan
from advisor.workflow.devices import ANY_DEVICE, at_hand
from advisor.workflow.plans import Planned, Targeting, plan_workload, planned_for, read, resolve_target
from advisor.workflow.progress import Noted, Progress, silent, stage

if TYPE_CHECKING:
    from advisor.bundle import Bundle, RenderedBundle
    from advisor.runtime import Device
    from advisor.toolchain import Compiled

DEFAULT_OUTPUT = Path("generated")
REPORT = "report.md"  # the planned-rung report: committed, the same for the same plan
MAX_REPLANS = 2


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
    problem = read(path, progress)
    if (target if target is not None else problem.target) != "auto":
        return generated_for(problem, resolve_target(problem, target, Path(path), None), None, output, progress)
    with at_hand(ANY_DEVICE) as (gpu, _):
        targeting = resolve_target(problem, target, Path(path), gpu)
        return generated_for(problem, targeting, gpu, output, progress)


def generated_for(
    problem: Problem, targeting: Targeting, device: Device | None, output: Path, progress: Progress
) -> Generated:
    if targeting.note:
        progress(Noted(targeting.note))
    planned = planned_for(problem, targeting, None, progress)
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

    with stage(progress, "render", planned.problem.name) as result:
        rendered = render_bundle(planned.plan, planned.workload)
        result.append(f"{len(rendered.files)} files, {len(rendered.launch.kernels)} kernels")
    return rendered, build(rendered, progress)


def build(bundle: Bundle | RenderedBundle, progress: Progress = silent) -> dict[tuple[str, str], Compiled]:
    """Every image of a bundle by (kernel id, target). Raises ToolError with the compiler's log."""
    from advisor.bundle import units
    from advisor.toolchain import Unit, compile_many

    rows = units(bundle)
    sources = [Unit(each.name, each.source, each.headers, each.target, each.defines, each.flags) for each in rows]
    with stage(progress, "build", f"{len(rows)} images") as result:
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
        with stage(progress, "query", f"residency on {device.info.name}") as result:
            rungs = oracle.learn(planned, images, rendered)
            result.append(f"{rungs} of {len(planned.plan.choices)} rungs answered by {device.info.name}")
        if rungs == 0:
            return planned, rendered, images, []
        again = planned_for(planned.problem, planned.targeting, oracle, progress)
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

    pinned = plan_workload(cast(Workload, Pinned()), planned.targeting, oracle, progress)
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
    with stage(progress, "report", f"{rendered.name}/{REPORT}"):
        write_derived(bundle, REPORT, render_report(planned.plan))
    broken: list[Finding] = []
    for kernel in bundle.launch.kernels:
        for target in kernel.images:
            broken += broken_promises(images[kernel.id, target], kernel)
            findings += images[kernel.id, target].findings
    unique = {(each.code, each.message): each for each in findings}
    return Generated(planned, bundle, images, tuple(broken), tuple(unique.values()))
