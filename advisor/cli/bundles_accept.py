"""accept: a bundle on the first GPU of its kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.frame import command
from advisor.cli.options import BundleFolder, Json, Quiet
from advisor.cli.printing import Progress, as_argument, print_blocks, print_document, say, shown_path

if TYPE_CHECKING:
    from advisor.accept import Accepted


@command("accept")
def accept(
    bundle: BundleFolder,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="cuda:N; auto and cuda are GPU 0.")
    ] = "auto",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder that gets the result and the profile.")
    ] = Path(),
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=1, max=3600, help="Seconds that a launch may take.")
    ] = 20.0,
    steps: Annotated[
        str | None,
        typer.Option("--steps", metavar="LIST", help="Only these steps, with commas between, and what they need."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Accept a bundle on the first GPU of its kind.

    Twelve steps, safe to risky: what the GPU is, residency, calibration, one tile, persistent CTAs, clusters and
    pairs, Cluster Launch Control, SMs that are held, graphs, 1,000 launches, times. Each in a process of its own with a
    watchdog; every result is held against a reference. Writes one file to send home: advisor report --accepted reads
    it. Needs a GPU.

    \b
    Example:
      advisor accept generated/gemm --output results
    """
    from advisor.accept import accept_bundle

    accepted = accept_bundle(
        bundle, device=device, output=output, timeout_s=timeout, steps=steps, progress=Progress(quiet)
    )
    if as_json:
        print_document(accepted.acceptance.model_dump(mode="json"))
    else:
        _print_accepted(accepted)
    return accepted.exit_status


def _print_accepted(accepted: Accepted) -> None:
    from advisor.report import accepted_blocks

    print_blocks(accepted_blocks(accepted.acceptance))
    say(f"Result: {shown_path(accepted.path)}")
    if accepted.profile is not None:
        say(f"  profile of this GPU: {shown_path(accepted.profile)}")
    if accepted.runtime is not None:
        say(f"  Cluster Launch Control is off here from now on: {shown_path(accepted.runtime)}")
    folder, path = as_argument(accepted.bundle.folder), as_argument(accepted.path)
    say(f"  read it: advisor report {folder} --accepted {path}")
