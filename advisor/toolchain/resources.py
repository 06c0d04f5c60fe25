"""Reads what `ptxas -v` says of each function: registers, shared memory, stack, spills. Imports only its own room."""

from __future__ import annotations

import re
from dataclasses import dataclass

from advisor.toolchain.unit import EntryResources

_COMPILING = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")
_TIMING = re.compile(r"Compile time\s*=")
_WARNING = re.compile(r"\bwarning\b|Potential Performance Loss", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Usage:
    """`entries` by name; stack and spill over every function, called ones included."""

    entries: dict[str, EntryResources]
    stack_bytes: int
    spill_bytes: int


def parse_usage(log: str) -> Usage:
    """The resources in a `ptxas -v` log. A log that reports no entry gives no entries."""
    entries: dict[str, EntryResources] = {}
    frames: dict[str, tuple[int, int]] = {}
    entry = function = ""
    for line in log.splitlines():
        if match := _COMPILING.search(line):
            entry = function = match[1]
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif match := _STACK.search(line):
            frames[function] = (int(match[1]), int(match[2]) + int(match[3]))
        elif match := _USED.search(line):
            smem = _SMEM.search(line)
            stack, spill = frames.get(entry, (0, 0))
            entries[entry] = EntryResources(int(match[1]), int(smem[1]) if smem else 0, stack, spill)
    return Usage(entries, sum(stack for stack, _ in frames.values()), sum(spill for _, spill in frames.values()))


def without_timings(log: str) -> str:
    """The log without the lines that differ from run to run."""
    return "\n".join(line.rstrip() for line in log.splitlines() if line.strip() and not _TIMING.search(line))


def warnings_in(log: str) -> tuple[str, ...]:
    """The lines that warn."""
    return tuple(line.strip() for line in log.splitlines() if _WARNING.search(line) and "Remark:" not in line)
