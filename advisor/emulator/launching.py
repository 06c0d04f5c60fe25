"""A resolved launch made real: buffers with their first bytes, and the bytes of the parameters. NumPy, `records`.

Raises InputError: EMU_PARAMETERS where the launch and the entry do not fit, EMU_BUFFER where a buffer is missing, has
the wrong size, or is too small for what the launch says of it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.memory import Buffer, Global
from advisor.emulator.program import Program
from advisor.emulator.ptx.ir import TYPE_BITS, Symbol, Variable
from advisor.emulator.tensor_map import encode
from advisor.errors import InputError
from advisor.records.launch import (
    TORCH_TYPE_BYTES,
    BufferInit,
    BytesParam,
    ElementMapParam,
    PtrParam,
    ResolvedLaunch,
    ResolvedParam,
    ScalarParam,
    ScratchParam,
    TensorMapParam,
)

Array = NDArray[Any]

_PACK = {
    "u8": "<B",
    "s8": "<b",
    "u16": "<H",
    "s16": "<h",
    "i32": "<i",
    "u32": "<I",
    "i64": "<q",
    "u64": "<Q",
    "f16": "<e",
    "f32": "<f",
    "f64": "<d",
}


@dataclass(frozen=True, slots=True)
class Left:
    """A buffer or a scratch as a kernel left it: its bytes, and which of them hold a value."""

    content: Array
    written: Array


@dataclass(frozen=True, slots=True)
class Prepared:
    """The memory of a launch, the addresses of the module's variables, and the parameters."""

    memory: Global
    buffers: dict[str, Buffer]
    scratch: dict[str, Buffer]
    addresses: dict[str, np.uint64]
    parameters: bytes

    def named(self, names: Collection[str]) -> list[Buffer]:
        """Buffers and scratch by name. Raises InputError EMU_BUFFER."""
        known = self.buffers | self.scratch
        unknown = [each for each in names if each not in known]
        if unknown:
            raise InputError(
                "EMU_BUFFER",
                f"the kernel before this one is to write {', '.join(unknown)}, which the launch does not have",
                fix=f"name some of {', '.join(known)}",
                numbers={"unknown": unknown, "known": list(known)},
            )
        return [known[each] for each in dict.fromkeys(names)]

    def left(self) -> dict[str, Left]:
        """Every buffer and scratch as it is now."""
        return {
            name: Left(self.memory.content(each).copy(), self.memory.marks(each).copy())
            for name, each in (self.buffers | self.scratch).items()
        }


def prepare(
    program: Program,
    launch: ResolvedLaunch,
    inputs: Mapping[str, Array] | None = None,
    after: Mapping[str, Left] | None = None,
) -> Prepared:
    """Lays out global memory and fills it. `inputs` replaces the first bytes of buffers, by name; poison stays without
    a value whatever its bytes are. `after` is what the kernel before this one left: it goes before both, but for
    scratch that a launch zeroes."""
    memory = Global()
    buffers = {name: memory.add(name, _bytes(each), whole=False) for name, each in launch.buffers.items()}
    scratch: dict[str, tuple[Buffer, ScratchParam]] = {}
    for param in launch.params:
        if isinstance(param, ScratchParam) and param.name not in scratch:
            scratch[param.name] = (memory.add(param.name, int(param.bytes), whole=False), param)
    variables = {each.name: memory.add(each.name, each.bytes, whole=False) for each in program.global_variables}
    memory.seal()
    given = dict(inputs or {})
    check_inputs(launch, given)
    for name, buffer in buffers.items():
        _fill(memory, buffer, launch.buffers[name], given.pop(name, None))
    for name, array in given.items():
        memory.fill(scratch[name][0], _raw(array))
    for buffer, param in scratch.values():
        if param.init != "none" and param.name not in (inputs or {}):
            memory.fill(buffer, np.zeros(buffer.bytes, np.uint8))
    for name, left in (after or {}).items():
        if name in buffers:
            memory.fill(buffers[name], left.content, left.written)
        elif name in scratch and scratch[name][1].init != "zeros":
            memory.fill(scratch[name][0], left.content, left.written)
    addresses = {name: np.uint64(each.address) for name, each in variables.items()}
    for each in program.global_variables:
        memory.fill(variables[each.name], _initial(each, addresses))
    parameters = _parameters(program, launch, buffers, scratch)
    return Prepared(memory, buffers, {name: each for name, (each, _) in scratch.items()}, addresses, parameters)


def check_inputs(launch: ResolvedLaunch, inputs: Mapping[str, Array]) -> None:
    """Each input is a buffer or a scratch of the launch, of its size. Raises InputError EMU_BUFFER."""
    sizes = {each.name: int(each.bytes) for each in launch.params if isinstance(each, ScratchParam)}
    sizes |= {name: _bytes(each) for name, each in launch.buffers.items()}
    for name, array in inputs.items():
        if name not in sizes:
            _refuse("EMU_BUFFER", f"the inputs have {name!r}, which is no buffer of the launch", {"buffer": name})
        if array.nbytes != sizes[name]:
            _refuse(
                "EMU_BUFFER",
                f"the input {name} has {array.nbytes} bytes, the launch says {sizes[name]}",
                {"buffer": name, "bytes": array.nbytes, "expected": sizes[name]},
            )


def _refuse(code: str, message: str, numbers: dict[str, object]) -> NoReturn:
    raise InputError(code, message, fix="make the launch file fit the kernel", numbers=numbers)


# --- buffers ----------------------------------------------------------------------------------------------------------


def _bytes(buffer: BufferInit) -> int:
    return math.prod(buffer.shape) * TORCH_TYPE_BYTES[buffer.dtype]


