"""The bound must admit a correct kernel and catch a wrong one; inputs and cases must mean what they say."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from advisor.kinds.gemm import numerics
from advisor.kinds.gemm.interface import arguments as launch_arguments
from advisor.kinds.gemm.interface import buffers as launch_buffers
from advisor.kinds.gemm.work import GemmWork
from advisor.kinds.storage import numpy_type
from advisor.problem.base import TORCH_NAME
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.case import Case

CANDIDATE = Candidate("sm90", (2, 1, 1), "static", (64, 32, 32), 3, 256, GemmWork(multicast_b=2))


def problem(**changes: Any) -> GemmProblem:
    return GemmProblem.model_validate({"kind": "gemm", "m": 130, "n": 70, "k": 96, **changes})


def case(p: GemmProblem, m: int, n: int, k: int, batch: int = 1, **changes: Any) -> Case:
    padding = changes.pop("padding", "padded")
    values = numerics.arguments(p, m, n, k, batch, padding=padding)
    values |= {each: changes.pop(each) for each in ("alpha", "beta") if each in changes}
    return Case("test", "test", values, **{"seed": 3, **changes})


def view(p: GemmProblem, a_case: Case, name: str, flat: np.ndarray) -> np.ndarray:
    matrix = {"a": p.a, "b": p.b, "c": p.c, "d": p.d}[name]
    return numerics.view_of(flat, name, matrix, a_case.arguments)


def simulate(
    p: GemmProblem, a_case: Case, arrays: dict[str, np.ndarray], *, block: int = 32, skip: int | None = None
) -> np.ndarray:
    """A kernel in float32: K block by K block, then the epilogue, then one rounding. `skip` leaves a K block out."""
    out = arrays["D"].copy()
    target = view(p, a_case, "d", out)
    a, b = (view(p, a_case, each, arrays[each.upper()]).astype(np.float32) for each in "ab")
    scale = np.float32(a_case.arguments["alpha"])
    for name in ("a", "b"):
        if f"scale_{name}" in arrays:
            scale = scale * arrays[f"scale_{name}"][0]
    for index in range(int(a_case.arguments["batch"])):
        total = np.zeros(target.shape[1:], np.float32)
        for number, start in enumerate(range(0, a.shape[2], block)):
            if number != skip:
                total += a[index, :, start : start + block] @ b[index, start : start + block, :]
        x = scale * total
        if p.uses_c:
            x = x + np.float32(a_case.arguments["beta"]) * view(p, a_case, "c", arrays["C"])[index].astype(np.float32)
        if p.epilogue.bias == "row":
            x = x + arrays["bias"].astype(np.float32)[None, :]
        if p.epilogue.bias == "col":
            x = x + arrays["bias"].astype(np.float32)[:, None]
        if p.epilogue.activation == "relu":
            x = np.maximum(x, 0)
        if p.epilogue.activation == "gelu":
            x = x * np.float32(0.5) * (1 + numerics.erf(x.astype(np.float64) / math.sqrt(2)).astype(np.float32))
        if p.epilogue.activation == "silu":
            x = x * np.float32(0.5) * (1 + np.tanh(x * np.float32(0.5)))
        target[index] = numerics.round_to(x.astype(np.float32), p.d.dtype)
    return out


def within(p: GemmProblem, a_case: Case, arrays: dict[str, np.ndarray], got: np.ndarray) -> bool:
    """Whether every element inside D is within the bound."""
    expected = numerics.reference(p, a_case, arrays)["D"]
    allowed = numerics.bound(p, a_case, arrays, "sm90")["D"]
    inside = ~np.isnan(expected)
    return bool(np.all(np.abs(got.astype(np.float64) - expected)[inside] <= allowed[inside]))


PROBLEMS = {
    "bf16": {},
    "fp16": {"dtype": "fp16"},
    "tf32": {"dtype": "tf32"},
    "e4m3": {"dtype": "e4m3", "scale": {"a": "tensor", "b": "tensor"}},
    "e5m2_fast": {"dtype": "e5m2", "accumulate": "fast"},
    "majors": {"a": {"major": "m"}, "b": {"major": "n"}, "d": {"major": "m", "dtype": "fp32"}},
    "everything": {"epilogue": {"alpha": 1.5, "beta": -0.5, "bias": "row", "activation": "relu"}},
    "gelu_col": {"epilogue": {"bias": "col", "activation": "gelu"}},
    "silu": {"epilogue": {"activation": "silu"}},
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_bound_admits_a_correct_float32_kernel(name: str) -> None:
    p = problem(**PROBLEMS[name])
    for extents in ((130, 70, 96), (1, 33, 1000), (65, 64, 4096)):
        a_case = case(p, *extents)
        arrays = numerics.inputs(p, a_case)
        assert within(p, a_case, arrays, simulate(p, a_case, arrays))


@pytest.mark.parametrize("name", PROBLEMS)
def test_bound_catches_a_missing_k_block(name: str) -> None:
    p = problem(**PROBLEMS[name])
    a_case = case(p, 64, 64, 1024)
    arrays = numerics.inputs(p, a_case)
    assert not within(p, a_case, arrays, simulate(p, a_case, arrays, skip=31))


@pytest.mark.parametrize("name", PROBLEMS)
def test_bound_catches_seeded_faults(name: str) -> None:
    p = problem(**PROBLEMS[name])
    a_case = case(p, 64, 64, 96)
    arrays = numerics.inputs(p, a_case)
    right = view(p, a_case, "d", simulate(p, a_case, arrays))
    stale = view(p, a_case, "d", simulate(p, a_case, arrays, skip=0)).copy()
    stale[0, 16:32] = right[0, 0:16]  # a tile that kept another tile's result
    tail = right.copy()
    tail[0, -1, :] = 0  # the last row never stored
    shifted = np.roll(right, 1, axis=2)
    for wrong in (right.transpose(0, 2, 1), stale, tail, shifted):
        got = arrays["D"].copy()
        view(p, a_case, "d", got)[:] = wrong
        assert not within(p, a_case, arrays, got)


@pytest.mark.parametrize("name", [each for each in PROBLEMS if each not in ("gelu_col", "silu")])
def test_integer_cases_are_exact_in_any_order_and_catch_one_missing_product(name: str) -> None:
    p = problem(**PROBLEMS[name])
    a_case = case(p, 64, 48, 515, data="integers", alpha=1.0, beta=2.0)
    arrays = numerics.inputs(p, a_case)
    expected = numerics.reference(p, a_case, arrays)["D"]
    inside = ~np.isnan(expected)
    for block in (16, 515):
        got = simulate(p, a_case, arrays, block=block)
        assert np.array_equal(got[inside], numerics.round_to(expected[inside].astype(np.float32), p.d.dtype))
    cut = {**arrays, "A": arrays["A"].copy()}
    view(p, a_case, "a", cut["A"])[:, :, -1] = 0  # off by one at the tail of K
    got = simulate(p, a_case, cut)
    assert not np.array_equal(got[inside], numerics.round_to(expected[inside].astype(np.float32), p.d.dtype))


@pytest.mark.parametrize(("dtype", "limit"), [("bf16", 2**23), ("e4m3", 2**12)])
@pytest.mark.parametrize("k", [1, 300, 4096, 20000])
def test_integers_stay_exact_in_the_accumulator(dtype: str, limit: int, k: int) -> None:
    p = problem(dtype=dtype)
    a_case = case(p, 4, 4, k, data="integers", alpha=1.0)
    arrays = numerics.inputs(p, a_case)
    a, b = (np.abs(view(p, a_case, each, arrays[each.upper()]).astype(np.float64))[0] for each in "ab")
    assert (a @ b).max() <= limit
    assert (a @ b).max() > 0 or k == 1


def test_reference_is_float64_of_the_rounded_inputs() -> None:
    p = problem(epilogue={"alpha": 0.5, "beta": 3.0, "bias": "col"})
    a_case = case(p, 5, 7, 9, 2)
    arrays = numerics.inputs(p, a_case)
    a, b, c = (view(p, a_case, each, arrays[each.upper()]).astype(np.float64) for each in "abc")
    bias = arrays["bias"].astype(np.float64)
    expected = 0.5 * (a @ b) + 3.0 * c + bias[None, :, None]
    got = view(p, a_case, "d", numerics.reference(p, a_case, arrays)["D"])
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_reference_marks_padding_and_nothing_else() -> None:
    p = problem()
    a_case = case(p, 6, 5, 8, 3)
    reference = numerics.reference(p, a_case, numerics.inputs(p, a_case))["D"]
    assert np.isnan(reference).sum() == reference.size - 3 * 6 * 5
    assert not np.isnan(view(p, a_case, "d", reference)).any()


def test_padding_of_inputs_is_nan_so_that_reading_it_shows() -> None:
    for dtype in ("bf16", "fp16", "tf32", "e4m3", "e5m2"):
        p = problem(dtype=dtype, epilogue={"beta": 1.0})
        a_case = case(p, 6, 5, 8, 2)
        arrays = numerics.inputs(p, a_case)
        for name in "abc":
            flat = arrays[name.upper()].astype(np.float32)
            inside = view(p, a_case, name, arrays[name.upper()]).astype(np.float32)
            assert not np.isnan(inside).any()
            assert np.isnan(flat).sum() == flat.size - inside.size > 0
        assert np.isnan(arrays["D"].astype(np.float32)).all()


def test_inputs_are_a_function_of_the_seed() -> None:
    p = problem(epilogue={"bias": "row"})
    first, again = (numerics.inputs(p, case(p, 9, 9, 9)) for _ in range(2))
    other = numerics.inputs(p, case(p, 9, 9, 9, seed=4))
    assert all(first[each].tobytes() == again[each].tobytes() for each in first)
    assert all(first[each].tobytes() != other[each].tobytes() for each in ("A", "B", "bias"))


@pytest.mark.parametrize("name", PROBLEMS)
def test_inputs_have_the_shapes_and_types_of_the_launch_file(name: str) -> None:
    p = problem(**PROBLEMS[name])
    for a_case in numerics.cases(p, CANDIDATE, 4):
        arrays = numerics.inputs(p, a_case)
        declared = launch_buffers(p)
        assert set(arrays) == set(declared)
        for each, buffer in declared.items():
            extent = eval(str(buffer.shape[0]), {"max": max}, dict(a_case.arguments))
            assert arrays[each].shape == (extent,)
            assert arrays[each].dtype == numpy_type(buffer.dtype)


def test_tf32_inputs_hold_only_bits_that_the_tensor_core_reads() -> None:
    p = problem(dtype="tf32")
    a_case = case(p, 16, 16, 16, padding="packed")
    assert not (numerics.inputs(p, a_case)["A"].view(np.uint32) & 0x1FFF).any()


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32", "e4m3", "e5m2"])
def test_rounding_is_to_nearest_even(dtype: str) -> None:
    import ml_dtypes

    values = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    got = numerics.round_to(values, dtype)
    if dtype == "tf32":
        assert np.abs(got - values).max() <= 2.0**-11 * np.abs(values).max()
        tie = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11], np.float32)
        assert numerics.round_to(tie, dtype).tolist() == [1.0, 1 + 2.0**-9]
        return
    kind = np.float16 if dtype == "fp16" else getattr(ml_dtypes, TORCH_NAME[dtype])
    assert np.array_equal(got, values.astype(kind))


def test_error_function_agrees_with_the_standard_library() -> None:
    x = np.concatenate([np.linspace(-7, 7, 9001), [0.0, -0.0, 1e-300, 50.0, -50.0]])
    expected = np.array([math.erf(each) for each in x])
    assert np.abs(numerics.erf(x) - expected).max() < 1e-13


def test_cases_name_every_boundary_once_and_fill_every_argument() -> None:
    p = problem(epilogue={"beta": 1.0})
    made = numerics.cases(p, CANDIDATE, 5)
    names = [each.name for each in made]
    assert len(set(names)) == len(names)
    wanted = {"own_shape", "own_shape_integers", "clusters_fewer", "clusters_equal", "clusters_one_more"}
    wanted |= {"tile_plus_one", "tile_minus_one", "unpadded", "k_short", "k_zero", "m_one", "m_zero", "batch_three"}
    assert wanted <= set(names)
    for each in made:
        assert list(each.arguments) == [argument.name for argument in launch_arguments(p)]
        assert each.tma == ("unpadded" not in each.name)
    own = next(each for each in made if each.name == "own_shape")
    assert [own.arguments[each] for each in ("m", "n", "k", "lda", "ldd")] == [130, 70, 96, 96, 70]


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("resident", [1, 2, 66, 67])
def test_residency_cases_have_one_cluster_fewer_as_many_and_one_more(swap: bool, resident: int) -> None:
    c = dataclasses.replace(CANDIDATE, work=GemmWork(swap_ab=swap))
    cluster_m, cluster_n = (32, 128) if swap else (128, 32)
    made = {each.name: each.arguments for each in numerics.cases(problem(), c, resident)}

    def clusters(name: str) -> int:
        down, rest_m = divmod(int(made[name]["m"]), cluster_m)
        across, rest_n = divmod(int(made[name]["n"]), cluster_n)
        assert rest_m == rest_n == 0
        return down * across

    assert clusters("clusters_fewer") == max(1, resident - 1)
    assert clusters("clusters_equal") == resident
    assert clusters("clusters_one_more") == resident + 1
    assert clusters("clusters_waves") > 2 * resident


def test_split_k_cases_leave_slices_empty_and_uneven() -> None:
    c = dataclasses.replace(CANDIDATE, work=GemmWork(split_k=4))
    made = {each.name: each.arguments for each in numerics.cases(problem(), c, 8)}
    assert made["k_one_slice"]["k"] == 32
    assert int(made["k_uneven_slices"]["k"]) // 32 % 4 != 0


def test_activations_without_exact_values_get_no_integer_cases() -> None:
    made = numerics.cases(problem(epilogue={"activation": "gelu"}), CANDIDATE, 4)
    assert {each.data for each in made} == {"normal"}


def test_a_problem_too_large_for_a_reference_is_reduced_and_says_so() -> None:
    made = numerics.cases(problem(m=65536, n=65536, k=65536), CANDIDATE, 4)
    own = made[0]
    assert own.name == "own_shape_reduced"
    assert "halved" in own.why
    assert 2 * math.prod(int(own.arguments[each]) for each in "mnk") <= numerics.MAX_OWN_FLOPS


def test_boundary_cases_are_small() -> None:
    c = dataclasses.replace(CANDIDATE, tile=(128, 256, 64), cluster=(2, 1, 1), stages=4)
    for each in numerics.cases(problem(m=8192, n=8192, k=8192), c, 66):
        if not each.name.startswith("own"):
            assert 2 * math.prod(int(each.arguments[name]) for name in "mnk") < 3e10


@pytest.mark.parametrize("extents", [(8192, 8192, 8192), (4344, 4104, 4104), (300, 200, 40)])
def test_small_cases_keep_every_boundary_and_the_ragged_ends(extents: tuple[int, int, int]) -> None:
    m, n, k = extents
    c = dataclasses.replace(CANDIDATE, tile=(128, 256, 64), cluster=(2, 1, 1), stages=4)
    p = problem(m=m, n=n, k=k, batch=5)
    large, small = numerics.cases(p, c, 4), numerics.cases(p, c, 4, small=True)
    assert [each.name for each in small][2:] == [each.name for each in large][2:]
    assert [each.scheduling for each in small] == [each.scheduling for each in large]
    own = small[0].arguments
    assert small[0].name == "own_shape_cut"
    assert [int(own[name]) % tile for name, tile in (("m", 256), ("n", 256), ("k", 64))] == [m % 256, n % 256, k % 64]
    assert [own["batch"], *(min(int(own[name]), limit) for name, limit in (("m", 512), ("n", 512), ("k", 320)))] == [
        2, *(own[name] for name in "mnk")
    ]  # fmt: skip
    for each in small:
        assert 2 * math.prod(int(each.arguments[name]) for name in ("m", "n", "k", "batch")) < 5e8


def test_a_problem_that_is_small_keeps_its_own_shape_and_strides() -> None:
    p = problem(m=130, n=40, k=64)
    own = numerics.cases(p, CANDIDATE, 4, small=True)[0]
    assert own.name == "own_shape"
    assert own.arguments == numerics.cases(p, CANDIDATE, 4)[0].arguments


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("odd", [0, 1])
def test_strides_of_matrices_that_no_memory_holds_are_cut_to_the_same_alignment(small: bool, odd: int) -> None:
    p = problem(n=60, a={"ld": 10**9 + odd}, b={"ld": 200}, batch=2, d={"batch_stride": 10**12})
    for each in numerics.cases(p, CANDIDATE, 4, small=small):
        assert sum(numerics.storage_elements(p, each, name) for name in "abd") < 2**24
    own = numerics.cases(p, CANDIDATE, 4, small=small)[0]
    assert (own.name, own.tma) == ("own_shape_cut", not odd)
    assert (own.arguments["lda"], own.arguments["ldb"]) == (104 + odd, 104)
    assert own.arguments["batch_stride_a"] >= own.arguments["lda"] * 130
    assert own.arguments["batch_stride_d"] % 8 == 0


def test_small_residency_cases_still_have_two_waves_and_one() -> None:
    made = {each.name: each.arguments for each in numerics.cases(problem(), CANDIDATE, 8, small=True)}
    counts = {name: int(made[name]["m"]) * int(made[name]["n"]) // (128 * 32) for name in made if "clusters" in name}
    assert counts == {"clusters_fewer": 7, "clusters_equal": 8, "clusters_one_more": 9, "clusters_waves": 17}


def test_batch_broadcast_of_an_operand_reads_one_matrix() -> None:
    p = problem(m=8, n=8, k=16, batch=3, b={"batch_stride": 0})
    a_case = case(p, 8, 8, 16, 3, padding="own")
    arrays = numerics.inputs(p, a_case)
    assert arrays["B"].size == 8 * 16
    assert within(p, a_case, arrays, simulate(p, a_case, arrays))
