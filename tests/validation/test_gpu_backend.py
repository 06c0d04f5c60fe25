"""The backend of the child processes, on a driver in Python whose kernel writes what a test tells it to."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.codegen.render import bundle_runs, compose_launch, ladder, traced
from advisor.kinds import workload
from advisor.kinds.workload import Workload
from advisor.machine import load_profile
from advisor.planner import plan
from advisor.problem import parse_problem
from advisor.records.case import Case
from advisor.records.launch import Buffer, Launch, ResolvedLaunch
from advisor.runtime import Device
from advisor.runtime.driver import Api, initialise
from advisor.validation import gpu
from advisor.validation.gpu import CaseOutcome, GpuBackend, Image, Setup
from tests.runtime.fake_driver import FakeDriver

PROBLEM = """\
kind: gemm
name: small
m: 48
n: 40
k: 64
dtype: bf16
epilogue: {bias: row, activation: relu}
overrides: {kernel: portable}
"""
RUN = "portable_one_tile"


class Rig:
    """A backend over a fake device. `write` is what the kernel does to the right output before it stores it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = FakeDriver()
        self.stages: list[str] = []
        self.work: Workload = workload(parse_problem(PROBLEM, "problem.yaml"))
        profile = load_profile("h200")
        made = plan(
            self.work, profile, target_name="h200", target_source="profile", rung_profiles={"portable": profile}
        )
        run = bundle_runs(made, self.work)[0]
        runs = [run, traced(run)]
        trace = Buffer(dtype="uint32", shape=[run.specs[0].trace_shape[0]], role="inout", align_bytes=4)
        buffers = {**self.work.buffers(), f"trace_{RUN}": trace}
        self.launch: Launch = compose_launch(self.work, runs, buffers, ladder(runs))
        self.candidate = run.candidate
        image = folder / "image"
        image.write_bytes(b"cubin")
        ids = [kernel.id for kernel in self.launch.kernels]
        self.setup = Setup(0, PROBLEM, self.launch, {each: Image("sm_90", str(image)) for each in ids}, str(folder))
        self.setup = Setup(**{**_fields(self.setup), "residency": dict.fromkeys(ids, 264)})
        monkeypatch.setattr(gpu, "open_device", lambda _: Device(initialise(Api(self.driver)), 0))
        monkeypatch.setattr(gpu, "_import_torch", lambda: None)
        entry = self.launch.kernels[0].entry
        self.driver.kernels[entry] = self._kernel
        self.calls = 0
        self.write: Callable[[np.ndarray, int], None] = lambda got, call: None
        self.after: Callable[[Rig, int], None] = lambda rig, call: None
        self.traces: Callable[[np.ndarray, int], None] = lambda counts, call: counts.__iadd__(1)
        self.backend = GpuBackend(lambda text, _: self.stages.append(text))
        self.backend.open(self.setup)

    def run(self, case: Case, run: str = RUN, **options: Any) -> CaseOutcome:
        arrays = self.work.inputs(case)
        reference = self.work.reference(case, arrays)["D"]
        self.right = reference.astype(np.float32).astype(arrays["D"].dtype)
        self.inside = ~np.isnan(reference)
        kernel = self.launch.kernel(run)
        self.driver.parameter_sizes = [_size(each.kind) for each in kernel.params]
        return self.backend.run_case(run, [run], case, **options)

    def cases(self) -> dict[str, Case]:
        return {each.name: each for each in self.work.cases(self.candidate, 3)}

    def memory(self, name: str) -> np.ndarray:
        held = self.backend._held[name]
        return np.ctypeslib.as_array((ctypes.c_uint8 * held.size).from_address(held.address))

    def _kernel(self, params: list[bytes], config: Any) -> None:
        got = self.memory("D").view(self.right.dtype)
        got[self.inside] = self.right[self.inside]
        self.write(got, self.calls)
        self.after(self, self.calls)
        if f"trace_{RUN}" in self.backend._held:
            self.traces(self.memory(f"trace_{RUN}").view(np.uint32), self.calls)
        self.calls += 1


def _fields(setup: Setup) -> dict[str, Any]:
    return {name: getattr(setup, name) for name in Setup.__slots__}


def _size(kind: str) -> int:
    return {"ptr": 8, "scratch": 8, "tensormap": 128, "i64": 8, "u64": 8}.get(kind, 4)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def test_a_right_kernel_passes_every_case_and_every_check(rig: Rig) -> None:
    for case in rig.cases().values():
        outcome = rig.run(case)
        assert all(outcome.checks.values()), (case.name, outcome)
        empty = 0 in (case.arguments["m"], case.arguments["n"], case.arguments["batch"])
        assert outcome.launches == (1 if empty else 129)
        assert ("same_bits_in_a_graph" in outcome.checks) is not empty


def test_64_launches_run_eager_and_64_from_a_graph(rig: Rig) -> None:
    rig.run(rig.cases()["own_shape"])
    assert rig.calls == 129
    assert rig.driver.calls.count("cuGraphLaunch") == 1


def test_nothing_is_launched_for_an_empty_case(rig: Rig) -> None:
    for name in ("m_zero", "n_zero", "batch_zero"):
        outcome = rig.run(rig.cases()[name])
        assert all(outcome.checks.values())
    assert rig.calls == 0


