"""A CUDA driver in Python, with the functions of `cuda.bindings.driver` that the runtime calls.

It keeps memory as host arrays, records launches, and fails where a test tells it to: `fail["cuInit"] = 100`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np

NAMES = {
    0: "CUDA_SUCCESS",
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    200: "CUDA_ERROR_INVALID_IMAGE",
    209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
    222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    500: "CUDA_ERROR_NOT_FOUND",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    912: "CUDA_ERROR_INVALID_CLUSTER_SIZE",
}
ATTRIBUTES = {
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "L2_CACHE_SIZE": 62914560,
    "CLUSTER_LAUNCH": 1,
    "CLOCK_RATE": 1980000,
    "MEMORY_CLOCK_RATE": 3201000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6016,
    "COMPUTE_MODE": 0,
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
}


class Names:
    """An enum whose members are their own names."""

    def __getattr__(self, name: str) -> str:
        return name


class StreamFlags(IntEnum):
    CU_STREAM_NON_BLOCKING = 1


class Fields:
    """A struct: any field may be set; one that is read first is another struct."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = Fields()
        self.__dict__[name] = value
        return value


class Uuid:
    bytes = bytes(range(16))


class TensorMap:
    def __init__(self, content: bytes) -> None:
        self.content = ctypes.create_string_buffer(content, 128)

    def getPtr(self) -> int:
        return ctypes.addressof(self.content)


