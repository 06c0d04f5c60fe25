"""The CUDA driver behind one function: every call checked, every failure an error that a reader can act on.

Imports `errors` alone, and `cuda.bindings.driver` inside `load_api`: nothing of CUDA is imported before a device is
asked for. Works with cuda-bindings 13.0 to 13.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from advisor.errors import DeviceError

REQUIRED_CUDA = (13, 0)  # cubins of a 13.x compiler load on a driver of this CUDA version or a later one

_NO_DRIVER_FIX = (
    "install the NVIDIA driver (R580 or later) on a machine with a GPU; plan, generate, report and validate "
    "--device emulator need none"
)
_FAULT_FIX = "write the case with --keep and run it again under compute-sanitizer"
_DRIVER_FIX = "update the NVIDIA driver to R580 or later (CUDA 13.0)"

# What a CUresult means to the user: code, and what to do.
_MEANING: dict[str, tuple[str, str]] = {
    "CUDA_ERROR_NO_DEVICE": ("NO_DEVICE", "check `nvidia-smi -L` and CUDA_VISIBLE_DEVICES"),
    "CUDA_ERROR_INVALID_DEVICE": ("NO_DEVICE", "pass the index of a GPU that `nvidia-smi -L` lists"),
    "CUDA_ERROR_STUB_LIBRARY": ("NO_DRIVER", _NO_DRIVER_FIX),
    "CUDA_ERROR_INSUFFICIENT_DRIVER": ("DRIVER_TOO_OLD", _DRIVER_FIX),
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": ("DRIVER_TOO_OLD", _DRIVER_FIX),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": ("DRIVER_TOO_OLD", "reboot, or reload the kernel module of the new driver"),
    "CUDA_ERROR_DEVICE_UNAVAILABLE": ("DEVICE_BUSY", "another process holds the GPU exclusively: end it or wait"),
    "CUDA_ERROR_DEVICE_NOT_LICENSED": ("DEVICE_UNREADABLE", "license the virtual GPU"),
    "CUDA_ERROR_ECC_UNCORRECTABLE": ("DEVICE_UNREADABLE", "reset the GPU: its memory has an uncorrectable error"),
    "CUDA_ERROR_SYSTEM_NOT_READY": ("DEVICE_UNREADABLE", "start the fabric manager, then try again"),
    "CUDA_ERROR_NOT_PERMITTED": ("DEVICE_UNREADABLE", "run with the rights to use the GPU"),
    "CUDA_ERROR_UNKNOWN": ("DEVICE_UNREADABLE", "check `nvidia-smi` and the kernel log for Xid messages"),
    "CUDA_ERROR_OUT_OF_MEMORY": ("DEVICE_OUT_OF_MEMORY", "free GPU memory or use a smaller problem"),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": ("CUBIN_NOT_LOADABLE", ""),
    "CUDA_ERROR_INVALID_IMAGE": ("CUBIN_NOT_LOADABLE", ""),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": ("CUBIN_NOT_LOADABLE", ""),
    "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC": ("CUBIN_NOT_LOADABLE", ""),
    "CUDA_ERROR_INVALID_SOURCE": ("CUBIN_NOT_LOADABLE", ""),
    "CUDA_ERROR_NOT_FOUND": ("ENTRY_NOT_FOUND", "rebuild the bundle: the image has no such kernel"),
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": (
        "CLUSTER_SIZE_REFUSED",
        "use a cluster of 8 or fewer CTAs, or allow the non-portable size on a GPU that has it",
    ),
    "CUDA_ERROR_ILLEGAL_ADDRESS": ("KERNEL_FAULT", _FAULT_FIX),
    "CUDA_ERROR_MISALIGNED_ADDRESS": ("KERNEL_FAULT", _FAULT_FIX),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": ("KERNEL_FAULT", _FAULT_FIX),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": ("KERNEL_FAULT", _FAULT_FIX),
    "CUDA_ERROR_INVALID_PC": ("KERNEL_FAULT", _FAULT_FIX),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": ("KERNEL_FAULT", _FAULT_FIX),
    "CUDA_ERROR_LAUNCH_FAILED": ("KERNEL_FAULT", _FAULT_FIX),
    "CUDA_ERROR_LAUNCH_TIMEOUT": ("KERNEL_FAULT", "the display watchdog ended the kernel: use a GPU without a display"),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": ("LAUNCH_REFUSED", "the launch asks for more than the GPU has"),
}


@dataclass(frozen=True, slots=True)
class Api:
    """The driver's functions. `raw` is `cuda.bindings.driver`, or a module with the same functions in tests."""

    raw: Any

    def call(self, function: str, *args: Any, doing: str = "") -> Any:
        """Calls `function` and returns its value (a tuple where it has several, None where it has none).

        Raises DeviceError with the driver's own name and text of the failure.
        """
        target = getattr(self.raw, function, None)
        if target is None:
            raise DeviceError(
                "DRIVER_TOO_OLD",
                f"the installed CUDA binding has no {function}",
                fix="install cuda-python 13.0 or later",
                numbers={"call": function},
            )
        try:
            result, *values = target(*args)
        except RuntimeError as error:
            # The binding raises, and does not return a code, for a driver library or a symbol that is not there.
            raise missing_driver(function, error) from error
        if int(result) != 0:
            raise self.failure(result, function, doing)
        if not values:
            return None
        return values[0] if len(values) == 1 else tuple(values)

    def failure(self, result: Any, function: str, doing: str = "") -> DeviceError:
        """The DeviceError for a CUresult that is not success."""
        name, text = self.describe(result)
        unknown = ("CUDA_CALL_FAILED", "check `nvidia-smi` and the kernel log")
        if function == "cuLaunchKernelEx":
            unknown = ("LAUNCH_REFUSED", "check grid, cluster and shared memory against the limits of the device")
        code, fix = _MEANING.get(name, unknown)
        task = f"{doing}: " if doing else ""
        return DeviceError(
            code,
            f"{task}{function} returned {name} ({text})",
            fix=fix,
            numbers={"call": function, "result": name, "value": int(result)},
        )

    def describe(self, result: Any) -> tuple[str, str]:
        """(name, text) of a CUresult in the driver's own words."""
        words = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            status, value = getattr(self.raw, function)(result)
            known = int(status) == 0 and value is not None
            words.append((value.decode() if isinstance(value, bytes) else str(value)) if known else str(result))
        return words[0], words[1]

    def enum(self, kind: str, member: str) -> Any:
        """A member of one of the binding's enums."""
        return getattr(getattr(self.raw, kind), member)


