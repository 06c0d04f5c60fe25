"""Every check of tcgen05 and tensor memory: a kernel with the fault is named, the same kernel without it is silent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advisor.emulator import KernelFault, Outcome
from advisor.emulator.tcgen05_descriptors import SharedDescriptor
from advisor.errors import RefusedError
from advisor.records.launch import TensorMapParam
from tests.emulator.tcgen05_kernels import TILE, execute, outcome
from tests.emulator.test_tcgen05 import core_matrices, idesc, issue, plain, random_codes

DESCRIPTOR = idesc("f16", "f16", "f16", "f32", 128, 16)
PAIRED = idesc("f16", "f16", "f16", "f32", 256, 16)
STORE = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%lane0], {%tid};"
ONE = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%lane0];"
WAIT_LD = "tcgen05.wait::ld.sync.aligned;"
WAIT_ST = "tcgen05.wait::st.sync.aligned;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def one(group: int = 1, descriptor: int = 0, **options: Any) -> Outcome:
    """One product; `changed` parts make it a faulty one."""
    m = 128 * group
    a, b = random_codes("f16", (m, 16), 1), random_codes("f16", (16, 16), 2)
    share = 16 // group
    shared = np.stack(
        [
            np.concatenate([core_matrices(a[each * 128 :][:128]), core_matrices(b[each * share :][:share])])
            for each in range(group)
        ]
    )
    text = issue("f16", group, plain(0, 128), plain(4096, share), descriptor or (DESCRIPTOR if group == 1 else PAIRED))
    return outcome(text, shared, group=group, used=16, **options)


def run_one(group: int = 1, descriptor: int = 0, **options: Any) -> np.ndarray:
    """Its tensor memory."""
    return one(group, descriptor, **options).typed("OUT")


# name: code, group, the parts that make the fault, options
FAULTS: dict[str, tuple[str, int, dict[str, str], dict[str, Any]]] = {
    "the columns are not freed": ("EMU_TMEM_LEAK", 1, {"dealloc": ""}, {}),
    "freed while a product is in flight": (
        "EMU_TMEM_FREED_EARLY", 1, {"wait": "", "load": ""}, {},
    ),
    "freed while another warp still loads": ("EMU_TMEM_FREED_EARLY", 1, {"done": ""}, {}),
    "read before the commit was waited for": ("EMU_TMEM_BEFORE_COMMIT", 1, {"wait": ""}, {}),
    "read after no commit at all": ("EMU_TMEM_BEFORE_COMMIT", 1, {"commit": "", "wait": ""}, {}),
    "no fence after the wait": ("EMU_TCGEN05_FENCE", 1, {"after": ""}, {}),
    "a load that nobody waits for, then a store": (
        "EMU_TMEM_NOT_WAITED", 1, {"load": f"{ONE} {STORE} {WAIT_ST}"}, {},
    ),
    "a store that nobody waits for, then a load": (
        "EMU_TMEM_NOT_WAITED", 1, {"load": f"{STORE} {ONE} {WAIT_LD}"}, {},
    ),
    "a product overwrites what a load still reads": (
        "EMU_TMEM_NOT_WAITED", 1, {"before": f"{STORE} {WAIT_ST} {ONE} tcgen05.fence::before_thread_sync;"}, {},
    ),
    "a product and another warp's store": ("EMU_TMEM_RACE", 1, {
        "before": "", "ready": "bar.sync 0;",
        "after_ready": f"@!%warp0 bra STORED; bra JOIN; STORED: {STORE} {WAIT_ST} JOIN:"}, {},
    ),
    "no fence before the barrier": (
        "EMU_TCGEN05_FENCE", 1, {"after_ready": f"{STORE} {WAIT_ST} bar.sync 0; tcgen05.fence::after_thread_sync;"}, {},
    ),
    "uninitialised columns": ("EMU_TMEM_UNINITIALISED", 1, {
        "load": f"add.u32 %lane0, %lane0, 64; {ONE} {WAIT_LD} st.global.u32 [%d4], %v0;"}, {},
    ),
    "the lanes of another warp": ("EMU_TMEM_LANES", 1, {"load": "mov.u32 %lane0, %tm; " + ONE + WAIT_LD}, {}),
    "lanes that disagree about the address": (
        "EMU_TMEM_LANES", 1, {"load": f"and.b32 %r40, %tid, 1; add.u32 %lane0, %lane0, %r40; {ONE} {WAIT_LD}"}, {},
    ),
    "outside of the allocation": ("EMU_TMEM_UNALLOCATED", 1, {
        "load": f"add.u32 %lane0, %lane0, 64; {ONE} {WAIT_LD}"}, {"columns": 64},
    ),
    "used in another warp with no barrier after the allocation": ("EMU_TMEM_UNALLOCATED", 1, {
        "meet": "", "address": "mov.u32 %tm, 0; shl.b32 %r20, %warp, 21; or.b32 %lane0, %tm, %r20;",
        "fill": f"{STORE} {WAIT_ST}"}, {},
    ),
    "a number of columns that is no power of two": ("EMU_TMEM_ALLOC", 1, {}, {"columns": 48}),
    "more columns than there are": ("EMU_TMEM_ALLOC", 1, {}, {"columns": 1024}),
    "an allocation after the permit was given up": ("EMU_TMEM_ALLOC", 1, {
        "init": "@%warp0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
        "@%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 32;"}, {"columns": 64},
    ),
    "an allocation that grows": ("EMU_TMEM_ALLOC", 1, {
        "init": "@%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 128;"}, {"columns": 64},
    ),
    "freed with another number of columns": ("EMU_TMEM_ALLOC", 1, {
        "dealloc": "@%warp0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 32;"}, {"columns": 64},
    ),
    "more columns than are left": ("EMU_DEADLOCK", 1, {
        "init": "@%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 512;"}, {"columns": 512},
    ),
    "columns that differ between the CTAs of a pair": ("EMU_TMEM_PAIR", 2, {
        "alloc": "mov.u32 %r40, 64; @%p1 mov.u32 %r40, 128;\n"
        "@%warp0 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%slot], %r40;"}, {},
    ),
    "a peer that frees before the barrier": ("EMU_DEADLOCK", 2, {
        "done": f"bar.sync 0; @!%p1 bra MET; {MEET} MET:", "end": f"@%p1 exit; {MEET} ret;"}, {},
    ),
    "a pair's allocation before the peer has started": ("EMU_PEER_NOT_STARTED", 2, {"begin": ""}, {}),
    "a peer that has left": ("EMU_PEER_EXITED", 2, {"begin": f"{MEET} @!%p1 exit;"}, {}),
    "two groups in one kernel": ("EMU_TCGEN05_MIXED_GROUP", 1, {
        "dealloc": "@%warp0 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %tm, 512;"}, {},
    ),
    "a commit that signals a CTA that does not wait for it": ("EMU_TCGEN05_COMMIT", 1, {
        "begin": MEET,
        "meet": f"fence.mbarrier_init.release.cluster; {MEET}",
        "commit": "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%bar], 3;",
        "issued": f"ISSUED: {MEET} @!%p1 bra DONE;",
        "done": "DONE: bar.sync 0;"}, {"cluster": 2, "ctas": 2, "async_policy": "lazy"},
    ),
    "operands written with no proxy fence": ("EMU_DATA_RACE", 1, {"proxy": ""}, {}),
    "operands written by a peer with no fence": ("EMU_DATA_RACE", 2, {"proxy": ""}, {}),
    "operands overwritten while the product reads them": ("EMU_DATA_RACE", 1, {
        "wait": "st.shared.u32 [%tile], %tid;"}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_is_named(name: str) -> None:
    code, group, changed, options = FAULTS[name]
    with pytest.raises(KernelFault) as caught:
        run_one(group, changed=changed, **options)
    assert caught.value.finding.code == code, str(caught.value)


@pytest.mark.parametrize("policy", ["eager", "lazy", "random", "adversarial"])
@pytest.mark.parametrize("group", [1, 2])
def test_the_kernel_without_a_fault_is_silent(group: int, policy: str) -> None:
    m = 128 * group
    got = run_one(group, async_policy=policy).view(np.float32)
    assert got.shape == (group, 128, 16)
    assert np.isfinite(got).all()
    assert np.count_nonzero(got) > 100 * m // 128


def test_columns_that_nobody_has_written_may_be_read_and_thrown_away() -> None:
    """A load has a fixed shape: what the product has not is brought along, moved about, and not used."""
    wide = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%v0, %v1}, [%lane0];"
    aside = "setp.lt.u32 %p9, %tid, 0; @%p9 add.u32 %v1, %v1, 1; selp.b32 %v0, %v0, %v1, !%p9;"
    load = f"add.u32 %lane0, %lane0, 15; {wide} {WAIT_LD} {aside} st.global.u32 [%d4], %v0;"
    run_one(changed={"load": load})
    with pytest.raises(KernelFault, match="EMU_TMEM_UNINITIALISED") as caught:
        run_one(changed={"load": load.replace("[%d4], %v0", "[%d4], %v1")})
    assert "tensor memory was read" in str(caught.value)


DESCRIPTORS = {
    "a type that the kind lacks": (DESCRIPTOR | 3 << 7, "code 3"),
    "a result that the kind lacks": (DESCRIPTOR | 2 << 4, "type of D"),
    "M that the group lacks": (idesc("f16", "f16", "f16", "f32", 256, 16), "M 256"),
    "N in wrong steps": (idesc("f16", "f16", "f16", "f32", 128, 0), "N 0"),
    "a reserved bit": (DESCRIPTOR | 1 << 23, "reserved"),
    "sparse": (DESCRIPTOR | 1 << 2, "sparse"),
    "f16 results of bf16": (idesc("f16", "bf16", "bf16", "f16", 128, 16), "f16"),
}


@pytest.mark.parametrize("name", list(DESCRIPTORS))
def test_an_instruction_descriptor_that_contradicts_the_instruction_is_named(name: str) -> None:
    descriptor, said = DESCRIPTORS[name]
    with pytest.raises(KernelFault) as caught:
        run_one(descriptor=descriptor)
    assert caught.value.finding.code == "EMU_TCGEN05_DESCRIPTOR"
    assert said in caught.value.finding.message


def test_ctas_of_one_sm_share_its_columns_and_wait_for_each_other() -> None:
    """Four CTAs of 256 columns on one SM (the others are busy): two at a time, the second from column 256."""
    addresses = "st.global.u32 [%d4], %tm;"
    found = outcome(
        "", used=8, columns=256, ctas=4, busy_sms=147,
        changed={"issue": "", "commit": "", "issued": "", "wait": "", "after": "", "load": addresses},
    ).typed("OUT")  # fmt: skip
    firsts = found[:, 0, 0].tolist()
    assert set(firsts) == {0, 256}


WAITING = "WAITING: mbarrier.try_wait.parity{}.shared::cta.b64 %p6, [%bar], 0; @!%p6 bra WAITING;"


@pytest.mark.parametrize("fences", [True, False])
def test_a_relaxed_wait_is_enough_beside_fences_alone(fences: bool) -> None:
    """PTX ISA 9.7.16.6.4.4: the example waits relaxed, and has fence::after_thread_sync behind it."""
    run_one(changed={"wait": WAITING.format("")}, fences=fences)
    relaxed = {"wait": WAITING.format(".relaxed.cta")}
    if fences:
        run_one(changed=relaxed)
    else:
        with pytest.raises(KernelFault, match="EMU_TCGEN05_FENCE") as caught:
            run_one(changed=relaxed, fences=False)
        assert "relaxed" in caught.value.message


LEADER_WAITS = {"wait": f"@!%p1 bra MET; {WAITING.format('')} MET: {MEET}"}


@pytest.mark.parametrize("policy", ["eager", "lazy", "random", "adversarial"])
def test_a_commit_of_a_peer_is_waited_for_by_each_cta_that_it_signals(policy: str) -> None:
    """The leader alone waits; its peer meets it at a barrier, and knows that the product is complete, no more."""
    assert one(2, async_policy=policy).warnings == ()
    found = one(2, changed=LEADER_WAITS, async_policy=policy).warnings
    assert [each.code for each in found] == ["EMU_TCGEN05_COMMIT_UNSEEN"]


# A kernel with fences of one kind alone is held to that kind: name: the parts, whether it is a fault
ONE_KIND: dict[str, tuple[dict[str, str], bool]] = {
    "only before": ({"after_ready": "", "after": ""}, False),
    "only after": ({"before": ""}, False),
    "only before, and one is missing": (
        {"after_ready": f"{STORE} {WAIT_ST} bar.sync 0;", "after": ""}, True,
    ),
    "only after, and one is missing": ({"before": "", "after": ""}, True),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ONE_KIND))
def test_fences_of_one_kind(name: str) -> None:
    changed, faulty = ONE_KIND[name]
    if not faulty:
        run_one(changed=changed)
        return
    with pytest.raises(KernelFault) as caught:
        run_one(changed=changed)
    assert caught.value.finding.code == "EMU_TCGEN05_FENCE", str(caught.value)


# --- tiles of tensor copies -------------------------------------------------------------------------------------------

ROWS = 128 + 16  # of A and of B, 64 elements of K each
TILED = {
    "init": "@%first mbarrier.init.shared::cta.b64 [%bar], 1; mov.u32 %r50, full;\n"
    "@%first mbarrier.init.shared::cta.b64 [%r50], 1;",
    "copy": f"""
    mov.u64 %d30, map; mov.u32 %r51, 0;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r50], {ROWS * 128};
    @%first cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
        [%tile], [%d30, {{%r51, %r51}}], [%r50];
