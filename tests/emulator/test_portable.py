"""The project's own sm_80 kernels, as compiled: every instruction is known, and the products are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.bundle.store import read_bundle, units
from advisor.emulator import load_program
from advisor.toolchain import Unit, compile_cuda
from tests.emulator.gemms import Gemm, case_of, portable_candidate, problem

GENERATED = Path(__file__).parent.parent.parent / "generated"
BUNDLES = sorted(each.name for each in GENERATED.iterdir() if (each / "launch.json").exists())


@pytest.mark.parametrize("name", BUNDLES)
def test_every_instruction_of_the_committed_portable_kernels_is_known(name):
    for row in units(read_bundle(GENERATED / name)):
        if row.target == "sm_80":
            compiled = compile_cuda(Unit(row.name, row.source, row.headers, row.target, row.defines, row.flags))
            load_program(compiled.ptx).translate_all()


@pytest.fixture(scope="module")
def bf16() -> Gemm:
    p = problem(100, 72, 136)
    return Gemm(p, portable_candidate(p), "sm_80")


@pytest.mark.parametrize("policy", ["eager", "lazy", "random"])
def test_a_product_with_ragged_edges_is_right_whenever_copies_land(bf16, policy):
    outcome = bf16.check(case_of(bf16.problem), async_policy=policy, seed=3)
    assert outcome.warnings == ()
    assert outcome.instructions["mma"] > 0


def test_small_integers_come_out_bit_for_bit(bf16):
    bf16.check(case_of(bf16.problem, data="integers"))


def test_a_product_of_odd_extents_and_none(bf16):
    p = problem(33, 7, 5)
    bf16.check(case_of(p))
    bf16.check(case_of(problem(8, 8, 0)))


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        ("fp16", {}),
        ("tf32", {"d": {"dtype": "fp32"}}),
        ("bf16", {"a": {"dtype": "bf16", "major": "m"}, "b": {"dtype": "bf16", "major": "n"}}),
        ("bf16", {"epilogue": {"beta": 0.5, "bias": "row", "activation": "gelu"}, "batch": 2}),
    ],
)
def test_other_types_majors_and_epilogues(dtype, changes):
    p = problem(48, 40, 64, dtype, **changes)
    outcome = Gemm(p, portable_candidate(p), "sm_80").check(case_of(p))
    assert outcome.warnings == ()


def test_the_image_for_sm_89_multiplies_fp8():
    p = problem(48, 48, 96, "e4m3")
    Gemm(p, portable_candidate(p), "sm_89").check(case_of(p))
