"""The only home of a live GPU: probe, occupancy query, load, launch, time.

Imports `records`, `machine`, `errors`; CUDA itself only when a device is opened.
"""

from advisor.runtime.device import Buffer, Device, DeviceInfo, Graph, LoadedKernel, open_device
from advisor.runtime.launching import Prepared, Scratch

__all__ = ["Buffer", "Device", "DeviceInfo", "Graph", "LoadedKernel", "Prepared", "Scratch", "open_device"]
