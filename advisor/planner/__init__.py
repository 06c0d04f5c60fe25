"""The nine steps and the search: a problem on a target to a plan. Never touches a GPU, a file or a clock.

Imports `kinds` and below. `search` picks, each `stepN_*` owns the view of one question, `assemble` puts the plan
together.
"""

from advisor.planner.assemble import plan

__all__ = ["plan"]
