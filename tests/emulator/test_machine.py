"""What kernels compute: control flow, memory of every space, lanes together, barriers, clusters."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import KernelFault, run
from advisor.errors import RefusedError
from tests.emulator.kernels import execute, launch, module, results
from tests.emulator.test_ptx import CALL, CALLEE

STORE = "st.global.u32 [%d4], %r9; ret;"
I64 = np.arange(64)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scatter_threads", [64, 96, 50])
def test_loops_of_different_length_in_every_lane(seed, scatter_threads):
    body = f"""
        mov.u32 %r9, 0; mov.u32 %r8, 0; and.b32 %r7, %r3, 7;
        L: add.s32 %r9, %r9, %r3; add.s32 %r8, %r8, 1; setp.le.u32 %p1, %r8, %r7; @%p1 bra L;
        {STORE}"""
    found = results(body, launch(scatter_threads, 4), seed=seed)
    index = np.arange(scatter_threads * 4)
    assert (found == index * (index % 8 + 1)).all()


def test_nested_divergence_with_early_exits():
    body = f"""
        and.b32 %r4, %r0, 3; setp.eq.u32 %p1, %r4, 3; @%p1 ret;
        setp.lt.u32 %p2, %r0, 20; @%p2 bra A;
        setp.lt.u32 %p3, %r0, 40; @%p3 bra B; mov.u32 %r9, 30; bra C;
        B: mov.u32 %r9, 20; bra C;
        A: and.b32 %r5, %r0, 1; setp.eq.u32 %p4, %r5, 0; mov.u32 %r9, 10; @%p4 add.s32 %r9, %r9, 1;
        C: {STORE}"""
    wanted = np.where(I64 < 20, 10 + (I64 % 2 == 0), np.where(I64 < 40, 20, 30))
    assert (results(body) == np.where(I64 % 4 == 3, 0, wanted)).all()


def test_lanes_meet_again_before_the_next_warp_instruction():
    body = f"""
        and.b32 %r4, %r0, 1; setp.eq.u32 %p1, %r4, 0; mov.u32 %r9, 5; @%p1 bra A; mov.u32 %r9, 7;
        A: shfl.sync.bfly.b32 %r9, %r9, 1, 0x1f, 0xffffffff; {STORE}"""
    assert (results(body) == np.where(I64 % 2 == 0, 7, 5)).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_shuffle_waits_until_the_lanes_that_it_names_have_exited(seed):
    body = f"""
        and.b32 %r4, %r0, 1; setp.eq.u32 %p1, %r4, 1; @%p1 bra SLOW;
        shfl.sync.bfly.b32 %r9, %r3, 2, 0x1f, 0xffffffff; {STORE}
        SLOW: mov.u32 %r5, 0; L: add.s32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 9; @%p2 bra L; ret;"""
    assert (results(body, seed=seed) == np.where(I64 % 2 == 0, I64 ^ 2, 0)).all()


@pytest.mark.parametrize(
    "barrier", ["bar.sync 0;", "barrier.cluster.arrive; barrier.cluster.wait;", "bar.warp.sync -1;"]
)
@pytest.mark.parametrize("seed", range(2))
def test_a_barrier_counts_a_warp_of_which_some_lanes_exit(barrier, seed):
    body = f"and.b32 %r4, %r0, 31; setp.ge.u32 %p1, %r4, 16; @%p1 bra E; {barrier} st.global.u32 [%d4], 1; E: ret;"
    found = results(body, launch(64, 2, 2), seed=seed)
    assert (found == np.tile([1] * 16 + [0] * 16, 4)).all()


def test_lanes_that_arrive_at_the_cluster_barrier_apart_wait_for_each_other():
    body = f"""
        .shared .align 4 .b8 box[256]; .reg .b32 %s<4>; mov.u32 %s1, box; shl.b32 %s2, %r0, 2; add.s32 %s1, %s1, %s2;
        and.b32 %r4, %r0, 31; setp.ge.u32 %p1, %r4, 16; @%p1 bra A;
        barrier.cluster.arrive; barrier.cluster.wait; xor.b32 %s1, %s1, 64; ld.shared.u32 %r9, [%s1]; {STORE}
        A: st.shared.u32 [%s1], %r0; barrier.cluster.arrive; barrier.cluster.wait; ret;"""
    wanted = np.where(I64 % 32 < 16, I64 + 16, 0)
    assert (results(body, launch(64, 2, 2)) == np.tile(wanted, 2)).all()


@pytest.mark.parametrize(("fence", "synchronises"), [("fence.sc.gpu", 1), ("membar.gl", 1), ("fence.gpu", 0)])
def test_only_sequentially_consistent_fences_synchronise_by_themselves(fence, synchronises):
    """The second CTA comes to its fence much later; only an .sc fence orders it after the first one's."""
    body = f"""
        setp.ne.u32 %p1, %r0, 0; @%p1 ret; setp.eq.u32 %p2, %r1, 0; @!%p2 bra SECOND;
        st.global.u32 [%d1], 7; {fence}; ret;
        SECOND: mov.u32 %r5, 0; L: add.s32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 99; @%p3 bra L;
        {fence}; ld.global.u32 %r9, [%d1]; st.global.u32 [%d1+128], %r9; ret;"""
    if synchronises:
        assert results(body, launch(64, 2))[32] == 7
    else:
        with pytest.raises(KernelFault, match="EMU_DATA_RACE"):
            results(body, launch(64, 2))