class FakeDriver:
    CUdevice_attribute = CUfunction_attribute = CUlaunchAttributeID = CUstreamCaptureMode = Names()
    CUtensorMapDataType = CUtensorMapInterleave = CUtensorMapSwizzle = Names()
    CUtensorMapL2promotion = CUtensorMapFloatOOBfill = Names()
    CUstream_flags = StreamFlags
    CUlaunchConfig = CUlaunchAttribute = Fields
    cuuint64_t = cuuint32_t = CUdeviceptr = int

    def __init__(self) -> None:
        self.fail: dict[str, int] = {}
        self.version = 13000
        self.devices = 1
        self.name = b"NVIDIA H200\0\0"
        self.attributes = dict(ATTRIBUTES)
        self.memory: dict[int, np.ndarray] = {}
        self.launches: list[dict[str, Any]] = []
        self.function_attributes: dict[str, int] = {}
        self.encoded: list[tuple[Any, ...]] = []
        self.parameter_sizes: list[int] = []
        self.active_clusters = 66
        self.asked: list[Any] = []
        self.calls: list[str] = []
        self.kernels: dict[str, Callable[[list[bytes], Any], None]] = {}  # entry -> what a launch of it does
        self.parameter_sizes_of: dict[str, list[int]] = {}
        self._captured: list[Callable[[], None]] | None = None

    # what every function does first
    def _status(self, name: str) -> int:
        self.calls.append(name)
        return self.fail.get(name, 0)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *_: (self._status(name),)

    def cuGetErrorName(self, result: int) -> tuple[int, bytes]:
        return 0, NAMES.get(int(result), f"CUDA_ERROR_{int(result)}").encode()

    def cuGetErrorString(self, result: int) -> tuple[int, bytes]:
        return 0, f"text of {int(result)}".encode()

    def cuDriverGetVersion(self) -> tuple[int, int]:
        return self._status("cuDriverGetVersion"), self.version

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return self._status("cuDeviceGetCount"), self.devices

    def cuDeviceGet(self, index: int) -> tuple[int, int]:
        return self._status("cuDeviceGet"), index

    def cuDeviceGetName(self, length: int, device: int) -> tuple[int, bytes]:
        return self._status("cuDeviceGetName"), self.name

    def cuDeviceGetUuid(self, device: int) -> tuple[int, Uuid]:
        return self._status("cuDeviceGetUuid"), Uuid()

    def cuDeviceTotalMem(self, device: int) -> tuple[int, int]:
        return self._status("cuDeviceTotalMem"), 2**37

    def cuDeviceGetAttribute(self, attribute: str, device: int) -> tuple[int, int]:
        return self._status("cuDeviceGetAttribute"), self.attributes[attribute.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int, str]:
        return self._status("cuDevicePrimaryCtxRetain"), "context"

    def cuStreamCreate(self, flags: int) -> tuple[int, int]:
        return self._status("cuStreamCreate"), 7

    def cuStreamBeginCapture(self, stream: int, mode: str) -> tuple[int]:
        self._captured = []
        return (self._status("cuStreamBeginCapture"),)

    def cuStreamEndCapture(self, stream: int) -> tuple[int, Any]:
        graph, self._captured = self._captured, None
        return self._status("cuStreamEndCapture"), graph

    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[int, Any]:
        return self._status("cuGraphInstantiate"), graph

    def cuGraphLaunch(self, graph: Any, stream: int) -> tuple[int]:
        for work in graph:
            work()
        return (self._status("cuGraphLaunch"),)

    def cuEventCreate(self, flags: int) -> tuple[int, str]:
        return self._status("cuEventCreate"), "event"

    def cuEventElapsedTime(self, start: str, stop: str) -> tuple[int, float]:
        return self._status("cuEventElapsedTime"), 0.25

    def cuModuleLoadData(self, image: bytes) -> tuple[int, str]:
        return self._status("cuModuleLoadData"), "module"

    def cuModuleGetFunction(self, module: str, name: bytes) -> tuple[int, str]:
        return self._status("cuModuleGetFunction"), f"function {name.decode()}"

    def cuFuncGetAttribute(self, attribute: str, function: str) -> tuple[int, int]:
        values = {"NUM_REGS": 168, "SHARED_SIZE_BYTES": 16, "LOCAL_SIZE_BYTES": 0, "MAX_THREADS_PER_BLOCK": 384}
        return self._status("cuFuncGetAttribute"), values[attribute.removeprefix("CU_FUNC_ATTRIBUTE_")]

    def cuFuncSetAttribute(self, function: str, attribute: str, value: int) -> tuple[int]:
        self.function_attributes[attribute.removeprefix("CU_FUNC_ATTRIBUTE_")] = value
        return (self._status("cuFuncSetAttribute"),)

    def _sizes(self, function: str) -> list[int]:
        return self.parameter_sizes_of.get(function.removeprefix("function "), self.parameter_sizes)

    def cuFuncGetParamInfo(self, function: str, index: int) -> tuple[int, int, int]:
        sizes = self._sizes(function)
        return (0, 0, sizes[index]) if index < len(sizes) else (1, 0, 0)

    def cuOccupancyMaxActiveClusters(self, function: str, config: Any) -> tuple[int, int]:
        self.asked.append(config)
        return self._status("cuOccupancyMaxActiveClusters"), self.active_clusters

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: str, threads: int, smem: int) -> tuple[int, int]:
        return self._status("cuOccupancyMaxActiveBlocksPerMultiprocessor"), 3

    def cuMemAlloc(self, size: int) -> tuple[int, int]:
        array = np.zeros(size + 256, np.uint8)
        address = (array.ctypes.data + 255) // 256 * 256
        self.memory[address] = array
        return self._status("cuMemAlloc"), address

    def cuMemFree(self, address: int) -> tuple[int]:
        del self.memory[address]
        return (self._status("cuMemFree"),)

    def cuMemcpyHtoD(self, target: int, source: int, size: int) -> tuple[int]:
        ctypes.memmove(target, source, size)
        return (self._status("cuMemcpyHtoD"),)

    cuMemcpyDtoH = cuMemcpyDtoD = cuMemcpyHtoD

    def cuMemsetD8Async(self, address: int, byte: int, size: int, stream: Any) -> tuple[int]:
        self._do(lambda: ctypes.memset(address, byte, size) and None)
        return (self._status("cuMemsetD8Async"),)

    def _do(self, work: Callable[[], None]) -> None:
        """Now, or when the graph that is being captured is launched."""
        if self._captured is None:
            work()
        else:
            self._captured.append(work)

    def cuTensorMapEncodeTiled(self, *args: Any) -> tuple[int, TensorMap]:
        self.encoded.append(args)
        return self._status("cuTensorMapEncodeTiled"), TensorMap(bytes(range(128)))

    def cuLaunchKernelEx(self, config: Any, function: str, params: int, extra: int) -> tuple[int]:
        sizes = self._sizes(function)
        addresses = (ctypes.c_void_p * len(sizes)).from_address(params)
        values = [ctypes.string_at(address, size) for address, size in zip(addresses, sizes, strict=True)]
        self.launches.append({"config": config, "function": function, "params": values})
        kernel = self.kernels.get(function.removeprefix("function "))
        if kernel is not None:
            self._do(lambda: kernel(values, config))
        return (self._status("cuLaunchKernelEx"),)
