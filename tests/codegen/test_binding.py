"""The Python binding, on a driver that only records: what it derives from arrays, what it refuses, what it launches."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from advisor.bundle import Facts, evaluate, pick_rung, resolve, write_bundle
from advisor.codegen import render_bundle
from advisor.kinds.workload import Workload
from advisor.records.launch import ScalarParam
from advisor.records.plan import Plan

Make = Callable[..., tuple[Plan, Workload]]

_spec = importlib.util.spec_from_file_location("fake_driver", Path(__file__).parent / "fake_driver.py")
assert _spec is not None
assert _spec.loader is not None
fake = importlib.util.module_from_spec(_spec)
sys.modules["fake_driver"] = fake
_spec.loader.exec_module(fake)
FakeArray, FakeDriver = fake.FakeArray, fake.FakeDriver


@contextmanager
def _imported(path: Path) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[path.stem]


class Bound:
    """A bundle on disk, its binding, and the driver underneath."""

    def __init__(self, module: ModuleType, driver: Any, rendered: Any) -> None:
        self.module = module
        self.driver = driver
        self.launch = rendered.launch
        module._driver = lambda: driver  # type: ignore[attr-defined]


@pytest.fixture
def bind(make: Make, tmp_path: Path) -> Iterator[Callable[..., Bound]]:
    """bind(candidates, driver=..., **problem) -> Bound. Images are empty files: the driver does not read them."""
    open_modules: list[Any] = []

    def build(candidates: list[dict[str, Any]], driver: Any = None, **problem: Any) -> Bound:
        rendered = render_bundle(*make(candidates, **problem))
        folder = write_bundle(tmp_path / "sample", rendered)
        (folder / "build").mkdir()
        for kernel in rendered.launch.kernels:
            for path in kernel.images.values():
                (folder / path).touch()
        manager = _imported(folder / "sample.py")
        module = manager.__enter__()
        open_modules.append(manager)
        return Bound(module, driver or FakeDriver(), rendered)

    yield build
    for manager in open_modules:
        manager.__exit__(None, None, None)


TICKET = [{"schedule": "ticket", "cluster": (2, 1, 1)}]


def _abd(m: int, n: int, k: int, batch: int | None = None, pad: int = 0) -> tuple[Any, Any, Any]:
    """a, b, d of 16-bit elements: operands contiguous along k, the result along n, `pad` elements behind each line."""
    lead = () if batch is None else (batch,)

    def steps(rows: int, columns: int, *, flip: bool = False) -> tuple[int, ...]:
        ld = (rows if flip else columns) + pad
        inner = (2, 2 * ld) if flip else (2 * ld, 2)
        outer = columns if flip else rows
        return inner if batch is None else (2 * ld * outer, *inner)

    return (
        FakeArray((*lead, m, k), "<u2", steps(m, k), 0x1000_0000),
        FakeArray((*lead, k, n), "<u2", steps(k, n, flip=True), 0x2000_0000),
        FakeArray((*lead, m, n), "<u2", steps(m, n), 0x3000_0000),
    )


def test_one_launch_is_exactly_what_the_launch_file_says(bind: Callable[..., Bound]) -> None:
    bound = bind(TICKET)
    a, b, d = _abd(1000, 520, 200, batch=3, pad=8)
    assert bound.module.run(a, b, d, alpha=0.5, stream=77) is d
    (launched,) = bound.driver.launched
    arguments = {
        **{"m": 1000, "n": 520, "k": 200, "batch": 3, "lda": 208, "ldb": 208, "ldd": 528, "alpha": 0.5, "beta": 0.0},
        **{"batch_stride_a": 208000, "batch_stride_b": 108160, "batch_stride_d": 528000},
    }
    ids = [kernel.id for kernel in bound.launch.kernels]
    facts = Facts(132, 132, dict.fromkeys(ids, 66), frozenset(ids))
    kernel_id = pick_rung(bound.launch, arguments, facts)
    resolved = resolve(bound.launch, kernel_id, arguments, facts)
    assert launched.function == f"{kernel_id}.sm_90a.cubin"
    assert launched.grid == resolved.grid_blocks
    assert launched.block == resolved.block
    assert launched.cluster == resolved.cluster
    assert launched.smem == resolved.dynamic_smem_bytes
    assert launched.stream == 77
    maps = [param for param in resolved.params if param.kind == "tensormap"]
    assert [[int(each) for each in given[3]] for given in bound.driver.maps] == [each.global_dim for each in maps]
    assert [[int(each) for each in given[4]] for given in bound.driver.maps] == [
        each.global_stride_bytes for each in maps
    ]
    for index, param in enumerate(resolved.params):
        if isinstance(param, ScalarParam):
            layout = {"f32": "<f", "u32": "<I", "i64": "<q"}[param.kind]
            packed = launched.bytes_of(index, struct.calcsize(layout))
            assert struct.unpack(layout, packed)[0] == param.value, param.name


def test_the_binding_and_the_tool_agree_on_every_expression(bind: Callable[..., Bound]) -> None:
    """Both read launch.json; the binding's reader is its own, so that a bundle is complete without the tool."""
    module = bind(TICKET).module
    names = {"m": 300, "n": 200, "k": 0, "big": 2**63}
    for text in (
        "1 + 2 * 3",
        "m // 7 % 5",
        "m - (n - 50)",
        "ceil_div(m, 128) * align_up(n, 128)",
        "min(m, n, 7) + max(k, 1)",
        "0 < k <= 5",
        "not (m == n) and (k == 0 or m % k == 0)",
        "k != 0 and m % k == 0",
        "True",
    ):
        assert module._evaluate(text, names) == evaluate(text, names), text
    for text in ("n - m", "big + big", "big * 2 // 2", "m // k", "align_up(m, k)", "m.real", "[m]", "f(m)", "'m'"):
        with pytest.raises((module.LaunchError, KeyError)):
            module._evaluate(text, names)


