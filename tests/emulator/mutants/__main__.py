"""`python -m tests.emulator.mutants [--group NAME ...] [--sample N --seed S] [--processes 2] [--verdicts FILE]
[--write]`.

Prints the table; with `--write` it goes to docs/emulator_mutants.md, of all groups together. Exit status 1: a survivor
that nothing explains, an explanation that nothing needs, or fewer than 90 % of a group reported. Exit status 2: a
compiler of the kernels is not installed, and the whole is asked for.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.emulator.mutants.kept import Kept
from tests.emulator.mutants.runner import Verdict, everything, run_all, sample
from tests.emulator.mutants.subjects import subjects
from tests.emulator.mutants.survivors import out_of_use, unexplained
from tests.emulator.mutants.table import grouped, reported, table

PAGE = Path(__file__).parents[3] / "docs" / "emulator_mutants.md"
WANTED = 0.9


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.emulator.mutants")
    groups = list(dict.fromkeys(each.group for each in subjects().values()))
    parser.add_argument("--group", action="append", default=[], choices=groups, help="of kernels; may be given again")
    parser.add_argument("--sample", type=int, help="so many mutants, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--verdicts", type=Path, help="kept there, and taken from there where a kernel is what it was")
    parser.add_argument("--write", action="store_true", help=f"to {PAGE.name} instead of standard output")
    given = parser.parse_args()
    whole = given.sample is None and not given.group
    missing = sorted({each.package for each in subjects().values() if not each.available})
    if missing and (whole or given.write):
        parser.error(f"not installed: {', '.join(missing)}")
    if given.write and not whole:
        parser.error("--write is for all mutants of all kernels")
    tasks = everything(given.group) if given.sample is None else sample(given.sample, given.seed, given.group)
    verdicts = _judged(tasks, given.processes, Kept(given.verdicts) if given.verdicts else None)
    page = table(verdicts)
    if given.write:
        PAGE.write_text(page, encoding="utf-8")
    else:
        sys.stdout.write(page)
    bad = [f"nothing explains {' / '.join(each.key)}" for each in unexplained(verdicts)]
    if whole:
        bad += [f"explains nothing: {each.kernels} {each.mutants}" for each in out_of_use(verdicts)]
    if given.sample is None:
        for name, group in grouped(verdicts).items():
            if reported(group) < WANTED:
                bad.append(f"{name}: {100 * reported(group):.1f} % reported, less than {100 * WANTED:.0f} %")
    sys.stderr.write("".join(f"{each}\n" for each in bad))
    return 1 if bad else 0


def _judged(tasks: list[tuple[str, int]], processes: int, kept: Kept | None) -> list[Verdict]:
    """In the order of the tasks."""
    known = {task: found for task in tasks if kept and (found := kept.verdict(task))}
    new = [task for task in tasks if task not in known]
    for number, (task, verdict) in enumerate(zip(new, run_all(new, processes), strict=True), 1):
        known[task] = verdict
        if kept:
            kept.add(verdict)
        sys.stderr.write(f"{number}/{len(new)} {' / '.join(verdict.key)}: {verdict.report or 'nothing'}\n")
    return [known[task] for task in tasks]


if __name__ == "__main__":
    sys.exit(main())
