"""`launch: {pdl: true}`: every warp of every CTA waits for the kernel before it, whatever its role; and each warp that
does not is named."""

from __future__ import annotations

import re
from typing import Any

import pytest

from advisor.emulator import KernelFault, Outcome, load_program, run
from advisor.emulator.policy import POLICIES
from advisor.kinds.gemm import numerics, sm90, sm100
from advisor.records.candidate import Candidate
from advisor.validation.emulator import behind_another
from tests.emulator.gemms import KERNELS, case_of, problem, ptx_of, resolved
from tests.emulator.test_sm90 import candidate as sm90_candidate
from tests.emulator.test_sm100 import candidate as sm100_candidate

PDL = {"pdl": True}
FULL = {"beta": 0.5, "bias": "row", "activation": "gelu"}  # every operand of the epilogue
P = problem(200, 136, 160, launch=PDL, epilogue=FULL, scale={"a": "tensor", "b": "tensor"})
PLAIN = problem(200, 136, 160, launch=PDL)
SPLIT = problem(200, 136, 384, launch=PDL, epilogue=FULL)
FORMS: dict[str, tuple[Any, Candidate]] = {
    "Blackwell, pair, CLC, C by a warp of its own": (
        P, sm100_candidate(P, tile=(128, 64), cluster=(2, 1, 1), schedule="clc", mma_ctas=2)),
    "Blackwell, static": (PLAIN, sm100_candidate(PLAIN, tile=(64, 64), schedule="static")),
    "Blackwell, one tile": (P, sm100_candidate(P, tile=(64, 64), schedule="one_tile")),
    "Blackwell, slices in a cluster": (
        P, sm100_candidate(P, tile=(64, 64), cluster=(1, 1, 2), schedule="static", split_k=2)),
    "Blackwell, slices over scratch": (SPLIT, sm100_candidate(SPLIT, (64, 64), (2, 1, 1), "static", 2, split_k=3)),
    "Hopper, tickets": (P, sm90_candidate(P, (128, 64), cluster=(2, 1, 1), schedule="ticket")),
    "Hopper, static": (PLAIN, sm90_candidate(PLAIN, (128, 64), schedule="static")),
    "Hopper, slices over scratch": (SPLIT, sm90_candidate(SPLIT, (64, 64), schedule="static", split_k=3)),
}  # fmt: skip


def run_behind(p: Any, c: Candidate, *, skip: int | None = None, policy: str = "lazy") -> Outcome:
    """The kernels of a candidate behind one that is late and writes all that they touch; warp `skip` does not wait."""
    target = "sm_100a" if c.family == "sm100" else "sm_90a"
    case, inputs = case_of(p), numerics.inputs(p, case_of(p))
    outcome: Outcome | None = None
    for spec in KERNELS[c.family](p, c):
        launch = behind_another(resolved(p, spec, case, target))
        assert set(launch.predecessor_writes) >= set(launch.buffers) > set()
        text = ptx_of(spec, target)
        assert text.count("griddepcontrol.wait;") == 1
        if skip is not None:
            text = without_the_wait_of(text, skip)
        given = {name: each for name, each in inputs.items() if name in launch.buffers and name != "D"}
        program = load_program(text, spec.kernel.entry)
        outcome = run(program, launch, inputs=given, after=outcome, async_policy=policy)
    assert outcome is not None
    return outcome


def without_the_wait_of(ptx: str, warp: int) -> str:
    broken = f"""{{ .reg .pred %pskip; .reg .u32 %rskip; mov.u32 %rskip, %tid.x; shr.u32 %rskip, %rskip, 5;
        setp.ne.u32 %pskip, %rskip, {warp}; @%pskip griddepcontrol.wait; }}"""
    return re.sub(r"griddepcontrol\.wait;", broken, ptx)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", list(FORMS))
def test_behind_a_late_kernel_the_result_is_right(form: str, policy: str) -> None:
    p, c = FORMS[form]
    module = sm100 if c.family == "sm100" else sm90
    assert module.violations(p, c) == []
    outcome = run_behind(p, c, policy=policy)
    assert outcome.warnings == ()
    inputs = numerics.inputs(p, case_of(p))
    wanted = numerics.reference(p, case_of(p), inputs)["D"]
    allowed = numerics.bound(p, case_of(p), inputs, c.family)["D"]
    found = outcome.typed("D").astype(float).reshape(wanted.shape)
    assert (abs(found - wanted) <= allowed).all()


# Who loads (2; on Hopper 0, with 1 for the tickets), loads C (3) and stores. The other warps touch no global memory,
# and meet one that has waited before they leave.
@pytest.mark.parametrize("warp", [2, 3, 4, 5, 6, 7])
def test_each_warp_of_a_blackwell_kernel_that_does_not_wait_is_named(warp: int) -> None:
    named(*FORMS["Blackwell, pair, CLC, C by a warp of its own"], warp)


@pytest.mark.parametrize("warp", [0, 1, *range(4, 12)])
def test_each_warp_of_a_hopper_kernel_that_does_not_wait_is_named(warp: int) -> None:
    named(*FORMS["Hopper, tickets"], warp)


@pytest.mark.parametrize("warp", [0, 7])
def test_a_warp_of_the_second_kernel_that_does_not_wait_for_the_first_is_named(warp: int) -> None:
    named(*FORMS["Blackwell, slices over scratch"], warp)


def named(p: Any, c: Candidate, warp: int) -> None:
    with pytest.raises(KernelFault) as caught:
        run_behind(p, c, skip=warp)
    assert caught.value.code == "EMU_GRID_WAIT"
    assert caught.value.finding.place is not None
    assert caught.value.finding.place.warp == warp
