"""Kernels that claim their work with Cluster Launch Control, compiled by NVRTC; each fault is one macro.

`unicast`: one CTA asks for itself, all threads meet between two requests. `multicast`: warp 0 of CTA 0 asks for the
cluster, `SLOTS` responses ahead, and every warp of every CTA reads and releases each response. Both add 1 to every
element of their tile, so that `out` counts how often each tile was computed, and write the tile's place in the order.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from advisor.emulator import Outcome, run
from advisor.emulator.world import cut_profile
from advisor.machine.profile import DeviceProfile
from advisor.machine.profile_file import load_profile
from advisor.records.launch import BufferInit, PtrParam, ResolvedLaunch, ScalarParam
from advisor.toolchain import Unit, compile_cuda

THREADS = 96
SOURCE = Path(__file__).with_name("clc.cu").read_text(encoding="utf-8")


@lru_cache
def ptx(*faults: str, target: str = "sm_100a", cluster: tuple[int, int, int] = (1, 1, 1), slots: int = 2) -> str:
    """The PTX of both kernels."""
    x, y, z = cluster
    defines: dict[str, int | str] = {"SHIFT": 0, "SLOTS": slots, "DIM_X": x, "DIM_Y": y, "DIM_Z": z}
    defines |= {name: int(value or 1) for name, _, value in (each.partition("=") for each in faults)}
    return compile_cuda(Unit("clc.cu", SOURCE, {}, target, defines)).ptx


def launch(
    entry: str,
    grid: tuple[int, int, int],
    cluster: tuple[int, int, int] = (1, 1, 1),
    n: int = 0,
    target: str = "sm_100a",
) -> ResolvedLaunch:
    x, y, z = grid
    return ResolvedLaunch(
        entry=entry,
        target=target,
        grid_blocks=grid,
        block=(THREADS, 1, 1),
        cluster=cluster,
        dynamic_smem_bytes=90 * 1024,  # two CTAs to an SM of a B200, one to an SM of an RTX PRO 6000
        params=[
            PtrParam(name="in", buffer="OUT"),
            PtrParam(name="out", buffer="OUT"),
            ScalarParam(kind="u32", name="n", value=n),
        ],
        buffers={"OUT": BufferInit(shape=[x * y * z, THREADS], dtype="uint32", init="zeros")},
    )


def small(cluster_size: int = 1, name: str = "b200") -> DeviceProfile:
    return cut_profile(load_profile(name), cluster_size)


def execute(
    entry: str,
    *faults: str,
    grid: tuple[int, int, int] = (60, 1, 1),
    cluster: tuple[int, int, int] = (1, 1, 1),
    n: int = 0,
    target: str = "sm_100a",
    slots: int = 2,
    **options: object,
) -> Outcome:
    size = cluster[0] * cluster[1] * cluster[2]
    text = ptx(*faults, target=target, cluster=cluster, slots=slots)
    options.setdefault("profile", small(size))
    return run(text, launch(entry, grid, cluster, n, target), **options)  # type: ignore[arg-type]


def every_tile_once(outcome: Outcome) -> bool:
    return bool((outcome.typed("OUT") == np.uint32(1)).all())
