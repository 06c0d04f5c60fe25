"""`bench` and `tune` from the file to the result, on devices that are made up and statistics that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.bench.results import read_results
from advisor.bench.store import Store
from advisor.bench.summary import line, totals
from advisor.errors import DeviceError, InputError
from advisor.measure import BenchOptions, bench_suite, checked_baselines, rewrite_tables, sweep_of, tune_file
from advisor.workflow import Advanced, Event, Noted, plan_file
from tests.bench.conftest import FakeDevice, backend, build

PROBLEM = "kind: gemm\nname: big\nm: 4096\nn: 4096\nk: 4096\ndtype: bf16\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "big.yaml"
    path.write_text(PROBLEM)
    return path


# ---- bench ---------------------------------------------------------------------------------------------------------


def test_a_suite_gives_every_contestant_of_every_problem(gpu: FakeDevice, suite: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    run = bench_suite(suite, output=out, build=build, backend=backend("Noisy"))
    assert [each.name for each in run.problems] == ["m4096_n4096_k4096", "few_rows"]
    for each in run.problems:
        assert [one.role for one in each.contestants] == ["pick", "twin", "library", "copy"]
        assert all(len(one.samples_us) == 10 for one in each.contestants)
        assert each.contestants[0].candidate is not None
        assert each.contestants[0].kernels_sha256 == each.contestants[1].kernels_sha256
        found = line(each)
        assert found.library is not None
        assert found.library.value == pytest.approx(1.0, abs=0.01)
        assert found.twin is not None
        assert found.twin.value == pytest.approx(1.0, abs=0.01)
    assert read_results(out).chip == run.chip
    assert run.command == "advisor bench two --rounds 10"
    assert set(totals([line(each) for each in run.problems])) == {"library", "copy", "twin"}


def test_a_suite_that_is_cut_short_leaves_what_it_has(gpu: FakeDevice, suite: Path, tmp_path: Path) -> None:
    def cut(event: Event) -> None:
        if isinstance(event, Advanced) and event.done == 2:
            raise KeyboardInterrupt

    out = tmp_path / "out.json"
    with pytest.raises(KeyboardInterrupt):
        bench_suite(suite, output=out, build=build, backend=backend("Noisy"), progress=cut)
    assert not out.exists()
    left = read_results(tmp_path / "out.json.partial")
    assert [each.name for each in left.problems] == ["m4096_n4096_k4096"]
    bench_suite(suite, output=out, build=build, backend=backend("Noisy"))
    assert len(read_results(out).problems) == 2
    assert not (tmp_path / "out.json.partial").exists()


def test_a_sweep_sends_varied_rivals_and_finds_the_regret(gpu: FakeDevice, suite: Path) -> None:
    run = bench_suite(suite, options=BenchOptions(sweep=16, only="m4096*"), build=build, backend=backend("FastRival"))
    rivals = run.problems[0].by_role("candidate")
    assert len(rivals) == 16
    assert len({each.candidate for each in rivals}) == 16
    records = [each.candidate for each in rivals if each.candidate is not None]
    assert len({each.tile for each in records}) >= 4
    assert len({each.schedule for each in records}) >= 3
    assert len({each.cluster for each in records}) >= 3
    assert line(run.problems[0]).regret == pytest.approx(100 / 90 - 1, abs=0.02)


@pytest.mark.slow
def test_a_kernel_that_crashes_hangs_faults_or_is_wrong_is_a_row_and_the_others_are_timed(
    gpu: FakeDevice, suite: Path
) -> None:
    run = bench_suite(suite, options=BenchOptions(sweep=8, only="m4096*"), build=build, backend=backend("Crashing"))
    verdicts = {each.name: each.verdict for each in run.problems[0].contestants}
    lost = {name: verdict for name, verdict in verdicts.items() if name.startswith("rival") and verdict != "correct"}
    assert lost == {
        "rival 2": "launch_error",
        "rival 4": "deadlock",
        "rival 5": "launch_error",
        "rival 6": "mismatch",
    }
    assert all(not each.samples_us for each in run.problems[0].contestants if each.name in lost)
    details = {each.name: each.detail for each in run.problems[0].contestants}
    assert "SIGSEGV" in details["rival 2"]
    assert "outside the bound" in details["rival 6"]
    timed = [each for each in run.problems[0].contestants if each.samples_us]
    assert {"pick", "pick twin", "rival 1", "rival 8", "library", "copy"} <= {each.name for each in timed}


def test_a_library_that_crashes_costs_its_own_column_only(gpu: FakeDevice, suite: Path) -> None:
    run = bench_suite(suite, options=BenchOptions(only="few*"), build=build, backend=backend("Library"))
    by_name = {each.name: each for each in run.problems[0].contestants}
    assert by_name["library"].verdict == "launch_error"
    assert by_name["pick"].samples_us
    assert by_name["copy"].samples_us


def test_a_problem_that_cannot_be_measured_is_a_row_with_its_reason(gpu: FakeDevice, suite: Path) -> None:
    run = bench_suite(suite, build=build, backend=backend("Hopeless"))
    assert all("no memory for the copies" in each.not_run for each in run.problems)
    assert all(each.first("pick") is None for each in run.problems)


def test_an_image_that_spills_is_rejected_before_it_runs(gpu: FakeDevice, suite: Path) -> None:
    from dataclasses import replace

    def spilling(rows):  # type: ignore[no-untyped-def]
        return [replace(each, spill_bytes=16) for each in build(rows)]

    run = bench_suite(suite, build=spilling, backend=backend("Noisy"))
    assert all("spills 16 bytes" in each.not_run for each in run.problems)


@pytest.mark.parametrize(
    ("options", "code"),
    [(BenchOptions(rounds=9), "BENCH_ROUNDS"), (BenchOptions(only="nothing"), "SUITE_EMPTY")],
)
def test_what_makes_no_sense_is_refused(gpu: FakeDevice, suite: Path, options: BenchOptions, code: str) -> None:
    with pytest.raises(InputError) as caught:
        bench_suite(suite, options=options, build=build, backend=backend("Noisy"))
    assert caught.value.code == code


def test_without_a_gpu_there_is_no_benchmark(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor import runtime

    def missing(index: int = 0, **_: object) -> None:
        raise DeviceError("NO_DRIVER", "no NVIDIA driver on this machine")

    monkeypatch.setattr(runtime, "open_device", missing)
    with pytest.raises(DeviceError):
        bench_suite(suite, build=build, backend=backend("Noisy"))


def test_words_of_the_command_line_are_checked() -> None:
    assert (sweep_of("all"), sweep_of("16")) == (None, 16)
    assert checked_baselines(["none"]) == ()
    assert checked_baselines(["copy", "library"]) == ("library", "copy")
    assert checked_baselines(None) is None
    for wrong in ("0", "-1", "many", "1.5"):
        with pytest.raises(InputError):
            sweep_of(wrong)
    with pytest.raises(InputError) as caught:
        checked_baselines(["cutlass"])
    assert caught.value.code == "BASELINE_UNKNOWN"


# ---- tune ----------------------------------------------------------------------------------------------------------


def test_a_rival_that_wins_twice_becomes_the_plan(gpu: FakeDevice, problem: Path) -> None:
    found = tune_file(problem, candidates=8, build=build, backend=backend("FastRival"))
    assert found.tuned.changed
    winner = found.tuned.winner
    assert winner is not None
    assert winner.candidate is not None
    assert winner.name == "rival 3"
    choice = found.planned.plan.choice
    assert choice is not None
    assert choice.candidate() == winner.candidate.candidate()
    assert choice.prediction.evidence == "measured"
    assert found.tuned.gain is not None
    assert found.tuned.gain.low > 1.05


@pytest.mark.parametrize("name", ["Noisy", "Tied", "Fluke", pytest.param("Crashing", marks=pytest.mark.slow)])
def test_the_default_stands_unless_it_is_beaten_twice(gpu: FakeDevice, problem: Path, name: str) -> None:
    found = tune_file(problem, candidates=8, build=build, backend=backend(name))
    assert not found.tuned.changed
    assert found.tuned.winner is not None
    assert found.tuned.winner.name == "pick"
    choice = found.planned.plan.choice
    assert choice is not None
    assert found.tuned.winner.candidate is not None
    assert choice.candidate() == found.tuned.winner.candidate.candidate()
    assert (found.tuned.duel is not None) == (name == "Fluke")


def test_a_pick_that_is_wrong_is_said_to_be(gpu: FakeDevice, problem: Path) -> None:
    found = tune_file(problem, candidates=4, build=build, backend=backend("BrokenPick"))
    assert found.tuned.default is None
    assert "outside the bound" in found.tuned.why


# ---- what the store hands to a plan --------------------------------------------------------------------------------


def test_what_was_tuned_is_in_the_next_plan_for_this_gpu_and_in_no_other(
    gpu: FakeDevice, problem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.bench.contest.hash_of", lambda work, each, capability: _hash(work, each))
    found = tune_file(problem, candidates=8, build=build, backend=backend("FastRival"))
    notes: list[str] = []
    again = plan_file(
        problem, target="auto", progress=lambda each: notes.append(each.message) if isinstance(each, Noted) else None
    )
    assert again.plan.choice is not None
    assert found.planned.plan.choice is not None
    assert again.plan.choice.candidate() == found.planned.plan.choice.candidate()
    assert again.plan.choice.prediction.evidence == "measured"
    assert any("measured times of this problem" in each for each in notes)
    named = plan_file(problem, target="h200")
    assert named.plan.choice is not None
    assert named.plan.choice.prediction.evidence == "derived"
    other = problem.with_name("other.yaml")
    other.write_text(PROBLEM.replace("m: 4096", "m: 4224"))
    elsewhere = plan_file(other, target="auto")
    assert elsewhere.plan.choice is not None
    assert elsewhere.plan.choice.prediction.evidence == "derived"


def test_times_of_kernels_that_have_changed_since_are_not_used(
    gpu: FakeDevice, problem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune_file(problem, candidates=8, build=build, backend=backend("FastRival"))
    monkeypatch.setattr("advisor.bench.contest.hash_of", lambda *_: "another")
    again = plan_file(problem, target="auto")
    assert again.plan.choice is not None
    assert again.plan.choice.prediction.evidence == "derived"


def test_a_store_that_is_none_is_said_and_the_plan_is_made_without_it(
    gpu: FakeDevice, problem: Path, tmp_path: Path
) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"this is no database, and far from being one" * 100)
    notes: list[str] = []
    planned = plan_file(
        problem, target="auto", progress=lambda each: notes.append(each.message) if isinstance(each, Noted) else None
    )
    assert planned.plan.choice is not None
    assert any("STORE_UNREADABLE" in each for each in notes)
    with pytest.raises(InputError) as caught:
        Store(tmp_path / "store.sqlite").known({}, gpu.info.chip(), lambda _: None)
    assert caught.value.code == "STORE_UNREADABLE"


def _hash(work, candidate):  # type: ignore[no-untyped-def]
    from advisor.bench.contest import combined
    from advisor.codegen.render import render_candidate

    rendered = render_candidate(work, candidate)
    assert rendered is not None
    wanted = [each for each in rendered.units if each.target == "sm_90a" or candidate.family == "portable"]
    return combined([each.kernel_hash for each in build(wanted)])


# ---- tables --------------------------------------------------------------------------------------------------------


def test_a_marked_block_is_made_again_from_its_results(gpu: FakeDevice, suite: Path, tmp_path: Path) -> None:
    bench_suite(suite, output=tmp_path / "r.json", build=build, backend=backend("Noisy"))
    page = tmp_path / "page.md"
    page.write_text("# T\n\n<!-- advisor tables summary r.json -->\nold\n<!-- advisor tables end -->\n\nafter\n")
    assert rewrite_tables(page)
    text = page.read_text()
    assert "old" not in text
    assert "| two problems | over the library | 2 |" in text
    assert "NVIDIA H200, driver 580.1" in text
    assert text.endswith("<!-- advisor tables end -->\n\nafter\n")
    assert not rewrite_tables(page)


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_the_tables_that_documents_quote_are_those_of_the_results(tmp_path: Path, page: str) -> None:
    root = Path(__file__).parent.parent.parent
    (tmp_path / "benchmarks").symlink_to(root / "benchmarks")
    copy = tmp_path / page
    copy.parent.mkdir(exist_ok=True)
    copy.write_text((root / page).read_text())
    assert not rewrite_tables(copy), "run `make tables`"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("nothing here\n", "TABLES_NONE", "has no block to fill"),
        ("\n<!-- advisor tables summary r.json -->\ntext\n", "TABLES_NONE", "line 2: a block begins and does not end"),
        (
            "<!-- advisor tables summary r.json -->\n" * 2 + "<!-- advisor tables end -->\n",
            "TABLES_NONE",
            "line 1: a block begins and does not end",
        ),
        ("<!-- advisor tables winners r.json -->\n<!-- advisor tables end -->\n", "TABLES_UNKNOWN", "names no table"),
        (
            "<!-- advisor tables summary missing.json -->\n<!-- advisor tables end -->\n",
            "RESULTS_UNREADABLE",
            "missing.json cannot be read: No such file",
        ),
    ],
)
def test_a_block_that_cannot_be_made_is_refused_and_the_page_stays(
    tmp_path: Path, text: str, code: str, words: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(InputError) as caught:
        rewrite_tables(page)
    assert caught.value.code == code
    assert words in caught.value.message
    assert page.read_text() == text
