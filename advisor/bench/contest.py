"""Who competes on a problem: the planner's pick, rivals from the legal space, and the images of all of them.

Imports `kinds`, `codegen`, `bundle`, `machine`, `records`; the toolchain only inside `compile_units`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from advisor.bench.gpu import Entry, Job
from advisor.bundle import BuildUnit
from advisor.bundle.store import CompiledImage
from advisor.codegen.render import Loose, render_candidate
from advisor.errors import ToolError
from advisor.kinds.workload import Search, Workload
from advisor.machine.features import loadable
from advisor.machine.profile import DeviceProfile
from advisor.records.candidate import Candidate, Family
from advisor.records.launch import Launch
from advisor.validation.assemble import best_target, joined
from advisor.validation.gpu import Image

Build = Callable[[Sequence[BuildUnit]], list[CompiledImage]]
PICK = "pick"
HOPELESS = 4.0  # times the best prediction: not worth a launch unless everything is asked for


@dataclass(frozen=True, slots=True)
class Rival:
    """A candidate and what the planner expects of it, microseconds."""

    candidate: Candidate
    predicted_us: float


@dataclass(frozen=True, slots=True)
class Contest:
    """A job for the backend, and what is known of each of its entries."""

    job: Job
    rivals: Mapping[str, Rival]
    hashes: Mapping[str, str]  # over the kernel hashes of an entry
    rejected: Mapping[str, tuple[Rival, str]]  # what was not built, with the reason

    def without(self, name: str) -> Contest:
        entries = tuple(each for each in self.job.entries if each.name != name)
        return replace(self, job=replace(self.job, entries=entries))


def assemble(
    name: str,
    problem_text: str,
    workload: Workload,
    rivals: Mapping[str, Rival],
    build: Build,
    folder: Path,
    capability: tuple[int, int],
    *,
    baselines: Sequence[str] = (),
    rounds: int = 10,
    sample_us: float = 4000.0,
) -> Contest:
    """Renders and builds every rival. Images go to `folder`, one file for each distinct kernel.

    A rival whose image spills registers, or of a family without an image for this GPU, is rejected with the reason: the
    planner's own check would not let it out. Raises ToolError COMPILE_FAILED for a source that does not compile.
    """
    loose: dict[str, Loose] = {}
    rejected: dict[str, tuple[Rival, str]] = {}
    for number, (key, rival) in enumerate(rivals.items()):
        rendered = render_candidate(workload, rival.candidate, f"c{number}_")
        if _best_units(rendered, capability):
            loose[key] = rendered
        else:
            rejected[key] = (rival, f"no image of the family {rival.candidate.family} loads on this GPU")
    units = {key: _best_units(each, capability) for key, each in loose.items()}
    flat = [(key, unit) for key, rows in units.items() for unit in rows]
    images: dict[str, Image] = {}
    hashes: dict[str, list[str]] = {}
    for (key, unit), image in zip(flat, build([unit for _, unit in flat]), strict=True):
        if image.spill_bytes:
            rejected[key] = (rivals[key], f"{unit.kernel_id} spills {image.spill_bytes} bytes of registers")
            loose.pop(key, None)
        path = folder / f"{image.kernel_hash[:32]}.{unit.target}.cubin"
        if not path.exists():
            path.write_bytes(image.cubin)
        images[unit.kernel_id] = Image(unit.target, str(path))
        hashes.setdefault(key, []).append(image.kernel_hash)
    if not loose:
        raise ToolError(
            "BENCH_NOTHING_TO_RUN",
            f"{name}: no kernel to measure: {'; '.join(why for _, why in rejected.values())}",
            fix="take a problem whose plan has a family with kernels for this GPU",
        )
    entries = tuple(Entry(key, tuple(kernel.id for kernel in each.run.kernels)) for key, each in loose.items())
    job = Job(
        name=name,
        problem_text=problem_text,
        launch=_joined([each.launch for each in loose.values()]),
        images=images,
        entries=entries,
        twins=(PICK,) if PICK in loose else (),
        baselines=tuple(baselines),
        rounds=rounds,
        sample_us=sample_us,
    )
    return Contest(job, dict(rivals), {key: combined(each) for key, each in hashes.items()}, rejected)


def combined(kernel_hashes: Sequence[str]) -> str:
    """One hash over the kernels of a launch, in order."""
    return hashlib.sha256("\n".join(kernel_hashes).encode()).hexdigest()


def hash_of(workload: Workload, candidate: Candidate, capability: tuple[int, int]) -> str | None:
    """What the kernels of a candidate hash to today; None where no image of them loads on the GPU."""
    from advisor.toolchain import Unit, kernel_hash

    rows = _best_units(render_candidate(workload, candidate), capability)
    if not rows:
        return None
    return combined([kernel_hash(Unit(r.name, r.source, r.headers, r.target, r.defines, r.flags)) for r in rows])


def _joined(launches: Sequence[Launch]) -> Launch:
    first = launches[0]
    for each in launches[1:]:
        first = joined(first, each)
    return first


def _best_units(rendered: Loose, capability: tuple[int, int]) -> list[BuildUnit]:
    kernels = {kernel.id: kernel for kernel in rendered.launch.kernels}
    return [unit for unit in rendered.units if unit.target == best_target(kernels[unit.kernel_id].images, capability)]


def compile_units(rows: Sequence[BuildUnit]) -> list[CompiledImage]:
    """Compiles with the project's toolchain on every core, each distinct unit once."""
    from advisor.toolchain import Unit, compile_many, kernel_hash

    units = [Unit(row.name, row.source, row.headers, row.target, row.defines, row.flags) for row in rows]
    keys = [(kernel_hash(unit), unit.target) for unit in units]
    distinct = dict(zip(keys, units, strict=True))
    built = dict(zip(distinct, compile_many(distinct.values(), workers=os.cpu_count() or 2), strict=True))
    return [built[key] for key in keys]


