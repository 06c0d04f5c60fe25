"""Mutants: correct kernels with one step of their protocol left out or done wrong, run until something is reported.

`python -m tests.emulator.mutants` runs them all and prints docs/emulator_mutants.md; `make mutants` writes it. The
seeded faults of `tests/emulator/faults/` show that each check can fire; mutants show what the checks together miss.
"""
