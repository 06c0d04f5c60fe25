"""Step 5: every barrier with its scope, arrivals, bytes and phase. Imports `context`."""

from __future__ import annotations

from advisor.planner.context import Facts, reason, table
from advisor.records.plan import Decision, Step


def view(f: Facts) -> Step:
    c = f.top.candidate
    rows = f.workload.barriers(c)
    decisions = [
        Decision(
            question="Who signals whom?",
            choice=f"{len(rows)} kinds of barrier, every count by arithmetic",
            because=[
                reason("a count too high deadlocks, one too low races: none is typed in", "published"),
                reason(
                    "the parity of a wait flips when the ring wraps; a waiter is never more than one phase behind",
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
    if c.work.mma_ctas == 2:
        decisions.append(
            Decision(
                question="What does the pair's leader do?",
                choice="the even rank issues every MMA and commit, and expects the bytes of both CTAs",
                because=[
                    reason(
                        "pair mask 3 << (rank & ~1); expect_tx counts 2 CTAs, not the cluster; one cta_group in "
                        "the kernel; tensor "
                        "memory is allocated and released by both CTAs between cluster barriers",
                        "published",
                        code="PAIR_IN_CLUSTER",
                    )
                ],
            )
        )
    return Step(
        step=5,
        name="barriers",
        decisions=decisions,
        artifact={
            "barriers": table(
                ["barrier", "scope", "count", "arrivals", "arithmetic", "tx_bytes", "phase", "if_wrong"],
                [
                    [r.name, r.scope, r.count, r.arrivals, r.arrivals_from, r.tx_bytes, r.phases, r.failure]
                    for r in rows
                ],
            )
        },
    )
