"""Which gate each (kernel, image) passed: rendered, compiled, emulated, ran. Imports `bundle`, `machine`, `records`.

A traced twin has rows of its own, with `twin_of`: it never raises the kernel that ships.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from advisor.bundle import Bundle
from advisor.machine.features import loadable
from advisor.records.evidence import GATES, CaseResult, Chip, GateResult, KernelEvidence
from advisor.records.launch import Kernel
from advisor.validation.assemble import Built, Row
from advisor.validation.counted import ptx_counts
from advisor.validation.gpu import KernelFacts

_COMPILED = (
    "compiler",
    "registers",
    "static_smem_bytes",
    "spill_bytes",
    "stack_bytes",
    "ptx_sha256",
    "cubin_sha256",
    "sass",
)
_WHERE_THERE = ("ptx",)  # of an image whose PTX lies beside it


def compiled_rows(bundle: Bundle, built: Sequence[Mapping[str, Any]]) -> list[KernelEvidence]:
    """The bundle's images as rendered and compiled; nothing ran yet."""
    kernels = {kernel.id: kernel for kernel in bundle.launch.kernels}
    return [_row(kernels[row["kernel_id"]], row["target"], {**row, **_of_ptx(bundle, row)}, None) for row in built]


def _of_ptx(bundle: Bundle, row: Mapping[str, Any]) -> dict[str, Any]:
    """What the image's PTX holds; nothing where it was taken away: only the cubin is needed to launch."""
    path = bundle.image(row["kernel_id"], row["target"]).with_suffix(".ptx")
    return {"ptx": ptx_counts(path.read_text(encoding="utf-8"))} if path.is_file() else {}


def extra_rows(extras: Iterable[Built], rows: Iterable[Row]) -> list[KernelEvidence]:
    """The same for what validation built itself; twins name the kernel that they are of."""
    twins = {kernel for row in rows if row.kind == "twin" for kernel in row.kernel_ids}
    return [
        _row(
            each.kernel,
            each.target,
            each.facts,
            each.kernel.id.removesuffix("_traced") if each.kernel.id in twins else None,
        )
        for each in extras
    ]


def _row(kernel: Kernel, target: str, facts: Mapping[str, Any], twin_of: str | None) -> KernelEvidence:
    broken = broken_promises(kernel, facts)
    return KernelEvidence(
        kernel_id=kernel.id,
        kernel_hash=facts["kernel_hash"],
        image=target,
        schedule=kernel.schedule,
        cluster=kernel.cluster,
        twin_of=twin_of,
        gates=[
            GateResult(gate="rendered", result="pass", facts={"source": kernel.source}),
            GateResult(
                gate="compiled",
                result="fail" if broken else "pass",
                reason=broken,
                facts={name: facts[name] for name in (*_COMPILED, *(each for each in _WHERE_THERE if each in facts))},
            ),
        ],
    )


def broken_promises(kernel: Kernel, facts: Mapping[str, Any]) -> str:
    """Where a built image breaks what launch.json promises; empty where it keeps all."""
    reasons = []
    if facts["spill_bytes"]:
        reasons.append(f"spills {facts['spill_bytes']} bytes")
    if facts["registers"] > kernel.registers:
        reasons.append(f"takes {facts['registers']} registers a thread, planned are {kernel.registers}")
    if facts["static_smem_bytes"] != kernel.static_smem_bytes:
        reasons.append(
            f"has {facts['static_smem_bytes']} bytes of static shared memory, planned are {kernel.static_smem_bytes}"
        )
    return "; ".join(reasons)


def with_gate(row: KernelEvidence, gate: GateResult) -> KernelEvidence:
    """The row with one more gate. A kernel that two rungs share has what both showed: a failure stays."""
    known = next((each for each in row.gates if each.gate == gate.gate), None)
    kept = [each for each in row.gates if each is not known]
    worse = gate if known is None or _BADNESS[gate.result] >= _BADNESS[known.result] else known
    return row.model_copy(update={"gates": in_order([*kept, worse])})


def in_order(gates: Iterable[GateResult]) -> list[GateResult]:
    """From planned to ran: a failed gate ends what is reached."""
    return sorted(gates, key=lambda each: GATES.index(each.gate))


_BADNESS = {"pass": 0, "not_run": 1, "fail": 2}


def not_run(row: KernelEvidence, reason: str) -> KernelEvidence:
    """The row with the last gate not run."""
    return with_gate(row, GateResult(gate="ran", result="not_run", reason=reason))


def with_ran(
    row: KernelEvidence,
    used_target: str | None,
    facts: KernelFacts | None,
    results: Sequence[CaseResult],
    chip: Chip,
) -> KernelEvidence:
    """The row after its kernel's cases: `results` are those of every run that launches it."""
    if row.image != used_target:
        fits = loadable(row.image, chip.compute_capability)
        why = f"takes the image for {used_target}" if fits else f"does not load an image for {row.image}"
        return not_run(row, f"{chip.name} {why}")
    if facts is not None and not facts.loadable:
        gate = GateResult(gate="ran", result="fail", reason=facts.reason, facts=_chip_facts(chip))
        return with_gate(row, gate)
    ran = [each for each in results if each.verdict != "not_run"]
    if not ran:
        return not_run(row, results[0].detail if results else "no case asks for this kernel here")
    failed = [each for each in ran if each.verdict != "correct"]
    counts: dict[str, Any] = {
        **_chip_facts(chip),
        "cases": len(ran),
        "correct": len(ran) - len(failed),
        "launches": sum(each.launches for each in ran),
    }
    reason = "; ".join(f"{each.name}: {each.verdict}" for each in failed[:4])
    gate = GateResult(gate="ran", result="fail" if failed else "pass", reason=reason, facts=counts)
    return with_gate(row, gate)


def _chip_facts(chip: Chip) -> dict[str, Any]:
    return {"chip": chip.name, "driver": chip.driver, "uuid_hash": chip.uuid_hash}
