"""What one validation showed stays when the next one uses another device."""

from __future__ import annotations

from typing import Any

from advisor.records.evidence import CaseResult, Chip, Evidence, GateResult, KernelEvidence
from advisor.validation import merged

H200 = Chip(name="NVIDIA H200", compute_capability=(9, 0), uuid_hash="1", driver="580")
OTHER = Chip(name="NVIDIA H200", compute_capability=(9, 0), uuid_hash="2", driver="580")


def row(ptx: str = "p", **gates: str) -> KernelEvidence:
    made = [GateResult(gate="compiled", result="pass", facts={"ptx_sha256": ptx, "cubin_sha256": "c"})]
    for name, result in gates.items():
        made.append(GateResult.model_validate({"gate": name, "result": result, "reason": result, "facts": {}}))
    return KernelEvidence(
        kernel_id="k", kernel_hash="h", image="sm_90a", schedule="static", cluster=(1, 1, 1), gates=made
    )


def case(device: str, name: str = "own_shape", verdict: str = "correct", rung: str = "k") -> CaseResult:
    return CaseResult.model_validate(
        {"name": name, "kernel_id": rung, "rung": rung, "device": device, "arguments": {}, "launch": None}
        | {"verdict": verdict}
    )


def evidence(devices: list[str], rows: list[KernelEvidence], cases: list[CaseResult], **more: Any) -> Evidence:
    return Evidence.model_validate(
        {"bundle": "b", "manifest_hash": "m", "devices": devices, "gates": rows, "cases": cases, "verdict": "pass"}
        | more
    )


GPU = evidence(["cuda"], [row(ran="pass")], [case("cuda")], chip=H200)
EMULATED = evidence(
    ["emulator"], [row(emulated="pass", ran="not_run")], [case("emulator")], not_run_reason="no GPU at hand"
)


def gates_of(found: Evidence) -> dict[str, str]:
    return {each.gate: each.result for each in found.gates[0].gates}


def test_gpu_and_emulator_do_not_erase_one_another_in_either_order() -> None:
    for found in (merged(GPU, EMULATED), merged(EMULATED, GPU)):
        assert gates_of(found) == {"compiled": "pass", "emulated": "pass", "ran": "pass"}
        assert [each.gate for each in found.gates[0].gates] == ["compiled", "emulated", "ran"]
        assert found.gates[0].reached == "ran"
        assert sorted(each.device for each in found.cases) == ["cuda", "emulator"]
        assert (found.devices, found.chip, found.not_run_reason) == (["cuda", "emulator"], H200, None)
        assert found.verdict == "pass"


def test_a_failure_on_one_device_stays_until_that_device_ran_again() -> None:
    failed = evidence(["cuda"], [row(ran="fail")], [case("cuda", verdict="mismatch")], chip=H200, verdict="fail")
    assert merged(failed, EMULATED).verdict == "fail"
    assert merged(EMULATED, failed).verdict == "fail"
    assert merged(merged(failed, EMULATED), GPU).verdict == "pass"


def test_the_same_device_replaces_its_own_cases_of_a_rung() -> None:
    again = evidence(["emulator"], [row(emulated="pass")], [case("emulator", "k_deep")])
    assert [each.name for each in merged(EMULATED, again).cases] == ["k_deep"]
    elsewhere = evidence(["emulator"], [row(emulated="pass")], [case("emulator", rung="other")])
    assert [each.rung for each in merged(EMULATED, elsewhere).cases] == ["other", "k"]


def test_evidence_of_other_sources_or_of_images_that_were_built_again_counts_for_nothing() -> None:
    other = EMULATED.model_copy(update={"manifest_hash": "n"})
    assert merged(other, GPU) == GPU
    rebuilt = evidence(["cuda"], [row("q", ran="pass")], [case("cuda")], chip=H200)
    assert merged(EMULATED, rebuilt) == rebuilt
    assert merged(None, GPU) == GPU


def test_what_another_gpu_showed_makes_way_and_what_the_emulator_showed_stays() -> None:
    newer = evidence(["cuda"], [row(ran="not_run")], [], chip=OTHER, verdict="not_run")
    found = merged(merged(GPU, EMULATED), newer)
    assert gates_of(found) == {"compiled": "pass", "emulated": "pass", "ran": "not_run"}
    assert [each.device for each in found.cases] == ["emulator"]
    assert found.chip == OTHER


def test_an_experiment_that_did_not_run_does_not_replace_one_that_did() -> None:
    measured = GPU.model_copy(update={"experiment": {"name": "ab", "verdict": "confirms"}})
    asked = EMULATED.model_copy(update={"experiment": {"name": "ab", "verdict": "not_run"}})
    assert merged(measured, asked).experiment == measured.experiment
    assert merged(asked, measured).experiment == measured.experiment
    assert merged(EMULATED, asked).experiment == asked.experiment


def test_a_twin_that_only_the_gpu_run_built_stays() -> None:
    twin = row(ran="pass").model_copy(update={"kernel_id": "k_traced", "twin_of": "k"})
    older = GPU.model_copy(update={"gates": [*GPU.gates, twin]})
    assert [each.kernel_id for each in merged(older, EMULATED).gates] == ["k", "k_traced"]
