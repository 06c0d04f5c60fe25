"""Step 6: the schedule, by simulation of every one that the family has. Imports `context` and `search`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.kinds.words import reason, table
from advisor.kinds.workload import Timing
from advisor.planner.context import Facts, kernel_id, rejections
from advisor.planner.search import run, same_shape, schedules_of
from advisor.records.candidate import Schedule
from advisor.records.plan import Decision, Reason, Rejected, Step
from advisor.simulation import Outcome

WORDS = {
    "one_tile": "one {unit.whole} per cluster",
    "static": "persistent, {unit.many} dealt out in advance",
    "ticket": "persistent, {unit.many} claimed from an atomic counter",
    "clc": "persistent, {unit.many} stolen through Cluster Launch Control",
}
DIFFERING = 0.005  # simulation and model of one candidate, from which it is said
LITTLE = 0.05  # schedules whose times are all within it of the choice's decide little
COLUMNS = (
    "schedule", "clusters_at_once", "cta", "makespan_us", "total_us", "clusters_started", "most_tiles", "waves",
    "last_wave_use", "idle_share", "margin",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Run:
    """One schedule of the choice's shape, simulated."""

    schedule: Schedule
    timing: Timing
    cta: str  # what its CTAs are, in words
    outcome: Outcome
    total_us: float  # launch and DRAM included


def view(f: Facts) -> Step:
    chosen = f.top.candidate.schedule
    runs = _runs(f)
    own_us = next((each.total_us for each in runs if each.schedule == chosen), f.top.time_us)
    because = [
        *_times(f, runs),
        *_against_the_model(f, own_us),
        *_beside_the_fastest(f, runs, own_us),
        *_beside_memory(f, runs, own_us),
        *_asked(f),
        *_beside_one_tile(f, runs, own_us),
    ]
    return Step(
        step=6,
        name="schedule",
        decisions=[
            Decision(
                question="Which schedule?",
                choice=f"{chosen}: {WORDS[chosen].format(unit=f.unit)}",
                because=because,
                rejected=_rejected(f),
            )
        ],
        artifact={
            "simulated": table(COLUMNS, [_row(each, own_us) for each in runs]),
            "tie_rule": "within 1.5 % the simpler wins: one_tile < static < ticket < clc",
            "code": "SCHED_CHOICE",
        },
    )


def _runs(f: Facts) -> list[_Run]:
    """Of every schedule that the family has in this shape, the simplest first."""
    found = []
    for schedule in schedules_of(f.top):
        row = same_shape(f.top, schedule)
        if row is None:
            continue
        timing, c = f.top.search.timing(row), f.top.search.candidate(row)
        outcome = run(timing, schedule, f.limits)
        cta = f"{c.threads} threads, {c.stages} {c.unit_words.ring}"
        found.append(_Run(schedule, timing, cta, outcome, timing.total_us(outcome.makespan_us)))
    return found


def _row(of: _Run, own_us: float) -> list[Any]:
    o = of.outcome
    return [
        of.schedule, of.timing.available, of.cta, o.makespan_us, of.total_us, o.launched, o.max_tiles, o.waves,
        o.last_wave_use, o.idle_share, of.total_us / own_us - 1.0,
    ]  # fmt: skip


def _times(f: Facts, runs: Sequence[_Run]) -> Iterator[Reason]:
    """The times; with what each schedule's CTAs are where they are not the same."""
    in_order = sorted(runs, key=lambda each: each.total_us)
    units = f"{f.top.timing.tiles} {f.unit.wholes}"
    if len({(each.timing.available, each.cta) for each in runs}) <= 1:
        at_once = runs[0].timing.available if runs else 0
        times = ", ".join(f"{each.schedule} {each.total_us:.4g} us" for each in in_order)
        text = f"{units} for {at_once} clusters at once; this shape simulated, launch and DRAM included: {times}"
    else:
        times = "; ".join(
            f"{each.schedule} {each.total_us:.4g} us with {each.timing.available} clusters at once, CTAs of {each.cta}"
            for each in in_order
        )
        text = f"{units} in this shape, each schedule simulated in its own best CTAs, launch and DRAM included: {times}"
    yield reason(text, "derived", **{f"{each.schedule}_us": each.total_us for each in runs})


def _against_the_model(f: Facts, own_us: float) -> Iterator[Reason]:
    top, limits = f.top, f.limits
    even = not limits["tile_cost_cv"] and not limits["busy_sms"] and top.evidence != "measured"
    if even and top.candidate.schedule == "one_tile" and own_us / top.time_us - 1.0 > DIFFERING:
        yield reason(
            f"the simulation has all CTAs turn together, {own_us:.4g} us for the choice; what is rejected is held "
            f"against the model's {top.time_us:.4g} us, in which they drift apart and a part of a turn is a part",
            "derived",
            simulated_us=own_us,
            time_us=top.time_us,
        )


