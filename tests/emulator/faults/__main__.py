"""Prints docs/emulator_faults.md: `python -m tests.emulator.faults > docs/emulator_faults.md`."""

from __future__ import annotations

import sys

from tests.emulator.faults.table import table

if __name__ == "__main__":
    sys.stdout.write(table())
