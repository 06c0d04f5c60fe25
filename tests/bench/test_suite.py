"""Suites: the shipped ones, and what is refused with which line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.bench.suite import default_name, load_suite
from advisor.errors import AdvisorError

ROOT = Path(__file__).parent.parent.parent
SUITES = sorted((ROOT / "benchmarks" / "suites").glob("*.yaml"))


@pytest.mark.parametrize("path", SUITES, ids=lambda each: each.stem)
def test_a_shipped_suite_loads_and_every_problem_has_a_name_of_its_own(path: Path) -> None:
    suite = load_suite(path)
    assert suite.name == path.stem
    assert suite.items
    assert len({each.name for each in suite.items}) == len(suite.items)
    assert all(each.problem.name == each.name for each in suite.items)


def test_the_twenty_shapes_are_those_of_the_library_baseline() -> None:
    rows = json.loads((ROOT / "tests/data/h200_library_baseline.json").read_text())["gemm"]
    shapes = [
        (each.problem.m, each.problem.n, each.problem.k) for each in load_suite(SUITES[0].with_stem("shapes20")).items
    ]
    assert shapes == [(row["M"], row["N"], row["K"]) for row in rows]


def test_the_random_shapes_are_what_their_seed_draws() -> None:
    drawn = subprocess.run([sys.executable, ROOT / "benchmarks/draw.py"], capture_output=True, text=True, check=True)
    path = SUITES[0].with_stem("random")
    assert drawn.stdout == path.read_text()
    suite = load_suite(path)
    assert len(suite.items) == 40
    extents = [extent for each in suite.items for extent in (each.problem.m, each.problem.n, each.problem.k)]
    assert min(extents) >= 64
    assert max(extents) <= 16384
    odd = [each for each in suite.items if each.problem.k % 8 or each.problem.n % 8]
    assert len(odd) >= 10
    assert all(
        matrix.ld % 8 == 0 for each in suite.items for matrix in (each.problem.a, each.problem.b, each.problem.d)
    )


def test_a_problem_is_called_after_its_whole_numbers() -> None:
    assert default_name({"m": 1, "n": 2, "k": 3, "dtype": "bf16", "beta": 0.5, "flag": True}) == "m1_n2_k3"
    assert default_name({"dtype": "bf16"}) == "problem"


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("problems: []\n", "SUITE_INVALID", 1),
        ("title: x\nproblem: [{m: 1}]\n", "SUITE_INVALID", 2),
        ("compare: [cutlass]\nproblems: [{kind: gemm, m: 1, n: 1, k: 1}]\n", "SUITE_INVALID", 1),
        ("defaults: 3\nproblems: [{kind: gemm, m: 1, n: 1, k: 1}]\n", "SUITE_INVALID", 1),
        ("title: x\nproblems:\n  - {kind: gemm, m: 1, n: 1, k: 1}\n  - 5\n", "SUITE_INVALID", 4),
        (
            "title: x\nproblems:\n  - {kind: gemm, m: 1, n: 1, k: 1}\n  - {kind: gemm, m: 1, n: 1, k: 1}\n",
            "SUITE_INVALID",
            4,
        ),
        ("problems: [{kind: gemm, m: 1, n: 1}]\n", "PROBLEM_MISSING_KEY", None),
        ("problems: [\n", "PROBLEM_SYNTAX", None),
    ],
)
def test_what_is_no_suite_is_refused_with_its_line(tmp_path: Path, text: str, code: str, line: int | None) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    with pytest.raises(AdvisorError) as caught:
        load_suite(path)
    assert caught.value.code == code
    assert caught.value.where is not None
    if line is not None:
        assert caught.value.where.line == line
    if code == "PROBLEM_MISSING_KEY":
        assert "problems.0" in caught.value.where.path
