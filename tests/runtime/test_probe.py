"""The probe turns what kernels count into a profile; what it cannot measure keeps the source of the base profile."""

from __future__ import annotations

import ctypes
import itertools
import struct
from typing import Any

import numpy as np
import pytest

from advisor.codegen import templates
from advisor.errors import DeviceError, ToolError
from advisor.machine import load_profile, write_profile
from advisor.machine.profile_file import parse_profile
from advisor.runtime import Device
from advisor.runtime.driver import Api, initialise
from advisor.runtime.probe import Groups, ProbeResult, own_target, probe, probe_units
from tests.runtime.fake_driver import FakeDriver

GROUPS = [18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2]
COUNTING = [4, 8, 8]
SIZES = {
    "probe_place": [8, 8],
    "probe_cluster_barrier": [4, 8],
    "probe_dsmem_store": [4, 8],
    "probe_copy": [8, 8, 8],
    "probe_read": [8, 4, 4, 8, 8],
    "probe_atomic": [8, 4, 8],
    "probe_empty": [],
    **{f"probe_{unit}_{kind}": COUNTING for unit in ("mma", "wgmma") for kind in ("bf16", "fp16", "tf32", "fp8")},
}


class FakeH200(FakeDriver):
    """Kernels that place clusters on groups of SMs and count as many ticks as the real ones would."""

    def __init__(self) -> None:
        super().__init__()
        self.parameter_sizes_of = SIZES
        numbers = itertools.count()
        self.groups = [[next(numbers) for _ in range(size)] for size in GROUPS]
        self.random = np.random.default_rng(0)
        self.kernels = {
            "probe_place": self._place,
            "probe_cluster_barrier": self._count(1, lambda repeats: 420 * repeats),
            "probe_dsmem_store": self._count(1, lambda repeats: 3277 * repeats),
            "probe_read": self._count(3, lambda repeats: repeats * 2 * 15728640 // 40),
            "probe_atomic": self._count(2, lambda repeats: 500 * repeats),
        }
        for kind, flops in (("bf16", 2560), ("fp16", 2560), ("tf32", 1280), ("fp8", 5120)):
            per_step = 16 * 8 * 16 * 8 * {"tf32": 8, "fp8": 32}.get(kind, 16) * 2
            self.kernels[f"probe_mma_{kind}"] = self._count(1, lambda n, a=per_step, b=flops: n * a // b)
        for kind, flops in (("bf16", 4096), ("fp16", 4096), ("tf32", 2048), ("fp8", 8192)):
            per_step = 2 * 128 * 256 * 4 * {"tf32": 8, "fp8": 32}.get(kind, 16)
            self.kernels[f"probe_wgmma_{kind}"] = self._count(1, lambda n, a=per_step, b=flops: n * a // b)

    def _place(self, params: list[bytes], config: Any) -> None:
        address, blocks = struct.unpack("<Q", params[0])[0], config.gridDimX
        size = config.attrs[0].value.clusterDim.x
        fitting = [group for group in self.groups if len(group) >= size]
        ids = []
        for _ in range(blocks // size):
            group = fitting[self.random.integers(len(fitting))]
            ids += [int(each) for each in self.random.choice(group, size, replace=False)]
        placed = np.array(ids, np.uint32)
        ctypes.memmove(address, placed.ctypes.data, placed.nbytes)

    @staticmethod
    def _count(position: int, ticks: Any) -> Any:
        def kernel(params: list[bytes], config: Any) -> None:
            (repeats,) = struct.unpack("<I", params[position - 1])
            (address,) = struct.unpack("<Q", params[position])
            values = np.full(config.gridDimX, ticks(repeats), np.uint64)
            ctypes.memmove(address, values.ctypes.data, values.nbytes)

        return kernel


@pytest.fixture(scope="module")
def result() -> ProbeResult:
    device = Device(initialise(Api(FakeH200())), 0)
    device.info = device.info.__class__(**{**_fields(device.info), "memory_bytes": 2**27})
    return probe(device, dict.fromkeys(("common", "cluster", "wgmma"), b"cubin"))


def _fields(info: Any) -> dict[str, Any]:
    return {name: getattr(info, name) for name in info.__slots__}


def test_the_profile_holds_what_the_kernels_counted(result: ProbeResult) -> None:
    profile = result.profile
    assert profile.name == "h200_probed"
    assert profile.sm_groups == tuple(GROUPS)
    assert profile.max_cluster_size == 16
    assert profile.cluster_barrier_cycles == 420
    assert profile.atomic_round_trip_cycles == 500
    assert profile.dsmem_bytes_per_clk_per_sm == pytest.approx(20.0, rel=0.01)
    assert profile.l2_bytes_per_clk_per_sm == pytest.approx(40.0, rel=0.01)
    assert dict(profile.tensor_flop_per_clk_per_sm) == pytest.approx(
        {"bf16": 4096, "fp16": 4096, "tf32": 2048, "fp8": 8192}, rel=0.01
    )
    assert dict(profile.mma_sync_flop_per_clk_per_sm) == pytest.approx(
        {"bf16": 2560, "fp16": 2560, "tf32": 1280, "fp8": 5120}, rel=0.01
    )
    assert profile.launch_us == pytest.approx(250 / 200)


def test_every_number_says_whether_it_was_measured_queried_or_taken_over(result: ProbeResult) -> None:
    sources = result.profile.sources
    for name in ("sm_groups", "dram_bytes_per_s", "tensor_flop_per_clk_per_sm", "cluster_barrier_cycles", "clock_hz"):
        assert sources[name].kind == "measured"
        assert "driver" in sources[name].text
    for name in ("sms", "smem_per_block_bytes", "l2_bytes", "max_cluster_size", "max_clock_hz"):
        assert sources[name].kind == "queried"
    assert sources["smem_bytes_per_clk"].text.startswith("profile h200: ")


def test_the_written_profile_reads_back_equal(result: ProbeResult) -> None:
    again = parse_profile(write_profile(result.profile), "probed.toml")
    assert again.sm_groups == result.profile.sm_groups
    assert again.tensor_flop_per_clk_per_sm == result.profile.tensor_flop_per_clk_per_sm
    assert again.clock_hz <= again.max_clock_hz


def test_the_document_holds_the_residency_of_every_size_and_no_uuid(result: ProbeResult) -> None:
    rows = result.document["max_active_clusters"]
    assert {row["cluster_size"] for row in rows} == set(range(1, 17))
    assert len({row["dynamic_smem_bytes"] for row in rows}) == 4
    assert set(result.document["device"]) >= {"name", "uuid_hash", "driver", "limits"}


def test_a_missing_image_is_named() -> None:
    device = Device(initialise(Api(FakeH200())), 0)
    with pytest.raises(ToolError) as caught:
        probe(device, {"cluster": b"cubin"}, base=load_profile("h200"))
    assert caught.value.code == "PROBE_IMAGE_MISSING"
    assert "common" in caught.value.message


@pytest.mark.parametrize(
    ("capability", "names"),
    [
        ((8, 0), ["common"]),
        ((9, 0), ["common", "cluster", "wgmma"]),
        ((10, 0), ["common", "cluster"]),
        ((12, 0), ["common", "cluster"]),
    ],
)
def test_a_chip_gets_the_probe_kernels_of_its_features(capability: tuple[int, int], names: list[str]) -> None:
    units = probe_units(capability)
    assert [each.name for each in units] == names
    assert {each.target for each in units} == {own_target(capability)}
    for each in units:
        assert 'extern "C" __global__' in templates.load(each.template)


def test_an_unknown_chip_has_no_probe() -> None:
    with pytest.raises(DeviceError) as caught:
        probe_units((7, 0))
    assert caught.value.code == "UNKNOWN_CHIP"


def test_groups_join_what_was_seen_together() -> None:
    groups = Groups()
    for together in ([1, 2], [3, 4], [2, 3], [9, 8]):
        groups.join(together)
    assert groups.partition() == [[1, 2, 3, 4], [8, 9]]
    assert groups.members() == 6


@pytest.mark.parametrize(
    ("template", "targets"),
    [
        ("probe/common.cu", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"]),
        ("probe/cluster.cu", ["sm_90a", "sm_100a", "sm_120a"]),
        ("probe/wgmma.cu", ["sm_90a"]),
    ],
)
def test_probe_kernels_compile_without_spills(template: str, targets: list[str]) -> None:
    from advisor.toolchain import Unit, compile_cuda

    source = templates.load(template)
    for target in targets:
        unit = Unit(template.rpartition("/")[2], source, templates.headers_for(source), target, {})
        compiled = compile_cuda(unit)
        assert compiled.spill_bytes == 0
        assert not compiled.warnings
        if target == "sm_90a":
            assert set(compiled.entries) <= set(SIZES)


def test_every_product_of_a_rate_kernel_is_computed() -> None:
    from advisor.toolchain import Unit, compile_cuda, sass_facts

    source = templates.load("probe/common.cu")
    compiled = compile_cuda(Unit("common.cu", source, templates.headers_for(source), "sm_90", {}))
    functions = sass_facts(compiled.cubin).functions
    products = {
        kind: sum(n for name, n in functions[f"probe_mma_{kind}"].items() if name.startswith("HMMA"))
        for kind in ("bf16", "fp16", "tf32", "fp8")
    }
    assert products["bf16"] > 0
    assert products["bf16"] % 8 == 0
    # sm_90 makes an fp8 product of two in fp16.
    assert products == {"bf16": products["bf16"], "fp16": products["bf16"], "tf32": products["bf16"]} | {
        "fp8": 2 * products["bf16"]
    }
