"""The picture of a schedule shows what the simulation did."""

from __future__ import annotations

import pytest

from advisor.report.timeline import SHADES, bar, busy_shares
from advisor.simulation import Setup, simulate


def test_a_static_schedule_beyond_residency_shows_its_idle_tail() -> None:
    outcome = simulate(Setup(schedule="static", cost_us=1.0, tiles=12, resident=3, planned=4, trace=True))
    assert outcome.makespan_us == 6.0
    assert bar(busy_shares(outcome.spans, 3, 6.0, 6)) == "###---"


def test_a_dynamic_schedule_of_the_same_tiles_is_full_to_its_end() -> None:
    outcome = simulate(Setup(schedule="ticket", cost_us=1.0, tiles=12, resident=3, planned=3, trace=True))
    assert bar(busy_shares(outcome.spans, 3, 6.0, 6)) == "####  "


def test_busy_time_is_conserved() -> None:
    outcome = simulate(Setup(schedule="one_tile", cost_us=0.7, tiles=11, resident=4, prologue_us=0.1, trace=True))
    shares = busy_shares(outcome.spans, 4, outcome.makespan_us, 7)
    total = sum(each.end_us - each.start_us for each in outcome.spans)
    assert sum(shares) * outcome.makespan_us / 7 * 4 == pytest.approx(total)


@pytest.mark.parametrize(
    ("share", "shade"), [(0.0, SHADES[0]), (0.001, SHADES[1]), (0.99, SHADES[-2]), (1.0, SHADES[-1])]
)
def test_only_an_empty_slice_is_blank_and_only_a_full_one_is_darkest(share: float, shade: str) -> None:
    assert bar([share]) == shade
