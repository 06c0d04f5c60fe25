"""The Hopper template, rendered and compiled for sm_90a: what the plan promised is in the machine code."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from advisor.codegen.templates import folder, headers_for, render
from advisor.kinds.gemm import sm90
from advisor.kinds.gemm.work import GemmWork, Raster
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.launch import Kernel, KernelSpec, TensorMapParam
from advisor.toolchain import Compiled, Unit, broken_promises, compile_cuda, sass_facts

SMEM = 232448  # opt-in limit of one CTA on sm_90


def problem(**fields: Any) -> GemmProblem:
    return GemmProblem.model_validate({"kind": "gemm", "m": 8192, "n": 8192, "k": 8192, "dtype": "bf16", **fields})


def candidate(
    p: GemmProblem,
    tile: tuple[int, int] = (128, 256),
    cluster: tuple[int, int, int] = (2, 1, 1),
    schedule: Any = "static",
    **work: Any,
) -> Candidate:
    plain = GemmWork(multicast_a=cluster[1], multicast_b=cluster[0], **work)
    c = Candidate("sm90", cluster, schedule, (*tile, sm90.tile_k(p)), 0, sm90.threads(tile[0]), plain)
    return replace(c, stages=sm90.stages_that_fit(p, c, SMEM))


def source_of(spec: KernelSpec) -> str:
    return render(spec.template, **spec.context)


def unit_of(spec: KernelSpec, kernel: Kernel | None = None) -> Unit:
    source = source_of(spec)
    return Unit(sm90.SOURCE, source, headers_for(source), sm90.TARGET, (kernel or spec.kernel).defines)


def check(p: GemmProblem, c: Candidate, *, sass: bool = True) -> None:
    """Every kernel of the candidate compiles as planned and holds the instructions that the plan names."""
    assert sm90.violations(p, c) == []
    for spec in sm90.kernels(p, c):
        kernel, compiled = spec.kernel, compile_cuda(unit_of(spec), use_cache=False)
        label = f"{kernel.id} {c.tile} {p.a.dtype}"
        assert compiled.warnings == (), label
        assert broken_promises(compiled, kernel) == [], label
        assert (compiled.spill_bytes, compiled.stack_bytes, compiled.static_smem_bytes) == (0, 0, 0), label
        if sass:
            check_sass(p, c, kernel, compiled, label)


def check_sass(p: GemmProblem, c: Candidate, kernel: Kernel, compiled: Compiled, label: str) -> None:
    facts = sass_facts(compiled.cubin)
    assert not facts.has("LDL"), label
    assert not facts.has("STL"), label
    if kernel.entry != sm90.ENTRY:
        return
    x, y, z = c.cluster
    assert facts.has("QGMMA" if p.is_fp8 else "HGMMA"), label
    assert facts.has("UTMALDG"), label
    assert facts.has("UTMALDG.MULTICAST") == (x > 1 or y > 1), label
    assert facts.has("UTMASTG") == any(each.name == "map_d" for each in kernel.params), label
    assert facts.has("UCGABAR_WAIT") == (c.cluster_size > 1), label
    assert facts.has("USETMAXREG") == sm90.context(p, c).moves_registers, label
    assert ("st.shared::cluster.v4.f32" in compiled.ptx) == (z > 1), label
    assert ("atom" in compiled.ptx) == (c.schedule == "ticket"), label


# --- quick -------------------------------------------------------------------------------------------------------

FULL = {"alpha": 0.5, "beta": 2.0, "bias": "row", "activation": "gelu"}
REPRESENTATIVES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("the default", {}, {}),
    ("mn-major, square cluster, ticket", {"a": {"major": "m"}, "b": {"major": "n"}},
     {"tile": (128, 128), "cluster": (2, 2, 1), "schedule": "ticket"}),
    ("decode, swapped, full epilogue", {"epilogue": FULL},
     {"tile": (64, 16), "cluster": (1, 1, 1), "schedule": "one_tile", "swap_ab": True}),
    ("fp8, precise, scaled", {"dtype": "e4m3", "b": {"dtype": "e5m2"}, "scale": {"a": "tensor", "b": "tensor"}},
     {"tile": (128, 192)}),
    ("slices in a cluster", {"launch": {"pdl": True}}, {"tile": (128, 128), "cluster": (1, 1, 4), "split_k": 4}),
    ("tf32, slices over scratch", {"dtype": "tf32", "epilogue": FULL}, {"tile": (256, 128), "split_k": 4}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "how"), [each[1:] for each in REPRESENTATIVES], ids=[e[0] for e in REPRESENTATIVES])
def test_a_representative_compiles_as_planned(fields: dict[str, Any], how: dict[str, Any]) -> None:
    p = problem(**fields)
    check(p, candidate(p, **how))


def test_a_traced_twin_compiles_and_counts() -> None:
    p = problem()
    c = candidate(p, (64, 64))
    spec = sm90.kernels(p, c)[0]
    twin = compile_cuda(unit_of(spec, spec.traced), use_cache=False)
    assert broken_promises(twin, spec.kernel) == []
    assert re.search(r"\b(red|atom)\b.*global.*add\.u32", twin.ptx)


def test_the_one_way_out_of_every_kernel_leads_through_the_cluster_barrier() -> None:
    for cluster, split in (((2, 1, 1), 1), ((4, 4, 1), 1), ((1, 1, 4), 4)):
        p = problem()
        for schedule in ("one_tile", "static") if split > 1 else sm90.SCHEDULES:
            spec = sm90.kernels(p, candidate(p, (128, 128), cluster, schedule, split_k=split))[0]
            ptx = compile_cuda(unit_of(spec), use_cache=False).ptx
            assert exits_past_the_barrier(ptx) == []


def test_the_lint_finds_an_exit_that_passes_the_barrier_by() -> None:
    p = problem()
    spec = sm90.kernels(p, candidate(p, (64, 64)))[0]
    marker = "        ptx::setmaxnreg_dec<kProducerRegisters>();\n"
    source = source_of(spec)
    assert source.count(marker) == 1
    early = source.replace(marker, marker + "        if (warp == 3) return;\n")
    broken = Unit(sm90.SOURCE, early, headers_for(early), sm90.TARGET, spec.kernel.defines)
    assert exits_past_the_barrier(compile_cuda(broken, use_cache=False).ptx)
    assert early_returns(early)
    assert early_returns(source) == []


def exits_past_the_barrier(ptx: str) -> list[str]:
    """What is wrong with the ends of the entry: they must be one `ret`, straight behind a wait for the cluster."""
    body = ptx[ptx.index(".entry gemm_sm90(") :]
    lines = [line.strip() for line in body.splitlines()]
    code = [line for line in lines if line and not line.startswith(("//", ".loc", ".file", ".section"))]
    ends = [i for i, line in enumerate(code) if re.match(r"(@\S+ )?(ret|exit|trap)\b", line)]
    if len(ends) != 1:
        return [code[i] for i in ends] or ["no end"]
    tail = code[max(0, ends[0] - 8) : ends[0]]
    waits = [i for i, line in enumerate(tail) if "barrier.cluster.wait" in line]
    between = tail[waits[-1] + 1 :] if waits else tail
    jumps = [line for line in between if line.endswith(":") or line.startswith(("bra", "@"))]
    return [] if waits and not jumps else between or ["nothing waits"]


def early_returns(source: str) -> list[str]:
    """Returns in the rendered main entry. It has none: its roles are branches that meet at the last barrier."""
    entry = source[source.index("    gemm_sm90(") :]
    return re.findall(r"\breturn\b[^;]*;", entry)


def test_every_epilogue_and_role_ends_at_the_barrier_in_the_text_too() -> None:
    for fields, how in (each[1:] for each in REPRESENTATIVES):
        p = problem(**fields)
        source = source_of(sm90.kernels(p, candidate(p, **how))[0])
        assert early_returns(source) == []
        assert source.rstrip().endswith("cluster_barrier();\n}\n\n#endif")


def test_rendered_text_is_tidy() -> None:
    for fields, how in (each[1:] for each in REPRESENTATIVES):
        p = problem(**fields)
        source = source_of(sm90.kernels(p, candidate(p, **how))[0])
        assert [line for line in source.splitlines() if len(line) > 120 or line != line.rstrip() or "\t" in line] == []
        assert "\n\n\n" not in source
        assert "asm" not in source


def test_device_headers_stand_behind_nothing_of_a_toolkit() -> None:
    p = problem()
    headers = headers_for(source_of(sm90.kernels(p, candidate(p))[0]))
    assert {"epilogue.cuh", "ptx/wgmma.cuh", "ptx/tma.cuh", "types.cuh"} <= set(headers)
    for name, text in headers.items():
        included = re.findall(r"^\s*#\s*include\s+(\S+)", text, re.MULTILINE)
        assert all(each.startswith('"') for each in included), name
        assert all((folder() / "include" / each.strip('"')).is_file() for each in included), name
        assert text.splitlines()[0].startswith("//"), f"{name} does not say what it is for"
        assert max(map(len, text.splitlines())) <= 120, name


def test_the_same_plan_renders_the_same_bytes() -> None:
    p = problem(epilogue=FULL)
    first, second = (source_of(sm90.kernels(p, candidate(p))[0]) for _ in range(2))
    assert first == second


def test_boxes_and_kernel_agree_on_what_a_slice_is() -> None:
    """The kernel computes its slices from the cluster; a tensor map whose box differs would miscount bytes. Both
    follow one rule, so a box of another height must not exist for any cluster."""
    p = problem()
    for x, y in ((1, 1), (2, 1), (2, 2), (8, 2)):
        kernel = sm90.kernels(p, candidate(p, (128, 64), (x, y, 1)))[0].kernel
        boxes = {each.name: each.box_dim for each in kernel.params if isinstance(each, TensorMapParam)}
        assert boxes["map_a"] == [64, 128 // y, 1]
        assert boxes["map_b"] == [64, 64 // x, 1]


# --- the rest of the space ---------------------------------------------------------------------------------------

MAKES: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16 mn-major, d m-major, full epilogue": {
        "a": {"major": "m"}, "b": {"major": "n"}, "d": {"major": "m"}, "epilogue": FULL,
    },
    "fp16, fp32 out, C m-major": {
        "dtype": "fp16", "d": {"dtype": "fp32"}, "c": {"major": "m"}, "epilogue": {"beta": 1.0, "bias": "col"},
    },
    "tf32": {"dtype": "tf32", "epilogue": {"activation": "silu"}},
    "fp8 precise": {"dtype": "e4m3", "scale": {"a": "tensor", "b": "tensor"}, "epilogue": FULL},
    "fp8 fast": {"dtype": "e5m2", "b": {"dtype": "e4m3"}, "accumulate": "fast", "d": {"dtype": "fp16"}},
    "unaligned d": {"d": {"align_bytes": 2}, "epilogue": {"beta": 1.0, "activation": "relu"}},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKES)
def test_every_tile_of_every_make_compiles_as_planned(make: str) -> None:
    p = problem(**MAKES[make])
    built = 0
    # Every second N, those that other makes leave out.
    widths = sm90.TILE_N[list(MAKES).index(make) % 2 :: 2]
    for tile in itertools.product(sm90.TILE_M, widths):
        c = candidate(p, tile)
        if not sm90.violations(p, c):
            check(p, c, sass=False)
            built += 1
    assert built >= 15


@pytest.mark.slow
@pytest.mark.parametrize("schedule", sm90.SCHEDULES)
def test_every_cluster_compiles_as_planned(schedule: Any) -> None:
    p = problem(b={"major": "n"})
    sides = sm90.CLUSTER_EXTENTS
    for x, y in ((x, y) for x, y in itertools.product(sides, sides) if x * y <= sm90.MAX_CLUSTER):
        raster = Raster("along_m" if x > y else "along_n", 4)
        check(p, candidate(p, (128, 96), (x, y, 1), schedule, raster=raster), sass=schedule == "ticket")


@pytest.mark.slow
def test_every_split_compiles_as_planned() -> None:
    p = problem(epilogue=FULL)
    for slices in (2, 3, 16):
        check(p, candidate(p, (128, 64), (2, 1, 1), "static", split_k=slices))
    for z in sm90.CLUSTER_SLICES:
        for tile, (x, y) in (((64, 8), (1, 1)), ((128, 128), (2, 1)), ((256, 96), (1, 2)), ((128, 256), (1, 1))):
            schedule = "one_tile" if x == y else "static"
            check(p, candidate(p, tile, (x, y, z), schedule, split_k=z, swap_ab=x < y), sass=z == 2)