def _beside_the_fastest(f: Facts, runs: Sequence[_Run], own_us: float) -> Iterator[Reason]:
    fastest = min(runs, key=lambda each: each.total_us)
    if fastest.schedule != f.top.candidate.schedule and "schedule" not in f.forced:
        gain = own_us / fastest.total_us - 1.0
        text = f"{fastest.schedule} is {gain:.1%} faster, within the 1.5 % in which the simpler wins"
        yield reason(text, "derived", gain=gain)


def _beside_memory(f: Facts, runs: Sequence[_Run], own_us: float) -> Iterator[Reason]:
    timing = f.top.timing
    if timing.dram_us > timing.makespan_us:
        spread = max((each.total_us for each in runs), default=own_us) / own_us - 1.0
        yield reason(
            f"{_memory(timing)} takes {timing.dram_us:.4g} us, the clusters {timing.makespan_us:.4g}"
            + (": the schedule decides little" if spread < LITTLE else " under this schedule"),
            "derived",
            dram_us=timing.dram_us,
            makespan_us=timing.makespan_us,
        )


def _asked(f: Facts) -> Iterator[Reason]:
    """What the problem says of it."""
    timing, limits = f.top.timing, f.limits
    cv, busy, budget = limits["tile_cost_cv"], limits["busy_sms"], limits["sm_budget"]
    if "schedule" in f.forced:
        yield reason(f"the problem forces {f.forced['schedule']}", "user")
    if cv:
        text = f"the costs of {f.unit.many} vary with a coefficient of {cv:g}, as the problem assumes"
        yield reason(text, "user", cv=cv)
    if busy:
        yield reason(
            f"other work holds {busy} SMs: {timing.available} of {timing.resident} clusters run, and a static grid is "
            "dealt out for all of them",
            "user",
            busy_sms=busy,
        )
    if budget is not None:
        text = f"sm_budget {budget}: only grids that stay resident, static and ticket, can keep to it"
        yield reason(text, "user", sm_budget=budget)


def _beside_one_tile(f: Facts, runs: Sequence[_Run], own_us: float) -> Iterator[Reason]:
    timing = f.top.timing
    one_tile = next((each for each in runs if each.schedule == "one_tile"), None)
    if one_tile is None or f.top.candidate.schedule == "one_tile":
        return
    turns = -(-timing.tiles // max(1, timing.available))
    once = f"pays its prologue of {timing.prologue_us:.3g} us once"
    if not timing.prologue_us:  # the kind counts it into the tile
        once = "starts once"
    margin = one_tile.total_us / own_us - 1.0
    yield reason(
        f"a persistent worker {once}, one {f.unit.one} per cluster starts anew up to {turns} times: {margin:+.1%} in "
        "this shape",
        "derived",
        prologue_us=timing.prologue_us,
        turns=turns,
        margin=margin,
    )


def _rejected(f: Facts) -> list[Rejected]:
    top, chosen = f.top, f.top.candidate.schedule
    rejected = [_named(f, each) for each in rejections(f.axis("schedule"), chosen)]
    listed = {each.option for each in rejected} | {chosen}
    clc = top.profile.clc_round_trip_cycles > 0
    if "clc" not in listed and not (clc and "schedule" in f.forced):  # where it is forced, the others were not asked
        why = (
            f"the {top.family} family has no CLC kernel" if clc else f"{top.profile.arch} has no Cluster Launch Control"
        )
        rejected.append(Rejected(option="clc", reason=why, code="NO_CLC"))
    return rejected


def _memory(timing: Timing) -> str:
    """What the time beside the clusters is of: a kind may join its L2 to the DRAM."""
    dram_us = timing.bounds.get("dram", timing.dram_us)
    if abs(timing.dram_us / max(dram_us, 1e-9) - 1.0) < 1e-4:
        return "DRAM alone"
    return f"memory alone, DRAM of {dram_us:.4g} us and what else it waits for joined,"


def _named(f: Facts, rejected: Rejected) -> Rejected:
    """With the kernel that the time is of: the best with this schedule need not have the choice's shape."""
    row = next((each.row for each in f.axis("schedule") if each.label == rejected.option), None)
    if row is None or rejected.code is not None:
        return rejected
    return rejected.model_copy(
        update={"reason": f"{rejected.reason} ({kernel_id(f.top.search.candidate(row))})"},
    )
