"""A launch in numbers, the rung that runs, and the tensor map encoder's rules by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.bundle import Facts, complete_arguments, is_empty, pick_rung, resolve
from advisor.errors import AdvisorError
from advisor.records.launch import Launch, ResolvedLaunch, TensorMapParam

TMA = "sm90_static_2x1x1"
FACTS = Facts(
    num_sms=132,
    sm_budget=132,
    max_active_clusters={TMA: 66, "portable_one_tile": 264},
    loadable=frozenset({TMA, "portable_one_tile"}),
)


def _code(error: pytest.ExceptionInfo[AdvisorError]) -> str:
    return error.value.code


def test_numbers_replace_every_expression(launch: Launch) -> None:
    resolved = resolve(launch, TMA, {"batch": 2, "alpha": 0.5}, FACTS)
    tensor_map, pointer, extent, alpha, tickets = (each.model_dump() for each in resolved.params)
    assert resolved.grid_blocks == (2 * 2 * 2 * 2, 1, 1)
    assert resolved.dynamic_smem_bytes == 197632
    assert (resolved.target, resolved.entry) == ("sm_90a", "gemm_sm90")
    assert tensor_map["global_dim"] == [64, 300, 2]
    assert tensor_map["global_stride_bytes"] == [128, 38400]
    assert (pointer["offset_bytes"], extent["value"], alpha["value"], tickets["bytes"]) == (0, 300, 0.5, 8)
    assert resolved.buffers["A"].shape == [38400]
    assert (resolved.buffers["A"].init, resolved.buffers["D"].init) == ("normal", "poison")
    assert ResolvedLaunch.model_validate_json(resolved.model_dump_json()) == resolved


def test_residency_caps_a_persistent_grid(launch: Launch) -> None:
    few = replace(FACTS, max_active_clusters={TMA: 3})
    assert resolve(launch, TMA, {}, few).grid_blocks == (6, 1, 1)


def test_a_zero_extent_is_encoded_as_one_and_an_empty_output_launches_nothing(launch: Launch) -> None:
    no_k = resolve(launch, TMA, {"k": 0}, FACTS)
    assert isinstance(no_k.params[0], TensorMapParam)
    assert no_k.params[0].global_dim == [1, 300, 1]
    assert not is_empty(no_k)
    assert is_empty(resolve(launch, TMA, {"m": 0}, FACTS))
    assert is_empty(resolve(launch, "portable_one_tile", {"batch": 0}, FACTS))


def test_zero_active_clusters_is_refused_when_forced_and_steps_down_when_picked(launch: Launch) -> None:
    none = replace(FACTS, max_active_clusters={TMA: 0, "portable_one_tile": 264})
    with pytest.raises(AdvisorError) as error:
        resolve(launch, TMA, {}, none)
    assert _code(error) == "ZERO_ACTIVE_CLUSTERS"
    assert pick_rung(launch, {}, none) == "portable_one_tile"


@pytest.mark.parametrize(
    ("arguments", "changes", "rung"),
    [
        ({}, {}, TMA),
        ({"lda": 65}, {}, "portable_one_tile"),
        ({}, {"alignments": {"A": 8}}, "portable_one_tile"),
        ({}, {"alignments": {"A": 4096}}, TMA),
        ({}, {"loadable": frozenset({"portable_one_tile"})}, "portable_one_tile"),
    ],
)
def test_the_first_rung_whose_condition_holds_runs(
    launch: Launch, arguments: dict[str, int], changes: dict[str, Any], rung: str
) -> None:
    assert pick_rung(launch, arguments, replace(FACTS, **changes)) == rung


def test_no_rung_is_an_answer(launch: Launch) -> None:
    only = launch.model_copy(update={"ladder": launch.ladder[:1]})
    with pytest.raises(AdvisorError) as error:
        pick_rung(only, {"lda": 65}, FACTS)
    assert (_code(error), error.value.exit_status) == ("NO_RUNG", 1)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"lda": 0}, "ARGUMENT_RANGE"),
        ({"m": -1}, "ARGUMENT_RANGE"),
        ({"m": 1.5}, "ARGUMENT_RANGE"),
        ({"m": 2**31}, "ARGUMENT_RANGE"),
        ({"ldq": 4}, "ARGUMENT_UNKNOWN"),
        ({"lda": 65}, "TMA_STRIDE_16B"),
        ({"lda": 2**39}, "TMA_STRIDE_RANGE"),
        ({"batch_stride_a": 3}, "TMA_STRIDE_16B"),
        ({"k": 2**33}, "TMA_DIM_RANGE"),
    ],
)
def test_arguments_that_no_launch_can_take_are_named(launch: Launch, arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(AdvisorError) as error:
        resolve(launch, TMA, arguments, FACTS)
    assert _code(error) == code


@pytest.mark.parametrize("value", [0, 299, 2**31, float("inf"), float("nan")])
def test_an_argument_has_a_least_and_a_greatest_value(launch: Launch, value: float) -> None:
    m = launch.arguments[0].model_copy(update={"min": 300, "max": 400})
    narrow = launch.model_copy(update={"arguments": [m, *launch.arguments[1:]]})
    assert complete_arguments(narrow, {"m": 400})["m"] == 400
    with pytest.raises(AdvisorError) as error:
        complete_arguments(narrow, {"m": value})
    assert _code(error) == "ARGUMENT_RANGE"
    assert error.value.fix == "pass an integer m from 300 to 400"


def test_a_missing_argument_is_named(launch: Launch) -> None:
    bare = launch.model_copy(update={"arguments": [launch.arguments[0].model_copy(update={"default": None})]})
    with pytest.raises(AdvisorError, match="'m'") as error:
        complete_arguments(bare, {})
    assert _code(error) == "ARGUMENT_MISSING"


def test_the_stride_message_names_the_operand_the_bytes_and_the_padding(launch: Launch) -> None:
    with pytest.raises(AdvisorError) as error:
        resolve(launch, TMA, {"lda": 65}, FACTS)
    assert error.value.numbers["stride_bytes"] == 130
    assert error.value.numbers["pad_to_bytes"] == 144
    assert "'A'" in error.value.message
    assert "72 elements" in error.value.fix


def test_an_address_that_tma_cannot_take_is_named(launch: Launch) -> None:
    with pytest.raises(AdvisorError) as error:
        resolve(launch, TMA, {}, replace(FACTS, alignments={"A": 8}))
    assert _code(error) == "TMA_ADDRESS_16B"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"box_dim": [64, 257, 1]}, "TMA_BOX_256"),
        ({"box_dim": [64, 0, 1]}, "TMA_BOX_256"),
        ({"box_dim": [128, 64, 1]}, "TMA_BOX_SWIZZLE"),
        ({"box_dim": [4, 64, 1], "swizzle": "none"}, "TMA_BOX_16B"),
        ({"element_strides": [1, 9, 1]}, "TMA_ELEMENT_STRIDE"),
        ({"rank": 2}, "TMA_RANK"),
        ({"rank": 6}, "TMA_RANK"),
        ({"interleave": "32B"}, "TMA_INTERLEAVE"),
    ],
)
def test_the_encoder_rules_are_checked_by_name(launch: Launch, changes: dict[str, Any], code: str) -> None:
    kernel = launch.kernels[0]
    params = [kernel.params[0].model_copy(update=changes), *kernel.params[1:]]
    broken = launch.model_copy(update={"kernels": [kernel.model_copy(update={"params": params})]})
    with pytest.raises(AdvisorError) as error:
        resolve(broken, TMA, {}, FACTS)
    assert _code(error) == code


@pytest.mark.parametrize(
    ("grid", "code"),
    [
        (("3", "1", "1"), "GRID_CLUSTER_MULTIPLE"),
        (("2", "65536", "1"), "GRID_DIM_LIMIT"),
        ((2**31, 1, 1), "GRID_DIM_LIMIT"),
    ],
)
def test_a_grid_that_cannot_be_launched_is_refused(launch: Launch, grid: tuple[Any, Any, Any], code: str) -> None:
    kernel = launch.kernels[0].model_copy(update={"grid_blocks": grid})
    with pytest.raises(AdvisorError) as error:
        resolve(launch.model_copy(update={"kernels": [kernel]}), TMA, {}, FACTS)
    assert _code(error) == code


def test_unknown_kernels_and_buffers_are_named(launch: Launch) -> None:
    with pytest.raises(AdvisorError, match="portable_one_tile") as error:
        resolve(launch, "sm91", {}, FACTS)
    assert _code(error) == "KERNEL_UNKNOWN"
    rung = launch.ladder[0].model_copy(update={"when": "aligned('Q', 16)"})
    with pytest.raises(AdvisorError) as error:
        pick_rung(launch.model_copy(update={"ladder": [rung]}), {}, FACTS)
    assert _code(error) == "BUFFER_UNKNOWN"
