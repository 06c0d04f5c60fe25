"""One tree of exceptions, and the registry of every code that the tool can print.

Imports nothing from the project: every other module may import this one.

    AdvisorError                 something the user should read; carries a code, a fix and an exit status
    |- InputError        (2)     a file, an argument or a path is wrong
    |  |- ProblemError           the problem file
    |  |- ProfileError           a device profile
    |  |- BundleError            a bundle that is missing, incomplete or was edited
    |  `- OutputError            a folder or file that cannot be written
    |- RefusedError      (1)     the answer is no: nothing legal serves the request
    |- DeviceError       (3)     no driver, a driver too old, a device that cannot be read
    `- ToolError         (3)     a fault of the tool: a template that does not render, a kernel that does not compile

A finding, an error and a verdict share one namespace of codes; `advisor explain CODE` prints the page. The pages are
data, in `codes.toml` beside this module; a test holds them against every code that the source uses.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

EXIT_DONE = 0
EXIT_NO = 1
EXIT_INPUT = 2
EXIT_DEVICE = 3


def printable(name: str) -> str:
    """A name of a file as one line of text: no line breaks, no terminal codes, no bytes that are no text."""
    return name if name.isprintable() else repr(name)[1:-1]


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file that the user wrote. `line` counts from 1."""

    path: str
    line: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        path = printable(self.path)
        place = path if self.line is None else f"{path}:{self.line}"
        return place if self.field is None else f"{place}: {self.field}"


class AdvisorError(Exception):
    """What went wrong (`message`), what to do about it (`fix`), and a stable `code`.

    `numbers` holds the figures of the message for `--json`; they are never only in the text.
    """

    exit_status = EXIT_DEVICE

    def __init__(
        self,
        code: str,
        message: str,
        *,
        fix: str = "",
        where: Where | None = None,
        numbers: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.where = where
        self.numbers = dict(numbers or {})

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        fix = f"\n  fix: {self.fix}" if self.fix else ""
        return f"{place}{self.message} [{self.code}]{fix}"

    def as_document(self) -> dict[str, object]:
        """The error as `--json` prints it."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "fix": self.fix,
                "file": self.where.path if self.where else None,
                "line": self.where.line if self.where else None,
                "field": self.where.field if self.where else None,
                "numbers": self.numbers,
            }
        }


class InputError(AdvisorError):
    exit_status = EXIT_INPUT


class ProblemError(InputError):
    """The problem file: syntax, an unknown key, a value outside its rule.

    `numbers["others"]`, where present, lists what else is wrong with the file."""

    def __str__(self) -> str:
        others = self.numbers.get("others")
        lines = [str(each) for each in others] if isinstance(others, list) else []
        return super().__str__() + "".join(f"\n  also {each}" for each in lines)


class ProfileError(InputError):
    """A device profile that is unknown, unreadable or inconsistent."""


class BundleError(InputError):
    """A bundle that is missing, incomplete, or whose files differ from its manifest."""


class OutputError(InputError):
    """An output path that cannot be written."""


class RefusedError(AdvisorError):
    exit_status = EXIT_NO


class DeviceError(AdvisorError):
    exit_status = EXIT_DEVICE


class ToolError(AdvisorError):
    exit_status = EXIT_DEVICE


# --- the registry of codes ----------------------------------------------------------------------------------------

SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Page:
    """What `explain` says of one code."""

    code: str
    severity: str  # error, warning or info
    title: str
    meaning: str
    fix: str
    example: str = ""


_added: list[Path] = []


def page_files() -> tuple[Path, ...]:
    """codes.toml beside this module, that of each kind in its folder, and those that were added."""
    here = Path(__file__).parent
    return (here / "codes.toml", *sorted(here.glob("kinds/*/codes.toml")), *_added)


def add_pages(path: Path) -> None:
    """The pages of a kind from elsewhere."""
    _added.append(path)
    registry.cache_clear()


def remove_pages(path: Path) -> None:
    _added.remove(path)
    registry.cache_clear()


@lru_cache(maxsize=1)
def registry() -> Mapping[str, Page]:
    """Every code that the tool can print, sorted. A code has one page: raises ValueError where two files have it."""
    import tomllib

    found: dict[str, Page] = {}
    for path in page_files():
        for code, page in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if code in found:
                raise ValueError(f"{path} has a page of {code}, which another file has too")
            found[code] = Page(code=code, **page)
    return dict(sorted(found.items()))


def explain(code: str) -> Page:
    """The page of a code, in any case of letters. Raises InputError UNKNOWN_CODE with the nearest one."""
    wanted = code.strip().upper().replace("-", "_")
    pages = registry()
    if wanted not in pages:
        near = difflib.get_close_matches(wanted, pages, n=3, cutoff=0.5)
        raise InputError(
            "UNKNOWN_CODE",
            f"{code!r} is not a code of this tool",
            fix=f"did you mean {' or '.join(near)}?" if near else "advisor explain without a code lists all",
            numbers={"code": code, "near": near},
        )
    return pages[wanted]
