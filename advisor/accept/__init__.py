"""`advisor accept`: a bundle on the first GPU of its kind, from the safe steps to the risky ones.

steps.py     the steps, in order, and what each needs
backend.py   what runs in the child that has the GPU
drive.py     one step after another, each in a process of its own with a watchdog
command.py   the command: reads the bundle, writes the result, the profile and runtime.json
"""

from advisor.accept.command import Accepted, accept_bundle

__all__ = ["Accepted", "accept_bundle"]
