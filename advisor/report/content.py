"""Plan and evidence to blocks: the five outputs, conclusion first.

The plan is the only truth: this module arranges what the records hold, and counts cases; it computes no figure of its
own. Imports `records`, the models of `problem`, the pages of `errors` and the blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor import errors
from advisor.problem import resolved
from advisor.records.acceptance import Acceptance
from advisor.records.candidate import Unit
from advisor.records.evidence import GATES, CaseResult, Evidence, Gate, KernelEvidence, Timing
from advisor.records.plan import PTXAS, Choice, Decision, Plan, Step
from advisor.report.accepted import accepted_blocks
from advisor.report.blocks import (
    Block,
    Bullets,
    Cell,
    Code,
    Heading,
    Paragraph,
    Table,
    cell_text,
    named_numbers,
    words,
)
from advisor.report.counted import counted_blocks

VERDICTS = {
    "plan": "as asked",
    "adjust": "adjusted: not all that was asked for is done, or a lesser kernel does it; the findings say what",
    "fallback": "fallback: the preferred kernel is not rendered or does not run here",
    "refuse": "refused: nothing was rendered",
    "noop": "nothing to launch",
}
EVIDENCE_WORDS = {
    "user": "your data",
    "queried": "queried from a live GPU",
    "measured": "measured",
    "derived": "derived by arithmetic",
    "published": "published",  # by the vendor or by whom the source names
    "assumed": "assumed",
}
GATE_WORDS: dict[Gate, str] = {
    "planned": "planned: arithmetic only",
    "rendered": "rendered: the source exists, it was not compiled",
    "compiled": "compiled: PTX and cubin exist and hold the planned resources, they have not run",
    "emulated": "emulated: the PTX ran on the CPU, right under every policy; it has not run on a GPU",
    "ran": "ran",
}
GATE_FAILED: dict[Gate, str] = {
    "planned": "failed when planned",
    "rendered": "failed when rendered",
    "compiled": "failed when compiled",
    "emulated": "failed in the emulator",
    "ran": "failed on a GPU",
}
PLANNED = "Evidence of the kernel: planned."  # how a conclusion ends that a plan alone can draw


def blocks(plan: Plan, evidence: Evidence | None = None, accepted: Sequence[Acceptance] = ()) -> list[Block]:
    """The whole report. What was `accepted` elsewhere is in the evidence already; here it is shown step by step."""
    return [
        *_conclusion(plan, evidence, accepted),
        *_evidence(plan, evidence),
        *(block for each in accepted for block in accepted_blocks(each)),
        *_artifacts(plan),
        *_validation(plan, evidence),
        *_risks(plan, evidence),
        *_not_verified(plan, evidence),
    ]


def short_blocks(plan: Plan) -> list[Block]:
    """What `plan` prints: the conclusion, what each step decided, the ladder and the findings."""
    decided = tuple(
        (step.step, decision.question, decision.choice, _closest(decision))
        for step in plan.steps
        for decision in step.decisions
    )
    blocks: list[Block] = [*_conclusion(plan, None)]
    if decided:
        blocks.append(Table(("step", "question", "decision", "closest rejected"), decided))
    return [*blocks, *_ladder(plan, None), *_findings(plan)]


def _closest(decision: Decision) -> str:
    """The rejected option with the smallest margin, or none."""
    legal = [(each.margin, each.option) for each in decision.rejected if each.margin is not None]
    return f"{min(legal)[1]} ({_against(min(legal)[0])})" if legal else "-"


def validation_blocks(evidence: Evidence) -> list[Block]:
    """What `validate` prints: gates, residency, and the cases that are not correct or were timed."""
    return [*_gates(evidence), *_cases(evidence, every=False)]


# --- 1. conclusion ------------------------------------------------------------------------------------------------


def _conclusion(plan: Plan, evidence: Evidence | None, accepted: Sequence[Acceptance] = ()) -> Iterator[Block]:
    yield Heading(title(plan), 1)
    yield Heading("1. Conclusion")
    yield Paragraph(_conclusion_text(plan, evidence, accepted), strong=True)
    rows: list[tuple[Cell, ...]] = [("verdict", VERDICTS[plan.verdict]), ("problem", resolved(plan.problem).words)]
    source = "the GPU at hand" if plan.target.source == "device" else "a profile"
    asked = "" if plan.target.name == plan.target.profile else f"; asked for as {plan.target.name}"
    rows.append(("target", f"{plan.target.profile} ({plan.target.arch}), read from {source}{asked}"))
    if plan.choice is not None:
        rows += _choice_rows(plan.choice)
        for chip, timing in _measured(plan.choice, evidence, accepted):
            spread = f"{cell_text(timing.low_us)} to {cell_text(timing.high_us)}"
            rows.append((f"measured on {chip}", f"{cell_text(timing.median_us)} us ({spread})"))
        rows.append(("evidence reached", _reached_text(plan.choice, evidence)))
    yield Table(("what", "value"), tuple(rows))
    serious = [each for each in plan.findings if each.severity != "info"]
    if plan.verdict == "refuse":  # the conclusion and the findings have the reason
        ways_out = tuple(dict.fromkeys(errors.explain(each.code).fix for each in serious if each.severity == "error"))
        yield from (Paragraph(f"What to do: {each}") for each in ways_out)
    elif serious:
        yield Paragraph("What to know before using it:")
        yield Bullets(tuple(f"{each.severity}: {each.message} [{each.code}]" for each in serious))


def title(plan: Plan) -> str:
    """The problem and the GPU that it is planned for; `auto` is the name of none."""
    return f"{plan.problem.get('name', 'problem')} on {plan.target.profile}"


def _conclusion_text(plan: Plan, evidence: Evidence | None, accepted: Sequence[Acceptance]) -> str:
    """The plan's conclusion. With evidence its last words are what the choice reached since, and its measured time:
    what was compiled or emulated has none."""
    if plan.choice is None or evidence is None:
        return plan.conclusion
    found = _reached_text(plan.choice, evidence, short=True)
    times = [f"{cell_text(each.median_us)} us on {chip}" for chip, each in _measured(plan.choice, evidence, accepted)]
    measured = f"measured: {' and '.join(times)}" if times else "no time was measured"
    return plan.conclusion.replace(PLANNED, f"Evidence of the kernel: {found}; {measured}.")


def _measured(choice: Choice, evidence: Evidence | None, accepted: Sequence[Acceptance]) -> list[tuple[str, Timing]]:
    """The times of the problem's own shape, each with the GPU that it was taken on."""
    if evidence is None:
        return []
    cases = [each for each in evidence.cases if each.device == "cuda" and each.rung == choice.kernel_id]
    found = [(evidence.chip.name, each.timing) for each in cases if evidence.chip is not None and each.timing]
    names = (choice.kernel_id, f"{choice.kernel_id}_main")
    for each in accepted:
        kernels = [kernel for kernel in each.kernels if kernel.in_bundle and kernel.kernel_id in names]
        found += [(each.chip.name, kernel.timing) for kernel in kernels if kernel.timing]
    return found


