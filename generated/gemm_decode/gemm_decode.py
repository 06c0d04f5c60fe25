"""gemm_decode from Python, on the arrays of torch, CuPy and others.

    D = activation(alpha * scale_a * scale_b * A B + beta * C + bias)

    import gemm_decode
    # a [m, k], b [k, n], d [m, n], or all with a batch in front
    gemm_decode.run(a, b, d, bias=bias)
    gemm_decode.run(a, b, d, bias=bias, stream=torch.cuda.current_stream())

Arrays have DLPack or the CUDA array interface, any size, and the layout that the bundle was built for:

    a   bfloat16, contiguous along k
    b   bfloat16, contiguous along k
    d   bfloat16, contiguous along n

Where a library has no such type, an unsigned integer array with its bits will do. Needs cuda-bindings, launch.json
beside this file, and images in build/. What a runtime.json beside it switches off does not run. Nothing waits for the
GPU, so a call can be captured into a CUDA graph.
"""

from __future__ import annotations

import ast
import ctypes
import json
import math
import operator
import re
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

LAUNCH: dict[str, Any] = json.loads((Path(__file__).resolve().parent / "launch.json").read_text(encoding="utf-8"))
DEFAULT_SM_BUDGET: int | None = None


class LaunchError(RuntimeError):
    """The launch cannot be made, or the driver refused it."""


class ArrayError(ValueError):
    """An array that the kernels cannot take."""


# --- expressions of launch.json ----------------------------------------------------------------------------------

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "min": min,
    "max": max,
    "ceil_div": lambda value, unit: -(-value // unit),
    "align_up": lambda value, unit: -(-value // unit) * unit,
}


Names = Mapping[str, int]
Functions = Mapping[str, Callable[..., int]]
Step = Callable[[Names, Functions], int]


def _evaluate(expression: str | int, names: Names, functions: Functions = _FUNCTIONS) -> int:
    """The value of an expression of launch.json: unsigned 64-bit integers and conditions over them."""
    if isinstance(expression, int):
        return expression
    try:
        return _compiled(expression)(names, functions)
    except ZeroDivisionError as error:
        raise LaunchError(f"{expression} divides by zero for these arguments") from error


@cache
def _compiled(text: str) -> Step:
    return _step(ast.parse(text, mode="eval").body)


def _step(node: ast.expr) -> Step:
    """A function that computes the node; what is not of the language raises LaunchError."""
    match node:
        case ast.Constant(value=int() as value):
            return lambda names, functions: value
        case ast.Name(id=name):
            return lambda names, functions: names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            apply, first, second = _OPERATORS[type(op)], _step(left), _step(right)
            return _checked(node, lambda names, functions: apply(first(names, functions), second(names, functions)))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _comparison([_COMPARISONS[type(op)] for op in ops], [_step(each) for each in (left, *comparators)])
        case ast.BoolOp(op=op, values=values):
            terms, join = [_step(each) for each in values], all if isinstance(op, ast.And) else any
            return lambda names, functions: join(term(names, functions) for term in terms)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _step(operand)
            return lambda names, functions: not inner(names, functions)
        case ast.Call(func=ast.Name(id=name), args=args):
            given = [_literal(each) for each in args]
            return _checked(node, lambda names, functions: functions[name](*(each(names, functions) for each in given)))
    raise LaunchError(f"launch.json holds {ast.unparse(node)!r}, which this version cannot read")


def _literal(node: ast.expr) -> Callable[[Names, Functions], Any]:
    """An argument of a call: the quoted name of a kernel or a buffer, or an expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return lambda names, functions: node.value
    return _step(node)


def _comparison(operators: Sequence[Callable[[int, int], bool]], operands: Sequence[Step]) -> Step:
    def compare(names: Names, functions: Functions) -> int:
        values = [each(names, functions) for each in operands]
        return all(apply(*pair) for apply, pair in zip(operators, pairwise(values), strict=True))

    return compare


def _checked(node: ast.expr, compute: Step) -> Step:
    def step(names: Names, functions: Functions) -> int:
        value = compute(names, functions)
        if not 0 <= value < 2**64:
            raise LaunchError(f"{ast.unparse(node)} is {value} for these arguments: an extent or a stride is too large")
        return value

    return step


# --- arrays ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Array:
    """A strided array in device memory. Strides count elements. `keep` holds what the address depends on."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int | None
    read_only: bool
    keep: object


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _VersionedTensor(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_CUDA_MEMORY = (2, 13)  # kDLCUDA, kDLCUDAManaged
_READ_ONLY = 1
_DLPACK_TYPES = {
    (1, 8): "uint8",
    (1, 16): "uint16",
    (2, 16): "float16",
    (2, 32): "float32",
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3fn",
    (12, 8): "float8_e5m2",
}
_INTERFACE_TYPES = {
    "<f2": "float16",
    "<f4": "float32",
    "|u1": "uint8",
    "<u1": "uint8",
    "<u2": "uint16",
    "<V2": "bfloat16",
    "|V2": "bfloat16",
}
_ELEMENT_BYTES = {
    "uint8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
}
# Libraries without a type of their own pass its bits as an unsigned integer.
_RAW = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}

_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_is.restype = ctypes.c_int
_capsule_address = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_address.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_address.restype = ctypes.c_void_p


def as_array(value: Any, name: str, stream: int) -> Array:
    """The device array behind `value`, ready on `stream`: DLPack first, else the CUDA array interface."""
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, name, stream)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(value, name, stream)
    raise ArrayError(f"{name} is a {type(value).__name__}: it has neither DLPack nor the CUDA array interface")


