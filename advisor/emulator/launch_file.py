"""Reads a launch file: the JSON of a resolved launch, and of the keys that it may have beside. Imports `records`.

Keys that are not known are left out and named in a note. `size` and `offset` of a parameter may be given; they are
then held against the entry. Raises InputError: EMU_LAUNCH_FILE, and EMU_PARAMETERS where a layout differs.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from advisor.emulator.program import Program
from advisor.errors import InputError, Where
from advisor.records.base import converted
from advisor.records.launch import (
    BytesParam,
    ElementMapParam,
    PtrParam,
    ResolvedLaunch,
    ScalarParam,
    ScratchParam,
    TensorMapParam,
)

Array = NDArray[Any]

FLOATS = ("f16", "bf16", "f32", "f64")


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A launch, the keys that were ignored, and for each parameter the `size` and `offset` that the file claims."""

    launch: ResolvedLaunch
    ignored: tuple[str, ...] = ()
    layout: tuple[dict[str, int], ...] = field(default=())


def _refuse(path: Path, message: str, place: str | None = None, line: int | None = None) -> NoReturn:
    raise InputError(
        "EMU_LAUNCH_FILE",
        message,
        fix="`advisor schema resolved` prints what a launch file has",
        where=Where(str(path), line, place),
        numbers={"path": str(path)},
    )


def read_launch(path: Path) -> LaunchFile:
    """The launch of a file."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        _refuse(path, f"it cannot be read: {error.strerror or error}")
    except json.JSONDecodeError as error:
        _refuse(path, f"it is no JSON: {error.msg}", line=error.lineno)
    except (ValueError, RecursionError):  # no text, a number of too many digits, nesting without end
        _refuse(path, "it is no JSON")
    if not isinstance(document, dict):
        _refuse(path, "a launch file is one JSON object")
    layout = tuple(_claims(path, index, each) for index, each in enumerate(_list(document.get("params"))))
    launch, ignored = _validate(path, document)
    _check(path, launch)
    return LaunchFile(launch, ignored, layout)


def check_layout(program: Program, read: LaunchFile) -> None:
    """`size` and `offset` against the entry; the number of parameters is somebody else's check."""
    for variable, param, claims in zip(program.function.params, read.launch.params, read.layout, strict=False):
        actual = {"size": variable.bytes, "offset": program.params[variable.name]}
        for key, claimed in claims.items():
            if claimed != actual[key]:
                raise InputError(
                    "EMU_PARAMETERS",
                    f"the launch says {key} {claimed} of the parameter {param.name}, the entry says {actual[key]}",
                    fix="list the parameters in the entry's order with their types",
                    numbers={"parameter": param.name, key: claimed, "expected": actual[key]},
                )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _claims(path: Path, index: int, param: Any) -> dict[str, int]:
    """Takes `size` and `offset` out of a parameter."""
    claims = {key: param.pop(key) for key in ("size", "offset") if key in param} if isinstance(param, dict) else {}
    for key, value in claims.items():
        if type(value) is not int:  # true is one of Python's
            _refuse(path, f"{value!r} is no whole number", f"params.{index}.{key}")
    return claims


def _validate(path: Path, document: dict[str, Any]) -> tuple[ResolvedLaunch, tuple[str, ...]]:
    ignored: list[str] = []
    while True:
        try:
            launch = ResolvedLaunch.model_validate(document)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            unknown = [each for each in errors if each["type"] == "extra_forbidden"]
            if not unknown:
                first = errors[0]
                _refuse(path, first["msg"], ".".join(map(str, first["loc"])))
            ignored += [_remove(document, each["loc"]) for each in unknown]
        else:
            found = converted(document, launch.model_dump())
            if found is not None:
                place, value, meant = found
                _refuse(path, f"{json.dumps(value)} is not {meant}", place)
            return launch, tuple(ignored)


def _remove(document: Any, loc: tuple[int | str, ...]) -> str:
    """Removes the key at a place. A place also names the kind of a parameter, which is no key."""
    names = []
    for each in loc[:-1]:
        if not isinstance(document, dict) or each in document:
            document = document[each]
            names.append(str(each))
    del document[loc[-1]]
    return ".".join([*names, str(loc[-1])])


# --- numbers ----------------------------------------------------------------------------------------------------------


def _check(path: Path, launch: ResolvedLaunch) -> None:
    """A resolved launch has numbers where a launch of a bundle has expressions."""
    for index, param in enumerate(launch.params):
        place = f"params.{index}"
        match param:
            case ScalarParam() if param.kind in FLOATS:
                _number(path, f"{place}.value", param.value, float)
            case ScalarParam():
                _number(path, f"{place}.value", param.value, int)
            case BytesParam():
                _hexadecimal(path, f"{place}.value", param.value)
            case PtrParam():
                _number(path, f"{place}.offset_bytes", param.offset_bytes, int)
            case ScratchParam():
                if _number(path, f"{place}.bytes", param.bytes, int) < 0:
                    _refuse(path, "a scratch of less than 0 bytes", f"{place}.bytes")
            case TensorMapParam() | ElementMapParam():
                for value in (*param.global_dim, *param.global_stride_bytes):
                    _number(path, place, value, int)
    _check_sizes(path, launch)


def _check_sizes(path: Path, launch: ResolvedLaunch) -> None:
    """Of buffers, of the block and of its shared memory."""
    for name, buffer in launch.buffers.items():
        if min(buffer.shape, default=0) < 0:
            _refuse(path, f"an extent below 0: {buffer.shape}", f"buffers.{name}.shape")
        if math.prod(buffer.shape) >= 1 << 40:
            _refuse(path, f"{math.prod(buffer.shape)} elements are more than a GPU holds", f"buffers.{name}.shape")
    if min(launch.block) < 1:
        _refuse(path, f"a block of {' x '.join(map(str, launch.block))} threads has none", "block")
    if launch.dynamic_smem_bytes < 0:
        _refuse(path, "less than 0 bytes", "dynamic_smem_bytes")


def _hexadecimal(path: Path, place: str, text: str) -> None:
    try:
        bytes.fromhex(text)
    except ValueError:
        _refuse(path, f"{text!r} is no hexadecimal bytes", place)


def _number(path: Path, place: str, value: object, kind: type[int] | type[float]) -> float:
    try:
        number = kind(str(value))
    except ValueError:
        _refuse(path, f"{value!r} is no {'number' if kind is float else 'whole number'}", place)
    return number


# --- the other files --------------------------------------------------------------------------------------------------


def read_ptx(path: Path) -> str:
    """The text of a PTX file. Raises InputError EMU_INPUTS_FILE."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _unreadable(path, f"it cannot be read: {error.strerror or error}", "pass a file of PTX") from error
    except UnicodeDecodeError as error:
        fix = "pass the text: `cuobjdump -ptx` prints what a binary holds, nvcc -ptx and NVRTC make it"
        raise _unreadable(path, "it is no text, so it is no PTX", fix) from error
    return text.rstrip("\0")  # as compilers hand it out


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file. Raises InputError EMU_INPUTS_FILE."""
    fix = "write it with numpy.savez(path, A=..., B=...)"
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise _unreadable(path, "it holds one array without a name", fix)
            with archive:
                return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise _unreadable(path, f"it cannot be read: {error.strerror or error}", fix) from error
    except (ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, "it is no archive of plain arrays", fix) from error


def _unreadable(path: Path, message: str, fix: str) -> InputError:
    return InputError("EMU_INPUTS_FILE", message, fix=fix, where=Where(str(path)), numbers={"path": str(path)})
