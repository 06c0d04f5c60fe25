"""Which image of a kernel runs in the emulator: that of the GPU which is planned for, where it has one."""

from __future__ import annotations

import pytest

from advisor.codegen.render import render_bundle
from advisor.kinds import workload
from advisor.validation.lanes import targets_of
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
