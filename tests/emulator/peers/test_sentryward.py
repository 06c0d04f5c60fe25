"""The emulator and the static verifier sentryward say the same of synchronisation, or the case is settled here.

Its silence clears nothing where it models nothing: fences, granted requests, what a CTA does after a peer has left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advisor.emulator import KernelFault, run
from advisor.emulator.machine import Machine
from advisor.records.launch import ResolvedLaunch
from tests.emulator.compilers.cases_sm100 import SM100
from tests.emulator.compilers.harness import compile_case, execute, launch_of, needs_triton
from tests.emulator.gemms import Gemm, case_of, problem, ptx_of
from tests.emulator.peers import faults, opengemm
from tests.emulator.peers.sentryward import ask, available
from tests.emulator.peers.test_opengemm import STATIC, needs_opengemm
from tests.emulator.test_sm100 import SHAPES, candidate

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not available(), reason="sentryward exists for Linux on x86_64")]

# Those that it decides in a few seconds; `python -m tests.emulator.peers.survey` asks about all. A question costs 2 s
# of processor time at least, so each is here for what no other one has: together they take two minutes.
OWN = ["one CTA", "multicast along x", "a pair", "pairs along x"]
EMITTED = ["bf16, rows of 64", "bf16, a pair with rows of 64", "s8", "mxfp4, operands exchanged"]
COMPILED = ["dot_int8", "dot_converted_a", "tma_host_mn_major", "scans", "transpose", "casts", "gluon_tf32",
            "gluon_pair_64_rows"]  # fmt: skip
SECONDS = 240  # on a busy machine
ONE_VALUE, COMMITS = "conflicting_accesses_unordered", "barrier_completion_before_invalidation_not_proven"
SETTLED = {
    **dict.fromkeys(["softmax", "layernorm", "rmsnorm", "reductions", "shuffles", "sorts"], ONE_VALUE),
    **dict.fromkeys(["tmem_copied_swizzle_64", "gluon_clc_one_slot"], ONE_VALUE),
    "tma_specialized": COMMITS,
}


def own(name: str) -> tuple[str, ResolvedLaunch]:
    """A Blackwell kernel of the project and its launch: several tiles, and one step of K more than there are stages."""
    p = problem(136, 72, 192)
    shape = {} if name == "one CTA" else SHAPES[name]
    gemm = Gemm(p, candidate(p, stages=2, **shape), "sm_100a")
    return ptx_of(gemm.spec, "sm_100a"), gemm.launch(case_of(p))


@pytest.mark.parametrize("name", OWN)
def test_it_agrees_on_the_projects_own_kernels(name: str) -> None:
    """`test_sm100` holds that the emulator is silent."""
    opinion = ask(*own(name), SECONDS)
    assert opinion.silent, opinion


@needs_opengemm
@pytest.mark.parametrize("name", EMITTED)
def test_it_agrees_on_kernels_of_opengemm(name: str) -> None:
    """`test_opengemm` holds that the emulator is silent."""
    kernel = STATIC[name].kernel()
    opinion = ask(kernel.ptx, opengemm.launch(kernel, STATIC[name].ctas), SECONDS)
    assert opinion.silent, opinion


@needs_triton
@pytest.mark.parametrize("name", COMPILED)
def test_it_agrees_on_kernels_of_triton(name: str) -> None:
    case = SM100.cases[name]()
    compiled = compile_case(case)
    opinion = ask(compiled.ptx, launch_of(case, compiled), SECONDS)
    assert opinion.silent, opinion


@needs_triton
@pytest.mark.parametrize("name", SETTLED)
def test_where_it_accuses_and_the_emulator_is_silent_the_case_is_settled(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes of a warp that store one value at one place; arrivals of commits that land in the order of their issue."""
    case = SM100.cases[name]()
    compiled = compile_case(case)
    opinion = ask(compiled.ptx, launch_of(case, compiled), SECONDS)
    assert opinion.accuses
    assert opinion.codes == (SETTLED[name],)
    doubles = 0
    original = Machine.store_shared

    def watched(self: Machine, g: Any, a: Any, address: Any, values: Any, mask: Any) -> None:
        nonlocal doubles
        on = np.ones(address.shape, bool) if mask is None else mask
        for row in range(g.n):
            places = address[row][on[row]]
            for value in values:
                stored = np.broadcast_to(value, address.shape)[row][on[row]]
                first = {place: each for place, each in zip(places.tolist(), stored.tolist(), strict=True)}
                assert all(first[place] == each for place, each in zip(places.tolist(), stored.tolist(), strict=True))
            doubles += len(places) - len(set(places.tolist()))
        original(self, g, a, address, values, mask)

    monkeypatch.setattr(Machine, "store_shared", watched)
    outcome = execute(case, async_policy="adversarial", seed=1)
    assert outcome.warnings == ()
    if SETTLED[name] == ONE_VALUE:
        assert doubles


def named(ptx: str) -> str:
    """What the emulator reports, under the first policy that shows it; nothing where it is silent under all."""
    kernel = faults.kernel()
    inputs, _ = opengemm.data(kernel)
    for policy in ("adversarial", "lazy", "eager", "random"):
        try:
            run(ptx, opengemm.launch(kernel, 1), inputs=inputs, async_policy=policy)
        except KernelFault as fault:
            return fault.finding.code
    return ""


@needs_opengemm
@pytest.mark.parametrize("name", faults.FAULTS)
def test_both_name_a_fault_that_both_support(name: str) -> None:
    kernel = faults.kernel()
    ptx = faults.FAULTS[name](kernel.ptx)
    assert named(ptx)
    opinion = ask(ptx, opengemm.launch(kernel, 1), SECONDS)
    assert opinion.accuses, opinion


@needs_opengemm
@pytest.mark.parametrize("name", faults.REDUNDANT)
def test_both_are_silent_where_nothing_is_lost(name: str) -> None:
    kernel = faults.kernel()
    ptx = faults.REDUNDANT[name](kernel.ptx)
    assert named(ptx) == ""
    opinion = ask(ptx, opengemm.launch(kernel, 1), SECONDS)
    assert opinion.silent, opinion
