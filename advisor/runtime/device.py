"""One live GPU: what it is, kernels on it, memory, launches, graphs, time.

Imports `records`, `machine`, `errors` and the runtime's own driver and launching. Uses the device's primary context,
which torch and CuPy use too, so their arrays can be passed by address.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from advisor.errors import DeviceError
from advisor.machine.profile import DeviceProfile, Source
from advisor.records.candidate import OccupancyKey
from advisor.records.evidence import Chip
from advisor.records.launch import ResolvedLaunch
from advisor.runtime.driver import Api, driver_cuda_version, load_api, version_text
from advisor.runtime.launching import Prepared, Scratch, make_config
from advisor.runtime.monitor import Monitor

_LIMITS = {
    "sms": "MULTIPROCESSOR_COUNT",
    "smem_per_sm_bytes": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "smem_per_block_bytes": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "smem_reserved_bytes": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "registers_per_sm": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "max_threads_per_sm": "MAX_THREADS_PER_MULTIPROCESSOR",
    "max_blocks_per_sm": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "l2_bytes": "L2_CACHE_SIZE",
    "cluster_launch": "CLUSTER_LAUNCH",
    "clock_khz": "CLOCK_RATE",
    "memory_clock_khz": "MEMORY_CLOCK_RATE",
    "memory_bus_bits": "GLOBAL_MEMORY_BUS_WIDTH",
    "compute_mode": "COMPUTE_MODE",
}
_CARVEOUT_PERCENT = {"max": 100, "default": -1}


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What the driver says of a GPU. `limits` has the numbers by the profile's field names, bytes and counts."""

    index: int
    name: str
    compute_capability: tuple[int, int]
    uuid_hash: str  # the first 16 hex digits of sha256(uuid): tells units apart without naming one
    driver: str  # 580.159.04 where the kernel module says so, else the CUDA version
    cuda: str  # the CUDA version that the driver supports
    sms: int
    memory_bytes: int
    limits: Mapping[str, int]

    def chip(self) -> Chip:
        return Chip(
            name=self.name, compute_capability=self.compute_capability, uuid_hash=self.uuid_hash, driver=self.driver
        )


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel of a loaded cubin. Resource usage as the driver reports it, per thread or per CTA."""

    entry: str
    module: Any
    function: Any
    registers: int
    static_smem_bytes: int
    local_bytes: int
    max_threads: int


class Buffer:
    """Device memory. Speaks the CUDA array interface as bytes, so that torch and CuPy see it without a copy."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3, "strides": None}


class Graph:
    """A captured sequence of launches."""

    def __init__(self, api: Api, executable: Any, graph: Any) -> None:
        self._api = api
        self._executable = executable
        self._graph = graph

    def launch(self, stream: Any) -> None:
        self._api.call("cuGraphLaunch", self._executable, stream, doing="replaying a graph")

    def close(self) -> None:
        self._api.call("cuGraphExecDestroy", self._executable)
        self._api.call("cuGraphDestroy", self._graph)


