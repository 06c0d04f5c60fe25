"""What an acceptance found, as blocks: the steps, then what is wrong, then the kernels. Imports `records`."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.records.acceptance import Acceptance, AcceptedStep
from advisor.report.blocks import Block, Bullets, Cell, Paragraph, Table, words


def accepted_blocks(accepted: Acceptance) -> list[Block]:
    """One acceptance."""
    return list(_blocks(accepted))


def _blocks(accepted: Acceptance) -> Iterator[Block]:
    chip = accepted.chip
    cc = ".".join(map(str, chip.compute_capability))
    yield Paragraph(
        f"Accepted on {chip.name}, compute capability {cc}, driver {chip.driver}: {words(accepted.verdict)}. "
        "A step that does not apply has shown nothing."
    )
    rows = tuple((step.name, words(step.verdict), *_counts(step), step.title) for step in accepted.steps)
    yield Table(("step", "verdict", "runs", "correct", "launches", "what it is"), rows, f"Steps on {chip.name}")
    reasons = tuple(f"{step.name}: {step.reason}" for step in accepted.steps if step.reason)
    if reasons:
        yield Bullets(reasons)
    wrong = tuple(
        f"{step.name}, {run.run}, {run.case}: {words(run.verdict)}. {run.detail}"
        for step in accepted.steps
        for run in step.runs
        if run.verdict not in ("correct", "not_run")
    )
    if wrong:
        yield Bullets(wrong)
    if accepted.switched_off is not None:
        yield Paragraph(f"Cluster Launch Control is switched off there: {accepted.switched_off}", strong=True)
    kernels = tuple(
        (
            each.kernel_id + ("" if each.in_bundle else " (not in the bundle)"),
            each.image,
            each.kernel_hash[:12],
            words(each.result),
            each.launches,
            None if each.timing is None else each.timing.median_us,
            None if each.timing is None else each.timing.ratio,
        )
        for each in accepted.kernels
        if each.result != "not_run"
    )
    if kernels:
        columns = ("kernel", "image", "kernel hash", "result", "launches", "measured (us)", "of the library")
        yield Table(columns, kernels, f"What ran on {chip.name}")
    if accepted.residency:
        yield Table(
            ("kernel", "cluster size", "predicted", "queried"),
            tuple((r.kernel_id, r.cluster_size, r.predicted, r.queried) for r in accepted.residency),
            f"Resident clusters on {chip.name}, predicted against queried",
        )


def _counts(step: AcceptedStep) -> tuple[Cell, Cell, Cell]:
    ran = [run for run in step.runs if run.verdict != "not_run"]
    if not ran:
        return (None, None, None)
    return (len(ran), sum(run.verdict == "correct" for run in ran), sum(run.launches for run in ran))
