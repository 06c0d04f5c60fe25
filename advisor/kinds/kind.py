"""What a kind of work hands to the house, beside the methods of its workload.

Imports `problem`, `records` and `workload`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.kinds.workload import Workload
from advisor.problem import Problem
from advisor.records.work import WorkRecord


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of work. `workload` makes the `Workload` of a problem of the model `problem`."""

    name: str  # `kind:` in a problem file, and the first word of the kind's templates
    problem: type[Problem]
    workload: Callable[[Any], Workload]
    work: type[WorkRecord]  # the kind's own part of a candidate, as data
    templates: Path | None = None  # a folder like the house's, with the kind's own, where they are not among those
    codes: Path | None = None  # of a kind from elsewhere: the pages of its codes, as those of codes.toml
    module: str = ""  # of a kind from elsewhere: where it is KIND, for the processes in which kernels run
