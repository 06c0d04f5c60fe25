"""Compiles a Gluon kernel that claims its work with Cluster Launch Control, with no GPU, and writes what `advisor
emulate` takes: PTX and a launch.

    python examples/emulate/gluon_clc.py
    advisor emulate scaled.ptx --launch scaled.json

Needs the package `triton`. y = 2 x, a block of x for each program. With --sentinel the kernel takes a coordinate inside
the grid for "there is more work", which a failed request does not promise.
"""

import json
import sys
from pathlib import Path

from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import compile as compile_for
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.blackwell import clc, fence_async_shared, mbarrier

BLOCKS, BLOCK, WARPS = 40, 256, 4


@gluon.jit
def scaled(x, y, BLOCK: gl.constexpr, SENTINEL: gl.constexpr, LAYOUT: gl.constexpr, SLOT: gl.constexpr):
    response = gl.allocate_shared_memory(gl.int64, [2], SLOT)
    landed = mbarrier.allocate_mbarrier()
    mbarrier.init(landed, count=1)
    block = gl.program_id(0)
    more = True
    phase = 0
    while more:
        mbarrier.expect(landed, 16)
        clc.try_cancel(response, landed)
        at = block * BLOCK + gl.arange(0, BLOCK, LAYOUT)
        gl.store(y + at, gl.load(x + at) * 2)
        mbarrier.wait(landed, phase)
        answer = clc.load_result(response)
        block = answer.program_id(0)
        inside = (block >= 0) & (block < gl.num_programs(0))
        more = inside if SENTINEL else answer.is_canceled()
        phase ^= 1
        fence_async_shared()  # the answer is read before the next one is written
        gl.barrier()


def main() -> None:
    knobs.compilation.always_compile = True  # what the cache holds names its source where it lay then
    constants = {
        "BLOCK": BLOCK,
        "SENTINEL": "--sentinel" in sys.argv,
        "LAYOUT": gl.BlockedLayout([BLOCK // (32 * WARPS)], [32], [WARPS], [0]),
        "SLOT": gl.SwizzledSharedLayout(1, 1, 1, [0]),
    }
    signature = {"x": "*fp32", "y": "*fp32", **dict.fromkeys(constants, "constexpr")}
    paths = {(list(signature).index(name),): each for name, each in constants.items()}
    kernel = compile_for(
        GluonASTSource(fn=scaled, signature=signature, constexprs=paths, attrs={}),
        target=GPUTarget("cuda", 100, 32),
        options={"num_warps": WARPS, "enable_fp_fusion": True},
    )
    facts = kernel.metadata
    pointers = [{"kind": "ptr", "name": name, "buffer": name} for name in "xy"]
    scratch = [{"kind": "ptr", "name": name, "buffer": None} for name in ("global_scratch", "profile_scratch")]
    shape = [BLOCKS * BLOCK]
    launch = {
        "entry": facts.name,
        "target": "sm_100a",
        "grid_blocks": [BLOCKS, 1, 1],
        "block": [32 * facts.num_warps, 1, 1],
        "cluster": [facts.num_ctas, 1, 1],
        "dynamic_smem_bytes": facts.shared,
        "params": pointers + scratch,
        "buffers": {
            "x": {"dtype": "float32", "shape": shape, "init": "normal", "seed": 1},
            "y": {"dtype": "float32", "shape": shape, "init": "poison"},
        },
        "expected": [{"buffer": "y", "formula": "2 * x", "bound": "0 * x"}],
    }
    Path("scaled.ptx").write_text(kernel.asm["ptx"])
    Path("scaled.json").write_text(json.dumps(launch, indent=2) + "\n")


if __name__ == "__main__":
    main()
