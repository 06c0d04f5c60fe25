"""The store of compiled images: content addressed, safe under concurrent processes and kill -9.

An entry is a folder with the image, readable by any tool, and a sealed description:

    <root>/<two hex digits>/<key>/{kernel.ptx, kernel.cubin, entry.json}

It is written in a staging folder of the writer's own and renamed, so a reader sees a whole entry or none. Of two
writers of one key the first wins, and the second's bytes are the same. What is read is hashed: a damaged entry is
removed and built again. A writer that was killed leaves its staging folder; a later writer sweeps it.

Imports only its own room.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.toolchain.unit import sha256

SCHEMA = 2
ABANDONED_AFTER_S = 3600.0
"""No compilation takes an hour: an older staging folder has lost its writer."""

_PTX, _CUBIN, _ENTRY = "kernel.ptx", "kernel.cubin", "entry.json"


class DamagedEntry(Exception):
    """An entry whose bytes are not those that were written. It has been removed."""


def default_root(environment: Mapping[str, str] = os.environ) -> Path | None:
    """`$ADVISOR_CACHE_DIR`, else the user's cache folder; None where there is no home to hold one."""
    if chosen := environment.get("ADVISOR_CACHE_DIR"):
        return Path(chosen) / "images"
    if xdg := environment.get("XDG_CACHE_HOME"):
        return Path(xdg) / "cluster-advisor" / "images"
    if home := environment.get("HOME"):
        return Path(home) / ".cache" / "cluster-advisor" / "images"
    return None


class Cache:
    """Images under `root`. No method creates anything before the first `store`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: str) -> Path:
        return self.root / key[:2] / key

    def load(self, key: str) -> tuple[dict[str, Any], str, bytes] | None:
        """(facts, PTX, cubin) or None where there is no such entry. Raises DamagedEntry, OSError (unreadable)."""
        folder = self.folder(key)
        try:
            sealed = (folder / _ENTRY).read_bytes()
            ptx, cubin = (folder / _PTX).read_bytes(), (folder / _CUBIN).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            if folder.exists():  # renamed in whole, so a missing part was taken away later
                self._remove(folder)
                raise DamagedEntry(str(folder)) from None
            return None
        facts = _open(sealed, key)
        if facts is None or facts["ptx_sha256"] != sha256(ptx) or facts["cubin_sha256"] != sha256(cubin):
            self._remove(folder)
            raise DamagedEntry(str(folder))
        return facts, ptx.decode(), cubin

    def store(self, key: str, facts: Mapping[str, Any], ptx: str, cubin: bytes) -> None:
        """Adds an entry. `facts` must hold both hashes. Raises OSError where the folder cannot be written."""
        folder = self.folder(key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._sweep()
        staging = self._staging()
        staging.mkdir(parents=True)
        try:
            (staging / _PTX).write_bytes(ptx.encode())
            (staging / _CUBIN).write_bytes(cubin)
            (staging / _ENTRY).write_bytes(_seal(facts, key))
            try:
                staging.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another writer was first
                    raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _staging(self) -> Path:
        return self.root / "staging" / f"{os.getpid()}-{uuid.uuid4().hex}"

    def _remove(self, folder: Path) -> None:
        """Out of sight in one step, so that nobody reads half of it. A folder that cannot be moved stays: it is
        found damaged again, and never used."""
        aside = self._staging()
        with contextlib.suppress(OSError):
            aside.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def _sweep(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for each in (self.root / "staging").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - each.stat().st_mtime > ABANDONED_AFTER_S:
                        shutil.rmtree(each, ignore_errors=True)


def _seal(facts: Mapping[str, Any], key: str) -> bytes:
    body = json.dumps(dict(facts), sort_keys=True)
    return json.dumps({"key": key, "sha256": sha256(key + body), "facts": body}).encode()


def _open(sealed: bytes, key: str) -> dict[str, Any] | None:
    try:
        outer = json.loads(sealed)
        if outer["key"] != key or outer["sha256"] != sha256(key + outer["facts"]):
            return None
        facts = json.loads(outer["facts"])
    except (ValueError, KeyError, TypeError):
        return None
    return facts if isinstance(facts, dict) else None
