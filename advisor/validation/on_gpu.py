"""Every rung of a bundle on a GPU, in child processes. Imports the rooms below `validation`, and this one.

What runs, in this order:
  rungs       every case of the kind on every rung of the ladder that the device loads, a process each; then its time
  variants    the choice under other schedules, on the cases about scheduling: the same bits as the choice
  twins       every run's traced twin on the same cases: every tile and slice computed exactly once
  experiment  with `experiment="ab"`: the choice against its best alternative, sample by sample in turn; with
              `"schedule"`: every schedule on tiles that only take time, while other work holds SMs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.bundle import evaluate, read_runtime_file
from advisor.errors import AdvisorError
from advisor.machine import max_active_clusters
from advisor.machine.profile import DeviceProfile
from advisor.records.candidate import OccupancyKey
from advisor.records.case import Case
from advisor.records.evidence import (
    CaseResult,
    CaseVerdict,
    Evidence,
    KernelEvidence,
    ResidencyCheck,
    Runner,
    Timing,
)
from advisor.records.launch import Launch
from advisor.runtime import Device
from advisor.validation.assemble import Assembly, Row, assemble, with_alternative
from advisor.validation.driver import MAX_STOPS, Driver, Task, verdict_of
from advisor.validation.experiment import judge
from advisor.validation.gates import compiled_rows, extra_rows, with_ran
from advisor.validation.gpu import CaseOutcome, KernelFacts, Setup
from advisor.validation.schedule import experiment as schedule_experiment
from advisor.validation.schedule import schedule_images
from advisor.validation.workers import Workers, WorkerStopped

GPU_BACKEND = "advisor.validation.gpu:GpuBackend"


class OnGpu(Driver):
    """Every rung on a GPU, in child processes."""

    runner: Runner = "cuda"

    def __init__(self, task: Task, device: Device, *, only_what_runs: bool = False) -> None:
        """`only_what_runs` leaves out rungs that this device cannot run: the emulator takes them."""
        super().__init__(task)
        self.device = device
        self.only_what_runs = only_what_runs
        self.profile = device.profile()
        self.off = read_runtime_file(task.bundle)
        self.facts: dict[str, KernelFacts] = {}

    def run(self, experiment: str | None, backend: str) -> Evidence:
        with Workers(backend) as workers:  # they start while the compiler works
            self.progress("building other schedules and traced twins", 0, None)
            assembly = assemble(self.bundle, self.workload, self.profile, self.build, self.folder)
            rival, why_not = None, ""
            if experiment == "ab":
                assembly, rival, why_not = self._rival(assembly)
            setup = workers.setup = self._setup(assembly)
            self.progress("loading every kernel", 0, None)
            self.facts = workers.fresh().call("survey")
            residency = {name: each.max_active_clusters for name, each in self.facts.items() if each.loadable}
            workers.setup = replace(setup, residency=residency)
            self._run_rows(workers, assembly)
            found = self._experiment(workers, assembly, rival, why_not) if experiment == "ab" else None
        if experiment == "schedule":
            self.progress("experiment: schedules while other work holds SMs", self.done, self.total)
            found = schedule_experiment(self.device.info.index, self.profile, schedule_images)
        if assembly.missing:
            self.results.append(self.not_run_row("other_schedules_and_twins", assembly.missing))
        return self._evidence(assembly, found)

    def runs(self, row: Row) -> bool:
        """After `run`: whether every kernel of a row loads on this device and is resident there."""
        known = all(each in self.facts for each in row.kernel_ids)
        return known and not self._obstacle(row)

    def _setup(self, assembly: Assembly) -> Setup:
        return Setup(
            device_index=self.device.info.index,
            problem_text=self.bundle.problem_text,
            launch=assembly.launch,
            images=dict(assembly.images),
            folder=str(self.folder),
            sm_budget=self.sm_budget,
        )

    # ---- rows and cases -----------------------------------------------------------------------------------------

    def _run_rows(self, workers: Workers, assembly: Assembly) -> None:
        rows = [row for row in assembly.rows if not (self.only_what_runs and self._obstacle(row))]
        work = [(row, self._cases(row)) for row in rows]
        self.total = sum(len(cases) for _, cases in work)
        shared = ""
        for row, cases in work:
            # A rung has a process of its own; variants, and then twins, share one for as long as it is healthy.
            if row.kind == "rung" or row.kind != shared:
                workers.release()
            shared = row.kind
            self._run_row(workers, row, cases)

    def _cases(self, row: Row) -> list[Case]:
        facts = self.facts.get(row.main.id)
        return self.cases_of(row, facts.max_active_clusters if facts else 0, self.device.info.sms)

    def _run_row(self, workers: Workers, row: Row, cases: Sequence[Case]) -> None:
        obstacle = self._obstacle(row)
        stops = 0
        for case in cases:
            self.done += 1
            self.progress(f"{row.run.id}: {case.name}", self.done, self.total)
            if obstacle:
                self.results.append(self.result(row, case, "not_run", obstacle))
                continue
            result = self._run_case(workers, row, case)
            self.results.append(result)
            if result.verdict in ("deadlock", "timeout", "launch_error"):
                stops += 1
                obstacle = f"{stops} cases of this rung hung or crashed before" if stops == MAX_STOPS else ""
        if row.kind == "rung" and not obstacle:
            self._time(workers, row, cases)

    def _obstacle(self, row: Row) -> str:
        """Why a row cannot run here at all."""
        if self.off.clc == "off" and row.run.candidate.schedule == "clc":
            return f"switched off in runtime.json: {self.off.reason}"
        for kernel_id in row.kernel_ids:
            facts = self.facts[kernel_id]
            if not facts.loadable:
                return facts.reason
            if facts.max_active_clusters == 0:
                return f"no cluster of {kernel_id} is resident on {self.device.info.name}: the ladder steps down"
        return ""

    def _run_case(self, workers: Workers, row: Row, case: Case) -> CaseResult:
        keep = str(self.keep) if self.keep is not None else None
        try:
            outcome: CaseOutcome = workers.current().call(
                "run_case", row.run.id, row.kernel_ids, case, row.kind != "twin", keep
            )
        except WorkerStopped as stopped:
            return self.result(row, case, stopped_verdict(stopped), stopped.detail)
        except AdvisorError as error:
            workers.release()  # a fault has taken the context along; a refusal costs a new process, no more
            return self.result(row, case, "launch_error", str(error))
        checks = dict(outcome.checks)
        details = [outcome.detail] if outcome.detail else []
        if row.kind != "twin":
            other = self.bits.check(row, case, outcome.digest)
            if other is not None:
                checks["same_bits"] = other == ""
                details += [f"other bits than {other}, which sums the same tiles in the same order"] if other else []
        verdict: CaseVerdict = "correct" if all(checks.values()) else "mismatch"
        return self.result(
            row,
            case,
            verdict,
            "; ".join(details),
            launch=outcome.launch,
            checks=checks,
            image=outcome.launch.target if outcome.launch else "",
            worst=outcome.worst,
            launches=outcome.launches,
        )

    # ---- time ---------------------------------------------------------------------------------------------------

    def _time(self, workers: Workers, row: Row, cases: Sequence[Case]) -> None:
        """The own shape's time, put on its result. A rung that is not right there is not timed."""
        own = next((case for case in cases if case.name.startswith("own_shape") and case.data == "normal"), None)
        where = next(
            (
                index
                for index, each in enumerate(self.results)
                if own is not None and each.rung == row.run.id and each.name == own.name and each.verdict == "correct"
            ),
            None,
        )
        if own is None or where is None:
            return
        result = self.results[where]
        if result.launch is None or 0 in result.launch.grid_blocks:
            return
        try:
            timing: Timing = workers.current().call("time", row.kernel_ids, own)
        except WorkerStopped as stopped:
            update: dict[str, Any] = {"verdict": stopped_verdict(stopped), "detail": stopped.detail}
        except AdvisorError as error:
            workers.release()
            update = {"verdict": "launch_error", "detail": f"while it was timed: {error}"}
        else:
            update = {"timing": timing}
        self.results[where] = result.model_copy(update=update)

    # ---- experiment ---------------------------------------------------------------------------------------------

    def _rival(self, assembly: Assembly) -> tuple[Assembly, Row | None, str]:
        if not self.bundle.plan.alternatives:
            return assembly, None, "the plan has no alternative: nothing else is legal"
        try:
            wider, row = with_alternative(
                assembly,
                self.bundle,
                self.workload,
                self.bundle.plan.alternatives[0],
                self.build,
                self.folder,
                self.profile.compute_capability,
            )
        except AdvisorError as error:
            return assembly, None, f"the alternative was not built: {error}"
        return wider, row, ""

    def _experiment(self, workers: Workers, assembly: Assembly, rival: Row | None, why_not: str) -> dict[str, Any]:
        choice = assembly.rows[0]
        planned = self.bundle.plan.choice
        document: dict[str, Any] = {"name": "ab", "choice": planned.kernel_id if planned else choice.run.id}
        if rival is None:
            return {**document, "verdict": "not_run", "reason": why_not}
        alternative = self.bundle.plan.alternatives[0]
        document |= {"alternative": alternative.label, "predicted_margin": alternative.margin}
        if planned is not None and planned.kernel_id != choice.run.id:
            why = f"the choice {planned.kernel_id} has no kernel yet: nothing can be measured against it"
            return {**document, "verdict": "not_run", "reason": why}
        obstacle = self._obstacle(choice) or self._obstacle(rival)
        own = next((case for case in self._cases(choice) if case.data == "normal"), None)
        if obstacle or own is None:
            return {**document, "verdict": "not_run", "reason": obstacle or "no case to measure"}
        self.progress(f"experiment: {document['choice']} against {alternative.label}", self.done, self.total)
        workers.release()
        for row in (choice, rival):
            result = self._run_case(workers, row, own)
            if row is rival:
                self.results.append(result)
            if result.verdict != "correct":
                why = f"{row.run.id} is not right on {own.name} ({result.verdict}): its time means nothing"
                return {**document, "verdict": "not_run", "reason": why}
        try:
            first, second = workers.current().call("compare_times", choice.kernel_ids, rival.kernel_ids, own)
        except (WorkerStopped, AdvisorError) as error:
            return {**document, "verdict": "not_run", "reason": f"the timing did not finish: {error}"}
        return {**document, "case": own.name, **judge(first, second)}

    # ---- evidence -----------------------------------------------------------------------------------------------

    def _evidence(self, assembly: Assembly, experiment: dict[str, Any] | None) -> Evidence:
        chip = self.device.info.chip()
        rows = [*compiled_rows(self.bundle, self.built), *extra_rows(assembly.extras, assembly.rows)]
        gates: list[KernelEvidence] = []
        for row in rows:
            runs = {each.run.id for each in assembly.rows if row.kernel_id in each.kernel_ids}
            image = assembly.images.get(row.kernel_id)
            results = [each for each in self.results if each.rung in runs]
            target = image.target if image else None
            gates.append(with_ran(row, target, self.facts.get(row.kernel_id), results, chip))
        verdict = verdict_of(gates, self.results)
        return Evidence(
            bundle=self.bundle.name,
            manifest_hash=self.bundle.manifest_hash,
            devices=["cuda"],
            chip=chip,
            gates=gates,
            cases=self.results,
            residency=residency_checks(assembly.launch, self.facts, self.profile),
            experiment=experiment,
            not_run_reason="no kernel of this bundle ran on this device" if verdict == "not_run" else None,
            verdict=verdict,
        )


def residency_checks(launch: Launch, facts: Mapping[str, KernelFacts], profile: DeviceProfile) -> list[ResidencyCheck]:
    """The formula on the device's profile against the driver's answer, for every kernel that loads."""
    checks = []
    for kernel in launch.kernels:
        known = facts.get(kernel.id)
        if known is None or not known.loadable:
            continue
        x, y, z = kernel.block
        key = OccupancyKey(
            threads=x * y * z,
            registers=known.registers,
            smem_bytes=kernel.static_smem_bytes + evaluate(kernel.dynamic_smem_bytes, {}),
            carveout=kernel.carveout,
            cluster=kernel.cluster,
        )
        checks.append(
            ResidencyCheck(
                kernel_id=kernel.id,
                cluster_size=key.cluster_size,
                predicted=max_active_clusters(profile, key),
                queried=known.max_active_clusters,
            )
        )
    return checks


def stopped_verdict(stopped: WorkerStopped) -> CaseVerdict:
    """A launch that does not come back is a deadlock, a slow host a timeout, a dead process a launch error."""
    if not stopped.timed_out:
        return "launch_error"
    return "deadlock" if "launch" in stopped.stage else "timeout"
