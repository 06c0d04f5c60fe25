"""Child processes with a watchdog: the parent calls a method of a backend that lives in a process of its own.

A kernel that hangs or faults takes its process's CUDA context with it, so every kernel runs in a child. The child
announces each stage of its work with a time limit; a stage that outlasts it, or a process that dies, is reported with
that stage's name and never takes the parent along. It knows the kinds that its parent knows. Imports `errors` and
`kinds`.

The protocol is two pickled tuples over a socket pair: ("call", method, args) and ("stage", name, limit_s) |
("value", result) | ("refused", type, fields) | ("bug", traceback). The backend is named as `module:Class` or
`/path/file.py:Class`, which is how tests bring one that sleeps, faults or lies.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, TypeVar

from advisor import kinds
from advisor.errors import AdvisorError, DeviceError, ToolError

START_LIMIT_S = 120.0  # from the start of a process until its imports are done
SPARES = 2  # processes that start ahead: importing torch takes longer than the cases of a small rung
_MESSAGE_LIMIT_S = 30  # between two pieces of a message that has begun
_CALL_LIMIT_S = 60.0  # before a call has named its first stage
_LAST_LINES = 12
_KILL_LIMIT_S = 20.0  # a process that waits inside a driver may not end at once, or at all

Job = TypeVar("Job")


class WorkerStopped(Exception):
    """The child did not answer: it outlasted a stage (`timed_out`) or died. `stage` names what it was doing."""

    def __init__(self, stage: str, detail: str, *, timed_out: bool) -> None:
        super().__init__(detail)
        self.stage = stage
        self.detail = detail
        self.timed_out = timed_out


class Worker:
    """One child process with one backend."""

    def __init__(self, backend: str, environment: Mapping[str, str] | None = None) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _MESSAGE_LIMIT_S, 0))
        root = str(Path(__file__).resolve().parent.parent.parent)
        search = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "advisor.validation.child", str(theirs.fileno()), backend, *kinds.modules()],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, **(environment or {}), "PYTHONPATH": search},
        )
        theirs.close()
        self._connection = Connection(ours.detach())
        self._ready = False
        self._killed = False
        self._enter("start", START_LIMIT_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._killed and self._process.poll() is None

    def call(self, method: str, *args: Any, on_stage: Callable[[str], None] | None = None) -> Any:
        """The value of `method(*args)` in the child.

        Raises WorkerStopped when the child hangs or dies (it is dead afterwards), and what the backend refused with:
        DeviceError, ToolError or another AdvisorError.
        """
        self.begin(method, *args)
        while True:
            if not self._connection.poll(max(0.0, self.deadline - time.monotonic())):
                raise self.expired()
            kind, value = self.take()
            if kind == "value":
                return value
            if on_stage is not None:
                on_stage(value)

    # The same in steps, for a caller that has several children at work.

    @property
    def connection(self) -> Connection:
        return self._connection

    def begin(self, method: str, *args: Any) -> None:
        """Asks the child for `method(*args)`. It has until `deadline` to say something."""
        self._enter(*(("start", START_LIMIT_S) if not self._ready else ("call", _CALL_LIMIT_S)))
        try:
            self._connection.send(("call", method, args))
        except (BrokenPipeError, ConnectionResetError):
            raise self._died() from None

    def take(self) -> tuple[Literal["stage", "value"], Any]:
        """What the child has said: the stage that it is in now, or its answer. Raises as `call` does."""
        try:
            kind, *rest = self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._died() from None
        except (OSError, ValueError, pickle.UnpicklingError) as error:  # half a message, or none
            raise self._garbled(error) from None
        self._ready = True
        if kind == "stage":
            self._enter(*rest)
            return "stage", self._stage
        if kind == "value":
            return "value", rest[0]
        if kind == "refused":
            raise _rebuilt(*rest)
        raise self._bug(rest[0])

    def _enter(self, stage: str, limit_s: float) -> None:
        self._stage, self._limit_s = stage, limit_s
        self.deadline = time.monotonic() + limit_s

    def expired(self) -> WorkerStopped:
        """Ends a child that has outlasted its stage."""
        self.kill()
        detail = f"no answer within {self._limit_s:g} s while in {self._stage!r}"
        return WorkerStopped(self._stage, detail, timed_out=True)

    def _died(self) -> WorkerStopped:
        code, stage = self._wait(), self._stage
        if code is None:
            how = "closed its connection and does not end"
        else:
            how = f"ended with exit code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        lines = self._last_lines()
        detail = f"the process {how} while in {stage!r}" + (f": {lines}" if lines else "")
        return WorkerStopped(stage, detail, timed_out=False)

    def _garbled(self, error: Exception) -> WorkerStopped:
        """Ends a child that says what is none of the protocol: whatever it says next means nothing either."""
        self.kill()
        detail = f"the process said what is none of the protocol while in {self._stage!r}: {error}"
        return WorkerStopped(self._stage, detail, timed_out=False)

    def _bug(self, trace: str) -> ToolError:
        self.kill()
        return ToolError(
            "VALIDATION_FAULT",
            f"the validation process failed in {self._stage!r}: {trace}",
            fix="this is a fault of the tool: report it with the bundle",
            numbers={"stage": self._stage},
        )

    def _wait(self) -> int | None:
        """The exit code; None where the process does not end even when it is killed."""
        try:
            return self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.poll()

    def _last_lines(self) -> str:
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return " | ".join(lines[-_LAST_LINES:])

    def kill(self) -> None:
        """Ends the process at once. A kernel that hangs ends with its context. One that does not end for the driver's
        sake is left behind: it must not take its parent along."""
        if self.alive:
            self._process.kill()
        self._killed = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_KILL_LIMIT_S)

    def close(self) -> None:
        """Lets the process end by itself, then makes sure."""
        self._connection.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._output.close()


class Workers:
    """Hands out fresh processes. The next ones start while this one works, so that their imports cost no time."""

    def __init__(self, backend: str, setup: Any = None, spares: int = SPARES) -> None:
        self.setup = setup  # what a process opens with; may change between processes
        self._backend = backend
        self._current: Worker | None = None
        self._spares = deque(Worker(backend) for _ in range(spares))

    def fresh(self) -> Worker:
        """A process whose backend is open. Raises what opening raises."""
        self.release()
        worker = self._spares.popleft()
        self._spares.append(Worker(self._backend))
        self._current = worker
        worker.call("open", self.setup)
        return worker

    def current(self) -> Worker:
        """The process in use, or a fresh one where it has died."""
        if self._current is not None and self._current.alive:
            return self._current
        return self.fresh()

    def release(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

    def close(self) -> None:
        self.release()
        for spare in self._spares:
            spare.kill()
            spare.close()
        self._spares.clear()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Pool:
    """Several processes that work through jobs side by side, each at one job at a time. They start at once, so that
    their imports overlap with what the caller does before it has jobs."""

    def __init__(self, backend: str, size: int, environment: Mapping[str, str] | None = None) -> None:
        self.setup: Any = None  # what a process opens with
        self._make = partial(Worker, backend, environment)
        self._size = size
        self._spares = deque(self._make() for _ in range(size))
        self._workers: list[Worker] = []

    def run(
        self, jobs: Iterable[Job], method: str, arguments: Callable[[Job], Sequence[Any]]
    ) -> Iterator[tuple[Job, Any]]:
        """Each job with the value of `method(*arguments(job))`, in the order in which they end; with the exception
        where the child refused it, hung or died, and the next job then gets a new child.

        The jobs are asked for one by one, as children become free. Raises what opening the backend raises.
        """
        waiting = iter(jobs)
        busy: dict[Worker, Job] = {}
        idle = list(self._workers)
        more = True
        while more or busy:
            while more and (idle or len(busy) < self._size):
                try:
                    job = next(waiting)
                except StopIteration:
                    more = False
                    break
                worker = idle.pop() if idle else self._opened()
                busy[worker] = job
                try:
                    worker.begin(method, *arguments(job))
                except WorkerStopped as stopped:
                    self._drop(worker)
                    yield busy.pop(worker), stopped
            for worker, ended in self._answers(list(busy)):
                if worker.alive:
                    idle.append(worker)
                else:
                    self._drop(worker)
                yield busy.pop(worker), ended

    def _opened(self) -> Worker:
        worker = self._spares.popleft() if self._spares else self._make()
        self._workers.append(worker)
        worker.call("open", self.setup)
        return worker

    def _answers(self, busy: Sequence[Worker]) -> Iterator[tuple[Worker, Any]]:
        """Waits until something has come, and gives the answers among it."""
        by_connection = {each.connection: each for each in busy}
        patience = max(0.0, min((each.deadline for each in busy), default=0.0) - time.monotonic())
        ready = wait(list(by_connection), patience) if busy else []
        for worker in busy:
            try:
                if worker.connection in ready:
                    kind, value = worker.take()
                    if kind == "value":
                        yield worker, value
                elif time.monotonic() > worker.deadline:
                    raise worker.expired()
            except (WorkerStopped, AdvisorError) as error:
                if isinstance(error, ToolError) and error.code == "VALIDATION_FAULT":
                    raise
                yield worker, error

    def _drop(self, worker: Worker) -> None:
        self._workers.remove(worker)
        worker.close()

    def close(self) -> None:
        for worker in (*self._workers, *self._spares):
            worker.kill()
            worker.close()
        self._workers.clear()
        self._spares.clear()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rebuilt(kind: str, fields: dict[str, Any]) -> Exception:
    """The backend's refusal as the same exception here."""
    import advisor.errors

    found = getattr(advisor.errors, kind, DeviceError)
    error: Exception = found(fields["code"], fields["message"], fix=fields["fix"], numbers=fields["numbers"])
    return error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
