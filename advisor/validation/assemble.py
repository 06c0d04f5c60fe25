"""What a validation runs: the bundle's rungs, the choice under other schedules, every run's traced twin, and for an
experiment the alternative, with one launch file over all of them and one image of each for the device at hand.

Imports `codegen`, `bundle`, `kinds`, `machine`, `problem`, `records` and `errors`; the toolchain only inside
`toolchain_build`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from advisor.bundle import BuildUnit, Bundle, RenderedBundle, units
from advisor.bundle.store import CompiledImage
from advisor.codegen.render import (
    Run,
    bundle_runs,
    render_bundle,
    render_candidate,
    render_variants,
    traced,
    variant_runs,
)
from advisor.errors import ToolError
from advisor.kinds import workload as make_workload
from advisor.kinds.workload import Workload
from advisor.machine import profile_names
from advisor.machine.features import loadable
from advisor.machine.profile import DeviceProfile
from advisor.problem import parse_problem
from advisor.records.candidate import Candidate
from advisor.records.launch import Kernel, Launch
from advisor.records.plan import Alternative
from advisor.validation.gpu import Image

Build = Callable[[list[BuildUnit]], list[CompiledImage]]
Capability = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One runnable thing. `when` is its rung's condition."""

    run: Run
    kind: Literal["rung", "variant", "twin", "alternative"]
    when: str

    @property
    def kernel_ids(self) -> list[str]:
        return [kernel.id for kernel in self.run.kernels]

    @property
    def main(self) -> Kernel:
        return self.run.kernels[0]


@dataclass(frozen=True, slots=True)
class Built:
    """What is known of one image beside the bundle's: a row of build.json in small."""

    kernel: Kernel
    target: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Assembly:
    """`launch` holds every kernel, `images` the one image of each that the device loads, `extras` what was built
    beside the bundle, `missing` why something was not."""

    rows: tuple[Row, ...]
    launch: Launch
    images: Mapping[str, Image]
    extras: tuple[Built, ...] = ()
    missing: str = ""


def assemble(
    bundle: Bundle, workload: Workload, profile: DeviceProfile, build: Build, folder: Path, *, twins: bool = True
) -> Assembly:
    """Rungs, variants and, where `twins` are wanted, the traced twin of each. What cannot be built for lack of a
    compiler is left out, with the reason."""
    capability = profile.compute_capability
    rows = bundle_rows(bundle, workload)
    runs = [row.run for row in rows]
    images = {
        kernel.id: Image(target, str(bundle.image(kernel.id, target)))
        for kernel in bundle.launch.kernels
        if (target := best_target(kernel.images, capability))
    }
    plain = Assembly(tuple(rows), bundle.launch, images)
    profiles = _profiles(bundle, profile)
    rendered = render_variants(bundle.plan, workload, profiles)
    variants = variant_runs(bundle.plan, workload, profiles)
    ids = None if twins else {kernel.id for run in variants for kernel in run.kernels}
    try:
        extras, extra_images = _build(rendered, build, folder / "variants", capability, ids)
    except ToolError as error:
        if error.code == "COMPILE_FAILED":
            raise
        return replace(plain, missing=f"other schedules and traced twins were not built: {error}")
    rows += [Row(run, "variant", rung_condition(rendered.launch, run.id)) for run in variants]
    for run in [*runs, *variants]:
        if twins and any(spec.traced is not None for spec in run.specs):
            twin = traced(run)
            rows.append(Row(twin, "twin", rung_condition(rendered.launch, twin.id)))
    launch = joined(bundle.launch, rendered.launch)
    return Assembly(tuple(rows), launch, {**images, **extra_images}, tuple(extras))


def bundle_rows(bundle: Bundle, workload: Workload | None = None) -> list[Row]:
    """The rungs of the bundle itself, in the order of the ladder."""
    if workload is None:
        workload = make_workload(parse_problem(bundle.problem_text, "problem.yaml"))
    runs = bundle_runs(bundle.plan, workload)
    return [Row(run, "rung", rung_condition(bundle.launch, run.id)) for run in runs]


def with_alternative(
    assembly: Assembly,
    bundle: Bundle,
    workload: Workload,
    alternative: Alternative,
    build: Build,
    folder: Path,
    capability: Capability,
) -> tuple[Assembly, Row | None]:
    """The assembly with the kernels of a runner-up, and its row; no row where its family has no kernels yet.

    Its tile may differ, so it has a source of its own; an id that is taken gets `alternative_` before it.
    """
    plan = bundle.plan.model_copy(update={"choices": [alternative.choice]})
    first = bundle_runs(plan, workload)[0]
    rendered = render_bundle(plan, workload)
    renamed = _renamed(first, "alternative_")
    kernels = {old.id: new for old, new in zip(first.kernels, renamed.kernels, strict=True)}
    wanted = [each for each in units(rendered) if each.kernel_id in kernels]
    chosen = _best_units(wanted, kernels, capability)
    compiled = build(chosen)
    images = dict(assembly.images)
    extras = list(assembly.extras)
    for unit, image in zip(chosen, compiled, strict=True):
        kernel = kernels[unit.kernel_id]
        images[kernel.id] = _write(folder / "alternative", kernel.id, unit.target, image)
        extras.append(Built(kernel, unit.target, built_facts(image)))
    launch = assembly.launch.model_copy(update={"kernels": [*assembly.launch.kernels, *renamed.kernels]})
    row = Row(renamed, "alternative", rung_condition(rendered.launch, first.id))
    return replace(assembly, launch=launch, images=images, extras=tuple(extras)), row


