"""What a GPU or its stand-in does: simulate, probe, emulate, and how the planner's picks agree with tuned ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli.bundles import print_plan
from advisor.cli.frame import command
from advisor.cli.options import Json, ProblemFile, Quiet, Target
from advisor.cli.printing import Progress, print_blocks, print_document, say, write
from advisor.errors import EXIT_DONE, InputError

if TYPE_CHECKING:
    from advisor import workflow


@command("simulate")
def simulate(
    file: ProblemFile,
    target: Target = None,
    busy_sms: Annotated[
        int | None,
        typer.Option("--busy-sms", metavar="N", min=0, help="SMs that other work holds. Default: from FILE."),
    ] = None,
    cost_cv: Annotated[
        float | None,
        typer.Option("--cost-cv", metavar="X", min=0, max=10, help="Skew of the tiles' costs. Default: from FILE."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Run every schedule of the plan's shape in the simulation.

    One line per schedule shows how many clusters are busy over time, so that the tails can be compared.

    \b
    Example:
      advisor simulate examples/gemm_tail.yaml --cost-cv 0.5
    """
    from advisor.workflow import simulate_file

    simulated = simulate_file(
        file, target=target, busy_sms=busy_sms, tile_cost_cv=cost_cv, progress=Progress(quiet=True)
    )
    plan = simulated.planned.plan
    if as_json:
        print_document(_simulated_document(simulated))
    elif not simulated.rows:
        print_plan(plan, full=False)
    else:
        from advisor.report import simulation_blocks

        print_blocks(simulation_blocks(plan, simulated.rows))
    return simulated.planned.exit_status


def _simulated_document(simulated: workflow.SimulatedFile) -> dict[str, Any]:
    plan = simulated.planned.plan
    rows = [
        {
            "schedule": row.schedule,
            "total_us": row.total_us,
            "margin": row.margin,
            "clusters_at_once": row.workers,
            "cluster_tiles": row.tiles,
            "makespan_us": row.outcome.makespan_us,
            "most_tiles": row.outcome.max_tiles,
            "idle_share": row.outcome.idle_share,
            "last_wave_use": row.outcome.last_wave_use,
        }
        for row in simulated.rows
    ]
    kernel = plan.choice.kernel_id if plan.choice else None
    return {"kernel_id": kernel, "verdict": plan.verdict, "conclusion": plan.conclusion, "schedules": rows}


@command("probe")
def probe(
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="cuda:N; auto and cuda are GPU 0.")
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the profile there, as TOML.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Measure the GPU of this machine.

    Limits, resident clusters for sizes 1 to 16, the SMs that share a cluster, bandwidths, tensor rates, launch and
    barrier costs. The profile plans for this GPU on any machine: advisor plan FILE --target my_gpu.toml. Needs a GPU.

    \b
    Example:
      advisor probe --output my_gpu.toml
    """
    from advisor.machine.profile_file import write_profile
    from advisor.workflow import probe_gpu

    result = probe_gpu(device, output=output, progress=Progress(quiet))
    if as_json:
        print_document(result.document)
    elif output is None:
        write(write_profile(result.profile))
    else:
        say(f"Profile of {result.profile.title}: {output}")
    return EXIT_DONE


@command("emulate")
def emulate(
    ptx: Annotated[Path, typer.Argument(metavar="PTX", help="A file of PTX, of any compiler.")],
    launch: Annotated[
        Path, typer.Option("--launch", metavar="FILE", help="The resolved launch (JSON): grid, parameters, buffers.")
    ],
    inputs: Annotated[
        Path | None, typer.Option("--inputs", metavar="NPZ", help="First bytes of buffers, one array per name.")
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option("--outputs", metavar="NPZ", help="Write every buffer's bytes there.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Another order of warps and landings.")] = 0,
    async_policy: Annotated[
        str,
        typer.Option("--async", metavar="POLICY", help="When copies land: eager, lazy, random or adversarial."),
    ] = "random",
    clc: Annotated[
        str,
        typer.Option(
            "--clc",
            metavar="POLICY",
            help="Which Cluster Launch Control requests are granted: grant, decline:N, random, preempt or spurious.",
        ),
    ] = "grant",
    cluster_mix: Annotated[
        str,
        typer.Option(
            "--cluster-mix",
            metavar="POLICY",
            help="Which clusters a launch with a preferred size starts: fill, preferred, smaller or random.",
        ),
    ] = "fill",
    busy_sms: Annotated[int, typer.Option("--busy-sms", metavar="N", min=0, help="SMs that other work holds.")] = 0,
    predecessor_writes: Annotated[
        str | None,
        typer.Option(
            "--predecessor-writes",
            metavar="NAMES",
            help="Buffers (A,B,..., all or none) that the kernel before this one writes until griddepcontrol.wait. "
            "Default: those of the launch file.",
        ),
    ] = None,
    mma: Annotated[
        str, typer.Option("--mma", metavar="MODE", help="How tensor cores add: fp32, or model as the chip does.")
    ] = "fp32",
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="The device, by name or file. Default: the PTX's target says."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Execute a kernel's PTX on the CPU, with every check.

    Reports the first fault with its place and history, or a summary, and holds the formulas of the launch against
    the result. Exits 1 where the kernel is wrong. Needs no GPU.

    \b
    Example:
      advisor emulate examples/emulate/axpy.ptx --launch examples/emulate/axpy.json
    """
    from advisor import workflow

    emulated = workflow.emulate(
        ptx,
        launch=launch,
        inputs=inputs,
        outputs=outputs,
        seed=seed,
        async_policy=async_policy,
        clc=clc,
        cluster_mix=cluster_mix,
        busy_sms=busy_sms,
        predecessor_writes=_names(predecessor_writes),
        numerics=mma,
        profile=profile,
        progress=Progress(quiet),
    )
    if as_json:
        print_document(_emulated_document(emulated))
    else:
        _print_emulated(emulated)
    return emulated.exit_status


