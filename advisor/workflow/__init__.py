"""Problem to plan to bundle to build to query, planned again if need be, to validation and report.

Each function here is one command. Progress goes to a callback as frozen events; nothing is printed. Every result says
what was done; what was not done is in it with the reason, never left out. Rooms that only some commands need
(codegen, toolchain, runtime, validation) are imported inside the functions that use them, so that `plan` starts fast.

progress.py    what a command tells while it works
files.py       a file that a command leaves
devices.py     what --device asks for, and the GPU at hand
plans.py       plan
bundles.py     generate
evidence.py    validate, report, run
asking.py      simulate, agreement
probing.py     probe
emulating.py   emulate
"""

from advisor.workflow.asking import TUNED_CHOICES, SimulatedFile, agree, simulate_file
from advisor.workflow.bundles import DEFAULT_OUTPUT, REPORT, Generated, Oracle, build, generate
from advisor.workflow.devices import DeviceChoice, at_hand, parse_device
from advisor.workflow.emulating import Emulated, emulate
from advisor.workflow.evidence import (
    VALIDATED_REPORT,
    VALIDATION,
    Ran,
    Validated,
    built_rows,
    report_bundle,
    run,
    validate_bundle,
)
from advisor.workflow.files import write_text
from advisor.workflow.plans import DEFAULT_TARGET, Planned, Targeting, plan_file, plan_with, resolve_target
from advisor.workflow.probing import probe_gpu
from advisor.workflow.progress import Advanced, Event, Finished, Noted, Progress, Stage, Started, silent

__all__ = [
    "DEFAULT_OUTPUT", "DEFAULT_TARGET", "REPORT", "TUNED_CHOICES", "VALIDATED_REPORT", "VALIDATION", "Advanced",
    "DeviceChoice", "Emulated", "Event", "Finished", "Generated", "Noted", "Oracle", "Planned", "Progress", "Ran",
    "SimulatedFile", "Stage", "Started", "Targeting", "Validated", "agree", "at_hand", "build", "built_rows", "emulate",
    "generate", "parse_device", "plan_file", "plan_with", "probe_gpu", "report_bundle", "resolve_target", "run",
    "silent", "simulate_file", "validate_bundle", "write_text",
]  # fmt: skip
