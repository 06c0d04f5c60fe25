"""What `--device` asks for, and the GPU at hand. Imports `errors`; `runtime` when a GPU is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor.errors import DeviceError, InputError

if TYPE_CHECKING:
    from advisor.runtime import Device


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """What `--device` asks for. `auto`: each kernel on GPU 0 where it runs there, else in the emulator."""

    kind: Literal["auto", "cuda", "emulator"]
    index: int = 0

    @property
    def required(self) -> bool:
        """Whether there must be a GPU."""
        return self.kind == "cuda"

    @property
    def emulates(self) -> bool:
        """Whether what does not run on a GPU is emulated."""
        return self.kind != "cuda"


ANY_DEVICE = DeviceChoice("auto")  # of a command that only describes a GPU


def parse_device(text: str) -> DeviceChoice:
    """`auto`, `emulator`, `cuda` or `cuda:N`. Raises InputError."""
    if text == "auto":
        return ANY_DEVICE
    if text == "emulator":
        return DeviceChoice("emulator")
    kind, _, number = text.partition(":")
    if kind == "cuda" and ((number.isascii() and number.isdecimal() and len(number) < 4) or text == "cuda"):
        return DeviceChoice("cuda", int(number or 0))
    raise InputError(
        "DEVICE_UNKNOWN",
        f"unknown device {text!r}",
        fix="use auto, emulator, cuda, or cuda:N with the number of a GPU",
        numbers={"device": text},
    )


NOT_ASKED = "--device emulator asks for none"


@contextmanager
def at_hand(choice: DeviceChoice) -> Iterator[tuple[Device | None, str]]:
    """The GPU that `choice` asks for, or None with the reason. Raises DeviceError where a GPU was required."""
    from advisor.runtime import open_device

    try:
        device = open_device(choice.index)
    except DeviceError as error:
        if choice.required:
            raise
        yield None, f"{error.message} [{error.code}]"
        return
    with device:
        yield device, ""
