"""The benchmark on a GPU. Never part of CI: `python -m pytest -m gpu`."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.bench.summary import line
from advisor.measure import BenchOptions, bench_suite, tune_file

SUITES = Path(__file__).parent.parent.parent / "benchmarks" / "suites"

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


def test_decode_is_right_steady_and_within_sight_of_the_library(tmp_path: Path) -> None:
    options = BenchOptions(only="m16_*", sweep=8)
    run = bench_suite(SUITES / "decode.yaml", options=options, store=tmp_path / "store.sqlite")
    for result in run.problems:
        assert {each.verdict for each in result.contestants if each.candidate is not None} == {"correct"}
        found = line(result)
        assert found.twin is not None
        assert found.twin.value == pytest.approx(1.0, abs=0.03)
        assert found.library is not None
        assert found.library.value > 0.5
        assert result.rotated_bytes > 2 * run.method.l2_bytes


def test_tuning_returns_a_kernel_that_is_not_slower_than_the_pick(tmp_path: Path) -> None:
    path = tmp_path / "few.yaml"
    path.write_text("kind: gemm\nm: 16\nn: 7168\nk: 2048\ndtype: bf16\n")
    found = tune_file(path, candidates=8, store=tmp_path / "store.sqlite")
    assert found.tuned.winner is not None
    assert found.tuned.default is not None
    assert found.tuned.winner.median_us is not None
    assert found.tuned.default.median_us is not None
    assert found.tuned.winner.median_us <= 1.02 * found.tuned.default.median_us
