"""Clocks, power and temperature of a GPU while it works, read through the management library (NVML).

Imports `errors` and ctypes. The library comes with the driver; where it is not there, or the machine keeps a reading to
itself, the answer is None with the reason: a measurement says what was not seen. Nothing here changes a setting.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # nvmlClockType_t
_GPU_TEMPERATURE = 0  # nvmlTemperatureSensors_t
_REASONS = {  # nvmlClocksEventReasons: what holds the clock down
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the GPU. None: this machine does not give the number."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    watts: float | None = None
    celsius: int | None = None
    held_by: tuple[str, ...] = ()  # what holds the clock down


class Monitor:
    """Reads one GPU. `why_not` says why there is nothing to read; `read` then gives empty readings."""

    def __init__(self, uuid: str, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        """`uuid` is the driver's, as in `GPU-5c...`: indices of the two libraries need not agree."""
        self.why_not = ""
        self._handle = ctypes.c_void_p()
        try:
            self._nvml: Any = load(LIBRARY)
        except OSError as error:
            self._nvml, self.why_not = None, f"{LIBRARY} is not there: {error}"
            return
        for call, arguments in (
            ("nvmlInit_v2", ()),
            ("nvmlDeviceGetHandleByUUID", (uuid.encode(), ctypes.byref(self._handle))),
        ):
            status = getattr(self._nvml, call)(*arguments)
            if status != 0:
                self._nvml, self.why_not = None, f"{call} returned {status}"
                return

    def read(self) -> Reading:
        """What the GPU does at this moment."""
        if self._nvml is None:
            return Reading()
        reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong())
        milliwatts = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint())
        return Reading(
            sm_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _SM_CLOCK),
            memory_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _MEMORY_CLOCK),
            watts=None if milliwatts is None else milliwatts / 1000,
            celsius=self._number("nvmlDeviceGetTemperature", ctypes.c_uint(), _GPU_TEMPERATURE),
            held_by=tuple(name for bit, name in _REASONS.items() if (reasons or 0) & bit),
        )

    def _number(self, call: str, result: Any, *selectors: int) -> int | None:
        function = getattr(self._nvml, call, None)
        if function is None or function(self._handle, *selectors, ctypes.byref(result)) != 0:
            return None
        return int(result.value)
