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
    decisions = [
        Decision(
            question="Who signals whom?",
            choice=f"{len(rows)} kind{'s' * (len(rows) != 1)} of barrier, every count by arithmetic",
            because=[
                reason(
                    "every count and byte total follows from the cluster, the warps and the stage by the arithmetic "
                    f"beside it: {rows[0].name} waits for {rows[0].arrivals} arrivals and {rows[0].tx_bytes} bytes"
                    if rows
                    else "no mbarrier: cp.async groups and CTA barriers order the stages",
                    "derived",
                    **({"arrivals": rows[0].arrivals, "tx_bytes": rows[0].tx_bytes} if rows else {}),
                ),
                reason(
                    "a phase ends when arrivals and bytes are complete: too many expected deadlock, too few race; a "
                    "wait names the phase's parity, which flips each time the ring wraps (PTX ISA, mbarrier)",
                    "published",
                ),
            ],
        )
    ]
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


def _table(rows: Sequence[BarrierRow]) -> dict[str, Any]:
    return table(
        ["barrier", "scope", "count", "arrivals", "arithmetic", "tx_bytes", "phase", "if_wrong"],
        [[r.name, r.scope, r.count, r.arrivals, r.arrivals_from, r.tx_bytes, r.phases, r.failure] for r in rows],
    )
