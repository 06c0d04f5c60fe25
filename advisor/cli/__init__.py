"""The command line: parse, call one workflow function, print.

Results go to stdout, progress and complaints to stderr; with --json stdout holds exactly one document. Exit status: 0
done, 1 the answer is no, 2 a file, an argument or a path is wrong, 3 a device or a fault of the tool, 130 interrupted.
Everything beyond Typer is imported inside the command that needs it.

frame.py            the application: errors become messages and exit statuses
options.py          the arguments and options that several commands share
printing.py         stdout, stderr, progress
bundles.py          plan, generate, validate, report, run
bundles_accept.py   accept
devices.py          simulate, probe, emulate, agreement
measuring.py        bench, tune, tables
tools.py            schema, explain, doctor
"""

from advisor.cli import (  # each registers its commands, in the order of --help
    bundles,
    bundles_accept,
    devices,
    measuring,
    tools,
)
from advisor.cli.frame import app, main

__all__ = ["bundles_accept", "app", "bundles", "devices", "main", "measuring", "tools"]
