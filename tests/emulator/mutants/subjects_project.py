"""The project's own GEMM kernels for Hopper and for Blackwell, as subjects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from advisor.emulator import Outcome
from advisor.emulator.world import cut_profile
from advisor.kinds.gemm import numerics, sm90, sm100
from advisor.machine.profile_file import load_profile
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from tests.emulator import test_sm90, test_sm100
from tests.emulator.gemms import case_of, problem, ptx_of, resolved
from tests.emulator.mutants.subject import ASYNC, CLAIMING, STEP_LIMIT, Kernel, Subject, few_sms


def subjects() -> list[Subject]:
    return [*_hopper(), *_blackwell()]


def gemm(p: GemmProblem, c: Candidate, target: str, grid_blocks: tuple[int, int, int] | None = None) -> Kernel:
    """A candidate's kernel, with a launch of its own size or of `grid_blocks`."""
    (spec,) = (sm90 if c.family == "sm90" else sm100).kernels(p, c)
    case = case_of(p, ldd=p.d.ld or p.n, **({"ldc": p.c.ld} if p.uses_c else {}))
    launch = resolved(p, spec, case, target)
    if grid_blocks is not None:
        launch = launch.model_copy(update={"grid_blocks": grid_blocks})
    inputs = numerics.inputs(p, case)

    @cache
    def expected() -> tuple[np.ndarray, np.ndarray]:
        wanted = numerics.reference(p, case, inputs)["D"]
        return wanted, numerics.bound(p, case, inputs, c.family)["D"]

    def right(outcome: Outcome) -> bool:
        wanted, allowed = expected()
        found = outcome.typed("D").astype(np.float64).reshape(wanted.shape)
        inside = ~np.isnan(wanted)
        return bool((np.abs(found - wanted)[inside] <= allowed[inside]).all())

    given = {each: values for each, values in inputs.items() if each in launch.buffers and each != "D"}
    return Kernel(ptx_of(spec, target), launch, right, given)


def ragged(m: int, n: int, k: int) -> GemmProblem:
    """D has chunks that TMA stores and chunks that threads store: its rows are padded to 16 bytes, n is not."""
    return problem(m, n, k, d={"dtype": "bf16", "ld": -(-n // 8) * 8})


def ragged_sum(m: int, n: int, k: int, dtype: str = "bf16") -> GemmProblem:
    """The same, with C of the same shape and type."""
    of_both = {"dtype": dtype, "ld": -(-n // 8) * 8}
    return problem(m, n, k, c=of_both, d=of_both, epilogue={"beta": 0.5})


# --- Hopper -----------------------------------------------------------------------------------------------------------


def _hopper() -> list[Subject]:
    device = cut_profile(load_profile("h200"), 4)

    def subject(
        name: str, p: GemmProblem, *, grid_blocks: tuple[int, int, int] | None = None, **changes: Any
    ) -> Subject:
        build = partial(gemm, p, test_sm90.candidate(p, **changes), "sm_90a", grid_blocks)
        return Subject("sm90", f"sm90, {name}", build, {"profile": device, "step_limit": STEP_LIMIT})

    return [
        subject("one tile, D from registers", problem(72, 60, 328, d={"dtype": "fp32"})),
        subject(
            "static, multicast along M", ragged(512, 116, 200), cluster=(2, 1, 1), schedule="static",
            grid_blocks=(4, 1, 1),
        ),
        subject(
            "static, multicast along N", ragged(192, 244, 200), cluster=(1, 2, 1), schedule="static",
            grid_blocks=(2, 2, 1),
        ),
        subject("tickets", ragged(512, 116, 136), cluster=(2, 1, 1), schedule="ticket", grid_blocks=(4, 1, 1)),
        subject(
            "slices over DSMEM", ragged(256, 76, 1040), cluster=(1, 1, 4), split_k=4, schedule="static",
            grid_blocks=(1, 1, 4),
        ),
    ]  # fmt: skip


# --- Blackwell --------------------------------------------------------------------------------------------------------


def _blackwell() -> list[Subject]:
    def subject(
        name: str,
        p: GemmProblem,
        *,
        sms: int,
        grid_blocks: tuple[int, int, int] | None = None,
        **changes: Any,
    ) -> Subject:
        build = partial(gemm, p, test_sm100.candidate(p, **changes), "sm_100a", grid_blocks)
        options: Mapping[str, Any] = {"profile": few_sms(sms), "step_limit": STEP_LIMIT}
        asks = changes.get("schedule") == "clc"
        return Subject("sm100", f"sm100, {name}", build, options, CLAIMING if asks else ASYNC)

    return [
        subject(
            "one tile, two pairs, C added", ragged_sum(120, 498, 328, "fp32"), tile=(64, 256), sms=4,
            cluster=(2, 2, 1), mma_ctas=2,
        ),
        subject(
            "a pair that claims, C added", ragged_sum(840, 60, 136), tile=(64, 64), sms=2, schedule="clc",
            cluster=(2, 1, 1), mma_ctas=2,
        ),
        subject(
            "two pairs that claim, A multicast, C added", ragged_sum(840, 60, 136), tile=(64, 32), sms=4,
            schedule="clc", cluster=(2, 2, 1), mma_ctas=2,
        ),
        subject(
            "single CTAs that claim, B multicast, C added", ragged_sum(420, 70, 136), tile=(64, 64), sms=2,
            schedule="clc", cluster=(2, 1, 1),
        ),
        subject(
            "static, B multicast, C added", ragged_sum(640, 70, 200), tile=(64, 64), sms=2, schedule="static",
            cluster=(2, 1, 1), grid_blocks=(2, 1, 1),
        ),
    ]  # fmt: skip
