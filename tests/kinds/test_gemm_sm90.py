"""The wgmma family: its footprint, barrier arithmetic, limits and launches, without a compiler or a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.bundle import evaluate
from advisor.kinds.gemm import cost, sm90, space
from advisor.kinds.gemm.interface import arguments
from advisor.kinds.gemm.work import GemmWork, Raster
from advisor.machine import load_profile
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.launch import Kernel, PtrParam, ScalarParam, ScratchParam, TensorMapParam

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


def names(p: GemmProblem, **values: int) -> dict[str, int]:
    """Values for every name of the launch expressions."""
    given = {each.name: int(each.default or 0) for each in arguments(p)}
    return {**given, "num_sms": 132, "sm_budget": 132, "max_active_clusters": 66, **values}


def maps(kernel: Kernel) -> dict[str, TensorMapParam]:
    return {each.name: each for each in kernel.params if isinstance(each, TensorMapParam)}


# --- footprint ---------------------------------------------------------------------------------------------------


def test_the_large_bf16_tile_fills_shared_memory_with_four_stages() -> None:
    p = problem()
    c = candidate(p)
    assert c.stages == 4
    assert sm90.resources(p, c).smem_parts == (
        ("a", 4 * 128 * 128),
        ("b", 4 * 256 * 128),
        ("store", 2 * 2 * 64 * 64 * 2),
        ("barriers", 2 * 4 * 8),
    )
    assert sm90.resources(p, c).dynamic_smem_bytes == 229_440


@pytest.mark.parametrize("tile_m", sm90.TILE_M)
@pytest.mark.parametrize("tile_n", sm90.TILE_N)
def test_every_part_before_the_barriers_keeps_the_swizzles_alignment(tile_m: int, tile_n: int) -> None:
    p = problem()
    for cluster, split in (((1, 1, 1), 1), ((1, 1, 8), 8)):
        parts = sm90.resources(p, candidate(p, (tile_m, tile_n), cluster, split_k=split)).smem_parts
        assert [size % 1024 for name, size in parts if name != "barriers"] == [0, 0, 0]


def test_one_more_stage_than_fit_does_not_fit() -> None:
    for fields in ({}, {"dtype": "tf32"}, {"dtype": "e4m3"}):
        p = problem(**fields)
        for tile in ((128, 256), (128, 128), (64, 256)):
            c = candidate(p, tile, schedule="ticket")
            assert sm90.resources(p, c).dynamic_smem_bytes <= SMEM
            more = sm90.resources(p, replace(c, stages=c.stages + 1)).dynamic_smem_bytes
            assert more > SMEM or c.stages == sm90.MAX_STAGES


def test_stores_from_registers_take_no_shared_memory() -> None:
    def parts(p: GemmProblem, **work: Any) -> dict[str, int]:
        return dict(sm90.resources(p, candidate(p, **work)).smem_parts)

    assert parts(problem())["store"] > 0
    assert parts(problem(d={"dtype": "fp32"}))["store"] == 0
    assert parts(problem(d={"ld": 8193}))["store"] == 0
    assert parts(problem(d={"align_bytes": 2}))["store"] == 0
    assert parts(problem(), split_k=4)["store"] == 0


def test_roles_hold_no_more_registers_than_the_launch_gives() -> None:
    p = problem()
    for tile_m in sm90.TILE_M:
        for tile_n in sm90.TILE_N:
            c = candidate(p, (tile_m, tile_n))
            plan = sm90.register_plan(c)
            held = 128 * plan.producer + 128 * sm90.consumers(c) * plan.consumer
            assert held <= c.threads * plan.launch
            assert c.threads * -(-plan.launch // 8) * 8 * plan.ctas_per_sm <= sm90.REGISTERS_PER_SM
            assert plan.consumer == plan.launch or (plan.producer % 8, plan.consumer % 8) == (0, 0)


# --- barriers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (4, 2, 1), (4, 4, 1), (16, 1, 1)])
@pytest.mark.parametrize("tile_m", sm90.TILE_M)
def test_empty_counts_every_warp_that_reads_what_a_cta_sends(cluster: tuple[int, int, int], tile_m: int) -> None:
    p = problem()
    x, y, _ = cluster
    ctas = [(i, j) for i in range(x) for j in range(y)]
    for sender in ctas:  # A goes to the CTAs with the same M tile (along y), B to those with the same N tile (along x)
        receivers = {each for each in ctas if each[0] == sender[0] or each[1] == sender[1]}
        for schedule in ("one_tile", "static"):
            warps = 4 if tile_m == 64 or (tile_m == 128 and schedule == "static") else 8
            assert row(p, candidate(p, (tile_m, 64), cluster, schedule), "empty").arrivals == warps * len(receivers)


def test_warpgroups_take_tiles_in_turn_where_one_holds_a_whole_tile() -> None:
    p, fp8 = problem(), problem(dtype="e4m3")
    assert sm90.ping_pong(p, candidate(p, (128, 128), schedule="static"))
    assert sm90.ping_pong(p, candidate(p, (128, 64), schedule="ticket"))
    assert not sm90.ping_pong(p, candidate(p, (128, 128), schedule="one_tile"))  # one tile: there is no turn
    assert sm90.ping_pong(p, candidate(p, (128, 176), schedule="static"))
    assert not sm90.ping_pong(
        p, candidate(p, (128, 192), schedule="static")
    )  # more than one warpgroup's registers hold
    gelu = problem(epilogue={"activation": "gelu"})
    assert sm90.ping_pong(gelu, candidate(gelu, (128, 144), schedule="static"))
    assert not sm90.ping_pong(gelu, candidate(gelu, (128, 176), schedule="static"))  # its epilogue takes registers too
    assert not sm90.ping_pong(p, candidate(p, (256, 64), schedule="static"))
    assert not sm90.ping_pong(p, candidate(p, (64, 64), schedule="static"))  # one consumer
    assert not sm90.ping_pong(p, candidate(p, (128, 64), (1, 1, 2), "static", split_k=2))
    c_m_major = problem(c={"major": "m"}, epilogue={"beta": 1.0})
    assert not sm90.ping_pong(c_m_major, candidate(c_m_major, (128, 128), schedule="static"))
    assert sm90.ping_pong(c_m_major, candidate(c_m_major, (128, 128), schedule="static", swap_ab=True))
    assert not sm90.ping_pong(fp8, candidate(fp8, (128, 64), schedule="static"))  # registers hold sums twice


@pytest.mark.parametrize(
    ("tile_n", "slices", "columns", "buffers"),
    [
        (256, 1, 64, 2),
        (112, 1, 56, 2),
        (96, 1, 48, 2),
        (176, 1, 88, 1),  # else 16 at a time
        (208, 1, 16, 2),
        (8, 1, 8, 2),
        (64, 4, 16, 2),  # each of four CTAs finishes a chunk
        (80, 8, 8, 2),
    ],
)
def test_an_epilogue_stores_as_many_columns_at_a_time_as_divide_the_tile(
    tile_n: int, slices: int, columns: int, buffers: int
) -> None:
    c = candidate(problem(), (128, tile_n), (1, 1, slices), split_k=slices)
    assert sm90.chunk_columns(c) == columns
    assert sm90.store_buffers(c) == buffers
    assert sm90.store_bytes(problem(), c) == 2 * buffers * 64 * columns * 2


def test_an_operand_is_streamed_where_one_cluster_tile_has_all_of_the_other_extent() -> None:
    wide = problem(m=16, n=8192)
    assert sm90.streamed(wide, candidate(wide, (64, 16), swap_ab=True)) == (True, False)
    assert sm90.streamed(wide, candidate(wide, (64, 256))) == (False, True)
    assert sm90.streamed(wide, candidate(wide, (64, 8), swap_ab=True)) == (False, False)
    assert sm90.streamed(wide, candidate(wide, (64, 8), (1, 2, 1), swap_ab=True)) == (True, False)
    small = problem(m=16, n=16)
    assert sm90.streamed(small, candidate(small, (64, 16))) == (False, False)  # it is all in the L2 anyway


@pytest.mark.parametrize("fields", [{}, {"dtype": "e4m3"}, {"c": {"major": "m"}, "epilogue": {"beta": 1.0}}])
def test_the_cost_knows_which_kernels_take_tiles_in_turn(fields: dict[str, Any]) -> None:
    p = problem(**fields)
    table = space.table(p, "sm90", load_profile("h200"))
    costs = cost.evaluate(p, table)
    turns = cost.ping_pong(p, table)
    for index in range(0, table.rows, 997):
        assert bool(turns[index]) == sm90.ping_pong(p, table.candidate(index, cost.raster_of(costs, index)))


def test_full_expects_both_tiles_whoever_sends_them() -> None:
    fp8 = {"dtype": "e4m3", "accumulate": "fast"}
    for fields, stage in (({}, 128 * 128 + 256 * 128), ({"dtype": "tf32"}, 49152), (fp8, 49152)):
        p = problem(**fields)
        for cluster in ((1, 1, 1), (2, 2, 1)):
            full = row(p, candidate(p, cluster=cluster), "full")
            assert (full.arrivals, full.tx_bytes) == (1, stage)


def test_a_ticket_is_released_by_every_reading_warp_of_the_cluster() -> None:
    p = problem()
    assert row(p, candidate(p, cluster=(2, 2, 1), schedule="ticket"), "ticket_full").tx_bytes == 8
    assert row(p, candidate(p, (64, 64), (1, 1, 1), "ticket"), "ticket_full").tx_bytes == 0
    assert row(p, candidate(p, cluster=(2, 2, 1), schedule="ticket"), "ticket_empty").arrivals == (1 + 8) * 4
    assert row(p, candidate(p, (64, 64), (1, 1, 1), "ticket"), "ticket_empty").arrivals == 1 + 4


def test_only_clusters_have_cluster_barriers() -> None:
    p = problem()
    assert {each.name for each in sm90.barriers(p, candidate(p, cluster=(1, 1, 1)))} == {"full", "empty", "store"}
    rows = {each.name: each for each in sm90.barriers(p, candidate(p, (128, 128), (2, 1, 4), split_k=4))}
    assert {"start", "partials", "exit"} < set(rows)
    assert rows["exit"].arrivals == 384 * 8


def row(p: GemmProblem, c: Candidate, name: str) -> Any:
    return next(each for each in sm90.barriers(p, c) if each.name == name)


# --- limits ------------------------------------------------------------------------------------------------------


def test_the_whole_space_of_tiles_is_legal_for_16_bit_types() -> None:
    for dtype in ("bf16", "fp16"):
        p = problem(dtype=dtype, a={"major": "m"}, b={"major": "n"})
        for tile_m in sm90.TILE_M:
            for tile_n in sm90.TILE_N:
                legal = tile_m < 256 or tile_n <= 128
                assert (sm90.violations(p, candidate(p, (tile_m, tile_n))) == []) == legal


BROKEN: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("SM90_TILE", {}, {"tile": (96, 128)}, {}),
    ("SM90_TILE", {}, {"tile": (128, 40)}, {}),
    ("SM90_TILE_K", {}, {}, {"tile": (128, 256, 32)}),
    ("SM90_THREADS", {}, {}, {"threads": 256}),
    ("SM90_STAGES", {}, {}, {"stages": 1}),
    ("SM90_STAGES", {}, {}, {"stages": 17}),
    ("CLC_UNSUPPORTED", {}, {"schedule": "clc"}, {}),
    ("CLUSTER_SHAPE", {}, {"cluster": (3, 1, 1)}, {}),
    ("CLUSTER_SHAPE", {}, {"cluster": (8, 4, 1)}, {}),
    ("MULTICAST_SHAPE", {}, {}, {"work": GemmWork(multicast_a=2, multicast_b=1)}),
    ("NO_CTA_PAIR", {}, {"mma_ctas": 2}, {}),
    ("PREFERRED_CLUSTER_UNSUPPORTED", {}, {"preferred_cluster": (4, 1, 1)}, {}),
    ("SPLIT_K_SHAPE", {}, {"split_k": 17}, {}),
    ("SPLIT_K_SHAPE", {}, {"split_k": 2, "cluster": (1, 1, 4)}, {}),
    ("SPLIT_K_SHAPE", {}, {"split_k": 16, "cluster": (1, 1, 16)}, {}),
    ("SPLIT_K_SCHEDULE", {}, {"split_k": 4, "schedule": "ticket"}, {}),
    ("SPLIT_K_RING", {}, {"split_k": 4, "cluster": (1, 1, 4)}, {"stages": 2}),
    ("WGMMA_MN_MAJOR", {"dtype": "tf32", "a": {"major": "m"}}, {}, {}),
    ("WGMMA_MN_MAJOR", {"dtype": "e4m3", "b": {"major": "n"}}, {"tile": (128, 128)}, {}),
    ("SM90_ACCUMULATORS", {}, {"tile": (256, 192)}, {}),
    ("SM90_ACCUMULATORS", {"dtype": "e4m3"}, {"tile": (128, 256)}, {}),
    ("TMA_STRIDE_16B", {"a": {"ld": 8193}}, {}, {}),
    ("TMA_BASE_16B", {"b": {"align_bytes": 8}}, {}, {}),
]


@pytest.mark.parametrize(("code", "fields", "how", "changes"), BROKEN)
def test_each_limit_names_the_candidate_that_breaks_it(
    code: str, fields: dict[str, Any], how: dict[str, Any], changes: dict[str, Any]
) -> None:
    p = problem(**fields)
    found = sm90.violations(p, replace(candidate(p, **how), **changes))
    assert [each.code for each in found] == [code]
    assert found[0].message
    assert found[0].numbers


def test_fast_accumulation_halves_the_accumulators() -> None:
    tile = (128, 256)
    precise, fast = problem(dtype="e4m3"), problem(dtype="e4m3", accumulate="fast")
    assert sm90.violations(precise, candidate(precise, tile))
    assert sm90.violations(fast, candidate(fast, tile)) == []


# --- launches ----------------------------------------------------------------------------------------------------


def test_ids_name_schedule_cluster_and_slices() -> None:
    p = problem()
    assert [each.kernel.id for each in sm90.kernels(p, candidate(p))] == ["sm90_static_2x1x1"]
    assert [each.kernel.id for each in sm90.kernels(p, candidate(p, cluster=(1, 1, 1)))] == ["sm90_static"]
    split = sm90.kernels(p, candidate(p, (128, 128), split_k=4))
    assert [each.kernel.id for each in split] == ["sm90_static_2x1x1_s4_main", "sm90_static_2x1x1_s4_reduce"]
    inside = sm90.kernels(p, candidate(p, (128, 128), (1, 1, 4), "one_tile", split_k=4))
    assert [each.kernel.id for each in inside] == ["sm90_one_tile_1x1x4"]


def test_kernels_of_one_tile_share_one_rendered_source() -> None:
    p = problem()
    variants = [candidate(p), candidate(p, cluster=(4, 2, 1), schedule="ticket"), candidate(p, split_k=3)]
    specs = [spec for each in variants for spec in sm90.kernels(p, each)]
    assert all(each.context == specs[0].context for each in specs)
    assert len({tuple(sorted(each.kernel.defines.items())) for each in specs}) == len(specs)


@pytest.mark.parametrize("m", [1, 255, 256, 257, 1000])
@pytest.mark.parametrize("batch", [1, 3])
def test_one_tile_launches_a_cluster_for_every_cluster_tile(m: int, batch: int) -> None:
    p = problem()
    for swap in (False, True):
        c = candidate(p, (128, 64), (2, 2, 1), "one_tile", swap_ab=swap)
        kernel = sm90.kernels(p, c)[0].kernel
        x, y, z = (evaluate(each, names(p, m=m, n=500, batch=batch)) for each in kernel.grid_blocks)
        rows, columns = (500, m) if swap else (m, 500)
        assert (y, z) == (2, 1)
        assert x == 2 * -(-rows // 256) * -(-columns // 128) * batch


def test_persistent_grids_are_what_is_resident_and_never_more_than_there_is_work() -> None:
    p = problem()
    grid = sm90.kernels(p, candidate(p))[0].kernel.grid_blocks[0]
    assert evaluate(grid, names(p)) == 66 * 2
    assert evaluate(grid, names(p, m=256, n=700)) == 3 * 2
    budget = problem(constraints={"sm_budget": 40})
    grid = sm90.kernels(budget, candidate(budget))[0].kernel.grid_blocks[0]
    assert evaluate(grid, names(budget, sm_budget=40)) == 20 * 2
    assert evaluate(grid, names(budget, sm_budget=1)) == 2


def test_swapping_exchanges_operands_extents_and_bias_and_turns_d_around() -> None:
    p = problem(m=16, n=1024, k=512, a={"major": "m"}, epilogue={"bias": "row"})
    c = candidate(p, (128, 16), (1, 1, 1), swap_ab=True)
    kernel, context = sm90.kernels(p, c)[0].kernel, sm90.context(p, c)
    assert (maps(kernel)["map_a"].buffer, maps(kernel)["map_b"].buffer) == ("B", "A")
    assert maps(kernel)["map_a"].global_dim == ["max(k, 1)", "max(n, 1)", "max(batch, 1)"]
    assert maps(kernel)["map_b"].global_dim == ["max(m, 1)", "max(k, 1)", "max(batch, 1)"]
    scalars = {each.name: each.value for each in kernel.params if isinstance(each, ScalarParam)}
    assert (scalars["m"], scalars["n"], scalars["k"]) == ("n", "m", "k")
    assert (context.bias, context.d_n_major) == ("col", False)
    assert (context.a_k_major, context.b_k_major) == (True, False)


@pytest.mark.parametrize("majors", [("k", "k"), ("m", "n")])
@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 2, 1), (4, 4, 1), (1, 16, 1), (16, 1, 1)])
@pytest.mark.parametrize("tile_n", sm90.TILE_N)
def test_the_slices_that_a_cluster_loads_make_up_the_tile(
    majors: tuple[str, str], cluster: tuple[int, int, int], tile_n: int
) -> None:
    p = problem(a={"major": majors[0]}, b={"major": majors[1]})
    c = candidate(p, (64, tile_n), cluster)
    kernel = sm90.kernels(p, c)[0].kernel
    for name, rows, sharers, k_major in (
        ("map_a", 64, cluster[1], majors[0] == "k"),
        ("map_b", tile_n, cluster[0], majors[1] == "k"),
    ):
        line, lines, depth = maps(kernel)[name].box_dim
        tile = (64, rows) if k_major else (rows, 64)  # contiguous extent first
        assert depth == 1
        assert tile[0] % line == 0
        assert tile[1] % lines == 0
        assert tile[1] // lines <= sharers
        assert lines % 8 == 0, "a slice is made of whole swizzle atoms"
        assert max(line, lines) <= 256
        assert maps(kernel)[name].swizzle == {128: "128B", 64: "64B", 32: "32B", 16: "none"}[line * 2]


def test_strides_stay_encodable_where_one_batch_makes_them_unused() -> None:
    p = problem(a={"batch_stride": 7})
    rows, batches = maps(sm90.kernels(p, candidate(p))[0].kernel)["map_a"].global_stride_bytes
    assert evaluate(rows, names(p)) == 8192 * 2
    assert evaluate(batches, names(p)) == 16
    assert evaluate(batches, names(p, batch=2, batch_stride_a=8192 * 8192)) == 8192 * 8192 * 2


def test_conditions_hold_for_what_tensor_maps_can_describe() -> None:
    p = problem()
    text = " and ".join(sm90.kernels(p, candidate(p))[0].conditions)

    def holds(aligned: int = 16, **values: int) -> bool:
        queries = {"aligned": lambda _, needed: aligned % needed == 0}
        return bool(evaluate(text, names(p, **values), queries))

    assert holds()
    assert holds(m=1000, n=1000, k=1000, lda=1000, ldb=1000, ldd=1000)
    assert not holds(lda=1001)
    assert not holds(ldd=1001)
    assert not holds(aligned=8)
    assert holds(batch=1, batch_stride_b=7)
    assert not holds(batch=2, batch_stride_b=7)


def test_slices_over_scratch_share_it_between_the_two_kernels() -> None:
    p = problem(m=100, n=50)
    for swap in (False, True):
        main, reduce = (each.kernel for each in sm90.kernels(p, candidate(p, (128, 64), split_k=3, swap_ab=swap)))
        first, second = (next(x for x in k.params if isinstance(x, ScratchParam)) for k in (main, reduce))
        assert first == second
        assert evaluate(first.bytes, names(p)) == 3 * 100 * 52 * 4
        assert evaluate(reduce.grid_blocks[0], names(p)) == -(-100 * 13 // 256)
        assert reduce.cluster == (1, 1, 1)


def test_the_ticket_counter_is_zeroed_before_every_launch() -> None:
    p = problem()
    scratch = [
        each
        for each in sm90.kernels(p, candidate(p, schedule="ticket"))[0].kernel.params
        if isinstance(each, ScratchParam)
    ]
    assert [(each.name, each.bytes, each.init) for each in scratch] == [("tickets", "4", "zeros")]
    assert not [each for each in sm90.kernels(p, candidate(p))[0].kernel.params if isinstance(each, ScratchParam)]


def test_a_traced_twin_adds_its_counters_and_changes_nothing_else() -> None:
    p = problem()
    c = candidate(p)
    spec = sm90.kernels(p, c)[0]
    kernel, twin = spec.kernel, spec.traced
    assert twin is not None
    assert twin.id == f"{kernel.id}_traced"
    assert twin.defines == {**kernel.defines, "ADVISOR_TRACE": 1}
    assert [each for each in twin.params if each.name != "trace"] == kernel.params
    assert twin.params[-5] == PtrParam(name="trace", buffer="trace")
    assert [evaluate(each, names(p, m=129, n=257)) for each in spec.trace_shape] == [1, 1, 2, 2]


def test_macros_say_where_the_parts_of_shared_memory_begin() -> None:
    p = problem()
    defines = sm90.kernels(p, candidate(p, raster=Raster("along_m", 4)))[0].kernel.defines
    offsets = [defines[f"ADVISOR_SMEM_{part}"] for part in ("A", "B", "STORE", "BARRIERS")]
    assert offsets == [0, 65536, 196608, 229376]
    assert (defines["ADVISOR_RASTER_ALONG_M"], defines["ADVISOR_RASTER_GROUP"]) == (1, 4)
