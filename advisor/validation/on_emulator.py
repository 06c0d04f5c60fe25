"""Every rung of a bundle in the emulator, in processes side by side. Imports this room and those below.

What runs: every case on every rung, and the cases about scheduling on the choice under other schedules, each in the
manners that `manners.py` deals out, on the plan's profile cut to few SMs, so that waves and tails occur with few tiles.
Images whose PTX is one text but for its target are one lane: what one showed holds for the other. Traced twins are not
needed: writes are counted on the PTX that ships.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor import __version__
from advisor.bundle import evaluate
from advisor.emulator.policy import POLICIES
from advisor.emulator.world import cut_profile
from advisor.errors import AdvisorError
from advisor.machine import max_active_clusters
from advisor.machine.profile import DeviceProfile
from advisor.records.candidate import OccupancyKey
from advisor.records.case import Case
from advisor.records.evidence import CaseResult, CaseVerdict, EmulatedRun, Evidence, GateResult, Runner
from advisor.records.launch import Kernel
from advisor.validation.assemble import Row
from advisor.validation.counted import Range, as_facts, joined
from advisor.validation.driver import MAX_STOPS, Driver, Task, verdict_of
from advisor.validation.emulator import CaseShown, Setup, Shown
from advisor.validation.gates import compiled_rows, extra_rows, not_run, with_gate
from advisor.validation.lanes import Lane, Lanes, find_lanes
from advisor.validation.manners import Manner, manners
from advisor.validation.workers import Pool, WorkerStopped

EMULATOR_BACKEND = "advisor.validation.emulator:EmulatorBackend"
MAX_PROCESSES = 8  # a large case takes a few hundred MB
# One thread to a process: several of them would get in each other's way.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Emulation:
    """How a bundle is emulated. `full` is the product of cases, policies and seeds."""

    full: bool = False
    processes: int | None = None  # default: one for each core
    async_policies: tuple[str, ...] = POLICIES
    backend: str = EMULATOR_BACKEND


@dataclass(frozen=True, slots=True)
class _Job:
    number: int  # its place in the evidence
    lane: Lane
    case: Case
    manners: tuple[Manner, ...]
    obstacle: str = ""  # why it cannot run at all


class OnEmulator(Driver):
    """Every rung in the emulator."""

    runner: Runner = "emulator"

    def __init__(self, task: Task, emulation: Emulation, *, reason: str | None) -> None:
        """`reason` says why nothing of it ran on a GPU; None where that is another part's to say."""
        super().__init__(task)
        self.emulation = emulation
        self.reason = reason
        self.stops: Counter[tuple[tuple[str, str], ...]] = Counter()  # by the images of a lane
        self.counted: dict[tuple[tuple[str, str], ...], dict[str, Range]] = {}  # by the same

    def run(self, wanted: Callable[[Row], bool]) -> Evidence:
        """The rows that `wanted` names."""
        size = self.emulation.processes or min(MAX_PROCESSES, len(os.sched_getaffinity(0)))
        with Pool(self.emulation.backend, size, ONE_THREAD) as pool:  # they start while the compiler works
            self.progress("building other schedules", 0, None)
            lanes = find_lanes(self.bundle, self.built, self.workload, self.build, self.folder, wanted)
            setup = pool.setup = self._setup(lanes)
            jobs = list(self._jobs(lanes, setup))
            self.total = sum(len(job.manners) for job in jobs if not job.obstacle)
            ended: dict[int, CaseResult] = {}
            shown: dict[int, CaseShown] = {}
            for job, answer in pool.run(self._in_order(jobs), "run_case", self._arguments):
                self.done += len(job.manners)
                self.progress(f"{job.lane.row.run.id} for {job.lane.target}: {job.case.name}", self.done, self.total)
                ended[job.number] = self._ended(job, answer)
                if isinstance(answer, CaseShown):
                    shown[job.number] = answer
                    self._count(job.lane, answer)
        for job in jobs:
            self.results.append(self._with_same_bits(job, self._or_left_out(job, ended), shown.get(job.number)))
        if lanes.missing:
            self.results.append(self.not_run_row("other_schedules", lanes.missing))
        return self._evidence(lanes, setup)

    # ---- what runs ----------------------------------------------------------------------------------------------

    def _setup(self, lanes: Lanes) -> Setup:
        kernels = {kernel.id: kernel for lane in lanes.found for kernel in lane.row.run.kernels}
        profiles, residency = {}, {}
        for lane in lanes.found:
            for image in lane.images:
                kernel = kernels[image[0]]
                preferred = kernel.attributes.preferred_cluster
                smaller = math.prod(kernel.cluster) if preferred else None
                size = math.prod(preferred or kernel.cluster)
                profiles[image] = cut_profile(lanes.profile_of(lane), size, smaller=smaller)
                residency[image] = max_active_clusters(profiles[image], _key(kernel, lanes.ptx[image].registers))
        budget, whole = self.sm_budget, lanes.profiles[self.bundle.plan.choices[0].family].sms
        return Setup(
            problem_text=self.bundle.problem_text,
            launch=lanes.launch,
            ptx=lanes.ptx,
            profiles=profiles,
            residency=residency,
            candidates={lane.row.run.id: lane.row.run.candidate for lane in lanes.found},
            plan=self.bundle.plan,
            sm_share=1.0 if budget is None else min(1.0, budget / whole),
        )

    def _jobs(self, lanes: Lanes, setup: Setup) -> Iterator[_Job]:
        number = 0
        for lane in lanes.found:
            main = lane.images[0]
            clc = any(kernel.schedule == "clc" for kernel in lane.row.run.kernels)
            mixed = any(kernel.attributes.preferred_cluster for kernel in lane.row.run.kernels)
            cases = self.cases_of(lane.row, setup.residency[main], setup.profiles[main].sms, small=True)
            for place, case in enumerate(cases):
                ways = manners(
                    place,
                    full=self.emulation.full,
                    once=not lane.first,
                    clc=clc,
                    mixed=mixed,
                    async_policies=self.emulation.async_policies,
                )
                yield _Job(number, lane, case, tuple(ways), _obstacle(lane, setup))
                number += 1

    def _in_order(self, jobs: Sequence[_Job]) -> Iterator[_Job]:
        """The largest first, so that no process is left alone with one at the end. A rung that keeps hanging stops."""
        for job in sorted(jobs, key=lambda job: (-self.workload.flops(job.case), job.number)):
            if not job.obstacle and self.stops[job.lane.images] < MAX_STOPS:
                yield job

    def _arguments(self, job: _Job) -> tuple[Any, ...]:
        keep = str(self.keep) if self.keep is not None else None
        return job.lane.row.run.id, job.lane.images, job.case, job.manners, keep

    # ---- what came of it ----------------------------------------------------------------------------------------

    def _ended(self, job: _Job, answer: Any) -> CaseResult:
        if isinstance(answer, CaseShown):
            return self._result(job, answer)
        verdict: CaseVerdict = "launch_error"
        if isinstance(answer, WorkerStopped):  # a process that died says nothing of the kernel
            self.stops[job.lane.images] += 1
            verdict = "timeout" if answer.timed_out else "not_run"
            return self.result(job.lane.row, job.case, verdict, answer.detail, image=job.lane.target)
        assert isinstance(answer, AdvisorError)
        return self.result(job.lane.row, job.case, verdict, str(answer), image=job.lane.target)

    def _result(self, job: _Job, answer: CaseShown) -> CaseResult:
        bad = next((each for each in answer.manners if each.verdict != "correct"), None)
        if bad is not None and bad.verdict == "timeout":
            self.stops[job.lane.images] += 1
        details = [f"{bad.manner}: {bad.detail}"] if bad else []
        details += list(dict.fromkeys(warning for each in answer.manners for warning in each.warnings))
        checked = [each for each in answer.manners if each.checks is not None]
        worst = max(checked, key=lambda each: each.ratio, default=None)
        return self.result(
            job.lane.row,
            job.case,
            bad.verdict if bad else "correct",
            "; ".join(details),
            launch=answer.launch,
            checks=_checks(checked),
            image=job.lane.target,
            worst=worst.worst if worst else None,
            launches=0 if 0 in answer.launch.grid_blocks else len(answer.manners),
            runs=[
                EmulatedRun(
                    async_policy=each.manner.async_policy,
                    clc_policy=each.manner.clc_policy,
                    cluster_mix=each.manner.cluster_mix,
                    cluster_sizes=list(each.cluster_sizes),
                    seed=each.manner.seed,
                    verdict=each.verdict,
                    code=each.code,
                )
                for each in answer.manners
            ],
        )

    def _count(self, lane: Lane, answer: CaseShown) -> None:
        figures = [each.counted for each in answer.manners if each.counted]
        known = self.counted.get(lane.images, {})
        ends = [{name: value[end] for name, value in known.items()} for end in (0, 1)]
        self.counted[lane.images] = joined([*ends, *figures])

    def _or_left_out(self, job: _Job, ended: Mapping[int, CaseResult]) -> CaseResult:
        found = ended.get(job.number)
        if found is not None:
            return found
        why = job.obstacle or f"{self.stops[job.lane.images]} cases of this rung ran into their time limit before"
        return self.result(job.lane.row, job.case, "not_run", why, image=job.lane.target)

    def _with_same_bits(self, job: _Job, result: CaseResult, shown: CaseShown | None) -> CaseResult:
        """The same bits in every manner, and under every schedule that sums the same tiles in the same order."""
        if shown is None or result.verdict != "correct":
            return result
        digests = list(dict.fromkeys(each.digest for each in shown.manners))
        checks, details = dict(result.checks), [result.detail] if result.detail else []
        checks["same_bits_every_policy"] = len(digests) == 1
        if len(digests) > 1:
            other = next(each for each in shown.manners if each.digest != digests[0])
            details.append(f"{other.manner} gives other bits than {shown.manners[0].manner}")
        who = self.bits.check(job.lane.row, job.case, digests[0], job.lane.target)
        if who is not None:
            checks["same_bits"] = who == ""
            details += [f"other bits than {who}, which sums the same tiles in the same order"] if who else []
        verdict: CaseVerdict = "correct" if all(checks.values()) else "mismatch"
        return result.model_copy(update={"checks": checks, "detail": "; ".join(details), "verdict": verdict})

    # ---- evidence -----------------------------------------------------------------------------------------------

    def _evidence(self, lanes: Lanes, setup: Setup) -> Evidence:
        rows = [*compiled_rows(self.bundle, self.built), *extra_rows(lanes.extras, [])]
        by_lane: dict[tuple[str, str], list[CaseResult]] = {}
        for result in self.results:
            by_lane.setdefault((result.rung, result.image), []).append(result)
        gates = []
        for row in rows:
            for lane in lanes.found:
                if (row.kernel_id, row.image) in lane.covers:
                    results = by_lane.get((lane.row.run.id, lane.target), [])
                    row = with_gate(row, self._gate(lane, row.image, results, setup.profiles[lane.images[0]]))
            gates.append(row if self.reason is None else not_run(row, self.reason))
        verdict = verdict_of(gates, self.results)
        return Evidence(
            bundle=self.bundle.name,
            manifest_hash=self.bundle.manifest_hash,
            devices=["emulator"] if any(each.verdict != "not_run" for each in self.results) else [],
            gates=gates,
            cases=self.results,
            not_run_reason=self.reason,
            verdict=verdict,
        )

    def _gate(self, lane: Lane, image: str, results: Sequence[CaseResult], profile: DeviceProfile) -> GateResult:
        """What the cases of a lane say of one of its images."""
        runs = [run for each in results for run in each.runs]
        correct = sum(each.verdict == "correct" for each in results)
        facts: dict[str, Any] = {
            "emulator": __version__,
            "profile": profile.name,
            "sm_groups": list(profile.sm_groups),
            "async_policies": sorted({run.async_policy for run in runs}),
            "clc_policies": sorted({run.clc_policy for run in runs if run.clc_policy}),
            "cluster_mixes": sorted({run.cluster_mix for run in runs if run.cluster_mix}),
            "seeds": sorted({run.seed for run in runs}),
            "cases": len(results),
            "correct": correct,
            "runs": len(runs),
        }
        if lane.row.main.attributes.programmatic_stream_serialization:
            facts["predecessor"] = "late"
        if facts["cluster_mixes"]:
            facts["cluster_sizes"] = _sizes_by_mix(runs)
        if figures := self.counted.get(lane.images):
            facts["counted"] = as_facts(figures)
        if image != lane.target:
            facts["ptx_of"] = lane.target  # the same text but for its target
        wrong = [each for each in results if each.verdict not in ("correct", "not_run")]
        left = [each for each in results if each.verdict == "not_run"]
        if wrong:
            reason = "; ".join(f"{each.name}: {each.verdict}" for each in wrong[:4])
            return GateResult(gate="emulated", result="fail", reason=reason, facts=facts)
        if not left and facts["cluster_mixes"] and not any(len(run.cluster_sizes) > 1 for run in runs):
            reason = "no launch of any case had clusters of both sizes"
            return GateResult(gate="emulated", result="not_run", reason=reason, facts=facts)
        if left or not results:
            some = f"{len(left)} of {len(results)} cases did not run; {left[0].name}: {left[0].detail}" if left else ""
            return GateResult(gate="emulated", result="not_run", reason=some or "no case asks for it", facts=facts)
        return GateResult(gate="emulated", result="pass", facts=facts)


