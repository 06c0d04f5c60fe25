"""Every cell of the feature table, compiled: a kernel of one instruction assembles for exactly the targets it names."""

from pathlib import Path

import pytest
from cuda.bindings import nvrtc

from advisor.machine.features import FEATURE_TARGETS, Feature, targets

KERNELS = Path(__file__).parents[1] / "data" / "features"

# One cell on each side of every edge that a plan depends on; the whole table is slow.
EDGES = [
    (Feature.MMA_SYNC_FP8, "sm_80"),
    (Feature.MMA_SYNC_FP8, "sm_89"),
    (Feature.MMA_SYNC_BLOCK_SCALE, "sm_100a"),
    (Feature.MMA_SYNC_BLOCK_SCALE, "sm_120f"),
    (Feature.CLUSTER, "sm_89"),
    (Feature.CLUSTER, "sm_90"),
    (Feature.WGMMA, "sm_90"),
    (Feature.WGMMA, "sm_90a"),
    (Feature.WGMMA, "sm_100a"),
    (Feature.TCGEN05, "sm_100"),
    (Feature.TCGEN05, "sm_100f"),
    (Feature.TCGEN05, "sm_120a"),
    (Feature.CLC, "sm_90a"),
    (Feature.CLC, "sm_100"),
    (Feature.CLC_MULTICAST, "sm_100"),
    (Feature.CLC_MULTICAST, "sm_120f"),
]


def compile_error(feature: Feature, target: str) -> str:
    """The compiler's log when the feature's kernel does not assemble for `target`, else nothing."""
    source = (KERNELS / f"{feature.name.lower()}.cu").read_bytes()
    status, program = nvrtc.nvrtcCreateProgram(source, b"kernel.cu", 0, [], [])
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    (status,) = nvrtc.nvrtcCompileProgram(program, 2, [f"-arch={target}".encode(), b"-std=c++17"])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    if status == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return ""
    assert status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION
    return log.decode(errors="replace").strip("\0\n ")


def check_cell(feature: Feature, target: str) -> None:
    error = compile_error(feature, target)
    if target in FEATURE_TARGETS[feature]:
        assert not error, f"{feature} is listed for {target} but does not compile:\n{error}"
    else:
        # A syntax error of ours would "not compile" on every target: only ptxas may be the one that refuses.
        assert "ptxas" in error, f"{feature} is not listed for {target} but compiles, or fails before ptxas:\n{error}"


def test_every_feature_has_a_kernel_and_every_kernel_a_feature():
    assert {path.stem for path in KERNELS.glob("*.cu")} == {feature.name.lower() for feature in Feature}


@pytest.mark.parametrize(("feature", "target"), EDGES, ids=str)
def test_a_feature_compiles_where_its_gate_says_so_and_nowhere_else(feature, target):
    check_cell(feature, target)


@pytest.mark.slow
@pytest.mark.parametrize("feature", list(Feature), ids=lambda feature: feature.name.lower())
def test_the_whole_row_of_a_feature_agrees_with_the_compiler(feature):
    for target in targets():
        check_cell(feature, target)