def _names(text: str | None) -> list[str] | None:
    """Names between commas; `none` for none. Nothing at all would undo what the launch file says, unsaid."""
    if text is None:
        return None
    names = [each.strip() for each in text.split(",") if each.strip()]
    if not names:
        raise InputError(
            "EMU_BUFFER",
            "--predecessor-writes names no buffer",
            fix="name some, all or none; leave it out for what the launch file says",
        )
    return [] if names == ["none"] else names


def _emulated_document(emulated: workflow.Emulated) -> dict[str, Any]:
    outcome = emulated.outcome
    return {
        "entry": emulated.entry,
        "passed": emulated.exit_status == EXIT_DONE,
        "fault": emulated.fault.finding.as_document() if emulated.fault else None,
        "warnings": [each.as_document() for each in outcome.warnings] if outcome else [],
        "expected": [each.as_document() for each in emulated.comparisons],
        "warp_instructions": outcome.instructions_by_class if outcome else {},
        "opcodes": dict(outcome.instructions) if outcome else {},
        "bytes": dict(outcome.bytes_moved) if outcome else {},
        "multiply_adds": dict(outcome.multiply_adds) if outcome else {},
        "barrier_phases": dict(outcome.phases) if outcome else {},
        "clusters": outcome.clusters if outcome else None,
        "stored_bytes": list(outcome.stored_bytes) if outcome else [],
        "requests": outcome.requests.as_document() if outcome and outcome.requests else None,
        "ignored_keys": list(emulated.ignored),
    }


def _print_emulated(emulated: workflow.Emulated) -> None:
    if emulated.fault is not None:
        say(f"{emulated.entry} failed: {emulated.fault}")
        say(f"  more: advisor explain {emulated.fault.code}")
    outcome = emulated.outcome
    if outcome is None:
        return
    for each in emulated.comparisons:
        say(f"{'ok' if each.passed else 'WRONG'}: {each}")
    right = emulated.exit_status == EXIT_DONE
    held = "no formula to hold it against" if not emulated.comparisons else "as expected" if right else "wrong values"
    say(f"{emulated.entry}: no fault found, {held}")
    for title, counts in (
        ("warp instructions", outcome.instructions_by_class),
        ("bytes", outcome.bytes_moved),
        ("multiply-adds of tcgen05", outcome.multiply_adds),
        ("barrier phases", outcome.phases),
    ):
        if counts:
            say(f"  {title}: " + ", ".join(f"{name} {count:,}" for name, count in counts.items() if count))
    stored = outcome.stored_bytes
    spread = f"{min(stored):,}" if min(stored) == max(stored) else f"{min(stored):,} to {max(stored):,}"
    say(f"  clusters: {outcome.clusters:,}, of which each stored {spread} bytes to global memory")
    if outcome.requests is not None:
        say(f"  {outcome.requests}")
    for warning in outcome.warnings:
        say(f"warning: {warning}")


@command("agreement")
def agreement(
    table: Annotated[
        Path | None, typer.Argument(metavar="TABLE", help="A CSV of tuned choices. Default: the shipped one.")
    ] = None,
    target: Annotated[
        str, typer.Option("--target", metavar="TARGET", help="The profile to plan with, by name or file.")
    ] = "b200",
    dtype: Annotated[
        list[str] | None, typer.Option("--dtype", metavar="TYPE", help="Only this type; may be given more than once.")
    ] = None,
    differing: Annotated[bool, typer.Option("--differing", help="List the rows where the two differ.")] = False,
    as_json: Json = False,
) -> int:
    """Compare the planner with exhaustively tuned choices.

    The table holds what another library's tuning on real B200s found best. Candidates are restricted to that tuner's
    space. Nothing runs: both sides are picks, not times.

    \b
    Example:
      advisor agreement --dtype bf16 --dtype e4m3
    """
    from dataclasses import asdict

    from advisor.report import agreement_blocks
    from advisor.workflow import agree

    shares = agree(table, target=target, dtypes=dtype or ())
    if as_json:
        print_document([asdict(each) for each in shares])
    else:
        print_blocks(agreement_blocks(shares, target, differing))
    return EXIT_DONE
