"""Which image of a kernel runs in the emulator: that of the GPU which is planned for, where it has one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.codegen.render import render_bundle, render_variants
from advisor.kinds import workload
from advisor.machine import load_profile, profile_names
from advisor.machine.features import loadable
from advisor.validation.lanes import stand_in, targets_of
from tests.planner.conftest import make, problem

SMALL = {"m": 512, "n": 512, "k": 512, "dtype": "bf16"}


@pytest.mark.parametrize(("target", "arch"), [("b200", "sm_100a"), ("gb200", "sm_100a"), ("b300", "sm_103a")])
def test_the_image_of_the_target_comes_first_and_is_built(target: str, arch: str) -> None:
    plan = make(target, **SMALL)
    assert plan.target.arch == arch
    assert plan.choice is not None
    assert plan.choice.family == "sm100"
    launch = render_bundle(plan, workload(problem(**SMALL))).launch
    blackwell = [each for each in launch.kernels if each.family == "sm100"]
    assert len(blackwell) >= 2
    for kernel in blackwell:
        assert set(kernel.images) == {"sm_100a", "sm_103a", "sm_100f"}
        assert targets_of(kernel, arch)[0] == arch
    others = [each for each in launch.kernels if each.family != "sm100"]
    assert all(targets_of(each, arch) == list(each.images) for each in others)


def test_a_gpu_that_loads_no_image_of_its_family_gets_one_of_its_own() -> None:
    """Compute capability 11.0 has tcgen05, and loads nothing that is built for 10.x or 12.x."""
    thor = replace(load_profile("b200"), name="thor", arch="sm_110a", compute_capability=(11, 0), max_cluster_size=8)
    plan = make(thor, **SMALL)
    made = workload(problem(**SMALL))
    for launch in (render_bundle(plan, made).launch, render_variants(plan, made, {"thor": thor}).launch):
        for kernel in launch.kernels:
            own = {"sm100": "sm_110a", "portable": "sm_110"}.get(kernel.family)
            assert any(loadable(each, (11, 0)) for each in kernel.images) == (own is not None)
            if own is not None:
                assert kernel.images[own] == f"build/{kernel.id}.{own}.cubin"


def test_a_profile_of_the_users_own_is_stood_in_for_by_the_nearest_that_is_shipped() -> None:
    shipped = [load_profile(name) for name in sorted(profile_names())]
    assert stand_in("sm_90a", shipped).arch == "sm_90a"
    assert stand_in("sm_80", shipped).name == "h200"
    thor = stand_in("sm_110a", shipped)
    assert (thor.name, thor.arch, thor.compute_capability) == ("b300", "sm_110a", (11, 0))
    assert stand_in("sm_121a", shipped).name == "rtx_pro_6000"
