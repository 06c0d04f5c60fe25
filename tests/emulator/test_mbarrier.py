"""mbarrier objects: phases and counts as PTX ISA 9.7.13.15 has them, and each misuse with its correct twin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from advisor.emulator.async_groups import AsyncGroups
from advisor.emulator.happens_before import Order, Scope, Sem, Shadow
from advisor.emulator.mbarrier import MAX_COUNT, BarrierUnit, By, token_pending
from advisor.emulator.report import KernelFault

BAR = 0x400


class Bench:
    """Two CTAs of two warps; one barrier unit each, windows of 4096 bytes side by side in the shadow."""

    def __init__(self) -> None:
        self.order = Order()
        rows = self.order.add_cluster(0, 2, 2)
        self.a, self.b, self.peer = int(rows[0, 0]), int(rows[0, 1]), int(rows[1, 0])
        self.shadow = Shadow("shared", 0, 8192)
        self.completed: list[int] = []
        self.unit = BarrierUnit(
            self.order, self.shadow, 0, 0, on_phase=lambda barrier: self.completed.append(barrier.phase)
        )

    def by(self, row: int, pc: int = 10) -> By:
        return By(row, pc, 0)

    def init(self, count: int) -> None:
        """Initialised by warp a, and known to all after a cluster barrier."""
        self.unit.init(BAR, count, self.by(self.a, 1))
        self.meet(self.a, self.b, self.peer)

    def meet(self, *rows: int) -> None:
        self.order.cta_barrier(np.array(rows))

    def arrive(self, row: int, count: int = 1, **more: object) -> int:
        return self.unit.arrive(BAR, self.by(row), count, **more)  # type: ignore[arg-type]

    def test(self, row: int, parity: int, **more: object) -> bool:
        return self.unit.test_parity(BAR, parity, self.by(row), **more)  # type: ignore[arg-type]

    def access(self, row: int, *, write: bool, address: int = 0) -> None:
        places = address + np.arange(32)[None, :] * 4
        self.order.access(self.shadow, np.array([row]), places, 4, 40, write=write)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def fault(code: str, action: Callable[[], object]) -> KernelFault:
    with pytest.raises(KernelFault) as caught:
        action()
    assert caught.value.code == code
    return caught.value


# --- phases --------------------------------------------------------------------------------------------------------


def test_a_phase_completes_with_its_last_arrival(bench: Bench) -> None:
    bench.init(3)
    assert bench.test(bench.b, 1)  # the phase before the first counts as complete
    assert not bench.test(bench.b, 0)
    bench.arrive(bench.a, 2)
    assert not bench.test(bench.b, 0)
    bench.arrive(bench.b)
    assert bench.test(bench.b, 0)
    assert not bench.test(bench.b, 1)
    assert bench.completed == [1]


def test_transactions_hold_a_phase_back(bench: Bench) -> None:
    bench.init(1)
    bench.arrive(bench.a, expect_tx=256)
    assert not bench.test(bench.b, 0)
    bench.unit.complete_tx(BAR, 128, bench.by(bench.a))
    assert not bench.test(bench.b, 0)
    bench.unit.complete_tx(BAR, 128, bench.by(bench.a))
    assert bench.test(bench.b, 0)


def test_bytes_may_land_before_they_are_expected(bench: Bench) -> None:
    bench.init(1)
    bench.unit.complete_tx(BAR, 128, bench.by(bench.a))
    assert bench.unit.barriers[BAR].tx == -128
    assert not bench.test(bench.b, 0)
    bench.arrive(bench.a, expect_tx=128)
    assert bench.test(bench.b, 0)


def test_a_drop_lowers_the_count_of_later_phases(bench: Bench) -> None:
    bench.init(2)
    bench.arrive(bench.a, drop=True)
    bench.arrive(bench.b)
    assert bench.test(bench.b, 0)
    bench.arrive(bench.b)
    assert bench.test(bench.b, 1)


def test_the_state_token_names_the_phase_and_the_count(bench: Bench) -> None:
    bench.init(2)
    first = bench.arrive(bench.a)
    assert token_pending(first) == 2
    assert not bench.unit.test_state(BAR, first, bench.by(bench.a))
    second = bench.arrive(bench.b)
    assert token_pending(second) == 1
    assert bench.unit.test_state(BAR, first, bench.by(bench.a))
    assert bench.unit.test_state(BAR, second, bench.by(bench.b))


def test_an_asynchronous_arrival_of_cp_async_brings_its_data(bench: Bench) -> None:
    bench.init(1)
    groups = AsyncGroups(bench.order, 0, 0, "cp.async", "cp.async")
    member = groups.add(bench.a, 5, 0)
    bench.order.async_access(member.operation, bench.shadow, np.array([0]), 16, write=True, generic=True)
    bench.unit.count_in(BAR, bench.by(bench.a))
    bench.arrive(bench.a)
    assert not bench.test(bench.b, 0)
    bench.unit.async_arrive(BAR, bench.by(bench.a), groups.completions())
    assert bench.test(bench.b, 0)
    bench.order.access(bench.shadow, np.array([bench.b]), np.array([[0]]), 16, 9, write=False)


def test_without_the_wait_the_data_of_cp_async_races(bench: Bench) -> None:
    bench.init(1)
    groups = AsyncGroups(bench.order, 0, 0, "cp.async", "cp.async")
    member = groups.add(bench.a, 5, 0)
    bench.order.async_access(member.operation, bench.shadow, np.array([0]), 16, write=True, generic=True)
    bench.unit.async_arrive(BAR, bench.by(bench.a), groups.completions())
    fault(
        "EMU_DATA_RACE",
        lambda: bench.order.access(bench.shadow, np.array([bench.b]), np.array([[0]]), 16, 9, write=False),
    )


# --- order through a barrier ---------------------------------------------------------------------------------------


def test_an_arrival_and_a_wait_order_data(bench: Bench) -> None:
    bench.init(1)
    bench.access(bench.a, write=True)
    bench.arrive(bench.a)
    assert bench.test(bench.b, 0)
    bench.access(bench.b, write=False)


def test_a_wait_that_was_false_orders_nothing(bench: Bench) -> None:
    bench.init(2)
    bench.access(bench.a, write=True)
    bench.arrive(bench.a)
    assert not bench.test(bench.b, 0)
    fault("EMU_DATA_RACE", lambda: bench.access(bench.b, write=False))


def test_an_arrival_of_the_phase_that_still_runs_orders_nothing(bench: Bench) -> None:
    bench.init(1)
    bench.arrive(bench.a)
    bench.access(bench.b, write=True)
    assert bench.test(bench.b, 0)
    bench.access(bench.b, write=True, address=512)
    bench.arrive(bench.b)  # completes phase 1, which warp a does not wait for
    assert bench.test(bench.a, 0) is False
    fault("EMU_DATA_RACE", lambda: bench.access(bench.a, write=False))


@pytest.mark.parametrize(
    ("sem", "scope", "ordered"),
    [(Sem.RELEASE, Scope.CLUSTER, True), (Sem.RELEASE, Scope.CTA, False), (Sem.RELAXED, Scope.CLUSTER, False)],
)
def test_a_remote_arrival_needs_cluster_scope_for_its_data(bench: Bench, sem: Sem, scope: Scope, ordered: bool) -> None:
    bench.init(1)
    bench.access(bench.peer, write=True)
    bench.arrive(bench.peer, sem=sem, scope=scope)
    assert bench.test(bench.a, 0, scope=Scope.CLUSTER)
    if ordered:
        bench.access(bench.a, write=False)
    else:
        fault("EMU_DATA_RACE", lambda: bench.access(bench.a, write=False))


def load(bench: Bench, row: int | None = None) -> tuple[Callable[[], None], list[int]]:
    """A bulk load of 128 bytes by a warp, else by warp a; returns what lands it."""
    by = bench.by(bench.a if row is None else row)
    barrier = bench.unit.use(BAR, by, "cp.async.bulk")
    operation = bench.order.issue(by.row, 20, 0, barrier.channel)
    bench.order.async_access(operation, bench.shadow, np.array([0]), 128, write=True)
    phases: list[int] = []
    return lambda: phases.append(bench.unit.complete_tx(BAR, 128, by, operation)), phases


def test_a_bulk_load_is_there_after_its_phase(bench: Bench) -> None:
    bench.init(1)
    bench.arrive(bench.a, expect_tx=128)
    land, phases = load(bench)
    land()
    assert phases == [0]
    assert bench.test(bench.b, 0)  # .cta scope: whoever observes the phase may use the data
    bench.access(bench.b, write=False)


@pytest.mark.parametrize("issuer", ["a", "peer"])
@pytest.mark.parametrize("others", [Scope.CTA, Scope.CLUSTER])
def test_a_wait_for_a_peers_copy_is_held_to_the_scope_that_others_name(
    bench: Bench, issuer: str, others: Scope
) -> None:
    """A wait of CTA scope beside one of cluster scope is an oversight; where all are of CTA scope it is the custom."""
    bench.init(1)
    bench.arrive(bench.a, expect_tx=128)
    land, _ = load(bench, getattr(bench, issuer))
    land()
    assert bench.test(bench.b, 0, scope=others)
    bench.access(bench.b, write=False)
    assert bench.test(bench.a, 0)
    if issuer == "peer" and others == Scope.CLUSTER:
        fault("EMU_DATA_RACE", lambda: bench.access(bench.a, write=False))
    else:
        bench.access(bench.a, write=False)


@pytest.mark.parametrize("landed", [True, False])
def test_a_bulk_load_that_nobody_waited_for_races(bench: Bench, landed: bool) -> None:
    bench.init(1)
    bench.arrive(bench.a, expect_tx=128)
    land, _ = load(bench)
    if landed:
        land()
    told = fault("EMU_DATA_RACE", lambda: bench.access(bench.a, write=False))
    assert ("has completed, but" if landed else "has not completed") in told.message


def test_a_barrier_that_is_not_told_of_the_bytes_lets_readers_race(bench: Bench) -> None:
    """The arrival without its expect-tx completes the phase before the bytes are there."""
    bench.init(1)
    land, phases = load(bench)
    bench.arrive(bench.a)
    assert bench.test(bench.b, 0)
    fault("EMU_DATA_RACE", lambda: bench.access(bench.b, write=False))
    land()
    assert phases == [1]


def test_a_relaxed_wait_does_not_make_a_load_visible(bench: Bench) -> None:
    bench.init(1)
    bench.arrive(bench.a, expect_tx=128)
    land, _ = load(bench)
    land()
    assert bench.test(bench.b, 0, sem=Sem.RELAXED, scope=Scope.CLUSTER)
    fault("EMU_DATA_RACE", lambda: bench.access(bench.b, write=False))
    bench.order.fence([bench.b], Sem.ACQUIRE, Scope.CLUSTER)
    bench.access(bench.b, write=False)


def test_the_load_does_not_hand_on_what_its_issuer_did(bench: Bench) -> None:
    bench.init(1)
    bench.arrive(bench.a, expect_tx=128)
    land, _ = load(bench)
    bench.access(bench.a, write=True, address=512)
    land()
    assert bench.test(bench.b, 0)
    fault("EMU_DATA_RACE", lambda: bench.access(bench.b, write=False, address=512))


# --- misuse --------------------------------------------------------------------------------------------------------


def test_more_arrivals_than_the_phase_has(bench: Bench) -> None:
    bench.init(2)
    bench.arrive(bench.a, expect_tx=16)
    bench.arrive(bench.b)
    told = fault("EMU_BARRIER_OVERRUN", lambda: bench.arrive(bench.b))
    text = str(told)
    assert "init with count 2" in text
    assert "expect 16 bytes" in text
    assert told.finding.numbers == {"count": 1, "pending": 0, "expected": 2}


def test_as_many_arrivals_as_the_phase_has(bench: Bench) -> None:
    bench.init(2)
    for phase in range(5):
        bench.arrive(bench.a)
        bench.arrive(bench.b)
        assert bench.test(bench.a, phase & 1)
    assert bench.completed == [1, 2, 3, 4, 5]


def test_an_arrival_after_a_phase_that_nobody_waited_for(bench: Bench) -> None:
    """Three warps arrive where the count says two: the last arrival falls into the next phase."""
    bench.init(2)
    bench.arrive(bench.a)
    bench.arrive(bench.b)
    assert bench.test(bench.peer, 1) is False
    told = fault("EMU_BARRIER_UNOBSERVED", lambda: bench.arrive(bench.peer))
    assert told.finding.numbers == {"phase": 1, "expected": 2}
    assert bench.test(bench.a, 0)
    bench.arrive(bench.peer)


def test_an_asynchronous_arrival_too_many(bench: Bench) -> None:
    bench.init(1)
    groups = AsyncGroups(bench.order, 0, 0, "cp.async", "cp.async")
    bench.arrive(bench.a, expect_tx=16)
    fault("EMU_BARRIER_OVERRUN", lambda: bench.unit.async_arrive(BAR, bench.by(bench.a), groups.completions()))


@pytest.mark.parametrize("count", [0, MAX_COUNT + 1])
def test_a_count_out_of_range(bench: Bench, count: int) -> None:
    fault("EMU_BARRIER_COUNT", lambda: bench.unit.init(BAR, count, bench.by(bench.a)))


def test_the_largest_count(bench: Bench) -> None:
    bench.init(MAX_COUNT)
    assert not bench.test(bench.a, 0)


def test_a_second_init(bench: Bench) -> None:
    bench.init(1)
    fault("EMU_BARRIER_REINIT", lambda: bench.unit.init(BAR, 1, bench.by(bench.a)))


def test_a_second_init_after_inval(bench: Bench) -> None:
    bench.init(1)
    bench.arrive(bench.a)
    bench.meet(bench.a, bench.b, bench.peer)
    bench.unit.inval(BAR, bench.by(bench.a))
    bench.access(bench.a, write=True, address=BAR)
    bench.unit.init(BAR, 1, bench.by(bench.a))
    assert not bench.test(bench.a, 0)


def test_inval_while_bytes_are_outstanding(bench: Bench) -> None:
    bench.init(1)
    bench.arrive(bench.a, expect_tx=128)
    fault("EMU_BARRIER_IN_USE", lambda: bench.unit.inval(BAR, bench.by(bench.a)))


def test_inval_while_a_thread_waits(bench: Bench) -> None:
    bench.init(1)
    assert not bench.test(bench.b, 0)
    fault("EMU_BARRIER_IN_USE", lambda: bench.unit.inval(BAR, bench.by(bench.a)))


def test_use_of_what_is_no_barrier(bench: Bench) -> None:
    fault("EMU_BARRIER_UNINITIALIZED", lambda: bench.arrive(bench.a))
    bench.init(1)
    bench.unit.inval(BAR, bench.by(bench.a))
    fault("EMU_BARRIER_UNINITIALIZED", lambda: bench.test(bench.a, 0))


def test_a_barrier_off_its_alignment(bench: Bench) -> None:
    fault("EMU_BARRIER_MISALIGNED", lambda: bench.unit.init(BAR + 4, 1, bench.by(bench.a)))


def test_ordinary_data_over_a_live_barrier(bench: Bench) -> None:
    bench.init(1)
    fault("EMU_BARRIER_OVERWRITTEN", lambda: bench.access(bench.a, write=True, address=BAR - 64))
    bench.access(bench.a, write=True, address=BAR + 8)


def test_a_use_that_the_init_is_not_ordered_before(bench: Bench) -> None:
    bench.unit.init(BAR, 1, bench.by(bench.a))
    fault("EMU_BARRIER_INIT_UNORDERED", lambda: bench.arrive(bench.b))
    bench.meet(bench.a, bench.b)
    bench.arrive(bench.b)


@pytest.mark.parametrize("fence", [True, False])
def test_a_peer_needs_the_init_fence_before_a_relaxed_cluster_barrier(bench: Bench, fence: bool) -> None:
    from advisor.emulator.happens_before import SyncPoint

    bench.unit.init(BAR, 1, bench.by(bench.a))
    if fence:
        bench.order.fence_mbarrier_init([bench.a])
    cluster = SyncPoint()
    bench.order.release(cluster, bench.a, Sem.RELAXED, Scope.CLUSTER)
    bench.order.acquire(cluster, bench.peer, Sem.ACQUIRE, Scope.CLUSTER)
    if fence:
        bench.arrive(bench.peer)
    else:
        fault("EMU_BARRIER_INIT_UNORDERED", lambda: bench.arrive(bench.peer))


def test_the_init_fence_orders_nothing_but_inits(bench: Bench) -> None:
    from advisor.emulator.happens_before import SyncPoint

    bench.access(bench.a, write=True)
    bench.order.fence_mbarrier_init([bench.a])
    cluster = SyncPoint()
    bench.order.release(cluster, bench.a, Sem.RELAXED, Scope.CLUSTER)
    bench.order.acquire(cluster, bench.peer, Sem.ACQUIRE, Scope.CLUSTER)
    fault("EMU_DATA_RACE", lambda: bench.access(bench.peer, write=False))


def test_no_complete_that_completes(bench: Bench) -> None:
    bench.init(2)
    bench.arrive(bench.a, no_complete=True)
    fault("EMU_BARRIER_NO_COMPLETE", lambda: bench.arrive(bench.a, no_complete=True))


def test_a_phase_may_not_expect_a_mebibyte(bench: Bench) -> None:
    bench.init(1)
    bench.unit.expect_tx(BAR, MAX_COUNT, bench.by(bench.a))
    fault("EMU_BARRIER_TX_RANGE", lambda: bench.unit.expect_tx(BAR, 1, bench.by(bench.a)))


def test_a_waiter_that_two_phases_have_overtaken(bench: Bench) -> None:
    bench.init(1)
    assert not bench.test(bench.b, 0)
    bench.arrive(bench.a)
    assert bench.test(bench.a, 0)
    bench.arrive(bench.a)
    told = fault("EMU_BARRIER_PHASE_BEHIND", lambda: bench.test(bench.b, 0))
    assert told.finding.numbers == {"waited_for": 0, "phase": 2}
    assert "waits for phase 0" in str(told)


def test_a_waiter_that_one_phase_has_passed(bench: Bench) -> None:
    bench.init(1)
    for phase in range(6):
        assert not bench.test(bench.b, phase & 1)
        bench.arrive(bench.a)
        assert bench.test(bench.b, phase & 1)


def test_a_thread_that_waits_for_every_other_phase_is_not_behind(bench: Bench) -> None:
    """Two consumers that take turns each see half of the phases; a parity that reads true is the phase before."""
    bench.init(1)
    for phase in range(8):
        bench.arrive(bench.a)
        assert bench.test(bench.b if phase % 2 else bench.a, phase & 1)


def test_a_state_of_an_old_phase(bench: Bench) -> None:
    bench.init(1)
    token = bench.arrive(bench.a)
    assert bench.unit.test_state(BAR, token, bench.by(bench.a))
    bench.arrive(bench.a)
    fault("EMU_BARRIER_PHASE_BEHIND", lambda: bench.unit.test_state(BAR, token, bench.by(bench.a)))


# --- exits ---------------------------------------------------------------------------------------------------------


def test_an_exit_with_bytes_expected(bench: Bench) -> None:
    bench.init(1)
    bench.arrive(bench.a, expect_tx=128)
    land, _ = load(bench)
    fault("EMU_ASYNC_AT_EXIT", lambda: bench.unit.at_exit([bench.a, bench.b], bench.by(bench.a)))
    land()
    bench.unit.at_exit([bench.a, bench.b], bench.by(bench.a))


def test_an_exit_with_an_arrival_of_a_peer_on_its_way(bench: Bench) -> None:
    bench.init(1)
    bench.arrive(bench.peer)
    fault("EMU_PEER_EXITED", lambda: bench.unit.at_exit([bench.a, bench.b], bench.by(bench.a)))
    assert bench.test(bench.b, 0)
    bench.unit.at_exit([bench.a, bench.b], bench.by(bench.a))


def test_what_a_deadlock_report_says_of_a_barrier(bench: Bench) -> None:
    bench.init(2)
    bench.arrive(bench.a, expect_tx=128)
    assert not bench.test(bench.b, 0)
    barrier = bench.unit.barriers[BAR]
    assert bench.unit.describe(barrier) == (
        "mbarrier 0x400 of CTA rank 0, phase 0: 1 of 2 arrivals pending, tx-count 128"
    )
    told = [each.what for each in bench.unit.story(barrier)]
    assert told == ["phase 0: init with count 2", "phase 0: arrive 1, expect 128 bytes", "waits for phase 0"]
