"""The backend that measures, on a driver in Python with a clock: what is checked, what is timed, in which order."""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.bench import gpu
from advisor.bench.contest import PICK, Rival, assemble
from advisor.bench.gpu import BenchBackend, Job, Outcome, state_of
from advisor.errors import DeviceError, ToolError
from advisor.kinds import workload
from advisor.machine import load_profile
from advisor.problem import parse_problem
from advisor.runtime import Device, Monitor, Reading
from advisor.runtime.driver import Api, initialise
from tests.bench.conftest import build
from tests.runtime.fake_driver import FakeDriver

PROBLEM = "kind: gemm\nname: small\nm: 48\nn: 40\nk: 64\ndtype: bf16\noverrides: {kernel: portable}\n"


class Clock(FakeDriver):
    """Events that read a clock, which kernels and copies move."""

    def __init__(self) -> None:
        super().__init__()
        self.now_us = 0.0
        self.events: dict[object, float] = {}

    def cuEventCreate(self, flags: int) -> tuple[int, Any]:
        return self._status("cuEventCreate"), object()

    def cuEventRecord(self, event: object, stream: int) -> tuple[int]:
        self.events[event] = self.now_us
        return (self._status("cuEventRecord"),)

    def cuEventElapsedTime(self, start: object, stop: object) -> tuple[int, float]:
        return self._status("cuEventElapsedTime"), (self.events[stop] - self.events[start]) / 1000

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, stream: int) -> tuple[int]:
        def work() -> None:
            ctypes.memmove(target, source, size)
            self.now_us += 5.0

        self._do(work)
        return (self._status("cuMemcpyDtoDAsync"),)


