"""What a plan promises of a kernel, held against what the emulator counted. Imports `emulator`, `kinds`, `records`.

The rows are those of steps 3, 5 and 7: arrivals, bytes of a phase, masks, bytes moved, requests. A kernel that is right
and does something else than its plan says is a mismatch: one of the two is not what somebody believes it to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.emulator.cluster_launch_control import RequestCounts
from advisor.emulator.counts import Counts
from advisor.kinds.workload import Workload
from advisor.records.candidate import Candidate
from advisor.records.plan import Finding, Plan
from advisor.records.rows import BarrierRow, KernelLayout, SharingRow

_RANK_0 = re.compile(r"(0x[0-9a-f]+) for rank 0")


@dataclass(frozen=True, slots=True)
class Promises:
    """Rows of one kernel's tables, and where they lie in it. `remote_bytes`: by row of step 3, what each CTA stores
    into others for each of its tiles. `smaller`: the same of the smaller clusters, where the launch mixes two sizes."""

    sharing: tuple[SharingRow, ...]
    barriers: tuple[BarrierRow, ...]
    remote_bytes: Mapping[str, int]
    schedule: str
    cluster_size: int
    layout: KernelLayout
    smaller: Promises | None = None

    @property
    def by_size(self) -> tuple[Promises, ...]:
        return (self,) if self.smaller is None else (self, self.smaller)


def promises(workload: Workload, c: Candidate, plan: Plan | None = None) -> Promises | None:
    """What is promised of a candidate's kernel: by the tables of the plan where it is the plan's choice, else by what
    the kind says of it. None where the kind has no layout of its kernel."""
    layout = workload.layout(c)
    if layout is None:
        return None
    smaller = c.in_smaller_clusters if c.work.preferred_cluster is not None else None
    small_layout = None if smaller is None else workload.layout(smaller)
    if plan is not None and plan.choices and plan.choices[0].candidate() == c:
        found = from_tables(plan, layout, c)
        if smaller is None or small_layout is None:
            return found
        return replace(found, smaller=from_tables(plan, small_layout, smaller, "_of_smaller_clusters"))
    return Promises(
        tuple(workload.sharing(c)),
        tuple(workload.barriers(c)),
        dict(layout.remote_bytes),
        c.schedule,
        c.unit_size,
        layout,
        None if smaller is None else promises(workload, smaller),
    )


def from_tables(plan: Plan, layout: KernelLayout, c: Candidate, suffix: str = "") -> Promises:
    """The rows as plan.json has them; `suffix` ends the names of the tables."""
    buffers = list(_rows(plan, 3, f"buffers{suffix}"))
    loads = {each.operand for each in layout.loads}
    sharing = tuple(
        SharingRow(
            operand=str(each["buffer"]),
            shared_along="",
            receivers=_bits(str(each["multicast_mask"])),
            mask=str(each["multicast_mask"]),
            bytes_per_load=int(each["bytes"]),
            loads_per_stage=1,
        )
        for each in buffers
        if each["buffer"] in loads
    )
    barriers = tuple(
        BarrierRow(
            name=str(each["barrier"]),
            scope=str(each["scope"]),
            count=int(each["count"]),
            arrivals=int(each["arrivals"]),
            arrivals_from=str(each["arithmetic"]),
            tx_bytes=int(each["tx_bytes"]),
            phases=str(each["phase"]),
            failure=str(each["if_wrong"]),
        )
        for each in _rows(plan, 5, f"barriers{suffix}")
    )
    remote = {str(each["buffer"]): int(each["bytes"]) for each in buffers if each["buffer"] in layout.remote_rows}
    return Promises(sharing, barriers, remote, c.schedule, c.unit_size, layout)


def _rows(plan: Plan, step: int, name: str) -> Iterator[dict[str, Any]]:
    table = next(each for each in plan.steps if each.step == step).artifact[name]
    for row in table["rows"]:
        yield dict(zip(table["columns"], row, strict=True))


def _bits(mask: str) -> int:
    found = _RANK_0.search(mask)
    return int(found[1], 16).bit_count() if found else 1


def compare(
    promised: Promises, counts: Counts, requests: RequestCounts | None, *, clusters: int, tiles: int
) -> list[Finding]:
    """Every difference, as PLAN_KERNEL_MISMATCH with both numbers. `clusters` ran, for `tiles` tiles of a cluster."""
    return [
        *_mbarriers(promised, counts),
        *_other_barriers(promised, counts, clusters, tiles),
        *_loads(promised, counts),
        *_remote(promised, counts, tiles),
        *_requests(promised, requests, tiles),
    ]


def mismatch(row: str, what: str, planned: object, counted: object) -> Finding:
    return Finding(
        code="PLAN_KERNEL_MISMATCH",
        severity="error",
        message=f"{row}: the plan says {planned} {what}, the kernel had {counted}",
        numbers={"row": row, "what": what, "planned": planned, "counted": counted},
    )


# --- step 5 -----------------------------------------------------------------------------------------------------------


def _mbarriers(promised: Promises, counts: Counts) -> Iterator[Finding]:
    start, layout = counts.dynamic_start, promised.layout
    rows = {each.name: each for each in promised.barriers}
    known: dict[int, str] = {}
    for name, offsets in layout.mbarriers.items():
        row = rows.get(name)
        if row is None:
            yield mismatch(name, "such barriers", 0, len(offsets))
            continue
        there = [each for each in offsets if start + each in counts.barriers]
        known |= {start + each: name for each in offsets}
        if len(there) != row.count:
            yield mismatch(name, "mbarriers", row.count, len(there))
        found = [counts.barriers[start + each] for each in there]
        for kind in promised.by_size:
            planned = next(each.arrivals for each in kind.barriers if each.name == name)
            expected = {count for each in found for size, count in each.expected if size == kind.cluster_size}
            if expected - {planned}:
                yield mismatch(_named(name, promised, kind), "arrivals of a phase", planned, _shown(expected))
        announced = {bytes_ for each in found for _, bytes_ in each.phases}
        if announced - {row.tx_bytes}:
            yield mismatch(name, "bytes of a phase", row.tx_bytes, _shown(announced))
    strangers = sorted(set(counts.barriers) - set(known))
    if strangers:
        where = ", ".join(str(each - start) for each in strangers)
        yield mismatch("other mbarriers", "in shared memory", 0, f"{len(strangers)}, at offsets {where}")


def _other_barriers(promised: Promises, counts: Counts, clusters: int, tiles: int) -> Iterator[Finding]:
    layout = promised.layout
    rows = {each.name: each for each in promised.barriers}
    for name, numbers in layout.named.items():
        threads = {count for each in numbers for count in counts.named_barriers.get(each, ())}
        if threads - {rows[name].arrivals}:
            yield mismatch(name, "arrivals of a phase", rows[name].arrivals, _shown(threads))
    planned = sum(rows[name].count * (tiles if per == "tile" else clusters) for name, per in layout.meetings.items())
    met = counts.cluster_barriers
    if met.total() != planned:
        yield mismatch(" and ".join(layout.meetings) or "cluster", "meetings of the cluster", planned, met.total())
    for name in layout.meetings:
        planned = rows[name].arrivals
        smaller = {row.arrivals for kind in promised.by_size for row in kind.barriers if row.name == name} - {planned}
        if set(met) - smaller - {planned}:
            yield mismatch(name, "arrivals of a phase", planned, _shown(set(met) - smaller))


# --- step 3 -----------------------------------------------------------------------------------------------------------


def _loads(promised: Promises, counts: Counts) -> Iterator[Finding]:
    for kind in promised.by_size:
        yield from _loads_of(promised, kind, counts)


def _loads_of(promised: Promises, kind: Promises, counts: Counts) -> Iterator[Finding]:
    """Of the clusters of one size."""
    rows = {each.operand: each for each in kind.sharing}
    for place in kind.layout.loads:
        row, found = rows.get(place.operand), counts.loads.get(place.param)
        if row is None or found is None:
            continue
        name = _named(f"operand {place.operand}", promised, kind)
        by_rank = {rank: masks for (size, rank), masks in found.masks.items() if size == kind.cluster_size}
        if kind is not promised:  # one kernel serves both sizes: who shares with nobody multicasts to itself
            by_rank = {rank: {0 if mask == 1 << rank else mask for mask in masks} for rank, masks in by_rank.items()}
        for rank, masks in sorted(by_rank.items()):
            wanted = place.masks[rank]
            if wanted is None or masks - {wanted}:
                yield mismatch(f"{name}, rank {rank}", "as its mask", _mask(wanted), _shown(map(_mask, masks)))
        stated = _RANK_0.search(row.mask)
        first = int(stated[1], 16) if stated else 0
        if by_rank.get(0, {first}) - {first}:
            yield mismatch(name, "as the mask of rank 0", _mask(first), _shown(map(_mask, by_rank[0])))
        if place.masks[0] is not None and (place.masks[0] or 1).bit_count() != row.receivers:
            yield mismatch(name, "receivers of a load", row.receivers, (place.masks[0] or 1).bit_count())
        phases = phases_by_cta(promised, counts, place.barrier)
        each_stage = row.bytes_per_load * row.loads_per_stage
        wrong = {
            bytes_ / phases[cluster, place.owners[rank]]
            for (cluster, rank), bytes_ in found.bytes_by_cta.items()
            if counts.sizes[cluster] == kind.cluster_size
            and bytes_ != each_stage * phases.get((cluster, place.owners[rank]), 0)
            and phases.get((cluster, place.owners[rank]))
        }
        if wrong:
            yield mismatch(name, "bytes loaded by a CTA for a stage", each_stage, _shown(f"{each:g}" for each in wrong))


def phases_by_cta(promised: Promises, counts: Counts, row: str) -> dict[tuple[int, int], int]:
    """Completed phases of a row's mbarriers by (cluster, rank) of the CTA that holds them."""
    total: dict[tuple[int, int], int] = {}
    for offset in promised.layout.mbarriers.get(row, ()):
        found = counts.barriers.get(counts.dynamic_start + offset)
        for cta, phases in found.by_cta.items() if found is not None else ():
            total[cta] = total.get(cta, 0) + phases
    return total


