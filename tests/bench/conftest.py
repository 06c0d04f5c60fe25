"""A GPU that is there for the parent alone: children are the backends of this folder, images have no bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor import runtime
from advisor.bundle import BuildUnit
from advisor.machine import load_profile
from advisor.machine.profile import DeviceProfile
from advisor.records.evidence import Chip

BACKENDS = Path(__file__).with_name("backends.py")
SUITE = """\
title: two problems
compare: [library, copy]
defaults: {kind: gemm, dtype: bf16}
problems:
  - {m: 4096, n: 4096, k: 4096}
  - {name: few_rows, m: 16, n: 8192, k: 8192}
"""


@dataclass(frozen=True)
class Info:
    index: int = 0
    name: str = "NVIDIA H200"
    sms: int = 132
    compute_capability: tuple[int, int] = (9, 0)

    def chip(self) -> Chip:
        return Chip(name=self.name, compute_capability=self.compute_capability, uuid_hash="0" * 16, driver="580.1")


class FakeDevice:
    info = Info()

    def profile(self) -> DeviceProfile:
        return load_profile("h200")

    def __enter__(self) -> FakeDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class FakeImage:
    kernel_hash: str
    cubin: bytes = b"cubin"
    spill_bytes: int = 0


def build(rows: Sequence[BuildUnit]) -> list[Any]:
    """Images whose hash depends on what the compiler would see."""
    return [
        FakeImage(hashlib.sha256(f"{row.source}{sorted(row.defines.items())}{row.target}".encode()).hexdigest())
        for row in rows
    ]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDevice:
    """An H200 at hand, and a store of its own."""
    device = FakeDevice()
    monkeypatch.setattr(runtime, "open_device", lambda index=0, **_: device)
    monkeypatch.setenv("ADVISOR_STORE", str(tmp_path / "store.sqlite"))
    return device


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(SUITE)
    return path


def backend(name: str) -> str:
    return f"{BACKENDS}:{name}"
