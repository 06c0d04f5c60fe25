"""Child processes with a watchdog: the parent calls a method of a backend that lives in a process of its own.

A kernel that hangs or faults takes its process's CUDA context with it, so every kernel runs in a child. The child
announces each stage of its work with a time limit; a stage that outlasts it, or a process that dies, is reported with
that stage's name and never takes the parent along. Imports `errors` and the standard library.

The protocol is two pickled tuples over a socket pair: ("call", method, args) and ("stage", name, limit_s) |
("value", result) | ("refused", type, fields) | ("bug", traceback). The backend is named as `module:Class` or
`/path/file.py:Class`, which is how tests bring one that sleeps, faults or lies.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from advisor.errors import DeviceError, ToolError

START_LIMIT_S = 120.0  # from the start of a process until its imports are done
SPARES = 2  # processes that start ahead: importing torch takes longer than the cases of a small rung
_CALL_LIMIT_S = 60.0  # before a call has named its first stage
_LAST_LINES = 12


class WorkerStopped(Exception):
    """The child did not answer: it outlasted a stage (`timed_out`) or died. `stage` names what it was doing."""

    def __init__(self, stage: str, detail: str, *, timed_out: bool) -> None:
        super().__init__(detail)
        self.stage = stage
        self.detail = detail
        self.timed_out = timed_out


class Worker:
    """One child process with one backend."""

    def __init__(self, backend: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parent.parent.parent)
        search = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "advisor.validation.child", str(theirs.fileno()), backend],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, "PYTHONPATH": search},
        )
        theirs.close()
        self._connection = Connection(ours.detach())
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, method: str, *args: Any, on_stage: Callable[[str], None] | None = None) -> Any:
        """The value of `method(*args)` in the child.

        Raises WorkerStopped when the child hangs or dies (it is dead afterwards), and what the backend refused with:
        DeviceError, ToolError or another AdvisorError.
        """
        stage, limit = ("start", START_LIMIT_S) if not self._ready else ("call", _CALL_LIMIT_S)
        try:
            self._connection.send(("call", method, args))
        except (BrokenPipeError, ConnectionResetError):
            raise self._died(stage) from None
        while True:
            message = self._receive(stage, limit)
            kind, *rest = message
            if kind == "stage":
                self._ready = True
                stage, limit = rest
                if on_stage is not None:
                    on_stage(stage)
            elif kind == "value":
                self._ready = True
                return rest[0]
            elif kind == "refused":
                self._ready = True
                raise _rebuilt(*rest)
            else:
                raise self._bug(stage, rest[0])

    def _receive(self, stage: str, limit: float) -> Any:
        deadline = time.monotonic() + limit
        try:
            if not self._connection.poll(max(0.0, deadline - time.monotonic())):
                self.kill()
                raise WorkerStopped(stage, f"no answer within {limit:g} s while in {stage!r}", timed_out=True)
            return self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._died(stage) from None

    def _died(self, stage: str) -> WorkerStopped:
        code = self._wait()
        how = f"ended with exit code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        lines = self._last_lines()
        detail = f"the process {how} while in {stage!r}" + (f": {lines}" if lines else "")
        return WorkerStopped(stage, detail, timed_out=False)

    def _bug(self, stage: str, trace: str) -> ToolError:
        self.kill()
        return ToolError(
            "VALIDATION_FAULT",
            f"the validation process failed in {stage!r}: {trace}",
            fix="this is a fault of the tool: report it with the bundle",
            numbers={"stage": stage},
        )

    def _wait(self) -> int:
        try:
            return self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def _last_lines(self) -> str:
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return " | ".join(lines[-_LAST_LINES:])

    def kill(self) -> None:
        """Ends the process at once. A kernel that hangs ends with its context."""
        if self.alive:
            self._process.kill()
        self._process.wait()

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

    def __init__(self, backend: str, setup: Any = None) -> None:
        self.setup = setup  # what a process opens with; may change between processes
        self._backend = backend
        self._current: Worker | None = None
        self._spares = deque(Worker(backend) for _ in range(SPARES))

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