# ---- rivals --------------------------------------------------------------------------------------------------------


def rivals_of(
    workload: Workload,
    families: Mapping[Family, DeviceProfile],
    pick: Rival,
    count: int | None,
    capability: tuple[int, int],
) -> dict[str, Rival]:
    """The pick, and `count` others (None: everything legal), best prediction first, over all families that run here.

    A sweep that trusted the model's ranking could not find what the model gets wrong. So each option of each axis
    sends its best candidate, and each pair of tile and cluster, before the ranking fills what is left.
    """
    found: dict[Candidate, float] = {}
    searches = [
        workload.explore(profile, family, forced=True)
        for family, profile in families.items()
        if any(loadable(target, capability) for target in _targets(workload, family, profile))
    ]
    for search in searches:
        for row in _everything(search) if count is None else _varied(search, count):
            found.setdefault(search.candidate(row), float(search.time_us[row]))
    found.pop(pick.candidate, None)
    ranked = sorted(found.items(), key=lambda each: each[1])
    return {PICK: pick, **{f"rival {number}": Rival(*each) for number, each in enumerate(ranked[:count], start=1)}}


def _targets(workload: Workload, family: Family, profile: DeviceProfile) -> list[str]:
    """The images that a family's kernels have."""
    search = workload.explore(profile, family, forced=True)
    rows = _everything(search)
    if not rows:
        return []
    return [target for spec in workload.kernels(search.candidate(rows[0])) for target in spec.kernel.images]


def _everything(search: Search) -> list[int]:
    order = np.argsort(search.time_us, kind="stable")
    return [int(each) for each in order[: int(np.isfinite(search.time_us).sum())]]


def _varied(search: Search, count: int) -> list[int]:
    """Rows: the best of every option of every axis, of every tile under every cluster, then the ranking's best."""
    ranked = _everything(search)
    if not ranked:
        return []
    times = search.time_us
    worth = [row for row in ranked if times[row] <= HOPELESS * times[ranked[0]]]
    chosen: dict[int, None] = {}
    seen: set[tuple[str, int]] = set()
    pairs: list[int] = []
    tiles, clusters = search.axes["tile"][1], search.axes["cluster"][1]
    met: set[tuple[int, int]] = set()
    for row in worth:
        new = [(axis, int(search.axes[axis][1][row])) for axis in search.roles.swept]
        if not seen.issuperset(new):
            chosen[row] = None
            seen.update(new)
        if (pair := (int(tiles[row]), int(clusters[row]))) not in met:
            met.add(pair)
            pairs.append(row)
    for row in [*worth[: count // 3], *pairs, *worth]:
        if len(chosen) >= count:
            break
        chosen[row] = None
    return list(chosen)


def families_of(
    workload: Workload, profiles: Mapping[Family, DeviceProfile], target: DeviceProfile
) -> dict[Family, DeviceProfile]:
    """The families whose profile describes the target itself: predictions for another chip rank nothing here."""
    return {
        family: profiles[family]
        for family in workload.families(target)
        if profiles[family].compute_capability == target.compute_capability
    }
