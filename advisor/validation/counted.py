"""What evidence gives to the plan's table of counts: figures of a run in the emulator, and instructions of a PTX file.

The names are the keys of `kinds/gemm/counts.py`. Each figure is per K step, per tile or per request, so that a small
case speaks for the plan's own shape. Imports `emulator`, and `plan_counts` for where the rows lie in a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from advisor.emulator import Outcome
from advisor.emulator.counts import BarrierCount
from advisor.validation.plan_counts import Promises, phases_by_cta

Range = tuple[float, float]
_INSTRUCTION = re.compile(
    r"^\s*(?:@!?%\w+\s+)?((?:tcgen05|cp|clusterlaunchcontrol|griddepcontrol|wgmma)\.[\w.:]+)", re.M
)
_PTX = {
    "tcgen05_mma": ("tcgen05.mma",),
    "tcgen05_pair_mma": ("tcgen05.mma", "cta_group::2"),
    "tensor_memory_loads": ("tcgen05.ld",),
    "wgmma": ("wgmma.mma_async",),
    "tma_loads": ("cp.async.bulk.tensor", "mbarrier::complete_tx::bytes"),
    "tma_multicast_loads": ("cp.async.bulk.tensor", "mbarrier::complete_tx::bytes", "multicast::cluster"),
    "work_requests": ("clusterlaunchcontrol.try_cancel",),
    "work_requests_multicast": ("clusterlaunchcontrol.try_cancel", "multicast::cluster::all"),
    "dependency_waits": ("griddepcontrol.wait",),
}


def ptx_counts(text: str) -> dict[str, int]:
    """Instructions of a PTX file by what they are, named as the SASS's are; zeroes left out."""
    found = dict.fromkeys(_PTX, 0)
    for opcode in _INSTRUCTION.findall(text):
        for name, (first, *parts) in _PTX.items():
            found[name] += opcode.startswith(first) and all(f".{part}" in opcode for part in parts)
    return {name: count for name, count in found.items() if count}


def counted(promised: Promises, outcome: Outcome) -> dict[str, float]:
    """Figures of one run of a kernel. What the run has none of is left out: no K step, no tensor memory, no request."""
    counts, layout = outcome.counts, promised.layout
    found: dict[str, float] = {}
    full = _barriers(promised, outcome, "full")
    steps = sum(each.completed for each in full)
    ctas_of_a_phase = 1
    if steps and layout.loads:
        owners = layout.loads[0].owners
        ctas_of_a_phase = len(owners) // len(set(owners))
        named = {place.param for place in layout.loads}
        bytes_ = sum(sum(each.bytes_by_cta.values()) for name, each in counts.loads.items() if name in named)
        found["tma_bytes_per_step"] = bytes_ / (steps * ctas_of_a_phase)
        announced = sum(amount * number for each in full for (_, amount), number in each.phases.items())
        found["smem_bytes_per_step"] = announced / (steps * ctas_of_a_phase)
    if steps and (adds := sum(outcome.multiply_adds.values())):
        found["multiply_adds_per_step"] = adds / (steps * ctas_of_a_phase)
    taken = sum(each.completed for each in _barriers(promised, outcome, "accumulator_full"))
    if taken:
        found["tmem_bytes_per_tile"] = outcome.bytes_moved.get("tensor memory load", 0) / taken
    if (requests := outcome.requests) is not None:
        asked = requests.granted + requests.declined
        tiles = sum(clusters_work * number for clusters_work, number in requests.tiles.items())
        found["requests_per_tile"] = asked / tiles
        if "clc_throttle" in layout.mbarriers:
            found["throttled_per_request"] = sum(phases_by_cta(promised, counts, "clc_throttle").values()) / asked
    return found


def joined(figures: Iterable[Mapping[str, float]]) -> dict[str, Range]:
    """Of several runs: the lowest and the highest of each figure."""
    found: dict[str, Range] = {}
    for each in figures:
        for name, value in each.items():
            low, high = found.get(name, (value, value))
            found[name] = (min(low, value), max(high, value))
    return found


def as_facts(figures: Mapping[str, Range]) -> dict[str, Any]:
    """For a gate: the figure where all runs agree, else both ends."""
    ends = {name: [_whole(each) for each in figure] for name, figure in sorted(figures.items())}
    return {name: low if low == high else [low, high] for name, (low, high) in ends.items()}


def _whole(value: float) -> int | float:
    """Whole figures as such: a float is written with six digits."""
    return int(value) if value.is_integer() else value


def _barriers(promised: Promises, outcome: Outcome, row: str) -> list[BarrierCount]:
    start = outcome.counts.dynamic_start
    offsets = promised.layout.mbarriers.get(row, ())
    return [found for each in offsets if (found := outcome.counts.barriers.get(start + each)) is not None]
