"""Other work on the GPU, made to order: a kernel that holds SMs while another one is timed.

Imports `errors`, `records` and the runtime's own device. The kernel is `templates/probe/hold.cu`, which the caller
compiles.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from advisor.errors import DeviceError
from advisor.records.launch import PtrParam, ResolvedLaunch, ScalarParam
from advisor.runtime.device import Device

ENTRY = "probe_hold"
LIMIT_S = 5.0  # the holders leave by then, whatever happens to this process
ARRIVAL_LIMIT_S = 2.0


class Holder:
    """Holds `sms` SMs of an idle device from entering the context until leaving it; 0 holds none.

    What runs meanwhile must have been loaded and launched once before: loading a kernel or allocating memory may wait
    for the whole device, and with it for the holders. Only streams may be waited for inside, never the device.
    """

    def __init__(self, device: Device, cubin: bytes, sms: int) -> None:
        self._device, self._sms = device, sms
        self._own, self._control = device.create_stream(), device.create_stream()
        self._words = device.allocate(512)  # how many have arrived; 256 bytes on, whether they may go
        kernel = device.load(cubin, ENTRY)
        resolved = ResolvedLaunch(
            entry=ENTRY,
            target="",
            grid_blocks=(max(sms, 1), 1, 1),
            block=(32, 1, 1),
            cluster=(1, 1, 1),
            dynamic_smem_bytes=device.info.limits["smem_per_block_bytes"] - kernel.static_smem_bytes,
            params=[
                PtrParam(name="arrived", buffer="words", offset_bytes=0),
                PtrParam(name="release", buffer="words", offset_bytes=256),
                ScalarParam(kind="u64", name="limit_ns", value=int(LIMIT_S * 1e9)),
            ],
            buffers={},
        )
        self._launch = device.prepare(kernel, resolved, {"words": self._words.address}, device.scratch())

    def __enter__(self) -> Holder:
        self._device.zero(self._words.address, 512)
        self._device.synchronize()
        if self._sms == 0:
            return self
        self._launch(self._own)
        deadline = time.monotonic() + ARRIVAL_LIMIT_S
        while (arrived := self._arrived()) < self._sms:
            if time.monotonic() > deadline:
                self._let_go()
                raise DeviceError(
                    "HOLDERS_MISSING",
                    f"{arrived} of {self._sms} CTAs that hold an SM each are running",
                    fix="end other work on the GPU",
                    numbers={"arrived": arrived, "wanted": self._sms},
                )
        return self

    def _arrived(self) -> int:
        word = np.zeros(1, np.uint32)
        call = self._device.api.call
        call("cuMemcpyDtoHAsync", word.ctypes.data, self._words.address, 4, self._control, doing="counting holders")
        call("cuStreamSynchronize", self._control, doing="counting holders")
        return int(word[0])

    def _let_go(self) -> None:
        self._device.zero(self._words.address + 256, 4, self._control, 1)
        self._device.synchronize()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None and self._sms > 0:  # after a kernel fault every further call fails, and hides the fault
            self._let_go()

    def close(self) -> None:
        self._device.free(self._words)
        for stream in (self._own, self._control):
            self._device.api.call("cuStreamDestroy", stream)
