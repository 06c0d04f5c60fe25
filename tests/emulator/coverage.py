"""Which forms of tcgen05, Cluster Launch Control, TMA and mbarrier a kernel of another compiler has executed.

    python -m tests.emulator.coverage            # prints the table
    python -m tests.emulator.coverage --write    # into docs/emulator_coverage.md

Runs cases of `tests/emulator/compilers` and kernels that opengemm emits for `tests/emulator/peers`: a form counts only
where the kernel came out right with nothing to report. What no such kernel has executed is listed as read from the PTX
text alone.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.emulator import Outcome, Program, load_program
from tests.emulator.compilers.cases_sm90 import SM90
from tests.emulator.compilers.cases_sm100 import SM100
from tests.emulator.compilers.cases_sm120 import SM120
from tests.emulator.compilers.harness import Case, check, compile_case, program_of
from tests.emulator.forms import FAMILIES, forms, forms_of
from tests.emulator.peers import test_opengemm as peers

TABLE = Path(__file__).parents[2] / "docs" / "emulator_coverage.md"
SHOWN = 3  # names in a row


@dataclass(frozen=True)
class Kernel:
    """A kernel of another compiler: `run` says what a run did that came out right with nothing to report."""

    name: str
    program: Callable[[], Program]
    run: Callable[[], Outcome]


def kernels() -> Iterator[Kernel]:
    for target, catalogue in (("sm_90", SM90), ("sm_100", SM100), ("sm_120", SM120)):
        for name, build in catalogue.cases.items():
            yield _compiled(f"{name} ({target})", build, busy_sms=146 if "clc" in name else 0)
    for name, problem in peers.STATIC.items():
        yield _emitted(f"opengemm: {name}", problem)
    for name, problem in peers.CLAIMING.items():
        yield _emitted(f"opengemm, CLC: {name}", problem, profile=peers.FEW_SMS)


def _compiled(name: str, build: Callable[[], Case], *, busy_sms: int) -> Kernel:
    def program() -> Program:
        compiled = compile_case(build())
        return program_of(compiled.ptx, compiled.entry)

    return Kernel(name, program, lambda: check(build(), async_policy="random", seed=1, busy_sms=busy_sms))


def _emitted(name: str, problem: peers.Problem, **options: object) -> Kernel:
    def program() -> Program:
        kernel = problem.kernel()
        return load_program(kernel.ptx, peers.launch(kernel, problem.ctas).entry)

    return Kernel(name, program, lambda: peers.check(problem, async_policy="random", seed=1, **options))


def ran(program: Program, blocks: tuple[int, ...] | None = None) -> set[str]:
    """The forms of the instructions in blocks that warps came to; without `blocks`, of every instruction."""
    found: set[str] = set()
    for index, block in enumerate(program.graph.blocks):
        if blocks is not None and not blocks[index]:
            continue
        instructions = [*program.instructions[block.start : block.end]]
        if block.terminator is not None:
            instructions.append(block.terminator)
        found.update(each for instruction in instructions for each in forms_of(instruction))
    return found


def collect() -> dict[str, list[str]]:
    """Form to kernels that executed it, SHOWN + 1 at most: who could add nothing to that is not run."""
    found: dict[str, list[str]] = defaultdict(list)
    for kernel in kernels():
        program = kernel.program()
        if all(len(found[form]) > SHOWN for form in ran(program)):
            continue
        for form in ran(program, kernel.run().blocks):
            found[form].append(kernel.name)
    return {form: names for form, names in found.items() if names}


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
