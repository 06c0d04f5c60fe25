"""Kinds of work behind one protocol, `Workload`. Imports `simulation` and below."""

from __future__ import annotations

from advisor.kinds.gemm import Gemm
from advisor.kinds.workload import Workload
from advisor.problem.gemm import GemmProblem

__all__ = ["Workload", "workload"]


def workload(problem: GemmProblem) -> Workload:
    """The workload of a resolved problem."""
    return Gemm(problem)
