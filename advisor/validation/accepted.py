"""What `advisor accept` found elsewhere, put into the evidence of the very kernels that ran there.

A file is taken as a whole or refused: one that was edited, that is given twice, that is of another bundle or names no
kernel, or that names a kernel of this bundle by other hashes. Imports `bundle`, `records`, `errors` and its own room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from advisor.bundle import Bundle
from advisor.errors import InputError
from advisor.records.acceptance import Acceptance, AcceptedKernel, launch_hash
from advisor.records.evidence import Evidence, GateResult, KernelEvidence
from advisor.validation.driver import verdict_of
from advisor.validation.gates import compiled_rows, in_order, not_run

_MOST_BYTES = 1 << 26


def read_accepted(path: Path) -> Acceptance:
    """Raises InputError: ACCEPTED_UNREADABLE, ACCEPTED_EDITED."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        found = Acceptance.model_validate_json(content)
    except (OSError, ValueError) as error:  # a ValidationError is a ValueError
        why = str(error)
        if isinstance(error, OSError):
            why = error.strerror or why
        elif isinstance(error, ValidationError):
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
        raise InputError(
            "ACCEPTED_UNREADABLE",
            f"{path} is not what advisor accept of this version writes: {why}",
            fix="pass the .accepted.json file that it wrote",
            numbers={"path": str(path)},
        ) from error
    if not found.is_intact:
        raise InputError(
            "ACCEPTED_EDITED",
            f"{path} is not what advisor accept wrote: its content has another hash",
            fix="pass the file as it was written, or run advisor accept again",
            numbers={"path": str(path), "content_sha256": found.content_sha256},
        )
    return found


def with_accepted(
    bundle: Bundle, built: Sequence[Mapping[str, Any]], evidence: Evidence | None, accepted: Sequence[Acceptance]
) -> Evidence:
    """`evidence` with what ran elsewhere. Only a kernel that was launched there is raised, or failed; a failure stays.

    `built` are the rows of build.json. Raises InputError ACCEPTED_DUPLICATE, ACCEPTED_EMPTY, ACCEPTED_OTHER_BUNDLE,
    ACCEPTED_OTHER_KERNEL.
    """
    for each in accepted:
        _check_bundle(bundle, each)
    _check_once(accepted)
    rows = compiled_rows(bundle, built)
    if evidence is None:
        evidence = Evidence(
            bundle=bundle.name,
            manifest_hash=bundle.manifest_hash,
            gates=[not_run(row, _why_not(row, accepted)) for row in rows],
            verdict="not_run",
        )
    known = {(row.kernel_id, row.image): row for row in rows}
    gates = list(evidence.gates)
    for each in accepted:
        _check_hashes(bundle, known, each)
        gates = [_raised(row, each) for row in gates]
    return evidence.model_copy(
        update={
            "gates": gates,
            "not_run_reason": None if any(_launched(each) for each in accepted) else evidence.not_run_reason,
            "verdict": verdict_of(gates, evidence.cases) if evidence.cases else _verdict(gates),
        }
    )


def _check_bundle(bundle: Bundle, accepted: Acceptance) -> None:
    """The file is of this very bundle: kernels serve every size, so another bundle may hold the same ones, and then
    cases and times are of another problem."""
    if accepted.manifest_hash != bundle.manifest_hash:
        raise InputError(
            "ACCEPTED_OTHER_BUNDLE",
            f"what ran on {accepted.chip.name} is the bundle {accepted.bundle} with manifest "
            f"{accepted.manifest_hash[:12]}; this is {bundle.name} with {bundle.manifest_hash[:12]}",
            fix="report the bundle that was accepted, as it was",
            numbers={"accepted": accepted.manifest_hash, "bundle": bundle.manifest_hash, "chip": accepted.chip.name},
        )
    if not accepted.kernels:
        raise InputError(
            "ACCEPTED_EMPTY",
            f"the result of {accepted.chip.name} names no kernel, so it shows nothing of {bundle.name}",
            fix="pass the file of a run that came to its end, or run advisor accept again",
            numbers={"chip": accepted.chip.name},
        )


