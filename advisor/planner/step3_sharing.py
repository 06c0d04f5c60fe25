"""Step 3: what goes over DSMEM or multicast, who produces, who consumes, which fences, in the kind's own words.

Imports `context`.
"""

from __future__ import annotations

from advisor.planner.context import Facts
from advisor.records.plan import Step


def view(f: Facts) -> Step:
    own = f.workload.exchange(f)
    return Step(step=3, name="sharing", decisions=list(own.decisions), artifact=dict(own.artifact))