def _choice_rows(choice: Choice) -> list[tuple[Cell, ...]]:
    x, y, z = choice.cluster
    single = x * y * z == 1
    cluster = "none (one CTA)" if single else f"{x} x {y} x {z}"
    extras = choice.work.words()
    candidate = choice.candidate()
    preferred = candidate.work.preferred_cluster
    if preferred is not None:
        cluster = f"{' x '.join(map(str, preferred))} preferred, {cluster} where it has no room"
    fit = choice.residency
    source = "queried" if fit.queried else "derived"
    p = choice.prediction
    return [
        ("kernel", choice.kernel_id),
        ("cluster", cluster + (", non-portable size" if choice.nonportable else "")),
        _tile_row(choice, single),
        ("schedule", choice.schedule.replace("_", " ") + ("; " + ", ".join(extras) if extras else "")),
        ("grid", _grid_text(choice, single)),
        (
            "per CTA",
            f"{choice.threads} threads, {choice.stages} {candidate.unit_words.ring}, "
            f"{cell_text(choice.smem_bytes)} bytes of SMEM",
        ),
        (
            "resident at once",
            f"up to {fit.max_active_clusters} {'CTAs' if single else 'clusters'} on {fit.sms_used} SMs, "
            f"{fit.sms_idle} SMs idle ({source})",
        ),
        (
            "predicted by the model",
            f"{cell_text(p.time_us)} us ({cell_text(p.low_us)} to {cell_text(p.high_us)}), limited by {p.bound}",
        ),
    ]


