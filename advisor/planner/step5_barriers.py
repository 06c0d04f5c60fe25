"""Step 5: every barrier with its scope, arrivals, bytes and phase. Imports `context`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.kinds.words import reason, table
from advisor.planner.context import Facts
from advisor.records.plan import Decision, Step
from advisor.records.rows import BarrierRow


def view(f: Facts) -> Step:
    c = f.top.candidate
    rows = f.workload.barriers(c)
    smaller = {}
    if c.work.preferred_cluster is not None:
        smaller = {"barriers_of_smaller_clusters": _table(f.workload.barriers(c.in_smaller_clusters))}
    decisions = [_counted(rows) if rows else NO_BARRIER]
    if c.cluster_size > 1:
        decisions.append(
            Decision(
                question="When do CTAs of a cluster meet?",
                choice="a cluster barrier before the first remote access and before every exit",
                because=[
                    reason(
                        "a peer that has not started, or has gone, takes its shared memory with it: remote "
                        "arrivals and multicast "
                        "continue to the end",
                        "published",
                        code="EXIT_CLUSTER_BARRIER",
                    )
                ],
            )
        )
    decisions += f.workload.signals(f)
    return Step(
        step=5,
        name="barriers",
        decisions=decisions,
        artifact={"barriers": _table(rows), **smaller},
    )


NO_BARRIER = Decision(
    question="Who signals whom?",
    choice="nobody: no mbarrier, and no CTA waits for another",
    because=[reason("what orders the threads of one CTA stands with the buffers of step 3", "derived")],
)


def _counted(rows: Sequence[BarrierRow]) -> Decision:
    first = rows[0]
    return Decision(
        question="Who signals whom?",
        choice=f"{len(rows)} kind{'s' * (len(rows) != 1)} of barrier, every count by arithmetic",
        because=[
            reason(
                "every count and byte total follows from the cluster, the warps and the stage by the arithmetic "
                f"beside it: {first.name} waits for {_awaited(first)}",
                "derived",
                arrivals=first.arrivals,
                tx_bytes=first.tx_bytes,
            ),
            reason(
                "a phase ends when arrivals and bytes are complete: too many expected deadlock, too few race; a "
                "wait names the phase's parity, which flips each time the ring wraps (PTX ISA, mbarrier)",
                "published",
            ),
        ],
    )


def _table(rows: Sequence[BarrierRow]) -> dict[str, Any]:
    return table(
        ["barrier", "scope", "count", "arrivals", "arithmetic", "tx_bytes", "phase", "if_wrong"],
        [[r.name, r.scope, r.count, r.arrivals, r.arrivals_from, r.tx_bytes, r.phases, r.failure] for r in rows],
    )


def _awaited(row: BarrierRow) -> str:
    arrivals = f"{row.arrivals} arrival{'s' * (row.arrivals != 1)}"
    return f"{arrivals} and {row.tx_bytes} bytes" if row.tx_bytes else arrivals
