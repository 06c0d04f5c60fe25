"""The schedule experiment: what is predicted, what refutes it, and that SMs are let go."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.errors import DeviceError, ToolError
from advisor.machine import load_profile
from advisor.runtime import Device
from advisor.runtime.contention import Holder
from advisor.runtime.driver import Api, initialise
from advisor.validation import schedule_gpu
from advisor.validation.schedule import (
    EXAMPLE_TILES,
    EXAMPLE_US,
    Trial,
    experiment,
    image_name,
    schedule_images,
    schedules_of,
    trials,
)
from advisor.validation.schedule_gpu import ScheduleBackend
from tests.runtime.fake_driver import FakeDriver

BACKENDS = Path(__file__).with_name("schedule_backends.py")
H200 = load_profile("h200")


def run(backend: str) -> dict[str, Any]:
    return experiment(0, H200, lambda _: {}, f"{BACKENDS}:{backend}")


def test_every_case_of_the_experiment_is_there() -> None:
    made = trials(H200)
    assert {each.held for each in made} == {0, 8, 44, 129}
    assert {each.cluster for each in made} == {1, 2}
    assert {each.schedule for each in made} == {"one_tile", "static", "ticket"}
    assert len({each.name for each in made}) == 2 * 2 * 3 + 1
    assert schedules_of(load_profile("b200")) == ("one_tile", "static", "ticket", "clc")
    by_name: dict[str, set[tuple[int, ...]]] = {}
    for each in made:
        by_name.setdefault(each.name, set()).add(each.costs_ns)
    assert all(len(costs) == 1 for costs in by_name.values()), "schedules of a case run the same tiles"


def test_the_example_of_the_design_is_six_tile_times_against_four() -> None:
    found = {each.schedule: each.predicted_us for each in trials(H200) if len(each.costs_ns) == EXAMPLE_TILES}
    assert found["static"] == pytest.approx(6 * EXAMPLE_US, rel=0.01)
    assert found["ticket"] == pytest.approx(4 * EXAMPLE_US, rel=0.01)


def test_a_third_held_is_predicted_to_cost_a_static_grid_a_quarter_or_more() -> None:
    made = [each for each in trials(H200) if each.held == 44 and len(set(each.costs_ns)) == 1]
    for cluster, least in ((1, 1.33), (2, 1.2)):  # pairs that lost one of their SMs are lost to both
        found = {each.schedule: each.predicted_us for each in made if each.cluster == cluster}
        assert found["static"] / found["ticket"] >= least


def test_a_device_as_simulated_confirms() -> None:
    found = run("Faithful")
    assert found["verdict"] == "confirms"
    assert found["wrong"] == []
    assert found["least_gain_a_third_held"] >= 1.25
    assert len(found["rows"]) == len(trials(H200))
    assert all(abs(row["error"]) < 0.03 for row in found["rows"])


def test_a_device_without_the_gain_refutes_and_says_where() -> None:
    found = run("NoGain")
    assert found["verdict"] == "refutes"
    assert found["least_gain_a_third_held"] < 1.25
    assert any("44 SMs held, ticket" in each for each in found["wrong"])
    assert not any("0 SMs held, ticket" in each and ", 0 SMs" in each for each in found["wrong"])


@pytest.mark.parametrize(("backend", "words"), [("Crashes", "exit code 9"), ("Twice", "counted 12 times")])
def test_what_keeps_it_from_running_is_its_reason(backend: str, words: str) -> None:
    found = run(backend)
    assert found["verdict"] == "not_run"
    assert words in found["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h200", "b200"])
def test_the_kernels_compile_without_a_warning_for_every_schedule(name: str) -> None:
    from advisor.codegen import templates
    from advisor.toolchain import Unit, compile_cuda

    profile = load_profile(name)
    images = schedule_images(profile)
    assert set(images) == {"hold", *(image_name(each, size) for each in schedules_of(profile) for size in (1, 2))}
    text = templates.load("probe/tiles.cu")
    for number in range(len(schedules_of(profile))):
        defines = {"ADVISOR_SCHEDULE": number, "ADVISOR_CLUSTER": 2}
        compiled = compile_cuda(Unit("tiles.cu", text, templates.headers_for(text), profile.arch, defines))
        assert compiled.warnings == ()
        assert compiled.spill_bytes == 0


# ---- on a driver in Python ------------------------------------------------------------------------------------------


class Rig:
    """A fake device whose holders arrive, or not, and whose tiles are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, arriving: int | None = None) -> None:
        self.driver = FakeDriver()
        self.arriving = arriving
        self.released: list[int] = []
        self.counts: Any = lambda counts, cluster: counts.__iadd__(cluster)
        self.driver.parameter_sizes_of = {"probe_hold": [8, 8, 8], "probe_tiles": [8, 8, 4, 8]}
        self.driver.kernels = {"probe_hold": self._hold, "probe_tiles": self._tiles}
        monkeypatch.setattr(self.driver, "cuMemcpyDtoHAsync", self._copy, raising=False)
        self.device = Device(initialise(Api(self.driver)), 0)

    def _copy(self, target: int, source: int, size: int, stream: int) -> tuple[int]:
        return self.driver.cuMemcpyDtoH(target, source, size)

    def _hold(self, params: list[bytes], config: Any) -> None:
        (address,) = struct.unpack("<Q", params[0])
        count = config.gridDimX if self.arriving is None else self.arriving
        self._words(address, 1)[0] = count

    def _tiles(self, params: list[bytes], config: Any) -> None:
        (done,), (total,) = struct.unpack("<Q", params[1]), struct.unpack("<I", params[2])
        self.counts(self._words(done, total), config.attrs[0].value.clusterDim.x if config.attrs else 1)

    @staticmethod
    def _words(address: int, count: int) -> Any:
        import ctypes

        return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))


