"""A problem file to a plan: the target, what was measured before, the plan itself.

Imports `planner` and below; the store of measurements when a GPU is the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from advisor.errors import EXIT_DONE, EXIT_NO, DeviceError, InputError, ProfileError, printable
from advisor.kinds import workload as make_workload
from advisor.kinds.workload import Measurements, Occupancy, Workload
from advisor.machine import load_profile
from advisor.machine.profile import DeviceProfile
from advisor.machine.profile_file import is_path
from advisor.planner import plan as make_plan
from advisor.problem import Problem, load_problem, place_of
from advisor.records.candidate import Family
from advisor.records.evidence import Chip
from advisor.records.plan import Plan
from advisor.workflow.devices import ANY_DEVICE, at_hand
from advisor.workflow.progress import Noted, Progress, silent, stage

if TYPE_CHECKING:
    from advisor.runtime import Device

DEFAULT_TARGET = "b200"  # without a GPU at hand
HOPPER_PROFILE = "h200"  # the sm90 rung of a Blackwell plan is planned for it


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


def plan_file(path: str | Path, *, target: str | None = None, progress: Progress = silent) -> Planned:
    """The plan of a problem file, from the profile's formula. Raises ProblemError, ProfileError."""
    problem = read(path, progress)
    return planned_for(problem, targeting_of(problem, target, Path(path), progress), None, progress)


def targeting_of(problem: Problem, asked: str | None, file: Path, progress: Progress) -> Targeting:
    """The target of a command that only describes a GPU and runs nothing on it."""
    if (asked if asked is not None else problem.target) == "auto":
        with at_hand(ANY_DEVICE) as (gpu, _):
            targeting = resolve_target(problem, asked, file, gpu)
    else:
        targeting = resolve_target(problem, asked, file, None)
    if targeting.note:
        progress(Noted(targeting.note))
    return targeting


def read(path: str | Path, progress: Progress) -> Problem:
    with stage(progress, "read", printable(str(path))) as result:
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


def planned_for(problem: Problem, targeting: Targeting, oracle: Occupancy | None, progress: Progress) -> Planned:
    work = make_workload(problem)
    times = _known_times(work, targeting, progress)
    return Planned(problem, work, targeting, plan_workload(work, targeting, oracle, progress, times))


def plan_with(
    problem: Problem,
    work: Workload,
    targeting: Targeting,
    measurements: Measurements,
    progress: Progress = silent,
) -> Planned:
    """The plan with measured times of this problem on the target over the predictions."""
    return Planned(problem, work, targeting, plan_workload(work, targeting, None, progress, measurements))


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


def plan_workload(
    work: Workload,
    targeting: Targeting,
    oracle: Occupancy | None,
    progress: Progress,
    measurements: Measurements | None = None,
) -> Plan:
    with stage(progress, "plan", f"{work.name} for {targeting.profile.name}") as result:
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
