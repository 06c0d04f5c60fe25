"""What each schedule costs, checked against arithmetic done by hand and against the event simulation."""

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.machine import load_profile
from advisor.machine.occupancy import clusters_by_group
from advisor.simulation import (
    Setup,
    boundary_counts,
    late_starts,
    longest_first,
    simulate,
    skewed_costs,
    uniform_makespan,
)

SCHEDULES = ("one_tile", "static", "ticket", "clc")
DYNAMIC = ("ticket", "clc")


def makespan(schedule, **changes):
    return simulate(Setup(schedule, **changes)).makespan_us


# --- the cases that the planner's reasons rest on -----------------------------------------------------------------


@pytest.mark.parametrize("tile_us", [1.0, 7.25])
def test_a_static_grid_above_residency_doubles_the_time_and_dynamic_schedules_do_not(tile_us):
    setup = Setup("static", tile_us, resident=3, tiles=12, planned=4)
    assert simulate(setup).makespan_us == pytest.approx(6 * tile_us)
    for schedule in DYNAMIC:
        assert simulate(replace(setup, schedule=schedule)).makespan_us == pytest.approx(4 * tile_us)


@pytest.mark.parametrize("costs", [2.0, skewed_costs(500, 2.0, 0.6, 3)])
@pytest.mark.parametrize("epilogue_us", [0.0, 0.7])
def test_one_tile_equals_clc_when_there_is_no_prologue_and_no_overlap(costs, epilogue_us):
    tiles = None if isinstance(costs, np.ndarray) else 500
    setup = Setup("one_tile", costs, resident=37, tiles=tiles, epilogue_us=epilogue_us, prefetch=0)
    one_tile = simulate(setup)
    clc = simulate(replace(setup, schedule="clc"))
    assert clc.makespan_us == pytest.approx(one_tile.makespan_us, rel=1e-12)
    assert clc.max_tiles == one_tile.max_tiles


@pytest.mark.parametrize(("tiles", "waves"), [(30, 1), (31, 2), (300, 10)])
def test_clc_saves_every_prologue_and_launch_but_the_first(tiles, waves):
    setup = Setup("one_tile", 5.0, resident=30, tiles=tiles, prologue_us=1.5, launch_us=0.25, epilogue_us=0.5)
    saved = simulate(setup).makespan_us - simulate(replace(setup, schedule="clc")).makespan_us
    assert saved == pytest.approx((waves - 1) * (1.5 + 0.25))


@pytest.mark.parametrize("schedule", ["static", "ticket", "clc"])
def test_a_persistent_worker_hides_the_epilogue_under_its_next_main_loop(schedule):
    setup = Setup(schedule, 4.0, resident=10, tiles=50, epilogue_us=1.0, overlap=0.75)
    assert simulate(setup).makespan_us == pytest.approx(5 * 4.0 + 4 * 0.25 + 1.0)


def test_an_epilogue_longer_than_the_main_loop_sets_the_pace():
    assert makespan("static", cost_us=1.0, resident=10, tiles=50, epilogue_us=3.0, overlap=1.0) == pytest.approx(
        1 + 5 * 3
    )


def test_one_tile_hides_no_epilogue():
    assert makespan("one_tile", cost_us=4.0, resident=10, tiles=50, epilogue_us=1.0, overlap=1.0) == pytest.approx(25.0)


def test_deep_prefetch_without_a_throttle_loses_at_the_tail_of_skewed_tiles():
    costs = skewed_costs(132 * 6, 10.0, 1.0, 0)
    deep = Setup("clc", costs, resident=132, claim_us=0.5, prefetch=4)
    throttled = replace(deep, throttle=1)
    assert simulate(deep).makespan_us > 1.1 * simulate(throttled).makespan_us


def test_a_throttle_of_one_is_a_prefetch_of_one():
    costs = skewed_costs(300, 10.0, 1.0, 5)
    deep = simulate(Setup("clc", costs, resident=20, claim_us=0.5, prefetch=8, throttle=1))
    shallow = simulate(Setup("clc", costs, resident=20, claim_us=0.5, prefetch=1))
    assert deep.makespan_us == shallow.makespan_us


