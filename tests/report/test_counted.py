"""The table of what can be counted: one example by hand, evidence that is missing, evidence that disagrees."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.records.counts import CountRow
from advisor.records.evidence import Evidence
from advisor.records.plan import Plan
from advisor.report import render_html, render_report
from advisor.report.counted import row_cells
from tests.planner.conftest import make

FIGURE, VALUE, UNIT, FROM, LIMIT, VERDICT = range(6)


def planned(target: str = "b200", **document: Any) -> Plan:
    return make(target, **{"m": 8192, "n": 8192, "k": 8192, "dtype": "bf16", **document})


@pytest.fixture(scope="module")
def gemm() -> Plan:
    return planned()


def row_of(plan: Plan, name: str) -> CountRow:
    assert plan.counts is not None
    return next(each for each in plan.counts.rows if each.name == name)


def cells(plan: Plan, name: str, evidence: Evidence | None = None) -> tuple[Any, ...]:
    assert plan.counts is not None
    return row_cells(row_of(plan, name), plan.counts, evidence, plan.target.arch)


def test_the_figures_of_the_8192_cube_are_those_worked_out_by_hand(gemm: Plan):
    """Tile 128 x 256 x 64 of bf16, pairs, 128 K steps. A 128 x 64 x 2 = 16384 bytes, half of B 128 x 64 x 2 = 16384;
    2 x 128 x 256 x 64 FLOP at 8192 a clock take 512 cycles; D 128 x 256 x 2 = 65536 bytes, written and read."""
    assert gemm.choice is not None
    assert gemm.counts is not None
    assert (gemm.choice.tile.cta, gemm.choice.work.mma_ctas) == ((128, 256, 64), 2)
    value = {each.name: each.value for each in gemm.counts.rows if each.source == "plan"}
    assert value["loaded by a CTA's own copies, a K step"] == 32_768
    assert value["over TMA for one tile of a CTA"] == 32_768 * 128
    assert value["the launch asks the L2 for"] == 64 * 32 * 128 * 32_768
    assert value["read by the MMA"] == value["written by TMA"] == 32_768 / 512
    assert value["the epilogue's way through it"] == 2 * 65_536 / 128 / 512
    assert value["all together, none of it overlapping"] == 64 + 64 + 2
    assert value["MMA instructions of a K step"] == 64 // 16
    assert value["tensor memory read for one tile of a CTA"] == 128 * 256 * 4
    assert value["time of those reads"] == pytest.approx(131_072 / (16e12 / 148 / 1.965e9) + 4 * 420)
    assert value["SMs without a CTA"] == 0
    assert value["waves"] == pytest.approx(1024 / 74)
    peak = 8192 * 148 * 1.965e9 / 1e12
    time_us = gemm.choice.prediction.time_us
    assert value["share of peak, predicted"] == pytest.approx(100 * 2 * 8192**3 / time_us / 1e6 / peak)


def test_each_limit_has_a_verdict(gemm: Plan):
    assert cells(gemm, "read by the MMA")[VERDICT] == "fits"
    assert cells(gemm, "all together, none of it overlapping")[VERDICT].startswith("does not fit if")
    assert cells(gemm, "time of those reads")[LIMIT] == "at most 65,536: the tensor core's time for 128 K steps"
    assert cells(gemm, "time of those reads")[VERDICT] == "hidden under the next tile's MMAs"
    assert "no work is asked for" in cells(gemm, "round trip of a request")[FROM]


def test_an_epilogue_with_one_accumulator_is_not_hidden():
    one = planned(overrides={"schedule": "one_tile"})
    assert cells(one, "time of those reads")[VERDICT] == "not hidden"
    assert "no next main loop" in cells(one, "time of those reads")[LIMIT]


def test_short_tiles_do_not_hide_a_request_and_long_ones_do():
    forced = {"schedule": "clc", "cluster": [2, 1, 1], "tile": [128, 256, 64], "mma_ctas": 2}
    long, short = (planned(k=k, overrides=forced) for k in (8192, 64))
    assert cells(long, "round trip of a try_cancel")[VERDICT].startswith("hidden")
    assert cells(short, "round trip of a try_cancel")[VERDICT].startswith("not hidden")


def test_what_needs_a_build_or_the_emulator_says_so(gemm: Plan):
    assert cells(gemm, "of the MMAs, those of a CTA pair")[VERDICT].endswith("not counted: run advisor validate BUNDLE")
    assert cells(gemm, "multiply-adds of a CTA, a K step")[VERDICT].startswith("not counted: run advisor validate")
    text = render_report(gemm)
    assert "### Counted without the chip" in text
    assert "2,097,152" in text
    assert "Counted without the chip" in render_html(gemm)


def evidence(gemm: Plan, counted: dict[str, Any], sass: dict[str, int]) -> Evidence:
    assert gemm.choice is not None
    return Evidence.model_validate(
        {
            "bundle": "gemm",
            "manifest_hash": "0",
            "verdict": "pass",
            "gates": [
                {
                    "kernel_id": gemm.choice.kernel_id,
                    "kernel_hash": "1" * 64,
                    "image": "sm_100a",
                    "schedule": "static",
                    "cluster": [2, 1, 1],
                    "gates": [
                        {"gate": "compiled", "result": "pass", "facts": {"sass": sass, "ptx": {"tcgen05_mma": 4}}},
                        {"gate": "emulated", "result": "pass", "facts": {"counted": counted, "cases": 5, "runs": 9}},
                    ],
                }
            ],
        }
    )


def test_what_was_counted_as_planned_says_where(gemm: Plan):
    found = evidence(gemm, {"multiply_adds_per_step": 2_097_152}, {"tcgen05_pair_mma": 4, "main_loop_instructions": 50})
    shown = cells(gemm, "multiply-adds of a CTA, a K step", found)
    assert shown[VALUE] == "2,097,152"
    assert shown[FROM] == "emulator: 5 cases in 9 runs of the PTX for sm_100a"
    assert shown[VERDICT] == "as planned"
    assert cells(gemm, "of the MMAs, those of a CTA pair", found)[VERDICT] == "as planned"
    assert cells(gemm, "instructions of the loop that issues them", found)[VERDICT] == "fits"
    assert cells(gemm, "the same in the PTX of the loop", found)[VERDICT] == "as planned"


@pytest.mark.parametrize("wrong", [2_097_152 // 2, [2_097_152, 2_097_280]])
def test_what_was_counted_otherwise_is_not_as_planned(gemm: Plan, wrong: Any):
    found = evidence(gemm, {"multiply_adds_per_step": wrong}, {"tcgen05_mma": 4, "local_memory": 2})
    assert cells(gemm, "multiply-adds of a CTA, a K step", found)[VERDICT] == "not what the plan says"
    assert cells(gemm, "of the MMAs, those of a CTA pair", found)[VERDICT] == "not what the plan says"  # there is none
    assert cells(gemm, "instructions that touch local memory", found)[VERDICT] == "does not fit"


def test_a_sister_kernel_speaks_for_nobody(gemm: Plan):
    found = evidence(gemm, {"multiply_adds_per_step": 2_097_152}, {"tcgen05_pair_mma": 4})
    other = found.gates[0].model_copy(update={"kernel_id": "sm100_one_tile"})
    found = found.model_copy(update={"gates": [other]})
    assert cells(gemm, "multiply-adds of a CTA, a K step", found)[VERDICT].startswith("not counted")


def test_published_figures_are_of_other_kernels_and_comparable(gemm: Plan):
    assert gemm.counts is not None
    assert (gemm.counts.published[0].kernel, gemm.counts.published[0].tflops) == ("cuBLAS", 1610)
    assert all(each.chip in ("B200", "GB200") and each.source for each in gemm.counts.published)
    peak = 8192 * 148 * 1.965e9 / 1e12
    assert gemm.counts.published[0].share_of_peak == pytest.approx(1610 / peak)
    assert "Published for other kernels, measured by their authors on chips of theirs" in render_report(gemm)
    decode = planned(m=1, n=8192, k=8192)
    assert decode.counts is not None
    assert decode.counts.published == []
    assert "No published figure of a comparable kernel" in render_report(decode)
    hopper = planned("h200")
    assert hopper.counts is not None
    assert {each.chip for each in hopper.counts.published} == {"H100"}
