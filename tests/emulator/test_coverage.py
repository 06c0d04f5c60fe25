"""The table of forms that another compiler's kernels have executed: its lines are executed here, and it is current."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from advisor.emulator import load_program
from tests.emulator import coverage
from tests.emulator.compilers.harness import needs_triton
from tests.emulator.forms import FAMILIES, forms, module


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_form_of_the_table_is_executed(family):
    load_program(module(FAMILIES[family])).translate_all()


def test_no_form_is_named_twice():
    every = [form for family in FAMILIES for form in forms(family)]
    assert len(set(every)) == len(every)


def test_a_form_outside_the_table_is_an_error():
    with pytest.raises(AssertionError, match="not among the forms"):
        coverage.table({"tcgen05.something.new": ["kernel"]})


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_triton
@pytest.mark.skipif(find_spec("opengemm") is None, reason="opengemm exists for Linux only")
def test_the_committed_table_is_current():
    assert coverage.TABLE.read_text() == coverage.table(coverage.collect()), (
        "python -m tests.emulator.coverage --write, and read the difference"
    )