def _tile_row(choice: Choice, single: bool) -> tuple[Cell, Cell]:
    extents = choice.work.extents
    if single:
        return ("tile per CTA", f"{_extent(choice.tile.cta)} ({extents})")
    return ("tile per CTA, per cluster", f"{_extent(choice.tile.cta)}, {_extent(choice.tile.cluster)} ({extents})")


def _grid_text(choice: Choice, single: bool) -> str:
    blocks = f"{cell_text(choice.grid_blocks)} blocks"
    return blocks if single else f"{blocks} = {cell_text(choice.grid_clusters)} clusters"


def _extent(tile: tuple[int, int, int]) -> str:
    return " x ".join(map(str, tile))


def reached(kernel_id: str, evidence: Evidence | None) -> Gate:
    """The highest rung that any image of the kernel reached. A twin never raises it."""
    if evidence is None:
        return "planned"
    own = [row.reached for row in evidence.gates if _serves(row, kernel_id)]
    return max(own, key=GATES.index, default="planned")


def _serves(row: KernelEvidence, kernel_id: str) -> bool:
    return row.twin_of is None and row.kernel_id in (kernel_id, f"{kernel_id}_main")


def _failures(kernel_id: str, evidence: Evidence | None) -> list[str]:
    """What the kernel failed at, with the cases, one text for all images of which the same is true."""
    images: dict[tuple[Gate, str], list[str]] = {}
    for row in evidence.gates if evidence is not None else ():
        for gate in row.gates:
            if gate.result == "fail" and _serves(row, kernel_id):
                images.setdefault((gate.gate, gate.reason), []).append(row.image)
    return [
        f"{GATE_FAILED[gate]} for {' and '.join(dict.fromkeys(found))}" + (f" ({reason})" if reason else "")
        for (gate, reason), found in images.items()
    ]


def _reached_text(choice: Choice, evidence: Evidence | None, *, short: bool = False) -> str:
    """The rung, and what the kernel failed at: one that failed did run, whatever its rung means alone."""
    failures = _failures(choice.kernel_id, evidence)
    return "; ".join([_rung_text(choice, evidence, short=short or bool(failures)), *failures])


def _rung_text(choice: Choice, evidence: Evidence | None, *, short: bool) -> str:
    gate = reached(choice.kernel_id, evidence)
    if gate == "ran" and evidence is not None:
        rows = [row for row in evidence.gates if _serves(row, choice.kernel_id) and row.reached == "ran"]
        chips = {(facts["chip"], facts["driver"]) for row in rows if "chip" in (facts := row.facts("ran"))}
        if not chips and evidence.chip is not None:
            chips = {(evidence.chip.name, evidence.chip.driver)}
        if chips:
            return "ran on " + " and ".join(f"{chip}, driver {driver}" for chip, driver in sorted(chips))
    return gate if short else GATE_WORDS[gate]


# --- 2. evidence --------------------------------------------------------------------------------------------------


def _evidence(plan: Plan, evidence: Evidence | None) -> Iterator[Block]:
    yield Heading("2. Evidence")
    many = _unit(plan).many
    rows: list[tuple[Cell, ...]] = [("-", EVIDENCE_WORDS["user"], text, "") for text in _user_data(plan)]
    for step in plan.steps:
        for decision in step.decisions:
            for reason in decision.because:
                rows.append(
                    (step.step, EVIDENCE_WORDS[reason.evidence], reason.text, named_numbers(reason.numbers, many))
                )
    if plan.steps:
        order = list(EVIDENCE_WORDS.values())
        rows.sort(key=lambda row: order.index(str(row[1])))
        yield Paragraph("Every reason of the decision, by the kind of evidence behind it.")
        yield Table(("step", "evidence", "reason", "numbers"), tuple(rows))
    else:
        yield Paragraph("No decision was taken, so there are no reasons to list.")
    yield from _machine(plan)
    yield from counted_blocks(plan, evidence)
    if evidence is None:
        if plan.choices:
            yield Paragraph(
                "This report is of the plan alone: every rung stands at planned. `advisor validate` writes what "
                "compiled and what ran into report.validated.md."
            )
        return
    yield from _gates(evidence)


