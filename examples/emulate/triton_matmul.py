"""Compiles a Triton kernel for Hopper, with no GPU, and writes what `advisor emulate` takes: PTX and a launch.

    python examples/emulate/triton_matmul.py
    advisor emulate matmul.ptx --launch matmul.json

Needs the package `triton`. D = A @ B.T, tiles by tensor copies whose tensor maps the host makes.
"""

import json
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

M, N, K = 128, 128, 192
BM, BN, BK = 64, 64, 64


@triton.jit
def matmul(a, b, d, K):
    row = tl.program_id(0) * d.block_shape[0]
    column = tl.program_id(1) * d.block_shape[1]
    sums = tl.zeros(d.block_shape, dtype=tl.float32)
    for k in range(0, K, a.block_shape[1]):
        sums = tl.dot(a.load([row, k]), b.load([column, k]).T, sums)
    d.store([row, column], sums.to(d.dtype))


def tensor_map(name: str, rows: int, columns: int, facts: dict) -> list[dict]:
    """Triton's launcher passes a tensor map, then extents (32 bits) and strides (64 bits), outermost first."""
    encoded = {
        "kind": "tensormap",
        "name": name,
        "buffer": name,
        "dtype": "float16",
        "rank": 2,
        "global_dim": [columns, rows],
        "global_stride_bytes": [2 * columns],
        "box_dim": facts["block_size"][::-1],
        "element_strides": [1, 1],
        "swizzle": ["none", "32B", "64B", "128B"][facts["swizzle"]],
    }
    extents = [{"kind": "i32", "name": f"{name}_extent_{i}", "value": each} for i, each in enumerate((rows, columns))]
    strides = [{"kind": "i64", "name": f"{name}_stride_{i}", "value": each} for i, each in enumerate((columns, 1))]
    return [encoded, *extents, *strides]


def main() -> None:
    triton.knobs.compilation.always_compile = True  # what the cache holds names its source where it lay then
    signature = {
        "a": f"tensordesc<fp16[{BM},{BK}]>",
        "b": f"tensordesc<fp16[{BN},{BK}]>",
        "d": f"tensordesc<fp16[{BM},{BN}]>",
        "K": "i32",
    }
    kernel = triton.compile(
        ASTSource(fn=matmul, signature=signature, constexprs={}, attrs={}),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": 4, "num_stages": 3, "enable_fp_fusion": True},
    )
    facts = kernel.metadata
    maps = [
        tensor_map(name, rows, columns, each)
        for name, rows, columns, each in zip("abd", (M, N, M), (K, K, N), facts.tensordesc_meta, strict=True)
    ]
    scratch = [{"kind": "ptr", "name": name, "buffer": None} for name in ("global_scratch", "profile_scratch")]
    launch = {
        "entry": facts.name,
        "target": "sm_90a",
        "grid_blocks": [M // BM, N // BN, 1],
        "block": [32 * facts.num_warps, 1, 1],
        "cluster": [facts.num_ctas, 1, 1],
        "dynamic_smem_bytes": facts.shared,
        "params": [*maps[0], *maps[1], *maps[2], {"kind": "i32", "name": "K", "value": K}, *scratch],
        "buffers": {
            "a": {"dtype": "float16", "shape": [M, K], "init": "normal", "seed": 1},
            "b": {"dtype": "float16", "shape": [N, K], "init": "normal", "seed": 2},
            "d": {"dtype": "float16", "shape": [M, N], "init": "poison"},
        },
        "expected": [{"buffer": "d", "formula": "a @ b.T", "bound": "1e-3 * abs(a @ b.T) + 1e-5 * abs(a) @ abs(b.T)"}],
    }
    Path("matmul.ptx").write_text(kernel.asm["ptx"])
    Path("matmul.json").write_text(json.dumps(launch, indent=2) + "\n")


if __name__ == "__main__":
    main()