def missing_driver(function: str, error: Exception) -> DeviceError:
    """The binding could not reach the driver library at all, or a function of it."""
    text = " ".join(str(error).split())
    if "not found" in text and function in text and "lib" not in text.lower():
        return DeviceError(
            "DRIVER_TOO_OLD",
            f"the NVIDIA driver has no {function}: {text}",
            fix=_DRIVER_FIX,
            numbers={"call": function, "required_cuda": version_text(REQUIRED_CUDA)},
        )
    return DeviceError("NO_DRIVER", f"no NVIDIA driver on this machine: {text}", fix=_NO_DRIVER_FIX)


def load_api() -> Api:
    """The driver's functions, initialised. Raises DeviceError where there is no usable driver or no device."""
    return initialise(Api(_import_binding()))


def initialise(api: Api) -> Api:
    """`api` after cuInit, with a driver that is new enough."""
    found = driver_cuda_version(api)
    if found < REQUIRED_CUDA:
        raise DeviceError(
            "DRIVER_TOO_OLD",
            f"the driver supports CUDA {version_text(found)}; the kernels need CUDA {version_text(REQUIRED_CUDA)}",
            fix=_DRIVER_FIX,
            numbers={"driver_cuda": version_text(found), "required_cuda": version_text(REQUIRED_CUDA)},
        )
    api.call("cuInit", 0, doing="starting the CUDA driver")
    return api


def driver_cuda_version(api: Api) -> tuple[int, int]:
    """The CUDA version that the driver supports."""
    number = int(api.call("cuDriverGetVersion", doing="reading the driver's version"))
    return number // 1000, number % 1000 // 10


def version_text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _import_binding() -> ModuleType:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError(
            "NO_DRIVER",
            f"the CUDA binding for Python cannot be imported: {error}",
            fix="pip install 'cuda-python>=13.0,<14'",
        ) from error
    binding: ModuleType = driver
    return binding