def _user_data(plan: Plan) -> list[str]:
    """What the plan takes from the problem file, beside its defaults."""
    problem = resolved(plan.problem)
    return [problem.words, *(f"{words(name)}: {named_numbers(values)}" for name, values in problem.stated())]


CAPABILITY = "compute_capability"  # a version, not a product
LADDER = "ladder"  # the artifact of step 9: number, kernel, where it runs, when
MACHINE = "machine"  # the artifact of step 1 that the report shows as evidence


def _machine(plan: Plan) -> Iterator[Block]:
    """What the plan takes from the profile, each number with its source."""
    artifact = next((step.artifact for step in plan.steps if MACHINE in step.artifact), None)
    if artifact is None:
        return
    order = list(EVIDENCE_WORDS)
    rows = sorted(artifact[MACHINE]["rows"], key=lambda row: order.index(row[2]))
    rows = [[name, ".".join(map(str, value)) if name == CAPABILITY else value, *rest] for name, value, *rest in rows]
    yield Table(
        ("number", "value", "evidence", "source"),
        tuple((words(name), _value(value), EVIDENCE_WORDS[kind], source) for name, value, kind, source in rows),
        f"What the plan takes from the profile of {plan.choices[0].profile if plan.choices else plan.target.profile}",
    )


def _gates(evidence: Evidence) -> Iterator[Block]:
    if evidence.chip is not None:
        cc = ".".join(map(str, evidence.chip.compute_capability))
        yield Paragraph(f"Validated on {evidence.chip.name}, compute capability {cc}, driver {evidence.chip.driver}.")
    emulated = [row.facts("emulated") for row in evidence.gates if row.facts("emulated").get("runs")]
    if emulated:
        yield Paragraph(_emulated_text(emulated))
    if evidence.not_run_reason:
        before = "No kernel ran on a GPU" if emulated else "Compiled, not run"
        yield Paragraph(f"{before}: {evidence.not_run_reason}")
    rows: list[tuple[Cell, ...]] = []
    met = {gate.gate for row in evidence.gates for gate in row.gates}
    shown = [gate for gate in GATES if gate in met]
    for row in evidence.gates:
        results = {gate.gate: gate.result for gate in row.gates}
        twin = f" (traced twin of {row.twin_of})" if row.twin_of else ""
        cells = tuple(results.get(gate, "-").replace("_", " ") for gate in shown)
        rows.append((row.kernel_id + twin, row.image, row.kernel_hash[:12], *cells))
    if rows:
        yield Table(("kernel", "image", "kernel hash", *shown), tuple(rows), "How far each kernel came")
    failed = [(row, gate) for row in evidence.gates for gate in row.gates if gate.result == "fail"]
    if failed:
        yield Bullets(tuple(f"{row.kernel_id} for {row.image} failed at {g.gate}: {g.reason}" for row, g in failed))
    if emulated:
        columns = ("kernel", "image", "device", "correct", "runs", "PTX as of")
        yield Table(columns, tuple(_emulated_row(row) for row in evidence.gates if row.facts("emulated")), "Emulated")
    compiled = tuple(_compiled_row(row) for row in evidence.gates if row.facts("compiled"))
    if compiled:
        yield Table(
            ("kernel", "image", "compiler", "registers", "static SMEM bytes", "spill bytes", "main loop instructions"),
            compiled,
            "What was compiled",
        )
    if evidence.residency:
        yield Table(
            ("kernel", "cluster size", "predicted", "queried"),
            tuple((r.kernel_id, r.cluster_size, r.predicted, r.queried) for r in evidence.residency),
            "Resident clusters, predicted against queried",
        )


