"""Step 2: cluster shape, tiles, coordinates, grid and raster, in the kind's own words. Imports `context`."""

from __future__ import annotations

from advisor.planner.context import Facts
from advisor.records.plan import Step


def view(f: Facts) -> Step:
    own = f.workload.mapping(f)
    return Step(step=2, name="mapping", decisions=list(own.decisions), artifact=dict(own.artifact))
