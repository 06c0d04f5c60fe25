"""A ResolvedLaunch made ready: parameters packed, tensor maps encoded, scratch held. Then a launch is one driver call.

Imports `records`, `errors`, the driver and the tensor maps.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.errors import DeviceError, ToolError
from advisor.records.launch import (
    BytesParam,
    ElementMapParam,
    PtrParam,
    ResolvedLaunch,
    ResolvedParam,
    ScalarParam,
    ScratchParam,
    TensorMapParam,
)
from advisor.runtime.driver import Api
from advisor.runtime.tensormap import encode

_FORMAT = {
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


@dataclass
class Scratch:
    """Device memory that a rung's kernels share by name. `allocate(bytes) -> address`, zeroed by `zero`."""

    allocate: Callable[[int], int]
    zero: Callable[[int, int, Any], None]  # (address, bytes, stream)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> (address, bytes)

    def address(self, param: ScratchParam) -> int:
        """The address for `param`, allocated and zeroed on first use."""
        wanted = max(int(param.bytes), 1)
        known = self.spans.get(param.name)
        if known is not None:
            if known[1] != wanted:
                raise ToolError(
                    "SCRATCH_MISMATCH",
                    f"two kernels of a sequence want scratch {param.name!r} with {known[1]} and {wanted} bytes",
                    fix="report this: launch.json is inconsistent",
                    numbers={"first_bytes": known[1], "second_bytes": wanted},
                )
            return known[0]
        address = self.allocate(wanted)
        if param.init == "self_resetting":
            self.zero(address, wanted, None)
        self.spans[param.name] = (address, wanted)
        return address


def pack_scalar(param: ScalarParam) -> bytes:
    """The bytes of a resolved scalar parameter, little endian."""
    if param.kind == "bf16":
        import ml_dtypes
        import numpy as np

        return np.asarray(float(param.value)).astype(ml_dtypes.bfloat16).tobytes()
    number = float(param.value) if param.kind.startswith("f") else int(param.value)
    return struct.pack(_FORMAT[param.kind], number)


def pack(api: Api, param: ResolvedParam, pointers: Mapping[str, int], scratch: Scratch) -> bytes:
    """The bytes of one parameter. `pointers` maps a buffer's name to its device address."""
    if isinstance(param, ScalarParam):
        return pack_scalar(param)
    if isinstance(param, BytesParam):
        return bytes.fromhex(param.value)
    if isinstance(param, ScratchParam):
        return struct.pack("<Q", scratch.address(param))
    if isinstance(param, (TensorMapParam, ElementMapParam)):
        return encode(api, param, _pointer(pointers, param.buffer))
    return struct.pack("<Q", _resolve_pointer(param, pointers))


def _resolve_pointer(param: PtrParam, pointers: Mapping[str, int]) -> int:
    return 0 if param.buffer is None else _pointer(pointers, param.buffer) + int(param.offset_bytes)


def _pointer(pointers: Mapping[str, int], name: str) -> int:
    if name not in pointers:
        raise ToolError(
            "BUFFER_MISSING",
            f"the launch reads buffer {name!r}; given are {', '.join(sorted(pointers)) or 'none'}",
            fix="pass a device address for every buffer of the launch",
        )
    return pointers[name]


