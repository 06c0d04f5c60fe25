"""The project's own Hopper kernels, as compiled, with every way in which asynchronous work may land."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.bundle.store import read_bundle, units
from advisor.codegen import templates
from advisor.emulator import KernelFault, load_program
from advisor.kinds.gemm import sm90
from advisor.kinds.gemm.work import GemmWork
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
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


def few_sms(count: int) -> Any:
    from advisor.emulator.world import cut_profile
    from advisor.machine.profile_file import load_profile

    return cut_profile(load_profile("h200"), count)


def test_few_sms_run_many_tiles():
    p = problem(512, 512, 64)
    kernel = Gemm(p, candidate(p, cluster=(2, 1, 1), schedule="static"), "sm_90a")
    assert kernel.check(case_of(p), profile=few_sms(2)).warnings == ()


FEW_WORKERS = {"grid_blocks": (4, 1, 1)}  # each has several tiles


@pytest.mark.parametrize("policy", ["lazy", "adversarial"])
@pytest.mark.parametrize("schedule", ["static", "ticket"])
@pytest.mark.parametrize("k", [64, 256, 328])  # of 1, 4 and 6 blocks: a ring of 3 is passed 0, 1 and 2 times
def test_warpgroups_that_take_tiles_in_turn(schedule, k, policy):
    p = problem(512, 300, k)
    c = candidate(p, (128, 64), cluster=(2, 1, 1), schedule=schedule, stages=3)
    assert sm90.ping_pong(p, c)
    outcome = Gemm(p, c, "sm_90a").check(case_of(p), shape=FEW_WORKERS, async_policy=policy, seed=3)
    assert outcome.warnings == ()
    assert outcome.clusters == 2


def test_without_turns_a_warpgroup_reads_stages_that_have_not_landed():
    """The broken twin: one line less, and a wait two phases ahead passes at once."""
    p = problem(512, 300, 256)
    kernel = Gemm(p, candidate(p, (128, 64), schedule="static", stages=3), "sm_90a")
    source = templates.render(kernel.spec.template, **kernel.spec.context)
    turn = "wait(smem + Smem::kTurn + 8 * consumer, turn_parity);"
    assert source.count(turn) == 1
    unit = Unit(
        "kernel.cu", source.replace(turn, ""), templates.headers_for(source), "sm_90a", kernel.spec.kernel.defines
    )
    kernel.program = load_program(compile_cuda(unit).ptx, kernel.spec.kernel.entry)
    with pytest.raises((KernelFault, AssertionError)):
        kernel.check(case_of(p), shape=FEW_WORKERS, async_policy="lazy")


@pytest.mark.parametrize("tile", [(128, 192), (256, 64), (128, 112), (64, 24), (64, 176)])
def test_tiles_of_every_shape(tile):
    p = problem(200, 190, 136)
    c = candidate(p, tile, schedule="static")
    outcome = Gemm(p, c, "sm_90a").check(case_of(p), shape={"grid_blocks": (2, 1, 1)}, async_policy="random")
    assert outcome.warnings == ()


@pytest.mark.parametrize("blocks", [1, 2, 3, 4])
def test_fp8_sums_of_one_stage_are_added_while_the_next_is_multiplied(blocks):
    p = problem(72, 64, 128 * blocks, "e4m3")
    kernel = Gemm(p, candidate(p, (128, 64)), "sm_90a")
    assert kernel.check(case_of(p), async_policy="adversarial").warnings == ()
