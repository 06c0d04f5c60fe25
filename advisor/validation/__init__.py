"""Proves a bundle right, as far as the machine at hand allows: cases, verdicts, time. Imports the rooms below.

run.py         validate(): what runs, in which order, and the Evidence
assemble.py    the kernels: the bundle's, other schedules, traced twins, the alternative
workers.py     child processes with a watchdog; child.py is their end
gpu.py         what runs in a child: one case, one time
checks.py      what is looked at after a launch
gates.py       rendered, compiled, ran, for each (kernel, image)
experiment.py  what interleaved times say
"""

from advisor.validation.run import validate
from advisor.validation.workers import WorkerStopped

__all__ = ["WorkerStopped", "validate"]
