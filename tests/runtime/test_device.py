"""The runtime against a driver in Python: what it asks of the driver, and what it says when the driver says no."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from advisor.errors import EXIT_DEVICE, DeviceError, ToolError
from advisor.records.candidate import OccupancyKey
from advisor.records.launch import (
    BytesParam,
    LaunchAttributes,
    Param,
    PtrParam,
    ResolvedLaunch,
    ResolvedParam,
    ScalarParam,
    ScratchParam,
    TensorMapParam,
)
from advisor.runtime import Device
from advisor.runtime.device import cubin_target, scale_groups, slug
from advisor.runtime.driver import Api, initialise
from tests.runtime.fake_driver import FakeDriver

MAP = TensorMapParam(
    name="a",
    buffer="A",
    dtype="bfloat16",
    rank=3,
    global_dim=[64, 0, 1],
    global_stride_bytes=[128, 4096],
    box_dim=[64, 128, 1],
    element_strides=[1, 1, 1],
    swizzle="128B",
)


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def device(driver: FakeDriver) -> Device:
    return Device(initialise(Api(driver)), 0)


def launch(params: list[Param], **changes: Any) -> ResolvedLaunch:
    values = {
        "entry": "kernel",
        "target": "sm_90a",
        "grid_blocks": (4, 1, 1),
        "block": (128, 1, 1),
        "cluster": (2, 1, 1),
        "dynamic_smem_bytes": 1000,
        "params": params,
        "buffers": {},
    }
    return ResolvedLaunch.model_validate({**values, **changes})


def prepared(device: Device, resolved: ResolvedLaunch, pointers: dict[str, int] | None = None) -> Any:
    return device.prepare(device.load(b"cubin", "kernel"), resolved, pointers or {}, device.scratch())


# --- opening ------------------------------------------------------------------------------------------------------


def test_info_holds_the_drivers_limits_and_no_uuid(device: Device) -> None:
    info = device.info
    assert (info.name, info.compute_capability, info.sms, info.cuda) == ("NVIDIA H200", (9, 0), 132, "13.0")
    assert info.limits["smem_per_block_bytes"] == 232448
    assert len(info.uuid_hash) == 16
    assert bytes(range(16)).hex() not in info.uuid_hash


def test_a_driver_older_than_the_cubins_is_named_with_both_versions(driver: FakeDriver) -> None:
    driver.version = 12080
    with pytest.raises(DeviceError) as caught:
        initialise(Api(driver))
    assert caught.value.code == "DRIVER_TOO_OLD"
    assert caught.value.numbers == {"driver_cuda": "12.8", "required_cuda": "13.0"}
    assert caught.value.exit_status == EXIT_DEVICE


@pytest.mark.parametrize(
    ("call", "result", "code"),
    [
        ("cuInit", 100, "NO_DEVICE"),
        ("cuDevicePrimaryCtxRetain", 46, "DEVICE_BUSY"),
        ("cuDevicePrimaryCtxRetain", 2, "DEVICE_UNREADABLE"),
        ("cuDevicePrimaryCtxRetain", 999, "DEVICE_UNREADABLE"),
        ("cuDeviceGetAttribute", 999, "CUDA_CALL_FAILED"),
    ],
)
def test_a_device_that_cannot_be_opened_says_why(driver: FakeDriver, call: str, result: int, code: str) -> None:
    driver.fail[call] = result
    with pytest.raises(DeviceError) as caught:
        Device(initialise(Api(driver)), 0)
    assert caught.value.code == code
    assert f"text of {result}" in caught.value.message
    assert call in caught.value.message
    assert caught.value.fix


def test_an_index_beyond_the_last_gpu_is_refused_with_the_count(driver: FakeDriver) -> None:
    with pytest.raises(DeviceError) as caught:
        Device(initialise(Api(driver)), 3)
    assert caught.value.code == "NO_DEVICE"
    assert caught.value.numbers == {"index": 3, "count": 1}


def test_a_driver_library_that_is_not_there_is_no_driver(driver: FakeDriver) -> None:
    def absent(*_: Any) -> None:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    driver.cuDriverGetVersion = absent  # type: ignore[method-assign,assignment]
    with pytest.raises(DeviceError) as caught:
        initialise(Api(driver))
    assert caught.value.code == "NO_DRIVER"
    assert "libcuda.so.1" in caught.value.message


def test_a_function_that_the_driver_lacks_means_an_older_driver(driver: FakeDriver) -> None:
    def absent(*_: Any) -> None:
        raise RuntimeError("Function cuTensorMapEncodeTiled not found")

    driver.cuTensorMapEncodeTiled = absent  # type: ignore[method-assign,assignment]
    with pytest.raises(DeviceError) as caught:
        Api(driver).call("cuTensorMapEncodeTiled")
    assert caught.value.code == "DRIVER_TOO_OLD"


def test_closing_frees_memory_and_modules(driver: FakeDriver) -> None:
    with Device(initialise(Api(driver)), 0) as device:
        device.load(b"cubin", "kernel")
        device.allocate(100)
    assert not driver.memory
    assert driver.calls[-3:] == ["cuModuleUnload", "cuStreamDestroy", "cuDevicePrimaryCtxRelease"]


def test_an_error_inside_is_not_hidden_by_closing(driver: FakeDriver) -> None:
    def work() -> None:
        with Device(initialise(Api(driver)), 0):
            driver.fail["cuStreamDestroy"] = 700
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert "cuStreamDestroy" not in driver.calls


# --- kernels ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [200, 209, 222])
def test_an_image_that_does_not_load_says_what_to_rebuild_for(driver: FakeDriver, device: Device, result: int) -> None:
    driver.fail["cuModuleLoadData"] = result
    with pytest.raises(DeviceError) as caught:
        device.load(b"cubin", "kernel")
    assert caught.value.code == "CUBIN_NOT_LOADABLE"
    assert "rebuild" in caught.value.fix
    assert "sm_90a" in caught.value.fix
    assert "NVIDIA H200" in caught.value.message


def test_a_kernel_that_the_image_lacks_is_named(driver: FakeDriver, device: Device) -> None:
    driver.fail["cuModuleGetFunction"] = 500
    with pytest.raises(DeviceError) as caught:
        device.load(b"cubin", "gemm_sm90")
    assert caught.value.code == "ENTRY_NOT_FOUND"
    assert "gemm_sm90" in caught.value.message


def test_an_image_is_loaded_once(driver: FakeDriver, device: Device) -> None:
    assert device.load(b"cubin", "kernel") is device.load(b"cubin", "kernel")
    device.load(b"cubin", "other")
    device.load(b"another", "kernel")
    assert driver.calls.count("cuModuleLoadData") == 2


def test_residency_is_asked_with_the_kernels_own_launch(driver: FakeDriver, device: Device) -> None:
    key = OccupancyKey(threads=384, registers=168, smem_bytes=197632 + 16, carveout="max", cluster=(2, 4, 1))
    count, facts = device.query_residency(b"cubin", "kernel", key)
    config = driver.asked[0]
    assert count == 66
    assert (config.gridDimX, config.gridDimY, config.blockDimX, config.sharedMemBytes) == (2, 4, 384, 197632)
    cluster = config.attrs[0].value.clusterDim
    assert (cluster.x, cluster.y, cluster.z) == (2, 4, 1)
    assert driver.function_attributes["MAX_DYNAMIC_SHARED_SIZE_BYTES"] == 197632
    assert driver.function_attributes["PREFERRED_SHARED_MEMORY_CARVEOUT"] == 100
    assert "NON_PORTABLE_CLUSTER_SIZE_ALLOWED" not in driver.function_attributes
    assert facts["static_smem_bytes"] == 16
    assert facts["driver"] == device.info.driver


def test_a_cluster_of_16_is_opted_into_and_zero_is_an_answer(driver: FakeDriver, device: Device) -> None:
    driver.active_clusters = 0
    kernel = device.load(b"cubin", "kernel")
    count = device.max_active_clusters(kernel, block=(128, 1, 1), cluster=(16, 1, 1), dynamic_smem_bytes=0)
    assert count == 0
    assert driver.function_attributes["NON_PORTABLE_CLUSTER_SIZE_ALLOWED"] == 1


def test_a_failed_residency_query_is_an_error_and_never_a_zero(driver: FakeDriver, device: Device) -> None:
    driver.fail["cuOccupancyMaxActiveClusters"] = 912
    kernel = device.load(b"cubin", "kernel")
    with pytest.raises(DeviceError) as caught:
        device.max_active_clusters(kernel, block=(128, 1, 1), cluster=(8, 1, 1), dynamic_smem_bytes=0)
    assert caught.value.code == "CLUSTER_SIZE_REFUSED"


def test_a_device_without_clusters_counts_ctas(driver: FakeDriver) -> None:
    driver.attributes["CLUSTER_LAUNCH"] = 0
    device = Device(initialise(Api(driver)), 0)
    kernel = device.load(b"cubin", "kernel")
    one = device.max_active_clusters(kernel, block=(128, 1, 1), cluster=(1, 1, 1), dynamic_smem_bytes=0)
    two = device.max_active_clusters(kernel, block=(128, 1, 1), cluster=(2, 1, 1), dynamic_smem_bytes=0)
    assert (one, two) == (3 * 132, 0)


def test_more_shared_memory_than_the_device_has_is_refused_with_numbers(device: Device) -> None:
    with pytest.raises(DeviceError) as caught:
        prepared(device, launch([], dynamic_smem_bytes=232448))
    assert caught.value.code == "SMEM_OVER_LIMIT"
    assert caught.value.numbers == {"wanted_bytes": 232464, "limit_bytes": 232448}


# --- launches -----------------------------------------------------------------------------------------------------


def test_every_kind_of_parameter_arrives_as_its_bytes(driver: FakeDriver, device: Device) -> None:
    driver.parameter_sizes = [128, 8, 8, 4, 8, 4, 2, 8, 8]
    params: list[ResolvedParam] = [
        MAP,
        PtrParam(name="d", buffer="D", offset_bytes=64),
        PtrParam(name="c", buffer=None),
        ScalarParam(kind="i32", name="m", value=-3),
        ScalarParam(kind="u64", name="ld", value=2**40),
        ScalarParam(kind="f32", name="alpha", value=-1.5),
        ScalarParam(kind="bf16", name="beta", value=1.0),
        ScratchParam(name="tickets", bytes=4, init="zeros"),
        BytesParam(name="pair", value="01020304 fffefdfc"),
    ]
    prepared(device, launch(params), {"A": 0x1000, "D": 0x2000})(device.stream)
    got = driver.launches[0]["params"]
    assert got[0] == bytes(range(128))
    assert struct.unpack("<QQiQf", b"".join(got[1:6])) == (0x2040, 0, -3, 2**40, -1.5)
    assert got[6] == b"\x80\x3f"
    assert struct.unpack("<Q", got[7])[0] in driver.memory
    assert got[8] == bytes((1, 2, 3, 4, 255, 254, 253, 252))


def test_a_zero_extent_is_encoded_as_one(driver: FakeDriver, device: Device) -> None:
    driver.parameter_sizes = [128]
    prepared(device, launch([MAP]), {"A": 0x1000})
    kind, rank, address, extents, strides, box = driver.encoded[0][:6]
    assert (kind, rank, address) == ("CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", 3, 0x1000)
    assert (extents, strides, box) == ([64, 1, 1], [128, 4096], [64, 128, 1])
    assert driver.encoded[0][8] == "CU_TENSOR_MAP_SWIZZLE_128B"


def test_a_tensor_map_that_the_encoder_refuses_is_named_with_its_arguments(driver: FakeDriver, device: Device) -> None:
    driver.fail["cuTensorMapEncodeTiled"] = 1
    with pytest.raises(DeviceError) as caught:
        prepared(device, launch([MAP]), {"A": 0x1000})
    assert caught.value.code == "TENSOR_MAP_REFUSED"
    assert caught.value.numbers["global_stride_bytes"] == [128, 4096]


def test_parameters_that_differ_from_the_kernels_own_are_refused(driver: FakeDriver, device: Device) -> None:
    driver.parameter_sizes = [8, 8]
    with pytest.raises(ToolError) as caught:
        prepared(device, launch([ScalarParam(kind="i32", name="m", value=1)]))
    assert caught.value.code == "PARAMETERS_DIFFER"
    assert caught.value.numbers == {"kernel": [8, 8], "launch": [4]}


def test_a_missing_buffer_is_named(device: Device) -> None:
    with pytest.raises(ToolError) as caught:
        prepared(device, launch([PtrParam(name="d", buffer="D", offset_bytes=0)]), {"A": 1})
    assert caught.value.code == "BUFFER_MISSING"
    assert "'D'" in caught.value.message


def test_cluster_pdl_and_preferred_cluster_become_attributes(driver: FakeDriver, device: Device) -> None:
    wanted = LaunchAttributes(programmatic_stream_serialization=True, preferred_cluster=(4, 1, 1))
    prepared(device, launch([], attributes=wanted))(device.stream)
    config = driver.launches[0]["config"]
    assert [each.id for each in config.attrs] == [
        "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION",
        "CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION",
        "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION",
    ]
    assert config.numAttrs == 3
    assert config.attrs[1].value.preferredClusterDim.x == 4
    assert config.attrs[2].value.programmaticStreamSerializationAllowed == 1


def test_a_grid_that_is_not_whole_clusters_is_refused_before_the_driver(driver: FakeDriver, device: Device) -> None:
    with pytest.raises(DeviceError) as caught:
        prepared(device, launch([], grid_blocks=(5, 1, 1)))
    assert caught.value.code == "LAUNCH_REFUSED"
    assert not driver.launches


def test_a_grid_is_whole_preferred_clusters_too(driver: FakeDriver, device: Device) -> None:
    wanted = LaunchAttributes(preferred_cluster=(4, 1, 1))
    with pytest.raises(DeviceError) as caught:
        prepared(device, launch([], grid_blocks=(6, 1, 1), attributes=wanted))
    assert caught.value.code == "LAUNCH_REFUSED"
    assert caught.value.numbers["cluster"] == [4, 1, 1]
    assert not driver.launches


def test_an_empty_grid_launches_nothing(driver: FakeDriver, device: Device) -> None:
    prepared(device, launch([MAP], grid_blocks=(0, 1, 1)))(device.stream)
    assert not driver.launches
    assert not driver.encoded


def test_scratch_that_must_be_zero_is_zeroed_before_every_launch(driver: FakeDriver, device: Device) -> None:
    driver.parameter_sizes = [8]
    work = prepared(device, launch([ScratchParam(name="tickets", bytes=4, init="zeros")]))
    work(device.stream)
    first = driver.calls.count("cuMemsetD8Async")
    work(device.stream)
    assert driver.calls.count("cuMemsetD8Async") == first + 1 == 2


def test_scratch_that_resets_itself_is_zeroed_once(driver: FakeDriver, device: Device) -> None:
    driver.parameter_sizes = [8]
    work = prepared(device, launch([ScratchParam(name="flags", bytes=64, init="self_resetting")]))
    work(device.stream)
    work(device.stream)
    assert driver.calls.count("cuMemsetD8Async") == 1


def test_kernels_of_a_sequence_share_scratch_by_name_and_size(driver: FakeDriver, device: Device) -> None:
    driver.parameter_sizes = [8]
    kernel, scratch = device.load(b"cubin", "kernel"), device.scratch()
    param = ScratchParam(name="partials", bytes=1024)
    for _ in range(2):
        device.prepare(kernel, launch([param]), {}, scratch)(device.stream)
    assert driver.launches[0]["params"] == driver.launches[1]["params"]
    with pytest.raises(ToolError) as caught:
        device.prepare(kernel, launch([param.model_copy(update={"bytes": 2048})]), {}, scratch)
    assert caught.value.code == "SCRATCH_MISMATCH"
    device.release(scratch)
    assert not driver.memory


def test_a_fault_of_the_kernel_is_told_apart_from_a_refused_launch(driver: FakeDriver, device: Device) -> None:
    driver.fail["cuCtxSynchronize"] = 700
    with pytest.raises(DeviceError) as caught:
        device.synchronize()
    assert caught.value.code == "KERNEL_FAULT"
    driver.fail["cuLaunchKernelEx"] = 1
    with pytest.raises(DeviceError) as caught:
        prepared(device, launch([]))(device.stream)
    assert caught.value.code == "LAUNCH_REFUSED"


# --- memory and time ----------------------------------------------------------------------------------------------


def test_what_is_uploaded_comes_back(device: Device) -> None:
    array = np.arange(100, dtype=np.float32)
    buffer = device.upload(array)
    assert np.array_equal(device.download(buffer).view(np.float32), array)
    assert np.array_equal(device.download(buffer, offset=4, size=8).view(np.float32), array[1:3])
    device.fill(buffer, 0xA5)
    assert (device.download(buffer) == 0xA5).all()


def test_a_buffer_is_an_array_of_bytes_to_other_libraries(device: Device) -> None:
    interface = device.allocate(48).__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["data"][1]) == ((48,), "|u1", False)


def test_interleaved_times_alternate_and_are_in_microseconds(device: Device) -> None:
    order: list[str] = []
    works = [lambda _: order.append("a"), lambda _: order.append("b")]
    times = device.time_interleaved_us(works, samples=3, warm_up=1)
    assert order == ["a", "b"] * 4
    assert times == [[250.0] * 3, [250.0] * 3]


def test_capture_ends_even_when_the_work_raises(driver: FakeDriver, device: Device) -> None:
    def broken(_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        device.capture(broken)
    assert "cuStreamEndCapture" in driver.calls


# --- profile ------------------------------------------------------------------------------------------------------


def test_the_profile_of_a_known_chip_has_the_queried_limits(driver: FakeDriver) -> None:
    driver.attributes["L2_CACHE_SIZE"] = 12345678
    profile = Device(initialise(Api(driver)), 0).profile()
    assert profile.name == "h200"
    assert profile.l2_bytes == 12345678
    assert profile.sources["l2_bytes"].kind == "queried"
    assert profile.sm_groups == (18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2)


def test_a_product_without_a_profile_takes_the_nearest_and_says_assumed(driver: FakeDriver) -> None:
    driver.name = b"NVIDIA H20"
    driver.attributes["MULTIPROCESSOR_COUNT"] = 78
    profile = Device(initialise(Api(driver)), 0).profile()
    assert (profile.name, profile.sms, sum(profile.sm_groups)) == ("h20", 78, 78)
    assert profile.sources["clock_hz"].kind == "assumed"
    assert profile.sources["sms"].kind == "queried"


def test_a_chip_of_an_unknown_generation_has_no_profile(driver: FakeDriver) -> None:
    driver.name, driver.attributes["COMPUTE_CAPABILITY_MAJOR"] = b"Something", 7
    with pytest.raises(DeviceError) as caught:
        Device(initialise(Api(driver)), 0).profile()
    assert caught.value.code == "UNKNOWN_CHIP"


@pytest.mark.parametrize("sms", [114, 132, 140, 1])
def test_groups_are_cut_or_grown_to_the_sm_count(sms: int) -> None:
    groups = scale_groups((18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2), sms)
    assert sum(groups) == sms
    assert list(groups) == sorted(groups, reverse=True)


def test_names_of_products_become_names_of_profiles() -> None:
    assert slug("NVIDIA H100 80GB HBM3") == "h100_80gb_hbm3"
    assert slug("NVIDIA GeForce RTX 5090") == "rtx_5090"
    assert slug("5090") == "gpu_5090"


def test_the_target_of_an_image_is_read_off_its_header() -> None:
    header = bytearray(64)
    header[:5] = b"\x7fELF\x02"
    header[8] = 8
    header[18:20] = (190).to_bytes(2, "little")
    header[48:52] = (0x6005A04).to_bytes(4, "little")
    assert cubin_target(bytes(header)) == "sm_90"
    assert cubin_target(b"garbage" * 20) is None
    assert cubin_target(b"") is None