def _remote(promised: Promises, counts: Counts, tiles: int) -> Iterator[Finding]:
    layout = promised.layout
    stored = counts.remote_bytes
    for row, bytes_ in layout.remote_slots.items():
        phases = phases_by_cta(promised, counts, row)
        stored -= bytes_ * sum(each for (_, rank), each in phases.items() if rank)
    planned = sum(promised.remote_bytes.get(name, 0) for name in layout.remote_rows) * tiles * promised.cluster_size
    if planned != stored:
        yield mismatch(" and ".join(layout.remote_rows) or "sharing", "bytes stored into other CTAs", planned, stored)


# --- step 7 -----------------------------------------------------------------------------------------------------------


def _requests(promised: Promises, requests: RequestCounts | None, tiles: int) -> Iterator[Finding]:
    """One request ahead: each tile of a cluster asks for the next, so there are as many requests as tiles."""
    made = 0 if requests is None else requests.granted + requests.declined
    planned = tiles if promised.schedule == "clc" else 0
    if made != planned:
        yield mismatch("Cluster Launch Control", "requests", planned, made)
    if requests is not None and requests.receivers - {promised.cluster_size}:
        found = _shown(requests.receivers)
        yield mismatch("Cluster Launch Control", "CTAs that get a response", promised.cluster_size, found)


def _shown(values: Iterable[object]) -> str:
    return " and ".join(str(each) for each in sorted(set(values), key=str))


def _named(row: str, promised: Promises, kind: Promises) -> str:
    return row if kind is promised else f"{row}, clusters of {kind.cluster_size}"


def _mask(mask: int | None) -> str:
    return "no load" if mask is None else "no multicast" if mask == 0 else f"{mask:#06x}"
