"""Poison: a NaN of each type that nothing computes, the same bytes by NumPy and by torch."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.kinds.storage import INPUT_POISON, OUTPUT_POISON, numpy_type, poisoned, poisoned_on


@pytest.mark.parametrize("name", INPUT_POISON)
def test_poison_is_not_a_number(name: str) -> None:
    found = poisoned(name, 5, output=False)
    assert found.dtype == numpy_type(name)
    assert np.isnan(found.astype(np.float64)).all()


@pytest.mark.parametrize("name", OUTPUT_POISON)
def test_poison_of_outputs_is_told_from_that_of_inputs(name: str) -> None:
    found, other = poisoned(name, 5, output=True), poisoned(name, 5, output=False)
    assert np.isnan(found.astype(np.float64)).all()
    assert found.tobytes() != other.tobytes()


@pytest.mark.parametrize(
    ("name", "output"), [*((each, False) for each in INPUT_POISON), *((each, True) for each in OUTPUT_POISON)]
)
def test_torch_makes_the_same_bytes(name: str, output: bool) -> None:
    torch = pytest.importorskip("torch")
    found = poisoned_on("cpu", name, 5, torch, output=output)
    assert str(found.dtype) == f"torch.{name}"
    assert found.view(torch.uint8).numpy().tobytes() == poisoned(name, 5, output=output).tobytes()
