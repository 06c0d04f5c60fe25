"""`python -m tests.emulator.mutants [--kernel NAME ...] [--sample N --seed S] [--processes 2] [--write]`.

Prints the table; with `--write` it goes to docs/emulator_mutants.md. Exit status 1: a survivor that nothing explains,
an explanation that nothing needs, or fewer than 90 % reported.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.emulator.mutants.runner import everything, run_all, sample
from tests.emulator.mutants.survivors import out_of_use, unexplained
from tests.emulator.mutants.table import reported, table

PAGE = Path(__file__).parents[3] / "docs" / "emulator_mutants.md"
WANTED = 0.9


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.emulator.mutants")
    parser.add_argument("--kernel", action="append", default=[], help="only this one; may be given again")
    parser.add_argument("--sample", type=int, help="so many mutants, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help=f"to {PAGE.name} instead of standard output")
    given = parser.parse_args()
    tasks = everything(given.kernel) if given.sample is None else sample(given.sample, given.seed)
    verdicts = []
    for number, verdict in enumerate(run_all(tasks, given.processes), 1):
        verdicts.append(verdict)
        sys.stderr.write(f"{number}/{len(tasks)} {' / '.join(verdict.key)}: {verdict.report or 'nothing'}\n")
    page = table(verdicts)
    if given.write:
        PAGE.write_text(page, encoding="utf-8")
    else:
        sys.stdout.write(page)
    bad = [f"nothing explains {' / '.join(each.key)}" for each in unexplained(verdicts)]
    if given.sample is None:
        if not given.kernel:
            bad += [f"explains nothing: {each.kernels} {each.mutants}" for each in out_of_use(verdicts)]
        if reported(verdicts) < WANTED:
            bad.append(f"{100 * reported(verdicts):.1f} % reported, less than {100 * WANTED:.0f} %")
    sys.stderr.write("".join(f"{each}\n" for each in bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
