"""What goes into one compilation and what comes out of it. Imports only `records`.

A unit is a translation unit with every byte that it can see: the compiler reads no file. So its hash says all there
is to say about the result, the compiler's version apart.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from advisor.records.plan import Finding

DEFAULT_FLAGS = ("--std=c++17", "-lineinfo")
"""`-lineinfo` costs nothing at run time, and profilers and the emulator name source lines through it."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Unit:
    """One source for one target.

    `name` is the file's path inside the bundle (`kernel_sm90.cu`); messages and line tables call it that. `headers`
    maps the name between the quotes of an `#include` to the header's text. `flags` come after `DEFAULT_FLAGS`.
    Raises ValueError for a name or a define that could reach outside of the unit.
    """

    name: str
    source: str
    headers: Mapping[str, str]
    target: str  # sm_90a
    defines: Mapping[str, int | str]
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for path in (self.name, *self.headers):
            if not path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or '"' in path:
                raise ValueError(f"{path!r} is not a path inside a bundle")
        for macro, value in self.defines.items():
            if not _IDENTIFIER.fullmatch(macro) or "\n" in str(value):
                raise ValueError(f"-D{macro}={value!r} is not one macro definition")

    @property
    def all_flags(self) -> tuple[str, ...]:
        """Every flag but the target and the defines, in the order that the compiler gets them."""
        return (*DEFAULT_FLAGS, *self.flags)


@dataclass(frozen=True, slots=True)
class EntryResources:
    """What ptxas reports of one entry function."""

    registers: int
    static_smem_bytes: int
    stack_bytes: int
    spill_bytes: int  # stores plus loads


@dataclass(frozen=True, slots=True)
class Compiled:
    """PTX and cubin of one compilation, with the resources of its entries.

    The plain resource fields are the largest of any entry (registers, static SMEM) or the sum over every function of
    the unit (spill, stack), so that "spill_bytes == 0" means that nothing in the image spills. `findings` says what
    happened on the way: a cache that could not be written, an entry that was damaged and has been rebuilt.
    """

    ptx: str
    cubin: bytes
    registers: int
    static_smem_bytes: int
    spill_bytes: int
    stack_bytes: int
    log: str  # the compiler's own words, without timings
    ptx_sha256: str
    cubin_sha256: str
    kernel_hash: str
    compiler: str  # nvrtc 13.0.88
    cached: bool
    target: str = ""
    entries: Mapping[str, EntryResources] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # lines of the log that warn: serialised wgmma, an unused variable
    findings: tuple[Finding, ...] = ()
    sass: Mapping[str, int] = field(default_factory=dict)
    """Facts of the machine code (`SassFacts.summary`); empty where no disassembler is installed."""


def sha256(data: str | bytes) -> str:
    """Hex digest; text as UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def kernel_hash(unit: Unit) -> str:
    """sha256 of translation unit, headers, defines and flags: the identity of a kernel over all of its images."""
    return sha256(_canonical(_content(unit)))


def cache_key(unit: Unit, compiler: str, schema: int) -> str:
    """What one image depends on: the kernel, its file name (line tables hold it), target, compiler, entry format."""
    rest = {"name": unit.name, "target": unit.target, "compiler": compiler, "schema": schema}
    return sha256(_canonical([_content(unit), rest]))


def _content(unit: Unit) -> dict[str, object]:
    return {
        "source": sha256(unit.source),
        "headers": {name: sha256(text) for name, text in unit.headers.items()},
        "defines": {name: str(value) for name, value in unit.defines.items()},
        "flags": list(unit.all_flags),
    }


def _canonical(document: object) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))