@pytest.mark.parametrize(
    ("shape", "pad", "rung"),
    [
        ((256, 256, 128), 0, "sm90_ticket_2x1x1"),
        ((256, 256, 128), 1, "portable_one_tile"),
        ((1, 96, 64), 0, "sm90_ticket_2x1x1"),
        ((1, 1, 1), 0, "sm90_ticket_2x1x1"),
    ],
)
def test_the_arrays_decide_the_rung(
    bind: Callable[..., Bound], shape: tuple[int, int, int], pad: int, rung: str
) -> None:
    bound = bind(TICKET)
    bound.module.run(*_abd(*shape, pad=pad))
    assert bound.driver.launched[0].function.startswith(rung)


def test_an_image_that_the_driver_does_not_load_steps_down(bind: Callable[..., Bound]) -> None:
    driver = FakeDriver(refused={"sm90_ticket_2x1x1.sm_90a.cubin"})
    bound = bind(TICKET, driver)
    bound.module.run(*_abd(256, 256, 64))
    assert bound.driver.launched[0].function.startswith("sm90_static_2x1x1")


def test_a_cluster_that_does_not_fit_steps_down(bind: Callable[..., Bound]) -> None:
    images = ("sm90_ticket_2x1x1.sm_90a.cubin", "sm90_static_2x1x1.sm_90a.cubin")
    bound = bind(TICKET, FakeDriver(residency=dict.fromkeys(images, 0)))
    bound.module.run(*_abd(256, 256, 64))
    assert bound.driver.launched[0].function.startswith("sm90_one_tile")
    assert bound.driver.launched[0].cluster is None


@pytest.mark.parametrize(
    ("capability", "image"),
    [((8, 6), "sm_80"), ((8, 0), "sm_80"), ((9, 0), "sm_90"), ((10, 3), "sm_100"), ((12, 1), "sm_120")],
)
def test_each_gpu_gets_the_best_image_that_loads_there(
    bind: Callable[..., Bound], capability: tuple[int, int], image: str
) -> None:
    attributes = {
        **fake.H200,
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": capability[0],
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": capability[1],
        "CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH": int(capability[0] >= 9),
    }
    bound = bind(TICKET, FakeDriver(attributes=attributes))
    bound.module.run(*_abd(256, 256, 64), rung="portable_one_tile")
    assert bound.driver.launched[0].function == f"portable_one_tile.{image}.cubin"


@pytest.mark.parametrize(
    ("capability", "image"),
    [
        ((10, 0), "sm100_clc_2x1x1.sm_100a"),
        ((10, 3), "sm100_clc_2x1x1.sm_103a"),
        ((9, 0), "sm90_one_tile.sm_90a"),
        ((12, 0), "portable_one_tile.sm_120"),
    ],
)
def test_a_blackwell_bundle_runs_the_best_rung_of_each_gpu(
    bind: Callable[..., Bound], capability: tuple[int, int], image: str
) -> None:
    attributes = {
        **fake.H200,
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": capability[0],
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": capability[1],
    }
    bound = bind([{"family": "sm100"}, {}], FakeDriver(attributes=attributes))
    bound.module.run(*_abd(256, 256, 64))
    assert bound.driver.launched[0].function == f"{image}.cubin"


