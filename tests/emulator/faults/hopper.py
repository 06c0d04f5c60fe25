"""Faults in the project's own Hopper kernels, as they are compiled: each edit is one of the source."""

from __future__ import annotations

from functools import cache
from typing import Any

from advisor.emulator.world import cut_profile
from advisor.kinds.gemm import numerics, sm90
from advisor.machine.profile_file import load_profile
from advisor.problem.gemm import GemmProblem
from tests.emulator.faults.model import Fault, Kernel, Pattern, settings
from tests.emulator.gemms import case_of, problem, ptx_of, resolved
from tests.emulator.test_sm90 import candidate

WAIT = r"mbarrier\.try_wait\.parity\.shared::cta\.b64 p, \[[^\]]*\], [^;]*;"  # of the consumers, of the producer
ARRIVE = r"mbarrier\.arrive\.shared::cta\.b64 _, (\[[^\]]*\]);"
NO_WAIT = "setp.eq.u32 p, 0, 0;"
SWIZZLE_128B = "4611686293305360384"  # of the kernels' descriptors, with a stride of 1024 bytes

FEW_SMS = cut_profile(load_profile("h200"), 2)


def gemm(p: GemmProblem, *, grid_blocks: tuple[int, int, int] | None = None, **changes: Any) -> Kernel:
    """A kernel of the family, compiled when its text is first asked for."""
    (spec,) = sm90.kernels(p, candidate(p, **changes))
    case = case_of(p)
    launch = resolved(p, spec, case, "sm_90a")
    if grid_blocks is not None:
        launch = launch.model_copy(update={"grid_blocks": grid_blocks})
    inputs = {name: each for name, each in numerics.inputs(p, case).items() if name in launch.buffers and name != "D"}
    return Kernel(
        cache(lambda: ptx_of(spec, "sm_90a")),
        launch,
        inputs,
        options={"profile": FEW_SMS, "step_limit": 1_000_000},
        settings=settings(seeds=1),
    )


ONE_TILE = gemm(problem(100, 72, 328))
PERSISTENT = gemm(problem(512, 256, 96), grid_blocks=(8, 1, 1), cluster=(2, 1, 1), schedule="static")


def _faults(twin: Kernel, rows: dict[str, tuple[Any, ...]]) -> list[Fault]:
    return [Fault(name, code, twin, Pattern(*edit), SETTING) for name, (code, *edit) in rows.items()]


SETTING = {"async_policy": "adversarial", "seed": 0}
FAULTS = _faults(
    ONE_TILE,
    {
        "no barrier after mbarrier.init": ("EMU_BARRIER_INIT_UNORDERED", r"barrier\.sync 0, \d+;", ""),
        "no wgmma.fence": ("EMU_WGMMA_FENCE", r"wgmma\.fence\.sync\.aligned;", ""),
        "no wgmma.commit_group": ("EMU_DATA_RACE", r"wgmma\.commit_group\.sync\.aligned;", ""),
        "accumulators read before their wait": (
            "EMU_WGMMA_REGISTER",
            r"wgmma\.wait_group\.sync\.aligned 0;",
            "",
        ),
        "a stage given back while a wgmma reads it": (
            "EMU_DATA_RACE",
            r"wgmma\.wait_group\.sync\.aligned 1;",
            "wgmma.wait_group.sync.aligned 2;",
        ),
        "no wait for the stores before the exit": ("EMU_ASYNC_AT_EXIT", r"cp\.async\.bulk\.wait_group 0;", ""),
        "no commit of the stores": ("EMU_ASYNC_AT_EXIT", r"cp\.async\.bulk\.commit_group;", ""),
        "no barrier between the warps and the store": ("EMU_DATA_RACE", r"barrier\.sync %\S+ %\S+;", ""),
        "no proxy fence before the store": ("EMU_DATA_RACE", r"fence\.proxy\.async\.shared::cta;", ""),
        "stages never given back": ("EMU_DEADLOCK", ARRIVE, ""),
        "stages given back by relaxed arrivals": (
            "EMU_DATA_RACE",
            ARRIVE,
            r"mbarrier.arrive.relaxed.cta.shared::cta.b64 _, \1;",
        ),
        "no wait for a stage to fill": ("EMU_UNINITIALISED", WAIT, NO_WAIT, 1),
        "no wait for a stage to be given back": ("EMU_BARRIER_OVERRUN", WAIT, NO_WAIT, 2),
        "16 bytes too many expected": ("EMU_DEADLOCK", r"(mov\.u32\s+%r\d+, )16384;", r"\g<1>16400;"),
        "16 bytes too few expected": ("EMU_DEADLOCK", r"(mov\.u32\s+%r\d+, )16384;", r"\g<1>16368;"),
        "one arrival too many expected": ("EMU_DEADLOCK", r"(mov\.u32\s+%r\d+, )4;", r"\g<1>5;"),
        "one arrival too few expected": ("EMU_BARRIER_UNOBSERVED", r"(mov\.u32\s+%r\d+, )4;", r"\g<1>3;"),
        "a descriptor with another swizzle": (
            "EMU_DESCRIPTOR_TILE",
            SWIZZLE_128B,
            str(int(SWIZZLE_128B) ^ 3 << 62),
        ),
        "a descriptor with another stride": (
            "EMU_DESCRIPTOR_TILE",
            SWIZZLE_128B,
            str(int(SWIZZLE_128B) + (8 << 32)),
        ),
    },
) + _faults(
    PERSISTENT,
    {
        "stages given back to a peer by relaxed arrivals": (
            "EMU_DATA_RACE",
            r"mbarrier\.arrive\.shared::cluster",
            "mbarrier.arrive.relaxed.cluster.shared::cluster",
        ),
        "no cluster barrier": ("EMU_PEER_NOT_STARTED", r"barrier\.cluster\.\S*;", ""),
        "a cluster barrier without its arrival": ("EMU_BARRIER", r"barrier\.cluster\.arrive\S*;", ""),
        "the store's source written again before it is read": (
            "EMU_DATA_RACE",
            r"cp\.async\.bulk\.wait_group\.read \d;",
            "",
        ),
    },
)
