"""The command line: parse, call one workflow function, print.

Results go to stdout, progress and complaints to stderr; with --json stdout holds exactly one document. Exit status: 0
done, 1 the answer is no, 2 a file, an argument or a path is wrong, 3 a device or a fault of the tool, 130 interrupted.
Everything beyond Typer is imported inside the command that needs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from advisor.errors import EXIT_DEVICE, EXIT_DONE, EXIT_INPUT, EXIT_NO, AdvisorError, InputError, OutputError

if TYPE_CHECKING:
    from advisor import workflow
    from advisor.records.plan import Finding, Plan
    from advisor.report.blocks import Block

EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_TERMINATED = 128 + signal.SIGTERM
# Of the parser that this version of Typer brings.
UsageError = cast("type[Exception]", typer.BadParameter.__mro__[1])


class Commands(TyperGroup):
    """The commands, with a document for a wrong command line where --json asks for one."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        try:
            status = super().main(words, *rest, **{**extra, "standalone_mode": False})
        except UsageError as caught:
            error: Any = caught
            error.show()
            if "--json" in words:
                message = re.sub(r"\s+", " ", error.format_message())
                place = error.ctx.command_path if error.ctx else "advisor"
                _print_document(InputError("COMMAND_LINE", message, fix=f"see {place} --help").as_document())
            status = EXIT_INPUT
        except KeyboardInterrupt:  # outside of a command
            status = _interrupted()
        except (OSError, AdvisorError) as failure:  # --help and --version, to where nothing can be written
            _complain(f"error: {failure}")
            status = EXIT_INPUT
        sys.exit(status if isinstance(status, int) else EXIT_DONE)


app = typer.Typer(
    cls=Commands,
    name="advisor",
    help="Decides, with reasons, whether thread block clusters pay off on a GPU; renders and proves the kernels.",
    epilog="Exit status: 0 done; 1 the answer is no; 2 a file or an argument is wrong; 3 a driver, a device, or a "
    "fault of the tool; 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

ProblemFile = Annotated[Path, typer.Argument(metavar="FILE", help="A problem file (YAML).")]
BundleFolder = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A folder that `advisor generate` wrote.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="b200, gb200, b300, h100, h200, rtx_pro_6000, a profile file (.toml), or auto: the GPU at hand, else "
        "b200. Default: from FILE.",
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="auto, emulator, cuda or cuda:N. auto: each kernel on the GPU if it runs there, else in the emulator.",
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="The folder that gets the bundle, as DIR/<name>.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Experiment = Annotated[
    str | None,
    typer.Option(
        "--experiment",
        metavar="NAME",
        help="ab: the choice against its best rival; schedule: all schedules while other work holds SMs.",
    ),
]
Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="DIR", help="Write each case's resolved launch there, so that it can run again."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


# --- frame --------------------------------------------------------------------------------------------------------


def command(name: str) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Registers a command whose function returns an exit status; errors become messages and exit statuses."""

    def register(function: Callable[..., int]) -> Callable[..., None]:
        @wraps(function)
        def run(**arguments: Any) -> None:
            as_json = bool(arguments.get("as_json"))
            try:
                status = function(**arguments)
                with _standard_output():
                    sys.stdout.flush()
            except AdvisorError as error:
                _print_error(error, as_json)
                status = error.exit_status
            except KeyboardInterrupt:
                status = _interrupted()
            except BrokenPipeError:  # `advisor report X | head`
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                status = EXIT_DONE
            except Exception as error:  # noqa: BLE001  a fault of the tool must exit 3, Python's own status is 1
                if _was_interrupted(error):
                    raise typer.Exit(_interrupted()) from None
                with contextlib.suppress(OSError):
                    traceback.print_exc(file=sys.stderr)
                _print_error(_fault(error), as_json)
                status = EXIT_DEVICE
            raise typer.Exit(status)

        app.command(name)(run)
        return run

    return register


def main() -> NoReturn:
    """The `advisor` command."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - lives as long as the process
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name of a file may be no text in this locale
    signal.signal(signal.SIGTERM, _terminate)
    app(prog_name="advisor")
    raise SystemExit(EXIT_DONE)


def _terminate(*_: object) -> NoReturn:
    """A request to end unwinds like Ctrl-C: staging folders go, children end."""
    raise SystemExit(EXIT_TERMINATED)


def _interrupted() -> int:
    _complain("interrupted: nothing was left half-written")
    return EXIT_INTERRUPTED


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C stands behind an error: Python wraps what strikes while a class is being made."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__
    return False