def test_holders_take_whole_sms_and_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    holder = Holder(rig.device, b"cubin", 44)
    with holder:
        launch = rig.driver.launches[-1]
        assert launch["config"].gridDimX == 44
        assert launch["config"].sharedMemBytes > rig.device.info.limits["smem_per_sm_bytes"] // 2
        assert rig._words(holder._words.address + 256, 1)[0] == 0
    assert rig._words(holder._words.address + 256, 1)[0] != 0
    holder.close()


def test_nothing_is_launched_to_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    with Holder(rig.device, b"cubin", 0):
        assert rig.driver.launches == []


def test_holders_that_do_not_arrive_are_an_error_and_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, arriving=40)
    ticks = iter(range(0, 1000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    holder = Holder(rig.device, b"cubin", 44)
    with pytest.raises(DeviceError) as caught, holder:
        pass
    assert caught.value.code == "HOLDERS_MISSING"
    assert caught.value.numbers == {"arrived": 40, "wanted": 44}
    assert rig._words(holder._words.address + 256, 1)[0] != 0


def backend_of(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> ScheduleBackend:
    monkeypatch.setattr(schedule_gpu, "open_device", lambda _: rig.device)
    backend = ScheduleBackend(lambda *_: None)
    backend.open(0)
    return backend


SOME = (
    Trial("a", "static", 1, 8, (1000,) * 12, 4, 10.0),
    Trial("a", "ticket", 2, 8, (1000,) * 12, 4, 10.0),
    Trial("b", "one_tile", 1, 0, (1000,) * 5, 5, 10.0),
)
IMAGES = {"hold": b"hold", "tiles_static_1": b"s", "tiles_ticket_2": b"t", "tiles_one_tile_1": b"o"}


def test_every_trial_is_launched_warm_and_then_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    found = backend_of(rig, monkeypatch).run(SOME, IMAGES, 3)
    assert {number: len(samples) for number, samples in found.items()} == {0: 3, 1: 3, 2: 3}
    tiles = [each for each in rig.driver.launches if each["function"] == "function probe_tiles"]
    assert len(tiles) == len(SOME) * (3 + 1)


def test_a_tile_that_runs_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)

    def twice(counts: Any, cluster: int) -> None:
        counts += cluster
        counts[3] += 1

    rig.counts = twice
    with pytest.raises(ToolError) as caught:
        backend_of(rig, monkeypatch).run(SOME, IMAGES, 3)
    assert caught.value.code == "TILES_NOT_ONCE"
    assert caught.value.numbers["tile"] == 3
