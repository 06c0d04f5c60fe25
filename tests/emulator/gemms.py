"""The project's own GEMM kernels, compiled and launched in the emulator, against the float64 reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.bundle.resolve import Facts, resolve
from advisor.codegen import templates
from advisor.emulator import Outcome, Program, load_program, run
from advisor.kinds.gemm import numerics, portable, sm90, sm100
from advisor.kinds.gemm.interface import arguments, buffers
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.case import Case
from advisor.records.launch import KernelSpec, Launch, ResolvedLaunch, Rung
from advisor.toolchain import Unit, compile_cuda

KERNELS = {"portable": portable.kernels, "sm90": sm90.kernels, "sm100": sm100.kernels}


def problem(m: int, n: int, k: int, dtype: str = "bf16", **changes: Any) -> GemmProblem:
    return GemmProblem.model_validate(
        {"kind": "gemm", "name": "sample", "m": m, "n": n, "k": k, "dtype": dtype} | changes
    )


def portable_candidate(p: GemmProblem, tile: tuple[int, int] = (32, 32), k_bytes: int = 128) -> Candidate:
    tile_k = k_bytes // p.a.element_bytes
    return next(c for c in portable.candidates(p) if c.tile == (*tile, tile_k))


def ptx_of(spec: KernelSpec, target: str) -> str:
    source = templates.render(spec.template, **spec.context)
    unit = Unit(spec.kernel.source, source, templates.headers_for(source), target, spec.kernel.defines)
    return compile_cuda(unit).ptx


def case_of(p: GemmProblem, *, data: str = "normal", seed: int = 1, **changes: float) -> Case:
    values = numerics.arguments(p, p.m, p.n, p.k, p.batch) | {"alpha": p.epilogue.alpha, "beta": p.epilogue.beta}
    return Case("sample", "a test", values | changes, data, seed)  # type: ignore[arg-type]


def resolved(p: GemmProblem, spec: KernelSpec, case: Case, target: str) -> ResolvedLaunch:
    launch = Launch(
        name="sample",
        arguments=arguments(p),
        buffers=buffers(p),
        kernels=[spec.kernel],
        ladder=[Rung(run=spec.kernel.id, when="True")],
    )
    facts = Facts(132, 132, {spec.kernel.id: 132}, frozenset({spec.kernel.id}))
    return resolve(launch, spec.kernel.id, case.arguments, facts, target)


class Gemm:
    """One kernel, compiled once."""

    def __init__(self, p: GemmProblem, candidate: Candidate, target: str) -> None:
        self.problem = p
        self.candidate = candidate
        self.target = target
        (self.spec,) = KERNELS[candidate.family](p, candidate)
        self.program: Program = load_program(ptx_of(self.spec, target), self.spec.kernel.entry)

    def launch(self, case: Case) -> ResolvedLaunch:
        return resolved(self.problem, self.spec, case, self.target)

    def run(
        self, case: Case, inputs: Mapping[str, Any], *, shape: Mapping[str, Any] | None = None, **options: Any
    ) -> Outcome:
        """`shape` replaces fields of the resolved launch."""
        launch = self.launch(case).model_copy(update=shape)
        given = {name: each for name, each in inputs.items() if name in launch.buffers and name != "D"}
        return run(self.program, launch, inputs=given, **options)

    def check(self, case: Case, **options: Any) -> Outcome:
        """Runs the case and holds every element of D against the bound."""
        inputs = numerics.inputs(self.problem, case)
        outcome = self.run(case, inputs, **options)
        wanted = numerics.reference(self.problem, case, inputs)["D"]
        allowed = numerics.bound(self.problem, case, inputs, self.candidate.family)["D"]
        found = outcome.typed("D").astype(np.float64).reshape(wanted.shape)
        inside = ~np.isnan(wanted)
        error = np.abs(found - wanted)[inside]
        if case.data == "integers":
            exact = wanted.astype(outcome.typed("D").dtype).astype(np.float64)  # the sum is exact, its rounding is not
            assert np.array_equal(found[inside], exact[inside])
        assert inside.any()
        assert (error <= allowed[inside]).all(), f"worst excess {np.max(error - allowed[inside])}"
        return outcome
