"""Which PTX feature exists on which exact compile target, and which cubin loads on which GPU. Imports only `errors`.

A gate names a feature and exact targets, never `>= 100`: sm_120 has Cluster Launch Control and no tcgen05, sm_90 has
TMA and no wgmma. Every cell of the table is compiled by `tests/machine/test_feature_compiles.py`.
"""

from __future__ import annotations

import difflib
import re
from enum import StrEnum

from advisor.errors import DeviceError, ProfileError, RefusedError


class Feature(StrEnum):
    """Named as the PTX instruction family is named."""

    CP_ASYNC = "cp.async"
    MMA_SYNC = "mma.sync"  # 16-bit and tf32 operands
    MMA_SYNC_FP8 = "mma.sync.fp8"
    MMA_SYNC_BLOCK_SCALE = "mma.sync.block_scale"
    CLUSTER = "cluster"  # cluster launch, barrier.cluster, mapa, DSMEM
    TMA = "cp.async.bulk.tensor"
    TMA_MULTICAST = "cp.async.bulk.tensor.multicast"
    TMA_CTA_GROUP = "cp.async.bulk.tensor.cta_group"  # a load that signals the barrier of the CTA pair's leader
    ST_ASYNC = "st.async"
    GRIDDEPCONTROL = "griddepcontrol"  # programmatic dependent launch
    ELECT_SYNC = "elect.sync"
    SYNC_RESTRICT = "fence.proxy.async.sync_restrict"
    SETMAXNREG = "setmaxnreg"
    WGMMA = "wgmma"
    TCGEN05 = "tcgen05"
    TCGEN05_I8 = "tcgen05.mma.i8"
    TCGEN05_LD_RED = "tcgen05.ld.red"
    CLC = "clusterlaunchcontrol"
    CLC_MULTICAST = "clusterlaunchcontrol.multicast"


_TARGETS = (
    "sm_80", "sm_86", "sm_87", "sm_88", "sm_89",
    "sm_90", "sm_90a",
    "sm_100", "sm_100a", "sm_100f", "sm_103", "sm_103a", "sm_103f",
    "sm_110", "sm_110a", "sm_110f",
    "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a", "sm_121f",
)  # fmt: skip

_AMPERE = frozenset(_TARGETS)
_ADA = _AMPERE - {"sm_80", "sm_86", "sm_87", "sm_88"}
_HOPPER = _ADA - {"sm_89"}
_BLACKWELL = _HOPPER - {"sm_90", "sm_90a"}
_BLACKWELL_SUFFIXED = frozenset(each for each in _BLACKWELL if each[-1] in "af")
_TENSOR_MEMORY = frozenset({"sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_110a", "sm_110f"})

# Assembled with ptxas 13.0.88; ptxas 13.5.37 agrees.
FEATURE_TARGETS: dict[Feature, frozenset[str]] = {
    Feature.CP_ASYNC: _AMPERE,
    Feature.MMA_SYNC: _AMPERE,
    Feature.MMA_SYNC_FP8: _ADA,
    Feature.MMA_SYNC_BLOCK_SCALE: frozenset({"sm_120a", "sm_120f", "sm_121a", "sm_121f"}),
    Feature.CLUSTER: _HOPPER,
    Feature.TMA: _HOPPER,
    Feature.TMA_MULTICAST: _HOPPER,
    Feature.TMA_CTA_GROUP: _TENSOR_MEMORY,
    Feature.ST_ASYNC: _HOPPER,
    Feature.GRIDDEPCONTROL: _HOPPER,
    Feature.ELECT_SYNC: _HOPPER,
    Feature.SYNC_RESTRICT: _HOPPER,
    Feature.SETMAXNREG: _BLACKWELL_SUFFIXED | {"sm_90a"},
    Feature.WGMMA: frozenset({"sm_90a"}),
    Feature.TCGEN05: _TENSOR_MEMORY,
    Feature.TCGEN05_I8: frozenset({"sm_100a", "sm_110a"}),
    Feature.TCGEN05_LD_RED: frozenset({"sm_103a", "sm_103f", "sm_110a", "sm_110f"}),
    Feature.CLC: _BLACKWELL,
    Feature.CLC_MULTICAST: _BLACKWELL_SUFFIXED,
}

