"""One step after another, each in a process of its own with a watchdog: a hang or a crash is a row of the result.

A kernel that failed is left out of every later step. A step whose predecessor failed is not run; one that has nothing
to run on this GPU or in this bundle does not apply, and never reads as passed. Imports `validation` and what is below.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from advisor import __version__
from advisor.accept.backend import AcceptSetup
from advisor.accept.steps import BY_NAME, STEPS, Step
from advisor.bundle import Facts, resolve
from advisor.errors import AdvisorError, ToolError
from advisor.machine.features import Feature, loadable, supports
from advisor.machine.occupancy import free_clusters
from advisor.machine.profile import DeviceProfile
from advisor.records.acceptance import (
    Acceptance,
    AcceptedKernel,
    AcceptedRun,
    AcceptedStep,
    StepVerdict,
    launch_hash,
)
from advisor.records.case import Case
from advisor.records.evidence import CaseVerdict, KernelEvidence, Timing
from advisor.records.launch import Launch
from advisor.records.runtime_file import RuntimeFile
from advisor.runtime import DeviceInfo
from advisor.validation.assemble import Assembly, Row, assemble, with_candidate
from advisor.validation.driver import OWN_SHAPE, Driver, Task
from advisor.validation.gates import compiled_rows, extra_rows
from advisor.validation.gpu import CaseOutcome, Image, KernelFacts, Setup
from advisor.validation.on_gpu import residency_checks, stopped_verdict
from advisor.validation.workers import Workers, WorkerStopped

BACKEND = "advisor.accept.backend:AcceptBackend"
HOST_FLOPS = 2e11  # of a float64 reference that NumPy makes within a minute; with torch the GPU makes it
HELD = (8, 3)  # SMs that other work holds: so many, and one of so many
NEEDS_CLC = "Cluster Launch Control exists from compute capability 10.0 on"

Home = Literal["one_tile", "static", "pairs", "clc"]
Images = Callable[[tuple[int, int]], Mapping[str, bytes]]  # of a compute capability: the probe's by name, and "hold"


@dataclass(frozen=True, slots=True)
class Target:
    """The GPU, as the parent read it before anything ran there."""

    info: DeviceInfo
    profile: DeviceProfile


@dataclass(frozen=True, slots=True)
class Options:
    """`off` is what runtime.json says before the acceptance; `switch_off` is called once, with the reason, where
    Cluster Launch Control does not work here; `save` after each step with all that is known by then."""

    wanted: frozenset[str]
    launch_limit_s: float
    off: RuntimeFile
    images: Images
    switch_off: Callable[[str], None]
    save: Callable[[Acceptance], None]
    backend: str = BACKEND


@dataclass
class _Shown:
    """What a step showed so far."""

    verdict: StepVerdict | None = None  # None: the runs decide
    reason: str = ""
    runs: list[AcceptedRun] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


class Acceptor(Driver):
    """One acceptance."""

    runner = "cuda"

    def __init__(self, task: Task, target: Target, options: Options) -> None:
        super().__init__(task)
        self.target = target
        self.options = options
        self.steps: dict[str, AcceptedStep] = {}
        self.facts: dict[str, KernelFacts] = {}
        self.out: dict[str, str] = {}  # runs that are left out from here on, with the reason
        self.timings: dict[str, Timing] = {}
        self.libraries: dict[str, str] = {}
        self.profile_text: str | None = None
        self.calibration: dict[str, Any] = {}
        self.switched_off: str | None = None
        self.evidence: list[KernelEvidence] = []
        self.assembly: Assembly | None = None

    # ---- all steps ----------------------------------------------------------------------------------------------

    def run(self) -> Acceptance:
        # Each step takes a new process, and few last as long as its imports.
        spares = max(2, min(6, (os.cpu_count() or 2) // 2))
        with Workers(self.options.backend, spares=spares) as workers:  # they start while the compiler works
            self.workers = workers
            self.progress("building what the bundle does not hold", 0, len(STEPS))
            self._assemble()
            for number, step in enumerate(STEPS):
                self.progress(step.name, number, len(STEPS))
                self.steps[step.name] = self._step(step)
                self._watch_clc(step)
                self.options.save(self.acceptance())
        return self.acceptance()

    def acceptance(self) -> Acceptance:
        """All that is known now. A step that was not reached is not run."""
        ended = "the acceptance ended before this step"
        steps = [
            self.steps.get(each.name, AcceptedStep(name=each.name, title=each.title, verdict="not_run", reason=ended))
            for each in STEPS
        ]
        launched = any(run.launches for step in steps for run in step.runs)
        failed = any(step.verdict == "fail" for step in steps)
        facts = {name: each for name, each in self.facts.items() if each.loadable}
        return Acceptance(
            generator=f"cluster-advisor {__version__}",
            bundle=self.bundle.name,
            manifest_hash=self.bundle.manifest_hash,
            chip=self.target.info.chip(),
            sms=self.target.info.sms,
            cuda=self.target.info.cuda,
            libraries=self.libraries,
            steps=steps,
            kernels=self._kernels(),
            residency=residency_checks(self._launch, facts, self.target.profile),
            switched_off=self.switched_off,
            profile=self.profile_text,
            calibration=self.calibration,
            verdict="fail" if failed else "pass" if launched else "not_run",
        ).sealed()

    def _step(self, step: Step) -> AcceptedStep:
        began = time.monotonic()
        shown = self._obstacle(step)
        if shown is None:
            self.workers.release()  # each step has a process of its own
            try:
                shown = getattr(self, f"_{step.name}")()
            except (WorkerStopped, AdvisorError) as error:
                shown = _Shown("fail", str(error))
        verdict = shown.verdict or _verdict_of(shown.runs)
        reason = shown.reason or "; ".join(
            f"{each.run}, {each.case}: {each.verdict}"
            for each in shown.runs
            if each.verdict not in ("correct", "not_run")
        )
        return AcceptedStep(
            name=step.name,
            title=step.title,
            verdict=verdict,
            reason=reason,
            seconds=round(time.monotonic() - began, 3),
            runs=shown.runs,
            facts=shown.facts,
        )

    def _obstacle(self, step: Step) -> _Shown | None:
        """Why a step does not run at all."""
        if step.name not in self.options.wanted:
            return _Shown("not_run", "not asked for")
        needed = BY_NAME[step.needs] if step.needs else None
        while needed is not None and self.steps[needed.name].verdict == "not_applicable":
            needed = BY_NAME[needed.needs] if needed.needs else None
        if needed is not None and self.steps[needed.name].verdict != "pass":
            how = "failed" if self.steps[needed.name].verdict == "fail" else "was not run"
            return _Shown("not_run", f"needs {needed.name}, which {how}")
        return None

    def _watch_clc(self, step: Step) -> None:
        """The first CLC kernel that hangs, faults or is wrong switches CLC off on this machine."""
        if self.switched_off is not None:
            return
        homes = {row.run.id: home(row) for row in self.rows}
        for run in self.steps[step.name].runs:
            if homes.get(run.run) == "clc" and is_wrong(run):
                self.switched_off = f"{step.name}, {run.run}, {run.case}: {run.detail or run.verdict}"
                self.options.switch_off(self.switched_off)
                return

    # ---- what there is to run -----------------------------------------------------------------------------------

    @property
    def rows(self) -> list[Row]:
        """Rungs and other schedules; traced twins are the validation's."""
        return [] if self.assembly is None else [row for row in self.assembly.rows if row.kind in ("rung", "variant")]

    def _assemble(self) -> None:
        profile = self.target.profile
        assembly = assemble(self.bundle, self.workload, profile, self.build, self.folder, twins=False)
        self.assembly = assembly
        if not any(home(row) == "static" and self._has_images(row) for row in self.rows):
            self.assembly = self._with_static(assembly)
        self.evidence = [
            *compiled_rows(self.bundle, self.built),
            *extra_rows(self.assembly.extras, self.assembly.rows),
        ]
        images = self.options.images(self.target.info.compute_capability)
        self._probe_images = {name: each for name, each in images.items() if name != "hold"}
        self.workers.setup = AcceptSetup(self._setup({}), self.options.launch_limit_s, images["hold"])
        for row in self.rows:
            if not self._has_images(row):
                cc = ".".join(map(str, self.target.info.compute_capability))
                self.out[row.run.id] = f"no image for compute capability {cc}"
            elif home(row) == "clc" and self.options.off.clc == "off":
                self.out[row.run.id] = f"switched off in runtime.json: {self.options.off.reason}"

    def _has_images(self, row: Row) -> bool:
        return self.assembly is not None and all(each in self.assembly.images for each in row.kernel_ids)

    def _with_static(self, assembly: Assembly) -> Assembly:
        """A persistent kernel without clusters, of the best family that runs here: the one step between a CTA for each
        tile and clusters. Where it cannot be had, the step does not apply."""
        single = [row for row in self._of("one_tile") if self._has_images(row)]
        best = next((row for row in single if row.run.candidate.family != "portable"), None)
        if best is None:
            return assembly
        candidate = self.workload.fitted(best.run.candidate.with_schedule("static"))
        capability = self.target.info.compute_capability
        if self.workload.clauses(candidate, self.target.profile):
            return assembly
        try:
            wider, row = with_candidate(
                assembly, self.workload, candidate, "accept_", self.build, self.folder, capability
            )
        except ToolError as error:
            if error.code == "COMPILE_FAILED":
                raise
            return assembly
        return wider if row is None else _with_row(wider, row)

    def _setup(self, residency: Mapping[str, int]) -> Setup:
        return Setup(
            device_index=self.target.info.index,
            problem_text=self.bundle.problem_text,
            launch=self._launch,
            images=dict(self._images),
            folder=str(self.folder),
            sm_budget=self.sm_budget,
            residency=residency,
        )

    def _of(self, *homes: Home) -> list[Row]:
        return [row for row in self.rows if home(row) in homes]

    def _still_in(self, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row.run.id not in self.out]

    # ---- the steps ----------------------------------------------------------------------------------------------

    def _capability(self) -> _Shown:
        info = self.target.info
        worker = self.workers.fresh()
        self.libraries = worker.call("libraries")
        loads: dict[str, str] = worker.call("load")
        for row in self.rows:
            for kernel_id in row.kernel_ids:
                if loads.get(kernel_id):
                    self.out.setdefault(row.run.id, loads[kernel_id])
        broken = [f"{name}: {why}" for name, why in loads.items() if why]
        facts = {
            "gpu": info.name,
            "compute_capability": list(info.compute_capability),
            "driver": info.driver,
            "cuda": info.cuda,
            "sms": info.sms,
            "memory_bytes": info.memory_bytes,
            "limits": dict(info.limits),
            "loaded": [name for name, why in loads.items() if not why],
            "left_out": dict(self.out),
        }
        if broken or not loads:
            return _Shown("fail", "; ".join(broken) or "no image of this bundle is for this GPU", facts=facts)
        return _Shown("pass", facts=facts)

    def _occupancy(self) -> _Shown:
        self.facts = self.workers.fresh().call("survey")
        residency = {name: each.max_active_clusters for name, each in self.facts.items() if each.loadable}
        setup: AcceptSetup = self.workers.setup
        self.workers.setup = AcceptSetup(self._setup(residency), setup.launch_limit_s, setup.hold)
        for row in self.rows:
            empty = [each for each in row.kernel_ids if residency.get(each) == 0]
            if empty:
                self.out.setdefault(row.run.id, f"no cluster of {empty[0]} is resident here: the ladder steps down")
        failed = {name: each.reason for name, each in self.facts.items() if not each.loadable and name in self._images}
        return _Shown(
            "fail" if failed else "pass",
            "; ".join(f"{name}: {why}" for name, why in failed.items()),
            facts={"max_active_clusters": residency, "left_out": dict(self.out)},
        )

    @property
    def _images(self) -> Mapping[str, Image]:
        return {} if self.assembly is None else self.assembly.images

    def _calibration(self) -> _Shown:
        self.profile_text, self.calibration = self.workers.fresh().call("calibrate", self._probe_images)
        return _Shown("pass", facts={"pieces": sorted(self.calibration)})

    def _one_tile(self) -> _Shown:
        return self._cases_of_rows(self._of("one_tile"), "no kernel of this bundle has one tile for each CTA")

    def _static(self) -> _Shown:
        return self._cases_of_rows(self._of("static"), "there is no persistent kernel without clusters for this GPU")

    def _pairs(self) -> _Shown:
        return self._cases_of_rows(self._of("pairs"), "no kernel of this bundle has clusters on this GPU")

    def _clc_one_wave(self) -> _Shown:
        return self._clc(lambda clusters, resident: clusters <= resident)

    def _clc_many_waves(self) -> _Shown:
        return self._clc(lambda clusters, resident: clusters > resident)

    def _clc(self, admits: Callable[[int, int], bool]) -> _Shown:
        if not supports(Feature.CLC, self.target.profile.arch):
            major, minor = self.target.info.compute_capability
            return _Shown("not_applicable", f"{NEEDS_CLC}; this GPU has {major}.{minor}")
        nothing = "no kernel for this GPU asks for clusters: the schedule is not legal for this problem"
        return self._cases_of_rows(self._of("clc"), nothing, admits)

    def _busy_sms(self) -> _Shown:
        counts = [each for each in (HELD[0], self.target.info.sms // HELD[1]) if each < self.target.info.sms]
        shown = _Shown()
        for row in self._still_in(self.rows):
            for sms in counts:
                if row.run.id in self.out:
                    continue
                case, size = self._busy_case(row), math.prod(row.main.cluster)
                if free_clusters(self.target.profile, 1, size, sms):
                    self._one(row, case, shown, "run_held", sms, held_sms=sms)
                    continue
                detail = f"{sms} held SMs, spread over the GPCs, leave none with {size} SMs free: a cluster waits"
                shown.runs.append(
                    AcceptedRun(
                        run=row.run.id,
                        case=case.name,
                        arguments=case.arguments,
                        verdict="not_run",
                        detail=detail,
                        held_sms=sms,
                    )
                )
        return self._with_left_out(shown, self.rows)

    def _graphs(self) -> _Shown:
        return self._on_busy_case("run_graph")

    def _launches(self) -> _Shown:
        return self._on_busy_case("run_many")

    def _on_busy_case(self, method: str) -> _Shown:
        shown = _Shown()
        for row in self._still_in(self.rows):
            self._one(row, self._busy_case(row), shown, method)
        return self._with_left_out(shown, self.rows)

    def _times(self) -> _Shown:
        """Of the rungs whose own shape was right in an earlier step."""
        right = {
            run.run: run.case
            for step in self.steps.values()
            for run in step.runs
            if run.case.startswith("own_shape") and run.verdict == "correct"
        }
        rows = [row for row in self._still_in(self.rows) if row.kind == "rung" and row.run.id in right]
        if not rows:
            return _Shown("not_run", "no kernel was checked on the problem's own shape: torch makes that reference")
        failed = []
        for row in rows:
            own = self._cases(row)[OWN_SHAPE]
            try:
                self.timings[row.main.id] = self.workers.current().call("time", row.kernel_ids, own)
            except (WorkerStopped, AdvisorError) as error:
                self.workers.release()
                self.out[row.run.id] = f"times: {error}"
                failed.append(f"{row.run.id}: {error}")
        facts: dict[str, Any] = {name: each.model_dump(mode="json") for name, each in self.timings.items()}
        facts["case"] = self._cases(rows[0])[OWN_SHAPE].name
        return _Shown("fail" if failed else "pass", "; ".join(failed), facts=facts)

    # ---- cases --------------------------------------------------------------------------------------------------

    def _cases(self, row: Row) -> list[Case]:
        return self.cases_of(row, self._resident(row), self.target.info.sms)

    def _resident(self, row: Row) -> int:
        return self.facts[row.main.id].max_active_clusters if row.main.id in self.facts else 0

    def _feasible(self, case: Case) -> bool:
        """Whether its float64 reference can be made here."""
        return "torch" in self.libraries or self.workload.flops(case) <= HOST_FLOPS

    def _busy_case(self, row: Row) -> Case:
        """The case about scheduling with the most work, beside the own shape."""
        cases = [case for case in self._cases(row) if self._feasible(case) and not case.name.startswith("own_shape")]
        about = [case for case in cases if case.scheduling] or cases or self._cases(row)
        return max(about, key=lambda case: (self.workload.flops(case), self.workload.least_bytes(case)))

    def _clusters(self, row: Row, case: Case) -> int:
        """Clusters of the grid; tiles, where each cluster of the grid has one."""
        launch = self._launch
        known = {each.name for each in launch.arguments}
        arguments = {name: value for name, value in case.arguments.items() if name in known}
        facts = Facts(
            num_sms=self.target.info.sms,
            sm_budget=self.sm_budget or self.target.info.sms,
            max_active_clusters={name: each.max_active_clusters for name, each in self.facts.items()},
            loadable=frozenset(self._images),
            alignments=dict.fromkeys(launch.buffers, 256),
        )
        x, y, z = resolve(launch, row.main.id, arguments, facts).grid_blocks
        cx, cy, cz = row.main.cluster
        return x * y * z // (cx * cy * cz)

    @property
    def _launch(self) -> Launch:
        return self.bundle.launch if self.assembly is None else self.assembly.launch

    def _cases_of_rows(
        self, rows: Sequence[Row], nothing: str, admits: Callable[[int, int], bool] | None = None
    ) -> _Shown:
        """Every case of each row that is still in; a row that fails runs no further case."""
        here = [row for row in rows if self._has_images(row)]
        if not here:
            return _Shown("not_applicable", nothing)
        shown = _Shown()
        left = 0
        for row in self._still_in(here):
            for case in self._cases(row):
                if row.run.id in self.out:
                    break
                if admits is not None and not admits(self._clusters(row, case), self._resident(row)):
                    continue
                if not self._feasible(case):
                    left += 1
                    continue
                self._one(row, case, shown, "run_case", False)
        if left:
            shown.facts["cases_without_a_reference"] = f"{left}, too large for NumPy: with torch the GPU makes it"
        return self._with_left_out(shown, here)

    def _one(self, row: Row, case: Case, shown: _Shown, method: str, *extra: Any, held_sms: int = 0) -> None:
        """One call of the backend; a kernel that is not right is out from here on."""
        self.progress(f"{row.run.id}: {case.name}", len(self.steps), len(STEPS))
        run = self._called(row, case, method, extra, held_sms)
        shown.runs.append(run)
        if is_wrong(run):
            self.out[row.run.id] = f"{case.name}: {run.verdict}"

    def _called(self, row: Row, case: Case, method: str, extra: Sequence[Any], held_sms: int) -> AcceptedRun:
        def shown(verdict: CaseVerdict, detail: str, **more: Any) -> AcceptedRun:
            return AcceptedRun(
                run=row.run.id,
                case=case.name,
                arguments=case.arguments,
                verdict=verdict,
                detail=detail,
                held_sms=held_sms,
                **more,
            )

        try:
            outcome: CaseOutcome = self.workers.current().call(method, row.run.id, row.kernel_ids, case, *extra)
        except WorkerStopped as stopped:
            return shown(stopped_verdict(stopped), stopped.detail)
        except AdvisorError as error:
            self.workers.release()  # a fault has taken the context along; a refusal costs a new process, no more
            return shown("not_run" if error.code == "HOLDERS_MISSING" else "launch_error", str(error))
        checks, details = dict(outcome.checks), [outcome.detail] if outcome.detail else []
        other = self.bits.check(row, case, outcome.digest)
        if other is not None:
            checks["same_bits"] = other == ""
            details += [f"other bits than {other}, which sums the same tiles in the same order"] if other else []
        verdict: CaseVerdict = "correct" if all(checks.values()) else "mismatch"
        return shown(verdict, "; ".join(details), checks=checks, worst=outcome.worst, launches=max(1, outcome.launches))

    def _with_left_out(self, shown: _Shown, rows: Sequence[Row]) -> _Shown:
        """The step with the kernels that it could not run, and why."""
        ran = {run.run for run in shown.runs}
        left = {row.run.id: self.out[row.run.id] for row in rows if row.run.id in self.out and row.run.id not in ran}
        if left:
            shown.facts["left_out"] = left
        if not shown.runs:
            shown.verdict = "not_run"
            shown.reason = "; ".join(f"{name}: {why}" for name, why in left.items()) or "no case is for these kernels"
        return shown

    # ---- kernels ------------------------------------------------------------------------------------------------

    def _kernels(self) -> list[AcceptedKernel]:
        """Every image of the bundle, and what was built beside it and is for this GPU."""
        shipped = {kernel.id for kernel in self.bundle.launch.kernels}
        return [
            self._kernel(row, row.kernel_id in shipped)
            for row in self.evidence
            if row.kernel_id in shipped or (row.twin_of is None and row.kernel_id in self._images)
        ]

    def _kernel(self, row: KernelEvidence, in_bundle: bool) -> AcceptedKernel:
        image = self._images.get(row.kernel_id)
        used = image is not None and image.target == row.image
        names = {each.run.id for each in self.rows if row.kernel_id in each.kernel_ids}
        runs = [run for step in self.steps.values() for run in step.runs if run.run in names and used]
        ran = [run for run in runs if run.verdict != "not_run"]
        wrong = [run for run in ran if run.verdict != "correct"]
        broken = next((self.out[name] for name in names if name in self.out and used), "")
        failed = bool(wrong) or broken.startswith("times: ")
        result: Literal["pass", "fail", "not_run"] = "fail" if failed else "pass" if ran else "not_run"
        reason = "; ".join(f"{run.case}: {run.verdict}" for run in wrong[:4]) or (broken if result != "pass" else "")
        if result == "not_run" and not reason:
            reason = "no step launched it" if used else self._why_unused(row.image)
        return AcceptedKernel(
            kernel_id=row.kernel_id,
            image=row.image,
            kernel_hash=row.kernel_hash,
            cubin_sha256=row.facts("compiled")["cubin_sha256"],
            launch_sha256=launch_hash(self._launch.kernel(row.kernel_id)),
            schedule=row.schedule,
            cluster=row.cluster,
            in_bundle=in_bundle,
            result=result,
            reason=reason,
            cases=len(ran),
            correct=len(ran) - len(wrong),
            launches=sum(run.launches for run in ran),
            timing=self.timings.get(row.kernel_id) if used else None,
        )

    def _why_unused(self, image: str) -> str:
        info = self.target.info
        fits = loadable(image, info.compute_capability)
        return f"{info.name} {'takes another image' if fits else f'does not load an image for {image}'}"


def home(row: Row) -> Home:
    """The step that a kernel belongs to: what it has that the steps before it have not."""
    kernel = row.main
    if kernel.schedule == "clc":
        return "clc"
    x, y, z = kernel.cluster
    if x * y * z > 1:
        return "pairs"
    return "one_tile" if kernel.schedule == "one_tile" else "static"


def is_wrong(run: AcceptedRun) -> bool:
    """Whether a run hung, faulted or gave a wrong result."""
    return run.verdict not in ("correct", "not_run")


def _with_row(assembly: Assembly, row: Row) -> Assembly:
    return Assembly((*assembly.rows, row), assembly.launch, assembly.images, assembly.extras, assembly.missing)


def _verdict_of(runs: Sequence[AcceptedRun]) -> StepVerdict:
    if any(is_wrong(run) for run in runs):
        return "fail"
    return "pass" if any(run.verdict == "correct" for run in runs) else "not_run"
