"""The yardstick in Triton compiles for Hopper, without a GPU: Triton refuses what it cannot read when first called."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton")
compiler = pytest.importorskip("triton.compiler")
backends = pytest.importorskip("triton.backends.compiler")


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
def test_each_configuration_compiles_to_wgmma() -> None:
    from advisor.kinds.gemm import triton_product

    for tm, tn, tk, warps, stages in triton_product.CONFIGS[:2]:
        boxes = {"a": (tm, tk), "b": (tn, tk), "d": (tm, tn)}
        sizes = {"tm": tm, "tn": tn, "tk": tk, "group": 8, "workers": 132}
        signature = {
            **{name: f"tensordesc<bf16[{rows},{columns}]>" for name, (rows, columns) in boxes.items()},
            **dict.fromkeys(("m", "n", "k"), "i32"),
            **dict.fromkeys(sizes, "constexpr"),
        }
        source = compiler.ASTSource(triton_product._matmul, signature, sizes)
        target = backends.GPUTarget("cuda", 90, 32)
        built = triton.compile(source, target=target, options={"num_warps": warps, "num_stages": stages})
        assert "wgmma.mma_async" in built.asm["ptx"]
