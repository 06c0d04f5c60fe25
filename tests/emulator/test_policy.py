"""Landing of asynchronous operations: groups complete in order, policies differ, seeds repeat."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator.async_groups import AsyncGroups
from advisor.emulator.happens_before import Order, View
from advisor.emulator.policy import POLICIES, AsyncQueue
from advisor.errors import InputError


def trace(policy: str, seed: int = 0, ticks: int = 200) -> list[str]:
    """What lands, in order, of six operations of two stages each, while nothing else runs."""
    done: list[str] = []
    queue = AsyncQueue(policy, seed)
    for number in range(6):
        stages = [lambda n=number, s=stage: done.append(f"{n}{s}") for stage in "rw"]  # type: ignore[misc]
        queue.submit(stages, f"operation {number}")
        queue.tick()
    while queue.idle():
        pass
    for _ in range(ticks):
        queue.tick()
    assert not queue.pending
    assert queue.landed == queue.submitted == 6
    return done


@pytest.mark.parametrize("policy", POLICIES)
def test_every_operation_lands_once_and_reads_before_it_writes(policy: str) -> None:
    done = trace(policy)
    assert sorted(done) == sorted(f"{n}{s}" for n in range(6) for s in "rw")
    assert all(done.index(f"{n}r") < done.index(f"{n}w") for n in range(6))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_order(policy: str) -> None:
    assert trace(policy, 3) == trace(policy, 3)


def test_seeds_differ_where_the_policy_draws() -> None:
    for policy in ("random", "adversarial"):
        assert len({tuple(trace(policy, seed)) for seed in range(8)}) > 4


def test_eager_lands_at_once_and_lazy_when_nothing_else_can_run() -> None:
    done: list[int] = []
    eager, lazy = AsyncQueue("eager"), AsyncQueue("lazy")
    eager.submit([lambda: done.append(1)], "")
    assert done == [1]
    lazy.submit([lambda: done.append(2)], "")
    for _ in range(100):
        lazy.tick()
    assert done == [1]
    assert lazy.idle() == 1
    assert done == [1, 2]
    assert lazy.idle() == 0


def test_lazy_takes_the_oldest_and_adversarial_mostly_the_latest() -> None:
    assert trace("lazy")[0] == "0r"
    firsts = [trace("adversarial", seed)[0] for seed in range(20)]
    assert firsts.count("5r") > 10


@pytest.mark.parametrize("policy", ["lazy", "adversarial"])
def test_warps_that_poll_do_not_wait_for_ever(policy: str) -> None:
    done: list[int] = []
    queue = AsyncQueue(policy, patience=10)
    queue.submit([lambda: done.append(1)], "")
    ticks = 0
    while not done:
        queue.tick()
        ticks += 1
    assert ticks == 10


@pytest.mark.parametrize("policy", POLICIES)
def test_an_operation_waits_for_those_that_it_comes_after(policy: str) -> None:
    for seed in range(10):
        done: list[int] = []
        queue = AsyncQueue(policy, seed)
        first = queue.submit([lambda done=done: done.append(1)], "")  # type: ignore[misc]
        queue.submit([lambda done=done: done.append(2)], "", after=[first])  # type: ignore[misc]
        while queue.idle():
            pass
        assert done == [1, 2]


def test_an_operation_can_be_landed_out_of_turn() -> None:
    done: list[int] = []
    queue = AsyncQueue("lazy")
    first = queue.submit([lambda: done.append(1)], "")
    queue.submit([lambda: done.append(2)], "")
    third = queue.submit([lambda: done.append(3)], "", after=[first])
    queue.land(third)
    assert done == [1, 3]


def test_a_landing_may_issue_another_operation() -> None:
    done: list[int] = []
    queue = AsyncQueue("eager")
    queue.submit([lambda: queue.submit([lambda: done.append(2)], "") and done.append(1)], "")  # type: ignore[func-returns-value]
    queue.tick()
    assert sorted(done) == [1, 2]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match="EMU_POLICY"):
        AsyncQueue("chaotic")


# --- groups --------------------------------------------------------------------------------------------------------


def groups() -> tuple[AsyncGroups, int]:
    order = Order()
    row = int(order.add_cluster(0, 1, 1)[0, 0])
    return AsyncGroups(order, 0, 0, "bulk", "bulk"), row


def test_a_wait_covers_all_but_the_latest_groups() -> None:
    held, row = groups()
    members = []
    for _ in range(3):
        members.append(held.add(row, 1, 0))
        held.commit()
    assert [each in held.unfinished(1) for each in members] == [True, True, False]
    members[0].read = members[1].read = True
    assert held.ready(1, read=True)
    assert not held.ready(1)
    members[0].written = members[1].written = True
    assert held.ready(1)
    assert not held.ready(0)


def test_numbers_of_groups_go_on_after_a_wait() -> None:
    held, row = groups()
    for _ in range(3):
        member = held.add(row, 1, 0)
        member.read = member.written = True
        held.commit()
    held.wait(1, [row])
    assert len(held.groups) == 1
    assert held.commit() == 4
    assert held.waited(0) == 4
    held.wait(0, [row])
    assert held.ready(0)
    assert held.all_landed()


def test_an_empty_group_is_complete() -> None:
    held, row = groups()
    held.commit()
    assert held.ready(0)
    held.wait(0, [row])
    assert np.array_equal(held.order.now[:, row, held.writes.column], np.ones(len(View)))


@pytest.mark.parametrize("policy", ["lazy", "random", "adversarial"])
def test_where_nobody_can_run_every_cluster_gets_something(policy):
    for seed in range(20):
        queue, done = AsyncQueue(policy, seed), []
        for owner in (1, 2, 3):
            for _ in range(2):
                queue.submit([lambda owner=owner, done=done: done.append(owner)], "", owner=owner)
        first = queue.idle()
        assert sorted(done[:first]) in ([1, 2, 3], *([each] for each in (1, 2, 3)))
        while queue.idle():
            pass
        assert sorted(done) == [1, 1, 2, 2, 3, 3]


def test_clusters_come_apart_now_and_then():
    alone = set()
    for seed in range(60):
        queue = AsyncQueue("adversarial", seed)
        for owner in (1, 2):
            queue.submit([lambda: None], "", owner=owner)
        alone.add(queue.idle())
    assert alone == {1, 2}
