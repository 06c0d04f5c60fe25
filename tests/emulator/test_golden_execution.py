"""The single-instruction kernels in the executor: loads, the instruction, stores give what the functions give alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from advisor.emulator.run import run
from tests.emulator.golden.cases import Case, all_cases
from tests.emulator.golden.make import resolved

MATRIX = ("mma.", "ldmatrix.", "stmatrix.", "movmatrix.")
MEMORY = ("ld.", "st.", "atom.", "red.", "cp.", "mbarrier", "bar")


def check(cases: Sequence[Case], policy: str = "random") -> None:
    for case in cases:
        inputs = {name: array.reshape(-1).view(np.uint8) for name, array in case.inputs.items()}
        outcome = run(case.ptx, resolved(case), inputs=inputs, numerics="model", async_policy=policy)
        assert outcome.warnings == (), case.name
        for name, wanted in case.expected().items():
            got = np.asarray(outcome.buffers[name]).view(wanted.dtype).reshape(wanted.shape)
            np.testing.assert_array_equal(got, wanted, err_msg=f"{case.name} {name}")


def test_scalar_and_warp_instructions() -> None:
    cases = [each for each in all_cases() if not each.name.startswith((*MATRIX, *MEMORY, "wgmma/"))]
    assert len(cases) >= 600
    check(cases)


@pytest.mark.parametrize("family", MEMORY)
def test_instructions_on_memory(family: str) -> None:
    """What lands later does so as late and as badly ordered as the rules allow; nothing is reported."""
    cases = [each for each in all_cases() if each.name.startswith(family)]
    assert len(cases) >= 30
    check(cases, "adversarial")


def test_matrix_instructions_of_one_warp() -> None:
    cases = [each for each in all_cases() if each.name.startswith(MATRIX)]
    assert len(cases) >= 35
    check(cases)


def test_matrix_instructions_of_a_warpgroup() -> None:
    cases = [each for each in all_cases() if each.name.startswith("wgmma/")]
    assert len(cases) >= 40
    check(cases)