class Prepared:
    """One kernel launch, ready to be made any number of times on any stream.

    Holds the parameter bytes for as long as the launch may run. A grid with a dimension of 0 launches nothing.
    """

    def __init__(
        self, api: Api, function: Any, resolved: ResolvedLaunch, pointers: Mapping[str, int], scratch: Scratch
    ) -> None:
        self.api = api
        self.resolved = resolved
        self.empty = 0 in resolved.grid_blocks
        self._function = function
        self._scratch = scratch
        self._zeroed: list[tuple[int, int]] = []
        if self.empty:
            return
        packed = [pack(api, param, pointers, scratch) for param in resolved.params]
        self._check_sizes(packed)
        self._zeroed = [
            scratch.spans[param.name]
            for param in resolved.params
            if isinstance(param, ScratchParam) and param.init == "zeros"
        ]
        self._storage = [_aligned(each) for each in packed]
        self._addresses = (ctypes.c_void_p * len(packed))(*[address for _, address in self._storage])
        self._config = self._make_config()

    def _check_sizes(self, packed: list[bytes]) -> None:
        """The kernel's own parameter list against ours: a wrong one would read garbage in silence."""
        if getattr(self.api.raw, "cuFuncGetParamInfo", None) is None:
            return
        sizes: list[int] = []
        while True:
            status, _, size = self.api.raw.cuFuncGetParamInfo(self._function, len(sizes))
            if int(status) != 0:
                break
            sizes.append(int(size))
        given = [len(each) for each in packed]
        if sizes != given:
            raise ToolError(
                "PARAMETERS_DIFFER",
                f"kernel {self.resolved.entry} takes parameters of {sizes} bytes; launch.json gives {given}",
                fix="rebuild the bundle: the image and launch.json are of different versions",
                numbers={"kernel": sizes, "launch": given},
            )

    def _make_config(self) -> Any:
        config = make_config(
            self.api,
            grid=self.resolved.grid_blocks,
            block=self.resolved.block,
            cluster=self.resolved.cluster,
            dynamic_smem_bytes=self.resolved.dynamic_smem_bytes,
            preferred_cluster=self.resolved.attributes.preferred_cluster,
            pdl=self.resolved.attributes.programmatic_stream_serialization,
        )
        return config

    def __call__(self, stream: Any) -> None:
        """Enqueues the memsets of `init: zeros` scratch and the launch on `stream`. Raises DeviceError if refused."""
        if self.empty:
            return
        for address, size in self._zeroed:
            self._scratch.zero(address, size, stream)
        self._config.hStream = stream
        self.api.call(
            "cuLaunchKernelEx",
            self._config,
            self._function,
            ctypes.addressof(self._addresses),
            0,
            doing=f"launching {self.resolved.entry}",
        )


def make_config(
    api: Api,
    *,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    cluster: tuple[int, int, int],
    dynamic_smem_bytes: int,
    preferred_cluster: tuple[int, int, int] | None = None,
    pdl: bool = False,
) -> Any:
    """A CUlaunchConfig. Raises DeviceError LAUNCH_REFUSED when the cluster does not divide the grid."""
    largest = preferred_cluster or cluster
    for axis, blocks, size in zip("xyz", grid, largest, strict=True):
        if blocks % size:
            raise DeviceError(
                "LAUNCH_REFUSED",
                f"grid {axis} of {blocks} blocks is not a multiple of cluster {axis} of {size}",
                fix="round the grid up to whole clusters",
                numbers={"grid_blocks": list(grid), "cluster": list(largest)},
            )
    config = api.raw.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = dynamic_smem_bytes
    config.hStream = 0
    attributes = []
    if cluster != (1, 1, 1):
        attributes.append(_dimension_attribute(api, "CLUSTER_DIMENSION", "clusterDim", cluster))
    if preferred_cluster is not None:
        attributes.append(
            _dimension_attribute(api, "PREFERRED_CLUSTER_DIMENSION", "preferredClusterDim", preferred_cluster)
        )
    if pdl:
        attribute = api.raw.CUlaunchAttribute()
        attribute.id = api.enum("CUlaunchAttributeID", "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION")
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def _dimension_attribute(api: Api, identity: str, field_name: str, size: tuple[int, int, int]) -> Any:
    attribute = api.raw.CUlaunchAttribute()
    attribute.id = api.enum("CUlaunchAttributeID", f"CU_LAUNCH_ATTRIBUTE_{identity}")
    dimension = getattr(attribute.value, field_name)
    dimension.x, dimension.y, dimension.z = size
    return attribute


def _aligned(data: bytes, alignment: int = 64) -> tuple[Any, int]:
    """(the owner, the address) of a copy of `data` whose address is a multiple of `alignment`."""
    owner = ctypes.create_string_buffer(len(data) + alignment)
    address = (ctypes.addressof(owner) + alignment - 1) // alignment * alignment
    ctypes.memmove(address, data, len(data))
    return owner, address
