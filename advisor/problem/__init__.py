"""The problem file: models, loader with line numbers, JSON schema. Imports only `errors`.

`base.py` has what the models of all kinds share, `<kind>.py` the model of one, `registry.py` finds it by its name.
"""

from advisor.problem.base import Problem
from advisor.problem.loader import Document, load_problem, parse_problem, place_of, read_document, resolved
from advisor.problem.schema import problem_schema

__all__ = [
    "Document",
    "Problem",
    "load_problem",
    "parse_problem",
    "place_of",
    "problem_schema",
    "read_document",
    "resolved",
]
