"""Plans made by hand around the real GEMM kind, so that these tests need no search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from advisor.kinds import workload as make_workload
from advisor.kinds.gemm import portable, sm90, sm100
from advisor.kinds.gemm.work import GemmWork, GemmWorkRecord
from advisor.kinds.workload import Workload
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.plan import Choice, Plan


def problem(**changes: Any) -> GemmProblem:
    return GemmProblem.model_validate({"kind": "gemm", "name": "sample", "m": 300, "n": 200, "k": 96, **changes})


def sm90_candidate(p: GemmProblem, **changes: Any) -> Candidate:
    """A 128 x 128 tile, one tile per CTA, unless said otherwise; the thread count follows from the tile."""
    x, y, _ = changes.get("cluster", (1, 1, 1))
    tile_m, tile_n = changes.pop("tile", (128, 128))
    work = GemmWork(
        multicast_a=y,
        multicast_b=x,
        split_k=changes.pop("split_k", 1),
        swap_ab=changes.pop("swap_ab", False),
    )
    fields: dict[str, Any] = {
        "family": "sm90",
        "cluster": (1, 1, 1),
        "schedule": "one_tile",
        "tile": (tile_m, tile_n, sm90.tile_k(p)),
        "stages": 4,
        "threads": sm90.threads(tile_m),
        "work": work,
        **changes,
    }
    return Candidate(**fields)


def sm100_candidate(p: GemmProblem, **changes: Any) -> Candidate:
    """A pair of 128 x 128 tiles with Cluster Launch Control, unless said otherwise."""
    preferred = changes.pop("preferred_cluster", None)
    x, y, _ = preferred or changes.get("cluster", (2, 1, 1))
    tile_m, tile_n = changes.pop("tile", (128, 128))
    work = GemmWork(
        mma_ctas=changes.pop("mma_ctas", 2),
        multicast_a=y,
        multicast_b=x,
        split_k=changes.pop("split_k", 1),
        preferred_cluster=preferred,
    )
    fields: dict[str, Any] = {
        "family": "sm100",
        "cluster": (2, 1, 1),
        "schedule": "clc",
        "tile": (tile_m, tile_n, sm100.tile_k(p)),
        "stages": 4,
        "threads": sm100.THREADS,
        "work": work,
        **changes,
    }
    return Candidate(**fields)


def make_plan(p: GemmProblem, candidates: list[Candidate]) -> Plan:
    choices = [_choice(p, each) for each in [*candidates, portable.candidates(p)[0]]]
    return Plan.model_validate(
        {
            "problem": p.model_dump(mode="json"),
            "target": {"name": "h200", "arch": "sm_90a", "profile": "h200", "source": "profile"},
            "verdict": "plan",
            "conclusion": "A plan made by hand.",
            "choices": choices,
            "choice": choices[0],
            "steps": [],
        }
    )


def _choice(p: GemmProblem, c: Candidate) -> Choice:
    work = make_workload(p)
    spec = work.kernels(c)[0].kernel if work.kernels(c) else None
    resources = work.resources(c)
    return Choice.model_validate(
        {
            "kernel_id": spec.id.removesuffix("_main") if spec else f"{c.family}_planned",
            "family": c.family,
            "profile": "h200",
            "cluster": c.cluster,
            "nonportable": c.nonportable,
            "schedule": c.schedule,
            "stages": c.stages,
            "threads": c.threads,
            "smem_bytes": resources.dynamic_smem_bytes,
            "tmem_columns": 0,
            "registers_budget": resources.registers,
            "tile": {"cta": c.tile, "cluster": (*c.cluster_tile, c.tile[2]), "problem": c.tile},
            "grid_blocks": 1,
            "grid_clusters": 1,
            "work": GemmWorkRecord.of(c.work),
            "residency": {
                "derived": {},
                "max_active_clusters": 1,
                "sms_used": 1,
                "sms_idle": 0,
                "by_cluster_size": [],
            },
            "prediction": {
                "time_us": 1.0,
                "low_us": 1.0,
                "high_us": 1.0,
                "bound": "tensor",
                "waves": 1.0,
                "last_wave_use": 1.0,
            },
            "trigger": "by hand",
        }
    )


@pytest.fixture(scope="session")
def make() -> Callable[..., tuple[Plan, Workload]]:
    """make(candidates=[{...}], **problem) -> (plan, workload)."""

    def build(candidates: list[dict[str, Any]] | None = None, **changes: Any) -> tuple[Plan, Workload]:
        p = problem(**changes)
        make_of = {"sm90": sm90_candidate, "sm100": sm100_candidate}
        rows = candidates if candidates is not None else [{}]
        chosen = [make_of[each.get("family", "sm90")](p, **each) for each in rows]
        return make_plan(p, chosen), make_workload(p)

    return build
