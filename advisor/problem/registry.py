"""The kinds of problem that are known, by name. Imports `base`, and a kind's model when it is asked for.

A kind of the house is a name in HOUSE: its model is PROBLEM of `advisor/problem/<name>.py`, its planning KIND of
`advisor/kinds/<name>/`. A kind from elsewhere is added by `advisor.kinds.register`, which calls `add` here.
"""

from __future__ import annotations

from importlib import import_module

from advisor.problem.base import Problem

HOUSE = ("gemm", "row_reduce")  # the first is the example of messages
_added: dict[str, type[Problem]] = {}


def kinds() -> tuple[str, ...]:
    """Every known kind, those of the house first."""
    return (*HOUSE, *_added)


def model_of(kind: str) -> type[Problem]:
    """The model of a known kind. Raises KeyError for another name."""
    if kind not in HOUSE:
        return _added[kind]
    model: type[Problem] = import_module(f"advisor.problem.{kind}").PROBLEM
    return model


def add(kind: str, model: type[Problem]) -> None:
    """Raises ValueError for a name that is taken."""
    if _added.get(kind, model) is not model or kind in HOUSE:
        raise ValueError(f"the kind {kind} is there already")
    _added[kind] = model


def remove(kind: str) -> None:
    """Forgets a kind that was added."""
    _added.pop(kind, None)