# Where multicast assembles but runs through a slow path: PTX ISA, "substantially reduced performance".
SLOW_TMA_MULTICAST = frozenset(
    {"sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a", "sm_121f"}
)

_REFUSAL_CODES = {
    Feature.CLC: "NO_CLC",
    Feature.CLC_MULTICAST: "NO_CLC",
    Feature.WGMMA: "NO_WGMMA",
    Feature.TCGEN05: "NO_TCGEN05",
    Feature.TCGEN05_I8: "NO_TCGEN05",
    Feature.TCGEN05_LD_RED: "NO_TCGEN05",
    Feature.TMA_CTA_GROUP: "NO_TCGEN05",
    Feature.CLUSTER: "NO_CLUSTERS",
}

_TARGET = re.compile(r"sm_(\d+)(\d)([af]?)")


def targets() -> tuple[str, ...]:
    """Every compile target that the table knows, by architecture."""
    return _TARGETS


def supports(feature: Feature, target: str) -> bool:
    """Whether code compiled for exactly `target` may hold the feature. Raises ProfileError UNKNOWN_TARGET."""
    _known(target)
    return target in FEATURE_TARGETS[feature]


def require(feature: Feature, target: str) -> None:
    """Raise RefusedError unless `target` has the feature.

    ARCH_SUFFIX_REQUIRED when the same architecture has it under an `a` or `f` target, else NO_CLC, NO_WGMMA,
    NO_TCGEN05, NO_CLUSTERS or FEATURE_MISSING.
    """
    if supports(feature, target):
        return
    having = sorted(FEATURE_TARGETS[feature], key=_TARGETS.index)
    siblings = [each for each in having if each.rstrip("af") == target.rstrip("af")]
    numbers: dict[str, object] = {"feature": str(feature), "target": target, "targets": having}
    if siblings:
        raise RefusedError(
            "ARCH_SUFFIX_REQUIRED",
            f"{feature} does not assemble for {target}: it needs an architecture- or family-specific target",
            fix=f"compile for {' or '.join(siblings)}",
            numbers=numbers,
        )
    raise RefusedError(
        _REFUSAL_CODES.get(feature, "FEATURE_MISSING"),
        f"{target} has no {feature}: only {', '.join(having)} do",
        fix="plan for a target that has it, or let the planner choose a family that runs there",
        numbers=numbers,
    )


def loadable(target: str, cc: tuple[int, int]) -> bool:
    """Whether a cubin of `target` loads on a GPU of compute capability `cc`.

    A plain target runs within its major version from its own minor version on; `f` within its family, which is the
    same range; `a` on exactly its own version. Raises ProfileError UNKNOWN_TARGET.
    """
    _known(target)
    major, minor, suffix = _parts(target)
    if suffix == "a":
        return cc == (major, minor)
    return cc[0] == major and cc[1] >= minor


def require_loadable(target: str, cc: tuple[int, int]) -> None:
    """Raise DeviceError CUBIN_NOT_LOADABLE unless a cubin of `target` loads on `cc`."""
    if loadable(target, cc):
        return
    fitting = [each for each in _TARGETS if loadable(each, cc)]
    raise DeviceError(
        "CUBIN_NOT_LOADABLE",
        f"a cubin for {target} does not load on compute capability {cc[0]}.{cc[1]}",
        fix=f"build for {' or '.join(fitting)}" if fitting else "no known target builds for this GPU",
        numbers={"target": target, "compute_capability": list(cc), "loadable": fitting},
    )


def compute_capability(target: str) -> tuple[int, int]:
    """The compute capability that a target is named after: sm_100a -> (10, 0)."""
    _known(target)
    major, minor, _ = _parts(target)
    return major, minor


def _parts(target: str) -> tuple[int, int, str]:
    match = _TARGET.fullmatch(target)
    assert match is not None  # every name of the table has this form
    return int(match[1]), int(match[2]), match[3]


def _known(target: str) -> None:
    if target in _AMPERE:
        return
    near = difflib.get_close_matches(target, _TARGETS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ProfileError(
        "UNKNOWN_TARGET",
        f"unknown compile target {target!r}{hint}",
        fix=f"known targets: {', '.join(_TARGETS)}",
        numbers={"target": target, "known": list(_TARGETS)},
    )
