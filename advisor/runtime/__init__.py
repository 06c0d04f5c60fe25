"""The only home of a live GPU: probe, occupancy query, load, launch, time.

Imports `records`, `machine`, `errors`; CUDA itself only when a device is opened.
"""

from advisor.runtime.device import Buffer, Device, DeviceInfo, Graph, LoadedKernel, open_device
from advisor.runtime.launching import Prepared, Scratch
from advisor.runtime.monitor import Monitor, Reading

__all__ = [
    "Buffer",
    "Device",
    "DeviceInfo",
    "Graph",
    "LoadedKernel",
    "Monitor",
    "Prepared",
    "Reading",
    "Scratch",
    "open_device",
]