@pytest.mark.parametrize("pdl", [False, True])
def test_kernels_that_wait_for_the_one_before_are_launched_early_and_portable_ones_never(
    bind: Callable[..., Bound], pdl: bool
) -> None:
    """Both kernels of a split are: the second waits for the first. The portable kernel has no wait."""
    split = {"family": "sm100", "schedule": "static", "split_k": 3}
    attributes = {**fake.H200, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 10}
    bound = bind([split, {}], FakeDriver(attributes=attributes), launch={"pdl": pdl})
    bound.module.run(*_abd(256, 256, 512))
    assert [each.early for each in bound.driver.launched] == [pdl, pdl]
    assert all("sm100" in each.function for each in bound.driver.launched)
    bound.driver.launched.clear()
    bound.module.run(*_abd(256, 256, 512), rung="portable_one_tile")
    assert [each.early for each in bound.driver.launched] == [False]


def test_a_preferred_cluster_goes_with_the_launch_and_not_with_the_query(bind: Callable[..., Bound]) -> None:
    attributes = {**fake.H200, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 10}
    asked: list[list[Any]] = []

    class Asked(FakeDriver):
        def cuOccupancyMaxActiveClusters(self, function: str, config: Any) -> Any:
            asked.append([each.id.name for each in config.attrs])
            return super().cuOccupancyMaxActiveClusters(function, config)

    mixed = {"family": "sm100", "schedule": "static", "preferred_cluster": (4, 2, 1)}
    bound = bind([mixed], Asked(attributes=attributes))
    bound.module.run(*_abd(1024, 512, 64))
    (launched,) = bound.driver.launched
    assert launched.function == "sm100_static_2x1x1_or_4x2x1.sm_100a.cubin"
    assert (launched.cluster, launched.preferred) == ((2, 1, 1), (4, 2, 1))
    assert launched.grid == (2 * 2 * 4, 2, 1)  # tiles of 512 x 256, a whole preferred cluster for each
    assert asked
    assert {name for names in asked for name in names} == {"CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"}


def test_a_gpu_without_any_image_is_told_so(bind: Callable[..., Bound]) -> None:
    attributes = {**fake.H200, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 7}
    bound = bind(TICKET, FakeDriver(attributes=attributes))
    with pytest.raises(bound.module.LaunchError, match="no image"):
        bound.module.run(*_abd(256, 256, 64))


def test_a_forced_rung_runs_or_says_why_not(bind: Callable[..., Bound]) -> None:
    bound = bind(TICKET)
    bound.module.run(*_abd(256, 256, 64), rung="portable_one_tile")
    assert bound.driver.launched[0].function.startswith("portable")
    with pytest.raises(bound.module.LaunchError, match="sm90_static_2x1x1"):
        bound.module.run(*_abd(256, 256, 64), rung="fastest")
    with pytest.raises(bound.module.LaunchError, match="does not run"):
        bound.module.run(*_abd(256, 256, 64, pad=1), rung="sm90_static_2x1x1")


def test_a_budget_of_sms_moves_a_one_tile_choice_to_the_static_twin(bind: Callable[..., Bound]) -> None:
    bound = bind([{"schedule": "one_tile"}])
    bound.module.run(*_abd(256, 256, 64), sm_budget=64)
    assert bound.driver.launched[0].function.startswith("sm90_static")


def test_a_missing_image_is_named(bind: Callable[..., Bound], tmp_path: Path) -> None:
    bound = bind(TICKET)
    (tmp_path / "sample" / "build" / "sm90_static_2x1x1.sm_90a.cubin").unlink()
    with pytest.raises(bound.module.LaunchError, match=r"sm90_static_2x1x1\.sm_90a\.cubin"):
        bound.module.run(*_abd(256, 256, 64))


@pytest.mark.parametrize("empty", [(0, 64, 64, None), (64, 0, 64, None), (64, 64, 64, 0)])
def test_an_empty_output_launches_nothing(bind: Callable[..., Bound], empty: tuple[int, int, int, int | None]) -> None:
    bound = bind(TICKET)
    bound.module.run(*_abd(*empty))
    assert bound.driver.launched == []


