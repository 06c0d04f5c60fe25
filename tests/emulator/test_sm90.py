"""The project's own Hopper kernels, as compiled, with every way in which asynchronous work may land."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.bundle.store import read_bundle, units
from advisor.emulator import load_program
from advisor.kinds.gemm import sm90
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate, GemmWork
from advisor.toolchain import Unit, compile_cuda
from tests.emulator.gemms import Gemm, case_of, problem

GENERATED = Path(__file__).parent.parent.parent / "generated"
POLICIES = ["eager", "lazy", "random", "adversarial"]


def candidate(p: GemmProblem, tile: tuple[int, int] = (64, 64), **changes: Any) -> Candidate:
    x, y, _ = changes.get("cluster", (1, 1, 1))
    work = GemmWork(multicast_a=y, multicast_b=x, split_k=changes.pop("split_k", 1))
    fields: dict[str, Any] = {
        "family": "sm90",
        "cluster": (1, 1, 1),
        "schedule": "one_tile",
        "tile": (*tile, sm90.tile_k(p)),
        "stages": 2,
        "threads": sm90.threads(tile[0]),
        "work": work,
        **changes,
    }
    return Candidate(**fields)


@pytest.mark.parametrize("name", ["gemm_small", "dsmem_split_k"])
def test_every_instruction_of_committed_hopper_kernels_is_known(name):
    for row in units(read_bundle(GENERATED / name)):
        if row.target == "sm_90a":
            compiled = compile_cuda(Unit(row.name, row.source, row.headers, row.target, row.defines, row.flags))
            load_program(compiled.ptx).translate_all()


@pytest.fixture(scope="module")
def one_tile() -> Gemm:
    p = problem(100, 72, 328)
    return Gemm(p, candidate(p), "sm_90a")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_one_tile_with_ragged_edges_and_a_ring_that_wraps(one_tile, policy, seed):
    outcome = one_tile.check(case_of(one_tile.problem), async_policy=policy, seed=seed)
    assert outcome.warnings == ()
    assert outcome.instructions["wgmma"] > 0
    assert outcome.bytes_moved["tensor load"] > 0


def test_integers_are_exact(one_tile):
    one_tile.check(case_of(one_tile.problem, data="integers"))


SHAPES = {
    "static, multicast to two": {"cluster": (2, 1, 1), "schedule": "static"},
    "multicast along the other side": {"cluster": (1, 2, 1)},
    "tickets": {"cluster": (2, 1, 1), "schedule": "ticket"},
    "slices summed through distributed shared memory": {"cluster": (1, 1, 4), "split_k": 4},
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", list(SHAPES))
def test_clusters(name, policy):
    p = problem(200, 136, 384)
    outcome = Gemm(p, candidate(p, (128, 64), **SHAPES[name]), "sm_90a").check(
        case_of(p), async_policy=policy, seed=7
    )  # fmt: skip
    assert outcome.warnings == ()


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        ("fp16", {}),
        ("tf32", {"d": {"dtype": "fp32"}}),
        ("e4m3", {}),
        ("bf16", {"a": {"dtype": "bf16", "major": "m"}, "b": {"dtype": "bf16", "major": "n"}}),
        ("bf16", {"epilogue": {"beta": 0.5, "bias": "row", "activation": "gelu"}, "batch": 2}),
    ],
)
def test_other_types_majors_and_epilogues(dtype, changes):
    p = problem(72, 80, 160, dtype, **changes)
    outcome = Gemm(p, candidate(p), "sm_90a").check(case_of(p), async_policy="adversarial")
    assert outcome.warnings == ()


def test_the_chips_own_way_to_add_stays_within_the_bound():
    p = problem(64, 64, 256, "e4m3")
    Gemm(p, candidate(p), "sm_90a").check(case_of(p), numerics="model")


def test_few_sms_run_many_tiles():
    from advisor.emulator.world import cut_profile
    from advisor.machine.profile_file import load_profile

    p = problem(512, 512, 64)
    device = cut_profile(load_profile("h200"), 2)
    outcome = Gemm(p, candidate(p, cluster=(2, 1, 1), schedule="static"), "sm_90a").check(case_of(p), profile=device)
    assert outcome.warnings == ()