def _emulated_text(emulated: list[dict[str, Any]]) -> str:
    """In which manners the PTX was emulated; what it is no evidence of."""

    def every(name: str) -> str:
        found = {str(value) for facts in emulated for value in facts.get(name, ())}
        return ", ".join(sorted(found))

    clc = f"; Cluster Launch Control: {every('clc_policies')}" if every("clc_policies") else ""
    clc += f"; clusters of two sizes: {_mixes(emulated)}" if every("cluster_mixes") else ""
    smaller = ", and groups that hold the smaller of two cluster sizes alone" if every("cluster_mixes") else ""
    late = any(facts.get("predecessor") == "late" for facts in emulated)
    behind = " Kernels that may start early ran behind one that ends late and writes all they touch." if late else ""
    return (
        f"Emulated: the PTX ran on the CPU with every check, asynchronous work landing {every('async_policies')}{clc}; "
        f"seeds {every('seeds')}. A cut profile has few SMs and the same kinds of SM group{smaller}.{behind}"
    )


def _mixes(emulated: list[dict[str, Any]]) -> str:
    """Which sizes ran under each policy for launches of two: `fill 2 and 4, smaller 2`."""
    found: dict[str, set[int]] = {}
    for facts in emulated:
        for mix, sizes in facts.get("cluster_sizes", {}).items():
            found.setdefault(mix, set()).update(sizes)
    return ", ".join(f"{mix} {' and '.join(map(str, sorted(sizes)))}" for mix, sizes in sorted(found.items()))


def _emulated_row(row: KernelEvidence) -> tuple[Cell, ...]:
    facts = row.facts("emulated")
    device = f"{facts['profile']}, {' + '.join(map(str, facts['sm_groups']))} SMs"
    return (
        row.kernel_id,
        row.image,
        device,
        f"{facts['correct']} of {facts['cases']}",
        facts["runs"],
        facts.get("ptx_of"),
    )


def _compiled_row(row: KernelEvidence) -> tuple[Cell, ...]:
    facts = row.facts("compiled")
    names = ("compiler", "registers", "static_smem_bytes", "spill_bytes")
    loop = (facts.get("sass") or {}).get("main_loop_instructions")
    return (row.kernel_id, row.image, *(facts.get(name) for name in names), loop)


# --- 3. the nine steps --------------------------------------------------------------------------------------------


def _artifacts(plan: Plan) -> Iterator[Block]:
    yield Heading("3. The nine steps")
    if not plan.steps:
        yield Paragraph("The plan ended before the first step.")
    for step in plan.steps:
        yield Heading(f"Step {step.step}: {words(step.name)}", 3)
        for decision in step.decisions:
            yield from _decision(decision)
        yield from _artifact(step, _unit(plan).many)


def _unit(plan: Plan) -> Unit:
    """What the plan's kernel works through, in words."""
    return plan.choice.candidate().unit_words if plan.choice is not None else Unit()


def _decision(decision: Decision) -> Iterator[Block]:
    yield Paragraph(f"{decision.question} {decision.choice}", strong=True)
    if decision.because:
        yield Bullets(tuple(f"{reason.text} ({EVIDENCE_WORDS[reason.evidence]})" for reason in decision.because))
    if decision.rejected:
        rows = tuple(
            (each.option, _against(each.margin), each.reason + (f" [{each.code}]" if each.code else ""))
            for each in decision.rejected
        )
        yield Table(("rejected", "against the choice", "reason"), rows)


def _against(margin: float | None) -> str:
    """An option's predicted time against the choice's. A faster one lost to the tie rule, as its reason says."""
    if margin is None:
        return "not legal"
    if abs(margin) < 0.0005:
        return "as fast"
    return f"{abs(margin):.1%} {'slower' if margin > 0 else 'faster'}"


def _artifact(step: Step, many: str) -> Iterator[Block]:
    """Tables of the artifact under their names; plain facts together in one table before them. `many`: what the tiles
    of a key are called."""
    shown = {name: value for name, value in step.artifact.items() if name != MACHINE}
    tables = {name: value for name, value in shown.items() if _is_table(value)}
    facts = {name: value for name, value in shown.items() if name not in tables}
    if facts:
        rows = tuple((words(name, many), _value(value)) for name, value in facts.items())
        yield Table(("fact", "value"), rows)
    for name, table in tables.items():
        if not table["rows"]:
            continue
        columns = tuple(words(each, many) for each in table["columns"])
        yield Table(columns, tuple(tuple(_value(cell) for cell in row) for row in table["rows"]), words(name))


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and set(value) >= {"columns", "rows"}


