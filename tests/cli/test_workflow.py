"""The loop of plan, build, query and plan again, on a device that a test makes up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor import workflow
from advisor.errors import DeviceError, InputError
from advisor.machine import load_profile, max_active_clusters
from advisor.records.base import canonical_json
from advisor.records.candidate import OccupancyKey
from advisor.records.evidence import Chip
from advisor.records.plan import Plan

Answer = Callable[[OccupancyKey], int]


class FakeDevice:
    """An H200 whose residency a test decides. It knows what it was asked, and by which image."""

    def __init__(self, answer: Answer | None = None, cc: tuple[int, int] = (9, 0)) -> None:
        chip = Chip(name="Fake H200", compute_capability=cc, uuid_hash="0" * 16, driver="580.0")
        self.info = SimpleNamespace(
            name=chip.name, compute_capability=cc, driver=chip.driver, index=0, sms=132, chip=lambda: chip
        )
        self.profile_ = load_profile("h200")
        self._answer = answer or (lambda key: max_active_clusters(self.profile_, key))
        self.asked: list[OccupancyKey] = []
        self.images: list[bytes] = []

    def __enter__(self) -> FakeDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def profile(self) -> Any:
        return self.profile_

    def query_residency(self, cubin: bytes, entry: str, key: OccupancyKey) -> tuple[int, dict[str, Any]]:
        self.asked.append(key)
        self.images.append(cubin)
        count = self._answer(key)
        return count, {"max_active_clusters": count, "device": self.info.name, "driver": self.info.driver}


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[workflow.Generated, list[Any]]]:
    """`generate` for target auto on a fake device."""

    def run(device: FakeDevice, extra: str = "") -> tuple[workflow.Generated, list[Any]]:
        from advisor import runtime

        monkeypatch.setattr(runtime, "open_device", lambda index=0: device)
        (tmp_path / "p.yaml").write_text(f"kind: gemm\nm: 2048\nn: 2048\nk: 512\ntarget: auto\n{extra}")
        events: list[Any] = []
        generated = workflow.generate(tmp_path / "p.yaml", output=tmp_path / "out", progress=events.append)
        return generated, events

    return run


def plan_of(generated: workflow.Generated) -> Plan:
    return generated.planned.plan


@pytest.mark.slow
def test_answers_that_agree_with_the_formula_settle_at_once_and_are_in_the_plan(generate: Any) -> None:
    device = FakeDevice()
    generated, events = generate(device)
    plan = plan_of(generated)
    assert plan.target.source == "device"
    assert plan.choices[0].residency.queried is not None
    assert plan.choices[0].residency.derived
    assert sum(isinstance(e, workflow.Started) and e.stage == "query" for e in events) == 1
    assert all(image[:4] == b"\x7fELF" for image in device.images)
    bundle = generated.bundle
    assert bundle is not None
    assert canonical_json(bundle.plan) == canonical_json(plan)


@pytest.mark.slow
def test_fewer_resident_clusters_than_derived_change_the_plan_or_its_numbers(generate: Any) -> None:
    first = plan_of(generate(FakeDevice())[0])
    slow = plan_of(generate(FakeDevice(lambda key: 40 // key.cluster_size))[0])
    assert slow.choices[0].residency.max_active_clusters <= 40
    assert slow.choices[0].prediction.time_us > first.choices[0].prediction.time_us


@pytest.mark.slow
def test_zero_active_clusters_steps_down_and_says_so(generate: Any) -> None:
    def only_single(key: OccupancyKey) -> int:
        return 132 if key.cluster_size == 1 else 0

    generated, _ = generate(FakeDevice(only_single), "overrides: {tile: [128, 128, 64]}\n")
    plan = plan_of(generated)
    assert plan.choices[0].cluster == (1, 1, 1)
    assert plan.verdict != "refuse"


@pytest.mark.slow
def test_a_choice_that_keeps_moving_ends_with_one_that_was_built_and_queried(generate: Any) -> None:
    """Every kernel that is built turns out worse than the formula said, so the planner would move for ever."""
    device = FakeDevice(lambda key: max(1, 6 // key.cluster_size))
    generated, _ = generate(device)
    plan = plan_of(generated)
    assert plan.choices[0].residency.queried is not None
    assert "REPLAN_UNSETTLED" in [each.code for each in plan.findings]
    assert plan.problem["overrides"]["tile"] is None
    assert generated.bundle is not None


@pytest.mark.slow
def test_a_gpu_of_another_compute_capability_answers_for_nothing_it_cannot_own(generate: Any) -> None:
    device = FakeDevice(cc=(8, 0))
    generated, _ = generate(device)
    assert plan_of(generated).choices[0].residency.queried is None
    assert device.asked == []


def test_a_named_target_asks_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor import runtime

    def forbidden(index: int = 0) -> None:
        raise AssertionError("a named target must plan from its profile alone")

    monkeypatch.setattr(runtime, "open_device", forbidden)
    (tmp_path / "p.yaml").write_text("kind: gemm\nm: 64\nn: 64\nk: 64\n")
    planned = workflow.plan_file(tmp_path / "p.yaml", target="h100")
    assert (planned.plan.target.name, planned.plan.target.source) == ("h100", "profile")


def test_target_auto_is_the_gpu_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor import runtime

    monkeypatch.setattr(runtime, "open_device", lambda index=0: FakeDevice())
    (tmp_path / "p.yaml").write_text("kind: gemm\nm: 64\nn: 64\nk: 64\n")
    assert workflow.plan_file(tmp_path / "p.yaml").plan.target.source == "device"
    assert workflow.simulate_file(tmp_path / "p.yaml").planned.plan.target.source == "device"


def test_a_gpu_that_no_profile_describes_is_named_in_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor import runtime

    class Unknown(FakeDevice):
        def profile(self) -> Any:
            raise DeviceError("UNKNOWN_CHIP", "no shipped profile describes it")

    monkeypatch.setattr(runtime, "open_device", lambda index=0: Unknown())
    (tmp_path / "p.yaml").write_text("kind: gemm\nm: 64\nn: 64\nk: 64\n")
    events: list[Any] = []
    planned = workflow.plan_file(tmp_path / "p.yaml", progress=events.append)
    assert planned.plan.target.profile == "b200"
    assert any(isinstance(each, workflow.Noted) and "no shipped profile" in each.message for each in events)


@pytest.mark.parametrize(
    ("target", "sm90", "others"),
    [("b200", "h200", "b200"), ("h100", "h100", "h100"), ("rtx_pro_6000", "h200", "rtx_pro_6000")],
)
def test_each_family_is_planned_for_the_gpu_that_runs_it(target: str, sm90: str, others: str) -> None:
    profiles = workflow.Targeting(target, load_profile(target), "profile").rung_profiles
    assert {family: profile.name for family, profile in profiles.items()} == {
        "sm100": others,
        "sm90": sm90,
        "portable": others,
    }


@pytest.mark.parametrize(
    ("text", "kind", "index", "required", "emulates"),
    [
        ("auto", "auto", 0, False, True),
        ("emulator", "emulator", 0, False, True),
        ("cuda", "cuda", 0, True, False),
        ("cuda:0", "cuda", 0, True, False),
        ("cuda:3", "cuda", 3, True, False),
    ],
)
def test_device_texts(text: str, kind: str, index: int, required: bool, emulates: bool) -> None:
    choice = workflow.parse_device(text)
    assert (choice.kind, choice.index, choice.required, choice.emulates) == (kind, index, required, emulates)


@pytest.mark.parametrize(
    "text", ["", "cuda:", "cuda:-1", "cuda:1.5", "gpu", "CUDA", "cuda:99999", "emulator:1", "auto:1"]
)
def test_other_device_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="device"):
        workflow.parse_device(text)


def test_a_text_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "report.md"
    target.write_text("old")
    with pytest.raises(Exception, match="cannot be written"):
        workflow.write_text(target / "below", "new")
    assert target.read_text() == "old"
    workflow.write_text(target, "new")
    assert target.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["report.md"]


def test_evidence_of_another_manifest_is_not_shown(tmp_path: Path) -> None:
    from advisor.errors import BundleError

    with pytest.raises(BundleError):
        workflow.report_bundle(tmp_path)
