"""When asynchronous operations land, which requests of Cluster Launch Control are granted, which clusters of two sizes
a launch starts.

Imports `errors`. They land eagerly, lazily, at random, or as late and as badly ordered as the rules allow. An operation
is a row of stages that happen one after another (read the source; write the destination and signal); between operations
there is no order except what `after` says, since asynchronous operations are ordered after prior instructions of their
thread and with nothing later (PTX ISA 8.9.1.1). The destinations of a multicast are operations of their own.

The scheduler calls `tick` once per quantum and `idle` when nothing can run; both return how many stages ran. The same
seed gives the same order.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from advisor.errors import InputError

POLICIES = ("eager", "lazy", "random", "adversarial")
ALONE = 1 / 16  # share of the times when one operation lands alone, although several clusters stand still
PATIENCE = 4096  # quanta after which an operation lands although warps still run: they may be polling for it


@dataclass(slots=True, eq=False)
class Pending:
    """An operation in flight. `blocked` of the operations that it comes after have not finished."""

    number: int
    stages: list[Callable[[], None]]
    label: str
    after: tuple[Pending, ...] = ()
    owner: int = 0
    issued: int = 0
    done: int = 0
    blocked: int = 0
    followers: list[Pending] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.done == len(self.stages)

    @property
    def may_run(self) -> bool:
        return not self.finished and not self.blocked


def _number(operation: Pending) -> int:
    return operation.number


@dataclass(slots=True)
class AsyncQueue:
    """All operations in flight, and the policy that lands them."""

    policy: str = "random"
    seed: int = 0
    patience: int = PATIENCE
    now: int = 0
    submitted: int = 0
    landed: int = 0
    pending: dict[int, Pending] = field(default_factory=dict)  # by number, in the order of issue
    ready: list[Pending] = field(default_factory=list)  # those that may run, in the order of issue
    _held: Callable[[], None] | None = None
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

    def submit(
        self, stages: Sequence[Callable[[], None]], label: str, after: Sequence[Pending] = (), owner: int = 0
    ) -> Pending:
        """An operation has been issued. The eager policy lands it before this returns, where `after` lets it. `owner`
        is the cluster whose warps may wait for it."""
        before = tuple(each for each in after if not each.finished)
        operation = Pending(self.submitted, list(stages), label, before, owner, self.now, blocked=len(before))
        for each in before:
            each.followers.append(operation)
        self.submitted += 1
        self.pending[operation.number] = operation
        if not before:
            self.ready.append(operation)
        if self.policy == "eager":
            self._run_all()
        return operation

    def hold(self, end: Callable[[], None]) -> None:
        """Something beside the kernel comes to its end: eagerly before the kernel runs, at random at any time, else
        when nothing can run and nothing else can land."""
        self._held = end

    def _let_go(self) -> int:
        end, self._held = self._held, None
        if end is None:
            return 0
        end()
        return 1

    def tick(self) -> int:
        """A quantum has passed."""
        self.now += 1
        if self._held is not None and (
            self.policy == "eager"
            or self.now > self.patience
            or (self.policy == "random" and self._random.random() < 0.125)
        ):
            self._let_go()
        if not self.pending:
            return 0
        if self.policy == "eager":
            return self._run_all()
        ran = 0
        if self.policy == "random":
            for each in list(self.ready):
                if self._random.random() < 0.125:
                    ran += self._stage(each)
        late = self.now - self.patience
        if self.ready and self.ready[0].issued <= late:
            for each in [each for each in self.ready if each.issued <= late]:
                ran += self._stage(each)
        return ran

    def idle(self) -> int:
        """No warp can run: land something. Returns 0 when nothing is in flight, which makes it a deadlock.

        One operation lands for each cluster, since each stands still for reasons of its own, and clusters that go on
        together stay in step; now and then a single one lands, so that they also come apart."""
        ready = self.ready
        if not ready:
            return self._let_go()
        by_owner: dict[int, list[Pending]] = {}
        for each in ready:
            by_owner.setdefault(each.owner, []).append(each)
        if len(by_owner) > 1 and self.policy != "lazy" and self._random.random() < ALONE:
            return self._stage(self._next(ready))
        return sum(self._stage(each) for each in [self._next(several) for several in by_owner.values()])

    def _next(self, ready: Sequence[Pending]) -> Pending:
        """Which of these lands now."""
        if self.policy == "random":
            return self._random.choice(ready)
        if self.policy == "adversarial":
            # The latest first, and now and then another: a fixed order would hide faults that need a third one.
            return self._random.choice(ready) if self._random.random() < 0.25 else ready[-1]
        return ready[0]

    def land(self, operation: Pending) -> None:
        """Land this one, and what it comes after, now."""
        chain = [operation]
        while chain:
            last = chain[-1]
            before = [each for each in last.after if not each.finished]
            if before:
                chain += before
                continue
            while not last.finished:
                self._stage(last)
            chain.pop()

    def _run_all(self) -> int:
        ran = 0
        while self.ready:
            for each in list(self.ready):
                while not each.finished:
                    ran += self._stage(each)
        return ran

    def _stage(self, operation: Pending) -> int:
        stage = operation.stages[operation.done]
        operation.done += 1
        if operation.finished:
            self._finish(operation)
        stage()
        return 1

    def _finish(self, operation: Pending) -> None:
        operation.after = ()  # or a chain of operations would keep all of them alive
        del self.pending[operation.number]
        del self.ready[bisect.bisect_left(self.ready, operation.number, key=_number)]
        self.landed += 1
        for each in operation.followers:
            each.blocked -= 1
            if not each.blocked:
                bisect.insort(self.ready, each, key=_number)
        operation.followers = []


# --- clusters of two sizes --------------------------------------------------------------------------------------------

CLUSTER_MIXES = ("fill", "preferred", "smaller", "random")


@dataclass(slots=True)
class ClusterMix:
    """Says of each preferred cluster of a grid whether it starts as one, or as the smaller clusters that make it up.

    The preferred size is the hardware's best effort: one launch may hold both, in any proportion (driver_types.h,
    cudaLaunchAttributePreferredClusterDimension). `fill` starts preferred clusters where they fit and smaller ones on
    the SMs that are left; `preferred` and `smaller` start one kind only; `random` tosses a coin for each.
    """

    policy: str = "fill"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.policy not in CLUSTER_MIXES:
            raise InputError(
                "EMU_POLICY",
                f"{self.policy!r} is no policy for clusters of two sizes",
                fix=f"one of {', '.join(CLUSTER_MIXES)}",
                numbers={"policy": self.policy, "policies": list(CLUSTER_MIXES)},
            )

    def whole(self, number: int, *, fits: bool, ever: bool) -> bool:
        """Whether the cluster of this number starts as a preferred one, or waits to. `fits`: it has room now; `ever`:
        it has once those that run are over."""
        if self.policy == "random":
            return ever and random.Random(f"mix:{self.seed}:{number}").random() < 0.5
        return fits if self.policy == "fill" else self.policy == "preferred"


# --- Cluster Launch Control -------------------------------------------------------------------------------------------

CLC_POLICIES = ("grant", "decline:N", "random", "preempt", "spurious")
DECLINED_AT_RANDOM = 0.3
CALM_REQUESTS = (2, 7)  # requests between two disturbances: of preempt, and of spurious
BURST_REQUESTS = (1, 4)  # requests that fail in a row, spuriously
HELD_QUANTA = (8, 96)  # how long the other kernel keeps the SMs that it took


@dataclass(slots=True)
class RequestPolicy:
    """Says of each request whether the hardware grants it, when a cluster is waiting to be taken.

    A failed request says nothing but "stop": the hardware may want the SM for other work (PTX ISA,
    clusterlaunchcontrol.try_cancel; spurious failures were seen on B300). `decline:N` fails the N-th request of each
    cluster; `random` fails any; `spurious` fails several in a row, of whichever cluster asks; `preempt` fails all while
    a kernel of higher priority wants SMs, which it takes from clusters that exit and gives back after a while.
    """

    policy: str = "grant"
    seed: int = 0
    preempting: bool = field(init=False, default=False)
    _nth: int = field(init=False, default=0)
    _calm: int = field(init=False, default=0)  # requests until the next disturbance
    _burst: int = field(init=False, default=0)
    _until: int = field(init=False, default=0)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        name, colon, number = self.policy.partition(":")
        known = name == "decline" and number.isdecimal() and int(number) > 0 if colon else name in CLC_POLICIES
        if not known:
            raise InputError(
                "EMU_POLICY",
                f"{self.policy!r} is no policy for requests of Cluster Launch Control",
                fix=f"one of {', '.join(CLC_POLICIES)}; N counts from 1",
                numbers={"policy": self.policy, "policies": list(CLC_POLICIES)},
            )
        self._nth = int(number) if colon else 0
        self._random = random.Random(f"clc:{self.policy}:{self.seed}")
        self._calm = self._random.randint(*CALM_REQUESTS)

    def grants(self, nth: int, now: int) -> bool:
        """Whether the `nth` request of a cluster, from 1, is granted at time `now` (in quanta)."""
        if self.policy == "grant":
            return True
        if self._nth:
            return nth != self._nth
        if self.policy == "random":
            return self._random.random() >= DECLINED_AT_RANDOM
        if self.policy == "spurious":
            return not self._spurious()
        if not self.preempting:
            self._calm -= 1
            if self._calm > 0:
                return True
            self.preempting = True
            self._until = now + self._random.randint(*HELD_QUANTA)
        return False

    def _spurious(self) -> bool:
        if self._burst:
            self._burst -= 1
            return True
        self._calm -= 1
        if self._calm <= 0:
            self._calm = self._random.randint(*CALM_REQUESTS)
            self._burst = self._random.randint(*BURST_REQUESTS) - 1
            return True
        return False

    def wanted_sms(self, sms: int) -> int:
        """Of a device with `sms`, how many the kernel of higher priority wants."""
        return self._random.randint(1, max(1, sms // 2))

    def over(self, now: int, *, idle: bool = False) -> bool:
        """Whether the other kernel has come to its end. `idle`: nothing else can go on, so time passes until it has."""
        if not self.preempting or (now < self._until and not idle):
            return False
        self.preempting = False
        self._calm = self._random.randint(*CALM_REQUESTS)
        return True

    def place(self, waiting: int) -> int:
        """Which of the waiting clusters a grant takes. The order that was observed is that of their numbers; no rule
        promises it, so the policies that disturb take any."""
        return 0 if self.policy == "grant" or self._nth else self._random.randrange(waiting)
