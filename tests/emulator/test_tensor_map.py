"""Tensor maps: the encoder's refusals, the image, and what a box touches, against a plain loop over its elements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from advisor.emulator.tensor_map import (
    IMAGE_BYTES,
    DataType,
    Fill,
    Interleave,
    L2Promotion,
    Swizzle,
    TensorMap,
    Transfer,
    encode,
    swizzled,
)
from advisor.errors import InputError
from advisor.records.launch import ElementMapParam, TensorMapParam

PLAIN = TensorMap(DataType.BFLOAT16, 0x1000, (100, 50), (256,), (64, 32), (1, 1))
BASE = 0x1000


# --- the encoder ---------------------------------------------------------------------------------------------------

INTERLEAVED = TensorMap(
    DataType.BFLOAT16, BASE, (8, 16, 4), (32, 512), (8, 4, 2), (1, 1, 1), Interleave.B16, Swizzle.NONE
)
PACKED = TensorMap(DataType.U4_ALIGN16B, BASE, (256, 8), (128,), (128, 4), (1, 1), swizzle=Swizzle.B128)

GOOD = {
    "plain": PLAIN,
    "one dimension": TensorMap(DataType.UINT8, BASE, (64,), (), (16,), (1,)),
    "five dimensions": TensorMap(
        DataType.FLOAT32, BASE, (8,) * 5, (32, 256, 2048, 16384), (4,) * 5, (1, 2, 3, 4, 8), swizzle=Swizzle.B32
    ),
    "largest": TensorMap(DataType.UINT8, BASE, (2**32,) * 2, (2**40 - 16,), (256, 256), (8, 8)),
    "stride 0": replace(PLAIN, strides=(0,)),
    "interleaved": INTERLEAVED,
    "interleaved by 32": replace(INTERLEAVED, interleave=Interleave.B32, swizzle=Swizzle.B32, box=(16, 4, 2)),
    "packed": PACKED,
    "packed in 6 bits": replace(PACKED, dtype=DataType.U6_ALIGN16B, swizzle=Swizzle.B128_ATOM_64B, strides=(192,)),
    "packed on both sides": replace(PACKED, dtype=DataType.U4_ALIGN8B, dims=(254, 8), address=BASE + 16),
    "NaN": replace(PLAIN, fill=Fill.NAN),
}
BAD = {
    "rank 0": (replace(PLAIN, dims=(), strides=(), box=(), element_strides=()), "rank 0"),
    "rank 6": (replace(PLAIN, dims=(8,) * 6, strides=(16,) * 5, box=(8,) * 6, element_strides=(1,) * 6), "rank 6"),
    "interleaved rank 2": (replace(PLAIN, interleave=Interleave.B16), "below 3"),
    "a stride too few": (replace(PLAIN, strides=()), "0 strides"),
    "a box too short": (replace(PLAIN, box=(64,)), "box of 1"),
    "address": (replace(PLAIN, address=BASE + 8), "multiple of 16"),
    "address of a padded type": (replace(PACKED, address=BASE + 16), "multiple of 32"),
    "dimension 0": (replace(PLAIN, dims=(0, 50)), r"global_dim\[0\]"),
    "dimension too large": (replace(PLAIN, dims=(100, 2**32 + 1)), r"global_dim\[1\]"),
    "stride off 16": (replace(PLAIN, strides=(200,)), "multiple of 16"),
    "stride of 32B interleave": (
        replace(INTERLEAVED, interleave=Interleave.B32, swizzle=Swizzle.B32, strides=(48, 512)), "multiple of 32"
    ),
    "stride too large": (replace(PLAIN, strides=(2**40,)), "below 2"),
    "box 0": (replace(PLAIN, box=(64, 0)), r"box_dim\[1\]"),
    "box 257": (replace(PLAIN, box=(64, 257)), r"box_dim\[1\]"),
    "box off 16 bytes": (replace(PLAIN, box=(4, 8)), "multiple of 16"),
    "box wider than the swizzle": (replace(PLAIN, box=(72, 8), swizzle=Swizzle.B128), "above the swizzle"),
    "element stride 0": (replace(PLAIN, element_strides=(1, 0)), "element_strides"),
    "element stride 9": (replace(PLAIN, element_strides=(1, 9)), "element_strides"),
    "32B interleave without its swizzle": (replace(INTERLEAVED, interleave=Interleave.B32), "32B swizzle"),
    "NaN for integers": (replace(PLAIN, dtype=DataType.UINT16, fill=Fill.NAN), "no floating"),
    "packed dimension": (replace(PACKED, dims=(192, 8)), "multiple of 128"),
    "packed box": (replace(PACKED, box=(64, 4)), "needs 128"),
    "packed swizzle": (replace(PACKED, swizzle=Swizzle.B64), "does not exist"),
    "packed odd": (replace(PACKED, dtype=DataType.U4_ALIGN8B, dims=(255, 8)), "even"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_maps_that_the_encoder_takes(name: str) -> None:
    assert GOOD[name].violations() == []


@pytest.mark.parametrize("name", BAD)
def test_maps_that_it_refuses(name: str) -> None:
    tensor_map, words = BAD[name]
    with pytest.raises(InputError, match=words) as caught:
        tensor_map.check("a")
    assert caught.value.code == "EMU_TENSOR_MAP_REFUSED"


def test_the_parameter_of_a_launch_is_encoded() -> None:
    param = TensorMapParam(
        name="a", buffer="A", dtype="float16", rank=3, global_dim=[0, "7", 1], global_stride_bytes=["32", 512],
        box_dim=[64, 8, 1], element_strides=[1, 1, 1], swizzle="128B", l2_promotion="256B", oob_fill="nan",
    )  # fmt: skip
    made = encode(param, BASE)
    assert made.dims == (1, 7, 1)
    assert (made.dtype, made.swizzle, made.fill) == (DataType.FLOAT16, Swizzle.B128, Fill.NAN)
    assert made.l2_promotion is L2Promotion.B256
    with pytest.raises(InputError, match="EMU_TENSOR_MAP_REFUSED"):
        encode(param, BASE + 8)


def test_an_element_that_no_torch_type_names_is_encoded_by_the_drivers_name() -> None:
    param = ElementMapParam(
        name="a", buffer="A", dtype="16U4_ALIGN16B", rank=2, global_dim=[256, 8], global_stride_bytes=[128],
        box_dim=[128, 8], element_strides=[1, 1], swizzle="128B_ATOM_32B",
    )  # fmt: skip
    made = encode(param, BASE)
    assert (made.dtype, made.swizzle, made.row_bytes) == (DataType.U4_ALIGN16B, Swizzle.B128_ATOM_32B, 128)
    assert encode(param.model_copy(update={"dtype": "TFLOAT32", "box_dim": [32, 8]}), BASE).dtype is DataType.TFLOAT32


@pytest.mark.parametrize("name", GOOD)
def test_the_image_holds_the_map(name: str) -> None:
    image = GOOD[name].image()
    assert len(image) == IMAGE_BYTES
    assert TensorMap.from_image(image) == GOOD[name]


def test_other_bytes_are_no_map() -> None:
    assert TensorMap.from_image(bytes(128)) is None
    assert TensorMap.from_image(bytes(range(128))) is None


# --- swizzling -----------------------------------------------------------------------------------------------------

# PTX ISA 5.5.7: what each 16-byte cell of a 128-byte line holds, line by line until the pattern repeats.
TABLES = {
    Swizzle.NONE: ["01234567"],
    Swizzle.B32: ["01234567", "10325476"],
    Swizzle.B64: ["01234567", "10325476", "23016745", "32107654"],
    Swizzle.B128: [
        "01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210"
    ],
    Swizzle.B128_ATOM_32B: ["01234567", "23016745", "45670123", "67452301"],
    Swizzle.B128_ATOM_64B: ["01234567", "45670123"],
}  # fmt: skip


@pytest.mark.parametrize("mode", TABLES)
def test_swizzles_are_those_of_the_tables(mode: Swizzle) -> None:
    table = TABLES[mode]
    for line, cell in itertools.product(range(16), range(8)):
        (to,) = swizzled(np.array([line * 128 + cell * 16]), mode)
        assert to // 128 == line
        assert int(table[line % len(table)][to % 128 // 16]) == cell


def test_the_flip_swaps_halves_of_16_bytes_in_every_other_line() -> None:
    places = np.arange(0, 1024, 8)
    with_flip = swizzled(places, Swizzle.B128_ATOM_32B_FLIP_8B)
    without = swizzled(places, Swizzle.B128_ATOM_32B)
    assert np.array_equal(with_flip, np.where(places // 128 % 2 == 1, without ^ 8, without))


@pytest.mark.parametrize("mode", Swizzle)
def test_a_swizzle_moves_nothing_out_of_its_line_and_undoes_itself(mode: Swizzle) -> None:
    places = np.arange(4096)
    moved = swizzled(places, mode)
    assert np.array_equal(np.sort(moved), places)
    assert np.array_equal(moved // 128, places // 128)
    assert np.array_equal(swizzled(moved, mode), places)


# --- boxes ---------------------------------------------------------------------------------------------------------


def load(tensor_map: TensorMap, transfer: Transfer, memory: np.ndarray, size: int = 1 << 16) -> np.ndarray:
    """Shared memory after the load, 0xEE where nothing was written."""
    shared = np.full(size, 0xEE, np.uint8)
    bytes_at = np.arange(transfer.chunk)
    held = tensor_map.fill_bytes(transfer.shared_bytes).reshape(-1, transfer.chunk).copy()
    inside = transfer.inside
    held[inside] = memory[transfer.globals_[inside][:, None] - BASE + bytes_at]
    shared[transfer.shared[:, None] + bytes_at] = held
    return shared


def by_elements(tensor_map: TensorMap, coordinates: Sequence[int], smem: int, memory: np.ndarray) -> np.ndarray:
    """The same, element by element, from the words of the PTX ISA."""
    shared = np.full(1 << 16, 0xEE, np.uint8)
    size = tensor_map.dtype.bits // 8
    steps = [1, *tensor_map.element_strides[1:]]
    counts = [-(-box // step) for box, step in zip(tensor_map.box, steps, strict=True)]
    fill = tensor_map.fill_bytes(size)
    for linear, index in enumerate(itertools.product(*(range(each) for each in reversed(counts)))):
        at = [start + each * step for start, each, step in zip(coordinates, reversed(index), steps, strict=True)]
        value = fill
        if all(0 <= each < extent for each, extent in zip(at, tensor_map.dims, strict=True)):
            start = at[0] * size + sum(each * stride for each, stride in zip(at[1:], tensor_map.strides, strict=True))
            value = memory[start : start + size]
        places = swizzled(smem + linear * size + np.arange(size), tensor_map.swizzle)
        shared[places] = value
    return shared


def random_map(rng: np.random.Generator) -> tuple[TensorMap, list[int]]:
    rank = int(rng.integers(1, 6))
    dtype = DataType(rng.choice([DataType.UINT8, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64]))  # type: ignore[arg-type]
    size = dtype.bits // 8
    swizzle = Swizzle(int(rng.integers(0, 7)))
    widest = {0: 64, 1: 32, 2: 64}.get(swizzle, 128)
    box = [int(rng.integers(1, widest // 16 + 1)) * 16 // size]
    dims = [int(rng.integers(1, 80))]
    strides, steps = [], [1]
    reach = -(-dims[0] * size // 16) * 16
    for _ in range(rank - 1):
        box.append(int(rng.integers(1, 6)))
        dims.append(int(rng.integers(1, 7)))
        steps.append(int(rng.integers(1, 4)))
        strides.append(reach + 16 * int(rng.integers(0, 2)))
        reach = strides[-1] * dims[-1]
    fill = Fill.NAN if dtype.is_float and rng.random() < 0.5 else Fill.ZERO
    made = TensorMap(
        dtype, BASE, tuple(dims), tuple(strides), tuple(box), tuple(steps), swizzle=swizzle, fill=fill
    ).check()
    return made, [int(rng.integers(-4, extent + 2)) for extent in dims]


def test_boxes_are_those_of_a_loop_over_elements() -> None:
    rng = np.random.default_rng(1)
    memory = rng.integers(0, 256, 1 << 20, np.uint8)
    ranks, swizzles = set(), set()
    for _ in range(150):
        made, coordinates = random_map(rng)
        smem = 128 * int(rng.integers(0, 9))
        transfer = made.transfer(coordinates, smem)
        ranks.add(made.rank)
        swizzles.add(made.swizzle)
        assert transfer.shared_bytes == transfer.tx_bytes == made.tx_bytes
        assert np.array_equal(load(made, transfer, memory), by_elements(made, coordinates, smem, memory)), made
    assert ranks == {1, 2, 3, 4, 5}
    assert swizzles == set(Swizzle)


def test_a_box_inside_is_moved_in_whole_atoms() -> None:
    made = replace(PLAIN, dims=(4096, 4096), strides=(8192,), swizzle=Swizzle.B128)
    transfer = made.transfer([64, 32], 0)
    assert transfer.chunk == 16
    assert transfer.inside.all()
    assert transfer.tx_bytes == 64 * 32 * 2


def test_bytes_outside_the_tensor_count_for_the_barrier() -> None:
    transfer = PLAIN.transfer([80, 40], 0)
    assert transfer.tx_bytes == 64 * 32 * 2
    assert 0 < transfer.inside.sum() < transfer.inside.size


def test_gather_takes_four_rows() -> None:
    rng = np.random.default_rng(2)
    memory = rng.integers(0, 256, 1 << 16, np.uint8)
    made = replace(PLAIN, box=(64, 1), swizzle=Swizzle.B128)
    assert made.gather4_violations() == []
    got = load(made, made.gather4(64, [2, 49, 0, 50], 1024), memory)
    for place, row in enumerate([2, 49, 0, 50]):
        for column in range(64):
            (at,) = swizzled(np.array([1024 + place * 128 + column * 2]), Swizzle.B128)
            inside = row < 50 and 64 + column < 100
            wanted = memory[row * 256 + (64 + column) * 2] if inside else 0
            assert got[at] == wanted


def test_gather_refuses_other_boxes() -> None:
    assert "one row" in PLAIN.gather4_violations()[0]
    assert "rank 2" in GOOD["five dimensions"].gather4_violations()[0]


def test_packed_values_get_their_gaps() -> None:
    memory = np.arange(1 << 16).astype(np.uint8)
    got = load(PACKED, PACKED.transfer([128, 2], 0), memory)
    cell = swizzled(np.array([128 + 32]), Swizzle.B128)[0]  # row 1, third group of 16 values
    assert np.array_equal(got[cell : cell + 8], memory[3 * 128 + 64 + 16 : 3 * 128 + 64 + 24])
    assert (got[cell + 8 : cell + 16] == 0xEE).all()
    assert PACKED.tx_bytes == PACKED.transfer([128, 2], 0).tx_bytes == 64 * 4  # the gaps are not counted


def test_what_a_copy_must_not_do() -> None:
    def broken(coordinates: list[int], address: int = 256, *, store: bool = False, **changes: object) -> str:
        return "; ".join(replace(PLAIN, **changes).copy_violations(coordinates, address, store=store))

    step = 128 // PLAIN.dtype.bits
    assert broken([0, -5]) == ""
    assert broken([-step, 3]) == ""
    assert "multiple of 128" in broken([0, 0], 64)
    assert "32 bits" in broken([2**31, 0])
    assert "multiple of 16" in broken([step + 1, 0])
    assert "multiple of 16" in broken([-1, 0])
    assert "negative" in broken([0, -1], store=True)
    assert "swizzle of 128" in broken([0, 0], box=(step, 4), swizzle=Swizzle.B128)
    assert broken([0, 0], box=(8 * step, 4), swizzle=Swizzle.B128) == ""


# --- tensormap.replace ---------------------------------------------------------------------------------------------


def test_fields_can_be_replaced_one_by_one() -> None:
    made = replace(PLAIN, dims=(1,), strides=(), box=(16,), element_strides=(1,))
    steps = [
        ("rank", 1, 0), ("elemtype", 7, 0), ("global_address", 0x2000, 0), ("global_dim", 40, 0), ("global_dim", 30, 1),
        ("global_stride", 160, 0), ("box_dim", 8, 0), ("box_dim", 4, 1), ("element_stride", 2, 1),
        ("interleave_layout", 0, 0), ("swizzle_mode", 3, 0), ("swizzle_atomicity", 3, 0), ("fill_mode", 1, 0),
    ]  # fmt: skip
    for field, value, ordinal in steps:
        made = made.replaced(field, value, ordinal)
        assert TensorMap.from_image(made.image()) == made
    assert made == TensorMap(
        DataType.FLOAT32, 0x2000, (40, 30), (160,), (8, 4), (1, 2), swizzle=Swizzle.B128_ATOM_64B, fill=Fill.NAN
    )


@pytest.mark.parametrize(("field", "value", "ordinal"), [
    ("rank", 5, 0), ("box_dim", 8, 2), ("global_stride", 16, 1), ("elemtype", 16, 0), ("interleave_layout", 3, 0),
    ("swizzle_mode", 4, 0), ("swizzle_atomicity", 1, 0), ("fill_mode", 2, 0), ("colour", 1, 0),
])  # fmt: skip
def test_values_that_the_table_does_not_have(field: str, value: int, ordinal: int) -> None:
    with pytest.raises(InputError, match="EMU_TENSOR_MAP_FIELD"):
        PLAIN.replaced(field, value, ordinal)


def test_a_replaced_map_can_be_one_that_the_encoder_refuses() -> None:
    made = PLAIN.replaced("global_stride", 8)
    assert made.violations()
    assert TensorMap.from_image(made.image()) == made
