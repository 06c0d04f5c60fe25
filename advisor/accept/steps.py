"""The steps of an acceptance, safe to risky. Each adds one thing to what the steps before it have shown.

Imports `errors`.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.errors import InputError


@dataclass(frozen=True, slots=True)
class Step:
    """`needs` is the step that has to have passed; one that does not apply hands the question on to what it needs."""

    name: str
    title: str
    needs: str | None


STEPS = (
    Step("capability", "what the GPU is, and which images load on it", None),
    Step("occupancy", "how many clusters of each kernel are resident at once", "capability"),
    Step("calibration", "bandwidths, rates and costs of the GPU, with plain kernels", "capability"),
    Step("one_tile", "one tile for each CTA, no clusters", "occupancy"),
    Step("static", "persistent CTAs, no clusters", "one_tile"),
    Step("pairs", "clusters and CTA pairs", "static"),
    Step("clc_one_wave", "Cluster Launch Control with every cluster resident at once", "pairs"),
    Step("clc_many_waves", "Cluster Launch Control with more clusters than are resident", "clc_one_wave"),
    Step("busy_sms", "other work holds SMs meanwhile", "one_tile"),
    Step("graphs", "launches from a CUDA graph", "one_tile"),
    Step("launches", "1,000 launches back to back", "graphs"),
    Step("times", "the problem's own shape, timed", "launches"),
)
BY_NAME = {step.name: step for step in STEPS}


def wanted_steps(text: str | None) -> frozenset[str]:
    """The steps that a list with commas names, and what they need; all of them for None.

    Raises InputError ACCEPT_STEP_UNKNOWN.
    """
    if text is None:
        return frozenset(BY_NAME)
    found: set[str] = set()
    for name in (each.strip() for each in text.split(",")):
        if name not in BY_NAME:
            raise InputError(
                "ACCEPT_STEP_UNKNOWN",
                f"there is no step {name!r}",
                fix=f"use names of {', '.join(BY_NAME)}, with commas between",
                numbers={"step": name},
            )
        step: Step | None = BY_NAME[name]
        while step is not None:
            found.add(step.name)
            step = BY_NAME[step.needs] if step.needs else None
    return frozenset(found)
