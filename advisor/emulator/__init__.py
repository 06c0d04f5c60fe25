"""Executes PTX on the CPU and reports what a kernel does wrong.

Imports `machine`, `records` and `errors`; NumPy and ml_dtypes. `toolchain`, `runtime` and this room do not know each
other: whoever has PTX, from any compiler, can run it here.
"""

from advisor.emulator.program import Program, load_program
from advisor.emulator.report import Event, Finding, KernelFault, Place
from advisor.emulator.run import Outcome, run

__all__ = ["Event", "Finding", "KernelFault", "Outcome", "Place", "Program", "load_program", "run"]
