"""Measured times stand over predictions, under the same rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.kinds import workload
from advisor.kinds.gemm.work import Raster
from advisor.machine import load_profile
from advisor.planner import plan
from advisor.problem.gemm import GemmProblem

SHAPE = {"kind": "gemm", "m": 4096, "n": 4096, "k": 4096}


def planned(measurements, **document):
    h200 = load_profile("h200")
    return plan(
        workload(GemmProblem.model_validate({**SHAPE, **document})),
        h200,
        target_name="h200",
        target_source="profile",
        rung_profiles={"sm90": h200, "portable": h200},
        measurements=measurements,
    )


@pytest.fixture(scope="module")
def free():
    return planned(None)


def test_a_measured_time_takes_the_place_of_the_prediction(free):
    made = planned({free.choice.candidate(): 186.0})
    assert made.choice.candidate() == free.choice.candidate()
    prediction = made.choice.prediction
    assert (prediction.time_us, prediction.evidence) == (186.0, "measured")
    assert prediction.low_us == pytest.approx(186.0 * 0.985)
    assert free.choice.prediction.evidence == "derived"
    assert "measured 186 us" in made.conclusion
    texts = [each for step in made.steps[:1] for each in step.decisions[0].because if each.evidence == "measured"]
    assert any(each.numbers["time_us"] == 186.0 for each in texts)
    assert not any("times are predictions" in each for each in made.not_verified)


def test_a_slow_measurement_of_the_pick_lets_another_win_and_is_named(free):
    chosen = free.choice.candidate()
    made = planned({chosen: 400.0})
    assert made.choice.candidate() != chosen
    assert made.choice.prediction.evidence == "derived"


def test_a_fast_measurement_of_another_candidate_wins(free):
    other = free.alternatives[-1].choice.candidate()
    made = planned({other: 100.0})
    assert made.choice.candidate() == other
    assert made.choice.prediction.time_us == 100.0
    rejected = [each for step in made.steps for decision in step.decisions for each in decision.rejected]
    assert all(each.margin is None or each.margin > 0.5 for each in rejected)


@pytest.mark.parametrize(("time_us", "wins"), [(0.99, False), (0.98, True)])
def test_within_the_tie_a_measured_time_does_not_beat_a_simpler_kernel(free, time_us, wins):
    chosen = free.choice.candidate()
    assert chosen.schedule == "static"
    other = chosen.with_schedule("ticket")  # less simple
    made = planned({other: free.choice.prediction.time_us * time_us})
    assert (made.choice.candidate() == other) == wins


def test_a_measurement_stands_over_the_simulation_of_skewed_tiles(free):
    skew = {"assume": {"tile_cost_cv": 0.5, "seed": 1}}
    chosen = planned(None, **skew).choice.candidate()
    made = planned({chosen: 50.0}, **skew)
    assert made.choice.candidate() == chosen
    assert made.choice.prediction.time_us == 50.0


def test_a_time_of_no_candidate_is_counted_and_changes_nothing(free):
    chosen = free.choice.candidate()
    elsewhere = replace(chosen, work=replace(chosen.work, raster=Raster("along_m", 32)))
    made = planned({elsewhere: 1.0})
    assert made.choice == free.choice
    assert "1 of 1 measured times are of no candidate of this search" in made.not_verified


def test_a_measured_candidate_that_a_clause_forbids_stays_out(free):
    chosen = free.choice.candidate()
    made = planned({chosen: 1.0}, constraints={"max_cluster_size": 1})
    assert made.choice.cluster == (1, 1, 1)