def _sizes_by_mix(runs: Sequence[EmulatedRun]) -> dict[str, list[int]]:
    """The cluster sizes that ran under each policy for launches of two sizes, in CTAs."""
    found: dict[str, set[int]] = {}
    for run in runs:
        found.setdefault(str(run.cluster_mix), set()).update(run.cluster_sizes)
    return {mix: sorted(sizes) for mix, sizes in sorted(found.items())}


def _obstacle(lane: Lane, setup: Setup) -> str:
    """Why a lane cannot run at all: its rung's condition asks for a resident cluster."""
    for image in lane.images:
        if not setup.residency[image]:
            return f"no cluster of {image[0]} is resident on {setup.profiles[image].title}: the ladder steps down"
    return ""


def _checks(shown: Sequence[Shown]) -> dict[str, bool]:
    """What holds in every manner."""
    found: dict[str, bool] = {}
    for each in shown:
        for name, holds in (each.checks or {}).items():
            found[name] = found.get(name, True) and holds
    return found


def _key(kernel: Kernel, registers: int) -> OccupancyKey:
    x, y, z = kernel.block
    return OccupancyKey(
        threads=x * y * z,
        registers=registers,
        smem_bytes=kernel.static_smem_bytes + evaluate(kernel.dynamic_smem_bytes, {}),
        carveout=kernel.carveout,
        cluster=kernel.cluster,
    )
