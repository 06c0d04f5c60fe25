"""Asks sentryward about every Blackwell kernel of the project, opengemm, Triton and Gluon, and prints what it says.

    python -m tests.emulator.peers.survey [name...]

Minutes to an hour; `docs/emulator_peers.md` has the outcome.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from advisor.records.launch import ResolvedLaunch
from tests.emulator.compilers.cases_sm100 import SM100
from tests.emulator.compilers.harness import compile_case, launch_of
from tests.emulator.peers.opengemm import launch
from tests.emulator.peers.sentryward import ask
from tests.emulator.peers.test_opengemm import CLAIMING, STATIC
from tests.emulator.peers.test_sentryward import own
from tests.emulator.test_sm100 import SHAPES


def kernels(names: list[str]) -> Iterator[tuple[str, str, ResolvedLaunch]]:
    emitted = {f"opengemm {name}": problem for name, problem in STATIC.items()}
    emitted |= {f"opengemm claiming {name}": problem for name, problem in CLAIMING.items()}
    for name, problem in emitted.items():
        if not names or name in names:
            kernel = problem.kernel()
            yield name, kernel.ptx, launch(kernel, problem.ctas)
    for name in ("one CTA", *SHAPES):
        if not names or name in names:
            yield f"the project's {name}", *own(name)
    for name, make in SM100.cases.items():
        if not names or name in names:
            case = make()
            compiled = compile_case(case)
            yield name, compiled.ptx, launch_of(case, compiled)


def main(names: list[str]) -> None:
    for name, ptx, shape in kernels(names):
        began = time.monotonic()
        try:
            opinion = ask(ptx, shape, seconds=90)
            said = f"{opinion.result} {', '.join(opinion.codes)}"
        except ValueError as error:
            said = f"not asked: {error}"
        sys.stdout.write(f"{name:44} {said}  ({time.monotonic() - began:.0f} s)\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