def _value(value: object) -> Cell:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, dict):
        return named_numbers(value)
    if isinstance(value, (list, tuple)):
        numeric = all(isinstance(each, (int, float)) for each in value)
        return (" x " if numeric and len(value) <= 3 else ", ").join(str(_value(each)) for each in value)
    return str(value)


# --- 4. minimal validation ----------------------------------------------------------------------------------------


def _validation(plan: Plan, evidence: Evidence | None) -> Iterator[Block]:
    yield Heading("4. Minimal validation")
    if plan.experiment is not None:
        experiment = plan.experiment
        yield Paragraph(experiment.question, strong=True)
        yield Paragraph(f"Hypothesis: {experiment.hypothesis}")
        yield Code(experiment.command.replace("BUNDLE", f"generated/{plan.problem.get('name', 'problem')}"), "sh")
        yield Bullets((f"confirmed if {experiment.confirms_if}", f"refuted if {experiment.refutes_if}"))
        yield Paragraph(
            "What the schedules make of a GPU that other work shares has an experiment of its own: SMs are held while "
            "each schedule runs the same work, and the simulation says first what will come out."
        )
        yield Code(f"advisor validate generated/{plan.problem.get('name', 'problem')} --experiment schedule", "sh")
    else:
        yield Paragraph(
            "There is no other candidate to test the choice against, so no experiment could prove it wrong."
            if plan.choice is not None
            else "There is no choice to test, so no experiment could prove it wrong."
        )
    if plan.alternatives:
        rows = tuple(
            (each.label, each.choice.kernel_id, _against(each.margin), each.choice.prediction.time_us)
            for each in plan.alternatives
        )
        yield Table(("alternative", "kernel", "against the choice", "predicted (us)"), rows, "Runners-up")
    if evidence is not None:
        yield from _cases(evidence)


def _cases(evidence: Evidence, *, every: bool = True) -> Iterator[Block]:
    """All cases; without `every` those alone that are not correct, or were timed."""
    if not evidence.cases:
        yield Paragraph("No case ran.")
        return
    counts = Counter(case.verdict for case in evidence.cases)
    summary = ", ".join(f"{count} {words(verdict)}" for verdict, count in sorted(counts.items()))
    listed = [case for case in evidence.cases if every or case.verdict != "correct" or case.timing is not None]
    where = " `advisor report BUNDLE` lists each." if len(listed) < len(evidence.cases) else ""
    yield Paragraph(f"{len(evidence.cases)} cases: {summary}.{where}")
    for device, caption in (("cuda", "On a GPU"), ("emulator", "In the emulator")):
        cases = [case for case in listed if case.device == device]
        if cases:
            yield _cases_table(cases, caption)
    bad = [case for case in evidence.cases if case.verdict not in ("correct", "not_run")]
    if bad:
        yield Bullets(
            tuple(
                f"{case.name} on {case.kernel_id}, {_where(case)}: {words(case.verdict)}. {case.detail}" for case in bad
            )
        )
    if evidence.experiment:
        plain = {name: value for name, value in evidence.experiment.items() if name != "rows"}
        yield Table(("experiment", "result"), tuple((words(name), _value(value)) for name, value in plain.items()))
        yield from _measured_rows(evidence.experiment.get("rows") or [])


def _measured_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """An experiment of many measurements, each beside its prediction."""
    if rows:
        names = tuple(rows[0])
        cells = tuple(tuple(row[name] for name in names) for row in rows)
        yield Table(tuple(words(name) for name in names), cells, "predicted and measured")


def _cases_table(cases: list[CaseResult], caption: str) -> Table:
    """Times have columns where there are some."""
    timed = any(case.timing is not None for case in cases)
    columns = ("case", "kernel", "image", "verdict", "launches", "worst error / bound")
    rows = tuple(_case_row(case, timed) for case in cases)
    return Table((*columns, "measured (us)", "of the library") if timed else columns, rows, caption)


def _case_row(case: CaseResult, timed: bool) -> tuple[Cell, ...]:
    worst = case.worst
    ratio: Cell = None
    if worst is not None:
        shown = [each if isinstance(each, str) else f"{each:.3g}" for each in (worst.error, worst.bound)]
        ratio = " / ".join(shown)
    row = (case.name, case.kernel_id, case.image or None, words(case.verdict), case.launches, ratio)
    if not timed:
        return row
    timing = case.timing
    return (*row, *((None, None) if timing is None else (timing.median_us, timing.ratio)))