@contextmanager
def _standard_output() -> Iterator[None]:
    """What is written inside may fail: a closed pipe is the reader's choice, a full disk an error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python tries again as it ends
        raise OutputError(
            "OUTPUT_NOT_WRITABLE",
            f"standard output cannot be written: {error.strerror or error}",
            fix="check the free space where it goes",
            numbers={"errno": error.errno},
        ) from error


def _fault(error: Exception) -> AdvisorError:
    from advisor.errors import ToolError

    message = f"a fault of the tool: {type(error).__name__}: {error}"
    return ToolError("INTERNAL_FAULT", message, fix="report it with the problem file and the trace above")


def _print_error(error: AdvisorError, as_json: bool) -> None:
    if as_json:
        _print_document(error.as_document())
    _complain(f"error: {error}")


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens: the work goes on
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _print(text: str) -> None:
    with _standard_output():
        sys.stdout.write(text)


def _say(text: str = "") -> None:
    _print(text + "\n")


def _print_document(document: object) -> None:
    _print_json(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n")


def _print_json(text: str) -> None:
    """JSON is UTF-8: where standard output is not, or the text holds no valid Unicode, other letters are escaped."""
    encoding = (sys.stdout.encoding or "").lower().replace("_", "-")
    if encoding not in ("utf-8", "utf8") or not _is_unicode(text):
        text = "".join(each if each.isascii() else json.dumps(each)[1:-1] for each in text)
    _print(text)


def _is_unicode(text: str) -> bool:
    """False where a file name of other bytes is in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _print_blocks(blocks: list[Block]) -> None:
    from rich.console import Console

    from advisor.report.terminal import print_blocks

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """rich would exit 1, which here means no; `command` answers it."""
            raise BrokenPipeError

    with _standard_output():
        print_blocks(blocks, Output(highlight=False, soft_wrap=False))


