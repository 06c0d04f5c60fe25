"""A schedule over time as one line of text: how many workers are busy in each slice of the launch.

Lines of several schedules share one time axis, so that their tails can be compared. Imports `simulation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.simulation import Span

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