FULL:
    mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r50], 0;
    @!%p6 bra FULL;
""",
}


def run_tiled(
    *, swizzle: str = "128B", stride: int = 1024, start: int = 0, descriptor: int = DESCRIPTOR, kind: str = "f16",
    dtype: str = "float16", **options: Any,
) -> Outcome:  # fmt: skip
    """A product of K 64 whose operands one tensor copy brings, under 128-byte swizzling."""
    codes = random_codes("f16", (ROWS, 64), 1)
    places = [
        SharedDescriptor(TILE + start, 16, stride, 0, swizzle),
        SharedDescriptor(TILE + 16384, 16, 1024, 0, "128B"),
    ]
    a, b = (each.encode() for each in places)
    lines = [f"mov.b32 %r30, {descriptor};"]
    for step in range(4):
        lines += [
            f"mov.b64 %d20, {a + 2 * step}; mov.b64 %d21, {b + 2 * step}; setp.ne.b32 %p8, {step}, 0;",
            f"tcgen05.mma.cta_group::1.kind::{kind} [%tm], %d20, %d21, %r30, %p8;",
        ]
    tile = TensorMapParam(
        name="map", buffer="IN", dtype=dtype, rank=2, global_dim=(64, ROWS), global_stride_bytes=(128,),
        box_dim=(64, ROWS), element_strides=(1, 1), swizzle="128B",
    )  # fmt: skip
    return outcome(
        "\n".join(lines), codes.view(np.uint8).reshape(1, -1), used=16, changed=TILED, tile=tile, **options
    )  # fmt: skip


def test_a_product_of_a_tile_is_right_and_silent() -> None:
    found = run_tiled()
    codes = random_codes("f16", (ROWS, 64), 1).view(np.float16).astype(np.float64)
    np.testing.assert_allclose(
        found.typed("OUT").view(np.float32)[0], codes[:128] @ codes[128:].T, rtol=1e-5, atol=1e-5
    )
    assert found.warnings == ()
    assert found.multiply_adds == {"kind::f16 cta_group::1": 128 * 16 * 64}
    assert found.instructions_by_class["tensor core"] == found.instructions["tcgen05.mma"] == 4


TILES: dict[str, dict[str, Any]] = {
    "another swizzle": {"swizzle": "64B"},
    "the stride of another swizzle": {"stride": 512},
    "a start inside of the tile": {"start": 16},
    "the other major": {"descriptor": DESCRIPTOR | 1 << 15},
    "elements of another size": {
        "kind": "tf32", "descriptor": idesc("tf32", "tf32", "tf32", "f32", 128, 16)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", list(TILES))
def test_a_descriptor_that_contradicts_the_tile_is_named(name: str) -> None:
    with pytest.raises(KernelFault) as caught:
        run_tiled(**TILES[name])
    assert caught.value.finding.code == "EMU_DESCRIPTOR_TILE", str(caught.value)


def test_elements_of_another_type_are_a_warning() -> None:
    found = run_tiled(descriptor=idesc("f16", "bf16", "bf16", "f32", 128, 16))
    assert {each.code for each in found.warnings} == {"EMU_OPERAND_TYPE"}


def test_what_is_not_executed_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match=r"tcgen05\.mma\.sp"):
        execute("tcgen05.mma.sp.cta_group::1.kind::f16 [%tm], %d20, %d20, [%tm], %r30, %p8;", used=8)
