"""The commands that measure: bench a suite, tune a problem, and fill tables from results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.frame import command
from advisor.cli.options import GpuOption, Json, ProblemFile, Quiet, Store
from advisor.cli.printing import Progress, print_blocks, print_document, say
from advisor.errors import EXIT_DONE, EXIT_NO


@command("bench")
def bench(
    suite: Annotated[Path, typer.Argument(metavar="SUITE", help="A suite (YAML): benchmarks/suites/ has some.")],
    device: GpuOption = "auto",
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="N", help="Time N rivals of each pick too, or all that are legal.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", help="Interleaved rounds, 10 or more.")] = 10,
    only: Annotated[str, typer.Option("--only", metavar="PATTERN", help="Problems whose name matches.")] = "*",
    compare: Annotated[
        list[str] | None,
        typer.Option(
            "--compare", metavar="WHAT", help="library, library_whole, triton, copy or none. Default: SUITE's."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write every sample there, as JSON; FILE.partial until the last problem.",
        ),
    ] = None,
    store: Store = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Time the planner's picks against the library.

    Every kernel is checked against a reference before it is timed. Contestants run interleaved, in graphs, on random
    data in buffers that rotate past the L2; the pick runs twice, so that noise shows. Needs a GPU.

    \b
    Example:
      advisor bench benchmarks/suites/decode.yaml --sweep 16
    """
    from advisor import measure
    from advisor.report.benchmarks import bench_blocks

    options = measure.BenchOptions(
        rounds=rounds,
        sweep=0 if sweep is None else measure.sweep_of(sweep),
        only=only,
        compare=measure.checked_baselines(compare),
    )
    run = measure.bench_suite(
        suite, device=device, options=options, output=output, store=store, progress=Progress(quiet)
    )
    if as_json:
        print_document(run.model_dump(mode="json"))
    else:
        print_blocks(bench_blocks(run))
    return EXIT_NO if any(each.first("pick") is None for each in run.problems) else EXIT_DONE


@command("tune")
def tune(
    file: ProblemFile,
    device: GpuOption = "auto",
    candidates: Annotated[
        str, typer.Option("--candidates", metavar="N", help="How many rivals of the pick to measure, or all.")
    ] = "24",
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", help="Interleaved rounds, 10 or more.")] = 15,
    store: Store = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Measure the pick and its best rivals, and plan again.

    A rival has to beat the pick twice, the second time in a duel; else the pick stands. A kernel that crashes or hangs
    is a row of the result. What was measured goes into the store, and plans for this GPU use it. Needs a GPU.

    \b
    Example:
      advisor tune examples/gemm_decode.yaml --candidates 16
    """
    from advisor import measure
    from advisor.report import short_blocks
    from advisor.report.benchmarks import tuned_blocks

    found = measure.tune_file(
        file,
        device=device,
        candidates=measure.sweep_of(candidates),
        rounds=rounds,
        store=store,
        progress=Progress(quiet),
    )
    if as_json:
        winner = found.tuned.winner
        print_document(
            {
                "changed": found.tuned.changed,
                "why": found.tuned.why,
                "winner": winner.model_dump(mode="json") if winner else None,
                "run": found.run.model_dump(mode="json"),
                "plan": found.planned.plan.model_dump(mode="json"),
            }
        )
    else:
        print_blocks([*tuned_blocks(found.tuned), *short_blocks(found.planned.plan)])
    return EXIT_DONE if found.tuned.winner is not None else EXIT_NO


@command("tables")
def tables(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Markdown files with marked blocks.")],
    as_json: Json = False,
) -> int:
    """Fill the marked tables of documents from benchmark results.

    A block begins with <!-- advisor tables summary FILE.json ... --> (or problems) and ends with
    <!-- advisor tables end -->; the files are relative to the document.

    \b
    Example:
      advisor tables README.md
    """
    from advisor import measure

    changed = {str(each): measure.rewrite_tables(each) for each in files}
    if as_json:
        print_document(changed)
    else:
        for name, new in changed.items():
            say(f"{name}: {'rewritten' if new else 'up to date'}")
    return EXIT_DONE
