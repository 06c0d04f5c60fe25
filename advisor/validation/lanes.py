"""Which PTX the emulator runs: for each rung one lane per text, and what is built beside the bundle for it.

Imports `codegen`, `bundle`, `emulator`, `kinds`, `machine`, `records` and `errors`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.bundle import Bundle, units
from advisor.codegen.render import render_variants, variant_runs
from advisor.emulator.targets import check_device, default_profile
from advisor.errors import InputError, ToolError
from advisor.kinds.workload import Workload
from advisor.machine import load_profile, profile_names
from advisor.machine.features import compute_capability
from advisor.machine.profile import DeviceProfile
from advisor.records.candidate import Family
from advisor.records.launch import Kernel, Launch
from advisor.validation.assemble import Build, Built, Row, built_facts, bundle_rows, joined, rung_condition
from advisor.validation.emulator import Ptx


@dataclass(frozen=True, slots=True)
class Lane:
    """A rung with the PTX of one target. `images` are its kernels in launch order with the target of each, `covers`
    those and the images that are the same text but for their target."""

    row: Row
    target: str
    first: bool  # of its rung: the others are what another compiler made of the same source
    images: tuple[tuple[str, str], ...]
    covers: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Lanes:
    """`launch` holds every kernel, `extras` what was built beside the bundle, `missing` why something was not."""

    found: tuple[Lane, ...]
    launch: Launch
    ptx: Mapping[tuple[str, str], Ptx]
    profiles: Mapping[Family, DeviceProfile]
    extras: tuple[Built, ...] = ()
    missing: str = ""

    def profile_of(self, lane: Lane) -> DeviceProfile:
        """The profile that the lane's kernels are planned for; where it does not run this target, one that does."""
        planned = self.profiles[lane.row.main.family]
        try:
            check_device(lane.target, planned)
        except InputError:
            return load_profile(default_profile(lane.target))
        return planned


def find_lanes(
    bundle: Bundle,
    built: Sequence[Mapping[str, Any]],
    workload: Workload,
    build: Build,
    folder: Path,
    wanted: Callable[[Row], bool],
) -> Lanes:
    """The lanes of every rung and every other schedule that `wanted` names. What cannot be built for lack of a
    compiler is left out, with the reason. Raises ToolError COMPILE_FAILED."""
    profiles = _profiles(bundle)
    families = {choice.family: profiles[choice.profile] for choice in bundle.plan.choices}
    rows = [row for row in bundle_rows(bundle, workload) if wanted(row)]
    ptx = {
        (each["kernel_id"], each["target"]): Ptx(
            str(bundle.image(each["kernel_id"], each["target"]).with_suffix(".ptx")), each["registers"]
        )
        for each in built
    }
    launch, missing = bundle.launch, ""
    extras: list[Built] = []
    try:
        variants, launch, more, extras = _variants(bundle, workload, profiles, build, folder, wanted)
    except ToolError as error:
        if error.code == "COMPILE_FAILED":
            raise
        missing = f"other schedules were not built: {error}"
    else:
        rows += variants
        ptx |= more
    arch = bundle.plan.target.arch
    found = tuple(lane for row in rows for lane in _lanes_of(row, ptx, arch))
    return Lanes(found, launch, ptx, families, tuple(extras), missing)


def _variants(
    bundle: Bundle,
    workload: Workload,
    profiles: Mapping[str, DeviceProfile],
    build: Build,
    folder: Path,
    wanted: Callable[[Row], bool],
) -> tuple[list[Row], Launch, dict[tuple[str, str], Ptx], list[Built]]:
    """The choice under other schedules: rows, the launch file with their kernels, their PTX."""
    rendered = render_variants(bundle.plan, workload, profiles)
    runs = variant_runs(bundle.plan, workload, profiles)
    rows = [Row(run, "variant", rung_condition(rendered.launch, run.id)) for run in runs]
    rows = [row for row in rows if wanted(row)]
    kernels = {kernel.id: kernel for row in rows for kernel in row.run.kernels}
    ours = rendered.launch.model_copy(update={"buffers": {}, "kernels": list(kernels.values())})
    chosen = [
        unit
        for unit in units(rendered)
        if unit.kernel_id in kernels and unit.target == targets_of(kernels[unit.kernel_id], bundle.plan.target.arch)[0]
    ]
    ptx, extras = {}, []
    for unit, image in zip(chosen, build(chosen), strict=True):
        path = folder / f"{unit.kernel_id}.{unit.target}.ptx"
        path.write_text(image.ptx, encoding="utf-8")
        ptx[unit.kernel_id, unit.target] = Ptx(str(path), image.registers)
        extras.append(Built(kernels[unit.kernel_id], unit.target, built_facts(image)))
    return rows, joined(bundle.launch, ours), ptx, extras


def targets_of(kernel: Kernel, arch: str) -> list[str]:
    """The targets of a kernel's images, that of the GPU which is planned for first: its text is the one that runs."""
    return sorted(kernel.images, key=lambda target: target != arch)


def _lanes_of(row: Row, ptx: Mapping[tuple[str, str], Ptx], arch: str) -> list[Lane]:
    """One lane for each text among the images of a row's first kernel; its other kernels go along."""
    images: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for target in targets_of(row.main, arch):
        if (row.main.id, target) not in ptx:
            continue
        taken = tuple(
            (kernel.id, target if target in kernel.images else next(iter(kernel.images))) for kernel in row.run.kernels
        )
        images.setdefault("".join(_text_hash(ptx[each].path) for each in taken), []).append(taken)
    return [
        Lane(row, same[0][0][1], number == 0, same[0], frozenset(each for taken in same for each in taken))
        for number, same in enumerate(images.values())
    ]


def _text_hash(path: str) -> str:
    """Of the PTX without its target and without comments."""
    lines = (line.partition("//")[0].rstrip() for line in Path(path).read_text(encoding="utf-8").splitlines())
    kept = [line for line in lines if line and not line.startswith(".target")]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def _profiles(bundle: Bundle) -> dict[str, DeviceProfile]:
    """The profiles that the plan names. One of the user's own is not at hand: a shipped one stands in, since little of
    it is left once it is cut to a few SMs."""
    shipped = {name: load_profile(name) for name in sorted(profile_names())}
    return {
        choice.profile: shipped.get(choice.profile) or stand_in(bundle.plan.target.arch, list(shipped.values()))
        for choice in bundle.plan.choices
    }


def stand_in(arch: str, shipped: Sequence[DeviceProfile]) -> DeviceProfile:
    """A profile of the architecture; where none is shipped, the newest of an older one by its name."""
    capability = compute_capability(arch)
    same = [each for each in shipped if each.arch == arch]
    older = [each for each in shipped if each.compute_capability < capability]
    if same or not older:
        return (same or [load_profile("h200")])[0]
    return replace(max(older, key=lambda each: each.compute_capability), arch=arch, compute_capability=capability)
