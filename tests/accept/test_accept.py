"""`accept` without a GPU: what each step runs, what it depends on, and that a kernel that hangs, crashes or lies costs
a row of the result and nothing else. The children are real processes, and the watchdog really ends them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.accept import Accepted, drive
from advisor.accept.steps import STEPS, wanted_steps
from advisor.bundle import read_runtime_file
from advisor.errors import BundleError, InputError, OutputError
from advisor.records.acceptance import Acceptance, AcceptedKernel, AcceptedRun, AcceptedStep
from advisor.records.runtime_file import RuntimeFile

pytestmark = pytest.mark.slow

MakeSite = Callable[[str], Any]


@pytest.fixture(scope="module")
def b200(make_site: MakeSite) -> Any:
    return make_site("b200")


@pytest.fixture(scope="module")
def h200(make_site: MakeSite) -> Any:
    return make_site("h200")


def step(accepted: Accepted, name: str) -> AcceptedStep:
    return next(each for each in accepted.acceptance.steps if each.name == name)


def verdicts(accepted: Accepted) -> dict[str, str]:
    return {each.name: each.verdict for each in accepted.acceptance.steps}


def kernel(accepted: Accepted, kernel_id: str, image: str) -> AcceptedKernel:
    return next(k for k in accepted.acceptance.kernels if (k.kernel_id, k.image) == (kernel_id, image))


def wrong(accepted: Accepted) -> list[tuple[str, AcceptedRun]]:
    return [
        (each.name, run)
        for each in accepted.acceptance.steps
        for run in each.runs
        if run.verdict not in ("correct", "not_run")
    ]


# --- everything right ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def right(b200: Any) -> Accepted:
    accepted: Accepted = b200.accept("Right")
    return accepted


def test_every_step_passes_on_a_gpu_that_has_everything(right: Accepted) -> None:
    assert set(verdicts(right).values()) == {"pass"}
    assert right.acceptance.verdict == "pass"
    assert right.exit_status == 0
    assert [each.name for each in right.acceptance.steps] == [each.name for each in STEPS]
    assert right.runtime is None
    assert right.acceptance.switched_off is None


def test_each_step_adds_one_thing(right: Accepted) -> None:
    ran = {each.name: {run.run for run in each.runs} for each in right.acceptance.steps}
    assert ran["one_tile"] == {"sm100_one_tile", "portable_one_tile"}
    assert ran["static"] == {"accept_sm100_static"}  # not in the bundle: built for this step
    assert ran["pairs"] == {"sm100_static_2x1x1", "sm100_one_tile_2x1x1"}
    assert ran["clc_one_wave"] == ran["clc_many_waves"] == {"sm100_clc_2x1x1"}
    everything = ran["one_tile"] | ran["static"] | ran["pairs"] | ran["clc_one_wave"]
    assert ran["busy_sms"] == ran["graphs"] == ran["launches"] == everything


def test_waves_are_told_apart_by_what_is_resident(right: Accepted) -> None:
    assert {run.case for run in step(right, "clc_one_wave").runs} == {"clusters_fewer", "k_deep"}
    assert {run.case for run in step(right, "clc_many_waves").runs} == {"clusters_waves", "own_shape"}


def test_sms_are_held_in_two_numbers(right: Accepted) -> None:
    runs = [run for run in step(right, "busy_sms").runs if run.run == "sm100_clc_2x1x1"]
    assert [run.held_sms for run in runs] == [8, 148 // 3]
    assert {run.case for run in runs} == {"clusters_waves"}


def test_only_what_ran_is_said_to_have_run(right: Accepted) -> None:
    assert kernel(right, "sm100_clc_2x1x1", "sm_100a").result == "pass"
    assert kernel(right, "sm100_clc_2x1x1", "sm_100a").launches == 4 + 4 + 257 + 1001
    assert kernel(right, "sm100_clc_2x1x1", "sm_100f").result == "not_run"
    assert "takes another image" in kernel(right, "sm100_clc_2x1x1", "sm_100f").reason
    assert kernel(right, "sm90_static", "sm_90a").result == "not_run"
    assert "does not load an image for sm_90a" in kernel(right, "sm90_static", "sm_90a").reason
    assert not kernel(right, "accept_sm100_static", "sm_100a").in_bundle


def test_one_file_holds_it_all_and_says_when_it_was_edited(right: Accepted) -> None:
    assert right.path.name == "small.b200.accepted.json"
    assert right.profile is not None
    assert right.profile.read_text() == right.acceptance.profile == "name = 'measured'\n"
    found = Acceptance.model_validate_json(right.path.read_bytes())
    assert found == right.acceptance
    assert found.is_intact
    assert found.calibration == {"images": ["cluster", "common"]}
    assert (found.chip.name, found.chip.driver, found.sms) == ("NVIDIA B200", "580.00", 148)
    document = json.loads(right.path.read_text())
    document["verdict"] = "fail"
    assert not Acceptance.model_validate(document).is_intact


def test_times_are_those_of_the_bundles_own_rungs(right: Accepted) -> None:
    timed = {each.kernel_id for each in right.acceptance.kernels if each.timing is not None}
    assert timed == {"sm100_clc_2x1x1", "sm100_static_2x1x1", "sm100_one_tile", "portable_one_tile"}


def test_the_sister_path_passes_and_says_what_does_not_apply(h200: Any) -> None:
    accepted = h200.accept("Right")
    found = verdicts(accepted)
    assert found.pop("clc_one_wave") == found.pop("clc_many_waves") == "not_applicable"
    assert set(found.values()) == {"pass"}
    assert step(accepted, "clc_one_wave").reason == (
        "Cluster Launch Control exists from compute capability 10.0 on; this GPU has 9.0"
    )
    assert {run.run for run in step(accepted, "pairs").runs} >= {"sm90_static_2x1x1"}


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_clc_that_hangs_is_switched_off_and_nothing_else_is_lost(b200: Any) -> None:
    accepted = b200.accept("ClcHangs", steps="clc_many_waves,graphs")
    try:
        ((name, run),) = wrong(accepted)
        assert (name, run.case, run.verdict) == ("clc_many_waves", "clusters_waves", "deadlock")
        assert "no answer within 1 s while in 'clusters_waves: launch'" in run.detail
        assert step(accepted, "clc_many_waves").verdict == "fail"
        assert step(accepted, "clc_one_wave").verdict == step(accepted, "graphs").verdict == "pass"
        assert {run.run for run in step(accepted, "graphs").runs} >= {"sm100_static_2x1x1", "portable_one_tile"}
        assert "sm100_clc_2x1x1" not in {run.run for run in step(accepted, "graphs").runs}
        assert step(accepted, "graphs").facts["left_out"]["sm100_clc_2x1x1"] == "clusters_waves: deadlock"
        assert kernel(accepted, "sm100_clc_2x1x1", "sm_100a").result == "fail"
        assert kernel(accepted, "sm100_static_2x1x1", "sm_100a").result == "pass"
        assert (accepted.acceptance.verdict, accepted.exit_status) == ("fail", 1)
        off = read_runtime_file(b200.bundle)
        assert off.clc == "off"
        assert off.reason == accepted.acceptance.switched_off
        assert off.reason.startswith("clc_many_waves, sm100_clc_2x1x1, clusters_waves: no answer within 1 s")
        assert accepted.runtime == b200.bundle.folder / "runtime.json"
        again = b200.accept("Right", steps="clc_many_waves")
        assert step(again, "clc_one_wave").verdict == "not_run"
        assert "switched off in runtime.json: clc_many_waves" in step(again, "clc_one_wave").reason
        assert step(again, "clc_many_waves").reason == "needs clc_one_wave, which was not run"
    finally:
        (b200.bundle.folder / "runtime.json").unlink(missing_ok=True)


def test_clc_that_is_wrong_is_switched_off_too(b200: Any) -> None:
    accepted = b200.accept("ClcIsWrong", steps="clc_many_waves")
    try:
        ((_, run),) = wrong(accepted)
        assert run.verdict == "mismatch"
        assert run.checks["exact_integers"] is False
        assert read_runtime_file(b200.bundle).clc == "off"
    finally:
        (b200.bundle.folder / "runtime.json").unlink(missing_ok=True)


def test_a_cluster_kernel_that_hangs_ends_its_own_way_alone(h200: Any) -> None:
    """One launch that hangs for each kernel, not one for each case; steps behind it are not run; CLC stays on."""
    before = _children()
    accepted = h200.accept("PairHangs", steps="clc_many_waves,graphs")
    assert _children() <= before  # whoever hung was ended
    hung = wrong(accepted)
    assert {(name, run.verdict) for name, run in hung} == {("pairs", "deadlock")}
    assert len(hung) == len({run.run for _, run in hung})
    assert step(accepted, "pairs").verdict == "fail"
    assert step(accepted, "clc_one_wave").verdict == "not_run"
    assert step(accepted, "clc_one_wave").reason == "needs pairs, which failed"
    assert step(accepted, "clc_many_waves").reason == "needs clc_one_wave, which was not run"
    assert step(accepted, "graphs").verdict == "pass"
    assert kernel(accepted, "sm90_static_2x1x1", "sm_90a").result == "fail"
    assert kernel(accepted, "sm90_one_tile", "sm_90a").result == "pass"
    assert not (h200.bundle.folder / "runtime.json").exists()
    assert accepted.exit_status == 1


@pytest.mark.parametrize(
    ("backend", "verdict", "words"),
    [
        ("OneTileCrashes", "launch_error", "SIGSEGV"),
        ("PortableFaults", "launch_error", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("TalksGarbage", "launch_error", "what is none of the protocol"),
    ],
)
def test_a_child_that_crashes_faults_or_talks_garbage_is_a_row(
    h200: Any, backend: str, verdict: str, words: str
) -> None:
    accepted = h200.accept(backend, steps="static")
    ((name, run),) = wrong(accepted)
    assert (name, run.run, run.verdict) == ("one_tile", "portable_one_tile", verdict)
    assert words in run.detail
    assert {each.run for each in step(accepted, "one_tile").runs if each.verdict == "correct"} >= {"sm90_one_tile"}
    assert step(accepted, "static").reason == "needs one_tile, which failed"
    assert kernel(accepted, "portable_one_tile", "sm_90").result == "fail"


def test_clusters_that_do_not_fit_are_left_out_and_the_step_is_not_passed(h200: Any) -> None:
    accepted = h200.accept("NothingResident", steps="clc_one_wave,graphs")
    assert step(accepted, "pairs").verdict == "not_run"
    assert "no cluster of sm90_static_2x1x1 is resident here" in step(accepted, "pairs").reason
    assert step(accepted, "graphs").verdict == "pass"
    assert kernel(accepted, "sm90_static_2x1x1", "sm_90a").result == "not_run"


def test_an_image_that_does_not_load_ends_it_at_the_first_step(h200: Any) -> None:
    accepted = h200.accept("DoesNotLoad")
    assert step(accepted, "capability").verdict == "fail"
    assert "the driver is too old" in step(accepted, "capability").reason
    rest = [each for each in accepted.acceptance.steps if each.name != "capability"]
    assert {each.verdict for each in rest} == {"not_run"}
    assert {each.result for each in accepted.acceptance.kernels} == {"not_run"}
    assert accepted.acceptance.verdict == "fail"


def test_a_device_that_does_not_open_is_a_row_too(h200: Any) -> None:
    accepted = h200.accept("NeverOpens", steps="one_tile")
    assert step(accepted, "capability").verdict == "fail"
    assert "the device does not answer any more" in step(accepted, "capability").reason


def test_calibration_may_fail_alone(h200: Any) -> None:
    accepted = h200.accept("CalibrationFails", steps="calibration,one_tile")
    assert step(accepted, "calibration").verdict == "fail"
    assert step(accepted, "one_tile").verdict == "pass"
    assert accepted.profile is None


def test_sms_that_cannot_be_held_say_nothing_of_the_kernel(h200: Any) -> None:
    accepted = h200.accept("NobodyHolds", steps="busy_sms")
    assert step(accepted, "busy_sms").verdict == "not_run"
    assert "3 of 8 CTAs" in step(accepted, "busy_sms").runs[0].detail
    assert kernel(accepted, "portable_one_tile", "sm_90").result == "pass"


def test_clusters_that_find_no_room_beside_held_sms_are_not_run(b200: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "free_clusters", lambda profile, ctas, size, busy: int(size == 1 or busy == 8))
    shown = step(b200.accept("Right", steps="busy_sms"), "busy_sms")
    pairs = [run for run in shown.runs if run.run == "sm100_static_2x1x1"]
    assert [(run.held_sms, run.verdict) for run in pairs] == [(8, "correct"), (148 // 3, "not_run")]
    assert "leave none with 2 SMs free" in pairs[1].detail
    assert shown.verdict == "pass"


def _children() -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


# --- what is asked for -----------------------------------------------------------------------------------------------


def test_a_step_brings_what_it_needs() -> None:
    assert wanted_steps("static") == {"capability", "occupancy", "one_tile", "static"}
    assert wanted_steps("graphs, calibration") == {"capability", "occupancy", "one_tile", "graphs", "calibration"}
    assert wanted_steps(None) == {each.name for each in STEPS}
    with pytest.raises(InputError, match="there is no step 'pair'") as caught:
        wanted_steps("static,pair")
    assert caught.value.code == "ACCEPT_STEP_UNKNOWN"


def test_a_step_needs_one_that_stands_before_it() -> None:
    names = [each.name for each in STEPS]
    assert all(each.needs is None or names.index(each.needs) < names.index(each.name) for each in STEPS)


def test_a_step_that_was_not_asked_for_is_not_run(h200: Any) -> None:
    accepted = h200.accept("Right", steps="capability")
    assert verdicts(accepted)["capability"] == "pass"
    assert {each.reason for each in accepted.acceptance.steps[1:]} == {"not asked for"}
    assert (accepted.acceptance.verdict, accepted.exit_status) == ("not_run", 0)


def test_the_file_is_whole_after_each_step(h200: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the machine: what the steps before it showed is there."""
    from advisor.accept import drive

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(drive.Acceptor, "_one_tile", end)
    with pytest.raises(KeyboardInterrupt):
        h200.accept("Right", output=h200.folder / "interrupted")
    (path,) = (h200.folder / "interrupted").glob("*.accepted.json")
    found = Acceptance.model_validate_json(path.read_bytes())
    assert found.is_intact
    assert [each.verdict for each in found.steps][:4] == ["pass", "pass", "pass", "not_run"]
    assert found.steps[3].reason == "the acceptance ended before this step"


