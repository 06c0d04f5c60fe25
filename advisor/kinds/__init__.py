"""Kinds of work behind one protocol, `Workload`. Imports `simulation` and below."""

from __future__ import annotations

from advisor.kinds.gemm import Gemm
from advisor.kinds.row_reduce import RowReduce
from advisor.kinds.workload import Workload
from advisor.problem import Problem, RowReduceProblem

__all__ = ["Workload", "workload"]


def workload(problem: Problem) -> Workload:
    """The workload of a resolved problem."""
    return RowReduce(problem) if isinstance(problem, RowReduceProblem) else Gemm(problem)
