"""Residency: what fits where, who starts when, who is a peer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.emulator.policy import ClusterMix
from advisor.emulator.report import KernelFault, Reporter, Who
from advisor.emulator.world import LaunchShape, Pool, World, check_launch, cut_profile, sectors, warn_uncoalesced
from advisor.errors import InputError
from advisor.machine import load_profile
from advisor.machine.occupancy import clusters_that_fit

H200 = load_profile("h200")
FULL = 200 * 1024  # one CTA per SM


def shape(clusters: int, size: int, smem: int = FULL, **more: object) -> LaunchShape:
    return LaunchShape((clusters * size, 1, 1), (128, 1, 1), (size, 1, 1), smem_bytes=smem, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", range(1, 17))
@pytest.mark.parametrize("smem", [FULL, 100 * 1024])
def test_as_many_clusters_start_as_the_occupancy_formula_counts(size: int, smem: int) -> None:
    world = World(H200, shape(500, size, smem, nonportable=True))
    assert len(world.start()) == clusters_that_fit(H200, world.slots_per_sm, size)


def test_a_grid_as_large_as_there_is_starts_as_a_small_one() -> None:
    """Its clusters are counted, not listed: 2^31 of them ended in a fault of the tool."""
    world = World(H200, LaunchShape((2**31 - 1, 1, 1), (128, 1, 1), (1, 1, 1), smem_bytes=FULL))
    assert [each.number for each in world.start(3)] == [0, 1, 2]
    assert (world.take(), world.take(10**9), len(world.waiting)) == (3, 10**9 + 4, 2**31 - 6)


@pytest.mark.parametrize("seed", range(3))
def test_the_pool_gives_what_a_list_would(seed: int) -> None:
    rng, pool, listed = np.random.default_rng(seed), Pool(200), list(range(200))
    while listed:
        place = int(rng.integers(len(listed))) if rng.random() < 0.5 else 0
        assert (len(pool), pool[place]) == (len(listed), listed[place])
        assert pool.pop(place) == listed.pop(place)
    assert not pool


def test_clusters_start_in_order_and_stay_in_their_group() -> None:
    world = World(H200, shape(100, 4))
    begun = world.start()
    assert [each.number for each in begun] == list(range(30))
    edges = np.cumsum(H200.sm_groups)
    assert all(len({int(np.searchsorted(edges, smid, side="right")) for smid in each.smids}) == 1 for each in begun)
    assert len({smid for each in begun for smid in each.smids}) == 120


def test_an_exit_makes_room_for_the_next() -> None:
    world = World(H200, shape(31, 4))
    world.start()
    assert not world.exit_cta(5, 0)
    assert world.start() == []
    assert [world.exit_cta(5, rank) for rank in (1, 2, 3)] == [False, False, True]
    (next_,) = world.start()
    assert (next_.number, next_.serial) == (30, 30)


def test_each_cluster_is_started_or_taken_once() -> None:
    world = World(cut_profile(H200), shape(20, 2))
    seen = [each.number for each in world.start()]
    while (number := world.take()) is not None:
        seen.append(number)
    assert seen == list(range(20))
    assert world.taken == 20 - world.started


B200 = load_profile("b200")


def mixed(units: int, preferred: int = 4, **more: object) -> LaunchShape:
    """A grid of `units` preferred clusters along x, beside clusters of 2."""
    return replace(shape(units * preferred // 2, 2), preferred=(preferred, 1, 1), **more)  # type: ignore[arg-type]


def test_a_mix_fills_the_sms_that_preferred_clusters_cannot_reach() -> None:
    begun = World(B200, mixed(37)).start()
    assert [each.size for each in begun] == [4] * 33 + [2] * 8
    assert len({smid for each in begun for smid in each.smids}) == B200.sms


@pytest.mark.parametrize(
    ("policy", "sizes"), [("preferred", {4}), ("smaller", {2}), ("random", {2, 4}), ("fill", {2, 4})]
)
def test_each_cta_of_a_mix_starts_once(policy: str, sizes: set[int]) -> None:
    world = World(cut_profile(B200, 4), mixed(20), mix=ClusterMix(policy, 3))
    seen, found = [], set()
    while world.pending:
        begun = world.start()
        assert begun
        for each in begun:
            x, _, _ = each.first_ctaid
            assert x % each.size == 0
            assert each.number == x // 4
            seen += range(x, x + each.size)
            found.add(each.size)
        for each in begun:
            for rank in range(each.size):
                world.exit_cta(each.serial, rank)
    assert sorted(seen) == list(range(80))
    assert found == sizes


@pytest.mark.parametrize("name", ["b200", "gb200", "b300"])
@pytest.mark.parametrize(("preferred", "smaller"), [(p, s) for p in (2, 4, 8, 16) for s in (1, 2, 4, 8) if s < p])
def test_the_cut_of_a_mix_holds_both_sizes_at_once(name: str, preferred: int, smaller: int) -> None:
    """With one preferred cluster more than has room, and with as many units as there are SMs for."""
    device = cut_profile(load_profile(name), preferred, smaller=smaller)
    assert sum(device.sm_groups) == device.sms <= 40
    reach = sum(each // preferred for each in device.sm_groups)
    for units in (reach + 1, device.sms // preferred):
        launch = replace(shape(units * preferred // smaller, smaller), preferred=(preferred, 1, 1), nonportable=True)
        begun = World(device, launch).start()
        assert {each.size for each in begun} == {preferred, smaller}
        assert sum(each.size for each in begun) == units * preferred


def test_a_coin_is_tossed_for_each_preferred_cluster_and_not_for_where_it_waits() -> None:
    starts = []
    for busy in (0, 2):
        world = World(cut_profile(B200, 4), mixed(12), busy_sms=busy, mix=ClusterMix("random", 5))
        begun = []
        while world.pending:
            fresh = world.start()
            begun += fresh
            for each in fresh:
                for rank in range(each.size):
                    world.exit_cta(each.serial, rank)
        starts.append({each.number: each.size for each in begun})
    assert starts[0] == starts[1]


def test_an_unknown_mix_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        ClusterMix("most")
    assert caught.value.code == "EMU_POLICY"


@pytest.mark.parametrize(
    ("word", "profile", "launch"),
    [
        ("no multiple of the cluster (8, 1, 1)", B200, replace(mixed(3), preferred=(8, 1, 1))),
        ("multiple of the cluster (2, 1, 1)", B200, replace(mixed(6), preferred=(3, 1, 1))),
        ("its equal in z", B200, LaunchShape((8, 1, 2), (32, 1, 1), (2, 1, 1), preferred=(4, 1, 2))),
        ("begin with compute capability 10.0", H200, mixed(3)),
        ("a cluster of 16 CTAs", B200, mixed(3, 16)),
    ],
)
def test_preferred_clusters_that_the_hardware_would_refuse(word: str, profile: object, launch: LaunchShape) -> None:
    with pytest.raises(InputError, match=r"the hardware refuses") as caught:
        check_launch(profile, launch)  # type: ignore[arg-type]
    assert word in str(caught.value)


def test_a_rank_of_the_larger_cluster_is_no_peer_in_a_smaller_one() -> None:
    world = World(B200, mixed(37), reporter=Reporter())
    begun = world.start()
    world.check_peer(Who(begun[0].serial, 0, 0), 3, True, 0)
    with pytest.raises(KernelFault) as caught:
        world.check_peer(Who(begun[-1].serial, 0, 0), 3, True, 0)
    assert caught.value.code == "EMU_NO_SUCH_PEER"


def test_the_first_cta_of_a_cluster_of_a_grid_of_three_dimensions() -> None:
    world = World(H200, LaunchShape((4, 6, 2), (32, 1, 1), (2, 1, 1)))
    assert [world.first_ctaid(each) for each in (0, 1, 2, 12, 23)] == [
        (0, 0, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1), (2, 5, 1)
    ]  # fmt: skip


def test_busy_sms_cost_clusters_and_come_back() -> None:
    cut = cut_profile(H200, 4)
    idle = len(World(cut, shape(20, 4)).start())
    world = World(cut, shape(20, 4), busy_sms=6)
    assert len(world.start()) < idle == 2
    world.vacate()
    assert len(world.resident) + len(world.start()) == idle


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "b300", "gb200", "rtx_pro_6000"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_cut_profile_keeps_the_kinds_of_group(name: str, size: int) -> None:
    profile = load_profile(name)
    cut = cut_profile(profile, size)
    assert 8 <= cut.sms <= 12
    assert sum(cut.sm_groups) == cut.sms
    assert (2 in cut.sm_groups) == (2 in profile.sm_groups)
    assert World(cut, shape(4, size, 48 * 1024)).start()


def test_a_cluster_of_16_has_its_own_cut() -> None:
    assert cut_profile(H200, 16).sm_groups == (16, 2)


REFUSED = [
    ("grid", LaunchShape((0, 1, 1), (32, 1, 1))),
    ("grid", LaunchShape((1, 65_536, 1), (32, 1, 1))),
    ("block", LaunchShape((1, 1, 1), (32, 1, 65))),
    ("threads", LaunchShape((1, 1, 1), (64, 32, 1))),
    ("non-portable", LaunchShape((16, 1, 1), (32, 1, 1), (16, 1, 1))),
    ("multiple", LaunchShape((3, 1, 1), (32, 1, 1), (2, 1, 1))),
    ("shared memory", LaunchShape((1, 1, 1), (32, 1, 1), smem_bytes=240_000)),
]


@pytest.mark.parametrize(("word", "launch"), REFUSED)
def test_what_the_hardware_would_refuse(word: str, launch: LaunchShape) -> None:
    with pytest.raises(InputError, match=word) as caught:
        check_launch(H200, launch)
    assert caught.value.code == "EMU_LAUNCH_REFUSED"


def test_the_same_within_the_limits() -> None:
    check_launch(H200, LaunchShape((1, 65_535, 1), (32, 1, 32)))
    check_launch(H200, LaunchShape((16, 1, 1), (32, 1, 1), (16, 1, 1), nonportable=True))
    check_launch(H200, LaunchShape((4, 1, 1), (32, 1, 1), (2, 1, 1), smem_bytes=232_448))


def test_a_cluster_that_fits_in_no_group_is_refused() -> None:
    with pytest.raises(InputError, match="no SM group"):
        World(replace(H200, sms=4, sm_groups=(2, 2)), shape(1, 4))


@pytest.mark.parametrize(("cluster", "most"), [(1, 7), (2, 6), (4, 4)])
def test_too_much_other_work_is_refused_with_what_would_leave_room(cluster: int, most: int) -> None:
    """One CTA fits on an SM; other work begins with the last SM of the smaller group."""
    few = replace(H200, sms=8, sm_groups=(6, 2))
    for busy in (most + 1, 500):
        with pytest.raises(InputError, match="other work holds") as caught:
            World(few, shape(1, cluster), busy_sms=busy)
        assert caught.value.numbers["most_busy_sms"] == most
        assert f"at most {most} busy SMs" in caught.value.fix
    assert World(few, shape(1, cluster), busy_sms=most).start()


# --- peers ---------------------------------------------------------------------------------------------------------


def test_access_to_a_peer() -> None:
    world = World(H200, shape(1, 2))
    world.start()
    me = Who(0, 0, 3)
    world.check_peer(me, 1, True, 9)
    world.check_peer(me, 0, False, 9)
    for rank, started, code in ((1, False, "EMU_PEER_NOT_STARTED"), (2, True, "EMU_NO_SUCH_PEER")):
        with pytest.raises(KernelFault) as caught:
            world.check_peer(me, rank, started, 9, 4)
        assert caught.value.code == code
        assert (caught.value.finding.place.warp, caught.value.finding.place.lane) == (3, 4)
    world.exit_cta(0, 1)
    with pytest.raises(KernelFault, match="EMU_PEER_EXITED"):
        world.check_peer(me, 1, True, 9)


def test_sectors_of_a_remote_request() -> None:
    lanes = np.arange(32)
    assert sectors(lanes * 4, 4) == (4, 4)
    assert sectors(lanes * 128, 4) == (32, 4)
    assert sectors(lanes * 0, 4) == (1, 1)
    assert sectors(lanes[:8] << 24, 4) == (8, 8)  # a word for each of eight peers


def test_a_strided_remote_request_is_a_warning_once() -> None:
    reporter = Reporter()
    for _ in range(3):
        warn_uncoalesced(reporter, np.arange(32) * 128, 4, Who(0, 0, 0), 7)
    warn_uncoalesced(reporter, np.arange(32) * 4, 4, Who(0, 0, 0), 8)
    assert [each.code for each in reporter.warnings.values()] == ["EMU_DSMEM_UNCOALESCED"]
    assert reporter.warning_counts == {("EMU_DSMEM_UNCOALESCED", 7): 3}