def test_k_of_zero_still_writes_the_epilogue(bind: Callable[..., Bound]) -> None:
    """Empty operands have no address, and the tensor map encoder wants one: nothing is read through it."""
    bound = bind(TICKET)
    a, b, d = _abd(64, 64, 0)
    a.address = b.address = 0
    bound.module.run(a, b, d)
    assert len(bound.driver.launched) == 1
    assert all(int(given[2]) == d.address for given in bound.driver.maps)


def test_scratch_comes_from_the_stream_and_returns_to_it(bind: Callable[..., Bound]) -> None:
    bound = bind([{"split_k": 4}])
    bound.module.run(*_abd(256, 200, 512))
    main, reduce = bound.driver.launched
    assert main.function.startswith("sm90_one_tile_s4_main")
    assert reduce.function.startswith("sm90_one_tile_s4_reduce")
    assert [each for each in bound.driver.calls if each.startswith("cuMemAllocAsync")] == [
        f"cuMemAllocAsync {4 * 256 * 200 * 4}"
    ]
    assert bound.driver.alive == set()


def test_the_same_call_again_encodes_nothing_anew(bind: Callable[..., Bound]) -> None:
    bound = bind(TICKET)
    arrays = _abd(256, 256, 64)
    for _ in range(3):
        bound.module.run(*arrays)
    assert len(bound.driver.maps) == 3
    assert len(bound.driver.launched) == 3
    arrays[2].address += 4096
    bound.module.run(*arrays)
    assert len(bound.driver.maps) == 6


def test_what_is_kept_of_past_calls_is_bounded(bind: Callable[..., Bound]) -> None:
    bound = bind(TICKET)
    bound.module._KEPT_LAUNCHES = 4  # type: ignore[attr-defined]
    for m in range(1, 12):
        bound.module.run(*_abd(m, 64, 64))
    assert len(bound.module.launcher(0)._prepared) == 4


def test_threads_share_one_launcher(bind: Callable[..., Bound]) -> None:
    bound = bind(TICKET)
    threads = [threading.Thread(target=bound.module.run, args=_abd(128 * i, 64, 64)) for i in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bound.driver.launched) == 8
    assert bound.driver.calls.count("cuDevicePrimaryCtxRetain") == 1


# --- what is refused -------------------------------------------------------------------------------------------------


