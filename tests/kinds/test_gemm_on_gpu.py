"""What torch makes and calls for a GEMM, on its CPU: values, poison, and what the library computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advisor.kinds.gemm import numerics, on_gpu
from advisor.problem.gemm import GemmProblem

torch = pytest.importorskip("torch")


def problem(**changes: Any) -> GemmProblem:
    return GemmProblem.model_validate({"kind": "gemm", "m": 33, "n": 24, "k": 40, **changes})


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32", "e4m3", "e5m2"])
def test_inputs_have_the_poison_and_the_layout_of_the_host_s(dtype: str) -> None:
    padded = {"a": {"ld": 48}, "b": {"ld": 48}, "d": {"ld": 32}}
    p = problem(dtype=dtype, scale={"a": "tensor", "b": "tensor"}, epilogue={"bias": "row"}, **padded)
    case = numerics.own_case(p)
    host, made = numerics.inputs(p, case), on_gpu.inputs(p, case, torch, "cpu")
    assert list(made) == list(host)
    for name in ("A", "B", "D"):
        own, theirs = made[name].view(torch.uint8).numpy(), host[name].view(np.uint8)
        assert own.shape == theirs.shape
        size = host[name].dtype.itemsize
        values = numerics.view_of(np.arange(own.size // size), name.lower(), getattr(p, name.lower()), case.arguments)
        inside = np.zeros(own.size // size, dtype=bool)
        inside[values.ravel()] = name != "D"
        same = (own.reshape(-1, size) == theirs.reshape(-1, size)).all(axis=1)
        assert same[~inside].all()
        if name != "D":
            assert same[inside].mean() < 0.2
    drawn = numerics.view_of(made["A"], "a", p.a, case.arguments).to(torch.float32)
    assert abs(float(drawn.mean())) < 0.2
    assert 0.8 < float(drawn.std()) < 1.2
    if dtype == "tf32":
        assert not (made["A"].view(torch.int32)[:40] & 0x1FFF).any()
    again = on_gpu.inputs(p, case, torch, "cpu")
    assert all(torch.equal(made[name].view(torch.uint8), again[name].view(torch.uint8)) for name in made)


def test_the_library_computes_the_reference() -> None:
    p = problem()
    case = numerics.own_case(p)
    tensors = on_gpu.inputs(p, case, torch, "cpu")
    found = on_gpu.product(p, case, tensors)
    assert found is not None
    found[1]()
    reference = numerics.reference(p, case, tensors)["D"]
    bound = numerics.bound(p, case, tensors, "sm90")["D"]
    assert bool((abs(tensors["D"].double() - reference) <= bound).all())
    assert found[0].endswith("matmul")


@pytest.mark.parametrize(
    ("epilogue", "words"),
    [
        ({"alpha": 1.5, "beta": 0.5}, "then one add"),
        ({"bias": "row", "activation": "gelu"}, "with the bias, then gelu"),
        ({"activation": "relu"}, "then relu"),
        ({"alpha": 2.0}, "addmm"),
    ],
)
def test_the_library_with_a_pointwise_kernel_is_the_whole_problem(epilogue: dict[str, Any], words: str) -> None:
    p = problem(epilogue=epilogue)
    case = numerics.own_case(p)
    found = on_gpu.whole(p, case, on_gpu.inputs(p, case, torch, "cpu"))
    assert found is not None
    assert words in found[0]
    found[1]()
    alone = on_gpu.product(p, case, on_gpu.inputs(p, case, torch, "cpu"))
    assert alone is not None
    assert alone[0].endswith("without the epilogue")


def test_what_takes_two_pointwise_kernels_is_no_comparison() -> None:
    for epilogue in ({"beta": 0.5, "bias": "row"}, {"beta": 0.5, "activation": "relu"}, {"bias": "col"}):
        p = problem(epilogue=epilogue)
        case = numerics.own_case(p)
        assert on_gpu.whole(p, case, on_gpu.inputs(p, case, torch, "cpu")) is None


def test_a_plain_problem_is_its_own_whole() -> None:
    p = problem()
    case = numerics.own_case(p)
    tensors = on_gpu.inputs(p, case, torch, "cpu")
    whole, product = on_gpu.whole(p, case, tensors), on_gpu.product(p, case, tensors)
    assert whole is not None
    assert product is not None
    assert whole[0] == product[0]


def test_least_bytes_counts_every_operand_once() -> None:
    p = problem(epilogue={"beta": 0.5, "bias": "row"})
    assert on_gpu.least_bytes(p, numerics.own_case(p)) == 2 * (33 * 40 + 24 * 40 + 2 * 33 * 24 + 24)
    fp8 = problem(dtype="e4m3")
    assert on_gpu.least_bytes(fp8, numerics.own_case(fp8)) == 33 * 40 + 24 * 40 + 2 * 33 * 24


def test_the_own_case_is_never_reduced() -> None:
    p = problem(m=32768, n=32768, k=32768)
    assert numerics.own_case(p).arguments["m"] == 32768
    assert numerics.own_case(p).data == "normal"
