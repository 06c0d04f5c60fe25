"""The Blackwell template, rendered and compiled: what the plan promised is in the machine code."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from advisor.codegen.templates import folder, headers_for, render
from advisor.kinds.gemm import launches, sm100
from advisor.kinds.gemm.work import GemmWork, Raster
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.launch import Kernel, KernelSpec, TensorMapParam
from advisor.toolchain import Compiled, Unit, broken_promises, compile_cuda, sass_facts

SMEM = 232448  # opt-in limit of one CTA on sm_100


def problem(**fields: Any) -> GemmProblem:
    return GemmProblem.model_validate({"kind": "gemm", "m": 8192, "n": 8192, "k": 8192, "dtype": "bf16", **fields})


def candidate(
    p: GemmProblem,
    tile: tuple[int, int] = (128, 256),
    cluster: tuple[int, int, int] = (2, 1, 1),
    schedule: Any = "clc",
    mma_ctas: int = 2,
    **work: Any,
) -> Candidate:
    x, y, _ = work.get("preferred_cluster") or cluster
    plain = GemmWork(mma_ctas=mma_ctas, multicast_a=y, multicast_b=x, **work)
    c = Candidate("sm100", cluster, schedule, (*tile, sm100.tile_k(p)), 0, sm100.THREADS, plain)
    return replace(c, stages=sm100.stages_that_fit(p, c, SMEM))


def source_of(spec: KernelSpec) -> str:
    return render(spec.template, **spec.context)


def unit_of(spec: KernelSpec, kernel: Kernel | None = None, target: str = "sm_100a") -> Unit:
    source = source_of(spec)
    return Unit(sm100.SOURCE, source, headers_for(source), target, (kernel or spec.kernel).defines)


def check(p: GemmProblem, c: Candidate, *, sass: bool = True, target: str = "sm_100a") -> None:
    """Every kernel of the candidate compiles as planned and holds the instructions that the plan names."""
    assert sm100.violations(p, c) == []
    for spec in sm100.kernels(p, c):
        kernel, compiled = spec.kernel, compile_cuda(unit_of(spec, target=target), use_cache=False)
        label = f"{kernel.id} {c.tile} {p.a.dtype} {target}"
        assert compiled.warnings == (), label
        assert broken_promises(compiled, kernel) == [], label
        assert (compiled.spill_bytes, compiled.stack_bytes, compiled.static_smem_bytes) == (0, 0, 0), label
        if sass:
            check_sass(p, c, kernel, compiled, label)


def check_sass(p: GemmProblem, c: Candidate, kernel: Kernel, compiled: Compiled, label: str) -> None:
    facts = sass_facts(compiled.cubin)
    assert facts.local_memory == 0, label
    assert compiled.sass == facts.summary(), label
    if kernel.entry != sm100.ENTRY:
        return
    x, y, z = c.unit
    pair = c.work.mma_ctas == 2
    mma = "UTCQMMA" if p.is_fp8 else "UTCHMMA"
    assert facts.count(mma) == facts.tcgen05_mma == 4, label  # 128 bytes of K in steps of 32
    assert facts.count(f"{mma}.2CTA") == (4 if pair else 0), label
    assert facts.has("UTCBAR.2CTA") == pair, label
    assert facts.has("LDTM"), label
    assert 0 < facts.loops[kernel.entry] < 120, label  # four MMAs, a wait, a commit
    assert facts.has("UTMALDG.2CTA") == pair, label
    assert facts.has("UTMALDG.MULTICAST") == (x > c.work.mma_ctas or y > 1), label
    assert facts.has("UTMASTG") == any(each.name == "map_d" for each in kernel.params), label
    assert facts.has("UCGABAR_WAIT") == (c.cluster_size > 1), label
    assert facts.count("UGETNEXTWORKID") == (c.schedule == "clc"), label
    assert facts.count("UGETNEXTWORKID.BROADCAST") == (c.schedule == "clc" and c.cluster_size > 1), label
    assert ("st.shared::cluster.v4.f32" in compiled.ptx) == (z > 1), label
    assert "atom" not in compiled.ptx, label


# --- quick -------------------------------------------------------------------------------------------------------

FULL = {"alpha": 0.5, "beta": 2.0, "bias": "row", "activation": "gelu"}
REPRESENTATIVES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("the default", {}, {}),
    ("mn-major, square cluster of pairs", {"a": {"major": "m"}, "b": {"major": "n"}},
     {"tile": (128, 128), "cluster": (4, 2, 1)}),
    ("decode, swapped, full epilogue", {"epilogue": FULL},
     {"tile": (64, 16), "cluster": (1, 1, 1), "schedule": "one_tile", "swap_ab": True, "mma_ctas": 1}),
    ("fp8, scaled", {"dtype": "e4m3", "b": {"dtype": "e5m2"}, "scale": {"a": "tensor", "b": "tensor"}},
     {"tile": (128, 192), "schedule": "static"}),
    ("pairs of 64 rows, multicast to 16", {"epilogue": {"beta": 1.0}}, {"tile": (64, 96), "cluster": (4, 4, 1)}),
    ("slices in a cluster", {"launch": {"pdl": True}, "epilogue": FULL},
     {"tile": (128, 128), "cluster": (2, 1, 4), "schedule": "static", "split_k": 4}),
    ("tf32, slices over scratch", {"dtype": "tf32", "epilogue": FULL},
     {"tile": (128, 128), "split_k": 4, "schedule": "one_tile"}),
    ("tf32, mn-major", {"dtype": "tf32", "a": {"major": "m"}, "b": {"major": "n"}}, {"tile": (128, 128)}),
    ("two cluster sizes", {"epilogue": FULL},
     {"tile": (128, 128), "cluster": (2, 1, 1), "schedule": "static", "preferred_cluster": (4, 2, 1)}),
    ("one CTA asks alone", {}, {"cluster": (1, 1, 1), "mma_ctas": 1}),
]  # fmt: skip
CASES = pytest.mark.parametrize(
    ("fields", "how"), [each[1:] for each in REPRESENTATIVES], ids=[each[0] for each in REPRESENTATIVES]
)


@CASES
def test_a_representative_compiles_as_planned(fields: dict[str, Any], how: dict[str, Any]) -> None:
    p = problem(**fields)
    check(p, candidate(p, **how))


@pytest.mark.parametrize("target", ["sm_100f", "sm_103a"])
def test_the_kernels_hold_nothing_that_only_sm_100a_has(target: str) -> None:
    p = problem(epilogue=FULL)
    check(p, candidate(p, cluster=(4, 2, 1), tile=(128, 128)), target=target)


def test_a_traced_twin_compiles_and_counts() -> None:
    p = problem()
    spec = sm100.kernels(p, candidate(p, (64, 64)))[0]
    twin = compile_cuda(unit_of(spec, spec.traced), use_cache=False)
    assert broken_promises(twin, spec.kernel) == []
    assert re.search(r"\b(red|atom)\b.*global.*add\.u32", twin.ptx)


def test_no_kernel_mixes_the_two_cta_groups() -> None:
    p = problem()
    for pair in (1, 2):
        spec = sm100.kernels(p, candidate(p, cluster=(4, 1, 1), mma_ctas=pair))[0]
        ptx = compile_cuda(unit_of(spec), use_cache=False).ptx
        assert set(re.findall(r"cta_group::(\d)", ptx)) == {str(pair)}


def test_the_one_way_out_of_every_kernel_leads_through_the_cluster_barrier() -> None:
    p = problem()
    for cluster, split in (((2, 1, 1), 1), ((4, 4, 1), 1), ((2, 1, 4), 4)):
        for schedule in ("one_tile", "static") if split > 1 else sm100.SCHEDULES:
            spec = sm100.kernels(p, candidate(p, (128, 128), cluster, schedule, split_k=split))[0]
            assert exits_past_the_barrier(compile_cuda(unit_of(spec), use_cache=False).ptx) == []


def test_the_lint_finds_an_exit_that_passes_the_barrier_by() -> None:
    p = problem()
    spec = sm100.kernels(p, candidate(p, (64, 64)))[0]
    marker = "    if (warp == kMmaWarp) {\n        const u64 desc_a"
    source = source_of(spec)
    assert source.count(marker) == 1
    early = source.replace(marker, "    if (warp == 3) return;\n" + marker)
    broken = Unit(sm100.SOURCE, early, headers_for(early), "sm_100a", spec.kernel.defines)
    assert exits_past_the_barrier(compile_cuda(broken, use_cache=False).ptx)


def exits_past_the_barrier(ptx: str) -> list[str]:
    """What is wrong with the ends of the entry: they must be one `ret`, straight behind a wait for the cluster."""
    body = ptx[ptx.index(".entry gemm_sm100(") :]
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


@CASES
def test_rendered_text_is_tidy(fields: dict[str, Any], how: dict[str, Any]) -> None:
    p = problem(**fields)
    source = source_of(sm100.kernels(p, candidate(p, **how))[0])
    assert [line for line in source.splitlines() if len(line) > 120 or line != line.rstrip() or "\t" in line] == []
    assert "\n\n\n" not in source
    assert "asm" not in source
    assert source.rstrip().endswith("cluster_barrier();\n}\n\n#endif")


def test_device_headers_stand_behind_nothing_of_a_toolkit() -> None:
    p = problem()
    headers = headers_for(source_of(sm100.kernels(p, candidate(p))[0]))
    assert {"tmem_epilogue.cuh", "clc_scheduler.cuh", "ptx/tcgen05.cuh", "ptx/clc.cuh", "types.cuh"} <= set(headers)
    assert "ptx/wgmma.cuh" not in headers
    for name, text in headers.items():
        included = re.findall(r"^\s*#\s*include\s+(\S+)", text, re.MULTILINE)
        assert all(each.startswith('"') for each in included), name
        assert all((folder() / "include" / each.strip('"')).is_file() for each in included), name
        assert text.splitlines()[0].startswith("//"), f"{name} does not say what it is for"
        assert max(map(len, text.splitlines())) <= 120, name


def test_boxes_and_kernel_agree_on_what_a_slice_is() -> None:
    """The kernel computes its slices from the cluster; a tensor map whose box differs would miscount bytes."""
    p = problem()
    for (x, y), pair in itertools.product(((2, 1), (2, 2), (8, 2)), (1, 2)):
        c = candidate(p, (128, 64), (x, y, 1), mma_ctas=pair)
        kernel = sm100.kernels(p, c)[0].kernel
        boxes = {each.name: each.box_dim for each in kernel.params if isinstance(each, TensorMapParam)}
        assert boxes["map_a"] == [64, 128 // y, 1]
        assert boxes["map_b"] == [64, max(8, 64 // pair // (x // pair)), 1]


# --- the rest of the space ---------------------------------------------------------------------------------------

MAKES: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16 mn-major, d m-major, full epilogue": {
        "a": {"major": "m"}, "b": {"major": "n"}, "d": {"major": "m"}, "epilogue": FULL,
    },
    "fp16, fp32 out, C m-major": {
        "dtype": "fp16", "d": {"dtype": "fp32"}, "c": {"major": "m"}, "epilogue": {"beta": 1.0, "bias": "col"},
    },
    "tf32": {"dtype": "tf32", "epilogue": {"activation": "silu", "beta": 1.0}},
    "tf32, d and c m-major": {
        "dtype": "tf32", "d": {"major": "m"}, "c": {"major": "m"}, "epilogue": {"activation": "silu", "beta": 1.0},
    },
    "fp8": {"dtype": "e4m3", "scale": {"a": "tensor", "b": "tensor"}, "epilogue": FULL},
    "fp8 mn-major": {"dtype": "e5m2", "b": {"major": "n", "dtype": "e4m3"}, "a": {"major": "m", "dtype": "e5m2"}},
    "unaligned d and c": {
        "d": {"align_bytes": 2}, "c": {"align_bytes": 2}, "epilogue": {"beta": 1.0, "activation": "relu"},
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKES)
def test_every_tile_of_every_make_compiles_as_planned(make: str) -> None:
    p = problem(**MAKES[make])
    built = 0
    for tile_m, tile_n, pair in itertools.product(sm100.TILE_M, sm100.TILE_N, (1, 2)):
        c = candidate(p, (tile_m, tile_n), (pair, 1, 1), mma_ctas=pair)
        if not sm100.violations(p, c):
            check(p, c, sass=tile_m != tile_n)
            built += 1
    assert built >= 26


@pytest.mark.slow
@pytest.mark.parametrize("pair", [1, 2])
@pytest.mark.parametrize("schedule", sm100.SCHEDULES)
def test_every_cluster_compiles_as_planned(schedule: Any, pair: int) -> None:
    p = problem(b={"major": "n"}, epilogue={"beta": 1.0})
    sides = sm100.CLUSTER_EXTENTS
    for x, y in ((x, y) for x, y in itertools.product(sides, sides) if x * y <= sm100.MAX_CLUSTER and x % pair == 0):
        raster = Raster("along_m" if x > y else "along_n", 4)
        check(p, candidate(p, (128, 96), (x, y, 1), schedule, pair, raster=raster))


@pytest.mark.slow
def test_every_split_compiles_as_planned() -> None:
    p = problem(epilogue=FULL)
    for slices in (2, 3, 16):
        check(p, candidate(p, (128, 64), (2, 1, 1), "static", split_k=slices))
    for z in launches.CLUSTER_SLICES:
        for tile, (x, y), pair in (
            ((64, 8), (1, 1), 1), ((64, 64), (2, 1), 2), ((128, 128), (2, 1), 2), ((128, 96), (1, 2), 1),
            ((128, 256), (1, 1), 1),
        ):  # fmt: skip
            schedule = "one_tile" if x == y else "static"
            c = candidate(p, tile, (x, y, z), schedule, pair, split_k=z, swap_ab=x < y)
            if not any(each.code == "SPLIT_K_RING" for each in sm100.violations(p, c)):
                check(p, c)
