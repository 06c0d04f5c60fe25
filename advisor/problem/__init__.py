"""The problem file: models, loader with line numbers, JSON schema. Imports only `errors`."""

from advisor.problem.gemm import GemmProblem
from advisor.problem.loader import Document, Problem, load_problem, parse_problem, place_of, read_document
from advisor.problem.row_reduce import RowReduceProblem
from advisor.problem.schema import problem_schema

__all__ = [
    "Document",
    "GemmProblem",
    "Problem",
    "RowReduceProblem",
    "load_problem",
    "parse_problem",
    "place_of",
    "problem_schema",
    "read_document",
]
