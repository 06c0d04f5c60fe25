"""A plan and its evidence, small enough to read and with every part that a report shows."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.records.evidence import Evidence
from advisor.records.plan import Plan


def _choice(kernel_id: str, family: str, cluster: list[int], schedule: str, time_us: float) -> dict[str, Any]:
    size = cluster[0] * cluster[1] * cluster[2]
    return {
        "kernel_id": kernel_id,
        "family": family,
        "profile": "h200",
        "cluster": cluster,
        "nonportable": size > 8,
        "schedule": schedule,
        "stages": 4,
        "threads": 384,
        "smem_bytes": 197632,
        "tmem_columns": 0,
        "registers_budget": 168,
        "tile": {"cta": [128, 256, 64], "cluster": [128 * cluster[0], 256, 64], "problem": [128, 256, 64]},
        "grid_blocks": 132,
        "grid_clusters": 132 // size,
        "work": {"multicast": {"a": 1, "b": cluster[0]}, "raster": {"order": "along_n", "group": 8}},
        "residency": {
            "derived": {"max_active_clusters": 132 // size},
            "queried": None,
            "max_active_clusters": 132 // size,
            "sms_used": 132,
            "sms_idle": 0,
            "by_cluster_size": [
                {"cluster_size": 2, "max_active_clusters": 66, "sms_used": 132, "sms_idle": 0, "nonportable": False},
                {"cluster_size": 16, "max_active_clusters": 6, "sms_used": 96, "sms_idle": 36, "nonportable": True},
            ],
        },
        "prediction": {
            "time_us": time_us,
            "low_us": time_us * 0.9,
            "high_us": time_us * 1.2,
            "bound": "tensor",
            "waves": 15.5152,
            "last_wave_use": 0.52,
        },
        "trigger": "sm_90a loads and a cluster fits",
    }


@pytest.fixture
def plan() -> Plan:
    best = _choice("sm90_static_2x1x1", "sm90", [2, 1, 1], "static", 1632.25)
    last = _choice("portable_one_tile", "portable", [1, 1, 1], "one_tile", 2500.0)
    return Plan.model_validate(
        {
            "problem": {"kind": "gemm", "name": "mlp_up", "m": 8192, "n": 8192, "k": 8192, "batch": 1, "dtype": "bf16"},
            "target": {"name": "h200", "arch": "sm_90a", "profile": "h200", "source": "profile"},
            "verdict": "plan",
            "conclusion": "A cluster of 2 along M shares B, static persistent; planned, not built.",
            "choices": [best, last],
            "choice": best,
            "steps": [
                {
                    "step": 1,
                    "name": "necessity",
                    "decisions": [
                        {
                            "question": "Does sharing B pay off?",
                            "choice": "yes",
                            "because": [
                                {
                                    "text": "L2 reads halve for B",
                                    "evidence": "derived",
                                    "numbers": {"l2_bytes": 1048576},
                                },
                                {"text": "tile costs are equal", "evidence": "user", "numbers": {}},
                            ],
                            "rejected": [
                                {"option": "no cluster", "reason": "L2 | bound", "margin": 0.081},
                                {"option": "cluster 3", "reason": "no factoring", "code": "CLUSTER_SIZE"},
                            ],
                        }
                    ],
                    "artifact": {
                        "bound": "tensor",
                        "sizes": [1, 2, 4],
                        "designs": {
                            "columns": ["design", "l2_bytes"],
                            "rows": [["1-CTA", 2097152], ["2 CTAs", 1048576]],
                        },
                    },
                }
            ],
            "findings": [
                {"code": "CLUSTER_OCCUPANCY", "severity": "info", "message": "66 pairs fit", "numbers": {"fit": 66}},
                {"code": "TMA_STRIDE_16B", "severity": "warning", "message": "a.ld is 8190: pad it to 8192"},
            ],
            "alternatives": [{"label": "no cluster", "margin": 0.081, "choice": last}],
            "experiment": {
                "question": "Is the cluster worth it?",
                "hypothesis": "the pair is at least 5 % faster than one CTA",
                "command": "advisor validate generated/mlp_up --device cuda --experiment ab",
                "confirms_if": "the ratio is below 0.95",
                "refutes_if": "the ratio is above 1",
            },
            "not_verified": ["no kernel ran on any GPU"],
        }
    )


@pytest.fixture
def evidence() -> Evidence:
    def row(kernel_id: str, image: str, gates: list[dict[str, Any]], twin_of: str | None = None) -> dict[str, Any]:
        return {
            "kernel_id": kernel_id,
            "kernel_hash": "ab" * 32,
            "image": image,
            "schedule": "static",
            "cluster": [2, 1, 1],
            "twin_of": twin_of,
            "gates": gates,
        }

    rendered = {"gate": "rendered", "result": "pass"}
    facts = {"compiler": "nvrtc 13.0.88", "registers": 168, "static_smem_bytes": 0, "spill_bytes": 0}
    compiled = {"gate": "compiled", "result": "pass", "facts": facts}
    ran = {"gate": "ran", "result": "pass"}
    not_run = {"gate": "ran", "result": "not_run", "reason": "sm_100 does not load on compute capability 9.0"}
    worst = {"index": [1, 2], "got": 1.0, "expected": 1.0, "error": 0.001, "bound": 0.004}
    timing = {
        "median_us": 1700.0,
        "low_us": 1690.0,
        "high_us": 1720.0,
        "samples": 30,
        "baseline": "cuBLAS",
        "ratio": 0.95,
    }
    case = {
        "kernel_id": "sm90_static_2x1x1",
        "rung": "sm90_static_2x1x1",
        "arguments": {"m": 1},
        "launch": None,
        "launches": 64,
    }
    return Evidence.model_validate(
        {
            "bundle": "mlp_up",
            "manifest_hash": "0" * 64,
            "devices": ["cuda"],
            "chip": {"name": "NVIDIA H200", "compute_capability": [9, 0], "uuid_hash": "1", "driver": "580.1"},
            "gates": [
                row("sm90_static_2x1x1", "sm_90a", [rendered, compiled, ran]),
                row("portable_one_tile", "sm_100", [rendered, compiled, not_run]),
                row("portable_one_tile", "sm_90", [rendered, compiled, ran], twin_of="portable_one_tile"),
            ],
            "cases": [
                {**case, "name": "problem", "verdict": "correct", "worst": worst, "timing": timing},
                {**case, "name": "k_short", "verdict": "timeout", "detail": "no answer after 20 s"},
            ],
            "residency": [{"kernel_id": "sm90_static_2x1x1", "cluster_size": 2, "predicted": 66, "queried": 66}],
            "verdict": "fail",
        }
    )