def test_prefetching_one_tile_hides_a_claim_shorter_than_a_tile_and_asking_late_pays_it_every_time():
    setup = Setup("clc", 4.0, resident=10, tiles=50, claim_us=1.0)
    assert simulate(setup).makespan_us == pytest.approx(5 * 4.0)
    assert simulate(replace(setup, prefetch=0)).makespan_us == pytest.approx(5 * (4.0 + 1.0))


def test_claims_slower_than_tiles_set_the_pace_however_deep_the_prefetch():
    for prefetch in (1, 2, 5):
        assert makespan("clc", cost_us=1.0, resident=10, tiles=50, claim_us=3.0, prefetch=prefetch) == pytest.approx(
            15.0
        )


@pytest.mark.parametrize("schedule", DYNAMIC)
def test_dynamic_beats_static_when_half_the_places_are_busy_at_first(schedule):
    starts = np.array([0.0] * 66 + [40.0] * 66)
    setup = Setup("static", 2.0, resident=132, tiles=132 * 20, starts_us=starts)
    static = simulate(setup)
    dynamic = simulate(replace(setup, schedule=schedule, claim_us=0.3))
    assert static.makespan_us == pytest.approx(80.0)  # 20 tiles from time 40, or a second cluster after the first
    assert dynamic.makespan_us < 0.8 * static.makespan_us
    assert dynamic.max_tiles > 20 > min(dynamic.tiles_of)


def test_static_clusters_wait_for_the_first_free_place_and_not_for_their_own():
    starts = np.array([0.0, 100.0])
    assert makespan("static", cost_us=1.0, resident=2, tiles=6, starts_us=starts) == pytest.approx(6.0)


def test_a_ticket_kernel_that_owns_its_first_tiles_still_runs_those_of_late_clusters():
    setup = Setup("ticket", 1.0, resident=2, tiles=6, starts_us=np.array([0.0, 100.0]), trace=True)
    outcome = simulate(setup)
    assert outcome.makespan_us == pytest.approx(6.0)
    assert [span.tile for span in outcome.spans] == [0, 2, 3, 4, 5, 1]


def test_handing_out_long_tiles_first_shortens_the_tail():
    costs = skewed_costs(400, 5.0, 1.2, 9)
    plain = Setup("clc", costs, resident=100)
    assert simulate(replace(plain, order=longest_first(costs))).makespan_us < simulate(plain).makespan_us


def test_a_declined_claim_moves_a_tile_to_a_fresh_cluster_and_loses_none():
    setup = Setup("clc", 2.0, resident=5, tiles=40, prologue_us=1.0, trace=True)
    quiet, shared = simulate(setup), simulate(replace(setup, decline_every=4))
    assert quiet.launched == 5
    assert shared.launched > 5
    assert sorted(span.tile for span in shared.spans) == list(range(40))
    assert shared.makespan_us > quiet.makespan_us


def test_declining_every_claim_is_one_tile_per_cluster():
    setup = Setup("clc", 2.0, resident=5, tiles=40, prologue_us=1.0, launch_us=0.5, decline_every=1)
    declined = simulate(setup)
    assert declined.launched == 40
    assert declined.makespan_us == pytest.approx(simulate(replace(setup, schedule="one_tile")).makespan_us)


def test_declines_concern_clc_only():
    setup = Setup("ticket", 2.0, resident=5, tiles=40, decline_every=1)
    assert simulate(setup).launched == 5


# --- boundary cases -----------------------------------------------------------------------------------------------


