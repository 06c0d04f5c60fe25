"""The single-instruction cases: enough of them, well formed, and compared so that a wrong bit is named.

The outputs of a chip are not here: `golden/make.py` writes them.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from advisor.emulator.ptx.parser import parse
from advisor.runtime import Device
from advisor.runtime.driver import Api, initialise
from tests.emulator.exact import f32
from tests.emulator.golden.cases import Bound, all_cases
from tests.emulator.golden.compare import beyond, differences, fingerprint, key
from tests.emulator.golden.make import resolved, run_case
from tests.runtime.fake_driver import FakeDriver

CASES = all_cases()


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
    for family in ("fma.", "cvt.", "setp.", "lop3.", "shfl.", "vote.", "match.", "redux.", "atom.", *matrices):
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
        declared = [line.split()[-1].rstrip(",") for line in case.ptx.splitlines() if line.strip().startswith(".param")]
        assert declared == case.parameters
        assert launch.block[0] * launch.grid_blocks[0] >= 32


def test_the_program_brings_back_what_a_chip_computes() -> None:
    """A driver in Python stands for the chip: it computes one case after the other, and one of them wrongly."""
    driver = FakeDriver()
    device = Device(initialise(Api(driver)), 0)
    waiting = iter(CASES)

    def launched(values: list[bytes], config: object) -> None:
        case = next(waiting)
        addresses = dict(zip(case.parameters, (int.from_bytes(each, "little") for each in values), strict=True))
        for name, array in case.inputs.items():
            assert ctypes.string_at(addresses[name], array.nbytes) == array.tobytes(), case.name
        for name, array in case.expected().items():
            data = array ^ array.dtype.type(case.name == "brev.b32")
            ctypes.memmove(addresses[name], data.tobytes(), data.nbytes)

    driver.kernels["kernel"] = launched
    wrong = []
    for case in CASES:
        driver.parameter_sizes = [8] * len(case.parameters)
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