class Device:
    """A GPU with its primary context current on the calling thread. Close it, or use it as a context manager."""

    def __init__(self, api: Api, index: int) -> None:
        self.api = api
        self._handle = self._get_handle(index)
        self._uuid = bytes(api.call("cuDeviceGetUuid", self._handle).bytes)
        self.info = self._read_info(index)
        self._context = self._retain()
        self.stream = self.create_stream()
        self._modules: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], LoadedKernel] = {}
        self._buffers: dict[int, Buffer] = {}

    # ---- opening ------------------------------------------------------------------------------------------------

    def _get_handle(self, index: int) -> Any:
        count = int(self.api.call("cuDeviceGetCount", doing="counting the GPUs"))
        if not 0 <= index < count:
            raise DeviceError(
                "NO_DEVICE",
                f"there is no GPU with index {index}: this machine has {count}",
                fix="check `nvidia-smi -L` and CUDA_VISIBLE_DEVICES",
                numbers={"index": index, "count": count},
            )
        return self.api.call("cuDeviceGet", index, doing=f"opening GPU {index}")

    def _attribute(self, name: str) -> int:
        member = self.api.enum("CUdevice_attribute", f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.api.call("cuDeviceGetAttribute", member, self._handle, doing=f"reading {name}"))

    def _read_info(self, index: int) -> DeviceInfo:
        name = self.api.call("cuDeviceGetName", 128, self._handle)
        cuda = version_text(driver_cuda_version(self.api))
        limits = {field: self._attribute(attribute) for field, attribute in _LIMITS.items()}
        capability = (
            self._attribute("COMPUTE_CAPABILITY_MAJOR"),
            self._attribute("COMPUTE_CAPABILITY_MINOR"),
        )
        return DeviceInfo(
            index=index,
            name=_text(name),
            compute_capability=capability,
            uuid_hash=hashlib.sha256(self._uuid).hexdigest()[:16],
            driver=_kernel_module_version() or f"CUDA {cuda}",
            cuda=cuda,
            sms=limits["sms"],
            memory_bytes=int(self.api.call("cuDeviceTotalMem", self._handle)),
            limits=limits,
        )

    def _retain(self) -> Any:
        doing = f"opening {self.info.name}"
        try:
            context = self.api.call("cuDevicePrimaryCtxRetain", self._handle, doing=doing)
            self.api.call("cuCtxSetCurrent", context, doing=doing)
        except DeviceError as error:
            if error.code in ("CUDA_CALL_FAILED", "DEVICE_OUT_OF_MEMORY"):
                raise DeviceError("DEVICE_UNREADABLE", error.message, fix=error.fix, numbers=error.numbers) from error
            raise
        return context

    def close(self) -> None:
        """Frees what this object holds. Not for a context that a kernel fault has already lost."""
        for buffer in list(self._buffers.values()):
            self.free(buffer)
        for module in self._modules.values():
            self.api.call("cuModuleUnload", module)
        self._modules.clear()
        self._kernels.clear()
        self.api.call("cuStreamDestroy", self.stream)
        self.api.call("cuDevicePrimaryCtxRelease", self._handle)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # After a kernel fault every further call fails: closing would hide the error that matters.
        if error is None:
            self.close()

    # ---- kernels ------------------------------------------------------------------------------------------------

    def load(self, cubin: bytes, entry: str) -> LoadedKernel:
        """The kernel `entry` of a cubin. Loaded once per (cubin, entry).

        Raises DeviceError CUBIN_NOT_LOADABLE when the image is for another chip or newer than the driver,
        ENTRY_NOT_FOUND when it has no such kernel.
        """
        digest = hashlib.sha256(cubin).hexdigest()
        key = (digest, entry)
        if key in self._kernels:
            return self._kernels[key]
        if digest not in self._modules:
            self._modules[digest] = self._load_module(cubin, entry)
        module = self._modules[digest]
        function = self.api.call("cuModuleGetFunction", module, entry.encode(), doing=f"looking for kernel {entry}")
        kernel = LoadedKernel(
            entry=entry,
            module=module,
            function=function,
            registers=self._function_attribute("NUM_REGS", function),
            static_smem_bytes=self._function_attribute("SHARED_SIZE_BYTES", function),
            local_bytes=self._function_attribute("LOCAL_SIZE_BYTES", function),
            max_threads=self._function_attribute("MAX_THREADS_PER_BLOCK", function),
        )
        self._kernels[key] = kernel
        return kernel

    def _load_module(self, cubin: bytes, entry: str) -> Any:
        try:
            return self.api.call("cuModuleLoadData", cubin, doing=f"loading the image of {entry}")
        except DeviceError as error:
            if error.code != "CUBIN_NOT_LOADABLE":
                raise
            built_for = cubin_target(cubin)
            own = f"sm_{self.info.compute_capability[0]}{self.info.compute_capability[1]}"
            raise DeviceError(
                "CUBIN_NOT_LOADABLE",
                f"the image of {entry} ({built_for or 'not a cubin'}) does not load on {self.info.name} "
                f"({own}, driver for CUDA {self.info.cuda}): {error.message}",
                fix=f"rebuild with a compiler of CUDA {self.info.cuda} or older, for {own} or {own}a, "
                "or update the driver",
                numbers={"image": built_for, "device": own, "driver_cuda": self.info.cuda, **error.numbers},
            ) from error

    def _function_attribute(self, name: str, function: Any) -> int:
        member = self.api.enum("CUfunction_attribute", f"CU_FUNC_ATTRIBUTE_{name}")
        return int(self.api.call("cuFuncGetAttribute", member, function))

    def _set_function_attribute(self, name: str, function: Any, value: int, doing: str) -> None:
        member = self.api.enum("CUfunction_attribute", f"CU_FUNC_ATTRIBUTE_{name}")
        self.api.call("cuFuncSetAttribute", function, member, value, doing=doing)

    def configure(
        self,
        kernel: LoadedKernel,
        *,
        dynamic_smem_bytes: int,
        nonportable: bool = False,
        carveout: Literal["max", "default"] = "max",
    ) -> None:
        """Sets what a launch of `kernel` needs: dynamic shared memory, the non-portable cluster size, the carve-out.

        Raises DeviceError SMEM_OVER_LIMIT with the numbers when the CTA does not fit.
        """
        total, limit = kernel.static_smem_bytes + dynamic_smem_bytes, self.info.limits["smem_per_block_bytes"]
        if total > limit:
            raise DeviceError(
                "SMEM_OVER_LIMIT",
                f"{kernel.entry} wants {total} bytes of shared memory per CTA; {self.info.name} has {limit}",
                fix="fewer stages or a smaller tile",
                numbers={"wanted_bytes": total, "limit_bytes": limit},
            )
        doing = f"configuring {kernel.entry}"
        self._set_function_attribute(
            "MAX_DYNAMIC_SHARED_SIZE_BYTES", kernel.function, dynamic_smem_bytes, f"{doing} for {total} bytes of SMEM"
        )
        self._set_function_attribute(
            "PREFERRED_SHARED_MEMORY_CARVEOUT", kernel.function, _CARVEOUT_PERCENT[carveout], doing
        )
        if nonportable:
            self._set_function_attribute("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", kernel.function, 1, doing)

    def max_active_clusters(
        self,
        kernel: LoadedKernel,
        *,
        block: tuple[int, int, int],
        cluster: tuple[int, int, int],
        dynamic_smem_bytes: int,
        carveout: Literal["max", "default"] = "max",
    ) -> int:
        """Clusters of `kernel` that the driver says are co-resident. Zero is an answer; a failed query raises."""
        size = cluster[0] * cluster[1] * cluster[2]
        self.configure(kernel, dynamic_smem_bytes=dynamic_smem_bytes, nonportable=size > 8, carveout=carveout)
        if not self.info.limits["cluster_launch"]:
            if size > 1:
                return 0
            threads = block[0] * block[1] * block[2]
            per_sm = self.api.call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", kernel.function, threads, dynamic_smem_bytes
            )
            return int(per_sm) * self.info.sms
        config = make_config(
            self.api, grid=cluster, block=block, cluster=cluster, dynamic_smem_bytes=dynamic_smem_bytes
        )
        if size == 1:
            config = self._explicit_cluster_of_one(config)
        doing = f"asking how many clusters of {size} {kernel.entry} keeps resident"
        return int(self.api.call("cuOccupancyMaxActiveClusters", kernel.function, config, doing=doing))

    def _explicit_cluster_of_one(self, config: Any) -> Any:
        attribute = self.api.raw.CUlaunchAttribute()
        attribute.id = self.api.enum("CUlaunchAttributeID", "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION")
        dimension = attribute.value.clusterDim
        dimension.x = dimension.y = dimension.z = 1
        config.attrs = [attribute]
        config.numAttrs = 1
        return config

    def query_residency(self, cubin: bytes, entry: str, key: OccupancyKey) -> tuple[int, dict[str, Any]]:
        """(max active clusters, the facts behind it) of a built kernel: what the planner's oracle returns.

        `key.smem_bytes` is static plus dynamic; the static part is read off the image.
        """
        kernel = self.load(cubin, entry)
        dynamic = max(0, key.smem_bytes - kernel.static_smem_bytes)
        count = self.max_active_clusters(
            kernel, block=(key.threads, 1, 1), cluster=key.cluster, dynamic_smem_bytes=dynamic, carveout=key.carveout
        )
        facts = {
            "max_active_clusters": count,
            "device": self.info.name,
            "driver": self.info.driver,
            "uuid_hash": self.info.uuid_hash,
            "cubin_sha256": hashlib.sha256(cubin).hexdigest(),
            "threads": key.threads,
            "registers": kernel.registers,
            "static_smem_bytes": kernel.static_smem_bytes,
            "dynamic_smem_bytes": dynamic,
            "carveout": key.carveout,
            "cluster": list(key.cluster),
        }
        return count, facts

    # ---- memory -------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Buffer:
        """`size` bytes of device memory, 256-byte aligned, contents undefined."""
        address = int(self.api.call("cuMemAlloc", max(size, 1), doing=f"allocating {size} bytes"))
        buffer = Buffer(address, size)
        self._buffers[address] = buffer
        return buffer

    def free(self, buffer: Buffer) -> None:
        self._buffers.pop(buffer.address, None)
        self.api.call("cuMemFree", buffer.address)

    def upload(self, array: NDArray[Any], buffer: Buffer | None = None, offset: int = 0) -> Buffer:
        """Copies `array` (C order) to `buffer`, or to a new one, `offset` bytes in. Blocks until it is there."""
        source = np.ascontiguousarray(array)
        target = buffer or self.allocate(source.nbytes)
        if source.nbytes:
            self.api.call("cuMemcpyHtoD", target.address + offset, source.ctypes.data, source.nbytes, doing="uploading")
        return target

    def download(self, buffer: Buffer, offset: int = 0, size: int | None = None) -> NDArray[np.uint8]:
        """Bytes of `buffer`. Waits for the device first."""
        self.synchronize()
        count = buffer.size - offset if size is None else size
        target = np.empty(count, np.uint8)
        if count:
            self.api.call("cuMemcpyDtoH", target.ctypes.data, buffer.address + offset, count, doing="downloading")
        return target

    def copy(self, target: Buffer, source: Buffer) -> None:
        """Device to device, the size of `source`."""
        self.api.call("cuMemcpyDtoD", target.address, source.address, source.size, doing="copying")

    def fill(self, buffer: Buffer, byte: int) -> None:
        self.zero(buffer.address, buffer.size, self.stream, byte)

    def zero(self, address: int, size: int, stream: Any = None, byte: int = 0) -> None:
        """Sets `size` bytes on `stream` (the device's own by default)."""
        self.api.call("cuMemsetD8Async", address, byte, size, self.stream if stream is None else stream)

    # ---- launches -----------------------------------------------------------------------------------------------

    def scratch(self) -> Scratch:
        """Scratch memory for the kernels of one rung; the launches of one rung on one stream share it."""
        return Scratch(allocate=lambda size: self.allocate(size).address, zero=self.zero)

    def release(self, scratch: Scratch) -> None:
        for address, _ in scratch.spans.values():
            self.free(self._buffers[address])
        scratch.spans.clear()

    def prepare(
        self, kernel: LoadedKernel, resolved: ResolvedLaunch, pointers: Mapping[str, int], scratch: Scratch
    ) -> Prepared:
        """`resolved` with the kernel configured and the parameters packed; call the result with a stream.

        `pointers` maps the launch's buffers to device addresses. Raises DeviceError and ToolError as `configure`,
        the tensor map encoder and the parameter check do.
        """
        self.configure(
            kernel,
            dynamic_smem_bytes=resolved.dynamic_smem_bytes,
            nonportable=resolved.nonportable,
            carveout=resolved.carveout,
        )
        return Prepared(self.api, kernel.function, resolved, pointers, scratch)

    def launch(self, cubin: bytes, resolved: ResolvedLaunch, pointers: Mapping[str, int]) -> None:
        """Loads, launches once on the device's stream and waits. Scratch is made for the launch and freed."""
        scratch = self.scratch()
        self.prepare(self.load(cubin, resolved.entry), resolved, pointers, scratch)(self.stream)
        self.synchronize()
        self.release(scratch)

    def create_stream(self) -> Any:
        flag = self.api.enum("CUstream_flags", "CU_STREAM_NON_BLOCKING")
        return self.api.call("cuStreamCreate", int(flag), doing="creating a stream")

    def wait(self, stream: Any) -> None:
        """Waits for the work of one stream alone. Raises DeviceError KERNEL_FAULT when a kernel faulted."""
        self.api.call("cuStreamSynchronize", stream, doing="waiting for the kernel")

    def synchronize(self) -> None:
        """Waits for all work of the context. Raises DeviceError KERNEL_FAULT when a kernel faulted."""
        self.api.call("cuCtxSynchronize", doing="waiting for the kernel")

    def capture(self, work: Callable[[Any], None]) -> Graph:
        """A graph of what `work(stream)` enqueues."""
        stream = self.create_stream()
        mode = self.api.enum("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_RELAXED")
        self.api.call("cuStreamBeginCapture", stream, mode, doing="capturing a graph")
        try:
            work(stream)
        finally:
            graph = self.api.call("cuStreamEndCapture", stream, doing="capturing a graph")
        executable = self.api.call("cuGraphInstantiate", graph, 0, doing="instantiating a graph")
        self.api.call("cuStreamDestroy", stream)
        return Graph(self.api, executable, graph)

    def copy_async(self, target: int, source: int, size: int, stream: Any) -> None:
        """Enqueues a copy of `size` bytes between device addresses."""
        self.api.call("cuMemcpyDtoDAsync", target, source, size, stream, doing="copying")

    # ---- time ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _event_pair(self) -> Iterator[tuple[Any, Any]]:
        start, stop = (self.api.call("cuEventCreate", 0) for _ in range(2))
        try:
            yield start, stop
        finally:
            self.api.call("cuEventDestroy", start)
            self.api.call("cuEventDestroy", stop)

    def time_us(self, work: Callable[[Any], None], meanwhile: Callable[[], None] | None = None) -> float:
        """Microseconds on the device between the start and the end of what `work(stream)` enqueues. `meanwhile` runs
        on the host while the device works."""
        with self._event_pair() as (start, stop):
            self.api.call("cuEventRecord", start, self.stream)
            work(self.stream)
            self.api.call("cuEventRecord", stop, self.stream)
            if meanwhile is not None:
                meanwhile()
            self.api.call("cuEventSynchronize", stop, doing="waiting for the kernel")
            return 1000.0 * float(self.api.call("cuEventElapsedTime", start, stop))

    def time_interleaved_us(
        self, works: Sequence[Callable[[Any], None]], samples: int, warm_up: int = 3
    ) -> list[list[float]]:
        """`samples` times of each work, taken in turn (a b a b ...), so that clocks and heat treat them alike."""
        for _ in range(warm_up):
            for work in works:
                work(self.stream)
        self.synchronize()
        times: list[list[float]] = [[] for _ in works]
        for _ in range(samples):
            for position, work in enumerate(works):
                times[position].append(self.time_us(work))
        return times

    def monitor(self) -> Monitor:
        """Clocks, power and temperature of this GPU."""
        return Monitor(f"GPU-{uuid.UUID(bytes=self._uuid)}")

    # ---- profile ------------------------------------------------------------------------------------------------

    def profile(self) -> DeviceProfile:
        """The shipped profile of this chip with the limits that the driver reports put over it.

        A product without a profile of its own starts from the nearest of its compute capability, marked as assumed.
        Raises DeviceError UNKNOWN_CHIP when there is none.
        """
        from advisor.machine import profile_for_cc
        from advisor.machine.profile_file import nearest_for_cc

        major, minor = self.info.compute_capability
        known = profile_for_cc(major, minor, self.info.name)
        if known is not None:
            return with_queried_limits(known, self.info)
        near = nearest_for_cc(major, minor)
        if near is None:
            raise DeviceError(
                "UNKNOWN_CHIP",
                f"no shipped profile describes {self.info.name} (compute capability {major}.{minor})",
                fix="write a profile for it after docs/machine.md and pass it as --target",
                numbers={"compute_capability": [major, minor]},
            )
        assumed = Source("assumed", f"taken from {near.title}; `advisor probe` measures {self.info.name} itself")
        sources = dict.fromkeys(near.sources, assumed)
        base = replace(near, name=slug(self.info.name), title=self.info.name, sources=sources)
        return with_queried_limits(base, self.info)


