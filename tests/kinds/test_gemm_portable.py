"""The portable GEMM family: limits, footprint, launch, and that every target's image is what the plan says."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from advisor.codegen import templates
from advisor.kinds.gemm import portable
from advisor.kinds.gemm.interface import arguments, buffers
from advisor.kinds.gemm.work import GemmWork, Raster
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.launch import KernelSpec
from advisor.toolchain import Compiled, Unit, broken_promises, compile_cuda, compile_many, sass_facts


def problem(**changes) -> GemmProblem:
    return GemmProblem.model_validate({"kind": "gemm", "m": 512, "n": 384, "k": 256, "dtype": "bf16"} | changes)


def operands(a: str, b: str, a_major: str = "k", b_major: str = "k", **changes) -> GemmProblem:
    fp32 = {"d": {"dtype": "fp32"}, "c": {"dtype": "fp32"}} if a == "tf32" else {}
    given = {"a": {"dtype": a, "major": a_major}, "b": {"dtype": b, "major": b_major}}
    return problem(dtype=a, **given, **(fp32 | changes))


def candidate(p: GemmProblem, tile: tuple[int, int] = (128, 128), k_bytes: int = 128) -> Candidate:
    tile_k = k_bytes // p.a.element_bytes
    return next(c for c in portable.candidates(p) if c.tile == (*tile, tile_k))


def units(p: GemmProblem, c: Candidate, **defines: int) -> tuple[KernelSpec, list[Unit]]:
    (spec,) = portable.kernels(p, c)
    source = templates.render(spec.template, **spec.context)
    headers = templates.headers_for(source)
    macros = spec.kernel.defines | defines
    return spec, [Unit(spec.kernel.source, source, headers, target, macros) for target in spec.kernel.images]


def build(p: GemmProblem, c: Candidate) -> tuple[KernelSpec, list[Compiled]]:
    spec, rows = units(p, c)
    return spec, compile_many(rows, use_cache=False)


def codes(p: GemmProblem, c: Candidate) -> list[str]:
    return [each.code for each in portable.violations(p, c)]


# --- limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bf16", "tf32", "e4m3"])
def test_every_candidate_is_legal_and_within_99_kilobytes(dtype):
    p = problem(dtype=dtype)
    rows = portable.candidates(p)
    assert len(rows) == len(set(rows)) == 24
    for c in rows:
        assert codes(p, c) == []
        assert 2 <= c.stages <= 4
        assert portable.resources(p, c).dynamic_smem_bytes <= 99 * 1024


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cluster": (2, 1, 1)}, "PORTABLE_CLUSTER"),
        ({"work": GemmWork(mma_ctas=2)}, "PORTABLE_CLUSTER"),
        ({"work": GemmWork(multicast_b=2)}, "PORTABLE_CLUSTER"),
        ({"work": GemmWork(preferred_cluster=(4, 1, 1))}, "PORTABLE_CLUSTER"),
        ({"schedule": "static"}, "PORTABLE_SCHEDULE"),
        ({"work": GemmWork(split_k=2)}, "PORTABLE_SPLIT_K"),
        ({"work": GemmWork(swap_ab=True)}, "PORTABLE_SWAP"),
        ({"tile": (256, 128, 64)}, "PORTABLE_TILE"),
        ({"tile": (128, 128, 48)}, "PORTABLE_K_STEP"),
        ({"threads": 128}, "PORTABLE_THREADS"),
        ({"stages": 1}, "PORTABLE_STAGES"),
        ({"stages": 4}, "PORTABLE_SMEM"),
    ],
)
def test_what_no_portable_kernel_does_is_a_violation_with_its_code(change, code):
    p = problem()
    assert codes(p, replace(candidate(p), **change)) == [code]


def test_a_violation_shows_its_arithmetic():
    p = problem()
    (found,) = portable.violations(p, replace(candidate(p), stages=4))
    assert "4 stages x (128 + 128) rows x 128 bytes = 131072" in found.message
    assert found.numbers == {"smem_bytes": 131072, "limit": 101376}


def test_more_tiles_than_a_grid_has_blocks_is_a_violation():
    vast = problem(m=2**24, n=2**20, k=1)
    assert codes(vast, candidate(vast, (16, 64))) == ["PORTABLE_GRID"]


# --- footprint --------------------------------------------------------------------------------------------------


def test_shared_memory_holds_the_stages_and_then_the_accumulators():
    p = problem()
    c = candidate(p, (128, 64))
    need = portable.resources(p, c)
    assert need.smem_parts[:2] == (("stage 0 A", 128 * 128), ("stage 0 B", 64 * 128))
    assert len(need.smem_parts) == 2 * c.stages
    assert need.dynamic_smem_bytes == sum(size for _, size in need.smem_parts) == c.stages * (128 + 64) * 128
    assert (need.static_smem_bytes, need.tmem_columns) == (0, 0)
    few = portable.resources(p, replace(candidate(p, (128, 128), 64), stages=2))
    assert few.smem_parts[-1] == ("accumulators beyond the stages", 128 * 128 * 4 - 2 * 256 * 64)
    assert few.dynamic_smem_bytes == 128 * 128 * 4


@pytest.mark.parametrize("dtype", ["bf16", "tf32", "e4m3"])
def test_the_register_budget_is_what_the_launch_bounds_cap(dtype):
    p = problem(dtype=dtype)
    for c in portable.candidates(p):
        need = portable.resources(p, c)
        assert need.registers <= 255
        assert need.registers * c.threads * portable.min_ctas(p, c) <= 65536
        assert need.registers >= c.tile[0] * c.tile[1] // c.threads + 64


def test_the_one_barrier_counts_every_thread():
    p = problem()
    c = candidate(p, (64, 64))
    (row,) = portable.barriers(p, c)
    assert (row.scope, row.arrivals, row.tx_bytes) == ("cta", 128, 0)


# --- launch -----------------------------------------------------------------------------------------------------


def parameters(source: str) -> list[str]:
    """Names of the entry's parameters, in order, without the traced twin's."""
    head = source[source.index("gemm_portable(") : source.index("#if defined(ADVISOR_TRACE)")]
    return re.findall(r"(\w+)(?=,|$)", head.split("(", 1)[1].strip())


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_the_launch_passes_what_the_source_declares(beta):
    p = problem(epilogue={"beta": beta, "bias": "row" if beta else "none"}, scale={"a": "tensor"})
    spec, (unit, *_) = units(p, candidate(p))
    assert [each.name for each in spec.kernel.params] == parameters(unit.source)
    known = {each.name for each in arguments(p)} | set(buffers(p)) | {"0"}
    for param in spec.kernel.params:
        wanted = param.buffer if param.kind == "ptr" else param.value
        assert wanted is None or wanted in known


def test_one_cta_for_each_tile_of_each_matrix():
    p = problem()
    (spec,) = portable.kernels(p, candidate(p, (64, 128)))
    assert spec.kernel.grid_blocks == ("ceil_div(m, 64) * ceil_div(n, 128) * batch", "1", "1")
    assert spec.kernel.block == (128, 1, 1)


def test_images_are_the_family_s_targets_and_fp8_starts_at_sm_89():
    assert portable.images(problem()) == ("sm_80", "sm_90", "sm_100", "sm_120")
    assert portable.images(problem(dtype="e4m3")) == ("sm_89", "sm_90", "sm_100", "sm_120")


def test_variants_of_one_problem_differ_in_defines_alone():
    p = problem()
    first = portable.kernels(p, candidate(p, (128, 128)))[0]
    other = replace(candidate(p, (64, 64)), work=GemmWork(raster=Raster("along_m", 4)))
    second = portable.kernels(p, other)[0]
    assert (first.template, first.context) == (second.template, second.context)
    assert first.kernel.defines != second.kernel.defines
    assert second.kernel.defines["ADVISOR_RASTER_ALONG_M"] == 1
    assert second.kernel.defines["ADVISOR_RASTER_GROUP"] == 4


# --- images -----------------------------------------------------------------------------------------------------


def check(p: GemmProblem, c: Candidate) -> dict[str, Compiled]:
    spec, images = build(p, c)
    for image in images:
        assert broken_promises(image, spec.kernel) == []
        assert image.warnings == ()
        assert sass_facts(image.cubin).local_memory == 0
    return {image.target: image for image in images}


def test_a_bf16_kernel_uses_the_tensor_cores_and_asynchronous_copies_on_every_target():
    p = problem(epilogue={"beta": 1.0, "bias": "col", "activation": "gelu"})
    for target, image in check(p, candidate(p)).items():
        facts = sass_facts(image.cubin)
        assert facts.has("HMMA.16816.F32.BF16"), target
        assert facts.has("LDGSTS.128"), target
        assert facts.has("LDSM"), target
        assert not facts.wgmma
        assert not facts.tma_loads


def test_an_mn_major_16_bit_operand_is_transposed_by_ldmatrix():
    p = operands("fp16", "fp16", "m", "n")
    image = check(p, candidate(p, (128, 64)))["sm_90"]
    facts = sass_facts(image.cubin)
    assert facts.count("LDSM.MT88") == facts.count("LDSM") > 0


def test_fp8_is_multiplied_as_fp8_where_the_tensor_cores_have_it():
    p = operands("e4m3", "e5m2", "m", "k", d={"dtype": "bf16"})
    images = check(p, candidate(p, (64, 64)))
    assert sass_facts(images["sm_89"].cubin).has("QMMA.16832.F32.E4M3.E5M2")
    assert sass_facts(images["sm_120"].cubin).has("QMMA.16832.F32.E4M3.E5M2")
    assert sass_facts(images["sm_90"].cubin).has("HMMA.16816.F32")


def test_tf32_with_both_operands_mn_major_keeps_the_asynchronous_pipeline():
    p = operands("tf32", "tf32", "m", "n")
    facts = sass_facts(check(p, candidate(p, (128, 128)))["sm_80"].cubin)
    assert facts.has("HMMA.1688.F32.TF32")
    assert facts.has("LDGSTS")


def test_the_traced_twin_has_one_more_parameter_and_counts_once():
    p = problem()
    _, rows = units(p, candidate(p, (64, 64)), ADVISOR_TRACE=1)
    twin = compile_cuda(rows[1], use_cache=False)
    plain = compile_cuda(units(p, candidate(p, (64, 64)))[1][1], use_cache=False)
    facts = sass_facts(twin.cubin)
    assert facts.count("REDG") + facts.count("RED") == 1
    assert twin.ptx.count(".param ") == plain.ptx.count(".param ") + 1


def test_the_same_problem_renders_the_same_bytes():
    p = problem(epilogue={"bias": "row"})
    once, twice = (units(p, candidate(p))[1][0] for _ in range(2))
    assert once == twice
    assert "{{" not in once.source
    assert "{%" not in once.source


TYPES = [("bf16", "bf16"), ("fp16", "fp16"), ("tf32", "tf32"), ("e4m3", "e4m3"), ("e5m2", "e4m3")]
LAYOUTS = [*itertools.product("km", "kn")]


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b"), TYPES)
def test_no_layout_of_the_larger_tiles_spills_on_any_target(a, b):
    for a_major, b_major in LAYOUTS:
        accumulate = "fast" if a == "e5m2" else "precise"
        epilogue = {"beta": 1.0, "bias": "row", "activation": "silu"}
        p = operands(a, b, a_major, b_major, accumulate=accumulate, epilogue=epilogue)
        for tile in ((128, 128), (64, 128)):
            check(p, candidate(p, tile))


@pytest.mark.slow
@pytest.mark.parametrize("k_bytes", portable.K_STEP_BYTES)
@pytest.mark.parametrize("tile", [*portable.WARPS])
def test_every_tile_builds_within_its_budget(tile, k_bytes):
    p = operands("bf16", "bf16", "m", "k", d={"major": "m"})
    c = candidate(p, tile, k_bytes)
    spec, rows = units(p, c)
    image = compile_cuda(next(row for row in rows if row.target == "sm_90"), use_cache=False)
    assert broken_promises(image, spec.kernel) == []
    assert image.warnings == ()