class _Progress:
    """Writes events to stderr: a line per stage, and on a terminal a line that counts the units of a stage."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._open_line = False

    def __call__(self, event: workflow.Event) -> None:
        from advisor.workflow import Advanced, Finished, Noted, Started

        if self._quiet and not isinstance(event, Noted):
            return
        match event:
            case Started():
                self._transient(f"{event.stage:9} {event.detail} ...")
            case Advanced():
                total = "" if event.total is None else f"/{event.total}"
                text = f"{event.stage:9} {event.done}{total} {event.detail}"
                self._transient(text) if self._is_terminal else _complain(text)
            case Finished():
                self._line(f"{event.stage:9} {event.detail} ({event.seconds:.2f} s)")
            case Noted():
                self._line(f"note: {event.message}")

    def _transient(self, text: str) -> None:
        if self._is_terminal:
            with contextlib.suppress(OSError):
                text = text[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]
                sys.stderr.write("\r\x1b[2K" + text)
                sys.stderr.flush()
            self._open_line = True

    def _line(self, text: str) -> None:
        _complain(("\r\x1b[2K" if self._open_line else "") + text)
        self._open_line = False


def _version(wanted: bool) -> None:
    if wanted:
        from advisor import __version__

        _say(f"advisor {__version__}")
        raise typer.Exit(EXIT_DONE)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# --- the four commands of the way through, and all of them -----------------------------------------------------------


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
    from advisor.workflow import plan_file

    planned = plan_file(file, target=target, progress=_Progress(quiet=True))
    if as_json:
        _print_plan_document(planned.plan)
    else:
        _print_plan(planned.plan, full)
    return planned.exit_status


def _print_plan_document(plan: Plan) -> None:
    from advisor.records.base import canonical_json

    _print_json(canonical_json(plan))


def _print_plan(plan: Plan, full: bool) -> None:
    from advisor.report import blocks, short_blocks

    _print_blocks(blocks(plan) if full else short_blocks(plan))


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

    generated = workflow.generate(file, target=target, output=output, progress=_Progress(quiet))
    if as_json:
        _print_document(_generated_document(generated))
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
    _print_plan(generated.planned.plan, full=False)
    if generated.bundle is None:
        _say("No bundle: nothing was rendered, nothing was written.")
        return
    _say(f"Bundle: {_shown_path(generated.bundle.folder)}")
    _say(f"  {len(generated.bundle.launch.kernels)} kernels, {len(generated.images)} images compiled, none has run")
    _say(f"  read it: advisor report {_as_argument(generated.bundle.folder)}")
    _print_findings((*generated.broken, *generated.findings))


def _print_findings(findings: tuple[Finding, ...]) -> None:
    for each in findings:
        _say(f"  {each.severity}: {each.message} [{each.code}]")


def _shown_path(path: Path) -> str:
    """Relative to the current folder where it is inside."""
    with contextlib.suppress(ValueError):
        return str(path.resolve().relative_to(Path.cwd()))
    return str(path)


def _as_argument(path: Path) -> str:
    """As a shell takes it."""
    import shlex

    return shlex.quote(_shown_path(path))


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
        bundle, device=device, experiment=experiment, keep=keep, full=full, progress=_Progress(quiet)
    )
    if as_json:
        _print_document(validated.evidence.model_dump(mode="json"))
    else:
        _print_validated(validated)
    return validated.exit_status


def _print_validated(validated: workflow.Validated) -> None:
    from advisor.report import validation_blocks

    _print_blocks(validation_blocks(validated.evidence))
    folder = validated.bundle.folder
    _say(f"Evidence: {_shown_path(folder)}/validation.json")
    _say(f"  read it: advisor report {_as_argument(folder)}")


@command("report")
def report(
    bundle: BundleFolder,
    format: Annotated[str, typer.Option("--format", metavar="FORMAT", help="terminal, md or html.")] = "terminal",
    as_json: Json = False,
) -> int:
    """Read a bundle, the conclusion first.

    Then the evidence, the nine steps, the validation, risks and fallback, and what is not verified. Shows the
    evidence of validation.json where the bundle has one, else the plan alone.

    \b
    Example:
      advisor report generated/gemm_small --format md
    """
    from advisor.report import blocks, reached, render_html, render_report
    from advisor.workflow import report_bundle

    if format not in ("terminal", "md", "html"):
        raise InputError("FORMAT_UNKNOWN", f"unknown format {format!r}", fix="use terminal, md or html")
    plan, evidence = report_bundle(bundle)
    if as_json:
        gate = reached(plan.choice.kernel_id, evidence) if plan.choice else "planned"
        _print_document({"evidence_rung": gate, "markdown": render_report(plan, evidence)})
    elif format == "terminal":
        _print_blocks(blocks(plan, evidence))
    else:
        _print(render_html(plan, evidence) if format == "html" else render_report(plan, evidence))
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
        progress=_Progress(quiet),
    )
    if as_json:
        evidence = ran.validated.evidence.model_dump(mode="json") if ran.validated else None
        _print_document({**_generated_document(ran.generated), "evidence": evidence})
        return ran.exit_status
    _print_generated(ran.generated)
    if ran.validated is not None:
        _print_validated(ran.validated)
    return ran.exit_status


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
        file, target=target, busy_sms=busy_sms, tile_cost_cv=cost_cv, progress=_Progress(quiet=True)
    )
    plan = simulated.planned.plan
    if as_json:
        _print_document(_simulated_document(simulated))
    elif not simulated.rows:
        _print_plan(plan, full=False)
    else:
        from advisor.report import simulation_blocks

        _print_blocks(simulation_blocks(plan, simulated.rows))
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

    result = probe_gpu(device, output=output, progress=_Progress(quiet))
    if as_json:
        _print_document(result.document)
    elif output is None:
        _print(write_profile(result.profile))
    else:
        _say(f"Profile of {result.profile.title}: {output}")
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
    busy_sms: Annotated[int, typer.Option("--busy-sms", metavar="N", min=0, help="SMs that other work holds.")] = 0,
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
        busy_sms=busy_sms,
        numerics=mma,
        profile=profile,
        progress=_Progress(quiet),
    )
    if as_json:
        _print_document(_emulated_document(emulated))
    else:
        _print_emulated(emulated)
    return emulated.exit_status


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
        _say(f"{emulated.entry} failed: {emulated.fault}")
        _say(f"  more: advisor explain {emulated.fault.code}")
    outcome = emulated.outcome
    if outcome is None:
        return
    for each in emulated.comparisons:
        _say(f"{'ok' if each.passed else 'WRONG'}: {each}")
    right = emulated.exit_status == EXIT_DONE
    held = "no formula to hold it against" if not emulated.comparisons else "as expected" if right else "wrong values"
    _say(f"{emulated.entry}: no fault found, {held}")
    for title, counts in (
        ("warp instructions", outcome.instructions_by_class),
        ("bytes", outcome.bytes_moved),
        ("multiply-adds of tcgen05", outcome.multiply_adds),
        ("barrier phases", outcome.phases),
    ):
        if counts:
            _say(f"  {title}: " + ", ".join(f"{name} {count:,}" for name, count in counts.items() if count))
    stored = outcome.stored_bytes
    spread = f"{min(stored):,}" if min(stored) == max(stored) else f"{min(stored):,} to {max(stored):,}"
    _say(f"  clusters: {outcome.clusters:,}, of which each stored {spread} bytes to global memory")
    if outcome.requests is not None:
        _say(f"  {outcome.requests}")
    for warning in outcome.warnings:
        _say(f"warning: {warning}")


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
        _print_document([asdict(each) for each in shares])
    else:
        _print_blocks(agreement_blocks(shares, target, differing))
    return EXIT_DONE


# --- measuring ----------------------------------------------------------------------------------------------------


Store = Annotated[
    Path | None,
    typer.Option(
        "--store", metavar="FILE", help="The store of measurements. Default: $ADVISOR_STORE, else the user's."
    ),
]


@command("bench")
def bench(
    suite: Annotated[Path, typer.Argument(metavar="SUITE", help="A suite (YAML): benchmarks/suites/ has some.")],
    device: DeviceOption = "auto",
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
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write every sample there, as JSON.")
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
        suite, device=device, options=options, output=output, store=store, progress=_Progress(quiet)
    )
    if as_json:
        _print_document(run.model_dump(mode="json"))
    else:
        _print_blocks(bench_blocks(run))
    return EXIT_NO if any(each.first("pick") is None for each in run.problems) else EXIT_DONE


@command("tune")
def tune(
    file: ProblemFile,
    device: DeviceOption = "auto",
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
        progress=_Progress(quiet),
    )
    if as_json:
        winner = found.tuned.winner
        _print_document(
            {
                "changed": found.tuned.changed,
                "why": found.tuned.why,
                "winner": winner.model_dump(mode="json") if winner else None,
                "run": found.run.model_dump(mode="json"),
                "plan": found.planned.plan.model_dump(mode="json"),
            }
        )
    else:
        _print_blocks([*tuned_blocks(found.tuned), *short_blocks(found.planned.plan)])
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
        _print_document(changed)
    else:
        for name, new in changed.items():
            _say(f"{name}: {'rewritten' if new else 'up to date'}")
    return EXIT_DONE


# --- tools --------------------------------------------------------------------------------------------------------


@command("schema")
def schema(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="problem, plan, launch, resolved or evidence.")
    ] = "problem",
    as_json: Json = False,
) -> int:
    """Print a JSON schema.

    Editors complete and check problem files with it.

    \b
    Example:
      advisor schema problem
    """
    from advisor.problem import problem_schema
    from advisor.records.evidence import Evidence
    from advisor.records.launch import Launch, ResolvedLaunch
    from advisor.records.plan import Plan

    schemas: dict[str, Callable[[], dict[str, Any]]] = {
        "problem": problem_schema,
        "plan": Plan.model_json_schema,
        "launch": Launch.model_json_schema,
        "resolved": ResolvedLaunch.model_json_schema,
        "evidence": Evidence.model_json_schema,
    }
    if name not in schemas:
        raise InputError("UNKNOWN_SCHEMA", f"there is no schema {name!r}", fix=f"use one of {', '.join(schemas)}")
    _print_document(schemas[name]())
    return EXIT_DONE


@command("explain")
def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="A code as a message shows it in brackets.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Say what a code means and what to do.

    Without a code, list all.

    \b
    Example:
      advisor explain CLUSTER_OCCUPANCY
    """
    from dataclasses import asdict

    from advisor import errors

    if code is None:
        pages = errors.registry()
        if as_json:
            _print_document([asdict(page) for page in pages.values()])
        else:
            width = max(map(len, pages))
            for page in pages.values():
                _say(f"{page.code:{width}}  {page.severity:7}  {page.title}")
        return EXIT_DONE
    page = errors.explain(code)
    if as_json:
        _print_document(asdict(page))
        return EXIT_DONE
    _say(f"{page.code} ({page.severity}): {page.title}")
    _say(f"\n  {page.meaning}\n\n  What to do: {page.fix}")
    if page.example:
        _say(f"\n  Example: {page.example}")
    return EXIT_DONE


@command("doctor")
def doctor(as_json: Json = False) -> int:
    """Check this machine.

    Python, packages, compiler, disassembler, cache, driver and GPU. Exits 0 when kernels can be compiled here (a
    GPU is optional), else 3.

    \b
    Example:
      advisor doctor
    """
    from dataclasses import asdict

    from advisor.doctor import examine

    checks = examine()
    healthy = all(check.ok for check in checks if check.required)
    if as_json:
        rows = [asdict(check) for check in checks]
        _print_document({"healthy": healthy, "checks": rows})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = "ok" if check.ok else "MISSING" if check.required else "none"
            _say(f"{check.name:{width}}  {mark:7}  {check.detail}")
            if not check.ok and check.fix:
                _say(f"{'':{width}}           fix: {check.fix}")
        _say("\nKernels can be compiled here." if healthy else "\nKernels cannot be compiled here.")
    return EXIT_DONE if healthy else EXIT_DEVICE
