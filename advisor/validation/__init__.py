"""Proves a bundle right, as far as the machine at hand allows: cases, verdicts, time. Imports the rooms below.

run.py          validate(): what runs where, and the Evidence
driver.py       what every way of running shares: cases of a row, results, equal bits
on_gpu.py       every rung on a GPU;          gpu.py is what runs in its child
on_emulator.py  every rung in the emulator;   emulator.py is what runs in its children
assemble.py     the kernels for a GPU: the bundle's, other schedules, traced twins, the alternative
lanes.py        the PTX for the emulator
manners.py      async policies, CLC policies and seeds, dealt out over the cases
workers.py      child processes with a watchdog, one after another or side by side; child.py is their end
checks.py       what is looked at after a launch
plan_counts.py  tables of the plan against what a kernel did; counted.py the figures for the report
kept.py         cases as files that run again
gates.py        rendered, compiled, emulated, ran, for each (kernel, image)
merge.py        evidence of several runs as one
experiment.py   what interleaved times say
"""

from advisor.validation.merge import merged
from advisor.validation.on_emulator import Emulation
from advisor.validation.run import evidence_of_build, validate
from advisor.validation.workers import WorkerStopped

__all__ = ["Emulation", "WorkerStopped", "evidence_of_build", "merged", "validate"]
