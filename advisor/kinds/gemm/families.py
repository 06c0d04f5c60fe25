"""The kernel families of GEMM by name. Imports the family modules only.

Each module answers the same five questions: `resources(p, c)`, `fitted(p, c)`, `barriers(p, c)`, `violations(p, c)`,
`kernels(p, c)`, and is the only home of what its kernels cannot do.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate, Family, Resources
from advisor.records.launch import KernelSpec
from advisor.records.rows import BarrierRow, Violation


class FamilyModule(Protocol):
    def resources(self, p: GemmProblem, c: Candidate) -> Resources: ...

    def fitted(self, p: GemmProblem, c: Candidate) -> Candidate: ...

    def barriers(self, p: GemmProblem, c: Candidate) -> list[BarrierRow]: ...

    def violations(self, p: GemmProblem, c: Candidate) -> list[Violation]: ...

    def kernels(self, p: GemmProblem, c: Candidate) -> list[KernelSpec]: ...


def module_of(family: Family) -> FamilyModule:
    """The module of a family; loaded when first asked for, so that a plan loads only what its ladder needs."""
    return cast(FamilyModule, importlib.import_module(f"advisor.kinds.gemm.{family}"))