@pytest.mark.parametrize("seed", range(3))
def test_halves_of_a_warp_have_barriers_of_their_own(seed):
    """Each half writes its words and reads its neighbour's; in each half one lane comes late."""
    body = f"""
        .shared .align 4 .b8 box[256]; .reg .b32 %s<6>; mov.u32 %s1, box; shl.b32 %s2, %r0, 2; add.s32 %s1, %s1, %s2;
        and.b32 %r4, %r0, 15; setp.ne.u32 %p1, %r4, 3; @%p1 bra A;
        mov.u32 %r5, 0; L: add.s32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 9; @%p2 bra L;
        A: st.shared.u32 [%s1], %r3; and.b32 %r6, %r0, 16; mov.u32 %r7, 0xffff; shl.b32 %r7, %r7, %r6;
        bar.warp.sync %r7; xor.b32 %s3, %s1, 4; ld.shared.u32 %r9, [%s3]; {STORE}"""
    assert (results(body, seed=seed) == I64 ^ 1).all()


def test_a_branch_table():
    body = f"""
        and.b32 %r4, %r0, 3;
        ts: .branchtargets A, B, C, C;
        brx.idx %r4, ts;
        A: mov.u32 %r9, 100; bra E;
        B: mov.u32 %r9, 200; bra E;
        C: mov.u32 %r9, 300;
        E: {STORE}"""
    assert (results(body) == np.array([100, 200, 300, 300])[I64 % 4]).all()


def test_device_functions_are_executed():
    body = f"{CALL} {STORE}"
    assert (results(body, declarations=CALLEE) == 2 * I64).all()


def test_local_memory_is_each_threads_own():
    body = f"""
        .local .align 8 .b8 frame[32]; .reg .b64 %s<4>;
        mov.u64 %s1, frame; cvta.local.u64 %s2, %s1;
        st.local.u32 [%s1+4], %r3; st.u32 [%s2+8], 7; ld.u32 %r4, [%s2+4]; ld.local.u32 %r5, [%s1+8];
        add.s32 %r9, %r4, %r5; {STORE}"""
    assert (results(body) == I64 + 7).all()


