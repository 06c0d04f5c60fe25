"""The frame of every command: the application, what a wrong command line prints, errors as messages and exit statuses.

Imports `errors` and the printing of this room.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from advisor.cli.printing import complain, print_document, say, standard_output
from advisor.errors import EXIT_DEVICE, EXIT_DONE, EXIT_INPUT, AdvisorError, InputError

COLLECT_AFTER = 50_000  # allocations; Python's own 700 costs a plan a tenth of its time
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
                print_document(InputError("COMMAND_LINE", message, fix=f"see {place} --help").as_document())
            status = EXIT_INPUT
        except KeyboardInterrupt:  # outside of a command
            status = interrupted()
        except (OSError, AdvisorError) as failure:  # --help and --version, to where nothing can be written
            complain(f"error: {failure}")
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


def command(name: str) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Registers a command whose function returns an exit status; errors become messages and exit statuses."""

    def register(function: Callable[..., int]) -> Callable[..., None]:
        @wraps(function)
        def run(**arguments: Any) -> None:
            as_json = bool(arguments.get("as_json"))
            try:
                status = function(**arguments)
                with standard_output():
                    sys.stdout.flush()
            except AdvisorError as error:
                _print_error(error, as_json)
                status = error.exit_status
            except KeyboardInterrupt:
                status = interrupted()
            except BrokenPipeError:  # `advisor report X | head`
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                status = EXIT_DONE
            except Exception as error:  # noqa: BLE001  a fault of the tool must exit 3, Python's own status is 1
                if _was_interrupted(error):
                    raise typer.Exit(interrupted()) from None
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
    gc.set_threshold(COLLECT_AFTER)
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


def interrupted() -> int:
    complain("interrupted: nothing was left half-written")
    return EXIT_INTERRUPTED


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C stands behind an error: Python wraps what strikes while a class is being made."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__
    return False


def _fault(error: Exception) -> AdvisorError:
    from advisor.errors import ToolError

    message = f"a fault of the tool: {type(error).__name__}: {error}"
    return ToolError("INTERNAL_FAULT", message, fix="report it with the problem file and the trace above")


def _print_error(error: AdvisorError, as_json: bool) -> None:
    if as_json:
        print_document(error.as_document())
    complain(f"error: {error}")


def _version(wanted: bool) -> None:
    if wanted:
        from advisor import __version__

        say(f"advisor {__version__}")
        raise typer.Exit(EXIT_DONE)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