def test_boundary_counts_straddle_residency():
    assert boundary_counts(66) == (65, 66, 67)
    assert boundary_counts(1) == (1, 2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_tile_more_than_resident_clusters_costs_a_wave_of_its_own(schedule):
    fewer, equal, more = (simulate(Setup(schedule, 3.0, resident=66, tiles=count)) for count in boundary_counts(66))
    assert (fewer.makespan_us, equal.makespan_us, more.makespan_us) == (3.0, 3.0, 6.0)
    assert fewer.idle_share == pytest.approx(1 / 66)
    assert equal.idle_share == 0.0
    assert more.last_wave_use == pytest.approx(1 / 66)
    assert more.waves == pytest.approx(67 / 66)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_tiles_take_no_time(schedule):
    outcome = simulate(Setup(schedule, 3.0, resident=66, tiles=0))
    assert (outcome.makespan_us, outcome.launched, outcome.max_tiles) == (0.0, 0, 0)
    assert uniform_makespan(schedule, 0, 3.0, 66) == 0.0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_resident_cluster_runs_every_tile(schedule):
    outcome = simulate(Setup(schedule, skewed_costs(50, 1.0, 0.5, 1), resident=1))
    assert outcome.makespan_us == pytest.approx(50.0)
    assert outcome.max_tiles == 50


# --- closed forms against events ----------------------------------------------------------------------------------

times = st.floats(0.0, 8.0).map(lambda value: round(value, 3))
setups = st.builds(
    Setup,
    schedule=st.sampled_from(SCHEDULES),
    cost_us=times.map(lambda value: value + 0.01),
    resident=st.integers(1, 40),
    tiles=st.integers(1, 300),
    planned=st.none() | st.integers(1, 60),
    prologue_us=times,
    epilogue_us=times,
    overlap=st.floats(0.0, 1.0),
    launch_us=times,
    claim_us=times,
    prefetch=st.integers(0, 4),
    throttle=st.none() | st.integers(0, 3),
    first_tile=st.sampled_from(["own", "claimed"]),
    starts_us=times,
)


@settings(max_examples=300, deadline=None)
@given(setups)
def test_closed_forms_agree_with_the_events(setup):
    fast, events = simulate(setup), simulate(replace(setup, trace=True))
    assert fast.makespan_us == pytest.approx(events.makespan_us, rel=1e-9)
    assert fast.idle_share == pytest.approx(events.idle_share, abs=1e-9)
    assert (fast.max_tiles, fast.launched) == (events.max_tiles, events.launched)
    assert sorted(fast.tiles_of) == sorted(events.tiles_of)
    assert sorted(fast.finish_us) == pytest.approx(sorted(events.finish_us), rel=1e-9)


@settings(max_examples=300, deadline=None)
@given(setups)
def test_the_cheap_function_is_the_makespan(setup):
    planned = None if setup.planned is None else min(setup.planned, setup.resident)
    setup = replace(setup, planned=planned, starts_us=0.0)
    cheap = uniform_makespan(
        setup.schedule,
        setup.tile_count,
        setup.cost_us,
        setup.resident,
        planned=planned,
        prologue_us=setup.prologue_us,
        epilogue_us=setup.epilogue_us,
        overlap=setup.overlap,
        launch_us=setup.launch_us,
        claim_us=setup.claim_us,
        prefetch=setup.ahead,
        first_tile=setup.first_tile,
    )
    assert cheap == pytest.approx(simulate(setup).makespan_us, rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(setups, st.integers(0, 1000), st.floats(0.05, 2.0), st.booleans(), st.none() | st.integers(1, 9))
def test_every_tile_runs_once_and_no_place_runs_two_at_a_time(setup, seed, cv, are_late, decline_every):
    costs = skewed_costs(setup.tile_count, 3.0, cv, seed)
    starts = np.random.RandomState(seed).uniform(0, 20, setup.resident) if are_late else setup.starts_us
    order = np.random.RandomState(seed).permutation(len(costs))
    setup = replace(setup, cost_us=costs, starts_us=starts, order=order, decline_every=decline_every, trace=True)
    outcome = simulate(setup)
    assert sorted(span.tile for span in outcome.spans) == list(range(len(costs)))
    for place in range(len(outcome.tiles_of)):
        mine = sorted(span.start_us for span in outcome.spans if span.worker == place)
        ran = {span.start_us: costs[span.tile] for span in outcome.spans if span.worker == place}
        assert len(mine) == outcome.tiles_of[place]
        for earlier, later in pairwise(mine):
            assert later >= earlier + ran[earlier] - 1e-9
    workers = len(outcome.tiles_of)
    assert outcome.makespan_us >= max(costs.sum() / workers, costs.max()) - 1e-9
    assert outcome.makespan_us >= max(span.end_us for span in outcome.spans) - 1e-9
    assert 0.0 <= outcome.idle_share <= 1.0
    assert simulate(replace(setup, trace=False)).makespan_us == pytest.approx(outcome.makespan_us)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 400), st.integers(1, 50), st.floats(0.0, 2.0), st.integers(0, 99))
