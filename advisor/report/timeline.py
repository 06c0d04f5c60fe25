"""A schedule over time as one line of text: how many workers are busy in each slice of the launch.

Lines of several schedules share one time axis, so that their tails can be compared. Imports `planner.schedules` and
`simulation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.planner.schedules import Simulated
from advisor.records.candidate import Unit
from advisor.records.plan import Plan
from advisor.report.blocks import Block, Code, Heading, Paragraph, Table
from advisor.simulation import Span

SLICES = 56

SHADES = " .:-=+*#"  # from nobody busy to everybody busy


def busy_shares(spans: Iterable[Span], workers: int, until_us: float, slices: int) -> list[float]:
    """The share of `workers` that is busy in each of `slices` equal slices of [0, until_us], 0 to 1."""
    width = until_us / slices
    busy = [0.0] * slices
    for span in spans:
        first = min(slices - 1, int(span.start_us / width))
        last = min(slices - 1, int(span.end_us / width))
        for each in range(first, last + 1):
            begin, end = max(span.start_us, each * width), min(span.end_us, (each + 1) * width)
            busy[each] += max(0.0, end - begin)
    return [min(1.0, each / (width * workers)) for each in busy]


def bar(shares: Sequence[float]) -> str:
    """One character per slice. Only a slice in which all workers are busy throughout gets the darkest."""
    full = len(SHADES) - 1
    return "".join(SHADES[full if each > 0.999 else min(full - 1, int(each * full + 0.999))] for each in shares)


def simulation_blocks(plan: Plan, rows: Sequence[Simulated]) -> list[Block]:
    """What `simulate` prints: the figures of every schedule, and its picture."""
    chosen = plan.choice.schedule if plan.choice else ""
    unit = plan.choice.candidate().unit_words if plan.choice else Unit()
    table = Table(
        (
            "schedule",
            "clusters at once",
            "total (us)",
            "against the plan",
            f"most {unit.many} of one",
            "idle share",
            "last wave use",
        ),
        tuple(
            (
                f"{row.schedule} (the plan's)" if row.schedule == chosen else row.schedule,
                row.workers,
                row.total_us,
                f"{row.margin:+.1%}",
                row.outcome.max_tiles,
                f"{row.outcome.idle_share:.1%}",
                f"{row.outcome.last_wave_use:.1%}",
            )
            for row in rows
        ),
    )
    workers, tiles = {row.workers for row in rows}, rows[0].tiles
    places = f"{rows[0].workers}" if len(workers) == 1 else "its own number of"
    blocks: list[Block] = [
        Heading(f"{plan.problem.get('name', 'problem')} on {plan.target.profile}: schedules", 1),
        Paragraph(f"{tiles} {unit.wholes}, each schedule on {places} clusters at once. Simulated: no kernel ran."),
        table,
    ]
    end = max(row.outcome.makespan_us for row in rows)
    traced = [row for row in rows if row.outcome.spans]
    if traced and end > 0:
        width = max(len(row.schedule) for row in traced)
        lines = [
            f"{row.schedule:{width}} |{bar(busy_shares(row.outcome.spans, row.workers, end, SLICES))}| "
            f"{row.outcome.makespan_us:.4g} us"
            for row in traced
        ]
        blocks += [Paragraph("Clusters that are busy over time, from none (blank) to all (#):"), Code("\n".join(lines))]
    return blocks
