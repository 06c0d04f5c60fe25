"""`advisor accept`: a bundle on the first GPU of its kind, from the safe steps to the risky ones.

steps.py     the steps, in order, and what each needs
backend.py   what runs in the child that has the GPU
drive.py     one step after another, each in a process of its own with a watchdog
command.py   the command: reads the bundle, writes the result, the profile and runtime.json
report.py    what the result says of a bundle, for `advisor report --accepted`
"""

from advisor.accept.command import Accepted, accept_bundle
from advisor.accept.report import report_accepted

__all__ = ["Accepted", "accept_bundle", "report_accepted"]