def _raw(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _fill(memory: Global, buffer: Buffer, init: BufferInit, given: Array | None) -> None:
    if given is not None:
        poison = init.init == "poison"
        memory.fill(buffer, _raw(given), np.zeros(buffer.bytes, np.uint8) if poison else None)
    elif init.init == "poison":
        memory.content(buffer)[:] = 0xFF  # not marked as written: a read of it is a finding
    else:
        memory.fill(buffer, _raw(initial_values(init)))


def initial_values(init: BufferInit) -> Array:
    """The first content of a buffer, in its type; the same for the same seed on every machine."""
    count = math.prod(init.shape)
    generator = np.random.Generator(np.random.SFC64(init.seed))
    if init.dtype == "float4_e2m1fn_x2":
        return np.zeros(count, np.uint8) if init.init == "zeros" else generator.integers(0, 256, count, np.uint8)
    values: Array
    if init.init == "normal":
        values = generator.standard_normal(count, np.float32) * np.float32(init.scale)
    elif init.init == "uniform":
        values = generator.random(count, np.float32) * np.float32(init.scale)
    elif init.init == "randint":
        radius = max(1, int(init.scale))
        values = generator.integers(-radius, radius, count, np.int64, endpoint=True)
    elif init.init == "arange":
        values = np.arange(count)
    elif init.init == "nan":
        return np.full(count * TORCH_TYPE_BYTES[init.dtype], 0xFF, np.uint8)
    else:
        values = np.full(count, 1 if init.init == "ones" else 0, np.float32)
    return values.astype(numpy_type(init.dtype))


@lru_cache
def numpy_type(name: str) -> np.dtype[Any]:
    """The NumPy type of a launch file's type; bytes where two values share one."""
    if name == "float4_e2m1fn_x2":
        return np.dtype(np.uint8)
    if hasattr(np, name):
        return np.dtype(name)
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def _initial(variable: Variable, addresses: Mapping[str, np.uint64]) -> Array:
    """A module's variable: its initialiser, and zeros after it."""
    width = TYPE_BITS[variable.type] // 8
    content = bytearray(variable.bytes)
    for index, each in enumerate(variable.initial):
        value = int(addresses.get(each.name, np.uint64(0))) + each.offset if isinstance(each, Symbol) else each
        content[index * width : (index + 1) * width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return np.frombuffer(bytes(content), np.uint8)


# --- parameters -------------------------------------------------------------------------------------------------------


def _parameters(
    program: Program,
    launch: ResolvedLaunch,
    buffers: Mapping[str, Buffer],
    scratch: Mapping[str, tuple[Buffer, ScratchParam]],
) -> bytes:
    wanted = program.function.params
    if len(launch.params) != len(wanted):
        _refuse(
            "EMU_PARAMETERS",
            f"{launch.entry} takes {len(wanted)} parameters, the launch gives {len(launch.params)}",
            {"expected": len(wanted), "given": len(launch.params)},
        )
    content = bytearray(program.param_bytes)
    for variable, param in zip(wanted, launch.params, strict=True):
        encoded = _encode(param, buffers, scratch)
        if len(encoded) != variable.bytes:
            _refuse(
                "EMU_PARAMETERS",
                f"the parameter {param.name} has {len(encoded)} bytes, {variable.name} takes {variable.bytes}",
                {"parameter": param.name, "bytes": len(encoded), "expected": variable.bytes},
            )
        start = program.params[variable.name]
        content[start : start + len(encoded)] = encoded
    return bytes(content)


def _encode(
    param: ResolvedParam, buffers: Mapping[str, Buffer], scratch: Mapping[str, tuple[Buffer, ScratchParam]]
) -> bytes:
    if isinstance(param, ScalarParam):
        return _scalar(param)
    if isinstance(param, BytesParam):
        return bytes.fromhex(param.value)
    if isinstance(param, ScratchParam):
        return scratch[param.name][0].address.to_bytes(8, "little")
    if isinstance(param, (TensorMapParam, ElementMapParam)):
        return _tensor_map(param, _buffer(param.buffer, buffers))
    if param.buffer is None:
        return bytes(8)
    assert isinstance(param, PtrParam)
    buffer = _buffer(param.buffer, buffers)
    offset = int(param.offset_bytes)
    if not 0 <= offset <= buffer.bytes:
        _refuse(
            "EMU_BUFFER",
            f"the parameter {param.name} points {offset} bytes into {buffer.name}, which has {buffer.bytes}",
            {"parameter": param.name, "offset": offset, "bytes": buffer.bytes},
        )
    return (buffer.address + offset).to_bytes(8, "little")


def _scalar(param: ScalarParam) -> bytes:
    if param.kind == "bf16":
        return struct.pack("<f", float(param.value))[2:]
    value = float(param.value) if param.kind in ("f16", "f32", "f64") else int(param.value)
    try:
        return struct.pack(_PACK[param.kind], value)
    except (struct.error, OverflowError):
        _refuse(
            "EMU_PARAMETERS",
            f"the parameter {param.name} = {param.value} does not fit {param.kind}",
            {"parameter": param.name, "value": str(param.value)},
        )


def _buffer(name: str, buffers: Mapping[str, Buffer]) -> Buffer:
    if name not in buffers:
        _refuse("EMU_BUFFER", f"the launch names the buffer {name!r}, which it does not have", {"buffer": name})
    return buffers[name]


def _tensor_map(param: TensorMapParam | ElementMapParam, buffer: Buffer) -> bytes:
    return encode(param, buffer.address).image()
