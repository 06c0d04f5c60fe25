"""What holds of every kind, those of the house and one from elsewhere. A new kind adds a problem to SAMPLES."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from advisor import kinds
from advisor.bench.contest import hash_of
from advisor.bench.results import CandidateRecord
from advisor.kinds.base import BaseWorkload
from advisor.kinds.workload import Checked, Planned, Rendered, Timed, Told, Workload
from advisor.machine import load_profile
from advisor.machine.profile import DeviceProfile
from advisor.planner import plan
from advisor.problem import registry, resolved
from advisor.records.base import canonical_json
from advisor.records.plan import Plan
from tests.kinds.third import scale

SAMPLES: dict[str, dict[str, Any]] = {
    "gemm": {"kind": "gemm", "m": 500, "n": 384, "k": 256},
    "row_reduce": {"kind": "row_reduce", "op": "softmax", "rows": 300, "cols": 5000},
    "scale": {"kind": "scale", "n": 5000},
}
H200, B200 = load_profile("h200"), load_profile("b200")
KEPT = 8  # candidates of a family that are looked at


@pytest.fixture(params=list(SAMPLES))
def workload(request: pytest.FixtureRequest) -> Iterator[Workload]:
    kinds.register(scale.KIND)
    yield kinds.workload(resolved(SAMPLES[request.param]))
    kinds.forget("scale")


def profiles(target: DeviceProfile) -> dict[Any, DeviceProfile]:
    return {"sm100": target, "sm90": H200, "portable": target}


def planned(workload: Workload, target: DeviceProfile) -> Plan:
    return plan(workload, target, target_name=target.name, target_source="profile", rung_profiles=profiles(target))


def test_every_kind_of_the_house_has_a_sample() -> None:
    assert set(registry.HOUSE) <= set(SAMPLES)


def test_a_kind_answers_every_question(workload: Workload) -> None:
    parts = (Planned, Told, Rendered, Checked, Timed)
    asked = {name for part in parts for name in vars(part) if not name.startswith("_")}
    assert {name for name in asked if not hasattr(workload, name)} == set()
    assert isinstance(workload, BaseWorkload)


def test_a_problem_reads_back_and_says_what_it_is(workload: Workload) -> None:
    again = resolved(workload.document)
    assert again.model_dump(mode="json") == workload.document
    assert workload.kind == again.kind == workload.document["kind"]
    assert again.words.startswith(f"{again.kind} ")
    assert list(again.stated()) == []
    assert set(workload.limits()) == {
        "sm_budget", "max_cluster_size", "fallback", "kernel", "busy_sms", "tile_cost_cv", "seed",
    }  # fmt: skip


@pytest.mark.parametrize("target", [B200, H200], ids=lambda each: each.name)
def test_a_search_is_columns_of_one_length(workload: Workload, target: DeviceProfile) -> None:
    for family in workload.families(target):
        search = workload.explore(profiles(target)[family], family, forced=False)
        length = len(search.time_us)
        assert length > 0
        assert {len(each) for each in (search.reason, search.simplicity, search.moved_bytes)} == {length}
        legal = search.reason == -1
        assert np.isfinite(search.time_us[legal]).all()
        assert np.isinf(search.time_us[~legal]).all()
        assert search.reason.max() < len(search.reasons)
        roles = {*search.roles.shape, *search.roles.alternatives, *search.roles.swept, "cluster_size"}
        assert roles <= set(search.axes)
        for labels, codes in search.axes.values():
            assert len(codes) == length
            assert set(codes.tolist()) <= set(range(len(labels)))


@pytest.mark.parametrize("target", [B200, H200], ids=lambda each: each.name)
def test_the_best_candidates_are_whole(workload: Workload, target: DeviceProfile) -> None:
    kind = workload.kind
    for family in workload.families(target):
        profile = profiles(target)[family]
        search = workload.explore(profile, family, forced=False)
        order = np.argsort(search.time_us, kind="stable")
        for row in order[: min(KEPT, int(np.isfinite(search.time_us).sum()))].tolist():
            c, timing = search.candidate(row), search.timing(row)
            assert workload.clauses(c, profile) == []
            assert timing.bound in timing.bounds
            assert set(timing.bounds) <= set(workload.bounds)
            assert hash(c) == hash(CandidateRecord.of(kind, c).candidate())
            assert CandidateRecord.read(kind, CandidateRecord.of(kind, c).model_dump(mode="json")).candidate() == c
            need, specs = workload.resources(c), workload.kernels(c)
            assert specs[0].kernel.id.removesuffix("_main") == c.kernel_id
            assert specs[0].kernel.block[0] * specs[0].kernel.block[1] * specs[0].kernel.block[2] == need.threads
            assert specs[0].kernel.registers == need.registers
            assert {param.name for param in specs[0].kernel.params}
            layout = workload.layout(c)
            names = {each.name for each in workload.barriers(c)}
            assert layout is None or {*layout.mbarriers, *layout.named, *layout.meetings} <= names


@pytest.mark.parametrize("target", [B200, H200], ids=lambda each: each.name)
def test_a_plan_has_its_steps_and_reads_back(workload: Workload, target: DeviceProfile) -> None:
    found = planned(workload, target)
    assert found.verdict in ("plan", "adjust")
    assert [step.step for step in found.steps] == list(range(1, 10))
    assert all(step.decisions for step in found.steps)
    assert {"grid_blocks", "grid_clusters"} <= set(found.steps[1].artifact)
    assert "buffers" in found.steps[2].artifact
    text = canonical_json(found)
    assert canonical_json(Plan.model_validate_json(text)) == text
    assert found.choice is not None
    assert found.choice.work.extents
    assert workload.pins(found.choice.candidate())


def test_a_pinned_candidate_is_the_one_that_is_planned(workload: Workload) -> None:
    """What a query of the built kernel moves back and forth is pinned by its overrides."""
    choice = planned(workload, H200).choice
    assert choice is not None
    c = choice.candidate()
    search = workload.explore(H200, c.family, forced=True, overrides=workload.pins(c))
    found = [search.candidate(row) for row in np.flatnonzero(np.isfinite(search.time_us)).tolist()]
    assert found
    assert {(each.cluster, each.schedule) for each in found} == {(c.cluster, c.schedule)}


def test_a_measured_time_stands_over_the_models(workload: Workload) -> None:
    search = workload.explore(H200, "sm90", forced=False)
    row = int(np.argmin(search.time_us))
    c = search.candidate(row)
    again = workload.explore(H200, "sm90", forced=False, measurements={c: 0.125})
    assert 0.125 in again.time_us[list(again.measured)]


def test_cases_have_every_argument_and_inputs_every_buffer(workload: Workload) -> None:
    choice = planned(workload, H200).choice
    assert choice is not None
    c = choice.candidate()
    cases = workload.cases(c, 4, small=True)
    assert len({each.name for each in cases}) == len(cases)
    assert any(each.scheduling for each in cases)
    for case in [*cases[:3], cases[-1]]:
        assert set(case.arguments) == {each.name for each in workload.arguments()}
        given = workload.inputs(case)
        assert set(given) == set(workload.buffers())
        wanted, allowed = workload.reference(case, given), workload.bound(case, given, c.family)
        outputs = {name for name, each in workload.buffers().items() if each.role != "in"}
        assert set(wanted) == set(allowed) == outputs
        for name in outputs:
            assert wanted[name].shape == allowed[name].shape == given[name].shape
            assert not (allowed[name] < 0).any()


def test_a_candidate_is_rendered_alone_for_a_benchmark(workload: Workload) -> None:
    """What `bench` and `tune` build of a candidate, and what the store of measurements knows it by."""
    choice = planned(workload, H200).choice
    assert choice is not None
    digest = hash_of(workload, choice.candidate(), H200.compute_capability)
    assert digest is not None
    assert digest == hash_of(workload, choice.candidate(), H200.compute_capability)
    assert hash_of(workload, choice.candidate(), (7, 5)) is None  # no image loads there


def test_its_interface_names_its_buffers(workload: Workload) -> None:
    found = workload.interface()
    assert set(found.operands) <= set(workload.buffers())
    assert found.result in found.operands
    assert workload.buffers()[found.result].role != "in"
    case = workload.own_case()
    assert workload.least_bytes(case) > 0
    assert workload.flops(case) >= 0
