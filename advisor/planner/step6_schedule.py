"""Step 6: the schedule, by simulation of every one that the family has. Imports `context` and `search`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.kinds.words import reason, table
from advisor.kinds.workload import Timing
from advisor.planner.context import Facts, kernel_id, rejections
from advisor.planner.search import run, same_shape, schedules_of
from advisor.records.candidate import SCHEDULES, Unit
from advisor.records.plan import Decision, Rejected, Step

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


def view(f: Facts) -> Step:
    top, limits = f.top, f.limits
    rows: list[list[Any]] = []
    simulated: dict[str, float] = {}
    shapes: dict[str, tuple[int, str]] = {}
    for schedule in schedules_of(top):
        row = same_shape(top, schedule)
        if row is None:
            continue
        timing = top.search.timing(row)
        outcome = run(timing, schedule, limits)
        total = timing.total_us(outcome.makespan_us)
        simulated[schedule] = total
        c = top.search.candidate(row)
        shapes[schedule] = (timing.available, f"{c.threads} threads, {c.stages} {c.unit_words.ring}")
        rows.append(
            [
                schedule, *shapes[schedule], outcome.makespan_us, total, outcome.launched, outcome.max_tiles,
                outcome.waves, outcome.last_wave_use, outcome.idle_share,
            ]
        )  # fmt: skip
    chosen = top.candidate.schedule
    own = simulated.get(chosen, top.time_us)
    for row_ in rows:
        row_.append(simulated[row_[0]] / own - 1.0)
    in_order = sorted(simulated.items(), key=lambda each: (each[1], SCHEDULES.index(each[0])))
    because = [
        reason(
            _simulated(f.unit, top.timing.tiles, in_order, shapes),
            "derived",
            **{f"{name}_us": us for name, us in simulated.items()},
        )
    ]
    even = not limits["tile_cost_cv"] and not limits["busy_sms"] and top.evidence != "measured"
    if even and chosen == "one_tile" and own / top.time_us - 1.0 > DIFFERING:
        because.append(
            reason(
                f"the simulation has all CTAs turn together, {own:.4g} us for the choice; what is rejected is held "
                f"against the model's {top.time_us:.4g} us, in which they drift apart and a part of a turn is a part",
                "derived",
                simulated_us=own,
                time_us=top.time_us,
            )
        )
    if in_order[0][0] != chosen and "schedule" not in f.forced:
        gain = own / in_order[0][1] - 1.0
        because.append(
            reason(
                f"{in_order[0][0]} is {gain:.1%} faster, within the 1.5 % in which the simpler wins",
                "derived",
                gain=gain,
            )
        )
    if top.timing.dram_us > top.timing.makespan_us:
        spread = max(simulated.values(), default=own) / own - 1.0
        because.append(
            reason(
                f"{_memory(top.timing)} takes {top.timing.dram_us:.4g} us, the clusters {top.timing.makespan_us:.4g}"
                + (": the schedule decides little" if spread < LITTLE else " under this schedule"),
                "derived",
                dram_us=top.timing.dram_us,
                makespan_us=top.timing.makespan_us,
            )
        )
    if "schedule" in f.forced:
        because.append(reason(f"the problem forces {f.forced['schedule']}", "user"))
    if limits["tile_cost_cv"]:
        because.append(
            reason(
                f"the costs of {f.unit.many} vary with a coefficient of {limits['tile_cost_cv']:g}, as the problem "
                "assumes",
                "user",
                cv=limits["tile_cost_cv"],
            )
        )
    if limits["busy_sms"]:
        because.append(
            reason(
                f"other work holds {limits['busy_sms']} SMs: {top.timing.available} of {top.timing.resident} clusters "
                f"run, and a static grid is dealt out for all of them",
                "user",
                busy_sms=limits["busy_sms"],
            )
        )
    if limits["sm_budget"] is not None:
        because.append(
            reason(
                f"sm_budget {limits['sm_budget']}: only grids that stay resident, static and ticket, can keep to it",
                "user",
                sm_budget=limits["sm_budget"],
            )
        )
    if "one_tile" in simulated and chosen != "one_tile":
        turns = -(-top.timing.tiles // max(1, top.timing.available))
        once = f"pays its prologue of {top.timing.prologue_us:.3g} us once"
        if not top.timing.prologue_us:  # the kind counts it into the tile
            once = "starts once"
        because.append(
            reason(
                f"a persistent worker {once}, one {f.unit.one} per cluster starts anew up to {turns} times: "
                f"{simulated['one_tile'] / own - 1.0:+.1%} in this shape",
                "derived",
                prologue_us=top.timing.prologue_us,
                turns=turns,
                margin=simulated["one_tile"] / own - 1.0,
            )
        )
    rejected = [_named(f, each) for each in rejections(f.axis("schedule"), chosen)]
    listed = {each.option for each in rejected} | {chosen}
    clc = top.profile.clc_round_trip_cycles > 0
    if "clc" not in listed and not (clc and "schedule" in f.forced):  # where it is forced, the others were not asked
        rejected.append(
            Rejected(
                option="clc",
                reason=f"{top.profile.arch} has no Cluster Launch Control"
                if not clc
                else f"the {top.family} family has no CLC kernel",
                code="NO_CLC",
            )
        )
    return Step(
        step=6,
        name="schedule",
        decisions=[
            Decision(
                question="Which schedule?",
                choice=f"{chosen}: {WORDS[chosen].format(unit=f.unit)}",
                because=because,
                rejected=rejected,
            )
        ],
        artifact={
            "simulated": table(COLUMNS, sorted(rows, key=lambda each: SCHEDULES.index(each[0]))),
            "tie_rule": "within 1.5 % the simpler wins: one_tile < static < ticket < clc",
            "code": "SCHED_CHOICE",
        },
    )


def _memory(timing: Timing) -> str:
    """What the time beside the clusters is of: a kind may join its L2 to the DRAM."""
    dram_us = timing.bounds.get("dram", timing.dram_us)
    if abs(timing.dram_us / max(dram_us, 1e-9) - 1.0) < 1e-4:
        return "DRAM alone"
    return f"memory alone, DRAM of {dram_us:.4g} us and what else it waits for joined,"


def _simulated(
    unit: Unit, tiles: int, in_order: Sequence[tuple[str, float]], shapes: Mapping[str, tuple[int, str]]
) -> str:
    """The times; with what each schedule's CTAs are where they are not the same."""
    if len(set(shapes.values())) <= 1:
        at_once = next(iter(shapes.values()), (0, ""))[0]
        times = ", ".join(f"{name} {us:.4g} us" for name, us in in_order)
        return (
            f"{tiles} {unit.wholes} for {at_once} clusters at once; this shape simulated, launch and DRAM "
            f"included: {times}"
        )
    times = "; ".join(
        f"{name} {us:.4g} us with {shapes[name][0]} clusters at once, CTAs of {shapes[name][1]}"
        for name, us in in_order
    )
    return (
        f"{tiles} {unit.wholes} in this shape, each schedule simulated in its own best CTAs, launch and "
        f"DRAM included: {times}"
    )


def _named(f: Facts, rejected: Rejected) -> Rejected:
    """With the kernel that the time is of: the best with this schedule need not have the choice's shape."""
    row = next((each.row for each in f.axis("schedule") if each.label == rejected.option), None)
    if row is None or rejected.code is not None:
        return rejected
    return rejected.model_copy(
        update={"reason": f"{rejected.reason} ({kernel_id(f.top.search.candidate(row))})"},
    )
