"""One NVRTC compilation: text in, PTX and cubin out. The only module that touches the compiler's library, and it does
so lazily: planning never loads it. Imports only its own room and `errors`.

Every file the compiler sees is in memory, under a name that starts at the bundle's root (`/kernel_sm90.cu`,
`/include/ptx/wgmma.cuh`). NVRTC would put the working directory in front of a relative name and so into the line
tables, and the same unit would give other bytes in another folder.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from advisor.errors import ToolError
from advisor.toolchain.resources import parse_usage, warnings_in, without_timings
from advisor.toolchain.unit import EntryResources, Unit

REINSTALL = "pip install --force-reinstall nvidia-cuda-nvrtc cuda-python"
_TARGET = re.compile(r"sm_(\d{2,3})([af]?)")
_RELEASE = re.compile(r"Cuda compilation tools, release [\d.]+, V([\d.]+)")
# The compiler's own cache is keyed by what we cannot see; ours is the only one.
_ALWAYS = ("--ptxas-options=-v", "--no-cache")


@dataclass(frozen=True, slots=True)
class Image:
    """What one run of the compiler made."""

    ptx: str
    cubin: bytes
    log: str
    entries: dict[str, EntryResources]
    stack_bytes: int
    spill_bytes: int
    warnings: tuple[str, ...]


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """`nvrtc 13.0.88`, as the loaded library itself stamps it into PTX (a wheel's metadata may name another file).

    This is the first compilation of a process: `compile_image` sees to it. Raises ToolError NVRTC_MISSING or
    NVRTC_UNUSABLE.
    """
    _library()
    with _ctrl_c_held():
        result, ptx, log = _compile("/version.cu", "", {}, ("--gpu-architecture=compute_90", "--minimal", "--no-cache"))
    release = _RELEASE.search(ptx)
    if result != 0 or release is None:
        raise ToolError(
            "NVRTC_UNUSABLE", f"NVRTC does not compile an empty program:\n{log or 'no log'}", fix=f"run: {REINSTALL}"
        )
    return f"nvrtc {release[1]}"


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """While the library compiles for the first time in a process it has handlers of its own for SIGINT and SIGTERM,
    which end the process with status 4 and nothing said or cleaned up; where SIGINT is ignored it installs none. What
    is blocked arrives afterwards, unless a thread of another library takes it: then Ctrl-C has to be pressed again.
    """
    if threading.current_thread() is not threading.main_thread():  # Python sets handlers in the main thread only
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def known_targets() -> tuple[int, ...]:
    """The architectures that the loaded compiler knows, as numbers: 80, 90, 100..."""
    nvrtc = _library()
    architectures = _checked(nvrtc.nvrtcGetSupportedArchs(), "nvrtcGetSupportedArchs")[0]
    return tuple(int(each) for each in architectures)


def compile_image(unit: Unit) -> Image:
    """Compiles without any cache.

    Raises ToolError TARGET_UNKNOWN (the compiler does not know the target's name), COMPILE_FAILED (the log is in the
    message), NVRTC_MISSING or NVRTC_UNUSABLE.
    """
    compiler_version()  # the first compilation of a process is one that Ctrl-C does not kill
    _check_target(unit.target)
    defines = tuple(f"-D{name}={value}" for name, value in unit.defines.items())
    options = (f"--gpu-architecture={unit.target}", *_ALWAYS, *unit.all_flags, *defines)
    # The line directive names the header from the bundle's root without touching what `#include` looks up.
    headers = {name: f'#line 1 "/include/{name}"\n{text}' for name, text in unit.headers.items()}
    nvrtc = _library()
    with _Program(f"/{unit.name}", unit.source, headers) as program:
        result = _code(nvrtc.nvrtcCompileProgram(program.handle, len(options), [each.encode() for each in options]))
        log = (
            without_timings(program.text("ProgramLog"))
            .replace("/include/", "include/")
            .replace(f"/{unit.name}", unit.name)
        )
        if result != 0:
            raise _failure(unit, result, log)
        ptx, cubin = program.text("PTX"), program.data("CUBIN")
    usage = parse_usage(log)
    return Image(ptx, cubin, log, usage.entries, usage.stack_bytes, usage.spill_bytes, warnings_in(log))


def _failure(unit: Unit, result: int, log: str) -> ToolError:
    if "--gpu-architecture" in log or "--nv_arch" in log:
        return _unknown_target(unit.target)
    defines = " ".join(f"-D{name}={value}" for name, value in unit.defines.items())
    return ToolError(
        "COMPILE_FAILED",
        f"{unit.name} does not compile for {unit.target} ({compiler_version()}, defines: {defines or 'none'})\n{log}",
        fix="the log names file and line; a rendered kernel that fails here is a fault of its template",
        numbers={"nvrtc_result": result, "target": unit.target, "log": log},
    )


def _check_target(target: str) -> None:
    match = _TARGET.fullmatch(target)
    if match is None or int(match[1]) not in known_targets():
        raise _unknown_target(target)


def _unknown_target(target: str) -> ToolError:
    known = ", ".join(f"sm_{each}" for each in known_targets())
    return ToolError(
        "TARGET_UNKNOWN",
        f"{compiler_version()} does not know the target {target!r}",
        fix=f"it knows {known} (with the suffixes a and f where the architecture has them); a newer "
        "nvidia-cuda-nvrtc may know more",
        numbers={"target": target},
    )


def _library() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ToolError(
            "NVRTC_MISSING", f"the CUDA compiler cannot be imported: {error}", fix=f"run: {REINSTALL}"
        ) from error
    try:
        _checked(nvrtc.nvrtcVersion(), "nvrtcVersion")
    except (RuntimeError, OSError) as error:  # cuda.pathfinder's "not found" is a RuntimeError
        raise ToolError(
            "NVRTC_MISSING",
            f"the library of the CUDA compiler cannot be loaded: {str(error).strip()}",
            fix=f"run: {REINSTALL}",
        ) from error
    return nvrtc


def _compile(name: str, source: str, headers: dict[str, str], options: tuple[str, ...]) -> tuple[int, str, str]:
    nvrtc = _library()
    with _Program(name, source, headers) as program:
        result = _code(nvrtc.nvrtcCompileProgram(program.handle, len(options), [each.encode() for each in options]))
        return result, program.text("PTX") if result == 0 else "", program.text("ProgramLog")


class _Program:
    """An nvrtcProgram, destroyed on leaving."""

    def __init__(self, name: str, source: str, headers: dict[str, str]) -> None:
        self.nvrtc = _library()
        names = [each.encode() for each in headers]
        texts = [each.encode() for each in headers.values()]
        created = self.nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), len(names), texts, names)
        self.handle = _checked(created, "nvrtcCreateProgram")[0]

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        _checked(self.nvrtc.nvrtcDestroyProgram(self.handle), "nvrtcDestroyProgram")

    def data(self, what: str) -> bytes:
        size = _checked(getattr(self.nvrtc, f"nvrtcGet{what}Size")(self.handle), f"nvrtcGet{what}Size")[0]
        buffer = bytes(size)
        _checked(getattr(self.nvrtc, f"nvrtcGet{what}")(self.handle, buffer), f"nvrtcGet{what}")
        return buffer

    def text(self, what: str) -> str:
        return self.data(what).rstrip(b"\0").decode(errors="replace")


def _code(result: tuple[Any, ...]) -> int:
    return int(result[0])


def _checked(result: tuple[Any, ...], call: str) -> tuple[Any, ...]:
    if _code(result) != 0:
        raise ToolError("NVRTC_UNUSABLE", f"{call} failed: {result[0].name}", fix=f"run: {REINSTALL}")
    return result[1:]