def test_shared_memory_static_dynamic_and_generic():
    declarations = ".shared .align 4 .b8 fixed[256];\n.extern .shared .align 128 .b8 more[];"
    body = f"""
        .reg .b32 %s<6>; .reg .b64 %g<4>;
        mov.u32 %s1, fixed; mov.u32 %s2, more; shl.b32 %s3, %r0, 2; add.s32 %s1, %s1, %s3; add.s32 %s2, %s2, %s3;
        st.shared.u32 [%s1], %r3; bar.sync 0;
        cvt.u64.u32 %g1, %s1; cvta.shared.u64 %g2, %g1; ld.u32 %r5, [%g2];
        mul.lo.u32 %r5, %r5, 3; st.shared.u32 [%s2], %r5; ld.shared.u32 %r9, [%s2]; {STORE}"""
    found = results(body, launch(64, 3, dynamic=256), declarations=declarations)
    assert (found == np.arange(192) * 3).all()


def test_the_shared_window_starts_at_a_kilobyte_with_dynamic_memory_at_its_alignment():
    declarations = ".shared .align 4 .b8 fixed[20];\n.extern .shared .align 1024 .b8 more[];"
    body = f"mov.u32 %r9, more; {STORE}"
    assert (results(body, launch(dynamic=64), declarations=declarations) == 2048).all()


def test_vectors_and_narrow_types():
    body = """
        and.b32 %r4, %r0, 15; mul.wide.u32 %d5, %r4, 16; add.s64 %d6, %d0, %d5; add.s64 %d7, %d1, %d5;
        ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%d6];
        setp.gt.u32 %p1, %r0, 15; @%p1 ret;
        st.global.v2.u32 [%d7], {%r8, %r7}; st.global.v2.u32 [%d7+8], {%r6, %r5}; ret;"""
    assert (results(body).reshape(16, 4) == I64.reshape(16, 4)[:, ::-1]).all()
    signed = f"ld.global.s8 %r9, [%d3]; {STORE}"
    values = np.array([127, 128, 255, 0] * 16, np.uint32)
    assert (results(signed, inputs={"IN": values}) == np.array([127, -128, -1, 0] * 16, np.int32).view(np.uint32)).all()


@pytest.mark.parametrize(
    ("operation", "operand", "wanted"),
    [
        ("add.u32", "1", [64]),
        ("max.s32", "%r3", [63]),
        ("or.b32", "%r3", [63]),
        ("inc.u32", "9", [4]),
        ("exch.b32", "5", [5]),
    ],
)
@pytest.mark.parametrize("form", ["red", "atom"])
def test_atomics_on_one_address(form, operation, operand, wanted):
    if form == "red" and not operation.startswith("exch"):  # there is no red.exch
        body = f"red.global.{operation} [%d1], {operand}; ret;"
    else:
        body = f"atom.global.{operation} %r9, [%d1], {operand}; ret;"
    assert results(body)[0] in wanted


@pytest.mark.parametrize("form", ["red", "atom"])
def test_vectors_of_atomics_update_each_element(form):
    to = "{%f4, %f5}, " if form == "atom" else ""
    body = f"""
        and.b32 %r4, %r0, 15; mul.wide.u32 %d5, %r4, 8; add.s64 %d6, %d1, %d5; mov.f32 %f0, 0f3F800000;
        mov.f32 %f1, 0f40000000; {form}.global.add.v2.f32 {to}[%d6], {{%f0, %f1}}; ret;"""
    found = results(body, launch(64, 2, count=32)).view(np.float32)
    assert (found == np.tile([8.0, 16.0], 16)).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("red.shared::cta.add.v2.f32 [lock], {%f0, %f0};", "of global memory"),
        ("red.global.add.v2.u32 [%d1], {%r0, %r0};", "floating-point types"),
        ("red.global.add.v8.f32 [%d1], {%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0};", "up to 16 bytes"),
    ],
)
def test_vectors_of_atomics_that_do_not_exist(text, message):
    with pytest.raises(RefusedError, match=message):
        results(f"{text} ret;", declarations=".shared .align 16 .b32 lock;")


def test_a_kernel_that_may_have_256_registers_gets_255():
    text = module("mov.u32 %r9, 1; " + STORE).replace(".param .u32 n)", ".param .u32 n) .maxnreg 256")
    assert run(text, launch(256)).clusters == 1


NAN = float("nan")


