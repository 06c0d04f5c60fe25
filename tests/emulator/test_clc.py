"""Cluster Launch Control: kernels that claim their work are right under every policy, and each fault is named."""

from __future__ import annotations

import re

import numpy as np
import pytest

from advisor.emulator import KernelFault, run
from advisor.emulator.policy import RequestPolicy
from advisor.errors import InputError, RefusedError
from tests.emulator.clc_kernels import every_tile_once, execute, launch, ptx, small
from tests.emulator.kernels import launch as small_launch
from tests.emulator.kernels import module

CLC = ["grant", "decline:1", "decline:2", "random", "preempt", "spurious"]
ASYNC = ["eager", "lazy", "random", "adversarial"]
PAIR = (2, 1, 1)


@pytest.mark.parametrize("clc", CLC)
@pytest.mark.parametrize("policy", ASYNC)
def test_a_cta_that_asks_for_itself_computes_every_tile_once(clc, policy):
    outcome = execute("unicast", clc=clc, async_policy=policy, seed=1)
    assert every_tile_once(outcome)
    assert outcome.warnings == ()
    assert outcome.requests is not None
    assert outcome.clusters + outcome.requests.granted == 60
    assert sum(tiles * count for tiles, count in outcome.requests.tiles.items()) == 60


@pytest.mark.parametrize("clc", CLC)
@pytest.mark.parametrize("policy", ASYNC)
def test_a_pair_with_multicast_responses_computes_every_tile_once(clc, policy):
    outcome = execute("multicast", cluster=PAIR, clc=clc, async_policy=policy, seed=2)
    assert every_tile_once(outcome)
    assert outcome.warnings == ()


@pytest.mark.parametrize(
    ("cluster", "grid"), [((2, 2, 1), (12, 4, 2)), ((4, 1, 1), (40, 1, 1)), ((1, 1, 2), (3, 5, 4))]
)
@pytest.mark.parametrize("slots", [1, 3])
def test_coordinates_of_grids_of_three_dimensions(cluster, grid, slots):
    outcome = execute("multicast", cluster=cluster, grid=grid, slots=slots, clc="spurious", seed=5)
    assert every_tile_once(outcome)


@pytest.mark.parametrize(("target", "name"), [("sm_103a", "b300"), ("sm_120a", "rtx_pro_6000"), ("sm_100f", "b200")])
def test_other_targets_that_have_it(target, name):
    assert every_tile_once(execute("multicast", cluster=PAIR, target=target, profile=small(2, name), clc="random"))


def test_nobody_asks_and_nothing_waits():
    outcome = execute("unicast", grid=(4, 1, 1))
    assert outcome.requests is not None
    assert (outcome.requests.granted, outcome.requests.declined, outcome.requests.tiles) == (0, 4, {1: 4})


def test_declined_clusters_leave_a_second_batch():
    outcome = execute("unicast", clc="decline:1")
    assert outcome.requests is not None
    assert outcome.requests.granted == 0
    assert outcome.requests.at_launch == 16
    assert outcome.clusters == 60


def test_busy_sms_leave_fewer_clusters_at_the_launch():
    outcome = execute("unicast", busy_sms=4)
    assert outcome.requests is not None
    assert outcome.requests.at_launch == 8
    assert every_tile_once(outcome)


def test_the_same_seed_gives_the_same_run():
    one, other = (execute("multicast", cluster=PAIR, clc="random", seed=11) for _ in range(2))
    assert one.requests == other.requests
    assert one.instructions == other.instructions


def test_a_preempting_kernel_holds_sms_that_come_back():
    outcome = execute("unicast", grid=(400, 1, 1), clc="preempt", seed=4)
    assert every_tile_once(outcome)
    assert outcome.requests is not None
    assert outcome.requests.declined > 16
    assert outcome.requests.granted > 0


