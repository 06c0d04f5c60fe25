"""Registers of wgmma operations in flight: what may touch them when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from advisor.emulator.report import KernelFault, Reporter, Who
from advisor.emulator.wgmma_registers import WgmmaRegisters

D, A, OTHER = range(4), range(10, 14), range(20, 24)


@pytest.fixture
def warp() -> WgmmaRegisters:
    made = WgmmaRegisters(Reporter(), Who(0, 0, 1))
    made.fence()
    return made


def fault(code: str, action: Callable[[], object]) -> None:
    with pytest.raises(KernelFault) as caught:
        action()
    assert caught.value.code == code


def test_an_accumulator_is_free_after_its_wait(warp: WgmmaRegisters) -> None:
    warp.issue(D, A, "m64n8k16", 1)
    warp.commit()
    warp.wait(0)
    warp.touch(D, 5, write=False)
    assert not warp.in_flight()


@pytest.mark.parametrize("waits", [0, 1])
@pytest.mark.parametrize("write", [True, False])
def test_not_before(warp: WgmmaRegisters, waits: int, write: bool) -> None:
    warp.issue(D, A, "m64n8k16", 1)
    if waits:
        warp.commit()
        warp.wait(1)
    fault("EMU_WGMMA_REGISTER", lambda: warp.touch(D, 5, write=write))


def test_what_is_not_committed_is_not_waited_for(warp: WgmmaRegisters) -> None:
    warp.issue(D, [], "m64n8k16", 1)
    warp.wait(0)
    fault("EMU_WGMMA_REGISTER", lambda: warp.touch(D, 5, write=False))


def test_the_earlier_of_two_groups_is_free_first(warp: WgmmaRegisters) -> None:
    warp.issue(D, [], "m64n8k16", 1)
    warp.commit()
    warp.issue(OTHER, [], "m64n8k16", 2)
    warp.commit()
    warp.wait(1)
    warp.touch(D, 5, write=False)
    fault("EMU_WGMMA_REGISTER", lambda: warp.touch(OTHER, 6, write=False))


def test_a_operands_may_be_read_but_not_written(warp: WgmmaRegisters) -> None:
    warp.issue(D, A, "m64n8k16", 1)
    warp.touch(A, 5, write=False)
    fault("EMU_WGMMA_REGISTER", lambda: warp.touch(A, 6, write=True))


def test_accumulators_of_one_shape_chain(warp: WgmmaRegisters) -> None:
    for pc in range(4):
        warp.issue(D, [], "m64n8k16", pc)
    fault("EMU_WGMMA_REGISTER", lambda: warp.issue(D, [], "m64n8k8", 9))


def test_an_accumulator_is_no_a_operand_of_the_next(warp: WgmmaRegisters) -> None:
    warp.issue(D, [], "m64n8k16", 1)
    fault("EMU_WGMMA_REGISTER", lambda: warp.issue(OTHER, D, "m64n8k16", 2))


def test_the_first_needs_a_fence() -> None:
    bare = WgmmaRegisters(Reporter(), Who(0, 0, 1))
    fault("EMU_WGMMA_FENCE", lambda: bare.issue(D, [], "m64n8k16", 1))
    bare.fence()
    bare.issue(D, [], "m64n8k16", 1)


@pytest.mark.parametrize("registers", [D, A])
def test_a_register_that_was_written_needs_a_fence(warp: WgmmaRegisters, registers: range) -> None:
    warp.touch(registers, 1, write=True)
    fault("EMU_WGMMA_FENCE", lambda: warp.issue(D, A, "m64n8k16", 2))
    warp.fence()
    warp.issue(D, A, "m64n8k16", 2)
