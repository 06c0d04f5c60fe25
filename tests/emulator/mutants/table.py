"""The table of mutants, as the documentation has it. Imports its own package."""

from __future__ import annotations

from collections.abc import Sequence

from tests.emulator.mutants.edits import KINDS
from tests.emulator.mutants.runner import WRONG_VALUES, Verdict
from tests.emulator.mutants.survivors import reasons

_HEAD = """# Mutants

A tool of the tests takes a correct kernel and leaves out, or does wrong, one step of its protocol at a time: every
fence, wait, arrival, count of arrivals and bytes, copy or store that brings them, mask, commit, step of Cluster Launch
Control, choice of a CTA of a pair, allocation of tensor memory, and change of the registers of a warpgroup. It runs
each mutant under the policies and a few seeds until the emulator reports something. `make mutants` runs them all and
writes this page; the slow tier of the tests runs a sample of 60.

The kernels are the project's own: matrix products for Hopper (sm90) and for Blackwell (sm100), and row reductions
(rows), dealt out on Hopper and claimed on Blackwell. Beside them stand kernels written in Gluon and compiled by Triton
for Blackwell, and kernels that the package opengemm emits for B200. Each is silent, and its values are right, before a
step of it is changed.

*Reported* are mutants that the emulator names. *Wrong values* are those of which only the expected values of the case
tell, after every policy was silent. *Left* are the others; the last section says why of each.
"""
_TELL = "Only the expected values show these."


def reported(verdicts: Sequence[Verdict]) -> float:
    """The share of mutants that are reported; wrong values count."""
    return sum(bool(each.report) for each in verdicts) / len(verdicts)


def grouped(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """By the group of their kernels, in order."""
    found: dict[str, list[Verdict]] = {}
    for each in verdicts:
        found.setdefault(each.group, []).append(each)
    return found


def table(verdicts: Sequence[Verdict]) -> str:
    kernels = list(dict.fromkeys(each.subject for each in verdicts))
    lines = [_HEAD, f"{len(verdicts)} mutants, {100 * reported(verdicts):.1f} % reported.", "", "## By group", ""]
    lines += _counts("group", list(grouped(verdicts).items()))
    lines += ["", "## By kernel", ""]
    lines += _counts("kernel", [(name, [each for each in verdicts if each.subject == name]) for name in kernels])
    lines += ["", "## By kind of step", ""]
    lines += _counts("kind", [(kind, [each for each in verdicts if each.mutant.kind == kind]) for kind in KINDS])
    told = [each for each in verdicts if each.report == WRONG_VALUES]
    if told:
        lines += ["", "## Wrong values", "", _TELL, ""]
        lines += _rows(["kernel", "mutant", "under"], [[*each.key, each.under] for each in told])
    lines += ["", "## Left, and why", ""]
    for reason in reasons():
        left = [each for each in verdicts if not each.report and reason.explains(each)]
        if not left:
            continue
        lines += [f"**{reason.because.capitalize()}.** {reason.why}", ""]
        lines += _rows(["kernel", "mutant"], [list(each.key) for each in left])
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _counts(name: str, groups: Sequence[tuple[str, Sequence[Verdict]]]) -> list[str]:
    rows = []
    for label, group in groups:
        wrong = sum(each.report == WRONG_VALUES for each in group)
        left = sum(not each.report for each in group)
        if group:
            counts = (len(group), len(group) - wrong - left, wrong, left)
            rows.append([label, *(str(each) for each in counts), f"{100 * reported(group):.1f} %"])
    return _rows([name, "mutants", "reported", "wrong values", "left", "share"], rows)


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(each)} |" for each in (head, ["---"] * len(head), *rows)]
