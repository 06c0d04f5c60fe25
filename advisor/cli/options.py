"""The arguments and options that several commands share, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
GpuOption = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="auto, cuda or cuda:N: the GPU to measure on.")
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
Store = Annotated[
    Path | None,
    typer.Option(
        "--store", metavar="FILE", help="The store of measurements. Default: $ADVISOR_STORE, else the user's."
    ),
]
