"""A small launch file and a bundle around it, in the shape of contracts.md section 3."""

from __future__ import annotations

import pytest

from advisor.bundle import RenderedBundle, manifest_text
from advisor.records.base import canonical_json
from advisor.records.launch import Launch
from advisor.records.plan import Plan


def sample_launch() -> Launch:
    """Two rungs: a TMA kernel on clusters of two, and a portable kernel that always runs."""
    tensor_map = {
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
    }
    common = {"registers": 168, "tile": [128, 128, 64], "source": "kernel_sm90.cu"}
    return Launch.model_validate(
        {
            "name": "sample",
            "arguments": [
                {"name": "m", "type": "i64", "min": 0, "default": 300},
                {"name": "n", "type": "i64", "min": 0, "default": 200},
                {"name": "k", "type": "i64", "min": 0, "default": 64},
                {"name": "batch", "type": "i64", "min": 0, "default": 1},
                {"name": "lda", "type": "i64", "min": 1, "default": 64},
                {"name": "batch_stride_a", "type": "i64", "min": 0, "default": 19200},
                {"name": "alpha", "type": "f32", "default": 1.0},
            ],
            "buffers": {
                "A": {"dtype": "bfloat16", "shape": ["batch * batch_stride_a"], "role": "in"},
                "D": {"dtype": "bfloat16", "shape": ["m * n"], "role": "out", "align_bytes": 2},
            },
            "kernels": [
                {
                    "id": "sm90_static_2x1x1",
                    "family": "sm90",
                    "schedule": "static",
                    "defines": {"ADVISOR_CLUSTER_X": 2},
                    "entry": "gemm_sm90",
                    "images": {"sm_90a": "build/sm90_static_2x1x1.sm_90a.cubin"},
                    "block": [384, 1, 1],
                    "cluster": [2, 1, 1],
                    "nonportable": False,
                    "dynamic_smem_bytes": "197632",
                    "grid_blocks": [
                        "min(max_active_clusters, ceil_div(m, 256) * ceil_div(n, 128) * batch) * 2",
                        "1",
                        "1",
                    ],
                    "params": [
                        tensor_map,
                        {"kind": "ptr", "name": "d", "buffer": "D", "offset_bytes": "0"},
                        {"kind": "i32", "name": "m", "value": "m"},
                        {"kind": "f32", "name": "alpha", "value": "alpha"},
                        {"kind": "scratch", "name": "tickets", "bytes": "batch * 4", "init": "zeros"},
                    ],
                    **common,
                },
                {
                    "id": "portable_one_tile",
                    "family": "portable",
                    "schedule": "one_tile",
                    "defines": {},
                    "entry": "gemm_portable",
                    "images": {
                        "sm_80": "build/portable_one_tile.sm_80.cubin",
                        "sm_90": "build/portable_one_tile.sm_90.cubin",
                    },
                    "block": [256, 1, 1],
                    "cluster": [1, 1, 1],
                    "nonportable": False,
                    "dynamic_smem_bytes": 49152,
                    "grid_blocks": ["ceil_div(m, 128) * ceil_div(n, 128)", "1", "batch"],
                    "params": [
                        {"kind": "ptr", "name": "a", "buffer": "A"},
                        {"kind": "ptr", "name": "d", "buffer": "D"},
                        {"kind": "i64", "name": "lda", "value": "lda"},
                    ],
                    **common,
                    "source": "kernel_portable.cu",
                },
            ],
            "ladder": [
                {
                    "run": "sm90_static_2x1x1",
                    "when": "loadable('sm90_static_2x1x1') and max_active_clusters('sm90_static_2x1x1') > 0"
                    " and aligned('A', 16) and lda * 2 % 16 == 0",
                },
                {"run": "portable_one_tile", "when": "True"},
            ],
        }
    )


def sample_bundle(comment: str = "") -> RenderedBundle:
    launch = sample_launch()
    plan = Plan.model_validate(
        {
            "problem": {"kind": "gemm", "name": "sample"},
            "target": {"name": "h200", "arch": "sm_90a", "profile": "h200", "source": "profile"},
            "verdict": "plan",
            "conclusion": "A sample.",
            "choices": [],
            "choice": None,
            "steps": [],
        }
    )
    files = {
        "problem.yaml": "kind: gemm\n",
        "plan.json": canonical_json(plan),
        "launch.json": canonical_json(launch),
        "kernel_sm90.cu": f'#include "pipeline.cuh"\n// {comment}\n',
        "kernel_portable.cu": '#include "types.cuh"\n',
        "include/pipeline.cuh": '#include "types.cuh"\n',
        "include/types.cuh": "#pragma once\n",
        "include/unused.cuh": "#pragma once\n",
    }
    files["manifest.json"] = manifest_text("sample", files)
    return RenderedBundle("sample", files, launch, plan)


@pytest.fixture
def launch() -> Launch:
    return sample_launch()


@pytest.fixture
def rendered() -> RenderedBundle:
    return sample_bundle()


@pytest.fixture
def other_rendered() -> RenderedBundle:
    """The same bundle with another source."""
    return sample_bundle("changed")