def _from_dlpack(value: Any, name: str, stream: int) -> Array:
    kind, device = value.__dlpack_device__()
    if int(kind) not in _CUDA_MEMORY:
        raise ArrayError(f"{name} is not in CUDA memory (DLPack device type {int(kind)})")
    # 1 is DLPack's name of the default stream. The producer makes this stream wait for the array's data.
    waiting = stream or 1
    try:
        capsule = value.__dlpack__(stream=waiting, max_version=(1, 1))
    except TypeError:  # a producer from before DLPack 1.0
        capsule = value.__dlpack__(stream=waiting)
    read_only = False
    if _capsule_is(capsule, b"dltensor_versioned"):
        versioned = _VersionedTensor.from_address(_capsule_address(capsule, b"dltensor_versioned"))
        tensor, read_only = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    else:
        tensor = _Tensor.from_address(_capsule_address(capsule, b"dltensor"))
    dtype = _DLPACK_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise ArrayError(f"{name} has a type that no kernel here takes (DLPack code {tensor.code}, {tensor.bits} bits)")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else _packed(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return Array(address, shape, strides, dtype, int(device), read_only, (value, capsule))


def _from_interface(value: Any, name: str, stream: int) -> Array:
    interface = value.__cuda_array_interface__
    dtype = _INTERFACE_TYPES.get(interface["typestr"])
    if dtype is None:
        raise ArrayError(f"{name} has the type {interface['typestr']}, which no kernel here takes")
    shape = tuple(interface["shape"])
    address, read_only = interface["data"]
    strides = _packed(shape)
    if interface.get("strides") is not None:
        size = _ELEMENT_BYTES[dtype]
        if any(each % size for each in interface["strides"]):
            raise ArrayError(f"{name} has strides that are not whole elements")
        strides = tuple(each // size for each in interface["strides"])
    producer = interface.get("stream")
    if producer is not None and producer != (stream or 1):
        _wait_for(int(producer), stream)
    return Array(int(address or 0), shape, strides, dtype, None, bool(read_only), value)


def _wait_for(producer: int, stream: int) -> None:
    """Work on `stream` waits for what `producer` has been given so far."""
    driver = _driver()
    event = _call(driver.cuEventCreate, 2)  # without timing
    try:
        _call(driver.cuEventRecord, event, 0 if producer == 1 else producer)
        _call(driver.cuStreamWaitEvent, stream, event, 0)
    finally:
        _call(driver.cuEventDestroy, event)


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _check_type(array: Array, name: str, wanted: str) -> None:
    if array.dtype not in (wanted, _RAW.get(wanted)):
        raise ArrayError(f"{name} has the type {array.dtype}; this bundle was built for {wanted}")
    if array.address % _ELEMENT_BYTES[array.dtype]:
        raise ArrayError(f"{name} is not aligned to its elements")


# --- the device --------------------------------------------------------------------------------------------------


def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def _call(function: Callable[..., Any], *args: Any) -> Any:
    """The value of a driver call, or LaunchError with the driver's name of the failure."""
    return _value(function, *function(*args))


def _call_or(answers: Sequence[str], function: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    """(whether the driver did it, the value). A status among `answers` is an answer, no failure."""
    status, *values = function(*args)
    if getattr(status, "name", "") in answers:
        return False, None
    return True, _value(function, status, *values)


def _value(function: Callable[..., Any], status: Any, *values: Any) -> Any:
    if int(status) != 0:
        _, text = _driver().cuGetErrorName(status)
        text = text.decode() if isinstance(text, bytes) else status
        raise LaunchError(f"{getattr(function, '__name__', function)} failed: {text}")
    return values[0] if len(values) == 1 else values or None


def _stream_handle(stream: Any) -> int:
    """The handle of None (the default stream), an integer, or a stream object of torch, CuPy or cuda.core."""
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for attribute in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    return int(stream)


@dataclass
class _Loaded:
    """A kernel on one device. `image` is None where none is for the device, `function` where the driver loads none."""

    image: str | None
    function: Any
    library: Any
    max_active_clusters: int


# --- what is switched off on this machine ------------------------------------------------------------------------


def _read_runtime(path: Path) -> str | None:
    """Why Cluster Launch Control is switched off; None where it is on.

    runtime.json is {"schema_version": 1, "clc": "on" or "off", "reason": "why"}. Raises LaunchError for one that is
    there and says something else: what it was meant to switch off must not run.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text, object_pairs_hook=_once)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise LaunchError(f"{path} does not say what is switched off: {error}") from error
    known = {"schema_version", "clc", "reason"}
    if not isinstance(found, dict) or not found.keys() <= known or type(found.get("schema_version")) is not int:
        raise LaunchError(f"{path} does not say what is switched off: it is not schema_version, clc and reason")
    if (
        found["schema_version"] != 1
        or found.get("clc") not in ("on", "off")
        or type(found.get("reason", "")) is not str
    ):
        raise LaunchError(f"{path} does not say what is switched off: schema_version is not 1, or clc not on or off")
    return found.get("reason", "") if found["clc"] == "off" else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _uses_clc(rung: Mapping[str, str]) -> bool:
    return any(_kernel(each)["schedule"] == "clc" for each in LAUNCH["sequences"].get(rung["run"], [rung["run"]]))


def _kernel(kernel_id: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(each for each in LAUNCH["kernels"] if each["id"] == kernel_id)
    return found


class Launcher:
    """The kernels of the bundle on one device. Made once for each device; safe to call from several threads."""

    def __init__(self, device: int, images: Path) -> None:
        driver = _driver()
        self.clc_off = _read_runtime(_RUNTIME)
        self._lock = threading.Lock()
        self._prepared: dict[Any, _Prepared] = {}
        _call(driver.cuInit, 0)
        self.device = device
        self.handle = _call(driver.cuDeviceGet, device)
        self.context = _call(driver.cuDevicePrimaryCtxRetain, self.handle)  # torch and CuPy use the same
        self.capability = (self._attribute("COMPUTE_CAPABILITY_MAJOR"), self._attribute("COMPUTE_CAPABILITY_MINOR"))
        self.sms = self._attribute("MULTIPROCESSOR_COUNT")
        self.clusters = bool(self._attribute("CLUSTER_LAUNCH"))
        with self.current():
            self.kernels = {kernel["id"]: self._load(kernel, images) for kernel in LAUNCH["kernels"]}

    def _attribute(self, name: str) -> int:
        driver = _driver()
        member = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_call(driver.cuDeviceGetAttribute, member, self.handle))

    @contextmanager
    def current(self) -> Iterator[None]:
        """The device's primary context is current inside."""
        driver = _driver()
        _call(driver.cuCtxPushCurrent, self.context)
        try:
            yield
        finally:
            _call(driver.cuCtxPopCurrent)

    def _load(self, kernel: Mapping[str, Any], images: Path) -> _Loaded:
        driver = _driver()
        target = self._target(kernel["images"])
        if target is None:
            return _Loaded(None, None, None, 0)
        path = images / Path(kernel["images"][target]).name
        if not path.is_file():
            raise LaunchError(f"{path} is not there: build the bundle first")
        loads, library = _call_or(_NOT_LOADED, driver.cuLibraryLoadFromFile, str(path).encode(), [], [], 0, [], [], 0)
        if not loads:  # the driver is too old for this image: the ladder steps down
            return _Loaded(path.name, None, None, 0)
        handle = _call(driver.cuLibraryGetKernel, library, kernel["entry"].encode())
        function = _call(driver.cuKernelGetFunction, handle)
        return _Loaded(path.name, function, library, self._residency(kernel, function))

    def _target(self, images: Mapping[str, str]) -> str | None:
        """The best image for the device: its own architecture's, else the highest minor version that loads."""
        found: list[tuple[bool, int, str]] = []
        for target in images:
            number, suffix = re.fullmatch(r"sm_(\d+)([af]?)", target).groups()  # type: ignore[union-attr]
            major, minor = int(number[:-1]), int(number[-1])
            fits = minor == self.capability[1] if suffix == "a" else minor <= self.capability[1]
            if major == self.capability[0] and fits:
                found.append((suffix == "a", minor, target))
        return max(found)[2] if found else None

    def _residency(self, kernel: Mapping[str, Any], function: Any) -> int:
        """Clusters that the device holds at once. A device that cannot hold even one is an answer, 0: the ladder steps
        down. Every other failure of the driver raises LaunchError."""
        driver = _driver()
        attribute = driver.CUfunction_attribute
        smem = _evaluate(kernel["dynamic_smem_bytes"], {})
        most_smem = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        fits, _ = _call_or(["CUDA_ERROR_INVALID_VALUE"], driver.cuFuncSetAttribute, function, most_smem, smem)
        if not fits:  # more shared memory than a block can have here
            return 0
        if kernel["carveout"] == "max":
            carveout = attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            _call(driver.cuFuncSetAttribute, function, carveout, 100)
        if not self.clusters:
            if math.prod(kernel["cluster"]) > 1:
                return 0
            threads = math.prod(kernel["block"])
            return self.sms * int(_call(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, function, threads, smem))
        if kernel["nonportable"]:
            nonportable = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            _call(driver.cuFuncSetAttribute, function, nonportable, 1)
        config = self._config(kernel, kernel["cluster"], smem, 0, cluster_of_one=True)
        refused = ["CUDA_ERROR_INVALID_CLUSTER_SIZE"]
        fits, clusters = _call_or(refused, driver.cuOccupancyMaxActiveClusters, function, config)
        return int(clusters) if fits else 0

    def _config(
        self, kernel: Mapping[str, Any], grid: Sequence[int], smem: int, stream: int, *, cluster_of_one: bool = False
    ) -> Any:
        driver = _driver()
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = kernel["block"]
        config.sharedMemBytes = smem
        config.hStream = stream
        identity = driver.CUlaunchAttributeID
        attributes = []
        if math.prod(kernel["cluster"]) > 1 or cluster_of_one:
            attributes.append(
                _dimensions(identity.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, "clusterDim", kernel["cluster"])
            )
        if kernel["attributes"]["preferred_cluster"] and not cluster_of_one:
            preferred = kernel["attributes"]["preferred_cluster"]
            attributes.append(
                _dimensions(identity.CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, "preferredClusterDim", preferred)
            )
        if kernel["attributes"]["programmatic_stream_serialization"] and not cluster_of_one:
            overlap = driver.CUlaunchAttribute()
            overlap.id = identity.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            overlap.value.programmaticStreamSerializationAllowed = 1
            attributes.append(overlap)
        config.attrs = attributes
        config.numAttrs = len(attributes)
        return config

    def pick(self, arguments: Mapping[str, Any], addresses: Mapping[str, int], sm_budget: int | None = None) -> str:
        """The first rung of the ladder that is not switched off and whose condition holds. Raises LaunchError where
        none is."""
        names = self._names(arguments, sm_budget)
        for rung in LAUNCH["ladder"]:
            if not self._switched_off(rung) and self._runs(rung, names, addresses):
                return rung["run"]
        raise LaunchError("no rung of the ladder runs on this device with these arguments")

    def _switched_off(self, rung: Mapping[str, str]) -> bool:
        return self.clc_off is not None and _uses_clc(rung)

    def _chosen(
        self, arguments: Mapping[str, Any], addresses: Mapping[str, int], rung: str | None, sm_budget: int | None
    ) -> str:
        """The rung that runs: `rung` where one is asked for. Raises LaunchError where it does not run here."""
        if rung is None:
            return self.pick(arguments, addresses, sm_budget)
        entries = [each for each in LAUNCH["ladder"] if each["run"] == rung]
        if not entries:
            raise LaunchError(f"there is no rung {rung!r}: {', '.join(each['run'] for each in LAUNCH['ladder'])}")
        if self._switched_off(entries[0]):
            raise LaunchError(f"the rung {rung} is switched off in runtime.json: {self.clc_off}")
        if not self._runs(entries[0], self._names(arguments, sm_budget), addresses):
            raise LaunchError(f"the rung {rung} does not run on this device with these arguments")
        return rung

    def describe(
        self,
        arguments: Mapping[str, Any],
        addresses: Mapping[str, int],
        sm_budget: int | None = None,
        rung: str | None = None,
    ) -> dict[str, Any]:
        """What `run` launches for the same arguments, and why each rung before it does not run."""
        chosen = self._chosen(arguments, addresses, rung, sm_budget)
        runs = [each["run"] for each in LAUNCH["ladder"]]
        return {
            "rung": chosen,
            "kernels": [
                {
                    "id": each,
                    "schedule": _kernel(each)["schedule"],
                    "cluster": list(_kernel(each)["cluster"]),
                    "image": self.kernels[each].image,
                    "max_active_clusters": self.kernels[each].max_active_clusters,
                }
                for each in LAUNCH["sequences"].get(chosen, [chosen])
            ],
            "compute_capability": list(self.capability),
            "sms": self.sms,
            "not_run": {each["run"]: self._obstacle(each) for each in LAUNCH["ladder"][: runs.index(chosen)]},
        }

    def _obstacle(self, rung: Mapping[str, str]) -> str:
        """Why a rung does not run, of one that does not."""
        if self._switched_off(rung):
            return f"switched off in runtime.json: {self.clc_off}"
        for kernel_id in LAUNCH["sequences"].get(rung["run"], [rung["run"]]):
            kernel = self.kernels[kernel_id]
            if kernel.image is None:
                return "no image for compute capability {}.{}".format(*self.capability)
            if kernel.function is None:
                return f"the driver does not load {kernel.image}"
            if kernel.max_active_clusters == 0:
                return "no cluster is resident"
        return "not with these arguments"

    def _runs(self, rung: Mapping[str, str], names: Mapping[str, int], addresses: Mapping[str, int]) -> bool:
        queries = {
            **_FUNCTIONS,
            "loadable": lambda kernel: self.kernels[kernel].function is not None,
            "max_active_clusters": lambda kernel: self.kernels[kernel].max_active_clusters,
            "aligned": lambda buffer, multiple: addresses[buffer] % multiple == 0,
        }
        return bool(_evaluate(rung["when"], names, queries))

    def _names(self, arguments: Mapping[str, Any], sm_budget: int | None) -> dict[str, int]:
        names = {each["name"]: arguments[each["name"]] for each in LAUNCH["arguments"] if each["type"] == "i64"}
        for each in LAUNCH["arguments"]:
            least, most = each["min"] or 0, each["max"]
            if each["type"] == "i64" and names[each["name"]] < least:
                raise LaunchError(f"{each['name']} is {names[each['name']]}, at least {least} is needed")
            if each["type"] == "i64" and most is not None and names[each["name"]] > most:
                raise LaunchError(f"{each['name']} is {names[each['name']]}, at most {most} is taken")
        names["num_sms"] = self.sms
        names["sm_budget"] = min(sm_budget or DEFAULT_SM_BUDGET or self.sms, self.sms)
        return names

    def run(
        self,
        arguments: Mapping[str, Any],
        addresses: Mapping[str, int],
        stream: int,
        rung: str | None = None,
        sm_budget: int | None = None,
    ) -> str:
        """Launches on `stream` and returns the rung that ran. Scratch memory is the stream's, before and after.

        What a call computes from arguments and addresses is kept, so that the same call again is cheap.
        """
        key = (rung, sm_budget, tuple(arguments.items()), tuple(addresses.items()))
        with self._lock, self.current():
            prepared = self._prepared.get(key)
            if prepared is None:
                prepared = self._prepare(arguments, addresses, rung, sm_budget)
                if len(self._prepared) >= _KEPT_LAUNCHES:
                    self._prepared.pop(next(iter(self._prepared)))  # the oldest
                self._prepared[key] = prepared
            prepared.launch(stream)
        return prepared.rung

    def _prepare(
        self, arguments: Mapping[str, Any], addresses: Mapping[str, int], rung: str | None, sm_budget: int | None
    ) -> _Prepared:
        names = self._names(arguments, sm_budget)
        chosen = self._chosen(arguments, addresses, rung, sm_budget)
        prepared = _Prepared(chosen)
        for kernel_id in LAUNCH["sequences"].get(chosen, [chosen]):
            self._add(prepared, kernel_id, names, arguments, addresses)
        return prepared

    def _add(
        self,
        prepared: _Prepared,
        kernel_id: str,
        names: Names,
        arguments: Mapping[str, Any],
        addresses: Mapping[str, int],
    ) -> None:
        kernel = _kernel(kernel_id)
        loaded = self.kernels[kernel_id]
        if loaded.function is None:
            raise LaunchError(f"no image of {kernel_id} loads on this device")
        names = {**names, "max_active_clusters": loaded.max_active_clusters}
        grid = [_evaluate(each, names) for each in kernel["grid_blocks"]]
        if 0 in grid:
            return  # an empty output
        for blocks, cluster, limit in zip(grid, kernel["cluster"], (2**31 - 1, 65535, 65535), strict=True):
            if blocks > limit or blocks % cluster:
                raise LaunchError(f"{kernel_id}: a grid of {grid} blocks cannot be launched")
        held = [_aligned_copy(_pack(param, names, arguments, addresses)) for param in kernel["params"]]
        for param, (_, address) in zip(kernel["params"], held, strict=True):
            if param["kind"] == "scratch":
                prepared.use_scratch(param, _evaluate(param["bytes"], names), address)
        pointers = (ctypes.c_void_p * len(held))(*(address for _, address in held))
        config = self._config(kernel, grid, _evaluate(kernel["dynamic_smem_bytes"], {}), 0)
        prepared.kernels.append((config, loaded.function, pointers, held))


_KEPT_LAUNCHES = 256


@dataclass
class _Scratch:
    """Scratch memory of one launch, by name: its size, and where its address goes into the kernels' parameters."""

    size: int
    zeroed: bool
    places: list[int]


class _Prepared:
    """The kernels of a rung for given arguments and addresses; what is left for a launch is scratch and stream."""

    def __init__(self, rung: str) -> None:
        self.rung = rung
        self.kernels: list[tuple[Any, Any, Any, Any]] = []  # config, function, parameters' addresses, their owners
        self.scratch: dict[str, _Scratch] = {}

    def use_scratch(self, param: Mapping[str, Any], size: int, place: int) -> None:
        entry = self.scratch.setdefault(param["name"], _Scratch(size, param["init"] != "none", []))
        entry.places.append(place)

    def launch(self, stream: int) -> None:
        driver = _driver()
        allocated = []
        try:
            for scratch in self.scratch.values():
                if scratch.size == 0:
                    continue
                address = int(_call(driver.cuMemAllocAsync, scratch.size, stream))
                allocated.append(address)
                for place in scratch.places:
                    ctypes.c_uint64.from_address(place).value = address
                if scratch.zeroed:
                    _call(driver.cuMemsetD8Async, address, 0, scratch.size, stream)
            for config, function, pointers, _ in self.kernels:
                config.hStream = stream
                _call(driver.cuLaunchKernelEx, config, function, ctypes.addressof(pointers), 0)
        finally:
            for address in allocated:
                _call(driver.cuMemFreeAsync, address, stream)


def _pack(param: Mapping[str, Any], names: Names, arguments: Mapping[str, Any], addresses: Mapping[str, int]) -> bytes:
    """The bytes of one kernel parameter; the address of scratch memory comes with the launch."""
    kind = param["kind"]
    if kind == "tensormap":
        return _tensor_map(param, names, addresses[param["buffer"]])
    if kind == "ptr" and param["buffer"] is not None:
        return struct.pack("<Q", addresses[param["buffer"]] + _evaluate(param["offset_bytes"], names))
    if kind in ("ptr", "scratch"):
        return bytes(8)
    if kind == "f32":
        given = param["value"]
        value = float(arguments[given] if isinstance(given, str) else given)
        try:
            return struct.pack("<f", value)
        except OverflowError as error:
            raise LaunchError(f"{param['name']} = {value} does not fit the kernel's f32") from error
    value = _evaluate(param["value"], names)
    try:
        return struct.pack(_INTEGERS[kind], value)
    except struct.error as error:
        raise LaunchError(f"{param['name']} = {value} does not fit the kernel's {kind}") from error


_INTEGERS = {"u8": "<B", "s8": "<b", "u16": "<H", "s16": "<h", "i32": "<i", "u32": "<I", "i64": "<q", "u64": "<Q"}
_MAP_TYPES = {
    "bfloat16": "BFLOAT16",
    "float16": "FLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
}  # every one-byte type is UINT8
_PROMOTIONS = {"none": "NONE", "64B": "L2_64B", "128B": "L2_128B", "256B": "L2_256B"}
_FILLS = {"zero": "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}


def _tensor_map(param: Mapping[str, Any], names: Mapping[str, int], address: int) -> bytes:
    """The 128 bytes of a tensor map. The encoder has no empty tensor: an extent of 0 becomes 1."""
    driver = _driver()
    extents = [max(1, _evaluate(each, names)) for each in param["global_dim"]]
    strides = [_evaluate(each, names) for each in param["global_stride_bytes"]]

    def member(kind: str, prefix: str, value: str) -> Any:
        return getattr(getattr(driver, kind), f"{prefix}_{value}")

    encoded = _call(
        driver.cuTensorMapEncodeTiled,
        member("CUtensorMapDataType", "CU_TENSOR_MAP_DATA_TYPE", _MAP_TYPES.get(param["dtype"], "UINT8")),
        param["rank"],
        driver.CUdeviceptr(address),
        [driver.cuuint64_t(each) for each in extents],
        [driver.cuuint64_t(each) for each in strides],
        [driver.cuuint32_t(each) for each in param["box_dim"]],
        [driver.cuuint32_t(each) for each in param["element_strides"]],
        member("CUtensorMapInterleave", "CU_TENSOR_MAP_INTERLEAVE", param["interleave"].upper()),
        member("CUtensorMapSwizzle", "CU_TENSOR_MAP_SWIZZLE", param["swizzle"].upper()),
        member("CUtensorMapL2promotion", "CU_TENSOR_MAP_L2_PROMOTION", _PROMOTIONS[param["l2_promotion"]]),
        member("CUtensorMapFloatOOBfill", "CU_TENSOR_MAP_FLOAT_OOB_FILL", _FILLS[param["oob_fill"]]),
    )
    return ctypes.string_at(int(encoded.getPtr()), 128)


def _dimensions(identity: Any, field: str, size: Sequence[int]) -> Any:
    attribute = _driver().CUlaunchAttribute()
    attribute.id = identity
    dimensions = getattr(attribute.value, field)
    dimensions.x, dimensions.y, dimensions.z = size
    return attribute


def _aligned_copy(data: bytes, alignment: int = 64) -> tuple[Any, int]:
    """(owner, address) of a copy of `data` at a multiple of `alignment`."""
    owner = ctypes.create_string_buffer(len(data) + alignment)
    address = -(-ctypes.addressof(owner) // alignment) * alignment
    ctypes.memmove(address, data, len(data))
    return owner, address


_NOT_LOADED = ("CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_INVALID_IMAGE")
_BUILD = Path(__file__).resolve().parent / "build"
_RUNTIME = Path(__file__).resolve().parent / "runtime.json"
_launchers: dict[tuple[int, str], Launcher] = {}
_launchers_lock = threading.Lock()


def launcher(device: int = 0, images: str | Path | None = None) -> Launcher:
    """The launcher of a device, made on first use. `images`: the folder of cubins, build/ beside this file if None."""
    folder = Path(images) if images is not None else _BUILD
    with _launchers_lock:
        key = (device, str(folder))
        if key not in _launchers:
            _launchers[key] = Launcher(device, folder)
        return _launchers[key]

# --- GEMM --------------------------------------------------------------------------------------------------------

_TYPES = {'a': 'bfloat16', 'b': 'bfloat16', 'd': 'bfloat16', 'bias': 'bfloat16'}
_MAJOR = {'a': 'k', 'b': 'k', 'd': 'n'}  # the contiguous extent of each operand
_EXTENTS = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n"), "d": ("m", "n")}  # rows, columns
_USES_C = False
_BIAS: str | None = 'n'  # the extent that the bias has
_SCALES = []


def run(
    a: Any,
    b: Any,
    d: Any,
    c: Any = None,
    *,
    bias: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    stream: Any = None,
    sm_budget: int | None = None,
    rung: str | None = None,
    images: str | Path | None = None,
) -> Any:
    """Writes the product to `d` and returns it.

    `stream`: None (the default stream), an integer handle, or a stream of torch, CuPy or cuda.core; arrays are waited
    for on it. `sm_budget`: SMs that the launch may fill. `rung`: a rung of the ladder by name instead of the first that
    runs. Raises ArrayError for arrays that do not fit the bundle or each other, LaunchError where nothing runs.
    """
    handle = _stream_handle(stream)
    given = {"a": a, "b": b, "d": d, **_optional(c, bias, scale_a, scale_b)}
    device, arguments, addresses = _call_of(given, alpha, beta, handle)
    if 0 in (arguments["m"], arguments["n"], arguments["batch"]):
        return d
    for name, address in addresses.items():
        if address == 0:
            raise ArrayError(f"{name.lower()} has no memory")
    launcher(device, images).run(arguments, addresses, handle, rung, sm_budget)
    return d


def describe(
    a: Any,
    b: Any,
    d: Any,
    c: Any = None,
    *,
    bias: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    sm_budget: int | None = None,
    rung: str | None = None,
    images: str | Path | None = None,
) -> dict[str, Any]:
    """What `run` launches for the same arrays: the rung, its kernels with schedule, cluster, image and residency, and
    why each rung before it does not run. Launches nothing; raises as `run` does."""
    given = {"a": a, "b": b, "d": d, **_optional(c, bias, scale_a, scale_b)}
    device, arguments, addresses = _call_of(given, 1.0, 0.0, 0)
    return launcher(device, images).describe(arguments, addresses, sm_budget, rung)


def _call_of(
    given: Mapping[str, Any], alpha: float, beta: float, stream: int
) -> tuple[int, dict[str, Any], dict[str, int]]:
    """Device, arguments and addresses of a call."""
    arrays = {name: as_array(value, name, stream) for name, value in given.items()}
    arguments = _arguments(arrays, alpha, beta)
    addresses = {name.upper() if name in _EXTENTS else name: array.address for name, array in arrays.items()}
    if arguments["k"] == 0:  # nothing of A and B is read, but a tensor map wants an address
        addresses["A"] = addresses["B"] = addresses["D"]
    return _one_device(arrays), arguments, addresses


def _optional(c: Any, bias: Any, scale_a: Any, scale_b: Any) -> dict[str, Any]:
    """The operands beside a, b and d: exactly those that the bundle was built with."""
    wanted = {"c": _USES_C, "bias": _BIAS is not None, "scale_a": "scale_a" in _SCALES, "scale_b": "scale_b" in _SCALES}
    given = {"c": c, "bias": bias, "scale_a": scale_a, "scale_b": scale_b}
    for name, value in given.items():
        if wanted[name] and value is None:
            raise ArrayError(f"this bundle was built with {name}: pass it")
        if not wanted[name] and value is not None:
            raise ArrayError(f"this bundle was built without {name}")
    return {name: value for name, value in given.items() if wanted[name]}


def _one_device(arrays: Mapping[str, Array]) -> int:
    devices = {}
    for name, array in arrays.items():
        if array.device is not None:
            devices[name] = array.device
        elif array.address:
            driver = _driver()
            ordinal = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
            devices[name] = int(_call(driver.cuPointerGetAttribute, ordinal, array.address))
    if len(set(devices.values())) > 1:
        raise ArrayError(f"the arrays lie on several devices: {devices}")
    return next(iter(devices.values()), 0)


def _arguments(arrays: Mapping[str, Array], alpha: float, beta: float) -> dict[str, Any]:
    """Every argument of launch.json, derived from the arrays."""
    for name, array in arrays.items():
        _check_type(array, name, _TYPES[name])
    extents: dict[str, tuple[int, str]] = {}
    for name in ("d", "a", "b", *(("c",) if _USES_C else ())):
        array = arrays[name]
        if len(array.shape) not in (2, 3):
            raise ArrayError(f"{name} has {len(array.shape)} dimensions; 2 are needed, or 3 with a batch in front")
        batch = array.shape[0] if len(array.shape) == 3 else 1
        for extent, size in zip(("batch", *_EXTENTS[name]), (batch, *array.shape[-2:]), strict=True):
            known = extents.setdefault(extent, (size, name))
            if known[0] != size:
                raise ArrayError(f"{extent} is {known[0]} in {known[1]} and {size} in {name}")
    arguments: dict[str, Any] = {extent: size for extent, (size, _) in extents.items()}
    for name in ("a", "b", *(("c",) if _USES_C else ()), "d"):
        arguments[f"ld{name}"], arguments[f"batch_stride_{name}"] = _strides(name, arrays[name])
    if arrays["d"].read_only:
        raise ArrayError("d is read-only")
    _check_vectors(arrays, arguments)
    return {**arguments, "alpha": float(alpha), "beta": float(beta)}


def _strides(name: str, array: Array) -> tuple[int, int]:
    """(leading dimension, batch stride) in elements. The stride of an extent of one element is never used, so any
    value that suits TMA will do."""
    row_name, _ = _EXTENTS[name]
    (rows, columns), (row_stride, column_stride) = array.shape[-2:], array.strides[-2:]
    along_rows = _MAJOR[name] == row_name
    inner, outer = (rows, columns) if along_rows else (columns, rows)
    step, ld = (row_stride, column_stride) if along_rows else (column_stride, row_stride)
    if step != 1 and inner > 1:
        raise ArrayError(
            f"{name} is not contiguous along {_MAJOR[name]} (stride {step}), as this bundle was built for; "
            f"pass a copy in that layout"
        )
    if outer <= 1 or inner == 0:
        unit = max(1, 16 // _ELEMENT_BYTES[array.dtype])
        ld = -(-max(inner, 1) // unit) * unit
    if ld < max(inner, 1):
        raise ArrayError(f"{name} has a leading dimension of {ld} and {inner} elements in it: its rows overlap")
    if len(array.shape) == 2 or array.shape[0] <= 1:
        return ld, ld * max(outer, 1)
    batch_stride = array.strides[0]
    if batch_stride < 0 or (name == "d" and batch_stride < ld * (outer - 1) + inner):
        raise ArrayError(f"{name} has a batch stride of {batch_stride}: its matrices overlap")
    return ld, batch_stride


def _check_vectors(arrays: Mapping[str, Array], arguments: Mapping[str, Any]) -> None:
    if _BIAS is not None:
        bias = arrays["bias"]
        if bias.shape != (arguments[_BIAS],) or (bias.strides != (1,) and arguments[_BIAS] > 1):
            raise ArrayError(f"bias has the shape {bias.shape}; ({arguments[_BIAS]},) is needed, contiguous")
    for name in _SCALES:
        if math.prod(arrays[name].shape) != 1:
            raise ArrayError(f"{name} has the shape {arrays[name].shape}; one element is needed")
