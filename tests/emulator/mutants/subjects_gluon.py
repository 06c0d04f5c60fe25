"""Kernels that Gluon compiles for Blackwell, as subjects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from advisor.emulator import Outcome
from tests.emulator.compilers import cases_sm100 as cases
from tests.emulator.compilers.harness import Case, Near, compile_case, inputs_of, launch_of
from tests.emulator.mutants.subject import ASYNC, CLAIMING, STEP_LIMIT, Kernel, Setting, Subject, few_sms

_PAIR = ((1, 0),)


def subjects() -> list[Subject]:
    return [
        _subject("a pair that claims", partial(cases.clc_matmul, (256, 64, 64), (3, 2), _PAIR), 2, CLAIMING),
        _subject("requests of a cluster", partial(cases.clc_scaled, 2), 4, CLAIMING),
        _subject("a pair, A from tensor memory", partial(cases.a_from_tensor_memory, "bfloat16", _PAIR, True), 4),
    ]


def _subject(name: str, case: Callable[[], Case], sms: int, settings: tuple[Setting, ...] = ASYNC) -> Subject:
    options = {"profile": few_sms(sms), "step_limit": STEP_LIMIT}
    return Subject("Gluon", f"Gluon, {name}", partial(_kernel, case), options, settings, package="triton")


def _kernel(make: Callable[[], Case]) -> Kernel:
    case = make()
    compiled = compile_case(case)

    def right(outcome: Outcome) -> bool:
        return all(_within(outcome.typed(name), near) for name, near in case.expected.items())

    return Kernel(compiled.ptx, launch_of(case, compiled), right, inputs_of(case))


def _within(found: np.ndarray, near: Near) -> bool:
    return bool((np.abs(found.astype(np.float64) - near.value) <= near.bound).all())
