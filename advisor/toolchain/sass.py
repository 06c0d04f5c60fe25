"""What a cubin's machine code consists of: counts of instructions by mnemonic, per entry, and its main loop.

Imports only `errors`. nvdisasm comes from its wheel; it needs no GPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from advisor.errors import ToolError

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+\{?\s*(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)")
_LABEL = re.compile(r"^\s*(\.L_[\w.]+):")
_TARGET = re.compile(r"\bBRA\b[^;]*`\((\.L_[\w.]+)\)")
_TIMEOUT_S = 120
_MMA = ("UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA", "HGMMA", "QGMMA", "HMMA", "QMMA", "IMMA", "OMMA")


@dataclass(frozen=True, slots=True)
class SassFacts:
    """Instruction counts: function name -> full mnemonic (`HGMMA.64x128x16.F32.BF16`) -> count.

    A *pattern* is an opcode with any of its modifiers in any order: `UTMALDG.MULTICAST` matches
    `UTMALDG.2D.MULTICAST`, `HGMMA` matches every HGMMA.
    """

    functions: Mapping[str, Mapping[str, int]]
    loops: Mapping[str, int] = field(default_factory=dict)
    """Function name -> instructions of the innermost loop that issues matrix products, from its head to the branch
    back; what waits out of line is not in it. Functions without such a loop are left out."""

    def count(self, pattern: str, function: str | None = None) -> int:
        """Instructions that match, in one function or in all of them."""
        chosen = self.functions.values() if function is None else [self.functions[function]]
        return sum(n for counts in chosen for mnemonic, n in counts.items() if _matches(mnemonic, pattern))

    def has(self, pattern: str, function: str | None = None) -> bool:
        return self.count(pattern, function) > 0

    @property
    def wgmma(self) -> int:
        """Hopper warpgroup MMAs: HGMMA (16-bit, tf32), QGMMA (fp8)."""
        return self.count("HGMMA") + self.count("QGMMA")

    @property
    def mma_sync(self) -> int:
        """Warp MMAs: HMMA (16-bit, tf32), QMMA (fp8 where the tensor core has it)."""
        return self.count("HMMA") + self.count("QMMA") + self.count("IMMA") + self.count("OMMA")

    @property
    def tcgen05_mma(self) -> int:
        return sum(self.count(each) for each in ("UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA"))

    @property
    def pair_mma(self) -> int:
        """tcgen05 MMAs that two CTAs share."""
        return sum(self.count(f"{each}.2CTA") for each in ("UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA"))

    @property
    def tma_loads(self) -> int:
        return self.count("UTMALDG")

    @property
    def tma_multicast_loads(self) -> int:
        return self.count("UTMALDG.MULTICAST")

    @property
    def tma_stores(self) -> int:
        return self.count("UTMASTG")

    @property
    def local_memory(self) -> int:
        """Loads and stores of local memory: spills, or an array that was indexed at run time."""
        return self.count("LDL") + self.count("STL")

    def summary(self) -> dict[str, int]:
        """The facts that evidence carries: zeroes left out."""
        rows = {
            "wgmma": self.wgmma,
            "mma_sync": self.mma_sync,
            "tcgen05_mma": self.tcgen05_mma,
            "tcgen05_pair_mma": self.pair_mma,
            "tensor_memory_loads": self.count("LDTM"),
            "work_requests": self.count("UGETNEXTWORKID"),
            "work_requests_multicast": self.count("UGETNEXTWORKID.BROADCAST"),
            "tma_loads": self.tma_loads,
            "tma_multicast_loads": self.tma_multicast_loads,
            "tma_stores": self.tma_stores,
            "async_copies": self.count("LDGSTS"),
            "matrix_loads": self.count("LDSM"),
            "register_reallocations": self.count("USETMAXREG"),
            "cluster_barriers": self.count("UCGABAR_ARV"),
            "local_memory": self.local_memory,
            "main_loop_instructions": max(self.loops.values(), default=0),
            "instructions": sum(sum(each.values()) for each in self.functions.values()),
        }
        return {name: count for name, count in rows.items() if count}


def sass_facts(cubin: bytes) -> SassFacts:
    """Disassembles a cubin. Raises ToolError DISASSEMBLER_MISSING, DISASSEMBLY_FAILED."""
    return parse_sass(disassemble(cubin))


def disassemble(cubin: bytes) -> str:
    """The cubin's machine code as nvdisasm prints it."""
    tool = disassembler()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            run = subprocess.run(
                [tool, "--print-code", file.name], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolError("DISASSEMBLY_FAILED", f"nvdisasm does not run: {error}") from error
    if run.returncode != 0:
        raise ToolError("DISASSEMBLY_FAILED", f"nvdisasm refused the image:\n{(run.stderr or run.stdout).strip()}")
    return run.stdout


def parse_sass(text: str) -> SassFacts:
    """Counts in a listing of nvdisasm. The padding after a function's last branch counts as its NOPs."""
    listings: dict[str, _Listing] = {}
    current: _Listing | None = None
    for line in text.splitlines():
        if section := _SECTION.match(line):
            current = listings.setdefault(section[1], _Listing())
        elif current is not None:
            current.read(line)
    loops = {name: each.main_loop() for name, each in listings.items()}
    return SassFacts(
        {name: dict(sorted(Counter(each.mnemonics).items())) for name, each in listings.items()},
        {name: count for name, count in loops.items() if count},
    )


@dataclass(slots=True)
class _Listing:
    """One function, line by line."""

    mnemonics: list[str] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # number of the instruction behind it
    back: list[tuple[int, int]] = field(default_factory=list)  # loops: first and last instruction

    def read(self, line: str) -> None:
        if label := _LABEL.match(line):
            self.labels[label[1]] = len(self.mnemonics)
        elif instruction := _INSTRUCTION.search(line):
            target = _TARGET.search(line)
            if target is not None and target[1] in self.labels:
                self.back.append((self.labels[target[1]], len(self.mnemonics)))
            self.mnemonics.append(instruction[1])

    def main_loop(self) -> int:
        """Instructions of the shortest loop with a matrix product; 0 without one."""
        products = [i for i, each in enumerate(self.mnemonics) if each.split(".")[0] in _MMA]
        lengths = [last - first + 1 for first, last in self.back if any(first <= at <= last for at in products)]
        return min(lengths, default=0)


@lru_cache(maxsize=1)
def disassembler() -> str:
    """Path of nvdisasm: from its wheel, else from PATH. Raises ToolError DISASSEMBLER_MISSING."""
    try:
        files = metadata.files("nvidia-cuda-nvdisasm") or []
    except metadata.PackageNotFoundError:
        files = []
    for each in files:
        if each.name in ("nvdisasm", "nvdisasm.exe"):
            path = Path(str(each.locate()))
            if path.is_file():
                return str(path)
    if found := shutil.which("nvdisasm"):
        return found
    raise ToolError("DISASSEMBLER_MISSING", "nvdisasm is not installed", fix="run: pip install nvidia-cuda-nvdisasm")


def _matches(mnemonic: str, pattern: str) -> bool:
    opcode, *modifiers = mnemonic.split(".")
    wanted, *wanted_modifiers = pattern.split(".")
    return opcode == wanted and all(each in modifiers for each in wanted_modifiers)