def _changed(index: int, **changes: Any) -> tuple[Any, Any, Any]:
    arrays = _abd(64, 48, 32)
    for name, value in changes.items():
        setattr(arrays[index], name, value)
    return arrays


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        (_changed(0, typestr="<f4", strides=(128, 4)), "a has the type float32; this bundle was built for bfloat16"),
        (_changed(0, typestr="<f8"), "type <f8"),
        (_changed(0, strides=(2, 128)), "a is not contiguous along k"),
        (_changed(1, strides=(96, 2)), "b is not contiguous along k"),
        (_changed(2, strides=(2, 128)), "d is not contiguous along n"),
        (_changed(0, strides=(3, 2)), "not whole elements"),
        (_changed(0, strides=(32, 2)), "rows overlap"),
        (_changed(0, strides=(0, 2)), "rows overlap"),
        (_changed(0, shape=(64, 31)), "k is 31 in a and 32 in b"),
        (_changed(2, shape=(64, 47)), "n is 47 in d and 48 in b"),
        (_changed(0, shape=(64,), strides=(2,)), "1 dimensions"),
        (_changed(0, shape=(2, 64, 32), strides=(4096, 64, 2)), "batch is 1 in d and 2 in a"),
        (_changed(2, read_only=True), "d is read-only"),
        (_changed(0, address=0x1001), "not aligned to its elements"),
        (_changed(0, address=0), "a has no memory"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(
    bind: Callable[..., Bound], arrays: tuple[Any, Any, Any], why: str
) -> None:
    bound = bind(TICKET)
    with pytest.raises(bound.module.ArrayError, match=why):
        bound.module.run(*arrays)
    assert bound.driver.launched == []


def test_operands_are_exactly_those_of_the_bundle(bind: Callable[..., Bound]) -> None:
    bound = bind([{}], epilogue={"beta": 1.0, "bias": "row"}, dtype="fp16")
    a, b, d = (FakeArray(each.shape, "<f2", each.strides, each.address) for each in _abd(64, 48, 32))
    bias = FakeArray((48,), "<f2")
    with pytest.raises(bound.module.ArrayError, match="built with c"):
        bound.module.run(a, b, d, bias=bias)
    with pytest.raises(bound.module.ArrayError, match="without scale_a"):
        bound.module.run(a, b, d, d, bias=bias, scale_a=bias)
    with pytest.raises(bound.module.ArrayError, match=r"bias has the shape \(64,\); \(48,\)"):
        bound.module.run(a, b, d, d, bias=FakeArray((64,), "<f2"))
    bound.module.run(a, b, d, d, bias=bias)
    assert len(bound.driver.launched) == 1


def test_host_arrays_are_refused(bind: Callable[..., Bound]) -> None:
    bound = bind(TICKET)
    _, b, d = _abd(64, 48, 32)
    with pytest.raises(bound.module.ArrayError, match="not in CUDA memory"):
        bound.module.run(np.zeros((64, 32), np.float16), b, d)
    with pytest.raises(bound.module.ArrayError, match="list: it has neither"):
        bound.module.run([[1.0]], b, d)


# --- DLPack and streams ---------------------------------------------------------------------------------------------


class Exported:
    """A host array that says that it lies on a GPU, so that real DLPack capsules can be read without one."""

    def __init__(self, array: np.ndarray[Any, Any], device: tuple[int, int] = (2, 0), *, old: bool = False) -> None:
        self.array, self.device, self.old = array, device, old
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("no such option")
        self.streams.append(stream)
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("old", [False, True], ids=["versioned", "legacy"])
def test_dlpack_capsules_are_read(bind: Callable[..., Bound], old: bool) -> None:
    bound = bind([{}], dtype="fp16")
    storage = np.zeros((3, 64, 40), np.float16)
    a = Exported(storage[:, :, :32], old=old)
    found = bound.module.as_array(a, "a", 0)
    assert (found.shape, found.strides, found.dtype) == ((3, 64, 32), (64 * 40, 40, 1), "float16")
    assert found.address == storage.ctypes.data
    assert (found.device, found.read_only) == (0, False)
    b = Exported(np.zeros((48, 40), np.float16).T[:32], old=old)
    d = Exported(np.zeros((64, 48), np.float16), old=old)
    bound.module.run(Exported(storage[0, :, :32], old=old), b, d, stream=5)
    assert len(bound.driver.launched) == 1
    assert d.streams == [5]


def test_the_default_stream_has_its_dlpack_name(bind: Callable[..., Bound]) -> None:
    a = Exported(np.zeros((4, 4), np.float16))
    bind([{}]).module.as_array(a, "a", 0)
    assert a.streams == [1]


def test_a_read_only_export_is_known(bind: Callable[..., Bound]) -> None:
    array = np.zeros((4, 4), np.float16)
    array.flags.writeable = False
    assert bind([{}]).module.as_array(Exported(array), "a", 0).read_only


def test_arrays_on_two_devices_are_refused(bind: Callable[..., Bound]) -> None:
    bound = bind([{}], dtype="fp16")
    a = Exported(np.zeros((64, 32), np.float16), (2, 1))
    b = Exported(np.zeros((48, 32), np.float16).T)
    with pytest.raises(bound.module.ArrayError, match="several devices"):
        bound.module.run(a, b, Exported(np.zeros((64, 48), np.float16)))


def test_work_of_another_stream_is_waited_for(bind: Callable[..., Bound]) -> None:
    bound = bind(TICKET)
    a, b, d = _abd(64, 48, 32)
    a.stream = 9
    b.stream = 5
    bound.module.run(a, b, d, stream=5)
    assert bound.driver.calls.count("cuStreamWaitEvent") == 1


class _Torch:
    cuda_stream = 11


class _CuPy:
    ptr = 12


class _Core:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 13


@pytest.mark.parametrize(
    ("stream", "handle"),
    [(None, 0), (7, 7), (_Torch(), 11), (_CuPy(), 12), (_Core(), 13)],
    ids=["none", "address", "torch", "cupy", "cuda.core"],
)
def test_a_stream_of_any_library_will_do(bind: Callable[..., Bound], stream: Any, handle: int) -> None:
    bound = bind(TICKET)
    bound.module.run(*_abd(64, 48, 32), stream=stream)
    assert bound.driver.launched[0].stream == handle


# --- the ladder, call by call ----------------------------------------------------------------------------------------

BLACKWELL = [{"family": "sm100", "cluster": (2, 1, 1)}, {}]
B200 = {**fake.H200, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 10}


@pytest.mark.parametrize(
    "call",
    [
        "cuInit",
        "cuDeviceGet",
        "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain",
        "cuLibraryLoadFromFile",
        "cuLibraryGetKernel",
        "cuKernelGetFunction",
        "cuFuncSetAttribute",
        "cuOccupancyMaxActiveClusters",
        "cuTensorMapEncodeTiled",
        "cuLaunchKernelEx",
    ],
)
def test_a_call_that_fails_raises_and_is_never_a_lower_rung(bind: Callable[..., Bound], call: str) -> None:
    bound = bind(TICKET, FakeDriver(fails={call: "CUDA_ERROR_OUT_OF_MEMORY"}))
    with pytest.raises(bound.module.LaunchError, match=f"{call} failed: CUDA_ERROR_OUT_OF_MEMORY"):
        bound.module.run(*_abd(64, 48, 32))
    assert bound.driver.launched == []


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("cuFuncSetAttribute", "CUDA_ERROR_INVALID_VALUE"),
        ("cuOccupancyMaxActiveClusters", "CUDA_ERROR_INVALID_CLUSTER_SIZE"),
    ],
)
def test_what_the_device_cannot_hold_is_an_answer(bind: Callable[..., Bound], call: str, result: str) -> None:
    bound = bind(TICKET, FakeDriver(fails={call: result}))
    bound.module.run(*_abd(64, 48, 32))
    assert bound.driver.launched[0].function.startswith("portable")
    assert {each.max_active_clusters for each in bound.module.launcher(0).kernels.values()} == {0}