# name: (entry, macros that seed the fault, n, code)
FAULTS: dict[str, tuple[str, tuple[str, ...], int, str]] = {
    "a slot that some warps still read": ("unicast", ("NO_BARRIER",), 0, "EMU_CLC_SLOT_IN_USE"),
    "no proxy fence after the read": ("unicast", ("NO_FENCE",), 0, "EMU_CLC_SLOT_IN_USE"),
    "two requests into one slot": ("unicast", ("TWICE",), 0, "EMU_CLC_SLOT_IN_USE"),
    "a request of every lane": ("unicast", ("EVERY_LANE",), 0, "EMU_CLC_SLOT_IN_USE"),
    "no bytes announced": ("unicast", ("NO_EXPECT",), 0, "EMU_DATA_RACE"),
    "an exit that does not wait for the response": ("unicast", ("NO_DRAIN",), 1, "EMU_CLC_IN_FLIGHT"),
    "a response that nobody queries": ("unicast", ("IGNORE",), 2, "EMU_CLC_WORK_LOST"),
    "a response read before its phase": ("unicast", ("READ_EARLY",), 0, "EMU_DATA_RACE"),
    "a request after a failure": ("unicast", ("AFTER_FAILURE",), 0, "EMU_CLC_AFTER_FAILURE"),
    "a failed response's coordinates decide": (
        "unicast",
        ("USE_FAILED", "DECODE_FIRST"),
        0,
        "EMU_CLC_FAILED_COORDINATE",
    ),
    "a response off 16 bytes": ("unicast", ("SHIFT=8",), 0, "EMU_MISALIGNED"),
    "a reader that is not counted": ("multicast", ("UNCOUNTED",), 0, "EMU_CLC_SLOT_IN_USE"),
    "a slot that is given back before it is read": ("multicast", ("RELEASE_EARLY",), 0, "EMU_CLC_SLOT_IN_USE"),
    "multicast without a proxy fence after the read": ("multicast", ("NO_FENCE",), 0, "EMU_CLC_SLOT_IN_USE"),
    "multicast to a CTA that has not started": ("multicast", ("NO_MEET",), 0, "EMU_PEER_NOT_STARTED"),
    "multicast to a CTA that leaves": ("multicast", ("PEER_LEAVES",), 0, "EMU_CLC_IN_FLIGHT"),
    "a peer that is not armed": ("multicast", ("PEER_NOT_ARMED",), 0, "EMU_DEADLOCK"),
    "an exit while peers still release slots": ("multicast", ("NO_FAREWELL",), 0, "EMU_PEER_EXITED"),
}


@pytest.mark.parametrize("policy", ASYNC)
@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_is_named(name, policy):
    entry, macros, n, code = FAULTS[name]
    with pytest.raises(KernelFault) as caught:
        execute(entry, *macros, cluster=PAIR if entry == "multicast" else (1, 1, 1), n=n, async_policy=policy)
    assert caught.value.code == code


def test_multicast_to_a_cta_that_has_left():
    """The peer may leave before the next request or while its response is on the way."""
    found = set()
    for policy in ASYNC:
        with pytest.raises(KernelFault) as caught:
            execute("multicast", "PEER_LEAVES_LATER", cluster=PAIR, async_policy=policy, seed=1)
        found.add(caught.value.code)
    assert found == {"EMU_PEER_EXITED", "EMU_CLC_IN_FLIGHT"}


def test_clusters_of_which_one_cta_has_exited_make_room_when_they_are_gone():
    body = """mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p1, %r4, 1; @%p1 bra E;
        mov.u32 %r5, stage; mov.u32 %r6, bar; setp.eq.u32 %p2, %r0, 0;
        @%p2 mbarrier.init.shared::cta.b64 [%r6], 1; bar.sync 0;
        @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 128;
        @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%d0], 128, [%r6];
        W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], 0; @!%p3 bra W;
        E: atom.global.add.u32 %r7, [%d4], 1; ret;"""
    declarations = ".shared .align 128 .b8 stage[128]; .shared .align 8 .b64 bar;"
    shape = small_launch(32, 120, 2, dynamic=90 * 1024)
    for policy in ASYNC:
        outcome = run(module(body, declarations=declarations), shape, async_policy=policy, profile=small(2, "h200"))
        assert outcome.clusters == 60
        assert (outcome.typed("OUT") == 1).all()