@pytest.mark.parametrize(
    ("options", "code", "kind"),
    [
        ({"device": "emulator"}, "DEVICE_UNKNOWN", InputError),
        ({"device": "gpu"}, "DEVICE_UNKNOWN", InputError),
        ({"timeout_s": 0.1}, "ACCEPT_TIMEOUT", InputError),
        ({"timeout_s": float("nan")}, "ACCEPT_TIMEOUT", InputError),
        ({"steps": ""}, "ACCEPT_STEP_UNKNOWN", InputError),
        ({"output": Path("/dev/null/x")}, "OUTPUT_NOT_WRITABLE", OutputError),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    h200: Any, options: dict[str, Any], code: str, kind: type[InputError]
) -> None:
    with pytest.raises(kind) as caught:
        h200.accept("Right", **options)
    assert (caught.value.code, caught.value.exit_status) == (code, 2)


def test_a_runtime_file_that_cannot_be_read_is_refused(h200: Any) -> None:
    path = h200.bundle.folder / "runtime.json"
    path.write_text('{"schema_version": 1, "clc": "maybe"}')
    try:
        with pytest.raises(BundleError, match="does not say what is switched off"):
            h200.accept("Right", steps="capability")
    finally:
        path.unlink()


def test_a_runtime_file_that_says_on_changes_nothing(b200: Any) -> None:
    path = b200.bundle.folder / "runtime.json"
    path.write_text('{"schema_version": 1, "clc": "on"}')
    try:
        assert read_runtime_file(b200.bundle) == RuntimeFile(clc="on")
        accepted = b200.accept("Right", steps="clc_one_wave")
        assert step(accepted, "clc_one_wave").verdict == "pass"
    finally:
        path.unlink()
