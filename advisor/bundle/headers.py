"""The device headers of a bundle: which of them a source reaches. Imports nothing of the project."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def include_closure(source: str, read: Callable[[str], str]) -> dict[str, str]:
    """Every header that `source` includes by `#include "..."`, directly or through another, by name, sorted.

    Names count from the include folder, also inside a header. `read` gives a header's text, or raises KeyError.
    """
    found: dict[str, str] = {}
    waiting = _INCLUDE.findall(source)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = read(name)
            waiting += _INCLUDE.findall(found[name])
    return dict(sorted(found.items()))


def headers_of(files: Mapping[str, str]) -> dict[str, str]:
    """The headers among a bundle's files, by the name that an #include gives them."""
    return {path.removeprefix("include/"): text for path, text in files.items() if path.startswith("include/")}
