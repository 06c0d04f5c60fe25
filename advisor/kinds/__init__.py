"""Kinds of work behind one protocol, `Workload`, and where a kind comes from. Imports `simulation` and below.

A kind of the house is a name in `problem/registry.py`: this room finds KIND of `advisor/kinds/<name>/`. A kind from
elsewhere is handed to `register`. docs/adding_a_kind.md has what a kind brings.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from advisor.errors import add_pages, remove_pages
from advisor.kinds.kind import Kind
from advisor.kinds.workload import Workload
from advisor.problem import Problem, registry
from advisor.records.work import found_by

__all__ = [
    "Kind",
    "Workload",
    "forget",
    "kind_of",
    "modules",
    "register",
    "register_from",
    "template_folders",
    "workload",
]

_registered: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Makes a kind known to every room. Raises TypeError for what is no Kind, ValueError for a name that is taken and
    FileNotFoundError for templates or codes that are not there; then nothing has changed."""
    if not isinstance(kind, Kind):
        raise TypeError(f"a Kind is registered, and this is {type(kind).__name__}")
    for place in (kind.templates, kind.codes):
        if place is not None and not place.exists():
            raise FileNotFoundError(f"the kind {kind.name} says that {place} is there, and it is not")
    if kind.name in _registered:
        raise ValueError(f"the kind {kind.name} is there already")
    registry.add(kind.name, kind.problem)
    _registered[kind.name] = kind
    if kind.codes is not None:
        add_pages(kind.codes)


def forget(name: str) -> None:
    """Takes a kind back that was registered."""
    registry.remove(name)
    kind = _registered.pop(name, None)
    if kind is not None and kind.codes is not None:
        remove_pages(kind.codes)


def kind_of(name: str) -> Kind:
    """The kind of that name. Raises KeyError for one that is not known."""
    if name not in registry.HOUSE:
        return _registered[name]
    found: Kind = import_module(f"advisor.kinds.{name}").KIND
    return found


def modules() -> tuple[str, ...]:
    """Of the kinds that were registered: what a child process imports to know them too."""
    return tuple(each.module for each in _registered.values() if each.module)


def register_from(module: str) -> None:
    """Registers KIND of a module."""
    register(import_module(module).KIND)


def template_folders() -> tuple[Path, ...]:
    """Of the kinds that were registered."""
    return tuple(each.templates for each in _registered.values() if each.templates is not None)


def workload(problem: Problem) -> Workload:
    """The workload of a resolved problem."""
    return kind_of(problem.kind).workload(problem)


found_by(lambda name: kind_of(name).work)
