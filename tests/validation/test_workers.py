"""A kernel that hangs, faults or takes its process along must cost one named result and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.errors import DeviceError, ToolError
from advisor.validation import workers
from advisor.validation.on_gpu import stopped_verdict
from advisor.validation.workers import Pool, Worker, Workers, WorkerStopped

BACKENDS = Path(__file__).with_name("backends.py")
HEALTHY = f"{BACKENDS}:Healthy"


@pytest.fixture(scope="module")
def shared() -> Iterator[Worker]:
    worker = Worker(HEALTHY)
    yield worker
    worker.close()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_call_returns_the_backends_value_and_keeps_its_state(shared: Worker) -> None:
    first = shared.call("echo", {"a": 1})
    second = shared.call("echo", "b")
    assert (first[0], second[0]) == ({"a": 1}, "b")
    assert second[1] == first[1] + 1
    assert first[2] == second[2] == shared.pid != os.getpid()


def test_a_refusal_arrives_as_the_same_error_and_the_process_lives_on(shared: Worker) -> None:
    with pytest.raises(DeviceError) as caught:
        shared.call("refuse")
    assert caught.value.code == "KERNEL_FAULT"
    assert caught.value.fix == "look there"
    assert caught.value.numbers == {"value": 700}
    assert shared.call("echo", 1)[0] == 1


def test_a_hang_is_named_by_its_stage_and_the_process_is_gone() -> None:
    worker = Worker(HEALTHY)
    pid = worker.pid
    seen: list[str] = []
    began = time.monotonic()
    with pytest.raises(WorkerStopped) as caught:
        worker.call("sleep", "clusters_one_more: launch", 0.3, on_stage=seen.append)
    assert time.monotonic() - began < 30
    assert caught.value.timed_out
    assert "clusters_one_more: launch" in caught.value.detail
    assert seen == ["clusters_one_more: launch"]
    assert stopped_verdict(caught.value) == "deadlock"
    assert not worker.alive
    assert not is_running(pid)
    worker.close()


def test_a_slow_host_is_a_timeout_and_not_a_deadlock() -> None:
    worker = Worker(HEALTHY)
    with pytest.raises(WorkerStopped) as caught:
        worker.call("sleep", "own_shape: inputs", 0.2)
    assert stopped_verdict(caught.value) == "timeout"
    worker.close()


def test_a_segmentation_fault_is_reported_with_its_signal() -> None:
    worker = Worker(HEALTHY)
    with pytest.raises(WorkerStopped) as caught:
        worker.call("crash")
    assert not caught.value.timed_out
    assert "SIGSEGV" in caught.value.detail
    assert "own_shape: launch" in caught.value.detail
    assert stopped_verdict(caught.value) == "launch_error"
    worker.close()


def test_a_process_that_leaves_is_reported_with_its_code_and_last_words() -> None:
    worker = Worker(HEALTHY)
    with pytest.raises(WorkerStopped) as caught:
        worker.call("leave")
    assert "exit code 7" in caught.value.detail
    assert "something was said on the way" in caught.value.detail
    worker.close()


@pytest.mark.parametrize("message", [b"\x00\x00\x00\x08garbage!", b"\x00\x00\x00\x10half"])
def test_a_process_that_talks_garbage_is_ended_and_named(message: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole message that is none, and one that never ends."""
    monkeypatch.setattr(workers, "_MESSAGE_LIMIT_S", 1)
    worker = Worker(HEALTHY)
    with pytest.raises(WorkerStopped) as caught:
        worker.call("garble", message)
    assert not caught.value.timed_out
    assert "what is none of the protocol while in 'own_shape: launch'" in caught.value.detail
    assert not worker.alive
    worker.close()


def test_what_a_process_prints_is_no_message(shared: Worker) -> None:
    assert shared.call("chatter", "a\x00b" * 1000) == "done"


def test_a_backend_that_does_not_start_is_reported() -> None:
    worker = Worker(f"{BACKENDS}:NeverStarts")
    with pytest.raises(WorkerStopped) as caught:
        worker.call("echo", 1)
    assert "exit code 3" in caught.value.detail
    worker.close()


def test_a_fault_of_the_tool_itself_carries_its_trace() -> None:
    worker = Worker(HEALTHY)
    with pytest.raises(ToolError) as caught:
        worker.call("bug")
    assert caught.value.code == "VALIDATION_FAULT"
    assert "ZeroDivisionError: of the tool itself" in caught.value.message
    worker.close()


def test_workers_replace_a_process_that_died_and_leave_none_behind() -> None:
    with Workers(HEALTHY, "setup") as several:
        first = several.fresh()
        assert several.current() is first
        with pytest.raises(WorkerStopped):
            first.call("crash")
        second = several.current()
        assert second is not first
        assert second.call("echo", 1)[0] == 1
        pids = [second.pid, several.current().pid]
    assert not any(is_running(pid) for pid in pids)


def test_a_pool_works_side_by_side_and_gives_each_job_its_answer() -> None:
    with Pool(HEALTHY, 2) as pool:
        pool.setup = "setup"
        found = dict(pool.run(range(6), "echo", lambda job: (job,)))
    assert {job: answer[0] for job, answer in found.items()} == {job: job for job in range(6)}
    pids = {answer[2] for answer in found.values()}
    assert len(pids) == 2
    assert not any(is_running(pid) for pid in pids)


def test_a_pool_survives_children_that_hang_crash_or_refuse() -> None:
    jobs: list[tuple[str, tuple[object, ...]]] = [
        ("own_shape", ("own_shape: lazy, seed 1", 0.3)),
        ("crash", ()),
        ("refuse", ()),
        ("fine", (1,)),
        ("later", (2,)),
    ]
    methods = {"own_shape": "sleep", "crash": "crash", "refuse": "refuse", "fine": "echo", "later": "echo"}
    with Pool(HEALTHY, 2) as pool:
        found = {job[0]: answer for job, answer in pool.run(jobs, "dispatch", lambda job: (methods[job[0]], *job[1]))}
    hung, crashed, refused = found["own_shape"], found["crash"], found["refuse"]
    assert isinstance(hung, WorkerStopped)
    assert hung.timed_out
    assert "own_shape: lazy, seed 1" in hung.detail
    assert isinstance(crashed, WorkerStopped)
    assert "SIGSEGV" in crashed.detail
    assert isinstance(refused, DeviceError)
    assert (found["fine"][0], found["later"][0]) == (1, 2)


def test_a_pool_raises_a_fault_of_the_tool_itself_and_leaves_no_child() -> None:
    with Pool(HEALTHY, 2) as pool:
        with pytest.raises(ToolError, match="ZeroDivisionError"):
            list(pool.run(range(3), "bug", lambda _: ()))
        children = list(pool._workers)
    assert children
    assert not any(each.alive for each in children)


def test_a_pool_asks_for_jobs_one_by_one() -> None:
    asked: list[int] = []

    def jobs() -> Iterator[int]:
        for job in range(4):
            asked.append(job)
            yield job

    with Pool(HEALTHY, 1) as pool:
        for job, _ in pool.run(jobs(), "echo", lambda job: (job,)):
            assert asked[-1] == job


def test_a_child_ends_with_its_parent() -> None:
    worker = Worker(HEALTHY)
    assert worker.call("echo", 1)[0] == 1
    worker.close()  # closes the connection: the child reads its end
    assert not worker.alive
