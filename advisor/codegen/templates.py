"""Where rendered text comes from: Jinja over the `templates/` folder, and the device headers a source includes.

From a checkout the folder lies beside the package; a wheel carries it as `advisor/_templates`. A template holds no
decision: its context is flat and typed, and a name that is missing is an error. A kind from elsewhere brings its own
folder. Imports `bundle`, `kinds` and `errors`.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.bundle.headers import include_closure
from advisor.errors import ToolError
from advisor.kinds import template_folders

if TYPE_CHECKING:
    from jinja2 import Environment

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@lru_cache(maxsize=1)
def folder() -> Path:
    """The folder of all templates. Raises ToolError TEMPLATES_MISSING."""
    package = Path(__file__).resolve().parent.parent
    for place in (package / "_templates", package.parent / "templates"):
        if (place / "include").is_dir():
            return place
    raise ToolError(
        "TEMPLATES_MISSING",
        f"the installation has no templates beside {package}",
        fix="install the package again: its wheel carries them",
    )


def load(path: str) -> str:
    """The text of a file under `templates/`, or under the folder of a kind from elsewhere. Raises ToolError
    TEMPLATE_MISSING."""
    for root in (folder(), *template_folders()):
        place = (root / path).resolve()
        if place.is_relative_to(root.resolve()) and place.is_file():
            return place.read_text(encoding="utf-8")
    raise ToolError(
        "TEMPLATE_MISSING",
        f"there is no template {path!r}",
        fix="install the package again: its wheel carries the templates",
        numbers={"template": path},
    )


def render(path: str, **context: Any) -> str:
    """The template at `path` over `context`. Raises ToolError TEMPLATE_MISSING, TEMPLATE_FAILED."""
    from jinja2 import TemplateError

    load(path)  # one message for a path that is not there or leaves the folder
    try:
        return _environment((folder(), *template_folders())).get_template(path).render(**context)
    except TemplateError as error:
        raise ToolError(
            "TEMPLATE_FAILED",
            f"the template {path} does not render: {error}",
            fix="this is a fault of the tool: report it with the problem file",
            numbers={"template": path},
        ) from error


def headers_for(source: str) -> dict[str, str]:
    """Every header under `templates/include/` that `source` includes, directly or through another: name -> text."""
    return include_closure(source, lambda name: load(f"include/{name}"))


@lru_cache(maxsize=2)
def _environment(folders: tuple[Path, ...]) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters.update(identifier=identifier, file_name=file_name, prose_line=prose_line, python=python_literal)
    return environment


# --- filters: the only way that text of a user gets into a rendered file ------------------------------------------


def identifier(text: object) -> str:
    """`text` where it is a plain identifier. Raises ToolError TEXT_UNSAFE."""
    return _only(_IDENTIFIER, text, "an identifier")


def file_name(text: object) -> str:
    """`text` where it is a plain file name without a folder. Raises ToolError TEXT_UNSAFE."""
    return _only(_FILE_NAME, text, "a file name")


def prose_line(text: object) -> str:
    """`text` as one line of Markdown words: white space and control characters become a space, marks are escaped."""
    words = " ".join(str(text).split())
    return re.sub(r"([\\`*_<>\[\]|#])", r"\\\1", "".join(each for each in words if each.isprintable()))


def python_literal(value: object) -> str:
    """A JSON value as a Python literal."""
    return repr(json.loads(json.dumps(value)))


def _only(pattern: re.Pattern[str], text: object, kind: str) -> str:
    if not pattern.fullmatch(str(text)):
        raise _unsafe(text, kind)
    return str(text)


def _unsafe(text: object, kind: str) -> ToolError:
    shown = str(text)[:80]
    return ToolError(
        "TEXT_UNSAFE",
        f"{shown!r} is not {kind}, so it is not written into generated code",
        fix="use letters, digits and underscores in names",
        numbers={"text": shown},
    )