def test_nothing_that_loads_is_named(bind: Callable[..., Bound]) -> None:
    bound = bind(TICKET, FakeDriver(fails={"cuLibraryLoadFromFile": "CUDA_ERROR_NO_BINARY_FOR_GPU"}))
    with pytest.raises(bound.module.LaunchError, match="no image of portable_one_tile loads"):
        bound.module.run(*_abd(64, 48, 32))


def test_without_clusters_blocks_are_counted(bind: Callable[..., Bound]) -> None:
    attributes = {
        **fake.H200,
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 8,
        "CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH": 0,
    }
    bound = bind(TICKET, FakeDriver(attributes=attributes))
    bound.module.run(*_abd(64, 48, 32))
    assert bound.module.launcher(0).kernels["portable_one_tile"].max_active_clusters == 2 * 132


def test_each_device_has_a_launcher_of_its_own(bind: Callable[..., Bound]) -> None:
    bound = bind(TICKET)
    assert bound.module.launcher(0) is bound.module.launcher(0)
    assert bound.module.launcher(1) is not bound.module.launcher(0)


def test_a_grid_beyond_the_limits_is_refused(bind: Callable[..., Bound]) -> None:
    bound = bind([{}])
    rows = FakeArray((2**31 - 128, 64), "<u2", (128, 2), 0x1000_0000)
    columns = FakeArray((64, 2**31 - 128), "<u2", (2, 128), 0x2000_0000)
    out = FakeArray((2**31 - 128, 2**31 - 128), "<u2", (2**32, 2), 0x3000_0000)
    with pytest.raises(bound.module.LaunchError, match=r"a grid of \[\d+, 1, 1\] blocks cannot be launched"):
        bound.module.run(rows, columns, out)


# --- runtime.json ----------------------------------------------------------------------------------------------------

OFF = '{"schema_version": 1, "clc": "off", "reason": "clc_one_wave: no answer within 20 s"}'


def _runtime_file(bound: Bound, text: str) -> Path:
    path: Path = bound.module._RUNTIME
    path.write_text(text)
    return path


def test_clc_that_is_off_is_no_rung(bind: Callable[..., Bound]) -> None:
    bound = bind(BLACKWELL, FakeDriver(attributes=B200))
    _runtime_file(bound, OFF)
    bound.module.run(*_abd(512, 512, 64))
    assert bound.driver.launched[0].function.startswith("sm100_static_2x1x1")
    with pytest.raises(bound.module.LaunchError, match=r"switched off in runtime.json: clc_one_wave: no answer"):
        bound.module.run(*_abd(512, 512, 64), rung="sm100_clc_2x1x1")
    found = bound.module.describe(*_abd(512, 512, 64))
    assert found["rung"] == "sm100_static_2x1x1"
    assert found["kernels"][0]["image"] == "sm100_static_2x1x1.sm_100a.cubin"
    assert found["not_run"] == {"sm100_clc_2x1x1": "switched off in runtime.json: clc_one_wave: no answer within 20 s"}
    assert len(bound.driver.launched) == 1