def test_every_stage_that_runs_a_kernel_is_called_launch(rig: Rig) -> None:
    rig.run(rig.cases()["own_shape"])
    stages = [each.removeprefix("own_shape: ") for each in rig.stages if each.startswith("own_shape")]
    assert stages == [
        "inputs",
        "launch",
        "reference and comparison",
        "64 launches",
        "launch of a graph of 64",
    ]


def test_a_store_beyond_the_buffer_is_seen_in_its_margin(rig: Rig) -> None:
    def stray(rig: Rig, _: int) -> None:
        held = rig.backend._held["D"]
        ctypes.memset(held.address + held.size, 0, 2)

    rig.after = stray
    outcome = rig.run(rig.cases()["own_shape"])
    assert outcome.checks["margins_untouched"] is False
    assert outcome.checks["within_bound"] is True
    assert "margins_untouched" in outcome.detail


def test_a_store_into_an_input_is_seen(rig: Rig) -> None:
    rig.after = lambda rig, _: rig.memory("A").__setitem__(0, 1)
    assert rig.run(rig.cases()["own_shape"]).checks["inputs_untouched"] is False


def test_a_launch_that_differs_from_the_first_is_seen_eager_and_in_a_graph(rig: Rig) -> None:
    def late(got: np.ndarray, call: int) -> None:
        if call in (1 + 15, 1 + 64 + 63):  # the last launch of an eager round, and of the graph
            got.view(np.uint16)[0] ^= 1

    rig.write = late
    outcome = rig.run(rig.cases()["own_shape"])
    assert outcome.checks["same_bits_64_launches"] is False
    assert outcome.checks["same_bits_in_a_graph"] is False
    assert "64 launches do not give the same bits" in outcome.detail


def test_a_wrong_first_launch_is_not_repeated(rig: Rig) -> None:
    rig.write = lambda got, _: got.__setitem__(0, 1e6)
    outcome = rig.run(rig.cases()["own_shape"])
    assert outcome.checks["within_bound"] is False
    assert outcome.launches == rig.calls == 1


def test_a_traced_twin_counts_and_is_not_repeated(rig: Rig) -> None:
    outcome = rig.run(rig.cases()["own_shape"], f"{RUN}_traced", repeat=False)
    assert outcome.checks["traced_once"] is True
    assert rig.calls == 1
    rig.traces = lambda counts, _: counts.__setitem__(0, 2)
    outcome = rig.run(rig.cases()["own_shape"], f"{RUN}_traced", repeat=False)
    assert outcome.checks["traced_once"] is False
    assert "tile 0: 2 times" in outcome.detail


def test_kept_cases_run_again_from_their_files(rig: Rig, tmp_path: Path) -> None:
    case = rig.cases()["tile_plus_one"]
    rig.run(case, keep=str(tmp_path / "kept"))
    folder = tmp_path / "kept" / RUN
    resolved = ResolvedLaunch.model_validate_json((folder / "tile_plus_one.json").read_bytes())
    assert resolved.entry == rig.launch.kernels[0].entry
    inputs = np.load(folder / "tile_plus_one.inputs.npz")
    assert inputs["A"].tobytes() == rig.work.inputs(case)["A"].tobytes()
    assert set(inputs) == {"A", "B", "D", "bias"}
    json.loads((folder / "tile_plus_one.json").read_text())


def test_the_survey_asks_the_device_about_every_kernel(rig: Rig) -> None:
    facts = rig.backend.survey()
    assert set(facts) == {RUN, f"{RUN}_traced"}
    assert facts[RUN].loadable
    assert facts[RUN].max_active_clusters == 66
    rig.driver.fail["cuModuleLoadData"] = 209
    fresh = GpuBackend(lambda *_: None)
    fresh.open(rig.setup)
    refused = fresh.survey()[RUN]
    assert not refused.loadable
    assert "CUBIN_NOT_LOADABLE" in refused.reason


def test_time_is_per_launch_and_rotates_over_more_than_the_l2_cache(rig: Rig) -> None:
    case = rig.cases()["own_shape"]
    rig.driver.kernels.clear()
    rig.driver.parameter_sizes = [_size(each.kind) for each in rig.launch.kernel(RUN).params]
    timing = rig.backend.time([RUN], case)
    count = round(250.0 / timing.median_us)  # the fake's events are 250 us apart, whatever lies between
    assert gpu.MIN_LAUNCHES <= count <= gpu.MAX_LAUNCHES
    assert timing.samples == gpu.TIMED_SAMPLES
    assert timing.baseline is None  # no torch here
    addresses = {tuple(each["params"][:4]) for each in rig.driver.launches}
    assert len(addresses) == min(len(rig.driver.launches), gpu.MAX_COPIES) > 20
    first, second = rig.backend.compare_times([RUN], [RUN], case)
    assert len(first) == len(second) == gpu.TIMED_SAMPLES


def test_large_inputs_are_made_once_and_read_by_the_next_process(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu, "SHARED_BYTES", 1000)
    case = rig.cases()["own_shape"]
    made = rig.backend._inputs(case)
    assert list(tmp_path.glob("*/complete"))
    monkeypatch.setattr(type(rig.backend._workload), "inputs", None)
    again = rig.backend._inputs(case)
    assert {name: array.tobytes() for name, array in again.items()} == {
        name: array.tobytes() for name, array in made.items()
    }
    assert all(again[name].dtype == made[name].dtype for name in made)
