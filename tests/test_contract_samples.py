"""The samples of the contracts: each is accepted by its model, and by the JSON schema made from it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from advisor.problem import parse_problem, problem_schema
from advisor.problem.gemm import GemmProblem
from advisor.records.base import Record, canonical_json
from advisor.records.evidence import Evidence
from advisor.records.launch import Launch, ResolvedLaunch
from advisor.records.plan import Plan

FULL = """
kind: gemm
name: mlp_up
m: 8192
n: 8192
k: 8192
batch: 1
dtype: bf16
a: {dtype: bf16, major: k, ld: 8192, align_bytes: 16, batch_stride: 67108864}
b: {dtype: bf16, major: k}
c: {dtype: bf16, major: n}
d: {dtype: bf16, major: n}
scale: {a: none, b: none}
accumulate: precise
epilogue: {alpha: 1.0, beta: 0.0, bias: none, activation: none}
target: b200
launch: {pdl: false}
shared_gpu: {busy_sms: 0}
assume: {tile_cost_cv: 0.0, seed: 0}
constraints: {sm_budget: null, max_cluster_size: 16, fallback: preferred, deterministic: true}
overrides: {}
"""
SHORT = "kind: gemm\nm: 16\nn: 7168\nk: 7168\ndtype: e4m3\nscale: {a: tensor, b: tensor}\n"
FORCED = """
kind: gemm
m: 640
n: 4096
k: 4096
a: {major: m}
d: {dtype: fp32, major: m}
overrides: {kernel: sm90, cluster: [2, 1, 1], schedule: static, tile: [128, 256, 64], stages: 4, mma_ctas: 1,
            split_k: 1, swap_ab: false}
