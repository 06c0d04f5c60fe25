"""The kind's own part of a candidate as data: in plan.json, in the results of benchmarks. Imports `candidate`.

This room knows no kind. The room of kinds says, by `found_by`, how the record of one is found; whoever reads a plan or
a result imports it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import ConfigDict

from advisor.records.base import Record
from advisor.records.candidate import Candidate, Work


class WorkRecord(Record):
    """A `Work` as data, in the kind's own fields."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})  # of this class: any kind's

    @classmethod
    @abstractmethod
    def of(cls, work: Any) -> Self:
        """The record of the kind's own `Work`."""

    @abstractmethod
    def work(self) -> Work: ...

    @property
    @abstractmethod
    def extents(self) -> str:
        """What the three numbers of a tile are, in words."""

    def words(self) -> list[str]:
        """What is particular about the choice, for a report."""
        return []

    def label(self, c: Candidate) -> list[str]:
        """What tells candidates of one problem apart, beside family, schedule, tile, cluster and stages."""
        return []

    @classmethod
    def earlier(cls, data: Mapping[str, Any]) -> Self:
        """Of a benchmark's candidate as version 0.1 wrote it, with the kind's fields beside the others."""
        raise ValueError("the candidate has no work")


_find: list[Callable[[str], type[WorkRecord]]] = []


def found_by(find: Callable[[str], type[WorkRecord]]) -> None:
    """How a kind's record is found by the kind's name. `find` raises KeyError for one that is not known."""
    _find[:] = [find]


def record_type(kind: object) -> type[WorkRecord]:
    """Raises ValueError for a kind that is not known, and where nobody said how to find one."""
    if not _find or not isinstance(kind, str):
        raise ValueError(f"no kind {kind!r} can be found")
    try:
        return _find[0](kind)
    except KeyError:
        raise ValueError(f"the kind {kind!r} is not known") from None


def with_work(kind: object, data: Any) -> Any:
    """`data` with every `work` in it that is a mapping as the record of the kind."""
    if isinstance(data, list):
        return [with_work(kind, each) for each in data]
    if not isinstance(data, dict):
        return data
    found = {key: with_work(kind, value) if key == "choice" else value for key, value in data.items()}
    if isinstance(found.get("work"), dict):
        found["work"] = record_type(kind).model_validate(found["work"])
    return found
