"""What the commands print: text, one JSON document or blocks on stdout; progress and complaints on stderr.

Imports `errors`; the report's renderer and the workflow's events inside the functions that use them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import OutputError

if TYPE_CHECKING:
    from advisor import workflow
    from advisor.report.blocks import Block


@contextmanager
def standard_output() -> Iterator[None]:
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


def complain(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens: the work goes on
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def write(text: str) -> None:
    with standard_output():
        sys.stdout.write(text)


def say(text: str = "") -> None:
    write(text + "\n")


def say_wrapped(text: str, indent: int = 0) -> None:
    """A text at the width of the terminal, or of 80 columns: no word is broken, later lines are indented."""
    width = max(shutil.get_terminal_size().columns, indent + 20)
    say(textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False))


def print_document(document: object) -> None:
    print_json(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n")


def print_json(text: str) -> None:
    """JSON is UTF-8: where standard output is not, or the text holds no valid Unicode, other letters are escaped."""
    encoding = (sys.stdout.encoding or "").lower().replace("_", "-")
    if encoding not in ("utf-8", "utf8") or not _is_unicode(text):
        text = "".join(each if each.isascii() else json.dumps(each)[1:-1] for each in text)
    write(text)


def _is_unicode(text: str) -> bool:
    """False where a file name of other bytes is in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def print_blocks(blocks: list[Block]) -> None:
    from rich.console import Console

    from advisor.report.terminal import print_blocks as show

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """rich would exit 1, which here means no; `command` answers it."""
            raise BrokenPipeError

    with standard_output():
        show(blocks, Output(highlight=False, soft_wrap=False))


class Progress:
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
                self._transient(text) if self._is_terminal else complain(text)
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
        complain(("\r\x1b[2K" if self._open_line else "") + text)
        self._open_line = False


def shown_path(path: Path) -> str:
    """Relative to the current folder where it is inside."""
    with contextlib.suppress(ValueError):
        return str(path.resolve().relative_to(Path.cwd()))
    return str(path)


def as_argument(path: Path) -> str:
    """As a shell takes it."""
    return shlex.quote(shown_path(path))
