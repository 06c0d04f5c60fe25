"""What the `.target` of a module allows: features of instructions, devices, and what the sm_120 family cannot load."""

from __future__ import annotations

import pytest

from advisor.emulator import KernelFault, load_program, run
from advisor.emulator.targets import check_device, default_profile
from advisor.errors import InputError, ProfileError, RefusedError
from advisor.machine.profile_file import load_profile
from advisor.records.launch import BufferInit, ElementMapParam, PtrParam, ResolvedLaunch
from tests.emulator.kernels import module

BARRIER = ".shared .align 8 .b64 bar; .shared .align 128 .b8 stage[1024];"
MAP = "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
NEEDS = {
    "wgmma.fence.sync.aligned;": ("sm_90", "ARCH_SUFFIX_REQUIRED"),
    "setmaxnreg.inc.sync.aligned.u32 40;": ("sm_100", "ARCH_SUFFIX_REQUIRED"),
    "elect.sync %r5|%p1, -1;": ("sm_89", "FEATURE_MISSING"),
    "barrier.cluster.arrive.aligned;": ("sm_89", "NO_CLUSTERS"),
    "mapa.shared::cluster.u32 %r5, %r0, 0;": ("sm_80", "NO_CLUSTERS"),
    f"{MAP} [stage], [%d0, {{%r0}}], [bar];": ("sm_89", "FEATURE_MISSING"),
    "cp.async.bulk.prefetch.L2.global [%d0], 64;": ("sm_89", "FEATURE_MISSING"),
    f"{MAP}.cta_group::2 [stage], [%d0, {{%r0}}], [bar];": ("sm_120a", "NO_TCGEN05"),
    "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [stage], [bar];": (
        "sm_90a", "NO_CLC",
    ),
    "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;": ("sm_120f", "NO_TCGEN05"),
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r0], %r0, [%r1];": ("sm_89", "FEATURE_MISSING"),
    "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;": ("sm_89", "FEATURE_MISSING"),
}  # fmt: skip


@pytest.mark.parametrize("code", list(NEEDS))
def test_an_instruction_that_the_target_lacks_is_refused_with_its_line(code):
    target, error = NEEDS[code]
    with pytest.raises(RefusedError) as caught:
        load_program(module(f"{code} ret;", declarations=BARRIER, target=target))
    assert caught.value.code == error
    assert caught.value.numbers["line"] == 17
    assert target in str(caught.value)


def test_an_unknown_target_is_refused():
    with pytest.raises(ProfileError) as caught:
        load_program(module("ret;", target="sm_64"))
    assert caught.value.code == "UNKNOWN_TARGET"


@pytest.mark.parametrize(
    ("target", "name"),
    [("sm_80", "h200"), ("sm_90a", "h200"), ("sm_100a", "b200"), ("sm_100f", "b200"), ("sm_103a", "b300"),
     ("sm_120", "rtx_pro_6000"), ("sm_120a", "rtx_pro_6000")],
)  # fmt: skip
def test_the_device_by_default_runs_the_target(target, name):
    assert default_profile(target) == name
    check_device(target, load_profile(name))


@pytest.mark.parametrize(
    ("target", "name"),
    [("sm_90a", "b200"), ("sm_100a", "h200"), ("sm_100a", "b300"), ("sm_100", "h200"), ("sm_100f", "rtx_pro_6000")],
)
def test_a_device_that_does_not_run_the_target_is_refused(target, name):
    with pytest.raises(InputError) as caught:
        check_device(target, load_profile(name))
    assert caught.value.code == "EMU_LAUNCH_REFUSED"
    assert f"--profile {default_profile(target)}" in caught.value.fix


def test_a_target_that_no_shipped_gpu_runs_is_not_sent_to_one_of_them():
    with pytest.raises(InputError) as caught:
        check_device("sm_110a", load_profile("b200"))
    assert caught.value.fix == "pass --profile with a profile file of compute capability 11.0: no shipped GPU runs it"


@pytest.mark.parametrize(("target", "name"), [("sm_80", "b200"), ("sm_90", "rtx_pro_6000"), ("sm_100f", "b300")])
def test_a_device_that_runs_it_all_the_same(target, name):
    check_device(target, load_profile(name))


PACKED = """.version 8.8
.target {target}
.address_size 64
.shared .align 128 .b8 stage[64];
.shared .align 8 .b64 bar;
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 out)
{{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<4>;
    mov.b64 %d0, map; mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; mov.u32 %r1, 0;
    @%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.proxy.async.shared::cta; bar.sync 0;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
    @%p0 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [stage], [%d0, {{%r1}}], [bar];
    W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; ret;
}}"""


def load_packed(target: str) -> None:
    shape = ResolvedLaunch(
        entry="kernel", target=target, grid_blocks=(1, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1),
        dynamic_smem_bytes=0,
        params=[
            ElementMapParam(
                name="map", buffer="IN", dtype="16U4_ALIGN8B", rank=1, global_dim=[128], global_stride_bytes=[],
                box_dim=[128], element_strides=[1], swizzle="none", interleave="none", l2_promotion="none",
                oob_fill="zero",
            ),
            PtrParam(name="out", buffer="IN"),
        ],
        buffers={"IN": BufferInit(shape=[64], dtype="float4_e2m1fn_x2", init="randint")},
    )  # fmt: skip
    run(PACKED.format(target=target), shape)


def test_the_sm_120_family_loads_no_elements_of_four_bits():
    load_packed("sm_100a")
    with pytest.raises(KernelFault, match="sm_120a loads no elements of 4 bits") as caught:
        load_packed("sm_120a")
    assert caught.value.code == "EMU_TENSOR_COPY"
