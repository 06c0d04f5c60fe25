"""Faults seeded into the Hopper kernels, one edit each, are named; the kernels as they are stay silent."""

from __future__ import annotations

import re

import pytest

from advisor.emulator import KernelFault, load_program
from advisor.emulator.world import cut_profile
from advisor.kinds.gemm import numerics
from advisor.machine.profile_file import load_profile
from tests.emulator.gemms import Gemm, case_of, problem, ptx_of
from tests.emulator.test_sm90 import candidate

WAIT = r"mbarrier\.try_wait\.parity{}\.shared::cta\.b64 p, \[[^\]]*\], [^;]*;"
RELEASED = WAIT.format(r"\.relaxed\.cluster")
FILLED = WAIT.format("")
SWIZZLE_128B = "4611686293305360384"  # of the kernels' descriptors, with a stride of 1024 bytes

# name: (codes that may name it, pattern, replacement)
MUTANTS: dict[str, tuple[set[str], str, str]] = {
    "no barrier after mbarrier.init": ({"EMU_BARRIER_INIT_UNORDERED"}, r"bar\.sync\s+0;", ""),
    "no wgmma.fence": ({"EMU_WGMMA_FENCE"}, r"wgmma\.fence\.sync\.aligned;", ""),
    "no wgmma.commit_group": ({"EMU_DATA_RACE"}, r"wgmma\.commit_group\.sync\.aligned;", ""),
    "accumulators read before their wait": ({"EMU_WGMMA_REGISTER"}, r"wgmma\.wait_group\.sync\.aligned 0;", ""),
    "a stage given back while a wgmma reads it": (
        {"EMU_DATA_RACE"},
        r"wgmma\.wait_group\.sync\.aligned 1;",
        "wgmma.wait_group.sync.aligned 2;",
    ),
    "no wait for the stores before the exit": ({"EMU_ASYNC_AT_EXIT"}, r"cp\.async\.bulk\.wait_group 0;", ""),
    "no commit of the stores": ({"EMU_ASYNC_AT_EXIT"}, r"cp\.async\.bulk\.commit_group;", ""),
    "no barrier between the warps and the store": ({"EMU_DATA_RACE"}, r"barrier\.sync \S+ \S+;", ""),
    "no proxy fence before the store": ({"EMU_DATA_RACE"}, r"fence\.proxy\.async\.shared::cta;", ""),
    "stages never given back": ({"EMU_DEADLOCK"}, r"mbarrier\.arrive\.shared::cta\.b64 _, \[[^\]]*\];", ""),
    "no wait for a stage to fill": ({"EMU_UNINITIALISED", "EMU_DATA_RACE"}, FILLED, "setp.eq.u32 p, 0, 0;"),
    "no wait for a stage to be given back": (
        {"EMU_DATA_RACE", "EMU_BARRIER_OVERRUN"},
        RELEASED,
        "setp.eq.u32 p, 0, 0;",
    ),
    "16 bytes too many expected": ({"EMU_DEADLOCK"}, r"(mov\.u32\s+%r\d+, )16384;", r"\g<1>16400;"),
    "16 bytes too few expected": ({"EMU_DEADLOCK"}, r"(mov\.u32\s+%r\d+, )16384;", r"\g<1>16368;"),
    "one arrival too many expected": ({"EMU_DEADLOCK"}, r"(mov\.u32\s+%r\d+, )4;", r"\g<1>5;"),
    "a descriptor with another swizzle": (
        {"EMU_DESCRIPTOR_TILE"},
        SWIZZLE_128B,
        str(int(SWIZZLE_128B) ^ 3 << 62),
    ),
    "a descriptor with another stride": ({"EMU_DESCRIPTOR_TILE"}, SWIZZLE_128B, str(int(SWIZZLE_128B) + (8 << 32))),
}
CLUSTER_MUTANTS: dict[str, tuple[set[str], str, str]] = {
    "no cluster barrier": ({"EMU_PEER_NOT_STARTED"}, r"barrier\.cluster\.\S*;", ""),
    "a cluster barrier without its arrival": ({"EMU_BARRIER"}, r"barrier\.cluster\.arrive\S*;", ""),
    "the store's source written again before it is read": (
        {"EMU_DATA_RACE"},
        r"cp\.async\.bulk\.wait_group\.read \d;",
        "",
    ),
}
FEW_SMS = cut_profile(load_profile("h200"), 2)


@pytest.fixture(scope="module")
def one_tile() -> tuple[Gemm, str]:
    p = problem(100, 72, 328)
    gemm = Gemm(p, candidate(p), "sm_90a")
    return gemm, ptx_of(gemm.spec, "sm_90a")


@pytest.fixture(scope="module")
def persistent() -> tuple[Gemm, str]:
    p = problem(512, 256, 96)
    gemm = Gemm(p, candidate(p, cluster=(2, 1, 1), schedule="static"), "sm_90a")
    return gemm, ptx_of(gemm.spec, "sm_90a")


def codes_of(gemm: Gemm, ptx: str, pattern: str, replacement: str, policy: str, **changes: object) -> str:
    mutated, count = re.subn(pattern, replacement, ptx)
    assert count > 0
    case = case_of(gemm.problem)
    inputs = numerics.inputs(gemm.problem, case)
    twin = Gemm.__new__(Gemm)
    twin.__dict__.update(gemm.__dict__, program=load_program(mutated, gemm.spec.kernel.entry))
    with pytest.raises(KernelFault) as caught:
        twin.run(case, inputs, async_policy=policy, profile=FEW_SMS, step_limit=1_000_000, **changes)
    assert caught.value.finding.place.ptx_line is not None or caught.value.code == "EMU_DEADLOCK"
    return caught.value.code


@pytest.mark.parametrize("policy", ["eager", "adversarial"])
@pytest.mark.parametrize("name", list(MUTANTS))
def test_a_fault_in_the_one_tile_kernel_is_named(one_tile, name, policy):
    codes, pattern, replacement = MUTANTS[name]
    assert codes_of(*one_tile, pattern, replacement, policy) in codes


@pytest.mark.parametrize("policy", ["eager", "adversarial"])
@pytest.mark.parametrize("name", list(CLUSTER_MUTANTS))
def test_a_fault_in_the_persistent_cluster_kernel_is_named(persistent, name, policy):
    codes, pattern, replacement = CLUSTER_MUTANTS[name]
    shape = {"grid_blocks": (8, 1, 1)}
    assert codes_of(*persistent, pattern, replacement, policy, shape=shape) in codes


@pytest.mark.parametrize("policy", ["eager", "lazy", "random", "adversarial"])
def test_the_kernels_as_they_are_stay_silent(one_tile, persistent, policy):
    for gemm, _ in (one_tile, persistent):
        outcome = gemm.check(
            case_of(gemm.problem), async_policy=policy, profile=FEW_SMS, shape={"grid_blocks": (8, 1, 1)}
        )
        assert outcome.warnings == ()
