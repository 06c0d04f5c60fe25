"""When asynchronous operations land: eagerly, lazily, at random, or as late and as badly ordered as the rules allow.

Imports `errors`. An operation is a row of stages that happen one after another (read the source; write the
destination and signal); between operations there is no order except what `after` says, since asynchronous operations
are ordered after prior instructions of their thread and with nothing later (PTX ISA 8.9.1.1). The destinations of a
multicast are operations of their own.

The scheduler calls `tick` once per quantum and `idle` when nothing can run; both return how many stages ran. The same
seed gives the same order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from advisor.errors import InputError

POLICIES = ("eager", "lazy", "random", "adversarial")
PATIENCE = 4096  # quanta after which an operation lands although warps still run: they may be polling for it


@dataclass(slots=True, eq=False)
class Pending:
    """An operation in flight."""

    number: int
    stages: list[Callable[[], None]]
    label: str
    after: tuple[Pending, ...] = ()
    issued: int = 0
    done: int = 0

    @property
    def finished(self) -> bool:
        return self.done == len(self.stages)

    @property
    def may_run(self) -> bool:
        return not self.finished and all(each.finished for each in self.after)


@dataclass(slots=True)
class AsyncQueue:
    """All operations in flight, and the policy that lands them."""

    policy: str = "random"
    seed: int = 0
    patience: int = PATIENCE
    now: int = 0
    submitted: int = 0
    landed: int = 0
    pending: list[Pending] = field(default_factory=list)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise InputError(
                "EMU_POLICY",
                f"{self.policy!r} is no policy for asynchronous operations",
                fix=f"one of {', '.join(POLICIES)}",
                numbers={"policy": self.policy, "policies": list(POLICIES)},
            )
        self._random = random.Random(f"{self.policy}:{self.seed}")

    def submit(self, stages: Sequence[Callable[[], None]], label: str, after: Sequence[Pending] = ()) -> Pending:
        """An operation has been issued. The eager policy lands it before this returns, where `after` lets it."""
        operation = Pending(
            self.submitted, list(stages), label, tuple(each for each in after if not each.finished), self.now
        )
        self.submitted += 1
        self.pending.append(operation)
        if self.policy == "eager":
            self._run_all()
        return operation

    def tick(self) -> int:
        """A quantum has passed."""
        self.now += 1
        if not self.pending:
            return 0
        if self.policy == "eager":
            return self._run_all()
        ran = 0
        if self.policy == "random":
            for each in [each for each in self.pending if each.may_run]:
                if self._random.random() < 0.125:
                    ran += self._stage(each)
        late = self.now - self.patience
        if self.pending and self.pending[0].issued <= late:  # in order of issue: the first is the oldest
            for each in [each for each in self.pending if each.issued <= late]:
                if each.may_run:
                    ran += self._stage(each)
        return ran

    def idle(self) -> int:
        """No warp can run: land something. Returns 0 when nothing is in flight, which makes it a deadlock."""
        ready = [each for each in self.pending if each.may_run]
        if not ready:
            return 0
        if self.policy == "random":
            return self._stage(self._random.choice(ready))
        if self.policy == "adversarial":
            # The latest first, and now and then another: a fixed order would hide faults that need a third one.
            return self._stage(self._random.choice(ready) if self._random.random() < 0.25 else ready[-1])
        return self._stage(ready[0])

    def land(self, operation: Pending) -> None:
        """Land this one, and what it comes after, now."""
        for each in operation.after:
            self.land(each)
        while not operation.finished:
            self._stage(operation)

    def _run_all(self) -> int:
        ran = 0
        while ready := [each for each in self.pending if each.may_run]:
            for each in ready:
                while not each.finished:
                    ran += self._stage(each)
        return ran

    def _stage(self, operation: Pending) -> int:
        stage = operation.stages[operation.done]
        operation.done += 1
        if operation.finished:
            self.pending.remove(operation)
            self.landed += 1
        stage()
        return 1
