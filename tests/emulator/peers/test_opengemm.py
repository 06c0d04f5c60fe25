"""Kernels of another author for B200, unmodified: right, with nothing to report, under every policy.

Two of them get advice that is true of them, and no fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec

import ml_dtypes
import numpy as np
import pytest

from advisor.emulator import Outcome, run
from advisor.emulator.world import cut_profile
from advisor.machine.profile_file import load_profile
from tests.emulator.peers.opengemm import Emitted, data, emitted, launch

needs_opengemm = pytest.mark.skipif(find_spec("opengemm") is None, reason="opengemm is not installed: make env does")
pytestmark = [pytest.mark.slow, needs_opengemm]


@dataclass(frozen=True)
class Problem:
    dtype: str
    shape: tuple[int, int, int]
    config: dict[str, int] = field(default_factory=dict)
    ctas: int = 4  # that a static schedule launches
    advice: tuple[str, ...] = ()  # codes of warnings that are true of it

    def kernel(self) -> Emitted:
        return emitted(self.dtype, *self.shape, **self.config)


PAIR = {"use_2cta": 1}
UNSEEN = ("EMU_TCGEN05_COMMIT_UNSEEN",)  # a pair exits before it has seen the other pair's last commits arrive
CLC = {"use_2cta": 1, "use_clc": 1}
STATIC = {
    "bf16, several tiles a CTA": Problem("bf16", (384, 256, 192)),
    "bf16, two tiles a pair, K tail": Problem("bf16", (512, 256, 144), {**PAIR, "output_n": 256}, 2),
    "bf16, columns that are no multiple of 4": Problem("bf16", (128, 130, 64)),
    "bf16, rows of 64": Problem("bf16", (192, 64, 128), {"block_m": 64, "output_n": 64}),
    "bf16, a pair with rows of 64": Problem("bf16", (256, 64, 128), {**PAIR, "block_m": 64, "output_n": 64}),
    "bf16, two MMA warps": Problem("bf16", (512, 128, 128), {**PAIR, "epi_double": 1, "output_n": 128}),
    "bf16, operands exchanged": Problem("bf16", (16, 256, 128), {"swap_ab": 1, "output_n": 16}),
    "bf16, stored without TMA": Problem("bf16", (256, 128, 128), {**PAIR, "epi_direct": 1}),
    "bf16, A sent to two pairs": Problem(
        "bf16", (256, 512, 128), {**PAIR, "cluster_n": 2, "output_n": 256}, advice=UNSEEN
    ),
    "bf16, B sent to two pairs": Problem(
        "bf16", (512, 256, 128), {**PAIR, "cluster_m": 4, "output_n": 256}, advice=UNSEEN
    ),
    "bf16, K over the cluster": Problem("bf16", (256, 128, 256), {**PAIR, "cluster_k": 2}),
    "f16, split-K": Problem("f16", (256, 128, 512), {**PAIR, "split_k": 2}),
    "f16, split-K of one CTA": Problem("f16", (128, 128, 512), {"split_k": 3}),
    "tf32, a pair": Problem("tf32", (256, 128, 96), PAIR),
    "s8": Problem("s8", (128, 128, 256)),
    "u8, a pair": Problem("u8", (256, 128, 256), PAIR),
    "e4m3": Problem("e4m3", (256, 128, 256)),
    "e5m2, a pair": Problem("e5m2", (256, 256, 256), {**PAIR, "output_n": 256}),
    "e4m3 by e5m2": Problem("e4m3xe5m2", (128, 128, 128)),
    "e3m2": Problem("e3m2", (128, 128, 256)),
    "e2m3, a pair": Problem("e2m3", (256, 128, 256), PAIR),
    "e2m1": Problem("e2m1", (128, 128, 256)),
    "nvfp4": Problem("nvfp4", (256, 256, 512)),
    "nvfp4, a pair": Problem("nvfp4", (256, 256, 512), {**PAIR, "output_n": 256}),
    "nvfp4, stages as deep as they fit": Problem("nvfp4", (256, 128, 1024), {**PAIR, "deep_stages": 1}),
    "mxfp8, a pair": Problem("mxfp8", (256, 256, 256), PAIR),
    "mxfp4, operands exchanged": Problem("mxfp4", (64, 128, 256), {"swap_ab": 1, "output_n": 64}),
}
CLAIMING = {
    "bf16": Problem("bf16", (1536, 256, 64), {**CLC, "output_n": 128}),
    "e5m2": Problem("e5m2", (1024, 256, 128), {**CLC, "output_n": 128}),
    "bf16, one CTA": Problem("bf16", (1536, 256, 64), {"use_clc": 1}),
    "nvfp4": Problem("nvfp4", (1024, 512, 256), {**CLC, "output_n": 256}),
}
FEW_SMS = cut_profile(load_profile("b200"), 2)


def check(problem: Problem, **options: object) -> Outcome:
    kernel = problem.kernel()
    inputs, wanted = data(kernel)
    outcome = run(kernel.ptx, launch(kernel, problem.ctas), inputs=inputs, **options)  # type: ignore[arg-type]
    found = outcome.typed("C").astype(np.float64)
    if kernel.scaled:  # the sums are exact, the result is rounded once
        wanted = wanted.astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(found, wanted)
    assert {each.code for each in outcome.warnings} == set(problem.advice)
    return outcome


def test_there_are_enough_of_every_kind() -> None:
    problems = [*STATIC.values(), *CLAIMING.values()]
    assert len(problems) >= 12
    for kind in ("use_2cta", "use_clc", "split_k", "swap_ab", "deep_stages"):
        assert any(each.config.get(kind) for each in problems)
        assert any(not each.config.get(kind) for each in problems)
    assert {"e4m3", "nvfp4", "mxfp8", "mxfp4"} <= {each.dtype for each in problems}


@pytest.mark.parametrize("policy", ["random", "adversarial"])
@pytest.mark.parametrize("name", STATIC)
def test_a_static_schedule(name: str, policy: str) -> None:
    check(STATIC[name], async_policy=policy, seed=1)


@pytest.mark.parametrize("clc", ["grant", "decline:1", "decline:2", "random", "preempt", "spurious"])
@pytest.mark.parametrize("name", CLAIMING)
def test_cluster_launch_control(name: str, clc: str) -> None:
    policies = ("eager", "lazy", "random", "adversarial")
    policy = policies[(list(CLAIMING).index(name) + len(clc)) % len(policies)]
    outcome = check(CLAIMING[name], clc=clc, async_policy=policy, seed=2, profile=FEW_SMS)
    assert outcome.requests is not None
    assert outcome.requests.declined
    if clc == "grant":
        assert outcome.requests.granted
