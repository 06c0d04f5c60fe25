"""The cost model against exhaustive tuning on real B200s, and against libraries measured on an H200."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.machine import load_profile
from advisor.planner.agreement import agreement, compare
from advisor.workflow import TUNED_CHOICES

TABLE = TUNED_CHOICES.read_text()
LARGEST_ERROR, MEDIAN_ERROR = 1.30, 1.12  # predicted over measured time of the picks
RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results"
# Kernels of this project on two H200s, driver 580.159.04: what was launched, and microseconds a launch. Units differ:
# 8192^3 took 1407 us on the cooler one and 1614 to 1645 us on the other, whose times stand here where it ran a kernel.
OWN = {
    "bf16 4096^3": ({"m": 4096, "n": 4096, "k": 4096}, 203.7),
    "bf16 8192^3": ({"m": 8192, "n": 8192, "k": 8192}, 1645.0),
    "fp16 4096^3": ({"m": 4096, "n": 4096, "k": 4096, "dtype": "fp16"}, 191.2),
    "tf32 4096^3": ({"m": 4096, "n": 4096, "k": 4096, "dtype": "tf32"}, 339.4),
    "fp32 output": ({"m": 4096, "n": 4096, "k": 4096, "d": {"dtype": "fp32"}}, 199.8),
    "C": ({"m": 4096, "n": 4096, "k": 4096, "epilogue": {"beta": 1.0}}, 205.0),
    "bias, gelu": ({"m": 4096, "n": 4096, "k": 4096, "epilogue": {"bias": "row", "activation": "gelu"}}, 211.0),
    "C, bias, gelu": (
        {"m": 4096, "n": 4096, "k": 4096, "epilogue": {"beta": 1.0, "bias": "row", "activation": "gelu"}}, 232.0,
    ),
    "16 of 1024^3": ({"m": 1024, "n": 1024, "k": 1024, "batch": 16}, 56.4),
    "1024^3": ({"m": 1024, "n": 1024, "k": 1024, "overrides": {"tile": [128, 64, 64]}}, 6.6),
    "tiles in turn": ({"m": 16384, "n": 16384, "k": 512}, 473.0),
    "decode": (
        {
            "m": 16, "n": 8192, "k": 8192,
            "overrides": {"tile": [64, 16, 64], "cluster": [1, 1, 1], "swap_ab": True},
        },
        35.1,
    ),
    "fp8 8192^3": (
        {
            "m": 8192, "n": 8192, "k": 8192, "dtype": "e4m3", "accumulate": "fast",
            "overrides": {"tile": [128, 256, 128], "cluster": [2, 1, 1]},
        },
        846.5,
    ),
    "portable bf16": ({"m": 8192, "n": 8192, "k": 8192, "overrides": {"kernel": "portable"}}, 2871.0),
    "portable tf32": ({"m": 8192, "n": 8192, "k": 8192, "dtype": "tf32", "overrides": {"kernel": "portable"}}, 5817.0),
    "portable e4m3": ({"m": 8192, "n": 8192, "k": 8192, "dtype": "e4m3", "overrides": {"kernel": "portable"}}, 4562.0),
}  # fmt: skip
SHORT = {"m": 1024, "n": 1024, "k": 4096, "dtype": "e4m3", "accumulate": "fast"}


@pytest.fixture(scope="module")
def shares():
    return {each.dtype: each for each in agreement(TABLE, load_profile("b200"))}


@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_the_cta_pair_agrees_with_tuning(shares, dtype):
    assert shares[dtype].rows == 34
    assert shares[dtype].pair >= 0.88, shares[dtype].differing


@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_the_n_tile_agrees_with_tuning(shares, dtype):
    assert shares[dtype].n_rows >= 25
    assert shares[dtype].n_tile >= 0.70, shares[dtype].differing
    assert shares[dtype].n_near >= 0.85, shares[dtype].differing


@pytest.mark.parametrize("shape", [(1024, 2048, 2048), (2048, 1024, 2048), (256, 8192, 8192), (8192, 256, 8192)])
def test_one_wave_takes_wide_tiles_on_half_of_the_sms(shape):
    """Every SM of a first wave asks for lines that are on their way: bytes decide, though twice the SMs could work."""
    m, n, k = (str(each) for each in shape)
    for dtype in ("bf16", "e5m2"):
        row = {"dtype": dtype, "m": m, "n": n, "k": k, "two_cta": "1", "tile_n": "256", "swap_ab": "0"}
        assert compare(row, load_profile("b200")).picked in ((2, 192), (2, 256)), dtype


@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
@pytest.mark.parametrize("shape", [(8192, 8192, 8192), (2048, 2048, 2048), (4096, 2048, 1024), (64, 8192, 8192)])
def test_an_odd_extent_that_costs_no_tile_changes_no_pick(dtype, shape):
    def picked(m: int, n: int, k: int) -> tuple[int, int]:
        row = {"dtype": dtype, "m": str(m), "n": str(n), "k": str(k), "two_cta": "1", "tile_n": "256", "swap_ab": "0"}
        return compare(row, load_profile("b200")).picked

    m, n, k = shape
    own = picked(m, n, k)
    assert [picked(m - 1, n, k), picked(m, n - 16, k), picked(m - 3, n - 8, k), picked(m, n, k - 16)] == [own] * 4


PUBLISHED = [
    ("bf16", (4096, 4096, 4096), 1532),
    ("bf16", (4096, 8192, 8192), 1652),
    ("bf16", (8192, 8192, 8192), 1610),
    ("e4m3", (1024, 6144, 4096), 2585),
    ("e4m3", (2048, 6144, 4096), 2980),
]  # TFLOP/s of libraries on B200s: advisor/data/published_gemm.csv


@pytest.mark.parametrize(("dtype", "shape", "tflops"), PUBLISHED)
def test_predictions_for_a_b200_lie_near_what_others_published_for_libraries(plan_for, dtype, shape, tflops):
    m, n, k = shape
    prediction = plan_for("b200", m=m, n=n, k=k, dtype=dtype).choice.prediction
    published_us = 2 * m * n * k / tflops / 1e6
    assert prediction.time_us == pytest.approx(published_us, rel=0.10)
    assert prediction.low_us <= published_us <= prediction.high_us


def test_types_that_nothing_was_written_for_agree_as_well(shares):
    for dtype in ("f16", "tf32", "e5m2"):
        assert shares[dtype].pair >= 0.85, dtype
        assert shares[dtype].n_tile >= 0.70, dtype
    assert shares["all"].rows == sum(each.rows for name, each in shares.items() if name != "all")


def test_rows_of_other_types_are_left_out_and_one_type_can_be_asked_for(shares):
    assert "mxfp4" not in shares
    only = agreement(TABLE, load_profile("b200"), ["bf16"])
    assert [each.dtype for each in only] == ["bf16", "all"]


def test_a_table_without_its_columns_is_an_input_error():
    with pytest.raises(InputError) as caught:
        agreement("dtype,m,n\nbf16,1,1\n", load_profile("b200"))
    assert caught.value.code == "AGREEMENT_COLUMNS"


@pytest.mark.parametrize("name", OWN)
def test_what_was_measured_lies_within_what_a_plan_states(plan_for, name):
    document, measured_us = OWN[name]
    prediction = plan_for("h200", **document).choice.prediction
    assert prediction.low_us <= measured_us <= prediction.high_us
    assert prediction.time_us == pytest.approx(measured_us, rel=0.10)


def test_a_cluster_that_lost_on_a_short_launch_is_not_picked(plan_for):
    choice = plan_for("h200", **SHORT).choice
    assert choice.cluster == (1, 1, 1)
    times = {
        cluster: plan_for("h200", **SHORT, overrides={"tile": [64, 128, 128], "cluster": [cluster, 1, 1]})
        for cluster in (1, 2)
    }
    slower = times[2].choice.prediction.time_us / times[1].choice.prediction.time_us
    assert 1.05 < slower < 1.25  # measured: 10.57 against 9.04 us
    long = plan_for("h200", m=128, n=256, k=16384).choice
    assert long.cluster[:2] == (1, 1)  # clusters of 8 and 16 that share loads took 15.1 and 15.9 us, the library 9.5
    assert long.prediction.time_us < 12.0


@pytest.mark.parametrize("size", [4096, 8192])
def test_the_usual_raster_stays_where_bytes_do_not_bind(plan_for, size):
    raster = plan_for("h200", m=size, n=size, k=size).choice.work.raster
    assert (raster.order, raster.group) == ("along_n", 8)


def test_predicted_times_are_within_the_stated_factor_of_measured_ones():
    from advisor.bench.results import read_results
    from advisor.kinds import workload
    from advisor.problem.gemm import GemmProblem

    factors = []
    suites = [read_results(RESULTS / f"h200_{each}.json") for each in ("shapes20", "decode", "fp8")]
    for row in (problem for each in suites for problem in each.problems):
        problem = GemmProblem.model_validate(row.problem)
        search = workload(problem).explore(load_profile("h200"), "sm90", forced=True)
        own = {each.candidate.candidate(): each.median_us for each in row.contestants if each.role == "pick"}
        for candidate, measured_us in own.items():
            found = next(i for i in search.time_us.argsort() if search.candidate(int(i)) == candidate)
            ratio = float(search.time_us[found]) / measured_us
            assert 1 / LARGEST_ERROR <= ratio <= LARGEST_ERROR, (row.name, ratio)
            factors.append(max(ratio, 1 / ratio))
    assert len(factors) >= 30
    assert statistics.median(factors) <= MEDIAN_ERROR


@pytest.mark.parametrize("bad", ["-1", "", "0", "x", "9" * 5000, "2147483648"])
def test_a_row_with_no_valid_number_is_refused_with_its_line(bad: str) -> None:
    table = f"dtype,m,n,k,two_cta,tile_n,swap_ab\nbf16,512,512,512,1,128,0\nbf16,{bad},512,512,1,128,0\n"
    with pytest.raises(InputError, match="line 3") as caught:
        agreement(table, load_profile("b200"))
    assert caught.value.code == "AGREEMENT_VALUE"
