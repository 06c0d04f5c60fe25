"""Which forms of tcgen05, Cluster Launch Control, TMA and mbarrier a kernel of another compiler has executed.

    python -m tests.emulator.coverage            # prints the table
    python -m tests.emulator.coverage --write    # into docs/emulator_coverage.md

Runs every case of `tests/emulator/compilers`, and every kernel that opengemm emits for `tests/emulator/peers`, once: a
form counts only where the kernel came out right with nothing to report. What no such kernel has executed is listed as
read from the PTX text alone.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from advisor.emulator import Outcome, Program, load_program
from tests.emulator.compilers.cases_sm90 import SM90
from tests.emulator.compilers.cases_sm100 import SM100
from tests.emulator.compilers.cases_sm120 import SM120
from tests.emulator.compilers.harness import check, compile_case, program_of
from tests.emulator.forms import FAMILIES, forms, forms_of
from tests.emulator.peers import test_opengemm as peers

TABLE = Path(__file__).parents[2] / "docs" / "emulator_coverage.md"
SHOWN = 3  # names in a row

Run = Callable[[], tuple[Program, Outcome]]


def kernels() -> Iterator[tuple[str, Run]]:
    """Name and run of every kernel of another compiler."""
    for target, catalogue in (("sm_90", SM90), ("sm_100", SM100), ("sm_120", SM120)):
        for name, build in catalogue.cases.items():
            yield f"{name} ({target})", _compiled(build, busy_sms=146 if "clc" in name else 0)
    for name, problem in peers.STATIC.items():
        yield f"opengemm: {name}", _emitted(problem)
    for name, problem in peers.CLAIMING.items():
        yield f"opengemm, CLC: {name}", _emitted(problem, profile=peers.FEW_SMS)


def _compiled(build: Callable[..., object], *, busy_sms: int) -> Run:
    def run() -> tuple[Program, Outcome]:
        case = build()
        outcome = check(case, async_policy="random", seed=1, busy_sms=busy_sms)
        compiled = compile_case(case)
        return program_of(compiled.ptx, compiled.entry), outcome

    return run


def _emitted(problem: peers.Problem, **options: object) -> Run:
    def run() -> tuple[Program, Outcome]:
        outcome = peers.check(problem, async_policy="random", seed=1, **options)
        return load_program(problem.kernel().ptx, outcome.launch.entry), outcome

    return run


def executed(program: Program, outcome: Outcome) -> set[str]:
    """The forms of every instruction that a warp came to."""
    found: set[str] = set()
    for block, times in zip(program.graph.blocks, outcome.blocks, strict=True):
        if not times:
            continue
        ran = [*program.instructions[block.start : block.end]]
        if block.terminator is not None:
            ran.append(block.terminator)
        found.update(each for instruction in ran for each in forms_of(instruction))
    return found


def collect() -> dict[str, list[str]]:
    """Form to the kernels that executed it."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, run in kernels():
        for form in sorted(executed(*run())):
            found[form].append(name)
    return dict(found)


HEAD = """# Which forms another compiler has exercised

Made by `python -m tests.emulator.coverage --write`; a test of the slow tier says whether it is current.

The forms of tcgen05, Cluster Launch Control, TMA and mbarrier that the emulator executes. A form is covered where a
kernel of Triton, Gluon or opengemm that contains it ran unmodified, came out right and had nothing reported. No such
kernel contains the others: their semantics are from the PTX text only. A form is the opcode with the qualifiers and
operands that change what happens; cache hints, M and N, repeats of a shape and immediate values are not part of it.
"""


def table(found: Mapping[str, list[str]]) -> str:
    """The document."""
    known = {form for family in FAMILIES for form in forms(family)}
    unlisted = sorted(set(found) - known)
    assert not unlisted, f"executed and not among the forms: {unlisted}"
    parts = [HEAD, "| family | forms | covered |\n|---|---|---|"]
    for family in FAMILIES:
        every = forms(family)
        parts[-1] += f"\n| {family} | {len(every)} | {sum(each in found for each in every)} |"
    for family in FAMILIES:
        every = forms(family)
        rows = [f"| `{each}` | {_names(found[each])} |" for each in every if each in found]
        parts.append(f"\n## {family}\n\n| form | kernels |\n|---|---|\n" + "\n".join(rows))
        rest = [f"- `{each}`" for each in every if each not in found]
        if rest:
            parts.append(f"\n### {family}: semantics from the PTX text only\n\n" + "\n".join(rest))
    return "\n".join(parts) + "\n"


def _names(names: list[str]) -> str:
    return "; ".join([*names[:SHOWN], *(["and more"] if len(names) > SHOWN else [])])


def main() -> None:
    text = table(collect())
    if "--write" in sys.argv[1:]:
        TABLE.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
