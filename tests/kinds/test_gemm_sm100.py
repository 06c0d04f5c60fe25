"""The tcgen05 family: its footprint, barrier arithmetic, limits and launches, without a compiler or a GPU."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from advisor.bundle import evaluate
from advisor.kinds import workload
from advisor.kinds.gemm import launches, sm100
from advisor.kinds.gemm.interface import arguments
from advisor.kinds.gemm.work import GemmWork
from advisor.machine import load_profile
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.launch import Kernel, ScalarParam, ScratchParam, TensorMapParam

SMEM = 232448  # opt-in limit of one CTA on sm_100
CLUSTERS = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (4, 2, 1), (4, 4, 1), (16, 1, 1), (2, 8, 1)]


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


def names(p: GemmProblem, **values: int) -> dict[str, int]:
    """Values for every name of the launch expressions."""
    given = {each.name: int(each.default or 0) for each in arguments(p)}
    return {**given, "num_sms": 148, "sm_budget": 148, "max_active_clusters": 74, **values}


def maps(kernel: Kernel) -> dict[str, TensorMapParam]:
    return {each.name: each for each in kernel.params if isinstance(each, TensorMapParam)}


def row(p: GemmProblem, c: Candidate, name: str) -> Any:
    return next(each for each in sm100.barriers(p, c) if each.name == name)


# --- footprint ---------------------------------------------------------------------------------------------------


def test_a_pair_of_large_tiles_fills_shared_memory_with_six_stages() -> None:
    p = problem()
    c = candidate(p)
    assert c.stages == 6
    assert sm100.resources(p, c).smem_parts == (
        ("a", 6 * 128 * 128),
        ("b", 6 * 128 * 128),
        ("store", 2 * 128 * 64 * 2),
        ("c", 0),
        ("responses", 3 * 16),
        ("barriers", (2 * 6 + 2 * 2 + 2 * 3 + 1) * 8),
        ("tmem", 8),
    )
    assert sm100.resources(p, c).tmem_columns == 512


def test_one_more_stage_than_fit_does_not_fit() -> None:
    for fields in ({}, {"dtype": "tf32"}, {"dtype": "e4m3"}, {"epilogue": {"beta": 1.0}}):
        p = problem(**fields)
        for tile in ((128, 256), (128, 128), (64, 256)):
            for pair in (1, 2):
                c = candidate(p, tile, mma_ctas=pair)
                assert sm100.resources(p, c).dynamic_smem_bytes <= SMEM
                more = sm100.resources(p, replace(c, stages=c.stages + 1)).dynamic_smem_bytes
                assert more > SMEM or c.stages == sm100.MAX_STAGES


@pytest.mark.parametrize("tile_m", sm100.TILE_M)
@pytest.mark.parametrize("tile_n", sm100.TILE_N)
@pytest.mark.parametrize("pair", [1, 2])
def test_every_box_starts_on_the_period_of_its_swizzle(tile_m: int, tile_n: int, pair: int) -> None:
    for fields in ({"epilogue": {"beta": 1.0}}, {"epilogue": {"beta": 1.0}, "d": {"dtype": "fp32"}}):
        p = problem(**fields)
        c = candidate(p, (tile_m, tile_n), mma_ctas=pair)
        if sm100.violations(p, c):
            continue
        kernel = sm100.kernels(p, c)[0].kernel
        starts = {name: kernel.defines[f"ADVISOR_SMEM_{name}"] for name in ("A", "B", "STORE", "C")}
        assert all(int(start) % 1024 == 0 for start in starts.values())
        for name, size in (("map_d", p.d.element_bytes), ("map_c", p.c.element_bytes)):
            line, lines, _ = maps(kernel)[name].box_dim
            assert lines % 8 == 0
            assert 16 <= line * size <= 128
            box = line * lines * size
            assert box % 128 == 0
            assert box % (8 * line * size) == 0  # the next box of a warp's two starts where the pattern starts anew


def test_tensor_memory_holds_two_accumulators_where_they_fit_and_serve() -> None:
    p = problem()
    assert [sm100.tmem_columns(candidate(p, (128, n))) for n in (256, 96, 64, 16)] == [512, 256, 128, 32]
    assert sm100.accumulators(candidate(p, schedule="one_tile")) == 1
    assert sm100.accumulators(candidate(p, (128, 128), (2, 1, 2), "static", split_k=2)) == 1
    assert sm100.accumulator_columns(candidate(p, (64, 256))) == 128
    assert sm100.accumulator_columns(candidate(p, (64, 256), mma_ctas=1)) == 256


def test_stores_from_registers_take_no_shared_memory() -> None:
    def parts(p: GemmProblem, **work: Any) -> dict[str, int]:
        return dict(sm100.resources(p, candidate(p, **work)).smem_parts)

    beta = {"beta": 1.0}
    assert parts(problem())["store"] > 0
    assert parts(problem(d={"dtype": "fp32"}))["store"] > 0
    assert parts(problem(d={"ld": 8193}))["store"] == 0
    assert parts(problem(), schedule="static", split_k=4)["store"] == 0
    assert parts(problem(epilogue=beta))["c"] == parts(problem(epilogue=beta))["store"]
    assert parts(problem(epilogue=beta, c={"align_bytes": 2}))["c"] == 0


# --- barriers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cluster", "pair"), [(each, n) for each in CLUSTERS for n in (1, 2) if each[0] % n == 0])
def test_empty_counts_every_issuer_whose_operands_a_cta_sends(cluster: tuple[int, int, int], pair: int) -> None:
    x, y, _ = cluster
    p = problem()
    c = candidate(p, (128, 64), cluster, mma_ctas=pair)
    ctas = [(i, j) for i in range(x) for j in range(y)]
    of_a, of_b = launches.sharers(p, c)
    for i, j in ctas:
        # A goes to the CTAs along y; B, or this CTA's half of it, along x to those of the same parity: in groups where
        # each has a slice of 8 lines to load.
        receivers = {(a, b) for a, b in ctas if a == i and b // of_a == j // of_a}
        receivers |= {
            (a, b) for a, b in ctas if b == j and (a - i) % pair == 0 and a // pair // of_b == i // pair // of_b
        }
        issuers = {(a // pair, b) for a, b in receivers}
        assert row(p, c, "empty").arrivals == len(issuers)


def test_full_expects_the_operands_of_all_ctas_of_the_mma() -> None:
    for fields in ({}, {"dtype": "tf32"}, {"dtype": "e4m3"}):
        p = problem(**fields)
        for pair in (1, 2):
            full = row(p, candidate(p, cluster=(2, 2, 1), mma_ctas=pair), "full")
            assert (full.arrivals, full.tx_bytes) == (1, pair * (128 + 256 // pair) * 128)


def test_every_reading_warp_of_every_cta_releases_a_response() -> None:
    assert row(problem(), candidate(problem(), cluster=(4, 2, 1)), "clc_empty").arrivals == 7 * 8
    p = problem(epilogue={"beta": 1.0})
    assert row(p, candidate(p), "clc_empty").arrivals == 8 * 2
    p = problem(epilogue={"beta": 1.0}, c={"align_bytes": 2})  # C is read where it lies: no warp loads it
    assert row(p, candidate(p), "clc_empty").arrivals == 7 * 2
    assert row(p, candidate(p), "clc_full").tx_bytes == 16


def test_only_what_a_kernel_has_is_a_row() -> None:
    p = problem()
    single = {each.name for each in sm100.barriers(p, candidate(p, (128, 64), (1, 1, 1), "static", 1))}
    assert single == {"full", "empty", "accumulator_full", "accumulator_empty"}
    pairs = {each.name for each in sm100.barriers(p, candidate(p))}
    assert pairs == single | {"clc_full", "clc_empty", "clc_throttle", "start", "tmem_release", "exit"}
    p = problem(epilogue={"beta": 1.0})
    slices = {each.name for each in sm100.barriers(p, candidate(p, (128, 64), (1, 1, 4), "static", 1, split_k=4))}
    assert slices == single | {"c_full", "c_empty", "start", "partials", "exit"}


# --- limits ------------------------------------------------------------------------------------------------------


def test_the_whole_space_of_tiles_is_legal_for_16_bit_types() -> None:
    for dtype in ("bf16", "fp16"):
        p = problem(dtype=dtype, a={"major": "m"}, b={"major": "n"})
        for tile_m in sm100.TILE_M:
            for tile_n in sm100.TILE_N:
                assert sm100.violations(p, candidate(p, (tile_m, tile_n), mma_ctas=1)) == []
                assert (sm100.violations(p, candidate(p, (tile_m, tile_n))) == []) == (tile_n >= 16)


BROKEN: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("MMA_SHAPE", {}, {"tile": (256, 128)}, {}),
    ("MMA_SHAPE", {}, {"tile": (128, 24)}, {}),
    ("MMA_SHAPE", {"dtype": "e4m3", "b": {"major": "n"}}, {"tile": (128, 16)}, {}),
    ("MMA_SHAPE", {"dtype": "e4m3", "b": {"major": "n"}}, {"tile": (128, 8), "mma_ctas": 1}, {}),
    ("TILE_K", {}, {}, {"tile": (128, 256, 32)}),
    ("STAGES_RANGE", {}, {}, {"stages": 1}),
    ("STAGES_RANGE", {}, {}, {"stages": 11}),
    ("SCHEDULE_NOT_BUILT", {}, {"schedule": "ticket"}, {}),
    ("CLUSTER_SHAPE", {}, {"cluster": (6, 1, 1)}, {}),
    ("CLUSTER_SHAPE", {}, {"cluster": (8, 4, 1)}, {}),
    ("MULTICAST_SHAPE", {}, {}, {"work": GemmWork(mma_ctas=2, multicast_a=2, multicast_b=1)}),
    ("PAIR_IN_CLUSTER", {}, {"cluster": (1, 2, 1)}, {}),
    ("PREFERRED_CLUSTER_CLC", {}, {"preferred_cluster": (4, 1, 1)}, {}),
    ("PREFERRED_CLUSTER_SHAPE", {}, {"schedule": "static", "preferred_cluster": (2, 1, 1)}, {}),
    ("PREFERRED_CLUSTER_SHAPE", {}, {"schedule": "static", "cluster": (4, 1, 1), "preferred_cluster": (2, 2, 1)}, {}),
    (
        "PREFERRED_CLUSTER_SHAPE",
        {},
        {"schedule": "static", "cluster": (1, 1, 1), "mma_ctas": 1, "preferred_cluster": (4, 1, 1)},
        {},
    ),
    (
        "PREFERRED_CLUSTER_SLICES",
        {},
        {"schedule": "static", "cluster": (2, 1, 2), "split_k": 2, "preferred_cluster": (4, 1, 2)},
        {},
    ),
    ("SPLIT_K_SHAPE", {}, {"split_k": 17, "schedule": "static"}, {}),
    ("SPLIT_K_SHAPE", {}, {"split_k": 2, "cluster": (2, 1, 4), "schedule": "static"}, {"tile": (128, 64, 64)}),
    ("SPLIT_K_SCHEDULE", {}, {"split_k": 4}, {}),
    ("SPLIT_K_RING", {}, {"split_k": 4, "cluster": (2, 1, 4), "schedule": "static"}, {"stages": 2}),
    ("MMA_SHAPE", {"dtype": "tf32", "b": {"major": "n"}}, {"tile": (128, 96)}, {}),
    ("MMA_SHAPE", {"dtype": "tf32", "b": {"major": "n"}}, {"tile": (128, 16), "cluster": (1, 1, 1), "mma_ctas": 1}, {}),
    ("TMA_STRIDE_16B", {"a": {"ld": 8193}}, {}, {}),
    ("TMA_BASE_16B", {"b": {"align_bytes": 8}}, {}, {}),
]


@pytest.mark.parametrize(("code", "fields", "how", "changes"), BROKEN)
def test_each_limit_names_the_candidate_that_breaks_it(
    code: str, fields: dict[str, Any], how: dict[str, Any], changes: dict[str, Any]
) -> None:
    p = problem(**fields)
    found = sm100.violations(p, replace(candidate(p, **how), **changes))
    assert [each.code for each in found] == [code]
    assert found[0].message
    assert found[0].numbers


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("schedule", ["static", "one_tile"])
def test_a_preferred_cluster_that_is_smaller_is_refused_by_its_clause(schedule: str) -> None:
    p = problem(overrides={"cluster": [4, 1, 1], "preferred_cluster": [2, 1, 1], "schedule": schedule})
    search = workload(p).explore(load_profile("b200"), "sm100", forced=True)
    assert all(math.isinf(each) for each in search.time_us)
    assert {each.code for each in search.reasons} >= {"PREFERRED_CLUSTER_SHAPE"}


# --- launches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 255, 256, 257, 1000])
@pytest.mark.parametrize("schedule", ["one_tile", "clc"])
def test_a_cluster_is_launched_for_every_cluster_tile(m: int, schedule: str) -> None:
    p = problem()
    for swap in (False, True):
        c = candidate(p, (128, 64), (2, 2, 1), schedule, swap_ab=swap)
        kernel = sm100.kernels(p, c)[0].kernel
        x, y, z = (evaluate(each, names(p, m=m, n=500, batch=3)) for each in kernel.grid_blocks)
        rows, columns = (500, m) if swap else (m, 500)
        assert (y, z) == (2, 1)
        assert x == 2 * -(-rows // 256) * -(-columns // 128) * 3


def test_persistent_grids_are_what_is_resident_and_never_more_than_there_is_work() -> None:
    p = problem()
    grid = sm100.kernels(p, candidate(p, schedule="static"))[0].kernel.grid_blocks[0]
    assert evaluate(grid, names(p)) == 74 * 2
    assert evaluate(grid, names(p, m=256, n=700)) == 3 * 2
    assert evaluate(grid, names(p, sm_budget=40)) == 20 * 2


def test_kernels_of_one_tile_share_one_rendered_source() -> None:
    p = problem()
    variants = [
        candidate(p), candidate(p, cluster=(4, 2, 1), schedule="static"), candidate(p, schedule="static", split_k=3),
        candidate(p, cluster=(1, 1, 1), schedule="one_tile", mma_ctas=1),
    ]  # fmt: skip
    specs = [spec for each in variants for spec in sm100.kernels(p, each)]
    assert all(each.context == specs[0].context for each in specs)
    assert len({tuple(sorted(each.kernel.defines.items())) for each in specs}) == len(specs)


def test_each_cta_of_a_pair_loads_its_half_of_b() -> None:
    p = problem()
    boxes = {pair: maps(sm100.kernels(p, candidate(p, mma_ctas=pair))[0].kernel) for pair in (1, 2)}
    assert boxes[1]["map_b"].box_dim == [64, 128, 1]  # two CTAs share it: half each, sent to both
    assert boxes[2]["map_b"].box_dim == [64, 128, 1]  # each keeps its half
    wide = maps(sm100.kernels(p, candidate(p, cluster=(4, 1, 1)))[0].kernel)
    assert wide["map_b"].box_dim == [64, 64, 1]


@pytest.mark.parametrize("majors", [("k", "k"), ("m", "n")])
@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("tile_n", [32, 64, 96, 128, 192, 256])
def test_the_slices_that_a_cluster_loads_make_up_the_tile(
    majors: tuple[str, str], dtype: str, cluster: tuple[int, int, int], tile_n: int
) -> None:
    p = problem(dtype=dtype, a={"major": majors[0]}, b={"major": majors[1]})
    for pair in (1, 2):
        if cluster[0] % pair:
            continue
        kernel = sm100.kernels(p, candidate(p, (64, tile_n), cluster, mma_ctas=pair))[0].kernel
        for name, rows, sharers, k_major in (
            ("map_a", 64, cluster[1], majors[0] == "k"),
            ("map_b", tile_n // pair, cluster[0] // pair, majors[1] == "k"),
        ):
            line, lines, depth = maps(kernel)[name].box_dim
            k = 128 // p.a.element_bytes
            tile = (k, rows) if k_major else (rows, k)  # contiguous extent first
            assert depth == 1
            assert tile[0] % line == 0
            assert tile[1] % lines == 0
            assert tile[1] // lines <= sharers
            assert lines % 8 == 0, "a slice is made of whole swizzle atoms"
            assert max(line, lines) <= 256
            assert maps(kernel)[name].swizzle == {128: "128B", 64: "64B", 32: "32B", 16: "none"}[line * 128 // k]


def test_conditions_name_every_operand_that_passes_through_a_tensor_map() -> None:
    def asked(**fields: Any) -> set[str]:
        p = problem(**fields)
        text = " and ".join(sm100.kernels(p, candidate(p))[0].conditions)
        return {name for name in "ABCD" if f"aligned('{name}', 16)" in text}

    assert asked() == {"A", "B", "D"}
    assert asked(d={"align_bytes": 2}) == {"A", "B"}
    assert asked(epilogue={"beta": 1.0}) == {"A", "B", "C", "D"}
    assert asked(epilogue={"beta": 1.0}, c={"ld": 8193}) == {"A", "B", "D"}


def test_slices_over_scratch_share_it_between_the_two_kernels() -> None:
    p = problem(m=100, n=50)
    specs = sm100.kernels(p, candidate(p, (128, 64), schedule="static", split_k=3))
    assert [each.kernel.id for each in specs] == ["sm100_static_2x1x1_s3_main", "sm100_static_2x1x1_s3_reduce"]
    first, second = (next(x for x in each.kernel.params if isinstance(x, ScratchParam)) for each in specs)
    assert first == second
    assert evaluate(first.bytes, names(p)) == 3 * 100 * 52 * 4


def test_swapping_exchanges_operands_extents_and_bias_and_turns_d_around() -> None:
    p = problem(m=16, n=1024, k=512, a={"major": "m"}, epilogue={"bias": "row"})
    c = candidate(p, (128, 16), (1, 1, 1), mma_ctas=1, swap_ab=True)
    kernel, context = sm100.kernels(p, c)[0].kernel, sm100.context(p, c)
    assert (maps(kernel)["map_a"].buffer, maps(kernel)["map_b"].buffer) == ("B", "A")
    scalars = {each.name: each.value for each in kernel.params if isinstance(each, ScalarParam)}
    assert (scalars["m"], scalars["n"], scalars["k"]) == ("n", "m", "k")
    assert (context.bias, context.d_n_major) == ("col", False)
    assert (context.a_k_major, context.b_k_major) == (True, False)
