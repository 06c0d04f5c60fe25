"""The way from a problem to a report: plan, generate, validate, report, and run for all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli.frame import command
from advisor.cli.options import BundleFolder, DeviceOption, Experiment, Json, Keep, Output, ProblemFile, Quiet, Target
from advisor.cli.printing import (
    Progress,
    as_argument,
    print_blocks,
    print_document,
    print_json,
    say,
    say_wrapped,
    shown_path,
    write,
)
from advisor.errors import EXIT_DONE, InputError

if TYPE_CHECKING:
    from advisor import workflow
    from advisor.records.plan import Finding, Plan


@command("plan")
def plan(
    file: ProblemFile,
    target: Target = None,
    full: Annotated[bool, typer.Option("--full", help="Print the whole report, nine steps included.")] = False,
    as_json: Json = False,
) -> int:
    """Decide: cluster, tile, schedule and fallback.

    Every choice has its reasons and the margins of what lost. Nothing is built or written. --json prints plan.json.

    \b
    Example:
      advisor plan examples/gemm.yaml --target h200
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no plan multiplies matrices: threads would only be started
    from advisor.workflow import plan_file

    planned = plan_file(file, target=target, progress=Progress(quiet=True))
    if as_json:
        _print_plan_document(planned.plan)
    else:
        print_plan(planned.plan, full)
    return planned.exit_status


def _print_plan_document(plan: Plan) -> None:
    from advisor.records.base import canonical_json

    print_json(canonical_json(plan))


def print_plan(plan: Plan, full: bool) -> None:
    from advisor.report import blocks, short_blocks

    print_blocks(blocks(plan) if full else short_blocks(plan))


@command("generate")
def generate(
    file: ProblemFile,
    target: Target = None,
    output: Output = Path("generated"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Plan, render, compile, and write the bundle.

    The bundle holds sources, headers, launch.json, a C++ launcher with its test, a Python binding, the images and the
    report. Needs no GPU and no CUDA toolkit.

    \b
    Example:
      advisor generate examples/gemm_small.yaml --target h200
    """
    from advisor import workflow

    generated = workflow.generate(file, target=target, output=output, progress=Progress(quiet))
    if as_json:
        print_document(_generated_document(generated))
    else:
        _print_generated(generated)
    return generated.exit_status


def _generated_document(generated: workflow.Generated) -> dict[str, Any]:
    images = [
        {
            "kernel_id": kernel_id,
            "target": target,
            "registers": image.registers,
            "static_smem_bytes": image.static_smem_bytes,
            "spill_bytes": image.spill_bytes,
            "kernel_hash": image.kernel_hash,
            "cubin_sha256": image.cubin_sha256,
            "sass": dict(image.sass),
            "compiler": image.compiler,
            "cached": image.cached,
        }
        for (kernel_id, target), image in generated.images.items()
    ]
    return {
        "bundle": str(generated.bundle.folder) if generated.bundle else None,
        "plan": generated.planned.plan.model_dump(mode="json"),
        "images": images,
        "broken": [each.model_dump(mode="json") for each in generated.broken],
        "findings": [each.model_dump(mode="json") for each in generated.findings],
    }


def _print_generated(generated: workflow.Generated) -> None:
    print_plan(generated.planned.plan, full=False)
    if generated.bundle is None:
        say("No bundle: nothing was rendered, nothing was written.")
        return
    say(f"Bundle: {shown_path(generated.bundle.folder)}")
    kernels, images = len(generated.bundle.launch.kernels), len(generated.images)
    say(f"  {kernels} kernel{'s' * (kernels != 1)}, {images} image{'s' * (images != 1)} compiled, none has run")
    say(f"  read it: advisor report {as_argument(generated.bundle.folder)}")
    _print_findings((*generated.broken, *generated.findings))


def _print_findings(findings: tuple[Finding, ...]) -> None:
    for each in findings:
        say_wrapped(f"  {each.severity}: {each.message} [{each.code}]", 4)


@command("validate")
def validate(
    bundle: BundleFolder,
    device: DeviceOption = "auto",
    experiment: Experiment = None,
    keep: Keep = None,
    full: Annotated[
        bool, typer.Option("--full", help="Emulate each case under every policy with every seed, not once each.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Prove a bundle on a GPU or in the emulator.

    Every kernel and rung, boundary cases, exact integers, equal bits across schedules. On a GPU each kernel runs 129
    times; in the emulator its PTX runs under every policy, with every check. Each runs in a child process with a
    watchdog. What did not run is recorded with the reason.

    \b
    Example:
      advisor validate generated/gemm_small --device emulator
    """
    from advisor.workflow import validate_bundle

    validated = validate_bundle(
        bundle, device=device, experiment=experiment, keep=keep, full=full, progress=Progress(quiet)
    )
    if as_json:
        print_document(validated.evidence.model_dump(mode="json"))
    else:
        _print_validated(validated)
    return validated.exit_status


def _print_validated(validated: workflow.Validated) -> None:
    from advisor.report import validation_blocks

    print_blocks(validation_blocks(validated.evidence))
    folder = validated.bundle.folder
    say(f"Evidence: {shown_path(folder)}/validation.json")
    say(f"  read it: advisor report {as_argument(folder)}")


@command("report")
def report(
    bundle: BundleFolder,
    format: Annotated[str, typer.Option("--format", metavar="FORMAT", help="terminal, md or html.")] = "terminal",
    accepted: Annotated[
        list[Path] | None,
        typer.Option(
            "--accepted",
            metavar="FILE",
            help="What advisor accept wrote on another machine, for the same kernels; may be given more than once.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Read a bundle, the conclusion first.

    Then the evidence, the nine steps, the validation, risks and fallback, and what is not verified. Shows the
    evidence of validation.json where the bundle has one, else the plan alone; with --accepted also what ran elsewhere.

    \b
    Example:
      advisor report generated/gemm_small --format md
    """
    from advisor.report import blocks, reached, render_html, render_report
    from advisor.workflow import report_bundle

    if format not in ("terminal", "md", "html"):
        raise InputError("FORMAT_UNKNOWN", f"unknown format {format!r}", fix="use terminal, md or html")
    if accepted:
        from advisor.accept import report_accepted

        found = report_accepted(bundle, accepted)
    else:
        found = (*report_bundle(bundle), ())
    if as_json:
        plan, evidence, _ = found
        gate = reached(plan.choice.kernel_id, evidence) if plan.choice else "planned"
        print_document({"evidence_rung": gate, "markdown": render_report(*found)})
    elif format == "terminal":
        print_blocks(blocks(*found))
    else:
        write(render_html(*found) if format == "html" else render_report(*found))
    return EXIT_DONE


@command("run")
def run(
    file: ProblemFile,
    target: Target = None,
    device: DeviceOption = "auto",
    output: Output = Path("generated"),
    experiment: Experiment = None,
    keep: Keep = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Do all of it: plan, generate, validate, report.

    With a GPU its residency is queried with the built kernels, and the plan made again from the answers. Without
    a GPU the kernels run in the emulator.

    \b
    Example:
      advisor run examples/gemm.yaml
    """
    from advisor import workflow

    ran = workflow.run(
        file,
        target=target,
        device=device,
        output=output,
        experiment=experiment,
        keep=keep,
        progress=Progress(quiet),
    )
    if as_json:
        evidence = ran.validated.evidence.model_dump(mode="json") if ran.validated else None
        print_document({**_generated_document(ran.generated), "evidence": evidence})
        return ran.exit_status
    _print_generated(ran.generated)
    if ran.validated is not None:
        _print_validated(ran.validated)
    return ran.exit_status
