"""The store of measurements: SQLite, one row for each contestant of each run. Imports `results`, `records`, `errors`.

A row knows the problem, the chip, the driver, the kernels by hash, and what came of it; a crash is a row too. `known`
gives the times that a plan may use: of this problem, on this chip under this driver, correct, and of kernels that are
still what they were: whoever asks says what a candidate's kernels hash to now.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.bench.results import OWN_ROLES, BenchRun, CandidateRecord, Contestant, ProblemResult
from advisor.errors import InputError, OutputError
from advisor.records.candidate import Candidate
from advisor.records.evidence import Chip

SCHEMA_VERSION = 1
TWIN = "twin"  # the same kernel once more: nothing a plan could choose
_NOT_THE_WORK = ("name", "target", "overrides", "assume")  # keys of a problem that change no kernel's time
_SCHEMA = """
CREATE TABLE IF NOT EXISTS measurement (
    id INTEGER PRIMARY KEY,
    date TEXT NOT NULL,              -- ISO 8601, UTC
    suite TEXT NOT NULL,
    problem_sha256 TEXT NOT NULL,    -- of what changes a kernel's time
    problem TEXT NOT NULL,           -- JSON
    chip TEXT NOT NULL,
    uuid_hash TEXT NOT NULL,
    driver TEXT NOT NULL,
    role TEXT NOT NULL,
    label TEXT NOT NULL,
    candidate TEXT,                  -- JSON; NULL for a baseline
    bundle_sha256 TEXT,              -- over the hashes of the kernels of a launch
    verdict TEXT NOT NULL,
    detail TEXT NOT NULL,
    median_us REAL,
    low_us REAL,
    high_us REAL,
    samples INTEGER NOT NULL,
    predicted_us REAL,
    sm_mhz REAL,
    watts REAL
);
CREATE INDEX IF NOT EXISTS by_problem ON measurement (problem_sha256, chip, driver);
"""
_COLUMNS = (
    *("date", "suite", "problem_sha256", "problem", "chip", "uuid_hash", "driver", "role", "label", "candidate"),
    *("bundle_sha256", "verdict", "detail", "median_us", "low_us", "high_us", "samples", "predicted_us", "sm_mhz"),
    "watts",
)


@dataclass(frozen=True, slots=True)
class Known:
    """One measured time that may stand over a prediction."""

    candidate: Candidate
    time_us: float
    bundle_sha256: str
    date: str


def default_path(environment: Mapping[str, str] = os.environ) -> Path | None:
    """`$ADVISOR_STORE`, else a file in the user's data folder; None where there is no home to hold one."""
    if chosen := environment.get("ADVISOR_STORE"):
        return Path(chosen)
    if xdg := environment.get("XDG_DATA_HOME"):
        return Path(xdg) / "cluster-advisor" / "measurements.sqlite"
    if home := environment.get("HOME"):
        return Path(home) / ".local" / "share" / "cluster-advisor" / "measurements.sqlite"
    return None


def problem_key(document: Mapping[str, Any]) -> str:
    """What names a problem in the store: everything in it that a kernel's time depends on."""
    work = {key: value for key, value in document.items() if key not in _NOT_THE_WORK}
    return hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()


class Store:
    """The file. Nothing is created before the first `add`; a missing file knows nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, run: BenchRun) -> int:
        """Every contestant of the run, in one transaction. Returns how many. Raises OutputError, InputError."""
        rows = [_row(run, result, contestant) for result in run.problems for contestant in result.contestants]
        with self._open(create=True) as database:
            marks = ", ".join("?" * len(_COLUMNS))
            database.executemany(f"INSERT INTO measurement ({', '.join(_COLUMNS)}) VALUES ({marks})", rows)
        return len(rows)

    def known(
        self, document: Mapping[str, Any], chip: Chip, bundle_sha256_of: Callable[[Candidate], str | None]
    ) -> list[Known]:
        """The newest correct time of every candidate of this problem whose kernels are those of today.

        Raises InputError STORE_UNREADABLE.
        """
        if not self.path.exists():
            return []
        wanted = (problem_key(document), chip.name, chip.driver, *(role for role in OWN_ROLES if role != TWIN))
        with self._open(create=False) as database:
            rows = database.execute(
                "SELECT candidate, median_us, bundle_sha256, date, verdict FROM measurement WHERE problem_sha256 = ? "
                "AND chip = ? AND driver = ? AND role IN (?, ?) AND candidate IS NOT NULL ORDER BY date, id",
                wanted,
            ).fetchall()
        newest: dict[Candidate, Known] = {}
        for text, median_us, digest, date, verdict in rows:
            candidate = CandidateRecord.read(document["kind"], json.loads(text)).candidate()
            newest.pop(candidate, None)
            if verdict == "correct" and median_us is not None and digest:
                newest[candidate] = Known(candidate, median_us, digest, date)
        return [each for each in newest.values() if bundle_sha256_of(each.candidate) == each.bundle_sha256]

    @contextmanager
    def _open(self, *, create: bool) -> Iterator[sqlite3.Connection]:
        try:
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self.path, timeout=30.0)
        except (OSError, sqlite3.Error) as error:
            raise self._unwritable(error) if create else self._unreadable(error) from error
        try:
            with database:  # one transaction
                if create:
                    database.executescript(_SCHEMA)
                    if database.execute("PRAGMA user_version").fetchone()[0] == 0:
                        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                version = database.execute("PRAGMA user_version").fetchone()[0]
                if version != SCHEMA_VERSION:
                    raise self._unreadable(f"its schema is version {version}, this tool's {SCHEMA_VERSION}")
                yield database
        except sqlite3.Error as error:
            readonly = create and isinstance(error, sqlite3.OperationalError)
            raise self._unwritable(error) if readonly else self._unreadable(error) from error
        finally:
            database.close()

    def _unreadable(self, why: object) -> InputError:
        return InputError(
            "STORE_UNREADABLE",
            f"{self.path} is no store of measurements of this version: {why}",
            fix="move it away, or name another file with --store or ADVISOR_STORE",
            numbers={"path": str(self.path)},
        )

    def _unwritable(self, why: object) -> OutputError:
        return OutputError(
            "STORE_NOT_WRITABLE",
            f"{self.path} cannot be written: {why}",
            fix="name another file with --store or ADVISOR_STORE",
            numbers={"path": str(self.path)},
        )


def _row(run: BenchRun, result: ProblemResult, each: Contestant) -> tuple[Any, ...]:
    samples = each.samples_us
    return (
        run.date,
        run.suite,
        problem_key(result.problem),
        json.dumps(result.problem, sort_keys=True),
        run.chip.name,
        run.chip.uuid_hash,
        run.chip.driver,
        each.role,
        each.label,
        each.candidate.model_dump_json() if each.candidate else None,
        each.kernels_sha256,
        each.verdict,
        each.detail,
        each.median_us,
        min(samples) if samples else None,
        max(samples) if samples else None,
        len(samples),
        each.predicted_us,
        each.state.sm_mhz,
        each.state.watts,
    )