class Rig:
    """Two kernels of ours, `pick` and `rival 1`, on a fake device. `write` spoils what a kernel stores."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = Clock()
        self.driver.attributes["L2_CACHE_SIZE"] = 40_000  # a few copies exceed it twice
        self.stages: list[tuple[str, float]] = []
        work = workload(parse_problem(PROBLEM, "problem.yaml"))
        profile = load_profile("h200")
        search = work.explore(profile, "portable", forced=True)
        first, second = [search.candidate(int(each)) for each in np.argsort(search.time_us)[:2]]
        rivals = {PICK: Rival(first, 5.0), "rival 1": Rival(second, 6.0)}
        self.job: Job = assemble(
            "small", PROBLEM, work, rivals, build, folder, (9, 0), baselines=("copy", "library"), sample_us=2000.0
        ).job
        arrays = work.inputs(work.own_case())
        self.right = work.reference(work.own_case(), arrays)["D"].astype(np.float32).astype(arrays["D"].dtype)
        kernel = self.job.launch.kernel(self.job.entries[0].kernel_ids[0])
        self.names = [each.name for each in kernel.params]
        self.driver.parameter_sizes = [
            {"ptr": 8, "i64": 8, "tensormap": 128}.get(each.kind, 4) for each in kernel.params
        ]
        self.driver.kernels[kernel.entry] = self._kernel
        self.calls: list[str] = []
        self.write: Callable[[np.ndarray, int], None] = lambda got, call: None
        self.cost_us = 20.0
        monkeypatch.setattr(gpu, "open_device", lambda _: Device(initialise(Api(self.driver)), 0))
        monkeypatch.setattr(gpu, "_torch_with_gpu", lambda: None)
        self.backend = BenchBackend(lambda text, limit: self.stages.append((text, limit)))
        self.backend.open(0)

    def measure(self, job: Job | None = None) -> Outcome:
        return self.backend.measure(job or self.job)

    def _kernel(self, params: list[bytes], config: Any) -> None:
        address = struct.unpack("<Q", params[self.names.index("d")])[0]
        got = np.ctypeslib.as_array((ctypes.c_uint8 * self.right.nbytes).from_address(address)).view(self.right.dtype)
        got[:] = self.right
        self.write(got, len(self.calls))
        self.calls.append(hex(address))
        self.driver.now_us += self.cost_us


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def test_every_contestant_is_checked_and_timed(rig: Rig) -> None:
    outcome = rig.measure()
    assert list(outcome.contestants) == ["library", PICK, f"{PICK} twin", "rival 1", "copy"]
    for name in (PICK, f"{PICK} twin", "rival 1"):
        found = outcome.contestants[name]
        assert found.verdict == "correct"
        assert found.samples_us == [pytest.approx(20.0)] * 10
        assert found.launches * 20.0 >= 2000.0
        assert found.launches % outcome.copies == 0
    assert outcome.contestants["copy"].samples_us == [pytest.approx(5.0)] * 10
    assert "Memcpy" in outcome.contestants["copy"].label
    assert outcome.contestants["library"].verdict == "not_run"
    assert "torch" in outcome.contestants["library"].detail
    assert outcome.flops == 2 * 48 * 40 * 64
    assert outcome.least_bytes == 2 * (48 * 64 + 40 * 64 + 48 * 40)


def test_a_baseline_is_the_fastest_of_what_is_offered_by_its_graph(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = rig.driver

    def offer(label: str, on_stream_us: float, in_graph_us: float) -> gpu.Offer:
        def work(stream: Any) -> None:
            time_us = on_stream_us if driver._captured is None else in_graph_us

            def run() -> None:
                driver.now_us += time_us

            driver._do(run)

        return gpu.Offer(label, [work] * 3)

    offers = [offer("a copy", 5.0, 8.0), offer("a kernel", 7.0, 6.0)]
    monkeypatch.setattr(gpu._Problem, "_copies_of_the_same_bytes", lambda self: offers)
    found = rig.measure().contestants["copy"]
    assert (found.label, found.samples_us) == ("a kernel", [pytest.approx(6.0)] * 10)


def test_a_baseline_that_fails_is_a_row(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(problem: Any) -> list[gpu.Offer]:
        raise NameError("no kernel today")

    monkeypatch.setattr(gpu._Problem, "_copies_of_the_same_bytes", fails)
    found = rig.measure().contestants
    assert (found["copy"].verdict, found["copy"].detail) == ("not_run", "NameError: no kernel today")
    assert found[PICK].samples_us


def test_buffers_rotate_past_twice_the_l2(rig: Rig) -> None:
    outcome = rig.measure()
    assert outcome.copies >= 3
    assert outcome.rotated_bytes >= 2 * 40_000
    assert len(set(rig.calls)) == outcome.copies


def test_a_large_problem_still_has_three_copies(rig: Rig) -> None:
    rig.driver.attributes["L2_CACHE_SIZE"] = 1
    rig.backend.open(0)
    assert rig.measure().copies == 3


def test_a_wrong_kernel_is_not_timed(rig: Rig) -> None:
    def spoil(got: np.ndarray, call: int) -> None:
        if call == 0:  # the pick's first launch
            got[7] = 1000.0

    rig.write = spoil
    outcome = rig.measure()
    assert outcome.contestants[PICK].verdict == "mismatch"
    assert outcome.contestants[PICK].samples_us == []
    assert f"{PICK} twin" not in outcome.contestants
    assert outcome.contestants["rival 1"].samples_us


def test_a_kernel_that_goes_wrong_while_it_is_timed_loses_its_time(rig: Rig) -> None:
    def spoil(got: np.ndarray, call: int) -> None:
        if call > 50:
            got[7] = 1000.0

    rig.write = spoil
    outcome = rig.measure()
    assert outcome.contestants[PICK].verdict == "mismatch"
    assert "other bits" in outcome.contestants[PICK].detail
    assert outcome.contestants[PICK].samples_us == []


def test_an_output_that_is_not_written_shows(rig: Rig) -> None:
    rig.driver.kernels[next(iter(rig.driver.kernels))] = lambda params, config: None
    outcome = rig.measure()
    assert outcome.contestants[PICK].verdict == "mismatch"
    assert "never written" in outcome.contestants[PICK].detail


def test_who_begins_a_round_moves_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[int] = []
    real = rig.driver.cuGraphLaunch
    graphs: dict[int, int] = {}

    def launched(graph: Any, stream: int) -> tuple[int]:
        order.append(graphs.setdefault(id(graph), len(graphs)))
        return real(graph, stream)

    monkeypatch.setattr(rig.driver, "cuGraphLaunch", launched, raising=False)
    rig.measure()
    contestants = 4  # pick, twin, rival, copy
    rounds = order[-(10 * contestants + 3) : -3]  # behind the rounds each kernel of ours runs once more
    firsts = [rounds[turn * contestants] for turn in range(10)]
    assert len(set(rounds)) == contestants
    assert [firsts.index(each) for each in dict.fromkeys(firsts)] == [0, 1, 2, 3]
    for turn in range(10):
        assert sorted(rounds[turn * contestants : (turn + 1) * contestants]) == sorted(set(rounds))


def test_a_fault_names_the_kernel_that_made_it(rig: Rig) -> None:
    rig.driver.fail["cuCtxSynchronize"] = 700
    with pytest.raises(DeviceError) as caught:
        rig.measure()
    assert caught.value.numbers["entry"] == PICK


def test_a_kernel_that_the_driver_refuses_is_a_row(rig: Rig) -> None:
    rig.driver.active_clusters = 0
    outcome = rig.measure()
    assert outcome.contestants[PICK].verdict == "launch_error"
    assert "resident" in outcome.contestants[PICK].detail
    assert outcome.contestants["copy"].samples_us


def test_stages_that_run_a_kernel_carry_its_name_and_a_limit(rig: Rig) -> None:
    rig.measure()
    named = [(text, limit) for text, limit in rig.stages if text.endswith(": launch")]
    assert {text for text, _ in named} == {f"{PICK}: launch", "rival 1: launch", "copy: launch", "library: launch"}
    assert all(limit <= gpu.CHECK_LIMIT_S for _, limit in named)


def test_without_torch_a_large_problem_is_refused(rig: Rig) -> None:
    from dataclasses import replace

    text = PROBLEM.replace("m: 48", "m: 8192").replace("n: 40", "n: 8192").replace("k: 64", "k: 8192")
    with pytest.raises(ToolError) as caught:
        rig.measure(replace(rig.job, problem_text=text))
    assert caught.value.code == "BENCH_NEEDS_TORCH"


def test_nothing_stays_allocated(rig: Rig) -> None:
    before = len(rig.driver.memory)
    rig.measure()
    assert len(rig.driver.memory) == before


# ---- clocks and power ----------------------------------------------------------------------------------------------


class FakeNvml:
    """The calls of NVML that the monitor makes."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.uuid = b""

    def nvmlInit_v2(self) -> int:
        return self.status

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        self.uuid = uuid
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, into: Any) -> int:
        into._obj.value = {1: 1710, 2: 3201}[kind]
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, into: Any) -> int:
        into._obj.value = 698_500
        return 0

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int, into: Any) -> int:
        return 3  # not supported

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, into: Any) -> int:
        into._obj.value = 0x4
        return 0