"""

RESIDENCY = {
    "derived": {"formula": "sum over groups", "ctas_per_sm": 1},
    "queried": None,
    "max_active_clusters": 74,
    "sms_used": 148,
    "sms_idle": 0,
    "by_cluster_size": [
        {"cluster_size": 1, "max_active_clusters": 148, "sms_used": 148, "sms_idle": 0, "nonportable": False},
        {"cluster_size": 16, "max_active_clusters": 8, "sms_used": 128, "sms_idle": 20, "nonportable": True},
    ],
}
CHOICE: dict[str, Any] = {
    "kernel_id": "sm100_clc_2x1x1",
    "family": "sm100",
    "profile": "b200",
    "cluster": [2, 1, 1],
    "nonportable": False,
    "schedule": "clc",
    "stages": 5,
    "threads": 256,
    "smem_bytes": 199680,
    "tmem_columns": 512,
    "registers_budget": 168,
    "tile": {"cta": [128, 256, 64], "cluster": [256, 256, 64], "problem": [128, 256, 64]},
    "grid_blocks": 2048,
    "grid_clusters": 1024,
    "work": {
        "mma_ctas": 2,
        "multicast": {"a": 1, "b": 2},
        "split_k": 1,
        "swap_ab": False,
        "raster": {"order": "along_n", "group": 8},
        "preferred_cluster": None,
    },
    "residency": RESIDENCY,
    "prediction": {
        "time_us": 740.0,
        "low_us": 700.0,
        "high_us": 820.0,
        "bound": "tensor",
        "waves": 13.8378,
        "last_wave_use": 0.84,
    },
    "trigger": "sm_100a loads and at least one cluster fits",
}
PLAN: dict[str, Any] = {
    "schema_version": 1,
    "problem": {"kind": "gemm"},
    "target": {"name": "b200", "arch": "sm_100a", "profile": "b200", "source": "profile"},
    "verdict": "plan",
    "conclusion": "A pair of CTAs with CLC, planned.",
    "choices": [CHOICE],
    "choice": CHOICE,
    "steps": [
        {
            "step": 1,
            "name": "necessity",
            "decisions": [
                {
                    "question": "Does a CTA pair pay off?",
                    "choice": "yes",
                    "because": [
                        {"text": "B is loaded once per pair", "evidence": "derived", "numbers": {"bytes": 1.0}}
                    ],
                    "rejected": [{"option": "1-CTA", "reason": "slower", "margin": 0.08, "code": None, "numbers": {}}],
                }
            ],
            "artifact": {"bytes": {"columns": ["design", "bytes"], "rows": [["1-CTA", 1], ["pair", 1]]}},
        }
    ],
    "findings": [{"code": "CLUSTER_OCCUPANCY", "severity": "info", "message": "74 pairs fit", "numbers": {"fit": 74}}],
    "alternatives": [],
    "experiment": None,
    "not_verified": ["no kernel of this bundle ran on a B200"],
}

KERNEL: dict[str, Any] = {
    "id": "sm90_static_2x1x1",
    "family": "sm90",
    "schedule": "static",
    "source": "kernel_sm90.cu",
    "defines": {},
    "entry": "gemm_sm90",
    "images": {"sm_90a": "build/sm90_static_2x1x1.sm_90a.cubin"},
    "block": [384, 1, 1],
    "cluster": [2, 1, 1],
    "nonportable": False,
    "carveout": "max",
    "dynamic_smem_bytes": "197632",
    "static_smem_bytes": 0,
    "tmem_columns": 0,
    "registers": 168,
    "grid_blocks": ["min(max_active_clusters * 2, ceil_div(m, 256) * 2 * ceil_div(n, 128))", "1", "1"],
    "attributes": {"programmatic_stream_serialization": False, "preferred_cluster": None},
    "params": [
        {
            "kind": "tensormap",
            "name": "a",
            "buffer": "A",
            "dtype": "bfloat16",
            "rank": 3,
            "global_dim": ["k", "m", "batch"],
            "global_stride_bytes": ["lda * 2", "batch_stride_a * 2"],
            "box_dim": [64, 128, 1],
            "element_strides": [1, 1, 1],
            "swizzle": "128B",
            "interleave": "none",
            "l2_promotion": "128B",
            "oob_fill": "zero",
        },
        {"kind": "ptr", "name": "d", "buffer": "D", "offset_bytes": "0"},
        {"kind": "i32", "name": "m", "value": "m"},
        {"kind": "f32", "name": "alpha", "value": "alpha"},
        {"kind": "scratch", "name": "tickets", "bytes": "4", "align": 256, "init": "zeros"},
    ],
    "tile": [128, 128, 64],
}
LAUNCH: dict[str, Any] = {
    "schema_version": 1,
    "name": "mlp_up",
    "arguments": [
        {"name": "m", "type": "i64", "min": 0},
        {"name": "lda", "type": "i64"},
        {"name": "alpha", "type": "f32"},
    ],
    "buffers": {
        "A": {"dtype": "bfloat16", "shape": ["batch", "m", "lda"], "role": "in", "align_bytes": 16},
        "D": {"dtype": "bfloat16", "shape": ["batch", "m", "ldd"], "role": "out"},
    },
    "kernels": [KERNEL],
    "sequences": {"sm90_split_k": ["sm90_static_2x1x1"]},
    "ladder": [
        {
            "run": "sm90_static_2x1x1",
            "when": "loadable('sm90_static_2x1x1') and aligned('A', 16) and lda * 2 % 16 == 0",
        }
    ],
}
RESOLVED: dict[str, Any] = {
    "entry": "gemm_sm90",
    "target": "sm_90a",
    "grid_blocks": [4, 1, 1],
    "block": [384, 1, 1],
    "cluster": [2, 1, 1],
    "dynamic_smem_bytes": 197632,
    "params": [{"kind": "ptr", "name": "d", "buffer": "D", "offset_bytes": 0}],
    "buffers": {"D": {"shape": [300, 200], "dtype": "bfloat16", "init": "normal", "seed": 1, "scale": 0.5}},
    "expected": [{"buffer": "D", "formula": "A @ B.T", "bound": "0.004 * abs(A @ B.T) + 1e-6 * (abs(A) @ abs(B).T)"}],
}
EVIDENCE: dict[str, Any] = {
    "schema_version": 1,
    "bundle": "mlp_up",
    "manifest_hash": "0" * 64,
    "devices": [],
    "not_run_reason": "no GPU",
    "gates": [
        {
            "kernel_id": "sm90_static_2x1x1",
            "kernel_hash": "1" * 64,
            "image": "sm_90a",
            "schedule": "static",
            "cluster": [2, 1, 1],
            "gates": [
                {"gate": "rendered", "result": "pass"},
                {"gate": "compiled", "result": "pass", "facts": {"registers": 168}},
                {"gate": "ran", "result": "not_run", "reason": "no GPU"},
            ],
        }
    ],
    "cases": [
        {
            "name": "problem",
            "kernel_id": "sm90_static_2x1x1",
            "rung": "sm90_static_2x1x1",
            "arguments": {"m": 1, "alpha": 1.0},
            "launch": RESOLVED,
            "verdict": "not_run",
        }
    ],
    "verdict": "not_run",
}


@pytest.mark.parametrize("text", [FULL, SHORT, FORCED], ids=["full", "short", "forced"])
def test_problem_samples_load_and_fit_the_schema(text: str) -> None:
    assert parse_problem(text, "sample.yaml").kind == "gemm"
    jsonschema.validate(YAML(typ="safe", pure=True).load(text), problem_schema())


def test_a_resolved_problem_fits_the_schema() -> None:
    document = parse_problem(FORCED, "sample.yaml").model_dump(mode="json", exclude_none=True)
    jsonschema.validate(document, problem_schema())


def test_a_full_problem_sample_states_nothing_but_defaults() -> None:
    stated = parse_problem(FULL, "mlp_up.yaml")
    short = parse_problem("kind: gemm\nm: 8192\nn: 8192\nk: 8192\ntarget: b200\n", "mlp_up.yaml")
    assert isinstance(stated, GemmProblem)
    assert stated == short


SAMPLES = [(Plan, PLAN), (Launch, LAUNCH), (ResolvedLaunch, RESOLVED), (Evidence, EVIDENCE)]


@pytest.mark.parametrize(("model", "document"), SAMPLES, ids=["plan", "launch", "resolved", "evidence"])
def test_record_samples_fit_their_model_and_their_schema(model: type[Record], document: dict[str, Any]) -> None:
    record = model.model_validate(document)
    schema = model.model_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    jsonschema.validate(json.loads(canonical_json(record)), schema)


@pytest.mark.parametrize(("model", "document"), SAMPLES, ids=["plan", "launch", "resolved", "evidence"])
def test_canonical_json_of_a_record_reads_back_to_the_same_text(model: type[Record], document: dict[str, Any]) -> None:
    text = canonical_json(model.model_validate(document))
    assert canonical_json(model.model_validate_json(text)) == text


@pytest.mark.parametrize(("model", "document"), SAMPLES, ids=["plan", "launch", "resolved", "evidence"])
def test_a_record_refuses_a_key_it_does_not_know(model: type[Record], document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="surprise"):
        model.model_validate({**document, "surprise": 1})


def test_canonical_json_keeps_six_significant_digits_and_key_order() -> None:
    plan = Plan.model_validate(PLAN)
    text = canonical_json(plan)
    assert '"waves": 13.8378' in text
    assert text.index('"schema_version"') < text.index('"verdict"') < text.index('"steps"')


def test_a_choice_gives_back_the_candidate_it_was_made_from() -> None:
    choice = Plan.model_validate(PLAN).choices[0]
    c = choice.candidate()
    assert (c.cluster_size, c.schedule, c.work.mma_ctas, c.work.multicast_b) == (2, "clc", 2, 2)
    assert c.cluster_tile == (256, 256)


@pytest.mark.parametrize(
    ("gates", "reached"),
    [
        ([("rendered", "pass"), ("compiled", "pass"), ("ran", "not_run")], "compiled"),
        ([("rendered", "pass"), ("compiled", "fail"), ("ran", "pass")], "rendered"),
        ([("rendered", "pass"), ("compiled", "pass"), ("emulated", "not_run"), ("ran", "pass")], "ran"),
        ([], "planned"),
    ],
)
def test_a_kernel_reaches_the_highest_gate_without_a_failure_below(gates: list[tuple[str, str]], reached: str) -> None:
    document = {**EVIDENCE["gates"][0], "gates": [{"gate": g, "result": r} for g, r in gates]}
    evidence = Evidence.model_validate({**EVIDENCE, "gates": [document]})
    assert evidence.gates[0].reached == reached
