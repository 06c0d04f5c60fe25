"""Runs every case on a GPU of compute capability 9.0 and stores what came out.

    python -m tests.emulator.golden.make tests/emulator/golden/h200.npz

The driver compiles the PTX text itself; a driver for CUDA 12.8 or newer is enough.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from advisor.records.launch import BufferInit, PtrParam, ResolvedLaunch
from advisor.runtime.device import Device, open_device
from tests.emulator.golden.cases import Case, all_cases
from tests.emulator.golden.compare import KEY_CHIP, differences, key


def resolved(case: Case) -> ResolvedLaunch:
    """The launch of a case: pointers in the order of the parameters."""
    sizes = {name: array.nbytes for name, array in case.inputs.items()}
    sizes |= {name: int(np.prod(shape)) * np.dtype(dtype).itemsize for name, (shape, dtype) in case.outputs.items()}
    return ResolvedLaunch(
        entry="kernel",
        target="sm_90a",
        grid_blocks=(case.blocks, 1, 1),
        block=(case.threads, 1, 1),
        cluster=(case.cluster, 1, 1),
        dynamic_smem_bytes=0,
        params=[PtrParam(name=name, buffer=name) for name in (*case.inputs, *case.outputs)] + list(case.extra),
        buffers={name: BufferInit(shape=[size], dtype="uint8") for name, size in sizes.items()},
    )


def run_case(device: Device, case: Case) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of a case on the GPU."""
    launch = resolved(case)
    buffers = {name: device.upload(array.reshape(-1).view(np.uint8)) for name, array in case.inputs.items()}
    for name in case.outputs:
        buffers[name] = device.allocate(launch.buffers[name].shape[0])
        device.fill(buffers[name], 0xEE)
    device.launch(case.ptx.encode() + b"\0", launch, {name: each.address for name, each in buffers.items()})
    device.synchronize()
    found = {}
    for name, (shape, dtype) in case.outputs.items():
        found[name] = device.download(buffers[name]).view(dtype).reshape(shape)
    for each in buffers.values():
        device.free(each)
    return found


def record(device: Device, output: Path) -> list[str]:
    """Stores the outputs of all cases, and says where they differ from the emulator's."""
    stored: dict[str, Any] = {KEY_CHIP: np.array(f"{device.info.name}, driver {device.info.driver}")}
    for case in all_cases():
        for name, array in run_case(device, case).items():
            stored[key(case, name)] = array
    np.savez_compressed(output, **stored)
    return differences(output)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    output: Path = parser.parse_args(arguments).output
    with open_device(0) as device:
        for line in record(device, output):
            sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