def test_free_claims_on_an_idle_gpu_stay_within_the_bound_of_list_scheduling(tiles, resident, cv, seed):
    costs = skewed_costs(tiles, 3.0, cv, seed)
    for schedule in DYNAMIC:
        found = makespan(schedule, cost_us=costs, resident=resident, prefetch=0)
        assert found <= costs.sum() / resident + costs.max() + 1e-9


# --- speed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [0.0, 0.5])
def test_a_hundred_thousand_tiles_under_four_schedules_take_less_than_a_second(cv):
    costs = skewed_costs(100_000, 1.0, cv, 0)
    began = time.process_time()
    outcomes = [
        simulate(Setup(each, costs, resident=74, prologue_us=1.0, epilogue_us=0.4, overlap=0.8, claim_us=0.5))
        for each in SCHEDULES
    ]
    assert time.process_time() - began < 1.0
    assert all(outcome.tiles_of.sum() == 100_000 for outcome in outcomes)


def test_equal_tiles_cost_microseconds_to_simulate_whatever_their_number():
    setup = Setup("clc", 1.0, resident=74, tiles=10**9, prologue_us=1.0, claim_us=0.5)
    best = min(_seconds(lambda: simulate(setup)) for _ in range(200))
    assert best < 50e-6
    assert simulate(setup).makespan_us == pytest.approx(1.0 + -(-(10**9) // 74))


def _seconds(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


# --- helpers and refusals -----------------------------------------------------------------------------------------


def test_skewed_costs_have_the_mean_and_the_spread_asked_for_and_repeat_with_their_seed():
    costs = skewed_costs(200_000, 3.0, 0.8, 7)
    assert costs.mean() == pytest.approx(3.0)
    assert costs.std() / costs.mean() == pytest.approx(0.8, rel=0.03)
    assert costs.min() > 0
    assert np.array_equal(costs, skewed_costs(200_000, 3.0, 0.8, 7))
    assert not np.array_equal(costs, skewed_costs(200_000, 3.0, 0.8, 8))
    assert skewed_costs(4, 3.0, 0.0, 7).tolist() == [3.0] * 4
    assert len(skewed_costs(0, 3.0, 0.5, 7)) == 0


def test_the_stream_of_skewed_costs_is_frozen():
    assert skewed_costs(3, 1.0, 0.5, 1) == pytest.approx([1.754908, 0.610257, 0.634834], abs=1e-6)


@pytest.mark.parametrize(("size", "busy", "late"), [(1, 0, 0), (1, 66, 66), (2, 132, 66), (2, 66, 36), (16, 66, 7)])
def test_busy_sms_delay_the_clusters_that_need_them(size, busy, late):
    profile = load_profile("h200")
    starts = late_starts(profile, 1, size, busy, 50.0)
    assert len(starts) == sum(clusters_by_group(profile, 1, size))
    assert int((starts > 0).sum()) == late
    assert set(starts) <= {0.0, 50.0}


@pytest.mark.parametrize(
    "wrong",
    [
        {"tiles": None},
        {"resident": 0},
        {"planned": 0},
        {"tiles": -1},
        {"cost_us": -1.0},
        {"cost_us": np.array([1.0, -1.0]), "tiles": None},
        {"cost_us": np.array([1.0, 1.0]), "tiles": 3},
        {"claim_us": -1.0},
        {"overlap": 1.5},
        {"prefetch": -1},
        {"throttle": -1},
        {"decline_every": 0},
        {"order": np.array([0, 0]), "cost_us": np.array([1.0, 1.0]), "tiles": None},
        {"starts_us": np.zeros(3)},
        {"starts_us": np.full(9, -1.0)},
    ],
)
def test_a_setup_outside_its_range_raises(wrong):
    setup = replace(Setup("clc", 1.0, resident=9, tiles=20), **wrong)
    with pytest.raises(ValueError, match=r"."):
        simulate(setup)


def test_the_cheap_function_refuses_more_planned_clusters_than_are_resident():
    with pytest.raises(ValueError, match="use simulate"):
        uniform_makespan("static", 12, 1.0, 3, planned=4)