@pytest.mark.parametrize(
    ("form", "values", "wanted"),
    [
        ("max", [1.5, -7.0, 3.0], 3.0),
        ("min", [1.5, -7.0, 3.0], -7.0),
        ("max.abs", [1.5, -7.0, 3.0], 7.0),
        ("min", [0.0, -0.0, 0.0], -0.0),
        ("max", [-0.0, 0.0, -0.0], 0.0),
        ("max", [NAN, -2.0, NAN], -2.0),
        ("max", [NAN, NAN, NAN], NAN),
        ("min.NaN", [NAN, -2.0, 5.0], NAN),
        ("min.NaN", [4.0, -2.0, 5.0], -2.0),
    ],
)
def test_reductions_of_floats_over_a_warp(form, values, wanted):
    body = f"ld.global.u32 %r4, [%d3]; redux.sync.{form}.f32 %r9, %r4, 0xffffffff; {STORE}"
    given = np.resize(np.array(values, np.float32), 64)
    bits = 0x7FFFFFFF if np.isnan(wanted) else np.array(wanted, np.float32).view(np.uint32)
    assert (execute(body, inputs={"IN": given}).typed("OUT") == bits).all()


def test_atomics_give_each_thread_its_own_ticket():
    body = """
        atom.global.add.u32 %r9, [%d1], 1; mul.wide.u32 %d5, %r9, 4;
        add.s64 %d6, %d1, %d5; st.global.u32 [%d6+4], 1; ret;"""
    found = results(body, launch(64, 3, count=200))
    assert found[0] == 192
    assert (found[1:193] == 1).all()


def test_compare_and_swap_in_shared_memory_elects_one():
    declarations = ".shared .align 4 .u32 lock;"
    body = f"""
        setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [lock], 0; bar.sync 0;
        atom.shared.cas.b32 %r4, [lock], 0, 1; setp.eq.u32 %p2, %r4, 0; selp.u32 %r9, 1, 0, %p2; {STORE}"""
    assert results(body, declarations=declarations).sum() == 1


def test_votes_matches_and_reductions():
    body = """
        and.b32 %r4, %r0, 3; setp.eq.u32 %p1, %r4, 1;
        vote.sync.ballot.b32 %r5, %p1, 0xffffffff; vote.sync.any.pred %p2, %p1, 0xffffffff; selp.u32 %r6, 1, 0, %p2;
        match.any.sync.b32 %r7, %r4, 0xffffffff; redux.sync.add.u32 %r8, %r4, 0xffffffff;
        add.s32 %r9, %r5, %r7; add.s32 %r9, %r9, %r6; add.s32 %r9, %r9, %r8; st.global.u32 [%d4], %r9; ret;"""
    same = sum(1 << lane for lane in range(0, 32, 4))
    wanted = (same << 1) + (same << (I64 % 4)) + 1 + 48
    assert (results(body) == (wanted & 0xFFFFFFFF)).all()


def test_elect_chooses_one_lane_of_each_warp():
    body = f"elect.sync _|%p1, 0xffffffff; selp.u32 %r9, 1, 0, %p1; {STORE}"
    assert (results(body) == (I64 % 32 == 0)).all()