def with_candidate(
    assembly: Assembly,
    workload: Workload,
    candidate: Candidate,
    prefix: str,
    build: Build,
    folder: Path,
    capability: Capability,
) -> tuple[Assembly, Row | None]:
    """The assembly with the kernels of one more candidate, their ids after `prefix`, and its row; no row where no image
    of them loads. Raises ToolError."""
    loose = render_candidate(workload, candidate, prefix)
    kernels = {kernel.id: kernel for kernel in loose.launch.kernels}
    chosen = _best_units(loose.units, kernels, capability)
    if len(chosen) != len(kernels):
        return assembly, None
    images, extras = dict(assembly.images), list(assembly.extras)
    for unit, image in zip(chosen, build(chosen), strict=True):
        images[unit.kernel_id] = _write(folder / prefix.rstrip("_"), unit.kernel_id, unit.target, image)
        extras.append(Built(kernels[unit.kernel_id], unit.target, built_facts(image)))
    launch = joined(assembly.launch, loose.launch)
    row = Row(loose.run, "variant", rung_condition(loose.launch, loose.run.id))
    return replace(assembly, launch=launch, images=images, extras=tuple(extras)), row


def _renamed(run: Run, prefix: str) -> Run:
    specs = []
    for spec in run.specs:
        kernel = spec.kernel
        images = {target: f"build/{prefix}{kernel.id}.{target}.cubin" for target in kernel.images}
        specs.append(
            spec.model_copy(update={"kernel": kernel.model_copy(update={"id": prefix + kernel.id, "images": images})})
        )
    return Run(prefix + run.id, run.candidate, tuple(specs))


def toolchain_build(rows: list[BuildUnit]) -> list[CompiledImage]:
    """Compiles with the project's own toolchain."""
    from advisor.toolchain import Unit, compile_many

    sources = [Unit(row.name, row.source, row.headers, row.target, row.defines, row.flags) for row in rows]
    return list(compile_many(sources))


def best_target(targets: Iterable[str], capability: Capability) -> str | None:
    """The most specific of `targets` that a device of this compute capability loads: sm_90a before sm_90."""
    fitting = [each for each in targets if loadable(each, capability)]
    return max(fitting, key=lambda each: (int("".join(filter(str.isdigit, each))), each[-1].isalpha()), default=None)


def joined(first: Launch, second: Launch) -> Launch:
    """One launch file over the kernels of two that share arguments; what both have is the first's."""
    known = {kernel.id for kernel in first.kernels}
    return first.model_copy(
        update={
            "buffers": {**second.buffers, **first.buffers},
            "kernels": [*first.kernels, *(each for each in second.kernels if each.id not in known)],
            "sequences": {**second.sequences, **first.sequences},
            "ladder": [*first.ladder, *second.ladder],
        }
    )


def _profiles(bundle: Bundle, profile: DeviceProfile) -> dict[str, DeviceProfile]:
    """A plan made for a profile of the user's own names one that is not shipped: the device's stands in for it."""
    shipped = set(profile_names())
    return {choice.profile: profile for choice in bundle.plan.choices if choice.profile not in shipped}


def rung_condition(launch: Launch, run: str) -> str:
    """The condition of a rung. A run behind one that always runs has no rung of its own and is forced."""
    return next((rung.when for rung in launch.ladder if rung.run == run), "True")


def _build(
    rendered: RenderedBundle, build: Build, folder: Path, capability: Capability, ids: Collection[str] | None
) -> tuple[list[Built], dict[str, Image]]:
    """Every kernel, or those among `ids`."""
    kernels = {kernel.id: kernel for kernel in rendered.launch.kernels if ids is None or kernel.id in ids}
    wanted = [unit for unit in units(rendered) if unit.kernel_id in kernels]
    chosen = _best_units(wanted, kernels, capability)
    images, extras = {}, []
    for unit, image in zip(chosen, build(chosen), strict=True):
        images[unit.kernel_id] = _write(folder, unit.kernel_id, unit.target, image)
        extras.append(Built(kernels[unit.kernel_id], unit.target, built_facts(image)))
    return extras, images


def _best_units(wanted: Iterable[BuildUnit], kernels: Mapping[str, Kernel], capability: Capability) -> list[BuildUnit]:
    """One unit for each kernel: the image that the device loads."""
    return [unit for unit in wanted if unit.target == best_target(kernels[unit.kernel_id].images, capability)]


def _write(folder: Path, kernel_id: str, target: str, image: CompiledImage) -> Image:
    folder.mkdir(exist_ok=True)
    path = folder / f"{kernel_id}.{target}.cubin"
    path.write_bytes(image.cubin)
    return Image(target, str(path))


def built_facts(image: CompiledImage) -> dict[str, Any]:
    """What a row of build.json says of an image."""
    return {
        "kernel_hash": image.kernel_hash,
        "compiler": image.compiler,
        "registers": image.registers,
        "static_smem_bytes": image.static_smem_bytes,
        "spill_bytes": image.spill_bytes,
        "stack_bytes": image.stack_bytes,
        "ptx_sha256": image.ptx_sha256,
        "cubin_sha256": image.cubin_sha256,
        "sass": dict(image.sass),
    }