def test_a_request_of_each_cta_is_a_warning_and_loses_work():
    outcome = execute("unicast", cluster=PAIR)
    assert [each.code for each in outcome.warnings] == ["EMU_CLC_REQUEST_PER_CTA"]
    assert not every_tile_once(outcome)


def test_bytes_that_nobody_announced_are_in_the_story_of_a_deadlock():
    with pytest.raises(KernelFault, match="16 bytes have landed that no expect-tx has announced"):
        execute("multicast", "PEER_NOT_ARMED", cluster=PAIR)


def edited(pattern: str, replacement: str) -> None:
    """Runs `unicast` with the first match of a pattern replaced in its PTX."""
    text, count = re.subn(pattern, replacement, ptx(), count=1)
    assert count == 1
    run(text, launch("unicast", (60, 1, 1)), profile=small())


def test_bits_that_are_no_response():
    with pytest.raises(KernelFault, match="EMU_CLC_NO_RESPONSE"):
        edited(r"mov\.b128 r, \{(%rd\d+), *(%rd\d+)\}", r"mov.b128 r, {\2, \1}")


def test_a_barrier_off_8_bytes():
    with pytest.raises(KernelFault, match="EMU_BARRIER_MISALIGNED"):
        edited(r"(complete_tx::bytes\.b128 \[.*?\], \[%r\d+)\]", r"\1+4]")


def test_a_response_in_a_peer():
    with pytest.raises(KernelFault, match="EMU_OUT_OF_BOUNDS"):
        edited(r"(complete_tx::bytes\.b128 \[%r\d+)\]", r"\1+16777216]")


@pytest.mark.parametrize(
    ("target", "code"), [("sm_100", "ARCH_SUFFIX_REQUIRED"), ("sm_90a", "NO_CLC"), ("sm_90", "NO_CLC")]
)
def test_a_target_that_lacks_the_multicast_form_refuses_it(target, code):
    text = ptx().replace(".target sm_100a", f".target {target}")
    with pytest.raises(RefusedError, match="clusterlaunchcontrol") as caught:
        run(text, launch("multicast", (60, 1, 1), PAIR))
    assert caught.value.code == code
    assert caught.value.numbers["line"]


def test_a_plain_target_has_the_form_of_one_cta():
    text = ptx().replace(".target sm_100a", ".target sm_100")
    assert every_tile_once(run(text, launch("unicast", (60, 1, 1)), profile=small()))


def test_ptx_of_one_chip_does_not_run_on_another():
    with pytest.raises(InputError, match="does not run on h200") as caught:
        run(ptx(), launch("unicast", (60, 1, 1)), profile="h200")
    assert caught.value.code == "EMU_LAUNCH_REFUSED"


@pytest.mark.parametrize("policy", ["", "granted", "decline", "decline:", "decline:0", "decline:x", "random:2"])
def test_unknown_policies(policy):
    with pytest.raises(InputError) as caught:
        RequestPolicy(policy)
    assert caught.value.code == "EMU_POLICY"


def test_each_policy_declines_what_it_says():
    nth = RequestPolicy("decline:3")
    assert [nth.grants(each, 0) for each in range(1, 6)] == [True, True, False, True, True]
    shares = {}
    for name in ("random", "spurious"):
        policy = RequestPolicy(name, seed=1)
        shares[name] = np.mean([policy.grants(1, 0) for _ in range(2000)])
    assert 0.65 < shares["random"] < 0.75
    assert 0.5 < shares["spurious"] < 0.9


def test_a_preempting_kernel_stays_for_a_while():
    policy = RequestPolicy("preempt", seed=3)
    now = 0
    while policy.grants(1, now):
        now += 1
    assert policy.preempting
    assert not policy.grants(1, now + 1)
    assert not policy.over(now + 1)
    assert policy.over(now + 1000)
    assert policy.grants(1, now + 1000)