@pytest.mark.parametrize("text", [None, '{"schema_version": 1, "clc": "on"}'])
def test_clc_is_on_without_the_file_or_where_it_says_so(bind: Callable[..., Bound], text: str | None) -> None:
    bound = bind(BLACKWELL, FakeDriver(attributes=B200))
    if text is not None:
        _runtime_file(bound, text)
    bound.module.run(*_abd(512, 512, 64))
    assert bound.driver.launched[0].function.startswith("sm100_clc_2x1x1")


def test_the_description_says_why_each_better_rung_does_not_run(bind: Callable[..., Bound]) -> None:
    driver = FakeDriver(attributes=B200, refused={"sm100_clc_2x1x1.sm_100a.cubin"})
    driver.residency["sm100_static_2x1x1.sm_100a.cubin"] = 0
    found = bind(BLACKWELL, driver).module.describe(*_abd(512, 512, 64), sm_budget=64)
    assert found["rung"] == "portable_one_tile"
    assert found["not_run"]["sm100_clc_2x1x1"] == "the driver does not load sm100_clc_2x1x1.sm_100a.cubin"
    assert found["not_run"]["sm100_static_2x1x1"] == "no cluster is resident"
    assert found["not_run"]["sm100_one_tile"] == "not with these arguments"
    assert found["not_run"]["sm90_static"] == "no image for compute capability 10.0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"clc": "off"}',
        '{"schema_version": 2, "clc": "off"}',
        '{"schema_version": 1.0, "clc": "off"}',
        '{"schema_version": true, "clc": "off"}',
        '{"schema_version": 1, "clc": "no"}',
        '{"schema_version": 1, "clc": "off", "clc": "on"}',
        '{"schema_version": 1, "clc": "off", "pairs": "off"}',
        '{"schema_version": 1, "clc": "off", "reason": 1}',
        '{"schema_version": 1, "clc": "off"} {}',
        '{"schema_version": 1, "clc": "of',
    ],
)
def test_a_file_that_says_something_else_is_refused(bind: Callable[..., Bound], text: str) -> None:
    bound = bind(BLACKWELL, FakeDriver(attributes=B200))
    _runtime_file(bound, text)
    with pytest.raises(bound.module.LaunchError, match=r"runtime.json does not say what is switched off"):
        bound.module.run(*_abd(512, 512, 64))
    assert bound.driver.launched == []


def test_a_row_reduction_describes_what_it_runs(tmp_path: Path) -> None:
    """The same launching code behind arrays of another kind: the committed bundle of an example."""
    folder = tmp_path / "rmsnorm"
    shutil.copytree(Path(__file__).parent.parent.parent / "generated" / "rmsnorm", folder)
    (folder / "build").mkdir(exist_ok=True)
    with _imported(folder / "rmsnorm.py") as module:
        for kernel in module.LAUNCH["kernels"]:
            for path in kernel["images"].values():
                (folder / path).touch()
        driver = FakeDriver()
        module._driver = lambda: driver  # type: ignore[attr-defined]
        x = FakeArray((64, 512), "<u2", (1024, 2), 0x1000_0000)
        y = FakeArray((64, 512), "<u2", (1024, 2), 0x2000_0000)
        weight = FakeArray((512,), "<u2", (2,), 0x3000_0000)
        found = module.describe(x, y, weight=weight)
        assert driver.launched == []
        assert module.run(x, y, weight=weight) is y
        assert driver.launched[0].function == found["kernels"][0]["image"]
        assert found["rung"] in [each["run"] for each in module.LAUNCH["ladder"]]
        with pytest.raises(module.LaunchError, match="eps = 1e\\+39 does not fit the kernel's f32"):
            module.run(x, y, weight=weight, eps=1e39)
        cols = 2**28 + 8  # offsets within a row of more are no longer those of its elements
        x, y = (FakeArray((2, cols), "<u2", (2 * cols, 2), address) for address in (0x1000_0000, 0x9000_0000))
        with pytest.raises(module.LaunchError, match="cols is 268435464, at most 268435456 is taken"):
            module.run(x, y, weight=FakeArray((cols,), "<u2", (2,), 0x3000_0000))
