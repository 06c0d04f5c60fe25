"""The backend that runs a bundle's PTX in the emulator, one of several processes side by side. Lives in the child.

Imports `emulator`, `bundle`, `kinds`, `problem`, `records` and `errors`. A case runs in each of its manners; what a GPU
shows only by luck, a race or a barrier that waits for nobody, is a report here, and the verdict follows from its code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.bundle import Facts, evaluate, is_empty, resolve
from advisor.emulator import KernelFault, Outcome, Program, load_program, run
from advisor.errors import InputError, RefusedError
from advisor.kinds import workload as make_workload
from advisor.kinds.workload import Workload
from advisor.machine.profile import DeviceProfile
from advisor.machine.profile_file import write_profile
from advisor.problem import parse_problem
from advisor.records.candidate import Candidate
from advisor.records.case import Case
from advisor.records.evidence import CaseVerdict, WorstElement
from advisor.records.launch import Kernel, Launch, ResolvedLaunch
from advisor.records.plan import Plan
from advisor.validation.checks import Comparison, NumpyArrays, compare, written_once
from advisor.validation.counted import counted
from advisor.validation.kept import keep_case
from advisor.validation.manners import Manner
from advisor.validation.plan_counts import Promises, promises
from advisor.validation.plan_counts import compare as compare_counts

Arrays = Mapping[str, NDArray[Any]]
Stage = Callable[[str, float], None]

STEP_LIMIT = 500_000  # basic blocks of a run: groups of warps in step count once, and the longest case takes 2,000
RUN_LIMIT_S = 120.0  # of one case in one manner: the slowest takes two seconds on an idle core
HOST_LIMIT_S = 120.0  # parsing, inputs, a reference

VERDICTS: dict[str, CaseVerdict] = {
    "EMU_DATA_RACE": "race",
    "EMU_BARRIER_OVERWRITTEN": "race",
    "EMU_DEADLOCK": "deadlock",
    "EMU_STEP_LIMIT": "timeout",
    "EMU_OUT_OF_BOUNDS": "launch_error",  # from here on, what a GPU ends a launch for
    "EMU_MISALIGNED": "launch_error",
    "EMU_TRAP": "launch_error",
    "EMU_BRANCH_TABLE": "launch_error",
    "EMU_UNKNOWN_OPCODE": "not_run",  # the emulator's own limits say nothing of the kernel
    "EMU_CALL": "not_run",
}
"""The verdict of each report; any other one says that a rule of PTX is broken: `protocol`."""
FATAL_WARNINGS = ("EMU_GRID_WAIT_SKIPPED",)  # what the kernels of this project promise not to do, legal or not


@dataclass(frozen=True, slots=True)
class Ptx:
    """The PTX of one image, and the registers of a thread that its cubin takes: they decide residency."""

    path: str
    registers: int


@dataclass(frozen=True, slots=True)
class Setup:
    """What a child needs to know. Kernels are named by id, images by (kernel id, target)."""

    problem_text: str
    launch: Launch  # every kernel, other schedules too
    ptx: Mapping[tuple[str, str], Ptx]
    profiles: Mapping[tuple[str, str], DeviceProfile]  # the device of each image, cut to few SMs
    residency: Mapping[tuple[str, str], int]
    candidates: Mapping[str, Candidate]  # by rung
    plan: Plan
    sm_share: float = 1.0  # of the SMs, that the problem's budget leaves


@dataclass(frozen=True, slots=True)
class Shown:
    """What one manner of a case showed."""

    manner: Manner
    verdict: CaseVerdict
    code: str = ""
    detail: str = ""
    checks: Mapping[str, bool] | None = None
    worst: WorstElement | None = None
    ratio: float = 0.0  # largest error / bound
    digest: str = ""  # of the outputs' bytes
    warnings: tuple[str, ...] = ()
    counted: Mapping[str, float] = field(default_factory=dict)  # of the rung's first kernel
    cluster_sizes: tuple[int, ...] = ()  # CTAs of the clusters that ran, where its launch mixes two sizes


@dataclass(frozen=True, slots=True)
class CaseShown:
    """A case in all its manners; one that launches nothing has a single one."""

    launch: ResolvedLaunch
    manners: tuple[Shown, ...]


class EmulatorBackend:
    """Made by `child.main`; every public method is a call of the parent."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._program = cache(self._load)
        self._promised = cache(self._promises)

    def open(self, setup: Setup) -> None:
        self._stage("opening the emulator", HOST_LIMIT_S)
        self._setup = setup
        self._workload: Workload = make_workload(parse_problem(setup.problem_text, "problem.yaml"))

    def run_case(
        self, rung: str, images: Sequence[tuple[str, str]], case: Case, manners: Sequence[Manner], keep: str | None
    ) -> CaseShown:
        """One case on one rung. `images` are its kernels with the target whose PTX runs, in launch order.

        Raises InputError where the launch cannot be made, what `resolve` and `load_program` raise.
        """
        self._stage(f"{case.name}: inputs and reference", HOST_LIMIT_S)
        arrays = self._workload.inputs(case)
        kernels = [self._setup.launch.kernel(name) for name, _ in images]
        resolved = [self._resolve(*each, case) for each in zip(kernels, images, strict=True)]
        if keep is not None:
            self._keep(Path(keep), rung, case, images, resolved, arrays)
        judge = _Judge(self._workload, self._setup.launch, kernels[0], case, arrays, self._promised(rung))
        if any(is_empty(each) for each in resolved):
            return CaseShown(resolved[0], (judge.untouched(manners[0]),))
        shown = []
        for manner in manners:
            self._stage(f"{case.name}: {manner}", RUN_LIMIT_S)
            shown.append(self._run(images, resolved, manner, judge))
            if shown[-1].verdict == "timeout":
                break
        return CaseShown(resolved[0], tuple(shown))

    def _run(
        self,
        images: Sequence[tuple[str, str]],
        resolved: Sequence[ResolvedLaunch],
        manner: Manner,
        judge: _Judge,
    ) -> Shown:
        outcome: Outcome | None = None
        outcomes = []
        for image, launch in zip(images, resolved, strict=True):
            given = {} if outcome else {name: each for name, each in judge.arrays.items() if name in launch.buffers}
            try:
                outcome = run(
                    self._program(image),
                    launch,
                    inputs=given,
                    after=outcome,
                    count_writes=judge.outputs,
                    seed=manner.seed,
                    async_policy=manner.async_policy,
                    clc=manner.clc_policy or "grant",
                    cluster_mix=manner.cluster_mix or "fill",
                    profile=self._setup.profiles[image],
                    registers=self._setup.ptx[image].registers,
                    step_limit=STEP_LIMIT,
                )
            except KernelFault as fault:
                verdict = VERDICTS.get(fault.code, "protocol")
                return Shown(manner, verdict, fault.code, f"{fault}" if len(images) == 1 else f"{image[0]}: {fault}")
            except InputError as error:
                return Shown(manner, "launch_error", error.code, str(error))
            except RefusedError as error:
                return Shown(manner, VERDICTS.get(error.code, "protocol"), error.code, str(error))
            for each in outcome.warnings:
                if each.code in FATAL_WARNINGS:
                    return Shown(manner, "protocol", each.code, f"{image[0]}: {each.message}")
            outcomes.append(outcome)
        return judge.shown(manner, outcomes)

    def _load(self, image: tuple[str, str]) -> Program:
        kernel = self._setup.launch.kernel(image[0])
        return load_program(Path(self._setup.ptx[image].path).read_text(encoding="utf-8"), kernel.entry, image[0])

    def _promises(self, rung: str) -> Promises | None:
        return promises(self._workload, self._setup.candidates[rung], self._setup.plan)

    def _resolve(self, kernel: Kernel, image: tuple[str, str], case: Case) -> ResolvedLaunch:
        sms = self._setup.profiles[image].sms
        facts = Facts(
            num_sms=sms,
            sm_budget=max(1, int(sms * self._setup.sm_share)),
            max_active_clusters={kernel.id: self._setup.residency[image]},
            loadable=frozenset(each for each, _ in self._setup.ptx),
            alignments=dict.fromkeys(self._setup.launch.buffers, 256),
        )
        known = {each.name for each in self._setup.launch.arguments}
        arguments = {name: value for name, value in case.arguments.items() if name in known}
        return behind_another(resolve(self._setup.launch, kernel.id, arguments, facts, image[1]))

    def _keep(
        self,
        folder: Path,
        rung: str,
        case: Case,
        images: Sequence[tuple[str, str]],
        resolved: Sequence[ResolvedLaunch],
        arrays: Arrays,
    ) -> None:
        known = {name: each for name, each in arrays.items() if name in resolved[0].buffers}
        place = keep_case(folder, rung, case, resolved, known)
        for image in images:
            text = Path(self._setup.ptx[image].path).read_bytes()
            (place / f"{image[0]}.{image[1]}.ptx").write_bytes(text)
        profile = write_profile(self._setup.profiles[images[0]])
        (place / f"{rung}.profile.toml").write_text(profile, encoding="utf-8")


