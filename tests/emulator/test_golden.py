"""The single-instruction cases: enough of them, well formed, and compared so that a wrong bit is named.

`golden/make.py` has stored what an H200 gives; every case is held against that, and so is a wrong way to add.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.emulator import mma, wgmma
from advisor.emulator.formats import Bits
from advisor.emulator.mma import Accumulation, Numerics, Product, multiply_add
from advisor.emulator.ptx.parser import parse
from advisor.records.launch import BytesParam
from advisor.runtime import Device
from advisor.runtime.driver import Api, initialise
from advisor.runtime.tensormap import TENSOR_MAP_BYTES
from tests.emulator.exact import f32
from tests.emulator.golden.cases import ELEMENTS, Bound, all_cases, is_edge
from tests.emulator.golden.compare import KEY_CHIP, beyond, differences, fingerprint, key
from tests.emulator.golden.make import resolved, run_case
from tests.runtime.fake_driver import FakeDriver

CASES = all_cases()
CHIP = Path(__file__).parent / "golden" / "h200.npz"


def stored(path: Path, *, change: str = "") -> Path:
    """A file as the program would write it on a chip that agrees with the emulator, but for one case."""
    arrays = {}
    for case in CASES:
        for name, array in case.expected().items():
            arrays[key(case, name)] = array.copy()
            if case.name == change:
                arrays[key(case, name)].reshape(-1)[3] ^= array.dtype.type(1)
    np.savez(path, **arrays)
    return path


def test_there_are_at_least_200_cases_of_every_family() -> None:
    names = [each.name for each in CASES]
    assert len(names) >= 200
    assert len(set(names)) == len(names)
    matrices = ("mma.sync.", "ldmatrix.", "stmatrix.", "movmatrix.", "wgmma/")
    memory = ("ld.", "st.", "atom.", "red.", "cp.async.", "cp.reduce.", "mbarrier.", "tensormap.", "bar", "mapa.")
    for family in ("fma.", "cvt.", "setp.", "lop3.", "shfl.", "vote.", "match.", "redux.", *memory, *matrices):
        assert any(each.startswith(family) for each in names), family


def test_every_case_computes_outputs_of_the_declared_shape() -> None:
    for case in CASES:
        expected = case.expected()
        assert list(expected) == list(case.outputs), case.name
        for name, (shape, dtype) in case.outputs.items():
            assert expected[name].shape == shape, case.name
            assert expected[name].dtype == dtype, case.name


def test_every_kernel_is_ptx_that_the_emulator_reads_and_contains_its_instruction() -> None:
    for case in CASES:
        assert parse(case.ptx) is not None
        opcode = case.name.removeprefix("wgmma/").split("/")[0].removesuffix(".pair").removeprefix("mov.u32.")
        assert opcode.split(".0x")[0] in case.ptx, case.name


def test_a_launch_passes_the_buffers_in_the_order_of_the_parameters() -> None:
    for case in CASES:
        launch = resolved(case)
        assert [each.name for each in launch.params] == case.parameters
        lines = [line.strip() for line in case.ptx.splitlines()]
        declared = [each.split()[-1].rstrip(",").split("[")[0] for each in lines if each.startswith(".param")]
        assert declared == case.parameters
        assert launch.block[0] * launch.grid_blocks[0] >= 32


def test_the_program_brings_back_what_a_chip_computes() -> None:
    """A driver in Python stands for the chip: it computes one case after the other, and one of them wrongly."""
    driver = FakeDriver()
    device = Device(initialise(Api(driver)), 0)
    waiting = iter(CASES)

    def launched(values: list[bytes], config: object) -> None:
        case = next(waiting)
        pointers = [int.from_bytes(each, "little") for each in values if len(each) == 8]
        addresses = dict(zip((*case.inputs, *case.outputs), pointers, strict=False))
        for name, array in case.inputs.items():
            assert ctypes.string_at(addresses[name], array.nbytes) == array.tobytes(), case.name
        for each, bytes_ in zip(case.extra, values[len(addresses) :], strict=True):
            assert len(bytes_) == (len(each.value) // 2 if isinstance(each, BytesParam) else TENSOR_MAP_BYTES)
        for name, array in case.expected().items():
            data = array ^ array.dtype.type(case.name == "brev.b32")
            ctypes.memmove(addresses[name], data.tobytes(), data.nbytes)

    driver.kernels["kernel"] = launched
    wrong = []
    for case in CASES:
        sizes = [len(each.value) // 2 if isinstance(each, BytesParam) else TENSOR_MAP_BYTES for each in case.extra]
        driver.parameter_sizes = [8] * (len(case.inputs) + len(case.outputs)) + sizes
        found = run_case(device, case)
        if any((found[name] != wanted).any() for name, wanted in case.expected().items()):
            wrong.append(case.name)
    assert wrong == ["brev.b32"]
    assert not driver.memory


def test_outputs_that_agree_give_no_difference(tmp_path: Path) -> None:
    assert differences(stored(tmp_path / "same.npz")) == []


@pytest.mark.parametrize("name", ["fma.rn.f32", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "prmt.b32"])
def test_one_wrong_bit_is_named(tmp_path: Path, name: str) -> None:
    lines = differences(stored(tmp_path / "other.npz", change=name))
    assert len(lines) == 1
    assert lines[0].startswith(name)
    assert "differs in 1 of" in lines[0]


def test_a_missing_output_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "empty.npz", chip=np.array("none"))
    assert len(differences(tmp_path / "empty.npz")) == sum(len(each.outputs) for each in CASES)


def test_the_fingerprint_follows_the_kernel_and_the_inputs() -> None:
    assert len({fingerprint(each) for each in CASES}) == len(CASES)


def test_bounds_count_units_across_zero_and_demand_the_same_nan() -> None:
    one, next_one = f32([1.0]), f32([1.0]) + np.uint32(2)
    assert not beyond(one, next_one, "f32", Bound(ulps=2)).any()
    assert beyond(one, next_one, "f32", Bound(ulps=1)).all()
    assert beyond(one, next_one, "f32", Bound()).all()
    smallest = np.array([1], np.uint32)
    assert not beyond(smallest, smallest | np.uint32(1 << 31), "f32", Bound(ulps=2)).any()
    nan = np.array([0x7FFFFFFF], np.uint32)
    assert beyond(one, nan, "f32", Bound(absolute=1e30)).all()
    assert not beyond(nan, nan, "f32", Bound(ulps=1)).any()
    assert beyond(
        np.array([0x3C003C00], np.uint32), np.array([0x3C003D00], np.uint32), "f16x2", Bound(relative=0.1)
    ).all()


# --- what the chip gave -----------------------------------------------------------------------------------------------


def test_every_case_is_what_the_chip_gave() -> None:
    assert differences(CHIP) == []


def test_the_stored_outputs_are_those_of_the_cases_and_name_their_chip() -> None:
    with np.load(CHIP) as stored_outputs:
        assert set(stored_outputs) == {KEY_CHIP} | {key(case, name) for case in CASES for name in case.outputs}
        assert str(stored_outputs[KEY_CHIP]).startswith("NVIDIA H200, driver ")


def test_the_kept_elements_are_half_edges_where_there_are_as_many() -> None:
    kept = {each.name: each for each in CASES}
    for name, kinds in (("rem.u32", ("u32", "u32")), ("neg.f16", ("f16",)), ("fma.rn.f32", ("f32",) * 3)):
        operands = list(kept[name].inputs.values())
        edge = np.any([is_edge(codes, kind) for codes, kind in zip(operands, kinds, strict=True)], axis=0)
        assert 40 < edge.sum() < ELEMENTS, name
        assert len(edge) == ELEMENTS
    assert is_edge(np.array([0x3C003C00, 0x3C00FE01, 0x80003C00], np.uint32), "f16x2").tolist() == [False, True, True]


BLOCK, FINER, COARSER, SHORT, WHOLE = "half a block", "one bit more", "one bit less", "one bit shorter", "in one unit"
ONE_CHANGE: dict[str, Callable[[Accumulation], Accumulation]] = {
    BLOCK: lambda model: replace(model, block=model.block // 2),
    FINER: lambda model: replace(model, fraction_bits=model.fraction_bits + 1),
    COARSER: lambda model: replace(model, fraction_bits=model.fraction_bits - 1),
    SHORT: lambda model: replace(model, result_bits=model.result_bits - 1),
    WHOLE: lambda model: replace(model, widened=False),
}
# Another parameter gives another result somewhere in these cases: so many ways to add the chip's outputs rule out.
RULED_OUT = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": (BLOCK, FINER, COARSER, SHORT),
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": (BLOCK, FINER, COARSER, SHORT),
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": (BLOCK, FINER, COARSER, SHORT),
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32": (BLOCK, SHORT, WHOLE),
    "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32": (SHORT, WHOLE),
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16": (BLOCK, COARSER),
    "wgmma/m64n64k16.f32.f16.f16/128B/K/K/+1+1": (BLOCK, FINER, COARSER, SHORT),
    "wgmma/m64n64k16.f32.bf16.bf16/128B/K/K/+1+1": (BLOCK, FINER, COARSER, SHORT),
    "wgmma/m64n64k8.f32.tf32.tf32/128B/K/K/+1+1": (BLOCK, FINER, COARSER, SHORT),
    "wgmma/m64n64k32.f32.e4m3.e4m3/128B/K/K/+1+1": (BLOCK, FINER, COARSER, SHORT),
    "wgmma/m64n64k32.f32.e5m2.e5m2/128B/K/K/+1+1": (BLOCK, FINER, COARSER, SHORT),
    "wgmma/m64n128k32.f16.e4m3.e4m3/128B/K/K/+1+1": (BLOCK, FINER, COARSER),
}


@pytest.mark.parametrize(("name", "change"), [(name, each) for name, changes in RULED_OUT.items() for each in changes])
def test_another_way_to_add_is_not_the_chips(name: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(each for each in CASES if each.name == name)

    def changed(a: Bits, b: Bits, c: Bits | None, product: Product, numerics: Numerics = "fp32") -> Bits:
        return multiply_add(a, b, c, replace(product, model=ONE_CHANGE[change](product.model)), numerics)

    for module in (mma, wgmma):
        monkeypatch.setattr(module, "multiply_add", changed)
    with np.load(CHIP) as stored_outputs:
        assert (case.expected()["d"] != stored_outputs[key(case, "d")]).any()
