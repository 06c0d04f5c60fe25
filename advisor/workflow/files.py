"""A file that a command leaves: whole or not at all. Imports `errors`."""

from __future__ import annotations

import os
from pathlib import Path

from advisor.errors import OutputError


def write_text(path: Path, text: str) -> None:
    """`text` at `path`, whole or not at all. Raises OutputError."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    staged = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        try:
            staged.write_bytes(content)
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            "OUTPUT_NOT_WRITABLE",
            f"{path} cannot be written: {error.strerror or error}",
            fix="check the permissions and the free space, or pass another --output",
            numbers={"path": str(path), "errno": error.errno},
        ) from error


def check_writable(path: Path) -> None:
    """Before the work, not after it. Raises OutputError."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise OutputError(
            "OUTPUT_NOT_WRITABLE",
            f"{path} cannot be written: {'it is a folder' if path.is_dir() else 'its folder does not exist'}",
            fix="pass a file in a folder that exists",
            numbers={"path": str(path)},
        )