def slug(device_name: str) -> str:
    """A profile name for a product: "NVIDIA H100 PCIe" -> "h100_pcie"."""
    words = [each for each in re.findall(r"[a-z0-9]+", device_name.lower()) if each not in ("nvidia", "geforce")]
    text = "_".join(words) or "gpu"
    return text if text[0].isalpha() else f"gpu_{text}"


def with_queried_limits(base: DeviceProfile, info: DeviceInfo) -> DeviceProfile:
    """`base` with the driver's own limits. The groups are kept only while they cover the SM count."""
    fields = [name for name in _LIMITS if hasattr(base, name)]
    queried: dict[str, Any] = {name: info.limits[name] for name in fields}
    source = Source("queried", f"cuDeviceGetAttribute on {info.name}, driver {info.driver}")
    sources = {**base.sources, **dict.fromkeys(fields, source)}
    if sum(base.sm_groups) != info.sms:
        queried["sm_groups"] = scale_groups(base.sm_groups, info.sms)
        sources["sm_groups"] = Source("assumed", f"the groups of {base.name} cut to {info.sms} SMs; `probe` measures")
    return replace(base, sources=sources, **queried)


def scale_groups(groups: tuple[int, ...], sms: int) -> tuple[int, ...]:
    """`groups` with whole TPCs (2 SMs) taken from or added to the largest or smallest ones until they sum to `sms`."""
    result = list(groups)
    while sum(result) > sms:
        largest = result.index(max(result))
        result[largest] -= min(2, sum(result) - sms)
    while sum(result) < sms:
        smallest = result.index(min(result))
        result[smallest] += min(2, sms - sum(result))
    return tuple(sorted((each for each in result if each > 0), reverse=True))


def open_device(index: int = 0, *, api: Api | None = None) -> Device:
    """GPU `index` with its primary context current.

    Raises DeviceError: NO_DRIVER, DRIVER_TOO_OLD, NO_DEVICE, DEVICE_BUSY, DEVICE_UNREADABLE.
    """
    return Device(api or load_api(), index)


def cubin_target(cubin: bytes) -> str | None:
    """`sm_90` for a cubin, from the flags of its ELF header; None for anything else. The suffix is not in there."""
    if len(cubin) < 64 or cubin[:4] != b"\x7fELF" or cubin[4] != 2:
        return None
    machine, flags = int.from_bytes(cubin[18:20], "little"), int.from_bytes(cubin[48:52], "little")
    if machine != 190:  # EM_CUDA
        return None
    # ABI version 8 (CUDA 13) moved the architecture from the lowest byte to the second one.
    number = flags >> 8 & 0xFFFF if cubin[8] >= 8 else flags & 0xFF
    return f"sm_{number}" if 50 <= number <= 200 else None


def _text(value: Any) -> str:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return raw.split(b"\0")[0].decode().strip()


def _kernel_module_version() -> str | None:
    """The driver's own version, from the kernel module's file; None where the platform has no such file."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return found.group(1) if found else None
