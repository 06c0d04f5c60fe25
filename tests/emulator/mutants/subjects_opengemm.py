"""Kernels that the package opengemm emits for B200, as subjects."""

from __future__ import annotations

from functools import partial

import numpy as np

from advisor.emulator import Outcome
from tests.emulator.mutants.subject import ASYNC, CLAIMING, STEP_LIMIT, Kernel, Setting, Subject, few_sms
from tests.emulator.peers.opengemm import data, emitted, launch


def subjects() -> list[Subject]:
    return [
        _subject("a pair, static", (768, 64, 432), 2, output_n=64),
        _subject("a pair that claims", (1280, 64, 432), 2, CLAIMING, output_n=64, use_clc=1),
    ]


def _subject(
    name: str, shape: tuple[int, int, int], sms: int, settings: tuple[Setting, ...] = ASYNC, **config: int
) -> Subject:
    options = {"profile": few_sms(sms), "step_limit": STEP_LIMIT}
    build = partial(_kernel, shape, sms, config)
    return Subject("opengemm", f"opengemm, {name}", build, options, settings, package="opengemm")


def _kernel(shape: tuple[int, int, int], ctas: int, config: dict[str, int]) -> Kernel:
    """The operands are such that sums in fp32 are exact."""
    kernel = emitted("bf16", *shape, use_2cta=1, stages=2, **config)
    inputs, wanted = data(kernel)

    def right(outcome: Outcome) -> bool:
        return bool((outcome.typed("C").astype(np.float64) == wanted).all())

    return Kernel(kernel.ptx, launch(kernel, ctas), right, inputs)