def _check_once(accepted: Sequence[Acceptance]) -> None:
    """Two files of one GPU that speak of the same image would count its runs twice, or contradict each other."""
    met: dict[tuple[str, str, str], str] = {}
    for each in accepted:
        for kernel in _launched(each):
            key = (each.chip.uuid_hash, kernel.kernel_id, kernel.image)
            if key in met:
                raise InputError(
                    "ACCEPTED_DUPLICATE",
                    f"two files have {kernel.kernel_id} for {kernel.image} on the same {each.chip.name}",
                    fix="pass one of them, the later",
                    numbers={"kernel": kernel.kernel_id, "image": kernel.image, "uuid_hash": each.chip.uuid_hash},
                )
            met[key] = each.content_sha256


def _check_hashes(bundle: Bundle, known: Mapping[tuple[str, str], KernelEvidence], accepted: Acceptance) -> None:
    """Every kernel of the file that the bundle is said to hold is the bundle's own, byte for byte."""
    other = []
    for kernel in accepted.kernels:
        if not kernel.in_bundle:
            continue
        row = known.get((kernel.kernel_id, kernel.image))
        if row is None:
            other.append(f"{kernel.kernel_id} for {kernel.image} (not in this bundle)")
            continue
        ours = {
            "kernel hash": row.kernel_hash,
            "cubin": row.facts("compiled")["cubin_sha256"],
            "launch": launch_hash(bundle.launch.kernel(kernel.kernel_id)),
        }
        theirs = {"kernel hash": kernel.kernel_hash, "cubin": kernel.cubin_sha256, "launch": kernel.launch_sha256}
        differing = [
            f"{name} {theirs[name][:12]}, here {ours[name][:12]}" for name in ours if ours[name] != theirs[name]
        ]
        if differing:
            other.append(f"{kernel.kernel_id} for {kernel.image} ({'; '.join(differing)})")
    if other:
        raise InputError(
            "ACCEPTED_OTHER_KERNEL",
            f"what ran on {accepted.chip.name} is not what {bundle.name} holds: {', '.join(other)}",
            fix="report the bundle that was accepted, as it was",
            numbers={"kernels": other, "chip": accepted.chip.name},
        )


def _launched(accepted: Acceptance) -> list[AcceptedKernel]:
    return [each for each in accepted.kernels if each.in_bundle and each.result != "not_run"]


def _why_not(row: KernelEvidence, accepted: Sequence[Acceptance]) -> str:
    """What the files say of an image that did not run."""
    kernels = [kernel for each in accepted for kernel in each.kernels if kernel.in_bundle and kernel.reason]
    reasons = [k.reason for k in kernels if (k.kernel_id, k.image, k.result) == (row.kernel_id, row.image, "not_run")]
    return "; ".join(dict.fromkeys(reasons)) or "no validation ran on this machine"


def _raised(row: KernelEvidence, accepted: Acceptance) -> KernelEvidence:
    if row.twin_of is not None:
        return row
    found = next((k for k in _launched(accepted) if (k.kernel_id, k.image) == (row.kernel_id, row.image)), None)
    if found is None:
        return row
    before = next((gate for gate in row.gates if gate.gate == "ran"), None)
    if before is not None and before.result == "fail":
        return row
    chip = accepted.chip
    gate = GateResult(
        gate="ran",
        result="pass" if found.result == "pass" else "fail",
        reason=found.reason,
        facts={
            "chip": chip.name,
            "driver": chip.driver,
            "uuid_hash": chip.uuid_hash,
            "cases": found.cases,
            "correct": found.correct,
            "launches": found.launches,
            "accepted": accepted.content_sha256,
        },
    )
    return row.model_copy(update={"gates": in_order([*(each for each in row.gates if each is not before), gate])})


def _verdict(gates: Sequence[KernelEvidence]) -> str:
    """What the gates say where no case of this machine is there to say more."""
    results = [gate.result for row in gates for gate in row.gates if gate.gate == "ran"]
    failed = any(gate.result == "fail" for row in gates for gate in row.gates)
    return "fail" if failed else "pass" if "pass" in results else "not_run"
