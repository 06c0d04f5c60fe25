"""The tables of a plan against what its kernel does in the emulator: they agree, and each false row is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.bundle.expressions import evaluate
from advisor.bundle.store import read_bundle
from advisor.emulator import Outcome
from advisor.emulator.cluster_launch_control import RequestCounts
from advisor.emulator.counts import Counts
from advisor.emulator.world import cut_profile
from advisor.kinds import workload as workload_of
from advisor.kinds.gemm import sm100
from advisor.machine.profile_file import load_profile
from advisor.problem import load_problem
from advisor.records.candidate import Candidate
from advisor.records.plan import Finding
from advisor.records.rows import BarrierRow
from advisor.validation.plan_counts import Promises, compare, from_tables, promises
from tests.emulator.gemms import Gemm, case_of, problem
from tests.emulator.test_sm90 import candidate
from tests.templates.test_sm100_template import candidate as sm100_candidate

GENERATED = Path(__file__).parent.parent.parent / "generated"
P = problem(200, 136, 384)
SHAPES: dict[str, dict[str, Any]] = {
    "one CTA": {},
    "multicast along x": {"cluster": (2, 1, 1), "schedule": "static"},
    "multicast along y": {"cluster": (1, 2, 1)},
    "multicast along both": {"cluster": (2, 2, 1), "schedule": "ticket"},
    "tickets": {"cluster": (2, 1, 1), "schedule": "ticket"},
    "slices over distributed shared memory": {"cluster": (1, 1, 4), "split_k": 4},
    "slices of a static schedule": {"cluster": (1, 1, 2), "split_k": 2, "schedule": "static"},
}


def ran(shape: str, p: Any = P, tile: tuple[int, int] = (128, 64)) -> tuple[Outcome, Promises, int]:
    """What the kernel of a shape did, what is promised of it, and its tiles."""
    c = candidate(p, tile, **SHAPES[shape])
    case = case_of(p)
    outcome = Gemm(p, c, "sm_90a").check(case, seed=5)
    promised = promises(workload_of(p), c)
    assert promised is not None
    whole = {name: each for name, each in case.arguments.items() if isinstance(each, int)}
    return outcome, promised, evaluate(promised.layout.cluster_tiles, whole)


BLACKWELL: dict[str, dict[str, Any]] = {
    "one CTA": {"cluster": (1, 1, 1), "mma_ctas": 1},
    "a pair": {"cluster": (2, 1, 1), "mma_ctas": 2},
    "pairs along y": {"cluster": (2, 2, 1), "mma_ctas": 2},
    "pairs along x": {"cluster": (4, 1, 1), "mma_ctas": 2},
    "CTAs along x": {"cluster": (2, 1, 1), "mma_ctas": 1},
    "a pair, static": {"cluster": (2, 1, 1), "mma_ctas": 2, "schedule": "static"},
    "pairs, four CTAs preferred": {
        "cluster": (2, 1, 1), "mma_ctas": 2, "schedule": "static", "preferred_cluster": (4, 1, 1),
    },
    "two CTAs, two by two preferred": {
        "cluster": (1, 2, 1), "mma_ctas": 1, "schedule": "one_tile", "preferred_cluster": (2, 2, 1),
    },
    "one tile, slices over distributed shared memory": {
        "cluster": (1, 1, 2), "mma_ctas": 1, "schedule": "one_tile", "split_k": 2,
    },
}  # fmt: skip


def ran_on_blackwell(
    shape: str, p: Any, tile: tuple[int, int] = (128, 64), **options: Any
) -> tuple[Outcome, Promises, int]:
    c = replace(sm100_candidate(p, tile, **BLACKWELL[shape]), stages=2)
    assert sm100.violations(p, c) == []
    case = case_of(p)
    device = cut_profile(load_profile("b200"), c.unit_size)
    outcome = Gemm(p, c, "sm_100a").check(case, seed=5, profile=device, **options)
    promised = promises(workload_of(p), c)
    assert promised is not None
    whole = {name: each for name, each in case.arguments.items() if isinstance(each, int)}
    return outcome, promised, evaluate(promised.layout.cluster_tiles, whole)


@pytest.mark.parametrize("shape", list(BLACKWELL))
def test_blackwell_kernels_do_what_their_tables_say(shape):
    outcome, promised, tiles = ran_on_blackwell(shape, problem(300, 136, 200))
    assert differences(outcome, promised, tiles) == []
    assert unseen(promised, outcome.counts) == set()


@pytest.mark.parametrize("clc", ["grant", "decline:2", "random", "preempt", "spurious"])
def test_requests_are_as_many_as_tiles_under_every_policy(clc):
    outcome, promised, tiles = ran_on_blackwell("a pair", problem(600, 200, 128), clc=clc)
    assert differences(outcome, promised, tiles) == []
    assert tiles == 12


def test_a_plan_that_counts_the_bytes_of_one_cta_alone():
    outcome, promised, tiles = ran_on_blackwell("a pair", problem(300, 136, 200))
    found = differences(outcome, changed(promised, "full", tx_bytes=20_480), tiles)
    assert [each.numbers["counted"] for each in found] == ["40960"]


def unseen(promised: Promises, counts: Counts) -> set[str]:
    """Rows of which a run has shown nothing: an mbarrier without a complete phase, an operand that was not loaded."""
    start = counts.dynamic_start
    idle = {
        name
        for name, offsets in promised.layout.mbarriers.items()
        if not any(start + each in counts.barriers and counts.barriers[start + each].completed for each in offsets)
    }
    idle |= {each for each, numbers in promised.layout.named.items() if not set(numbers) & set(counts.named_barriers)}
    return idle | {each.operand for each in promised.layout.loads if each.param not in counts.loads}


def differences(outcome: Outcome, promised: Promises, tiles: int) -> list[Finding]:
    return compare(promised, outcome.counts, outcome.requests, clusters=outcome.clusters, tiles=tiles)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_kernels_do_what_their_tables_say(shape):
    outcome, promised, tiles = ran(shape)
    assert differences(outcome, promised, tiles) == []
    assert unseen(promised, outcome.counts) == set()


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ("multicast along both", {"a": {"dtype": "bf16", "major": "m"}, "b": {"dtype": "bf16", "major": "n"}}),
        ("multicast along y", {"d": {"dtype": "fp32"}}),
        ("multicast along x", {"batch": 2}),
    ],
)
def test_other_majors_types_and_batches(shape, changes):
    outcome, promised, tiles = ran(shape, problem(200, 136, 384, **changes))
    assert differences(outcome, promised, tiles) == []


@pytest.fixture(scope="module")
def whole() -> tuple[Outcome, Promises, int]:
    return ran("multicast along both")


def changed(promised: Promises, name: str, **changes: Any) -> Promises:
    rows = tuple(replace(each, **changes) if each.name == name else each for each in promised.barriers)
    assert rows != promised.barriers
    return replace(promised, barriers=rows)


def shared(promised: Promises, operand: str, **changes: Any) -> Promises:
    rows = tuple(replace(each, **changes) if each.operand == operand else each for each in promised.sharing)
    return replace(promised, sharing=rows)


STRANGER = BarrierRow("more", "cta", 1, 1, "", 0, "", "")
FALSE: dict[str, tuple[Callable[[Promises], Promises], str, object, object]] = {
    "arrivals too many": (lambda p: changed(p, "empty", arrivals=25), "empty", 25, "12"),
    "arrivals too few": (lambda p: changed(p, "ticket_empty", arrivals=1), "ticket_empty", 1, "36"),
    "bytes of one operand": (lambda p: changed(p, "full", tx_bytes=16384), "full", 16384, "24576"),
    "bytes of a slot": (lambda p: changed(p, "ticket_full", tx_bytes=16), "ticket_full", 16, "8"),
    "bytes where there are none": (lambda p: changed(p, "ticket_empty", tx_bytes=16), "ticket_empty", 16, "0"),
    "more stages": (lambda p: changed(p, "full", count=3), "full", 3, 2),
    "threads of a named barrier": (lambda p: changed(p, "store", arrivals=256), "store", 256, "128"),
    "threads of a meeting": (lambda p: changed(p, "exit", arrivals=384), "exit", 384, "1536"),
    "a meeting more": (lambda p: changed(p, "exit", count=2), "start and exit", 6, 4),
    "bytes of a load": (lambda p: shared(p, "A", bytes_per_load=16384), "operand A", 16384, "8192"),
    "receivers of a load": (lambda p: shared(p, "B", receivers=4), "operand B", 4, 2),
    "the mask of a load": (lambda p: shared(p, "B", mask="0x0001 for rank 0"), "operand B", "0x0001", "0x0003"),
    "no multicast": (lambda p: shared(p, "A", mask="none"), "operand A", "no multicast", "0x0005"),
    "requests": (lambda p: replace(p, schedule="clc"), "Cluster Launch Control", 2, 0),
}


@pytest.mark.parametrize("name", list(FALSE))
def test_a_false_row_is_named_with_both_numbers(name, whole):
    outcome, promised, tiles = whole
    make, row, planned, counted = FALSE[name]
    found = differences(outcome, make(promised), tiles)
    assert {each.code for each in found} == {"PLAN_KERNEL_MISMATCH"}
    assert (row, planned, counted) in [
        tuple(each.numbers[key] for key in ("row", "planned", "counted")) for each in found
    ]


def test_a_kernel_of_another_candidate_is_a_mismatch():
    outcome, _, tiles = ran("multicast along x")
    _, other, _ = ran("multicast along y")
    found = differences(outcome, other, tiles)
    assert {"operand A, rank 0", "operand B, rank 0"} <= {each.numbers["row"] for each in found}


def test_mbarriers_that_no_row_has_are_named(whole):
    outcome, promised, tiles = whole
    places = {name: each for name, each in promised.layout.mbarriers.items() if name != "ticket_full"}
    found = differences(outcome, replace(promised, layout=replace(promised.layout, mbarriers=places)), tiles)
    assert "other mbarriers" in {each.numbers["row"] for each in found}


def test_bytes_between_ctas():
    outcome, promised, tiles = ran("slices over distributed shared memory")
    false = replace(promised, remote_bytes={"partial sums": 128 * 64 * 4})
    (found,) = differences(outcome, false, tiles)
    assert found.numbers["row"] == "partial sums"
    assert found.numbers["counted"] == outcome.counts.remote_bytes == 24 * 24_576


def test_requests_of_cluster_launch_control(whole):
    outcome, promised, _ = whole
    promised = replace(promised, schedule="clc")

    def judged(requests: RequestCounts) -> set[object]:
        found = compare(promised, outcome.counts, requests, clusters=outcome.clusters, tiles=12)
        return {each.numbers["what"] for each in found if each.numbers["row"] == "Cluster Launch Control"}

    fine = RequestCounts(granted=8, declined=4, tiles={3: 4}, at_launch=4, receivers=frozenset({4}))
    assert judged(fine) == set()
    assert judged(replace(fine, declined=8)) == {"requests"}
    assert judged(replace(fine, receivers=frozenset({1, 4}))) == {"CTAs that get a response"}


def test_what_a_run_has_not_shown_is_said(whole):
    outcome, promised, _ = whole
    counts = replace(outcome.counts, loads={}, named_barriers={}, barriers={})
    assert unseen(promised, counts) == {"full", "empty", "turn", "ticket_full", "ticket_empty", "store", "A", "B"}


@pytest.mark.parametrize("name", ["gemm_small", "dsmem_split_k"])
def test_the_tables_of_a_committed_plan_are_read_back(name):
    bundle = read_bundle(GENERATED / name)
    c: Candidate = bundle.plan.choices[0].candidate()
    workload = workload_of(load_problem(GENERATED / name / "problem.yaml"))
    layout = workload.layout(c)
    assert layout is not None
    read = from_tables(bundle.plan, layout, c)
    assert list(read.barriers) == workload.barriers(c)
    assert [(each.operand, each.receivers, each.mask, each.bytes_per_load) for each in read.sharing] == [
        (each.operand, each.receivers, each.mask, each.bytes_per_load) for each in workload.sharing(c)
    ]
