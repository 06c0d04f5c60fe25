"""The project's own Blackwell kernels, as compiled, with every way in which asynchronous work may land and every answer
that a request for work may get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.emulator import KernelFault, Outcome, load_program, run
from advisor.emulator.policy import CLUSTER_MIXES
from advisor.emulator.world import cut_profile
from advisor.kinds.gemm import numerics, sm100
from advisor.kinds.gemm.work import GemmWork
from advisor.machine.profile_file import load_profile
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from tests.emulator.gemms import Gemm, case_of, problem, ptx_of, resolved

POLICIES = ["eager", "lazy", "random", "adversarial"]
CLC_POLICIES = ["grant", "decline:1", "decline:2", "random", "spurious", "preempt"]
FULL = {"alpha": 0.5, "beta": 2.0, "bias": "row", "activation": "gelu"}


def candidate(
    p: GemmProblem,
    tile: tuple[int, int] = (128, 64),
    cluster: tuple[int, int, int] = (1, 1, 1),
    schedule: Any = "one_tile",
    mma_ctas: int = 1,
    stages: int = 2,
    **work: Any,
) -> Candidate:
    x, y, _ = work.get("preferred_cluster") or cluster
    plain = GemmWork(mma_ctas=mma_ctas, multicast_a=y, multicast_b=x, **work)
    c = Candidate("sm100", cluster, schedule, (*tile, sm100.tile_k(p)), stages, sm100.THREADS, plain)
    assert sm100.violations(p, c) == []
    return c


def check(p: GemmProblem, c: Candidate, **options: Any) -> Outcome:
    outcome = Gemm(p, c, "sm_100a").check(case_of(p), **options)
    assert outcome.warnings == ()
    return outcome


# --- one CTA -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_tile() -> Gemm:
    p = problem(100, 72, 328)
    return Gemm(p, candidate(p, (64, 64)), "sm_100a")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_one_tile_with_ragged_edges_and_a_ring_that_wraps(one_tile: Gemm, policy: str, seed: int) -> None:
    outcome = one_tile.check(case_of(one_tile.problem), async_policy=policy, seed=seed)
    assert outcome.warnings == ()
    assert outcome.instructions["tcgen05.mma"] == 2 * 2 * 6 * 4  # tiles, K blocks, steps
    assert outcome.bytes_moved["tensor load"] > 0


def test_integers_are_exact(one_tile: Gemm) -> None:
    one_tile.check(case_of(one_tile.problem, data="integers"))


@pytest.mark.parametrize(("target", "device"), [("sm_100f", "b200"), ("sm_100f", "b300"), ("sm_103a", "b300")])
def test_other_targets_of_the_family_compute_the_same_bits(one_tile: Gemm, target: str, device: str) -> None:
    case = case_of(one_tile.problem)
    other = Gemm(one_tile.problem, one_tile.candidate, target)
    assert other.program.module.target == target
    found = other.check(case, profile=load_profile(device)).buffers["D"]
    assert np.array_equal(found, one_tile.check(case).buffers["D"])


def test_a_pair_that_takes_its_work_through_requests_runs_on_compute_capability_10_3() -> None:
    p = problem(300, 136, 200)
    c = candidate(p, (128, 64), (2, 1, 1), "clc", 2)
    outcome = Gemm(p, c, "sm_103a").check(case_of(p), profile=cut_profile(load_profile("b300"), 2))
    assert outcome.requests is not None
    assert outcome.requests.granted > 0


def test_every_schedule_cluster_and_pair_gives_the_same_bits() -> None:
    p = problem(140, 100, 200)
    case = case_of(p)
    found = {
        (schedule, pair): Gemm(p, candidate(p, (64, 64), (pair, 1, 1), schedule, pair), "sm_100a").check(case)
        for schedule in sm100.SCHEDULES
        for pair in (1, 2)
    }
    assert len({outcome.buffers["D"].tobytes() for outcome in found.values()}) == 1


# --- clusters ----------------------------------------------------------------------------------------------------

SHAPES: dict[str, dict[str, Any]] = {
    "multicast along x": {"cluster": (2, 1, 1), "schedule": "static"},
    "multicast along y": {"cluster": (1, 2, 1)},
    "a pair": {"cluster": (2, 1, 1), "mma_ctas": 2, "schedule": "clc"},
    "a pair of 64 rows": {"cluster": (2, 1, 1), "mma_ctas": 2, "tile": (64, 96), "schedule": "static"},
    "pairs along y": {"cluster": (2, 2, 1), "mma_ctas": 2, "tile": (64, 32), "schedule": "clc"},
    "pairs along x": {"cluster": (4, 1, 1), "mma_ctas": 2, "tile": (64, 32), "schedule": "static"},
    "slices over distributed shared memory": {"cluster": (1, 1, 4), "split_k": 4},
    "slices of pairs": {"cluster": (2, 1, 2), "mma_ctas": 2, "split_k": 2, "schedule": "static", "tile": (64, 64)},
}


@pytest.mark.parametrize("policy", [pytest.param(each, marks=pytest.mark.slow) for each in POLICIES[:3]] + POLICIES[3:])
@pytest.mark.parametrize("name", list(SHAPES))
def test_clusters(name: str, policy: str) -> None:
    p = problem(200, 136, 384)
    check(p, candidate(p, stages=3, **SHAPES[name]), async_policy=policy, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["static", "clc"])
@pytest.mark.parametrize("cluster", [(8, 1, 1), (4, 2, 1), (2, 4, 1), (16, 1, 1), (8, 2, 1), (4, 4, 1), (2, 8, 1)])
def test_pairs_in_large_clusters(cluster: tuple[int, int, int], schedule: str) -> None:
    """N of 16: half a tile of B is one slice, so its CTAs along x form groups of one."""
    p = problem(64 * cluster[0], 16 * cluster[1] + 8, 192)
    check(p, candidate(p, (64, 16), cluster, schedule, 2), async_policy="adversarial", seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [(1, 16, 1), (1, 8, 1), (4, 4, 1), (16, 1, 1)])
def test_single_ctas_in_large_clusters(cluster: tuple[int, int, int]) -> None:
    p = problem(64 * cluster[0], 32 * cluster[1], 192)
    check(p, candidate(p, (64, 32), cluster, "clc", 1), async_policy="adversarial", seed=5)


def test_a_small_tile_in_a_wide_cluster_is_paced_by_whoever_sends_it() -> None:
    """An MMA may run a pass ahead of CTAs whose loads it does not wait for: it must not arrive on their barriers."""
    p = problem(500, 40, 384)
    check(p, candidate(p, (64, 16), (4, 1, 1), "static", 2, 3), async_policy="adversarial", seed=5)


# --- two cluster sizes in one launch -----------------------------------------------------------------------------

MIXES: dict[str, dict[str, Any]] = {
    "four in a row": {"cluster": (2, 1, 1), "preferred_cluster": (4, 1, 1), "schedule": "static"},
    "two by two": {"cluster": (2, 1, 1), "preferred_cluster": (2, 2, 1), "schedule": "one_tile"},
    "four by two": {"cluster": (2, 1, 1), "preferred_cluster": (4, 2, 1), "schedule": "static"},
    "four by two of two by two": {"cluster": (2, 2, 1), "preferred_cluster": (4, 2, 1), "schedule": "one_tile"},
}


@pytest.mark.parametrize("mix", CLUSTER_MIXES)
@pytest.mark.parametrize(
    "name", [*list(MIXES)[:2], *(pytest.param(each, marks=pytest.mark.slow) for each in list(MIXES)[2:])]
)
def test_any_mix_of_two_cluster_sizes_writes_every_tile_once(name: str, mix: str) -> None:
    p = problem(600, 136, 384)
    c = candidate(p, (64, 32), stages=3, mma_ctas=2, **MIXES[name])
    gemm = Gemm(p, c, "sm_100a")
    device = cut_profile(load_profile("b200"), c.unit_size)
    if c.cluster_size > 2:  # two SMs are left over beside a preferred cluster: not enough for a smaller one of four
        device = replace(device, sms=14, sm_groups=(12, 2))
    outcome = gemm.check(
        case_of(p), async_policy="adversarial", seed=3, cluster_mix=mix, profile=device, count_writes=("D",)
    )
    assert outcome.warnings == ()
    assert (outcome.writes["D"].reshape(p.m, p.d.ld, 2)[:, : p.n] == 1).all()
    only = {"preferred": {c.unit_size}, "smaller": {c.cluster_size}}
    assert set(outcome.counts.sizes.values()) == only.get(mix, {c.unit_size, c.cluster_size})


def test_single_ctas_mix_too_and_mn_major_operands_are_cut_into_the_same_slices() -> None:
    p = problem(320, 136, 200, a={"major": "m"}, b={"major": "n"}, epilogue={"beta": 0.5})
    c = candidate(p, (64, 64), (1, 2, 1), "static", 1, preferred_cluster=(2, 4, 1))
    check(p, c, async_policy="adversarial", profile=cut_profile(load_profile("b200"), 8))


def test_a_mix_gives_the_bits_of_one_size() -> None:
    p = problem(300, 136, 200)
    plain = Gemm(p, candidate(p, (64, 64), (2, 1, 1), "static", 2), "sm_100a").check(case_of(p))
    mixed = Gemm(p, candidate(p, (64, 64), (2, 1, 1), "static", 2, preferred_cluster=(4, 1, 1)), "sm_100a")
    found = mixed.check(case_of(p), profile=cut_profile(load_profile("b200"), 4))
    assert np.array_equal(plain.buffers["D"], found.buffers["D"])


def test_a_mix_over_scratch_slices_and_behind_another_launch() -> None:
    p = problem(300, 136, 384, launch={"pdl": True})
    c = candidate(p, (64, 64), (2, 1, 1), "static", 2, split_k=2, preferred_cluster=(4, 1, 1))
    case = case_of(p)
    inputs = numerics.inputs(p, case)
    outcome: Outcome | None = None
    for spec in sm100.kernels(p, c):
        launch = resolved(p, spec, case, "sm_100a")
        program = load_program(ptx_of(spec, "sm_100a"), spec.kernel.entry)
        given = {name: each for name, each in inputs.items() if name in launch.buffers and name != "D"}
        device = cut_profile(load_profile("b200"), 4)
        outcome = run(program, launch, inputs=given, after=outcome, profile=device, cluster_mix="random", seed=1)
    assert outcome is not None
    wanted, allowed = numerics.reference(p, case, inputs)["D"], numerics.bound(p, case, inputs, "sm100")["D"]
    found = outcome.typed("D").astype(np.float64).reshape(wanted.shape)
    inside = ~np.isnan(wanted)
    assert (np.abs(found - wanted)[inside] <= allowed[inside]).all()


@pytest.mark.parametrize("mix", CLUSTER_MIXES)
def test_clusters_of_either_size_wait_for_a_late_predecessor(mix: str) -> None:
    p = problem(300, 136, 200, launch={"pdl": True})
    c = candidate(p, (64, 64), (2, 1, 1), "static", 2, preferred_cluster=(4, 1, 1))
    device = cut_profile(load_profile("b200"), 4, smaller=2)
    how = {"profile": device, "cluster_mix": mix, "predecessor_writes": ("A", "B"), "seed": 2}
    check(p, c, async_policy="adversarial", **how)


def test_a_request_for_work_in_a_mixed_launch_is_named(stealing: dict[int, Gemm]) -> None:
    gemm = stealing[2]
    case = case_of(gemm.problem)
    launch = gemm.launch(case)
    attributes = launch.attributes.model_copy(update={"preferred_cluster": (4, 1, 1)})
    grid = (launch.grid_blocks[0] // 4 * 4, 1, 1)
    with pytest.raises(KernelFault) as caught:
        gemm.run(case, numerics.inputs(gemm.problem, case), shape={"attributes": attributes, "grid_blocks": grid})
    assert caught.value.code == "EMU_CLC_MIXED_CLUSTERS"


# --- Cluster Launch Control --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stealing() -> dict[int, Gemm]:
    p = problem(600, 128, 128)
    return {pair: Gemm(p, candidate(p, (64, 64), (pair, 1, 1), "clc", pair), "sm_100a") for pair in (1, 2)}


@pytest.mark.parametrize("clc", CLC_POLICIES)
@pytest.mark.parametrize("policy", [pytest.param("eager", marks=pytest.mark.slow), "adversarial"])
@pytest.mark.parametrize("pair", [1, 2])
def test_every_tile_is_computed_once_whatever_requests_are_answered(
    stealing: dict[int, Gemm], pair: int, policy: str, clc: str
) -> None:
    gemm = stealing[pair]
    case = case_of(gemm.problem)
    device = cut_profile(load_profile("b200"), 2 * pair)
    outcome = gemm.check(case, async_policy=policy, clc=clc, seed=11, profile=device, count_writes=("D",))
    assert outcome.warnings == ()
    p = gemm.problem
    assert (outcome.writes["D"].reshape(p.m, p.d.ld, 2)[:, : p.n] == 1).all()
    requests = outcome.requests
    assert requests is not None
    tiles = -(-p.m // (64 * pair)) * -(-p.n // 64)
    assert requests.granted + requests.declined == tiles  # each tile of a cluster asks for one more
    assert requests.granted == tiles - outcome.clusters


def test_few_sms_run_many_tiles() -> None:
    p = problem(512, 256, 64)
    device = cut_profile(load_profile("b200"), 2)
    for schedule in ("static", "clc"):
        check(p, candidate(p, (64, 64), (2, 1, 1), schedule, 2), profile=device)


# --- types, majors, epilogues ------------------------------------------------------------------------------------

MAKES: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]] = {
    "fp16": ((72, 80, 160, "fp16"), {}, {}),
    "tf32": ((72, 80, 160, "tf32"), {}, {}),
    "tf32, C and D m-major": (
        (72, 80, 160, "tf32"), {"d": {"major": "m"}, "c": {"major": "m"}, "epilogue": {"beta": 1.0}},
        {"tile": (128, 32)},
    ),
    "tf32, mn-major": (
        (72, 96, 160, "tf32"), {"a": {"major": "m"}, "b": {"major": "n"}}, {"tile": (128, 128)},
    ),
    "e4m3, scaled": ((72, 80, 160, "e4m3"), {"scale": {"a": "tensor", "b": "tensor"}}, {}),
    "e4m3 by e5m2, mn-major": (
        (80, 96, 160, "e4m3"), {"a": {"major": "m"}, "b": {"major": "n", "dtype": "e5m2"}},
        {"tile": (64, 96)},
    ),
    "bf16 mn-major": ((72, 96, 160), {"a": {"major": "m"}, "b": {"major": "n"}}, {"tile": (128, 96)}),
    "narrow, mn-major": ((72, 96, 160), {"a": {"major": "m"}, "b": {"major": "n"}}, {"tile": (128, 16)}),
    "C, bias, gelu, a batch": ((72, 80, 160), {"epilogue": FULL, "batch": 2}, {}),
    "C and D m-major, bias along m": (
        (72, 80, 160),
        {"c": {"major": "m"}, "d": {"major": "m"}, "epilogue": {"beta": 0.5, "bias": "col", "activation": "silu"}},
        {},
    ),
    "fp32 D of fp16 C": (
        (72, 80, 160), {"c": {"dtype": "fp16"}, "d": {"dtype": "fp32"}, "epilogue": {"beta": 0.5}}, {"tile": (64, 64)},
    ),
    "C and D without alignment": (
        (73, 81, 160), {"c": {"align_bytes": 2}, "d": {"align_bytes": 2}, "epilogue": {"beta": 0.5}}, {},
    ),
    "D ends within 16 bytes": ((73, 84, 160), {"d": {"ld": 88}, "c": {"ld": 88}, "epilogue": {"beta": 0.5}}, {}),
    "no K": ((73, 80, 0), {"a": {"ld": 8}, "b": {"ld": 8}, "epilogue": FULL}, {}),
    "behind another launch": ((73, 80, 64), {"launch": {"pdl": True}}, {}),
}  # fmt: skip


@pytest.mark.parametrize("pair", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("make", list(MAKES))
def test_types_majors_and_epilogues(make: str, pair: int) -> None:
    extents, fields, how = MAKES[make]
    p = problem(*extents, **fields)
    matrices = [("a", p.a), ("b", p.b), ("d", p.d), *([("c", p.c)] if p.uses_c else [])]
    strides = {f"ld{name}": each.ld for name, each in matrices}
    strides |= {f"batch_stride_{name}": each.batch_stride for name, each in matrices}
    c = candidate(p, **{"tile": (128, 64), "cluster": (pair, 1, 1), "schedule": "clc", "mma_ctas": pair} | how)
    for each in (c, replace(c, schedule="static", work=replace(c.work, swap_ab=True))):
        assert sm100.violations(p, each) == []
        outcome = Gemm(p, each, "sm_100a").check(case_of(p, **strides), async_policy="adversarial")
        assert outcome.warnings == ()


def test_the_chips_own_way_to_add_stays_within_the_bound() -> None:
    p = problem(64, 64, 256, "e4m3")
    Gemm(p, candidate(p, (64, 64)), "sm_100a").check(case_of(p), numerics="model")


def test_slices_over_scratch_are_summed_by_the_second_kernel() -> None:
    p = problem(200, 136, 384, epilogue=FULL)
    c = candidate(p, (64, 64), (2, 1, 1), "static", 2, split_k=3)
    case = case_of(p)
    inputs = numerics.inputs(p, case)
    outcome: Outcome | None = None
    for spec in sm100.kernels(p, c):
        launch = resolved(p, spec, case, "sm_100a")
        program = load_program(ptx_of(spec, "sm_100a"), spec.kernel.entry)
        given = {name: each for name, each in inputs.items() if name in launch.buffers and name != "D"}
        outcome = run(program, launch, inputs=given, after=outcome, async_policy="adversarial")
        assert outcome.warnings == ()
    assert outcome is not None
    wanted, allowed = (
        each(p, case, inputs, *more)["D"] for each, more in ((numerics.reference, ()), (numerics.bound, ("sm100",)))
    )
    found = outcome.typed("D").astype(np.float64).reshape(wanted.shape)
    inside = ~np.isnan(wanted)
    assert (np.abs(found - wanted)[inside] <= allowed[inside]).all()
