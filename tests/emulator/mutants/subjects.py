"""The correct kernels that are mutated: small launches that use every stage, every CTA and every path of the protocol.

A subject is compiled when its text is first asked for. `right` holds the outcome against the case's expected values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from advisor.emulator import Outcome, load_program, run
from advisor.emulator.world import cut_profile
from advisor.kinds.gemm import numerics, sm90
from advisor.machine.profile_file import load_profile
from advisor.problem.gemm import GemmProblem
from advisor.records.launch import ResolvedLaunch
from tests.emulator.gemms import case_of, problem, ptx_of, resolved
from tests.emulator.mutants.edits import Mutant, mutants
from tests.emulator.test_sm90 import candidate

Setting = Mapping[str, Any]
ASYNC: tuple[Setting, ...] = tuple(
    {"async_policy": policy, "seed": seed}
    for policy, seed in (
        ("adversarial", 0), ("random", 0), ("lazy", 0), ("eager", 0), ("random", 1), ("adversarial", 1), ("random", 2),
    )
)  # fmt: skip
"""In the order in which they are tried; the first report ends the search."""


@dataclass(frozen=True, eq=False)
class Subject:
    """`text` makes the PTX; `right` says whether an outcome has the expected values."""

    name: str
    text: Callable[[], str]
    launch: ResolvedLaunch
    right: Callable[[Outcome], bool]
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[Setting, ...] = ASYNC

    @cached_property
    def ptx(self) -> str:
        return self.text()

    @cached_property
    def mutants(self) -> list[Mutant]:
        return mutants(self.ptx)

    def run(self, ptx: str, setting: Setting) -> Outcome:
        program = load_program(ptx, self.launch.entry)
        return run(program, self.launch, inputs=self.inputs, **{**self.options, **setting})


# --- the project's Hopper kernels -------------------------------------------------------------------------------------


def hopper(
    name: str,
    p: GemmProblem,
    *,
    grid_blocks: tuple[int, int, int] | None = None,
    **changes: Any,
) -> Subject:
    chosen = candidate(p, **changes)
    (spec,) = sm90.kernels(p, chosen)
    case = case_of(p, ldd=p.d.ld or p.n)
    launch = resolved(p, spec, case, "sm_90a")
    if grid_blocks is not None:
        launch = launch.model_copy(update={"grid_blocks": grid_blocks})
    inputs = numerics.inputs(p, case)

    @cache
    def expected() -> tuple[np.ndarray, np.ndarray]:
        wanted = numerics.reference(p, case, inputs)["D"]
        return wanted, numerics.bound(p, case, inputs, "sm90")["D"]

    def right(outcome: Outcome) -> bool:
        wanted, allowed = expected()
        found = outcome.typed("D").astype(np.float64).reshape(wanted.shape)
        inside = ~np.isnan(wanted)
        return bool((np.abs(found - wanted)[inside] <= allowed[inside]).all())

    return Subject(
        name,
        lambda: ptx_of(spec, "sm_90a"),
        launch,
        right,
        {each: values for each, values in inputs.items() if each in launch.buffers and each != "D"},
        {"profile": cut_profile(load_profile("h200"), 4), "step_limit": 100_000},
    )


def ragged(m: int, n: int, k: int) -> GemmProblem:
    """D has chunks that TMA stores and chunks that threads store: its rows are padded to 16 bytes, n is not."""
    return problem(m, n, k, d={"dtype": "bf16", "ld": -(-n // 8) * 8})


@cache
def subjects() -> dict[str, Subject]:
    found = [
        hopper("sm90, one tile, D from registers", problem(72, 60, 328, d={"dtype": "fp32"})),
        hopper(
            "sm90, static, multicast along M", ragged(512, 116, 200), cluster=(2, 1, 1), schedule="static",
            grid_blocks=(4, 1, 1),
        ),
        hopper(
            "sm90, static, multicast along N", ragged(192, 244, 200), cluster=(1, 2, 1), schedule="static",
            grid_blocks=(2, 2, 1),
        ),
        hopper(
            "sm90, tickets", ragged(512, 116, 136), cluster=(2, 1, 1), schedule="ticket", grid_blocks=(4, 1, 1)
        ),
        hopper(
            "sm90, slices over DSMEM", ragged(256, 76, 1040), cluster=(1, 1, 4), split_k=4, schedule="static",
            grid_blocks=(1, 1, 4),
        ),
    ]  # fmt: skip
    return {each.name: each for each in found}
