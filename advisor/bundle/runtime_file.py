"""runtime.json of a bundle: read, or written whole. Imports `records` and `errors`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from advisor.bundle.store import Bundle, write_derived
from advisor.errors import BundleError
from advisor.records.base import canonical_json
from advisor.records.runtime_file import RuntimeFile

RUNTIME = "runtime.json"
_MOST_BYTES = 1 << 16  # as the C++ launcher reads


def read_runtime_file(bundle: Bundle) -> RuntimeFile:
    """What is switched off here; nothing where there is no file. Raises BundleError RUNTIME_FILE."""
    path = bundle.folder / RUNTIME
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return RuntimeFile(clc="on")
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError("it is too long")
        document = json.loads(content.decode(), object_pairs_hook=_once)
        if not isinstance(document, dict) or type(document.get("schema_version")) is not int:
            raise ValueError("it is no object with a schema_version")
        return RuntimeFile.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        raise _unusable(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise _unusable(path, str(error)) from error


def write_runtime_file(bundle: Bundle, file: RuntimeFile) -> Path:
    """Writes runtime.json beside launch.json, whole or not at all. Raises OutputError."""
    return write_derived(bundle, RUNTIME, canonical_json(file))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _unusable(path: Path, why: str) -> BundleError:
    return BundleError(
        "RUNTIME_FILE",
        f"{path} does not say what is switched off: {why}",
        fix="delete it, which switches everything on, then run advisor accept again",
        numbers={"path": str(path)},
    )
