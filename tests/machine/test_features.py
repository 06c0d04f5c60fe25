"""Feature gates and loadability by exact name; the compiler's word on the table is in test_feature_compiles."""

import pytest

from advisor.errors import DeviceError, ProfileError, RefusedError
from advisor.machine.features import (
    FEATURE_TARGETS,
    SLOW_TMA_MULTICAST,
    Feature,
    compute_capability,
    loadable,
    require,
    require_loadable,
    supports,
    targets,
)

CAPABILITIES = [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)]


def test_the_table_covers_every_feature_with_known_targets():
    assert set(FEATURE_TARGETS) == set(Feature)
    for having in FEATURE_TARGETS.values():
        assert having
        assert having <= set(targets())
    assert set(targets()) >= SLOW_TMA_MULTICAST


@pytest.mark.parametrize(
    ("target", "loads_on"),
    [
        ("sm_80", {(8, 0), (8, 6), (8, 9)}),
        ("sm_89", {(8, 9)}),
        ("sm_90", {(9, 0)}),
        ("sm_90a", {(9, 0)}),
        ("sm_100", {(10, 0), (10, 3)}),
        ("sm_100a", {(10, 0)}),
        ("sm_100f", {(10, 0), (10, 3)}),
        ("sm_103", {(10, 3)}),
        ("sm_103a", {(10, 3)}),
        ("sm_120", {(12, 0), (12, 1)}),
        ("sm_120a", {(12, 0)}),
        ("sm_120f", {(12, 0), (12, 1)}),
        ("sm_121a", {(12, 1)}),
    ],
)
def test_a_cubin_loads_on_its_own_family_only(target, loads_on):
    assert {cc for cc in CAPABILITIES if loadable(target, cc)} == loads_on


def test_every_target_loads_on_the_gpu_it_is_named_after():
    for target in targets():
        assert loadable(target, compute_capability(target))
    assert compute_capability("sm_100f") == (10, 0)
    assert compute_capability("sm_90a") == (9, 0)


@pytest.mark.parametrize(
    ("feature", "target", "code", "word"),
    [
        (Feature.WGMMA, "sm_90", "ARCH_SUFFIX_REQUIRED", "sm_90a"),
        (Feature.TCGEN05, "sm_100", "ARCH_SUFFIX_REQUIRED", "sm_100f"),
        (Feature.CLC_MULTICAST, "sm_120", "ARCH_SUFFIX_REQUIRED", "sm_120a"),
        (Feature.CLC, "sm_90a", "NO_CLC", "sm_100"),
        (Feature.WGMMA, "sm_100a", "NO_WGMMA", "sm_90a"),
        (Feature.TCGEN05, "sm_120a", "NO_TCGEN05", "sm_100a"),
        (Feature.CLUSTER, "sm_89", "NO_CLUSTERS", "sm_90"),
        (Feature.ST_ASYNC, "sm_80", "FEATURE_MISSING", "sm_90"),
    ],
)
def test_a_refusal_names_its_cause_and_the_targets_that_serve(feature, target, code, word):
    assert not supports(feature, target)
    with pytest.raises(RefusedError) as caught:
        require(feature, target)
    assert caught.value.code == code
    assert word in str(caught.value)
    assert caught.value.numbers["target"] == target


def test_a_supported_feature_and_a_loadable_cubin_pass_in_silence():
    for target in FEATURE_TARGETS[Feature.CLC]:
        assert supports(Feature.CLC, target)
        assert require(Feature.CLC, target) is None
    assert require_loadable("sm_100f", (10, 3)) is None


@pytest.mark.parametrize("target", ["sm_100a", "sm_90a"])
def test_a_cubin_for_another_gpu_is_refused_with_the_targets_that_load(target):
    with pytest.raises(DeviceError) as caught:
        require_loadable(target, (10, 3))
    assert caught.value.code == "CUBIN_NOT_LOADABLE"
    assert "sm_103a" in caught.value.fix


def test_a_gpu_that_no_target_builds_for_is_said_to_be_so():
    with pytest.raises(DeviceError, match="no known target"):
        require_loadable("sm_80", (7, 5))


@pytest.mark.parametrize(
    "ask", [lambda name: supports(Feature.TMA, name), lambda name: loadable(name, (9, 0)), compute_capability]
)
@pytest.mark.parametrize("name", ["sm_90b", "sm_999", "compute_90", "", "SM_90A"])
def test_an_unknown_target_is_an_error_that_lists_the_known_ones(ask, name):
    with pytest.raises(ProfileError) as caught:
        ask(name)
    assert caught.value.code == "UNKNOWN_TARGET"
    assert "sm_100f" in caught.value.fix


def test_an_unknown_target_is_met_with_the_nearest_name():
    with pytest.raises(ProfileError, match="did you mean sm_90"):
        supports(Feature.TMA, "sm_90b")
