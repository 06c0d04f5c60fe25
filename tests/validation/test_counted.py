"""What a run and a PTX file give to the table of counts: as the plan says; a false count does not pass as planned."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.emulator import Outcome
from advisor.kinds import workload as workload_of
from advisor.kinds.workload import Timing
from advisor.machine.profile_file import load_profile
from advisor.records.candidate import Candidate
from advisor.records.counts import CountRow
from advisor.records.plan import Prediction
from advisor.report.counted import verdict
from advisor.validation.counted import as_facts, counted, joined, ptx_counts
from advisor.validation.plan_counts import Promises
from tests.emulator.gemms import problem
from tests.emulator.test_sm90 import candidate
from tests.templates.test_sm100_template import candidate as sm100_candidate
from tests.validation.test_plan_counts import BLACKWELL, SHAPES, P, ran, ran_on_blackwell

PREDICTION = Prediction(time_us=1.0, low_us=0.9, high_us=1.1, bound="tensor", waves=1.0, last_wave_use=1.0)
TIMING = Timing(
    time_us=1.0, makespan_us=1.0, launch_us=0.1, main_us=0.5, prologue_us=0.1, epilogue_us=0.1, overlap=1.0,
    claim_us=0.1, extra_us=0.0, dram_us=0.1, tiles=1, planned=1, resident=1, available=1, bound="tensor", bounds={},
)  # fmt: skip


def awaited(p: Any, c: Candidate, profile: str) -> list[CountRow]:
    """The rows that wait for the emulator."""
    table = workload_of(p).counts(c, load_profile(profile), TIMING, PREDICTION)
    return [each for each in table.rows if each.source == "emulator"]


def verdicts(rows: list[CountRow], promised: Promises, outcome: Outcome) -> dict[str, str]:
    figures = counted(promised, outcome)
    return {row.key: verdict(row, figures.get(row.key)) for row in rows}


@pytest.mark.parametrize("shape", list(BLACKWELL))
def test_blackwell_runs_count_what_the_plan_counts(shape):
    p = problem(300, 136, 200)
    outcome, promised, _ = ran_on_blackwell(shape, p)
    rows = awaited(p, sm100_candidate(p, (128, 64), **BLACKWELL[shape]), "b200")
    assert {"tma_bytes_per_step", "smem_bytes_per_step", "multiply_adds_per_step", "tmem_bytes_per_tile"} <= {
        each.key for each in rows
    }
    assert set(verdicts(rows, promised, outcome).values()) == {"as planned"}


@pytest.mark.parametrize("tile", [(64, 64), (64, 128), (128, 32)])
def test_tiles_of_every_fold_of_tensor_memory(tile):
    p = problem(300, 136, 200)
    for shape in ("one CTA", "a pair"):
        outcome, promised, _ = ran_on_blackwell(shape, p, tile)
        rows = awaited(p, sm100_candidate(p, tile, **BLACKWELL[shape]), "b200")
        assert set(verdicts(rows, promised, outcome).values()) == {"as planned"}, (shape, tile)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_hopper_runs_count_what_the_plan_counts(shape):
    outcome, promised, _ = ran(shape)
    rows = awaited(P, candidate(P, (128, 64), **SHAPES[shape]), "h200")
    assert {each.key for each in rows} == {"tma_bytes_per_step", "smem_bytes_per_step"}
    assert set(verdicts(rows, promised, outcome).values()) == {"as planned"}


def test_requests_and_throttle_are_counted_one_to_one_and_a_request_too_many_is_not_as_planned():
    p = problem(600, 200, 128)
    outcome, promised, _ = ran_on_blackwell("a pair", p, clc="grant")
    rows = awaited(p, sm100_candidate(p, (128, 64), **BLACKWELL["a pair"]), "b200")
    assert {"requests_per_tile", "throttled_per_request"} <= {each.key for each in rows}
    figures = counted(promised, outcome)
    assert (figures["requests_per_tile"], figures["throttled_per_request"]) == (1.0, 1.0)
    assert outcome.requests is not None
    object.__setattr__(outcome.requests, "declined", outcome.requests.declined + 1)
    broken = verdicts(rows, promised, outcome)
    assert broken["requests_per_tile"] == broken["throttled_per_request"] == "not what the plan says"
    assert broken["tma_bytes_per_step"] == "as planned"


def test_bytes_that_no_plan_knows_of_are_not_as_planned():
    p = problem(300, 136, 200)
    outcome, promised, _ = ran_on_blackwell("pairs along y", p)
    rows = awaited(p, sm100_candidate(p, (128, 64), **BLACKWELL["pairs along y"]), "b200")
    first = next(iter(outcome.counts.loads["map_a"].bytes_by_cta))
    outcome.counts.loads["map_a"].bytes_by_cta[first] += 128
    assert verdicts(rows, promised, outcome)["tma_bytes_per_step"] == "not what the plan says"


def test_figures_of_several_runs_keep_both_ends():
    found = joined([{"a": 2.0, "b": 1.0}, {"a": 3.5}])
    assert as_facts(found) == {"a": [2, 3.5], "b": 1}


def test_instructions_of_a_ptx_file_are_counted_by_what_they_are():
    text = """
        // tcgen05.mma in a comment
        @%p1 tcgen05.mma.cta_group::2.kind::f16 [%r1], %rd1, %rd2, %r2, p;
        tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, p;
        tcgen05.ld.sync.aligned.16x256b.x8.b32 {%f1}, [%r1];
        cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1];
        cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd60, {%r1, %r2, %r3}], [%r4];
        clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%r1], [%r2];
        griddepcontrol.wait;
    """
    assert ptx_counts(text) == {
        "tcgen05_mma": 2,
        "tcgen05_pair_mma": 1,
        "tensor_memory_loads": 1,
        "tma_loads": 1,
        "tma_multicast_loads": 1,
        "work_requests": 1,
        "work_requests_multicast": 1,
        "dependency_waits": 1,
    }