def _where(case: CaseResult) -> str:
    place = "a GPU" if case.device == "cuda" else "the emulator"
    return f"{place}, {case.image}" if case.image else place


# --- 5. risks and fallback ----------------------------------------------------------------------------------------


def _risks(plan: Plan, evidence: Evidence | None) -> Iterator[Block]:
    yield Heading("5. Risks and fallback")
    yield from _ladder(plan, evidence)
    for choice in plan.choices:
        if choice.family != "portable":  # whose kernels launch no clusters
            yield from _residency(choice)
    yield from _findings(plan)


def _ladder(plan: Plan, evidence: Evidence | None) -> Iterator[Block]:
    if plan.choices:
        columns = ("rung", "kernel", "planned for", "predicted (us)", "evidence", "runs when")
        numbers = _rung_numbers(plan)
        rows = tuple(_rung_row(numbers.get(each.kernel_id), each, evidence) for each in plan.choices)
        caption = "The best rung of each kernel family, numbered as in step 9; the first whose condition holds runs"
        yield Table(columns, rows, caption)


def _rung_numbers(plan: Plan) -> dict[str, int]:
    """The number of each kernel in the ladder of step 9: the rungs that a bundle builds."""
    ladders = [step.artifact[LADDER] for step in plan.steps if _is_table(step.artifact.get(LADDER))]
    return {row[1]: row[0] for ladder in ladders for row in ladder["rows"]}


def _findings(plan: Plan) -> Iterator[Block]:
    if plan.findings:
        findings = tuple((each.severity, each.code, each.message) for each in plan.findings)
        yield Table(("severity", "code", "finding"), findings, "Findings")
        yield Paragraph("`advisor explain CODE` prints the page of a code.")


def _rung_row(number: int | None, choice: Choice, evidence: Evidence | None) -> tuple[Cell, ...]:
    found = "; ".join([reached(choice.kernel_id, evidence), *_failures(choice.kernel_id, evidence)])
    return (number, choice.kernel_id, choice.profile, choice.prediction.time_us, found, choice.trigger)


def _residency(choice: Choice) -> Iterator[Block]:
    source = "queried" if choice.residency.queried else "derived"
    rows = tuple(
        (r.cluster_size, r.max_active_clusters, r.sms_used, r.sms_idle, "opt-in" if r.nonportable else "portable")
        for r in choice.residency.by_cluster_size
    )
    if rows:
        caption = f"Residency of {choice.kernel_id} by cluster size ({source})"
        yield Table(("cluster size", "clusters resident", "SMs used", "SMs idle", "size is"), rows, caption)


# --- 6. not verified ----------------------------------------------------------------------------------------------


def _not_verified(plan: Plan, evidence: Evidence | None) -> Iterator[Block]:
    yield Heading("Not verified")
    items = list(plan.not_verified)
    if evidence is not None:
        items = [each for each in items if each != PTXAS] + _ptxas(plan, evidence) + _not_run(evidence)
    if items:
        yield Bullets(tuple(dict.fromkeys(items)))
    else:
        yield Paragraph("Nothing was launched, so nothing is left to verify.")


def _ptxas(plan: Plan, evidence: Evidence) -> list[str]:
    """The kernels of the ladder whose SASS nobody ran."""
    names = [each.kernel_id for each in plan.choices if reached(each.kernel_id, evidence) != "ran"]
    return [f"{PTXAS}: {', '.join(names)}"] if names else []


def _not_run(evidence: Evidence) -> list[str]:
    """One line for each gate and reason, with the images that it holds for."""
    images: dict[tuple[str, str], list[str]] = {}
    for row in evidence.gates:
        for gate in row.gates:
            if gate.result == "not_run" and row.twin_of is None:
                images.setdefault((gate.gate, gate.reason), []).append(f"{row.kernel_id} for {row.image}")
    return [
        f"{', '.join(names)}: not {'run' if gate == 'ran' else gate}, {reason}"
        for (gate, reason), names in images.items()
    ]
