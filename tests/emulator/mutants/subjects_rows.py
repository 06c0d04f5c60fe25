"""The project's own row reductions, as subjects: rows that a cluster keeps, streams, and claims."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from advisor.emulator import Outcome
from advisor.emulator.world import cut_profile
from advisor.kinds.row_reduce import numerics
from advisor.machine.profile_file import load_profile
from advisor.problem.row_reduce import RowReduceProblem
from advisor.records.candidate import Candidate
from tests.emulator.mutants.subject import ASYNC, CLAIMING, STEP_LIMIT, Kernel, Setting, Subject, few_sms
from tests.emulator.rows import RowKernel, candidate, own_case, problem


def subjects() -> list[Subject]:
    return [*_dealt_out(), *_claimed()]


def _kernel(p: RowReduceProblem, c: Candidate) -> Kernel:
    kernel = RowKernel(p, c)
    case = own_case(p, out_stride=p.row_stride if p.elementwise else 1)
    inputs = numerics.inputs(p, case)
    if p.op in ("layernorm", "rmsnorm"):  # one row whose squares overflow: it is read and exchanged once more
        inputs["X"].reshape(p.rows, -1)[1, : p.cols] *= 2.0**100
    launch = kernel.resolved(case)

    @cache
    def expected() -> tuple[np.ndarray, np.ndarray]:
        return numerics.reference(p, case, inputs)["Y"], numerics.bound(p, case, inputs)["Y"]

    def right(outcome: Outcome) -> bool:
        wanted, allowed = expected()
        found = outcome.typed("Y").astype(np.float64).reshape(wanted.shape)
        inside = ~np.isnan(wanted)
        return bool((np.abs(found - wanted)[inside] <= allowed[inside]).all())

    return Kernel(kernel.ptx, launch, right, {name: each for name, each in inputs.items() if name in launch.buffers})


def _subject(
    name: str, p: RowReduceProblem, c: Candidate, options: dict[str, Any], settings: tuple[Setting, ...] = ASYNC
) -> Subject:
    return Subject("rows", f"rows, {name}", partial(_kernel, p, c), options | {"step_limit": STEP_LIMIT}, settings)


def _ragged(op: str, rows: int, cols: int, **changes: Any) -> RowReduceProblem:
    """Rows that end in a vector of 16 bytes which is not full, each at a multiple of 16 bytes."""
    return problem(op, rows, cols, row_stride=-(-cols // 8) * 8, **changes)


def _dealt_out() -> list[Subject]:
    """On Hopper: two clusters that walk several rows each."""
    device = {"profile": cut_profile(load_profile("h200"), 4)}
    return [
        _subject(
            "a cluster keeps a row and some of the next", _ragged("softmax", 7, 3996),
            candidate(cluster=2, schedule="static", vectors=4, slots=6, held=2), device,
        ),
        _subject(
            "weights in registers and slots", _ragged("layernorm", 7, 1596, weight=True, bias=True),
            candidate(cluster=2, schedule="static", vectors=2, slots=3, held=1, weight_slots=2), device,
        ),
        _subject(
            "streamed by a cluster", _ragged("logsumexp", 5, 8996),
            candidate(cluster=2, schedule="static", vectors=0, batch=2), device,
        ),
        _subject(
            "one CTA to a row, one row", _ragged("rmsnorm", 3, 996), candidate(vectors=2), device,
        ),
    ]  # fmt: skip


def _claimed() -> list[Subject]:
    """On Blackwell, by Cluster Launch Control: most clusters of the grid wait for an SM."""

    def subject(name: str, p: RowReduceProblem, *, cluster: int = 1, **changes: Any) -> Subject:
        c = candidate("sm100", cluster, "clc", **changes)
        return _subject(name, p, c, {"profile": few_sms(max(2, cluster))}, CLAIMING)

    return [
        subject("a cluster that claims", _ragged("softmax", 11, 1996), cluster=2, vectors=2, slots=4),
        subject("single CTAs that claim", _ragged("layernorm", 11, 996), vectors=2),
        subject("a cluster that claims rows to stream", _ragged("sum", 23, 1996), cluster=2, vectors=0, batch=2),
    ]  # fmt: skip
