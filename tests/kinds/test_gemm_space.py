"""The space as arrays says what the kind says of one candidate at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.kinds import workload
from advisor.kinds.gemm import cost, sm90, sm100, space, tma
from advisor.kinds.gemm.families import module_of
from advisor.kinds.gemm.work import Raster
from advisor.machine import load_profile
from advisor.machine.occupancy import ctas_per_sm
from advisor.problem.gemm import GemmProblem
from advisor.simulation import uniform_makespan

FAMILIES = [("sm100", "b200"), ("sm90", "h200"), ("portable", "h200")]


def problem(**document):
    return GemmProblem.model_validate({"kind": "gemm", "m": 1000, "n": 3000, "k": 2000, **document}, strict=False)


@pytest.mark.parametrize(("family", "name"), FAMILIES)
@pytest.mark.parametrize("dtype", ["bf16", "e4m3", "tf32"])
def test_arrays_and_single_questions_agree_on_legality(family, name, dtype):
    p, profile = problem(dtype=dtype), load_profile(name)
    work = workload(p)
    search = work.explore(profile, family, forced=False)
    rng = np.random.default_rng(1)
    legal = np.flatnonzero(np.isfinite(search.time_us))
    illegal = np.flatnonzero(search.reason >= 0)
    for row in rng.permutation(legal)[:40].tolist():
        assert work.clauses(search.candidate(row), profile) == [], search.candidate(row)
    free = {"CLUSTER_EXCEEDS_TILES", "SWAP_AB_RANGE"}  # narrow the search; an override may ask for either
    for row in rng.permutation(illegal)[:40].tolist():
        if search.reasons[search.reason[row]].code not in free:
            assert work.clauses(search.candidate(row), profile), search.candidate(row)


@pytest.mark.parametrize(("family", "name"), FAMILIES)
def test_a_row_is_charged_what_its_kernel_takes(family, name):
    p, profile = problem(), load_profile(name)
    table = space.table(p, family, profile)
    rows = np.random.default_rng(2).permutation(np.flatnonzero(table.reason < 0))[:60]
    for row in rows.tolist():
        c = table.candidate(row, Raster())
        taken = module_of(family).resources(p, c)
        assert taken.dynamic_smem_bytes == table.smem_bytes[row], c
        assert taken.tmem_columns == table.tmem_columns[row], c
        assert taken.registers == table.registers[row], c
        assert taken.dynamic_smem_bytes <= space.smem_limit(family, profile)


@pytest.mark.parametrize(("family", "name"), [*FAMILIES[:2], ("portable", "rtx_pro_6000")])
def test_stages_are_as_many_as_fit_or_as_many_as_let_two_ctas_share_an_sm(family, name):
    p, profile = problem(), load_profile(name)
    table = space.table(p, family, profile)
    limit, most = space.smem_limit(family, profile), space.family_span(family).stages[1]

    for row in np.random.default_rng(3).permutation(np.flatnonzero(table.reason < 0))[:60].tolist():
        c = table.candidate(row, Raster())
        if c.stages == most or (family == "sm90" and c.stages == sm90.useful_stages(c.tile[0], c.tile[1])):
            continue
        deeper = module_of(family).resources(p, replace(c, stages=c.stages + 1))
        if table.shares_sm[row]:
            assert table.ctas_per_sm[row] >= 2
            assert ctas_per_sm(profile, deeper.threads, deeper.registers, deeper.dynamic_smem_bytes) < 2
        else:
            assert deeper.dynamic_smem_bytes > limit


def test_two_ctas_share_an_sm_where_threads_registers_and_tensor_memory_allow():
    p = problem()
    hopper = space.table(p, "sm90", load_profile("h200"))
    rows = hopper.shares_sm & (hopper.reason < 0)
    tiles = set(zip(hopper.tile_m[rows].tolist(), hopper.tile_n[rows].tolist(), strict=True))
    assert tiles == {(64, n) for n in (8, 16, 24, 32, 48, 64, 80, 96, 112, 128)}
    assert hopper.registers[rows].max() == 128  # a larger tile's registers fill more than half of an SM
    blackwell = space.table(p, "sm100", load_profile("b200"))
    assert not blackwell.shares_sm.any()  # 256 threads of 168 registers: 43,008 of 65,536
    assert 2 * blackwell.threads[0] * blackwell.registers[0] > 65_536


def test_every_factoring_of_every_cluster_size_is_in_the_space():
    for family in ("sm100", "sm90"):
        shapes = space.family_span(family).clusters
        for size in (1, 2, 4, 8, 16):
            wanted = {(x, size // x) for x in (1, 2, 4, 8, 16) if size % x == 0}
            assert wanted <= set(shapes)


@pytest.mark.parametrize("tiles", [1, 65, 66, 67, 500])
@pytest.mark.parametrize("schedule", ["one_tile", "static", "clc"])
def test_the_ranking_uses_the_makespan_of_the_simulation(tiles, schedule):
    p = problem(m=256 * tiles, n=256, k=1024)
    search = workload(p).explore(load_profile("b200"), "sm100", forced=False)
    labels, codes = search.axes["schedule"]
    rows = np.flatnonzero((codes == list(labels).index(schedule)) & np.isfinite(search.time_us))
    rows = rows[search.table.ctas_per_sm[rows] == 1]
    for row in np.random.default_rng(4).permutation(rows)[:20].tolist():
        t = search.timing(row)
        simulated = uniform_makespan(
            schedule,
            t.tiles,
            t.main_us,
            t.resident,
            planned=min(t.planned, t.resident) if schedule == "static" else None,
            prologue_us=t.prologue_us,
            epilogue_us=t.epilogue_us,
            overlap=t.overlap,
            claim_us=t.claim_us,
        )
        # A claim that a short main loop does not hide is modelled coarsely; everything else is the same sum.
        tolerance = 1e-9 if schedule != "clc" or t.main_us > t.claim_us else 0.5
        assert t.makespan_us == pytest.approx(simulated, rel=tolerance)


def test_bytes_outside_the_matrix_cost_no_l2():
    narrow = workload(problem(n=8)).explore(load_profile("b200"), "sm100", forced=False)
    wide = workload(problem(n=256)).explore(load_profile("b200"), "sm100", forced=False)
    assert (narrow.moved_bytes[np.isfinite(narrow.time_us)]).max() < (wide.moved_bytes[np.isfinite(wide.time_us)]).max()


def test_a_pair_holds_half_of_b_in_each_cta():
    p = problem()
    table = space.table(p, "sm100", load_profile("b200"))
    pair = next(
        i for i in range(table.rows) if table.mma_ctas[i] == 2 and table.tile_n[i] == 256 and table.tile_m[i] == 128
    )
    a, b = sm100.stage_bytes(p, table.candidate(pair, Raster()))
    assert (a, b) == (128 * 128, 128 * 128)


@pytest.mark.parametrize(
    ("n", "schedule", "columns"),
    [(256, "static", 512), (256, "one_tile", 256), (96, "static", 256), (8, "one_tile", 32)],
)
def test_tensor_memory_rounds_to_a_power_of_two(n, schedule, columns):
    p = problem()
    table = space.table(p, "sm100", load_profile("b200"))
    row = next(
        i
        for i in range(table.rows)
        if (table.tile_n[i], table.tile_m[i], table.mma_ctas[i]) == (n, 128, 1)
        and space.SCHEDULE_OF[int(table.schedule[i])] == schedule
    )
    assert table.tmem_columns[row] == columns


def test_barriers_of_a_pair_cluster_count_every_reader():
    p = problem()
    table = space.table(p, "sm100", load_profile("b200"))
    row = next(
        i
        for i in range(table.rows)
        if (table.cluster_x[i], table.cluster_y[i], table.cluster_z[i], table.mma_ctas[i]) == (4, 2, 1, 2)
        and (table.schedule[i], table.tile_n[i]) == (cost.CLC, 256)
    )
    rows = {each.name: each for each in sm100.barriers(p, table.candidate(row, Raster()))}
    assert rows["empty"].arrivals == 2 + 2 - 1
    assert rows["clc_empty"].arrivals == 7 * 8
    assert rows["clc_full"].tx_bytes == 16
    assert rows["accumulator_empty"].arrivals == 8


def test_a_dear_stride_and_a_base_are_named_with_what_mends_them():
    p = problem(k=129, a={"align_bytes": 2}, b={"ld": 136})
    found = {each.code: each for each in tma.operand_violations(p, "a")}
    assert found["TMA_STRIDE_16B"].numbers["pad_to_elements"] == 136
    assert found["TMA_BASE_16B"].numbers["needed_bytes"] == 16
    assert tma.operand_violations(p, "b") == []


def test_a_batch_stride_counts_only_where_there_is_a_batch():
    odd = {"batch_stride": 2000 * 1000 + 1}
    assert tma.operand_violations(problem(a=odd), "a") == []
    assert tma.operand_violations(problem(batch=2, a=odd), "a")[0].numbers["stride_bytes"] == 4_000_002


def test_coordinates_count_useful_and_launched_tiles():
    work = workload(problem(m=640, n=512))
    search = work.explore(
        load_profile("b200"), "sm100", forced=False, overrides={"cluster": (2, 1, 1), "tile": (128, 256, 64)}
    )
    tiles = work.coordinates(search.candidate(int(np.argmin(search.time_us))))
    assert tiles.tiles == (5, 2, 1)
    assert tiles.launched == (6, 2, 1)
    assert tiles.useful_share == pytest.approx(5 / 6)


def test_the_units_of_a_candidate_sum_to_its_main_loops():
    work, profile = workload(problem(assume={"tile_cost_cv": 0.4, "seed": 2})), load_profile("h200")
    candidate = work.candidates(profile, "sm90")[0]
    units = work.units(candidate, profile)
    tiles = work.coordinates(candidate).clusters
    assert len(units) == tiles[0] * tiles[1] * tiles[2]
    assert units.std() / units.mean() == pytest.approx(0.4, rel=0.5)


def test_candidates_come_fastest_first_and_legal():
    work, profile = workload(problem()), load_profile("h200")
    found = work.candidates(profile, "portable")
    assert found
    assert all(work.clauses(each, profile) == [] for each in found)
