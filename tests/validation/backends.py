"""Backends without a GPU: one for each way a kernel's process can end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from advisor.errors import DeviceError


class Healthy:
    def __init__(self, stage: Callable[[str, float], None]) -> None:
        self.stage = stage
        self.calls = 0

    def open(self, setup: Any) -> None:
        self.setup = setup

    def echo(self, value: Any) -> Any:
        self.calls += 1
        return value, self.calls, os.getpid()

    def sleep(self, stage: str, limit_s: float) -> None:
        """A kernel that never comes back."""
        self.stage(stage, limit_s)
        time.sleep(600)

    def crash(self) -> None:
        self.stage("own_shape: launch", 10.0)
        os.kill(os.getpid(), signal.SIGSEGV)

    def leave(self) -> None:
        self.stage("own_shape: launch", 10.0)
        sys.stderr.write("something was said on the way\n")
        sys.stderr.flush()
        os._exit(7)

    def refuse(self) -> None:
        raise DeviceError("KERNEL_FAULT", "an illegal address", fix="look there", numbers={"value": 700})

    def bug(self) -> None:
        raise ZeroDivisionError("of the tool itself")


class NeverStarts:
    def __init__(self, stage: Callable[[str, float], None]) -> None:
        raise SystemExit(3)
