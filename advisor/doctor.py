"""What this machine can do: a list of checks, each with what was found and what to do about it. Stands beside
`workflow`: it may import every room."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from advisor.errors import AdvisorError

PACKAGES = (
    *("cuda-bindings", "jinja2", "ml_dtypes", "numpy", "nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm", "pydantic", "rich"),
    *("ruamel.yaml", "typer"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """`required` ones decide whether kernels can be compiled here; a GPU is never required."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    required: bool = True


def examine() -> list[Check]:
    """Every check, in the order of the way from a file to a kernel that runs."""
    return [_python(), _packages(), _profiles(), _templates(), _compiler(), _disassembler(), _cache(), *_gpu()]


def _python() -> Check:
    version = platform.python_version()
    supported = (3, 11) <= sys.version_info[:2] < (3, 14)
    return Check("python", supported, f"{version} on {platform.machine()}", "use Python 3.11, 3.12 or 3.13")


def _packages() -> Check:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    detail = ", ".join(found) if not missing else f"missing: {', '.join(missing)}"
    return Check("packages", not missing, detail, f"pip install {' '.join(missing)}")


def _profiles() -> Check:
    from advisor.machine import profile_names

    names = profile_names()
    return Check("profiles", bool(names), ", ".join(names) or "none", "install the package again")


def _templates() -> Check:
    from advisor.codegen import templates

    try:
        templates.folder()
    except AdvisorError as error:
        return Check("templates", False, error.message, error.fix)
    return Check("templates", True, "found")


def _compiler() -> Check:
    from advisor.toolchain import Unit, compile_cuda, compiler_version

    try:
        version = compiler_version()
        unit = Unit("doctor.cu", 'extern "C" __global__ void doctor() {}', {}, "sm_90a", {})
        compile_cuda(unit, use_cache=False)
    except AdvisorError as error:
        return Check("compiler", False, error.message, error.fix)
    return Check("compiler", True, f"{version}, compiles for sm_90a")


def _disassembler() -> Check:
    from advisor.toolchain.sass import disassembler

    try:
        disassembler()
    except AdvisorError as error:
        return Check("disassembler", False, error.message, error.fix, required=False)
    return Check("disassembler", True, "nvdisasm found", required=False)


def _cache() -> Check:
    from advisor.toolchain import default_root

    root = default_root()
    if root is None:
        return Check("cache", False, "off: no home folder", "set ADVISOR_CACHE_DIR to a folder", required=False)
    place = next(each for each in (root.absolute(), *root.absolute().parents) if os.path.lexists(each))
    writable = place.is_dir() and os.access(place, os.W_OK | os.X_OK) and _can_be_named(root)
    fix = "set ADVISOR_CACHE_DIR to a folder that can be written"
    return Check("cache", writable, str(root) if writable else f"{root} cannot be written", fix, required=False)


def _can_be_named(folder: Path) -> bool:
    """False for a path that no file system takes: a part of it is too long."""
    try:
        folder.exists()
    except OSError:
        return False
    return True


def _gpu() -> list[Check]:
    from advisor.runtime import open_device

    try:
        with open_device() as device:
            info = device.info
            cc = ".".join(map(str, info.compute_capability))
            found = Check("gpu", True, f"{info.name}, compute capability {cc}, {info.sms} SMs", required=False)
            driver = Check("driver", True, f"{info.driver}, CUDA {info.cuda}", required=False)
            try:
                profile = Check("gpu profile", True, device.profile().name, required=False)
            except AdvisorError as error:
                profile = Check("gpu profile", False, error.message, error.fix, required=False)
            return [driver, found, profile]
    except AdvisorError as error:
        return [Check("gpu", False, f"{error.message} [{error.code}]", error.fix, required=False)]
