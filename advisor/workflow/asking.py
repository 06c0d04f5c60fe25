"""Commands that only ask: every schedule of a plan in the simulation; how often the planner picks what tuning picked.

Imports `plans`.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import InputError
from advisor.machine import load_profile
from advisor.workflow.plans import DEFAULT_TARGET, Planned, planned_for, read, targeting_of
from advisor.workflow.progress import Progress, silent

if TYPE_CHECKING:
    from advisor.planner.agreement import Agreement
    from advisor.planner.schedules import Simulated

MAX_TABLE_BYTES = 1 << 24
TUNED_CHOICES = Path(__file__).parent.parent / "data" / "b200_tuned_choices.csv"


@dataclass(frozen=True, slots=True)
class SimulatedFile:
    """Every schedule of the plan's shape; `rows` is empty where the plan has no choice."""

    planned: Planned
    rows: tuple[Simulated, ...]


def simulate_file(
    path: str | Path,
    *,
    target: str | None = None,
    busy_sms: int | None = None,
    tile_cost_cv: float | None = None,
    progress: Progress = silent,
) -> SimulatedFile:
    """Every schedule on a problem; `busy_sms` and `tile_cost_cv` replace what the file says: the what-if of a shared
    GPU and of uneven tiles. Raises ProblemError, ProfileError, InputError."""
    from advisor.planner.schedules import simulate_schedules

    problem = read(path, progress)
    changes: dict[str, object] = {}
    if busy_sms is not None:
        changes["shared_gpu"] = {**problem.shared_gpu.model_dump(), "busy_sms": busy_sms}
    if tile_cost_cv is not None:
        changes["assume"] = {**problem.assume.model_dump(), "tile_cost_cv": tile_cost_cv}
    problem = type(problem).model_validate({**problem.model_dump(), **changes})
    targeting = targeting_of(problem, target, Path(path), progress)
    planned = planned_for(problem, targeting, None, progress)
    if planned.plan.choice is None:
        return SimulatedFile(planned, ())
    found = simulate_schedules(planned.workload, targeting.profile, targeting.rung_profiles)
    return SimulatedFile(planned, tuple(found[1]) if found else ())


def agree(table: Path | None = None, *, target: str = DEFAULT_TARGET, dtypes: Sequence[str] = ()) -> list[Agreement]:
    """How often the planner picks what exhaustive tuning picked, per type; default: the shipped table of a B200.

    Raises InputError for a table that cannot be read, ProfileError.
    """
    from advisor.planner.agreement import agreement

    path = TUNED_CHOICES if table is None else table
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TABLE_BYTES + 1)
        text = content.decode("utf-8-sig")
        if len(content) > MAX_TABLE_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_TABLE_BYTES} bytes")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            "TABLE_UNREADABLE", f"{path}: {reason}", fix="give the path of a table of tuned choices, as CSV"
        ) from error
    shares = agreement(text, load_profile(target), dtypes)
    if not shares:
        raise InputError(
            "AGREEMENT_EMPTY",
            f"no row of the table has a type among {', '.join(dtypes) or 'those that the planner knows'}",
            fix="leave --dtype out to compare every type",
            numbers={"dtypes": list(dtypes)},
        )
    return shares
