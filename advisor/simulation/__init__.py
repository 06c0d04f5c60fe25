"""Tiles on clusters over time. Imports only `machine` and `errors`."""

from advisor.simulation.costs import boundary_counts, late_starts, longest_first, skewed_costs
from advisor.simulation.simulate import Outcome, Setup, Span, simulate, uniform_makespan

__all__ = [
    "Outcome",
    "Setup",
    "Span",
    "boundary_counts",
    "late_starts",
    "longest_first",
    "simulate",
    "skewed_costs",
    "uniform_makespan",
]
