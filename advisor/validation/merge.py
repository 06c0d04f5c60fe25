"""Evidence of two runs of one bundle as one: what a GPU showed and what the emulator showed do not erase each other.

Imports `records` and its own room.
"""

from __future__ import annotations

from advisor.records.evidence import CaseResult, Evidence, GateResult, KernelEvidence
from advisor.validation.driver import verdict_of
from advisor.validation.gates import in_order

_ImageKey = tuple[str, str]


def merged(older: Evidence | None, newer: Evidence) -> Evidence:
    """`newer`, and of `older` whatever `newer` did not run again. Evidence of another content of the bundle, or of
    images that were built again to other bytes, counts for nothing; what another GPU showed makes way."""
    if older is None or older.manifest_hash != newer.manifest_hash or _rebuilt(older, newer):
        return newer
    if older.chip is not None and newer.chip is not None and older.chip != newer.chip:
        older = _without_gpu(older)
    known = {_image(row): row for row in older.gates}
    gates = [_joined(known.pop(_image(row), None), row) for row in newer.gates]
    gates += known.values()
    again = {(each.device, each.rung) for each in newer.cases}
    cases = [*newer.cases, *(each for each in older.cases if (each.device, each.rung) not in again)]
    has_gpu = "cuda" in (*older.devices, *newer.devices)
    return newer.model_copy(
        update={
            "devices": [each for each in ("cuda", "emulator") if each in (*older.devices, *newer.devices)],
            "chip": newer.chip or older.chip,
            "not_run_reason": None if has_gpu else newer.not_run_reason,
            "gates": gates,
            "cases": cases,
            "residency": newer.residency or older.residency,
            "experiment": _experiment(older, newer),
            "verdict": verdict_of(gates, cases),
        }
    )


def _image(row: KernelEvidence) -> _ImageKey:
    return row.kernel_id, row.image


def _bytes(row: KernelEvidence) -> tuple[object, ...]:
    facts = row.facts("compiled")
    return row.kernel_hash, facts.get("ptx_sha256"), facts.get("cubin_sha256")


def _rebuilt(older: Evidence, newer: Evidence) -> bool:
    """Another compiler makes other bytes of the same sources."""
    known = {_image(row): _bytes(row) for row in older.gates}
    return any(known.get(_image(row), _bytes(row)) != _bytes(row) for row in newer.gates)


def _without_gpu(evidence: Evidence) -> Evidence:
    gates = [
        row.model_copy(update={"gates": [each for each in row.gates if each.gate != "ran"]}) for row in evidence.gates
    ]
    cases: list[CaseResult] = [each for each in evidence.cases if each.device != "cuda"]
    devices = [each for each in evidence.devices if each != "cuda"]
    changes = {"gates": gates, "cases": cases, "devices": devices, "chip": None, "residency": [], "experiment": None}
    return evidence.model_copy(update=changes)


def _joined(older: KernelEvidence | None, newer: KernelEvidence) -> KernelEvidence:
    if older is None:
        return newer
    gates: dict[str, GateResult] = {each.gate: each for each in older.gates}
    for each in newer.gates:
        known = gates.get(each.gate)
        if known is None or each.result != "not_run" or known.result == "not_run":
            gates[each.gate] = each
    return newer.model_copy(update={"gates": in_order(gates.values())})


def _experiment(older: Evidence, newer: Evidence) -> dict[str, object] | None:
    """One that did not run does not replace one that did."""
    if newer.experiment is None or (newer.experiment.get("verdict") == "not_run" and older.experiment):
        return older.experiment
    return newer.experiment
