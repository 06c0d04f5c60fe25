"""Ratios, regret and predictions out of samples; results on disk."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from advisor.bench.results import (
    BenchRun,
    CandidateRecord,
    Contestant,
    Method,
    ProblemResult,
    read_results,
    write_results,
)
from advisor.bench.summary import geomean, line, lines, predictions, ratio, regrets, total, totals
from advisor.errors import InputError
from advisor.kinds.gemm.work import GemmWork, Raster
from advisor.kinds.row_reduce.work import RowWork
from advisor.records.candidate import Candidate
from advisor.records.evidence import Chip

CANDIDATE = Candidate(
    "sm90", (2, 1, 1), "static", (128, 256, 64), 4, 384, GemmWork(multicast_b=2, raster=Raster("along_m", 16))
)


def contestant(role: Any, samples: list[float], **changes: Any) -> Contestant:
    own = role in ("pick", "twin", "candidate")
    fields: dict[str, Any] = {
        "name": changes.pop("name", role),
        "role": role,
        "label": role,
        "candidate": CandidateRecord.of("gemm", CANDIDATE) if own else None,
        "verdict": "correct" if own else "not_run",
        "samples_us": samples,
        **changes,
    }
    return Contestant(**fields)


def problem(*contestants: Contestant, **changes: Any) -> ProblemResult:
    fields: dict[str, Any] = {
        "name": "p", "problem": {"kind": "gemm", "m": 1}, "arguments": {"m": 1},
        "flops": 2_000_000, "least_bytes": 1_000_000,
        "contestants": list(contestants), **changes,
    }  # fmt: skip
    return ProblemResult(**fields)


def run(*problems: ProblemResult) -> BenchRun:
    return BenchRun(
        suite="s",
        title="a suite",
        suite_sha256="0" * 64,
        command="advisor bench s",
        date="2026-01-01T00:00:00+00:00",
        chip=Chip(name="NVIDIA H200", compute_capability=(9, 0), uuid_hash="0" * 16, driver="580.1"),
        software={"torch": "2.11"},
        method=Method(rounds=10, sample_us=4000.0, l2_bytes=60 * 2**20, rotation_of_l2=2, clocks="NVML"),
        problems=list(problems),
    )


def test_a_ratio_is_of_medians_and_its_interval_holds_it() -> None:
    own, other = (
        contestant("pick", [10.0, 10.2, 9.8, 30.0, 10.0]),
        contestant("library", [12.0, 12.0, 11.9, 12.4, 12.0]),
    )
    found = ratio(other, own)
    assert found is not None
    assert found.value == pytest.approx(1.2)
    assert found.low <= found.value <= found.high
    assert ratio(None, own) is None
    assert ratio(contestant("library", []), own) is None


def test_a_line_has_every_number_that_was_measured_and_none_that_was_not() -> None:
    found = line(
        problem(
            contestant("pick", [10.0] * 10, predicted_us=11.0),
            contestant("twin", [10.1] * 10),
            contestant("candidate", [8.0] * 10, name="rival 1"),
            contestant("candidate", [], name="rival 2", verdict="deadlock"),
            contestant("library", [9.0] * 10),
        )
    )
    assert found.time_us == 10.0
    assert found.tflops == pytest.approx(2_000_000 / 10 / 1e6)
    assert found.bytes_per_s == pytest.approx(1e11)
    assert found.library is not None
    assert found.library.value == pytest.approx(0.9)
    assert found.twin is not None
    assert found.twin.value == pytest.approx(1.01)
    assert found.triton is None
    assert found.best is not None
    assert found.best.name == "rival 1"
    assert found.regret == pytest.approx(0.25)
    assert found.prediction == pytest.approx(1.1)


def test_without_a_rival_there_is_no_regret_and_without_a_pick_nothing() -> None:
    assert line(problem(contestant("pick", [10.0] * 10))).regret is None
    broken = line(problem(contestant("pick", [], verdict="mismatch"), contestant("candidate", [8.0] * 10)))
    assert (broken.pick, broken.time_us, broken.library, broken.regret) == (None, None, None, None)


def test_the_twin_is_no_rival() -> None:
    found = line(problem(contestant("pick", [10.0] * 10), contestant("twin", [9.0] * 10)))
    assert found.regret is None
    assert found.best is not None
    assert found.best.role == "pick"


def test_totals_are_geometric_means_over_what_was_measured() -> None:
    rows = lines(
        run(
            problem(contestant("pick", [10.0] * 10, predicted_us=5.0), contestant("library", [20.0] * 10)),
            problem(contestant("pick", [10.0] * 10, predicted_us=12.0), contestant("library", [5.0] * 10)),
            problem(not_run="no memory"),
        )
    )
    found = totals(rows)
    assert set(found) == {"library"}
    assert (found["library"].count, found["library"].worst, found["library"].best) == (2, 0.5, 2.0)
    assert found["library"].geomean == pytest.approx(1.0)
    assert regrets(rows) is None
    assert predictions(rows) == (pytest.approx(1.6), pytest.approx(2.0))
    assert total([]) is None
    assert geomean([2.0, 8.0]) == pytest.approx(4.0)


def test_results_read_back_as_they_were_and_a_problem_stands_on_a_line(tmp_path: Path) -> None:
    made = run(problem(contestant("pick", [1 / 3, math.pi])), problem(name="q"))
    path = tmp_path / "r.json"
    path.write_text(write_results(made))
    back = read_results(path)
    assert back.problems[0].contestants[0].samples_us == [0.333333, 3.14159]
    assert back.problems[0].contestants[0].candidate == made.problems[0].contestants[0].candidate
    assert write_results(back) == path.read_text()
    assert sum('"name": "p"' in text for text in path.read_text().splitlines()) == 1


def test_a_candidate_comes_back_whole() -> None:
    record = CandidateRecord.of("gemm", CANDIDATE)
    assert record.candidate() == CANDIDATE
    assert record.label == "sm90 static 128x256 cluster 2x1 4 stages raster along_m 16"


def test_a_candidate_of_an_earlier_result_is_read_by_the_kind_of_its_problem() -> None:
    common = {"family": "sm90", "cluster": [2, 1, 1], "schedule": "static", "tile": [128, 256, 64], "stages": 4}
    gemm = {"split_k": 1, "swap_ab": False, "mma_ctas": 1, "raster": ["along_m", 16]}
    assert CandidateRecord.read("gemm", {**common, "threads": 384, **gemm}).candidate() == CANDIDATE
    row = {"row_threads": 256, "vectors": 4, "batch": 2, "ctas_per_sm": 1}
    found = CandidateRecord.read("row_reduce", {**common, "threads": 256, **gemm, "row": row})
    assert found.candidate().work == RowWork(256, 4, 2, 1)
    assert CandidateRecord.read("row_reduce", found.model_dump(mode="json")) == found
    with pytest.raises(ValueError, match="not known"):
        CandidateRecord.read("conv", {**common, "threads": 256})


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 2}', "[1]"])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_results(path)
    assert caught.value.code == "RESULTS_UNREADABLE"
    document = json.loads(write_results(run()))
    document["schema_version"] = 2
    path.write_text(json.dumps(document))
    with pytest.raises(InputError):
        read_results(path)