def behind_another(launch: ResolvedLaunch) -> ResolvedLaunch:
    """A kernel that may start before the one before it has ended runs behind one that ends late and writes all that
    this one touches."""
    if not launch.attributes.programmatic_stream_serialization:
        return launch
    scratch = [param.name for param in launch.params if param.kind == "scratch"]
    return launch.model_copy(update={"predecessor_writes": [*launch.buffers, *scratch]})


class _Judge:
    """Holds what a case must give against what it gave. Made once for a case, whatever its manners."""

    def __init__(
        self,
        workload: Workload,
        launch: Launch,
        kernel: Kernel,
        case: Case,
        arrays: Arrays,
        promised: Promises | None,
    ) -> None:
        """`promised` is what the tables of the plan say of the rung's first kernel."""
        self.arrays = arrays
        self._promised = promised
        self._case = case
        self._xp = NumpyArrays()
        self.outputs = [name for name, buffer in launch.buffers.items() if buffer.role != "in" and name in arrays]
        self._reference = workload.reference(case, arrays)
        self._bound = workload.bound(case, arrays, kernel.family)
        self._compared: dict[tuple[str, ...], list[Comparison]] = {}  # by digests: the same bits are compared once

    def untouched(self, manner: Manner) -> Shown:
        """Where nothing is launched, nothing changes."""
        counts = {name: np.zeros(self.arrays[name].nbytes, np.int32) for name in self.outputs}
        return self._shown(manner, self.arrays, counts)

    def shown(self, manner: Manner, outcomes: Sequence[Outcome]) -> Shown:
        """What a rung's kernels left behind."""
        last = outcomes[-1]
        values = {
            name: last.buffers[name].view(each.dtype) for name, each in self.arrays.items() if name in last.buffers
        }
        counts = {name: sum((each.writes[name] for each in outcomes), start=np.int32(0)) for name in self.outputs}
        shown = self._as_planned(self._shown(manner, values, counts), outcomes[0])
        warnings = tuple(dict.fromkeys(f"{each.code}: {each.message}" for one in outcomes for each in one.warnings))
        sizes = tuple(sorted(set(outcomes[0].counts.sizes.values()))) if manner.cluster_mix else ()
        return replace(shown, warnings=warnings, cluster_sizes=sizes)

    def _shown(self, manner: Manner, values: Arrays, counts: Mapping[str, Any]) -> Shown:
        results = self._comparisons(values)
        checks: dict[str, bool] = {}
        details: list[str] = []
        for name, result in zip(self.outputs, results, strict=True):
            once, words = written_once(counts[name], ~np.isnan(self._reference[name]))
            for check, holds in {**result.checks, "written_once": once}.items():
                checks[check] = checks.get(check, True) and holds
            details += [f"{name}: {each}" for each in (result.detail, words) if each]
        inputs = [name for name in values if name not in self.outputs]
        changed = [name for name in inputs if values[name].tobytes() != self.arrays[name].tobytes()]
        checks["inputs_untouched"] = not changed
        details += [f"{name} was written, and is an input" for name in changed]
        worst = max(results, key=lambda each: each.ratio, default=None)
        return Shown(
            manner,
            "correct" if all(checks.values()) else "mismatch",
            detail="; ".join(details),
            checks=checks,
            worst=worst.worst if worst else None,
            ratio=worst.ratio if worst else 0.0,
            digest=hashlib.sha256("".join(each.digest for each in results).encode()).hexdigest(),
        )

    def _as_planned(self, shown: Shown, outcome: Outcome) -> Shown:
        """The same, with the tables of the plan held against what the first kernel did."""
        if self._promised is None:
            return shown
        whole = {name: each for name, each in self._case.arguments.items() if isinstance(each, int)}
        tiles = evaluate(self._promised.layout.cluster_tiles, whole)
        found = compare_counts(
            self._promised, outcome.counts, outcome.requests, clusters=outcome.clusters, tiles=tiles
        )  # fmt: skip
        checks = {**(shown.checks or {}), "as_planned": not found}
        shown = replace(shown, counted=counted(self._promised, outcome))
        if not found:
            return replace(shown, checks=checks)
        details = [shown.detail] if shown.detail else []
        details += [f"{each.message} [{each.code}]" for each in found]
        return replace(shown, checks=checks, verdict="mismatch", detail="; ".join(details))

    def _comparisons(self, values: Arrays) -> list[Comparison]:
        key = tuple(self._xp.digest(values[name]) for name in self.outputs)
        if key not in self._compared:
            exact = self._case.data == "integers"
            self._compared[key] = [
                compare(
                    self._xp, values[name], self.arrays[name], self._reference[name], self._bound[name], exact=exact
                )
                for name in self.outputs
            ]
        return self._compared[key]
