"""A plan rendered to a bundle: sources, headers, launch.json, host launcher, binding, test program, README.

The same plan renders the same bytes: nothing of a date, a host, a path or an order of a set goes in. The kind hands
over its kernels (`Workload.kernels`); which of them a bundle holds is `records/twins.py`, when each runs `ladder.py`.
Imports the rooms below `codegen`; Jinja and the YAML writer only inside functions.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.bundle.expressions import names_in, queries_in
from advisor.bundle.headers import include_closure
from advisor.bundle.store import BuildUnit, RenderedBundle, check_path, manifest_text, units_of
from advisor.codegen import host, templates
from advisor.codegen.ladder import rung
from advisor.errors import RefusedError, ToolError
from advisor.kinds.workload import Workload
from advisor.machine import load_profile
from advisor.machine.features import Feature, compute_capability, loadable, supports
from advisor.machine.profile import DeviceProfile
from advisor.records.base import canonical_json
from advisor.records.candidate import Candidate
from advisor.records.launch import (
    Buffer,
    Kernel,
    KernelSpec,
    Launch,
    Param,
    PtrParam,
    Rung,
    ScalarParam,
    TensorMapParam,
)
from advisor.records.plan import Plan
from advisor.records.twins import Twin, other_schedules, twins

_FACTS = frozenset({"num_sms", "sm_budget"})
_SAFE_CONTEXT = re.compile(r"[A-Za-z0-9_:.<>,& -]*")
_DEFINE = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Run:
    """One entry of the ladder: a candidate and the kernels that run it, in launch order."""

    id: str
    candidate: Candidate
    specs: tuple[KernelSpec, ...]

    @property
    def kernels(self) -> list[Kernel]:
        return [spec.kernel for spec in self.specs]


def render_bundle(plan: Plan, workload: Workload) -> RenderedBundle:
    """Every file of the plan's bundle. Nothing is written.

    Raises RefusedError NOTHING_TO_RENDER where the plan has no choice; ToolError
    where what a kind handed over does not fit together.
    """
    runs = bundle_runs(plan, workload)
    launch = compose_launch(workload, runs, workload.buffers(), ladder(runs))
    name = templates.identifier(workload.name)
    files = {
        "problem.yaml": problem_yaml(workload.document),
        "plan.json": canonical_json(plan),
        "launch.json": canonical_json(launch),
        **_device_files(runs),
        **host.files(name, plan, launch, workload.interface()),
    }
    for path in files:
        check_path(path)
    files["manifest.json"] = manifest_text(name, files)
    return RenderedBundle(name, dict(sorted(files.items())), launch, plan)


def bundle_runs(plan: Plan, workload: Workload) -> list[Run]:
    """What the bundle builds, in the order of the ladder: for each rung of the plan the choice and its twins."""
    runs: dict[str, Run] = {}
    for choice in plan.choices:
        for twin in twins(choice.candidate()):
            # Alone, a CTA of a pair holds all of B: such a twin may have to do with fewer stages.
            rendered = _run(workload, replace(twin, candidate=workload.fitted(twin.candidate)), plan.target.arch)
            runs.setdefault(rendered.id, rendered)
    if not runs:
        raise RefusedError(
            "NOTHING_TO_RENDER",
            f"the plan for {workload.name} has no kernel to render: {plan.conclusion}",
            fix="read the plan's findings",
            numbers={"verdict": plan.verdict, "choices": len(plan.choices)},
        )
    return list(runs.values())


def variant_runs(plan: Plan, workload: Workload, profiles: Mapping[str, DeviceProfile] | None = None) -> list[Run]:
    """Each rung's choice under every other schedule that is legal for it and that the bundle does not hold.

    `profiles` maps the names that the plan uses to profiles; a name that is missing is a shipped profile's.
    """
    held = {run.id for run in bundle_runs(plan, workload)}
    found: dict[str, Run] = {}
    for choice in plan.choices:
        profile = (profiles or {}).get(choice.profile) or load_profile(choice.profile)
        for other in other_schedules(choice.candidate()):
            candidate = workload.fitted(other)
            if workload.clauses(candidate, profile):
                continue
            run = _run(workload, Twin(candidate, "chosen"), plan.target.arch)
            if run.id not in held:
                found.setdefault(run.id, run)
    return list(found.values())


def traced(run: Run) -> Run:
    """The run with its kernels' traced twins in their place, called `<id>_traced`. A twin counts in a buffer of its
    own, `trace_<kernel id>`."""
    specs = []
    for spec in run.specs:
        twin = spec.traced
        if twin is not None:
            images = {target: f"build/{twin.id}.{target}.cubin" for target in twin.images}
            params = [_own_trace(param, spec.kernel.id) for param in twin.params]
            kernel = twin.model_copy(update={"images": images, "params": params})
            specs.append(spec.model_copy(update={"kernel": kernel, "traced": None}))
        else:
            specs.append(spec)
    return Run(f"{run.id}_traced", run.candidate, tuple(specs))


def _own_trace(param: Param, kernel_id: str) -> Param:
    is_trace = isinstance(param, PtrParam) and param.buffer == "trace"
    return param.model_copy(update={"buffer": f"trace_{kernel_id}"}) if is_trace else param


def render_variants(
    plan: Plan, workload: Workload, profiles: Mapping[str, DeviceProfile] | None = None
) -> RenderedBundle:
    """What `validate` builds beside the bundle, as a bundle of its own: other schedules, and the traced twin of every
    run whose kind has one. The sources are the bundle's own, byte for byte. It is built and launched, never written.

    A run `r` has the traced twin `r_traced`, whose counts (uint32, one for each tile and slice) lie in the buffer
    `trace_<id of the kernel that counts>`; the caller zeroes it.
    """
    variants = variant_runs(plan, workload, profiles)
    twins_of = [run for run in [*bundle_runs(plan, workload), *variants] if any(spec.traced for spec in run.specs)]
    runs = [*variants, *(traced(run) for run in twins_of)]
    buffers = dict(workload.buffers())
    for run in [*bundle_runs(plan, workload), *variants]:
        for spec in run.specs:
            if spec.traced is not None:
                elements = " * ".join(f"({each})" for each in spec.trace_shape)
                buffers[f"trace_{spec.kernel.id}"] = Buffer(
                    dtype="uint32", shape=[elements], role="inout", align_bytes=4
                )
    launch = compose_launch(workload, runs, buffers, [rung(run.id, run.specs) for run in runs])
    files = _device_files(runs)
    return RenderedBundle(templates.identifier(workload.name), dict(sorted(files.items())), launch, plan)


@dataclass(frozen=True, slots=True)
class Loose:
    """The kernels of one candidate in no bundle: what builds and launches them."""

    run: Run
    launch: Launch
    units: tuple[BuildUnit, ...]


def render_candidate(workload: Workload, candidate: Candidate, prefix: str = "") -> Loose:
    """A candidate's kernels, to be built, launched and never written.

    `prefix` stands before the ids, so that one launch file can hold the kernels of several candidates.
    """
    run = _run(workload, Twin(candidate, "chosen"))
    specs = []
    for spec in run.specs:
        kernel_id = prefix + spec.kernel.id
        images = {target: f"build/{kernel_id}.{target}.cubin" for target in spec.kernel.images}
        kernel = spec.kernel.model_copy(update={"id": kernel_id, "images": images})
        specs.append(spec.model_copy(update={"kernel": kernel}))
    run = Run(prefix + run.id, candidate, tuple(specs))
    launch = compose_launch(workload, [run], workload.buffers(), [rung(run.id, run.specs)])
    return Loose(run, launch, tuple(units_of(_device_files([run]), launch)))


def _run(workload: Workload, twin: Twin, arch: str | None = None) -> Run:
    """`arch`: the target of the plan, which gets an image of its own where no image of the kernel loads on it."""
    specs = workload.kernels(twin.candidate)
    first = specs[0].kernel.id
    run_id = first if len(specs) == 1 else first.removesuffix("_main")
    loading = [spec if arch is None else _loading(spec, arch) for spec in specs]
    return Run(run_id, twin.candidate, tuple(_with_role(spec, twin) for spec in loading))


def _loading(spec: KernelSpec, arch: str) -> KernelSpec:
    """The kernel with an image for the target: compute capability 11.0 loads none of those of 10.x. Portable kernels
    need a plain target, those of sm100 the features of tcgen05."""
    capability, kernel = compute_capability(arch), spec.kernel
    if any(loadable(each, capability) for each in kernel.images):
        return spec
    if kernel.family == "portable":
        target = arch.rstrip("af")
    elif kernel.family == "sm100" and supports(Feature.TCGEN05, arch):
        target = arch
    else:
        return spec
    own, traced = (each and _with_image(each, target) for each in (kernel, spec.traced))
    return spec.model_copy(update={"kernel": own, "traced": traced})


def _with_image(kernel: Kernel, target: str) -> Kernel:
    return kernel.model_copy(update={"images": {**kernel.images, target: f"build/{kernel.id}.{target}.cubin"}})


def _with_role(spec: KernelSpec, twin: Twin) -> KernelSpec:
    return spec if spec.role == "reduce" else spec.model_copy(update={"role": twin.role})


# --- launch.json -------------------------------------------------------------------------------------------------


def compose_launch(
    workload: Workload, runs: Sequence[Run], buffers: Mapping[str, Buffer], rungs: Sequence[Rung]
) -> Launch:
    """launch.json of these runs. Raises ToolError LAUNCH_INCONSISTENT."""
    kernels: dict[str, Kernel] = {}
    for run in runs:
        for kernel in run.kernels:
            if kernels.setdefault(kernel.id, kernel) != kernel:
                raise _inconsistent(f"two kernels are called {kernel.id}")
    launch = Launch(
        name=templates.identifier(workload.name),
        arguments=workload.arguments(),
        buffers=dict(buffers),
        kernels=list(kernels.values()),
        sequences={run.id: [kernel.id for kernel in run.kernels] for run in runs if len(run.specs) > 1},
        ladder=list(rungs),
    )
    check_launch(launch)
    return launch


def ladder(runs: Sequence[Run]) -> list[Rung]:
    """The rungs in order; what stands behind one that always runs could never run and is left out."""
    rungs = [rung(run.id, run.specs) for run in runs]
    always = [number for number, each in enumerate(rungs) if each.when == "True"]
    return rungs[: always[0] + 1] if always else rungs


def check_launch(launch: Launch) -> None:
    """Every name, path and expression of a launch file is one that its readers know. Raises ToolError."""
    arguments = {each.name for each in launch.arguments if each.type == "i64"}
    floats = {each.name for each in launch.arguments} - arguments
    for name in (*arguments, *floats, *launch.buffers):
        templates.identifier(name)
        if name in host.RESERVED:
            raise _inconsistent(f"the name {name!r} means something in C++ or Python")
    for buffer in launch.buffers.values():
        _check_names(arguments | _FACTS, buffer.shape)
    for kernel in launch.kernels:
        _check_kernel(kernel, launch, arguments, floats)
    for step in launch.ladder:
        for kernel in launch.kernels_of(step.run):
            templates.identifier(kernel.id)
        _check_names(arguments | _FACTS, [step.when])
        for query, subject in queries_in(step.when):
            known = launch.buffers if query == "aligned" else [each.id for each in launch.kernels]
            if subject not in known:
                raise _inconsistent(f"the rung {step.run} asks {query} of {subject!r}, which is not there")


def _check_kernel(kernel: Kernel, launch: Launch, arguments: set[str], floats: set[str]) -> None:
    for text in (kernel.id, kernel.entry, *(param.name for param in kernel.params)):
        templates.identifier(text)
    if len({host.variable(param) for param in kernel.params}) != len(kernel.params):
        raise _inconsistent(f"two parameters of {kernel.id} have one name")
    if not kernel.images or any(path != f"build/{kernel.id}.{target}.cubin" for target, path in kernel.images.items()):
        raise _inconsistent(f"the images of {kernel.id} are not build/{kernel.id}.<target>.cubin")
    for macro, value in kernel.defines.items():
        if not _DEFINE.fullmatch(macro) or (isinstance(value, str) and not _SAFE_CONTEXT.fullmatch(value)):
            raise _inconsistent(f"{kernel.id} defines {macro}={value!r}")
    known = arguments | _FACTS | {"max_active_clusters"}
    _check_names(known, kernel.grid_blocks)
    _check_names((), [kernel.dynamic_smem_bytes])  # residency is asked for before any argument is known
    for param in kernel.params:
        if isinstance(param, TensorMapParam):
            _check_names(known, [*param.global_dim, *param.global_stride_bytes])
        elif isinstance(param, ScalarParam):
            _check_scalar(kernel, param, known, floats)
        else:
            _check_names(known, [param.bytes if param.kind == "scratch" else param.offset_bytes])
        if param.kind in ("tensormap", "ptr") and param.buffer is not None and param.buffer not in launch.buffers:
            raise _inconsistent(f"{kernel.id} reads the buffer {param.buffer!r}, which is not there")


def _check_scalar(kernel: Kernel, param: ScalarParam, known: set[str] | frozenset[str], floats: set[str]) -> None:
    if param.kind in ("f16", "bf16", "f64"):
        raise _inconsistent(f"{kernel.id} takes {param.name} as {param.kind}; a launch passes integers and f32")
    if param.kind != "f32":
        if isinstance(param.value, float):
            raise _inconsistent(f"{kernel.id} gives the integer {param.name} the value {param.value}")
        _check_names(known, [param.value])
    elif isinstance(param.value, str) and param.value not in floats:
        raise _inconsistent(f"{kernel.id} reads the float argument {param.value!r}, which is not there")


def _check_names(known: Iterable[str], expressions: Iterable[str | int]) -> None:
    for expression in expressions:
        unknown = names_in(expression) - set(known)
        if unknown:
            raise _inconsistent(f"the expression {expression!r} uses {', '.join(sorted(unknown))}")


def _inconsistent(what: str) -> ToolError:
    return ToolError(
        "LAUNCH_INCONSISTENT",
        f"the launch file does not fit together: {what}",
        fix="this is a fault of the tool: report it with the problem file",
        numbers={"what": what},
    )


# --- device sources ----------------------------------------------------------------------------------------------


def _device_files(runs: Sequence[Run]) -> dict[str, str]:
    """One source per family and the headers that it reaches."""
    files: dict[str, str] = {}
    for source, spec in _sources(runs).items():
        files[source] = _render_source(spec)
        headers = include_closure(files[source], lambda name: templates.load(f"include/{name}"))
        files.update({f"include/{name}": text for name, text in headers.items()})
    return files


def _sources(runs: Sequence[Run]) -> dict[str, KernelSpec]:
    """The spec that each source is rendered from; all specs of a source agree on template and context."""
    found: dict[str, KernelSpec] = {}
    for run in runs:
        for spec in run.specs:
            source = spec.kernel.source
            if source != f"kernel_{spec.kernel.family}.cu":
                raise _inconsistent(f"{spec.kernel.id} is rendered to {source}")
            first = found.setdefault(source, spec)
            if (first.template, first.context) != (spec.template, spec.context):
                raise _inconsistent(
                    f"{first.kernel.id} and {spec.kernel.id} share {source} and differ in template or context"
                )
    return found


def _render_source(spec: KernelSpec) -> str:
    for name, value in spec.context.items():
        _check_context(name, value)
    return templates.render(spec.template, **spec.context)


def _check_context(name: str, value: Any) -> None:
    """A context holds numbers, booleans and C++ names, so that no text of a problem file can turn into code."""
    if isinstance(value, (list, tuple)):
        for each in value:
            _check_context(name, each)
    elif isinstance(value, dict):
        for each in value.values():
            _check_context(name, each)
    elif isinstance(value, str) and not _SAFE_CONTEXT.fullmatch(value):
        raise ToolError(
            "TEXT_UNSAFE",
            f"{value[:80]!r} is not a C++ name, so it is not written into a kernel",
            fix="this is a fault of the tool: report it with the problem file",
            numbers={"context": name},
        )


# --- problem.yaml ------------------------------------------------------------------------------------------------


def problem_yaml(document: dict[str, Any]) -> str:
    """The resolved problem as YAML: the model's order, block style, one text for one document."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel types it as None
    yaml.width = 4096
    text = io.StringIO()
    yaml.dump(document, text)
    return text.getvalue()
