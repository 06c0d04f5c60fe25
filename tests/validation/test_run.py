"""`validate` without a GPU: what it runs, what it concludes, and that a broken kernel costs one named result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from advisor.bundle import BuildUnit, Bundle, read_bundle, units, write_build, write_bundle
from advisor.codegen.render import render_bundle
from advisor.errors import BundleError, InputError, ToolError
from advisor.kinds import workload
from advisor.machine import load_profile
from advisor.machine.profile import DeviceProfile
from advisor.planner import plan
from advisor.problem import parse_problem
from advisor.records.base import canonical_json
from advisor.records.evidence import CaseResult, Chip, Evidence
from advisor.validation import validate
from advisor.validation.assemble import best_target
from advisor.validation.experiment import judge

BACKENDS = Path(__file__).with_name("backends.py")
PROBLEM = """\
kind: gemm
name: small
m: 256
n: 256
k: 256
dtype: bf16
overrides: {schedule: static, cluster: [1, 1, 1]}
"""


@dataclass(frozen=True)
class Info:
    index: int = 0
    name: str = "NVIDIA H200"
    sms: int = 132
    compute_capability: tuple[int, int] = (9, 0)

    def chip(self) -> Chip:
        return Chip(name=self.name, compute_capability=self.compute_capability, uuid_hash="0" * 16, driver="580")


class FakeDevice:
    info = Info()

    def profile(self) -> DeviceProfile:
        return load_profile("h200")


@dataclass(frozen=True)
class FakeImage:
    """What a compiler gives, without one."""

    kernel_hash: str = "hash"
    ptx: str = "ptx"
    cubin: bytes = b"cubin"
    registers: int = 32
    static_smem_bytes: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    ptx_sha256: str = "d9657e50116f295ed2619730493b11018e73fa798b576fffa7f01973aba8d929"
    cubin_sha256: str = "7f0d3463e58fc18af5bd25b8c63d0f1be64fe5a2e5f7c1ea28bd3f9e73d18b95"
    compiler: str = "none"
    cached: bool = False
    sass: Mapping[str, int] = field(default_factory=dict)


def build(rows: list[BuildUnit]) -> list[Any]:
    return [image() for _ in rows]


def image(**changes: Any) -> FakeImage:
    import hashlib

    return FakeImage(cubin_sha256=hashlib.sha256(b"cubin").hexdigest(), **changes)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    problem = parse_problem(PROBLEM, "problem.yaml")
    work = workload(problem)
    profile = load_profile("h200")
    made = plan(
        work, profile, target_name="h200", target_source="profile", rung_profiles={"sm90": profile, "portable": profile}
    )
    rendered = render_bundle(made, work)
    folder = write_bundle(tmp_path_factory.mktemp("bundle") / rendered.name, rendered)
    found = read_bundle(folder)
    write_build(found, {(row.kernel_id, row.target): image() for row in units(found)})
    return found


FEW = ("own_shape", "clusters_one_more", "tile_plus_one", "k_one")


def run(bundle: Bundle, backend: str, **options: Any) -> Evidence:
    values = {"device": FakeDevice(), "build": build, "backend": f"{BACKENDS}:{backend}", **options}
    return validate(bundle, **values)


# Each run starts a handful of processes, so that several tests look at one.


@pytest.fixture(scope="module")
def events() -> list[tuple[str, int, int | None]]:
    return []


@pytest.fixture(scope="module")
def right(bundle: Bundle, events: list[tuple[str, int, int | None]]) -> Evidence:
    """Every kernel right, the choice faster than its alternative."""
    return run(bundle, "Simulated", experiment="ab", progress=lambda *event: events.append(event))


@pytest.fixture(scope="module")
def broken(bundle: Bundle) -> Evidence:
    """One fault of each kind, in different places."""
    return run(bundle, "Broken", cases=FEW)


def no_compiler(_: list[BuildUnit]) -> list[Any]:
    raise ToolError("NVRTC_MISSING", "the CUDA compiler cannot be imported")


@pytest.fixture(scope="module")
def crashing(bundle: Bundle) -> Evidence:
    """The portable kernel takes its process along, the others are not resident, and there is no compiler."""
    return run(bundle, "CrashesAlways", cases=FEW, build=no_compiler, experiment="ab")


def of(evidence: Evidence, rung: str, name: str) -> CaseResult:
    return next(each for each in evidence.cases if each.rung == rung and each.name == name)


def ran(evidence: Evidence, kernel_id: str, target: str) -> str:
    row = next(each for each in evidence.gates if each.kernel_id == kernel_id and each.image == target)
    return row.gates[-1].result


def test_everything_right_passes_with_every_rung_variant_and_twin(
    right: Evidence, events: list[tuple[str, int, int | None]]
) -> None:
    assert right.verdict == "pass"
    assert {each.verdict for each in right.cases} == {"correct"}
    rungs = {each.rung for each in right.cases}
    assert {"sm90_static", "sm90_one_tile", "portable_one_tile", "sm90_ticket"} <= rungs
    assert {"sm90_static_traced", "sm90_ticket_traced", "portable_one_tile_traced"} <= rungs
    assert ran(right, "sm90_static", "sm_90a") == "pass"
    assert ran(right, "portable_one_tile", "sm_90") == "pass"
    assert ran(right, "portable_one_tile", "sm_80") == "not_run"
    assert ran(right, "portable_one_tile", "sm_120") == "not_run"
    counted = [each for each in right.cases if not each.rung.startswith("alternative")]
    assert events[-1][1:] == (len(counted), len(counted))
    json.loads(canonical_json(right))


def test_schedules_of_one_tile_and_k_order_are_compared_bit_for_bit(right: Evidence) -> None:
    assert of(right, "sm90_one_tile", "own_shape").checks["same_bits"] is True
    assert of(right, "sm90_ticket", "own_shape").checks["same_bits"] is True
    assert "same_bits" not in of(right, "portable_one_tile", "own_shape").checks  # sums in another order
    assert of(right, "sm90_ticket_traced", "own_shape").checks["traced_once"] is True


def test_a_traced_twin_has_rows_of_its_own_and_names_its_kernel(right: Evidence) -> None:
    twin = next(each for each in right.gates if each.kernel_id == "sm90_static_traced")
    assert twin.twin_of == "sm90_static"
    shipped = next(each for each in right.gates if each.kernel_id == "sm90_static")
    assert shipped.twin_of is None
    assert shipped.reached == "ran"


def test_only_the_portable_rung_gets_cases_that_tensor_maps_cannot_take(right: Evidence) -> None:
    assert {each.rung for each in right.cases if each.name == "unpadded"} == {"portable_one_tile"}


def test_the_own_shape_is_timed_once_for_each_rung_of_the_ladder(right: Evidence) -> None:
    timed = [(each.rung, each.name) for each in right.cases if each.timing is not None]
    assert sorted(timed) == [(rung, "own_shape") for rung in ("portable_one_tile", "sm90_one_tile", "sm90_static")]


def test_residency_holds_the_formula_beside_the_answer(right: Evidence) -> None:
    row = next(each for each in right.residency if each.kernel_id == "sm90_static")
    assert row.queried == 4
    assert row.predicted > 4


def test_the_experiment_confirms_a_choice_that_is_faster(right: Evidence) -> None:
    found = right.experiment
    assert found is not None
    assert found["verdict"] == "confirms", found
    assert found["ratio"] == pytest.approx(1.2)
    assert found["choice"] == "sm90_static"
    assert any(each.rung.startswith("alternative_") for each in right.cases)


def test_a_wrong_element_fails_its_case_and_its_gate(broken: Evidence) -> None:
    bad = of(broken, "portable_one_tile", "tile_plus_one")
    assert bad.verdict == "mismatch"
    assert bad.checks["within_bound"] is False
    assert bad.worst is not None
    assert bad.worst.index == [0]
    assert ran(broken, "portable_one_tile", "sm_90") == "fail"
    assert ran(broken, "sm90_static", "sm_90a") == "pass"
    assert broken.verdict == "fail"


def test_other_bits_under_another_schedule_fail_although_they_are_within_the_bound(broken: Evidence) -> None:
    bad = of(broken, "sm90_ticket", "own_shape")
    assert bad.verdict == "mismatch"
    assert bad.checks["within_bound"] is True
    assert bad.checks["same_bits"] is False
    assert "sm90_static" in bad.detail


def test_a_hang_is_a_failed_case_with_a_name_and_the_next_cases_run(broken: Evidence) -> None:
    hung = of(broken, "portable_one_tile", "clusters_one_more")
    assert hung.verdict == "deadlock"
    assert "clusters_one_more: launch" in hung.detail
    assert of(broken, "portable_one_tile", "own_shape").verdict == "correct"
    names = [each.name for each in broken.cases if each.rung == "portable_one_tile"]
    assert names.index("tile_plus_one") > names.index("clusters_one_more")


def test_a_fault_of_the_kernel_is_a_launch_error_with_the_drivers_words(broken: Evidence) -> None:
    bad = of(broken, "portable_one_tile", "k_one")
    assert bad.verdict == "launch_error"
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in bad.detail
    assert "KERNEL_FAULT" in bad.detail


def test_a_tile_that_is_computed_twice_fails_its_twin_and_never_the_shipped_kernel(broken: Evidence) -> None:
    assert of(broken, "sm90_static_traced", "own_shape").verdict == "mismatch"
    assert of(broken, "sm90_static", "own_shape").verdict == "correct"
    assert ran(broken, "sm90_static", "sm_90a") == "pass"


def test_a_crashing_process_is_replaced_and_a_rung_that_keeps_crashing_is_left_alone(crashing: Evidence) -> None:
    verdicts = [each.verdict for each in crashing.cases if each.rung == "portable_one_tile"]
    assert verdicts == ["launch_error"] * 3 + ["not_run"]
    assert "SIGSEGV" in of(crashing, "portable_one_tile", "own_shape").detail
    assert of(crashing, "portable_one_tile", "own_shape").timing is None
    assert crashing.verdict == "fail"


def test_a_rung_without_a_resident_cluster_is_not_run_and_says_that_the_ladder_steps_down(crashing: Evidence) -> None:
    assert of(crashing, "sm90_static", "own_shape").verdict == "not_run"
    assert "steps down" in of(crashing, "sm90_static", "own_shape").detail
    assert ran(crashing, "sm90_static", "sm_90a") == "not_run"


def test_without_a_compiler_other_schedules_twins_and_the_experiment_are_named_as_not_run(crashing: Evidence) -> None:
    left_out = crashing.cases[-1]
    assert (left_out.name, left_out.verdict) == ("other_schedules_and_twins", "not_run")
    assert "NVRTC_MISSING" in left_out.detail
    assert not any(each.rung.endswith("_traced") for each in crashing.cases)
    assert crashing.experiment is not None
    assert crashing.experiment["verdict"] == "not_run"
    assert "NVRTC_MISSING" in crashing.experiment["reason"]


# --- without a device, without a build, without a compiler ---------------------------------------------------------


def test_without_a_gpu_everything_that_needs_one_is_not_run_with_the_reason(bundle: Bundle) -> None:
    evidence = validate(bundle, device=None, reason="no NVIDIA driver on this machine")
    assert (evidence.verdict, evidence.devices) == ("not_run", [])
    assert evidence.not_run_reason == "no NVIDIA driver on this machine"
    assert all(row.gates[-1].result == "not_run" for row in evidence.gates)
    assert all(row.reached == "compiled" for row in evidence.gates)


def test_a_spilling_image_fails_its_compiled_gate(bundle: Bundle, tmp_path: Path) -> None:
    from advisor.validation.gates import broken_promises

    kernel = bundle.launch.kernels[0]
    facts = {"spill_bytes": 8, "registers": kernel.registers + 1, "static_smem_bytes": 16}
    words = broken_promises(kernel, facts)
    assert "spills 8 bytes" in words
    assert f"planned are {kernel.registers}" in words
    assert broken_promises(kernel, {"spill_bytes": 0, "registers": 1, "static_smem_bytes": 0}) == ""


def test_a_bundle_that_is_not_built_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / bundle.name
    shutil.copytree(bundle.folder, copy, ignore=shutil.ignore_patterns("build"))
    with pytest.raises(BundleError) as caught:
        validate(read_bundle(copy), device=None)
    assert caught.value.code == "BUILD_MISSING"


def test_an_unknown_experiment_is_refused(bundle: Bundle) -> None:
    with pytest.raises(InputError) as caught:
        validate(bundle, device=None, experiment="cd")
    assert caught.value.code == "EXPERIMENT_UNKNOWN"


def test_the_experiment_on_schedules_runs_beside_the_cases(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.validation import on_gpu, schedule

    backend = f"{BACKENDS.with_name('schedule_backends.py')}:Faithful"

    def here(index: int, profile: DeviceProfile, images: object) -> dict[str, Any]:
        return schedule.experiment(index, profile, lambda _: {}, backend)

    monkeypatch.setattr(on_gpu, "schedule_experiment", here)
    found = run(bundle, "Simulated", cases=FEW, experiment="schedule").experiment
    assert found is not None
    assert found["verdict"] == "confirms"
    assert {row["schedule"] for row in found["rows"]} == {"one_tile", "static", "ticket"}
    without = validate(bundle, device=None, experiment="schedule").experiment
    assert without is not None
    assert (without["name"], without["verdict"]) == ("schedule", "not_run")


def test_a_variant_that_does_not_compile_is_an_error_and_not_a_gap(bundle: Bundle) -> None:
    def fails(_: list[BuildUnit]) -> list[Any]:
        raise ToolError("COMPILE_FAILED", "line 3: expected a ;")

    with pytest.raises(ToolError, match="line 3"):
        run(bundle, "Simulated", build=fails, cases=("own_shape",))


# --- the experiment -------------------------------------------------------------------------------------------------


def test_samples_decide_only_beyond_the_tie_and_the_noise() -> None:
    assert judge([10.0] * 9, [9.9] * 9)["verdict"] == "confirms"  # within 1.5 %
    assert judge([10.0] * 9, [9.0] * 9)["verdict"] == "refutes"
    noisy = judge([10.0, 14.0, 10.0, 14.0, 10.0], [9.6, 13.6, 14.0, 9.6, 9.6])
    assert noisy["verdict"] == "open"
    assert noisy["ratio_low"] < noisy["ratio"] <= noisy["ratio_high"]


def test_the_same_samples_give_the_same_judgement() -> None:
    first, second = [1.0, 1.1, 0.9, 1.2], [1.3, 1.0, 1.1, 1.2]
    assert judge(first, second) == judge(first, second)


# --- images ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "expected"), [((9, 0), "sm_90a"), ((10, 0), "sm_100"), ((8, 6), "sm_80"), ((12, 0), None)]
)
def test_a_device_takes_its_most_specific_image(capability: tuple[int, int], expected: str | None) -> None:
    assert best_target(["sm_80", "sm_90", "sm_90a", "sm_100"], capability) == expected
