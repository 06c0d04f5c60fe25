"""A CUDA driver for the Python binding that needs no GPU: cuda.bindings' own types over functions that only record."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from cuda.bindings import driver as real

H200 = {
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 9,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 0,
    "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": 132,
    "CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH": 1,
}


@dataclass
class Launched:
    """One cuLaunchKernelEx, taken apart."""

    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem: int
    stream: int
    cluster: tuple[int, int, int] | None
    preferred: tuple[int, int, int] | None
    parameters: int  # address of the array of addresses
    early: bool = False  # programmatic stream serialization

    def bytes_of(self, index: int, size: int) -> bytes:
        address = ctypes.c_void_p.from_address(self.parameters + 8 * index).value
        assert address is not None
        return ctypes.string_at(address, size)


class _Map:
    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self._bytes = ctypes.create_string_buffer(repr([str(each) for each in arguments]).encode()[:127], 128)

    def getPtr(self) -> int:
        return ctypes.addressof(self._bytes)


@dataclass
class FakeDriver:
    """`residency` maps an image's file name to its clusters; `refused` names images that the driver does not load;
    `fails` maps a call to the name of what it returns instead of success."""

    attributes: dict[str, int] = field(default_factory=lambda: dict(H200))
    residency: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    fails: dict[str, str] = field(default_factory=dict)
    launched: list[Launched] = field(default_factory=list)
    maps: list[tuple[Any, ...]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    alive: set[int] = field(default_factory=set)

    def __getattribute__(self, name: str) -> Any:
        """A call that is to fail does nothing else."""
        fails = object.__getattribute__(self, "__dict__").get("fails", {})
        if name not in fails:
            return object.__getattribute__(self, name)

        def fail(*_: Any) -> tuple[Any, ...]:
            return (getattr(real.CUresult, fails[name]), None)

        fail.__name__ = name
        return fail

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cu") and not name.startswith("cuuint"):
            return lambda *args: self._plain(name)
        return getattr(real, name)

    def _plain(self, name: str) -> tuple[Any, ...]:
        self.calls.append(name)
        return (real.CUresult.CUDA_SUCCESS, 0)

    def cuGetErrorName(self, status: Any) -> tuple[Any, bytes]:
        return real.CUresult.CUDA_SUCCESS, str(status.name).encode()

    def cuDeviceGetAttribute(self, attribute: Any, device: Any) -> tuple[Any, int]:
        return real.CUresult.CUDA_SUCCESS, self.attributes[attribute.name]

    def cuLibraryLoadFromFile(self, path: bytes, *rest: Any) -> tuple[Any, str]:
        name = path.decode().rsplit("/", 1)[-1]
        if name in self.refused:
            return real.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU, ""
        return real.CUresult.CUDA_SUCCESS, name

    def cuLibraryGetKernel(self, library: str, entry: bytes) -> tuple[Any, str]:
        return real.CUresult.CUDA_SUCCESS, library

    def cuKernelGetFunction(self, kernel: str) -> tuple[Any, str]:
        return real.CUresult.CUDA_SUCCESS, kernel

    def cuOccupancyMaxActiveClusters(self, function: str, config: Any) -> tuple[Any, int]:
        return real.CUresult.CUDA_SUCCESS, self.residency.get(function, 66)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: str, threads: int, smem: int) -> tuple[Any, int]:
        return real.CUresult.CUDA_SUCCESS, 2

    def cuTensorMapEncodeTiled(self, *arguments: Any) -> tuple[Any, _Map]:
        self.maps.append(arguments)
        return real.CUresult.CUDA_SUCCESS, _Map(arguments)

    def cuMemAllocAsync(self, size: int, stream: int) -> tuple[Any, int]:
        address = 0x7000_0000 + 0x1000 * len(self.calls)
        self.calls.append(f"cuMemAllocAsync {size}")
        self.alive.add(address)
        return real.CUresult.CUDA_SUCCESS, address

    def cuMemFreeAsync(self, address: int, stream: int) -> tuple[Any]:
        self.alive.remove(address)
        return (real.CUresult.CUDA_SUCCESS,)

    def cuLaunchKernelEx(self, config: Any, function: str, parameters: int, extra: int) -> tuple[Any]:
        clusters = [
            (each.value.clusterDim.x, each.value.clusterDim.y, each.value.clusterDim.z)
            for each in config.attrs
            if each.id == real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        ]
        preferred = [
            (each.value.preferredClusterDim.x, each.value.preferredClusterDim.y, each.value.preferredClusterDim.z)
            for each in config.attrs
            if each.id == real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
        ]
        self.launched.append(
            Launched(
                function,
                (config.gridDimX, config.gridDimY, config.gridDimZ),
                (config.blockDimX, config.blockDimY, config.blockDimZ),
                config.sharedMemBytes,
                int(config.hStream),
                clusters[0] if clusters else None,
                preferred[0] if preferred else None,
                parameters,
                any(
                    each.id == real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                    and each.value.programmaticStreamSerializationAllowed == 1
                    for each in config.attrs
                ),
            )
        )
        return (real.CUresult.CUDA_SUCCESS,)


@dataclass
class FakeArray:
    """An array in the CUDA array interface; the memory is only an address."""

    shape: tuple[int, ...]
    typestr: str = "<f2"
    strides: tuple[int, ...] | None = None  # bytes
    address: int = 0x1000_0000
    read_only: bool = False
    stream: int | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.typestr,
            "data": (self.address, self.read_only),
            "strides": self.strides,
            "stream": self.stream,
            "version": 3,
        }