def test_the_monitor_reads_what_the_machine_gives() -> None:
    nvml = FakeNvml()
    monitor = Monitor("GPU-1", load=lambda _: nvml)
    assert monitor.read() == Reading(1710, 3201, 698.5, None, ("software power cap",))
    assert (monitor.why_not, nvml.uuid) == ("", b"GPU-1")


def test_a_machine_without_the_library_says_so() -> None:
    def missing(name: str) -> Any:
        raise OSError("no such file")

    monitor = Monitor("GPU-1", load=missing)
    assert monitor.read() == Reading()
    assert "no such file" in monitor.why_not
    refused = Monitor("GPU-1", load=lambda _: FakeNvml(status=9))
    assert "nvmlInit_v2 returned 9" in refused.why_not
    assert refused.read() == Reading()


def test_a_state_is_the_median_of_its_readings() -> None:
    readings = [Reading(1700, 3201, 600.0, 50, ()), Reading(1500, 3201, 700.0, 52, ("software power cap",)), Reading()]
    found = state_of(readings)
    assert (found.sm_mhz, found.watts, found.celsius, found.held_by) == (1600.0, 650.0, 51.0, ["software power cap"])
    assert state_of([]).sm_mhz is None


def test_the_same_kernel_is_one_file_whoever_asks_for_it(tmp_path: Path) -> None:
    work = workload(parse_problem(PROBLEM, "problem.yaml"))
    search = work.explore(load_profile("h200"), "portable", forced=True)
    same = search.candidate(int(np.argmin(search.time_us)))
    found = assemble("x", PROBLEM, work, {PICK: Rival(same, 1.0), "rival 1": Rival(same, 1.0)}, build, tmp_path, (9, 0))
    assert len(list(tmp_path.iterdir())) == 1
    assert len(set(found.hashes.values())) == 1
    assert len({each.kernel_ids for each in found.job.entries}) == 2
    assert hashlib.sha256(b"x").hexdigest() not in found.hashes.values()