def test_special_registers_of_threads_and_blocks():
    body = """
        mov.u32 %r4, %tid.y; mov.u32 %r5, %laneid; mov.u32 %r6, %nctaid.x; mov.u32 %r7, %warpid;
        shl.b32 %r6, %r6, 8; shl.b32 %r7, %r7, 16; shl.b32 %r4, %r4, 24;
        or.b32 %r9, %r5, %r6; or.b32 %r9, %r9, %r7; or.b32 %r9, %r9, %r4;
        mov.u32 %r10, %tid.y; mov.u32 %r11, %ntid.x; mad.lo.u32 %r12, %r10, %r11, %r0; mul.wide.u32 %d5, %r12, 4;
        add.s64 %d6, %d1, %d5; st.global.u32 [%d6], %r9; ret;"""
    shape = launch(64).model_copy(update={"block": (16, 4, 1)})
    found = results(body, shape)
    assert (found == (I64 % 32 | 1 << 8 | (I64 // 32) << 16 | (I64 // 16) << 24)).all()


def test_named_barriers_of_two_halves_and_an_arrival():
    declarations = ".shared .align 4 .b8 box[256];"
    body = f"""
        .reg .b32 %s<6>; mov.u32 %s1, box; shl.b32 %s2, %r0, 2; add.s32 %s1, %s1, %s2;
        setp.ge.u32 %p1, %r0, 32; @%p1 bra CONSUMER;
        st.shared.u32 [%s1], %r3; bar.arrive 3, 64; mov.u32 %r9, 1; bra END;
        CONSUMER: bar.sync 3, 64; ld.shared.u32 %r9, [%s1+-128];
        END: {STORE}"""
    for seed in range(4):
        found = results(body, declarations=declarations, seed=seed)
        assert (found == np.where(I64 < 32, 1, I64 - 32)).all()


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("bar.red.popc.u32 %r9, 0, %p1;", 40),
        ("bar.red.popc.u32 %r9, 0, !%p1;", 24),
        ("bar.red.and.pred %p2, 0, 64, %p1; selp.u32 %r9, 1, 0, %p2;", 0),
        ("bar.red.or.pred %p2, 0, 64, %p1; selp.u32 %r9, 1, 0, %p2;", 1),
    ],
)
def test_a_barrier_that_counts_predicates(form, wanted):
    body = f"setp.lt.u32 %p1, %r0, 40; {form} bar.sync 0; {STORE}"
    assert (results(body, launch(64, 3)) == wanted).all()


def test_many_waves_of_ctas_run():
    body = f"mov.u32 %r9, %smid; setp.ge.u32 %p1, %r9, 132; @%p1 trap; add.s32 %r9, %r3, 1; {STORE}"
    outcome = execute(body, launch(256, 3000), registers=255)
    assert (outcome.typed("OUT") == np.arange(256 * 3000) + 1).all()
    assert outcome.clusters == 3000


CLUSTER = """
    .reg .b32 %s<8>;
    mov.u32 %s1, box; shl.b32 %s2, %r0, 2; add.s32 %s1, %s1, %s2; st.shared.u32 [%s1], %r3;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    mov.u32 %s3, %cluster_ctarank; xor.b32 %s4, %s3, 1; mapa.shared::cluster.u32 %s5, %s1, %s4;
    ld.shared::cluster.u32 %r9, [%s5];
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    st.global.u32 [%d4], %r9; ret;"""
BOX = ".shared .align 4 .b8 box[256];"


@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_reads_its_peers_shared_memory(seed):
    found = results(CLUSTER, launch(64, 6, 2), declarations=BOX, seed=seed)
    index = np.arange(6 * 64)
    assert (found == (index ^ 64)).all()


def test_a_shared_address_carries_the_rank_of_its_cta():
    body = f"""
        mov.u32 %r9, box; getctarank.shared::cluster.u32 %r8, %r9; shr.u32 %r9, %r9, 24; add.s32 %r9, %r9, %r8;
        {STORE}"""
    found = results(body, launch(64, 4, 2), declarations=BOX)
    assert (found.reshape(4, 64) == np.array([0, 2, 0, 2])[:, None]).all()


@pytest.mark.parametrize("policy", ["eager", "lazy", "random", "adversarial"])
def test_copies_of_threads_land_by_their_wait(policy):
    declarations = ".shared .align 16 .b8 stage[1024];"
    body = f"""
        .reg .b32 %s<6>; mov.u32 %s1, stage; shl.b32 %s2, %r0, 2; add.s32 %s1, %s1, %s2;
        cp.async.ca.shared.global [%s1], [%d3], 4; cp.async.commit_group;
        setp.ge.u32 %p1, %r0, 32; selp.u32 %r4, 0, 3, %p1;
        cp.async.ca.shared.global [%s1+512], [%d3], 4, %r4; cp.async.commit_group;
        cp.async.wait_group 1; ld.shared.u32 %r5, [%s1];
        cp.async.wait_all; ld.shared.u32 %r6, [%s1+512]; add.s32 %r9, %r5, %r6; {STORE}"""
    values = (I64 | 0xFF000000).astype(np.uint32)
    found = results(body, declarations=declarations, async_policy=policy, inputs={"IN": values})
    assert (found == ((values + np.where(I64 < 32, I64, 0)) & 0xFFFFFFFF)).all()


@pytest.mark.parametrize("policy", ["eager", "lazy", "random", "adversarial"])
def test_a_copy_keeps_its_addresses_although_their_registers_change(policy):
    declarations = ".shared .align 16 .b8 stage[256];"
    body = f"""
        .reg .b32 %s<6>; mov.u32 %s1, stage; shl.b32 %s2, %r0, 2; add.s32 %s1, %s1, %s2; mov.u64 %d8, %d3; bar.sync 0;
        cp.async.ca.shared.global [%s1], [%d8], 4; cp.async.commit_group; bar.sync 0;
        mov.u64 %d8, 0; mov.u32 %s4, %s1; mov.u32 %s1, 0; bar.sync 0;
        cp.async.wait_all; ld.shared.u32 %r9, [%s4]; add.s64 %d4, %d4, %d8; add.s32 %r9, %r9, %s1; {STORE}"""
    assert (results(body, declarations=declarations, async_policy=policy) == I64).all()


def test_spinning_threads_see_what_others_write():
    body = """
        setp.eq.u32 %p1, %r0, 0; @%p1 bra WRITER;
        L: ld.acquire.gpu.global.u32 %r5, [%d1]; setp.eq.u32 %p2, %r5, 0; @%p2 bra L; bra END;
        WRITER: st.release.gpu.global.u32 [%d1], 1;
        END: ret;"""
    for seed in range(3):
        assert results(body, seed=seed, step_limit=20_000)[0] == 1


def test_the_same_seed_gives_the_same_run():
    body = """
        atom.global.add.u32 %r9, [%d1], 1; mul.wide.u32 %d5, %r9, 4;
        add.s64 %d6, %d1, %d5; st.global.u32 [%d6+4], %r3; ret;"""
    first, again = (results(body, launch(64, 8, count=600), seed=5) for _ in range(2))
    assert (first == again).all()


def test_clocks_run_forward():
    body = f"""
        mov.u64 %d5, %clock64; bar.sync 0; mov.u64 %d6, %clock64;
        setp.lt.u64 %p1, %d5, %d6; selp.u32 %r9, 1, 0, %p1; {STORE}"""
    assert (results(body) == 1).all()


def test_the_summary_counts_warp_instructions_and_bytes():
    outcome = execute("ld.global.u32 %r9, [%d3]; st.global.u32 [%d4], %r9; ret;", launch(64, 2))
    assert outcome.instructions["st"] == 4
    assert outcome.bytes_moved == {"global load": 512, "global store": 512}


def test_a_program_serves_many_launches():
    from advisor.emulator import load_program

    program = load_program(module(f"add.s32 %r9, %r3, 1; {STORE}"))
    for ctas in (1, 3):
        assert (run(program, launch(64, ctas)).typed("OUT") == np.arange(64 * ctas) + 1).all()


def test_a_failed_assertion_stops_the_kernel():
    with pytest.raises(KernelFault) as caught:
        execute("setp.eq.u32 %p1, %r0, 37; @%p1 trap; ret;")
    assert caught.value.code == "EMU_TRAP"
    assert (caught.value.finding.place.warp, caught.value.finding.place.lane) == (1, 5)


def test_clusters_that_take_over_a_slot_have_nothing_to_do_with_those_before():
    shape = launch(64, 12, 2, dynamic=200_000)
    found = results(CLUSTER, shape, declarations=BOX, busy_sms=130)  # two SMs are left: one cluster at a time
    assert (found == (np.arange(12 * 64) ^ 64)).all()
