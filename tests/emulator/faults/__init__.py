"""Seeded faults: for each check kernels that it must name, each one edit away from a kernel that must be silent.

`python -m tests.emulator.faults` prints the table of docs/emulator_faults.md. Imports the emulator.
"""

from __future__ import annotations

from tests.emulator.faults import (
    accesses,
    blackwell,
    clc,
    clusters,
    copies,
    dependent_launch,
    field,
    hopper,
    mbarriers,
    order,
    refusals,
    registers,
    warps,
)
from tests.emulator.faults.model import Fault

AREAS: dict[str, list[Fault]] = {
    "Loads and stores": accesses.FAULTS,
    "Warps and the barriers of a CTA": warps.FAULTS,
    "Order between threads": order.FAULTS,
    "mbarriers": mbarriers.FAULTS,
    "Asynchronous copies": copies.FAULTS,
    "Clusters": clusters.FAULTS,
    "Cluster Launch Control": clc.FAULTS,
    "Tensor memory, tcgen05 and CTA pairs": blackwell.FAULTS,
    "Behind another kernel": dependent_launch.FAULTS,
    "Registers of warpgroups": registers.FAULTS,
    "The project's Hopper kernels": hopper.FAULTS,
    "Incidents from the field": field.FAULTS,
    "What is refused before a kernel runs": refusals.FAULTS,
}
FAULTS = [each for area in AREAS.values() for each in area]
MISTAKES = refusals.MISTAKES
"""What is wrong with the files around a kernel."""
