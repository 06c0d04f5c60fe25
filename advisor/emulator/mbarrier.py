"""mbarrier objects: phases, arrivals, transactions, waits, and what is undefined about them.

Imports `happens_before` and `report`. The rules are PTX ISA 9.7.13.15. Phases are full numbers here, so that a wait on
the wrong one is seen; a parity is what the kernel passes. Each barrier keeps the last events for the report: who armed
it, who arrived, who waits.

A barrier belongs to one CTA; arrivals, expect-tx and complete-tx may come from any CTA of the cluster or from an
asynchronous operation, initialisation and waits only from its own CTA. Whoever drives a unit of tensor memory or
Cluster Launch Control later signals through the same `arrive` and `complete_tx`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from advisor.emulator.happens_before import AsyncOperation, Channel, Order, Scope, Sem, Shadow, SyncPoint
from advisor.emulator.report import Event

MAX_COUNT = 2**20 - 1  # of arrivals, and of transactions in either direction (PTX ISA 9.7.13.15.2)
HISTORY = 48


class By(NamedTuple):
    """Who does something to a barrier: the row of a warp, the instruction, a lane that does it."""

    row: int
    pc: int
    lane: int | None = None


class _Entry(NamedTuple):
    what: str
    phase: int
    by: By


@dataclass(slots=True, eq=False)
class Mbarrier:
    """One mbarrier object. `phase` is the number of the current, incomplete phase."""

    address: int
    expected: int
    pending: int
    record: int  # of mbarrier.init in shadow memory
    channel: Channel
    phase: int = 0
    tx: int = 0
    arrived: int = 0  # arrivals in the current phase
    announced: int = 0  # bytes of its expect-tx
    observed: int = -1  # the last phase that a wait has found complete
    gathering: SyncPoint = field(default_factory=SyncPoint)  # every release so far: arrivals are read-modify-writes
    completed: SyncPoint = field(default_factory=SyncPoint)  # the same, as it was when the last phase completed
    history: deque[_Entry] = field(default_factory=lambda: deque(maxlen=HISTORY))
    polling: dict[tuple[int, int | None], tuple[int, By]] = field(default_factory=dict)  # waiter -> (phase, by)
    seen_by: set[int] = field(default_factory=set)  # rows for which the init is known to be ordered before
    remote: dict[int, tuple[int, By]] = field(default_factory=dict)  # row of a peer -> its clock at its last arrival
    from_peers: bool = False  # whether an operation that a peer has issued has landed at it
    named: bool = False  # whether a wait has named cluster scope


class BarrierUnit:
    """The mbarriers of one CTA's shared memory. `addresses` are in whatever form the caller uses for all its calls;
    `base` turns an address into one of the shadow's."""

    def __init__(
        self,
        order: Order,
        shadow: Shadow,
        cluster: int,
        rank: int,
        *,
        base: int = 0,
        on_phase: Callable[[Mbarrier], None] | None = None,
    ) -> None:
        self.order = order
        self.shadow = shadow
        self.cluster = cluster
        self.rank = rank
        self.base = base
        self.on_phase = on_phase
        self.barriers: dict[int, Mbarrier] = {}
        self.phases_completed = 0

    # --- life ---------------------------------------------------------------------------------------------------------

    def init(self, address: int, count: int, by: By) -> Mbarrier:
        """mbarrier.init. Undefined on a live barrier, for a count outside 1 .. 2^20-1, off 8 bytes (9.7.13.15.9)."""
        self._aligned(address, by)
        if not 1 <= count <= MAX_COUNT:
            self._fail(
                "EMU_BARRIER_COUNT",
                f"mbarrier.init with count {count}: a count is 1 to {MAX_COUNT}",
                by,
                numbers={"address": address, "count": count},
            )
        live = self.barriers.get(address)
        if live is not None:
            self._fail(
                "EMU_BARRIER_REINIT",
                f"mbarrier.init on the live mbarrier at {address:#x}",
                by,
                live,
                fix="mbarrier.inval before the location is used again",
            )
        record = self.order.init_barrier(self.shadow, by.row, self.base + address, by.pc)
        # A barrier made anew at the location has a channel of its own: the clock of a channel never runs backwards.
        key = ("mbarrier", self.rank, address, record)
        channel = self.order.channel(self.cluster, self.rank, key, f"mbarrier {address:#x}")
        made = Mbarrier(address, count, count, record, channel)
        made.history.append(_Entry(f"init with count {count}", 0, by))
        made.seen_by.add(by.row)
        self.barriers[address] = made
        return made

    def inval(self, address: int, by: By) -> None:
        """mbarrier.inval (9.7.13.15.10). A fault while somebody waits on it or transactions are outstanding."""
        barrier = self._live(address, by, "mbarrier.inval")
        if barrier.tx or barrier.polling:
            why = f"{barrier.tx} bytes are outstanding" if barrier.tx else "a thread waits on it"
            self._fail("EMU_BARRIER_IN_USE", f"mbarrier.inval on the mbarrier at {address:#x} while {why}", by, barrier)
        self.order.inval_barrier(self.shadow, by.row, self.base + address, by.pc)
        del self.barriers[address]

    def use(self, address: int, by: By, what: str) -> Mbarrier:
        """The live barrier that an instruction names; for an asynchronous operation, call this when it is issued."""
        return self._live(address, by, what)

    # --- arrivals and transactions ------------------------------------------------------------------------------------

    def arrive(
        self,
        address: int,
        by: By,
        count: int = 1,
        *,
        expect_tx: int = 0,
        drop: bool = False,
        no_complete: bool = False,
        sem: Sem = Sem.RELEASE,
        scope: Scope = Scope.CTA,
    ) -> int:
        """mbarrier.arrive{_drop}{.expect_tx}{.noComplete} (9.7.13.15.13, .14). Returns the state token.

        Lanes of one warp that arrive together may be one call with their number as `count`: each would bring the same
        clocks. The expect-tx comes before the arrive-on.
        """
        barrier = self._live(address, by, "mbarrier.arrive")
        token = state_token(barrier.phase, barrier.pending)
        self._after_wait(barrier, by)
        if expect_tx:
            self._add_tx(barrier, expect_tx, by)
        if not 1 <= count <= MAX_COUNT:
            self._fail(
                "EMU_BARRIER_COUNT", f"mbarrier.arrive with count {count}", by, barrier, numbers={"count": count}
            )
        barrier.history.append(
            _Entry(f"arrive {count}" + (f", expect {expect_tx} bytes" if expect_tx else ""), barrier.phase, by)
        )
        if count > barrier.pending:
            self._fail(
                "EMU_BARRIER_OVERRUN",
                f"{count} arrivals at the mbarrier at {address:#x}, whose phase {barrier.phase} has only "
                f"{barrier.pending} of {barrier.expected} pending",
                by,
                barrier,
                numbers={"count": count, "pending": barrier.pending, "expected": barrier.expected},
                fix="initialise it with the number of arrivals of one phase, or wait before arriving again",
            )
        if no_complete and count == barrier.pending and barrier.tx == 0:
            self._fail(
                "EMU_BARRIER_NO_COMPLETE",
                f"mbarrier.arrive.noComplete completes phase {barrier.phase} of the mbarrier at {address:#x}",
                by,
                barrier,
            )
        if drop:
            barrier.expected -= count
        self._note_remote(barrier, by)
        self.order.release(barrier.gathering, by.row, sem, scope)
        barrier.pending -= count
        barrier.arrived += count
        self._maybe_complete(barrier)
        return token

    def expect_tx(self, address: int, bytes_: int, by: By) -> None:
        """mbarrier.expect_tx (9.7.13.15.11)."""
        barrier = self._live(address, by, "mbarrier.expect_tx")
        self._note_remote(barrier, by)
        barrier.history.append(_Entry(f"expect {bytes_} bytes", barrier.phase, by))
        self._add_tx(barrier, bytes_, by)
        self._maybe_complete(barrier)

    def complete_tx(self, address: int, bytes_: int, by: By, operation: AsyncOperation | None = None) -> int:
        """The complete-tx of an asynchronous operation that lands, or mbarrier.complete_tx (9.7.13.15.12), which only
        simulates one. Returns the phase that it counted for."""
        barrier = self._live(address, by, "complete-tx")
        phase = barrier.phase
        clock = phase + 1  # 0 is what everybody has seen
        barrier.history.append(_Entry(f"{bytes_} bytes have landed, issued", phase, by))
        if operation is not None:
            barrier.from_peers = barrier.from_peers or self.order.who(by.row).rank != self.rank
            mine = [each for each in operation.records if self.order.column(each) == barrier.channel.column]
            self.order.land(mine, clock)
            self.order.complete(barrier.gathering, barrier.channel, clock)
        self._add_tx(barrier, -bytes_, by)
        self._maybe_complete(barrier)
        return phase

    def async_arrive(self, address: int, by: By, point: SyncPoint, count: int = 1, *, increment: bool = False) -> int:
        """An arrive-on that the hardware does when earlier asynchronous operations of a thread have completed:
        cp.async.mbarrier.arrive{.noinc} (9.7.13.15.15), tcgen05.commit. `point` holds their completions. Returns the
        phase in which it counts.

        `increment` (without .noinc) is done when the instruction executes: see `count_in`.
        """
        barrier = self._live(address, by, "an asynchronous arrive")
        self._after_wait(barrier, by)
        if increment:
            self._increment(barrier, count, by)
        barrier.history.append(_Entry(f"asynchronous arrive {count}, issued", barrier.phase, by))
        if count > barrier.pending:
            self._fail(
                "EMU_BARRIER_OVERRUN",
                f"an asynchronous arrival at the mbarrier at {address:#x}, whose phase {barrier.phase} has only "
                f"{barrier.pending} of {barrier.expected} pending",
                by,
                barrier,
                numbers={"count": count, "pending": barrier.pending, "expected": barrier.expected},
            )
        barrier.gathering.absorb(point)
        barrier.pending -= count
        barrier.arrived += count
        phase = barrier.phase
        self._maybe_complete(barrier)
        return phase

    def count_in(self, address: int, by: By, count: int = 1) -> None:
        """cp.async.mbarrier.arrive without .noinc raises the pending count at once, for an arrival that comes later."""
        self._increment(self._live(address, by, "cp.async.mbarrier.arrive"), count, by)

    # --- waits --------------------------------------------------------------------------------------------------------

    def test_parity(
        self,
        address: int,
        parity: int,
        by: By,
        *,
        sem: Sem = Sem.ACQUIRE,
        scope: Scope = Scope.CTA,
    ) -> bool:
        """mbarrier.{test, try}_wait.parity: whether the phase of this parity, the current or the one before, is
        complete (9.7.13.15.16).

        A thread that found a phase incomplete and comes back when the *next* one is over too has been overtaken: its
        parity now names a later phase. That is EMU_BARRIER_PHASE_BEHIND.
        """
        barrier = self._live(address, by, "mbarrier wait")
        done = (barrier.phase & 1) != (parity & 1)
        waiter = (by.row, by.lane)
        waited = barrier.polling.get(waiter)
        if waited is not None and barrier.phase > waited[0] + 1 and (waited[0] & 1) == (parity & 1):
            self._behind(barrier, waited[0], by)
        if done:
            self._observed(barrier, waiter, by, sem, scope)
        elif waited is None or waited[0] != barrier.phase:
            barrier.polling[waiter] = (barrier.phase, by)
        return done

    def test_state(
        self,
        address: int,
        token: int,
        by: By,
        *,
        sem: Sem = Sem.ACQUIRE,
        scope: Scope = Scope.CTA,
    ) -> bool:
        """The form with the state of an arrive: exact, so a state older than the preceding phase is a fault."""
        barrier = self._live(address, by, "mbarrier wait")
        phase = token_phase(token)
        # A token holds the low bits of the phase; the phase meant is the nearest at or below the current one.
        meant = barrier.phase - ((barrier.phase - phase) & PHASE_MASK)
        if meant < barrier.phase - 1:
            self._behind(barrier, meant, by)
        waiter = (by.row, by.lane)
        if meant == barrier.phase:
            barrier.polling[waiter] = (barrier.phase, by)
            return False
        self._observed(barrier, waiter, by, sem, scope)
        return True

    def complete(self, address: int, parity: int) -> bool:
        """Whether a wait of this parity would return true: for a scheduler, without effect on order or history."""
        barrier = self.barriers.get(address)
        return barrier is not None and (barrier.phase & 1) != (parity & 1)

    def _observed(self, barrier: Mbarrier, waiter: tuple[int, int | None], by: By, sem: Sem, scope: Scope) -> None:
        barrier.polling.pop(waiter, None)
        barrier.observed = barrier.phase - 1
        barrier.named = barrier.named or scope >= Scope.CLUSTER
        if scope < Scope.CLUSTER and barrier.named and barrier.from_peers:
            # By the letter a wait of CTA scope says nothing of what a peer's operation has written (8.9.4). All but
            # nobody names more, so that one is held to it only beside others that do.
            sem = Sem.RELAXED
        self.order.acquire(barrier.completed, by.row, sem, scope)

    # --- exits and reports --------------------------------------------------------------------------------------------

    def at_exit(self, rows: list[int], by: By) -> None:
        """The CTA exits. A peer's arrival that is not ordered before the exit may come when its shared memory is gone;
        bytes that are outstanding will come then. Raises EMU_PEER_EXITED or EMU_ASYNC_AT_EXIT."""
        for barrier in self.barriers.values():
            for row, (clock, at) in barrier.remote.items():
                if not self.order.has_heard(rows, row, clock):
                    self._fail(
                        "EMU_PEER_EXITED",
                        f"the CTA exits while an arrival of a peer CTA at its mbarrier at {barrier.address:#x} may "
                        "still be on its way: nothing orders it before the exit",
                        by,
                        barrier,
                        extra=(self._event("the arrival", at),),
                        fix="wait on the barrier, or put a cluster barrier before the exit",
                    )
            if barrier.tx > 0:
                self._fail(
                    "EMU_ASYNC_AT_EXIT",
                    f"the CTA exits while its mbarrier at {barrier.address:#x} still expects {barrier.tx} bytes",
                    by,
                    barrier,
                    numbers={"tx": barrier.tx},
                    fix="wait for every phase that was armed",
                )

    def describe(self, barrier: Mbarrier) -> str:
        """The state of a barrier in a line: for deadlocks."""
        early = f": {-barrier.tx} bytes have landed that no expect-tx has announced" if barrier.tx < 0 else ""
        return (
            f"mbarrier {barrier.address:#x} of CTA rank {self.rank}, phase {barrier.phase}: {barrier.pending} of "
            f"{barrier.expected} arrivals pending, tx-count {barrier.tx}{early}"
        )

    def story(self, barrier: Mbarrier, phases: int = 2) -> tuple[Event, ...]:
        """Who initialised, armed, arrived and waits, of the last phases."""
        entries = [each for each in barrier.history if each.phase > barrier.phase - phases or each.what[:4] == "init"]
        told = [self._event(f"phase {each.phase}: {each.what}", each.by) for each in entries]
        told += [self._event(f"waits for phase {phase}", by) for phase, by in barrier.polling.values()]
        return tuple(told)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _maybe_complete(self, barrier: Mbarrier) -> None:
        """ "An mbarrier object completes the current phase when [...] the count of the pending arrivals has reached
        zero [and] the tx-count has reached zero" (9.7.13.15.6)."""
        if barrier.pending or barrier.tx:
            return
        barrier.phase += 1
        barrier.pending = barrier.expected
        barrier.completed = barrier.gathering.copy()
        self.phases_completed += 1
        if self.on_phase is not None:
            self.on_phase(barrier)
        barrier.arrived = barrier.announced = 0

    def _after_wait(self, barrier: Mbarrier, by: By) -> None:
        """ "For each phase of the mbarrier object, at least one test_wait or try_wait operation must be performed which
        returns True for waitComplete before an arrive-on operation in the subsequent phase" (9.7.13.15.4)."""
        if barrier.observed < barrier.phase - 1:
            self._fail(
                "EMU_BARRIER_UNOBSERVED",
                f"an arrival in phase {barrier.phase} of the mbarrier at {barrier.address:#x}, and no wait has found "
                f"phase {barrier.phase - 1} complete yet",
                by,
                barrier,
                numbers={"phase": barrier.phase, "expected": barrier.expected},
                fix="a count that is too low ends a phase before its last arrival; or the thread arrives again without "
                "waiting for whoever waits on this barrier",
            )

    def _add_tx(self, barrier: Mbarrier, amount: int, by: By) -> None:
        barrier.tx += amount
        barrier.announced += max(amount, 0)
        if abs(amount) > MAX_COUNT or abs(barrier.tx) > MAX_COUNT:
            self._fail(
                "EMU_BARRIER_TX_RANGE",
                f"the tx-count of the mbarrier at {barrier.address:#x} becomes {barrier.tx}: it may not leave "
                f"-{MAX_COUNT} .. {MAX_COUNT}",
                by,
                barrier,
                numbers={"tx": barrier.tx},
                fix="fewer bytes per phase, or expect-tx in the phase in which the bytes land",
            )

    def _increment(self, barrier: Mbarrier, count: int, by: By) -> None:
        if barrier.pending + count > MAX_COUNT:
            self._fail("EMU_BARRIER_COUNT", "the pending count exceeds its range", by, barrier)
        barrier.pending += count

    def _note_remote(self, barrier: Mbarrier, by: By) -> None:
        who = self.order.who(by.row)
        if who.rank != self.rank:
            barrier.remote[by.row] = (int(self.order.epoch[by.row]), by)

    def _aligned(self, address: int, by: By) -> None:
        if address % 8:
            self._fail(
                "EMU_BARRIER_MISALIGNED",
                f"an mbarrier at {address:#x}: its address must be a multiple of 8",
                by,
                numbers={"address": address},
            )

    def _live(self, address: int, by: By, what: str) -> Mbarrier:
        barrier = self.barriers.get(address)
        if barrier is None:
            self._aligned(address, by)
            self._fail(
                "EMU_BARRIER_UNINITIALIZED",
                f"{what} at {address:#x}, where there is no live mbarrier",
                by,
                numbers={"address": address, "live": sorted(self.barriers)},
                fix="mbarrier.init it, and synchronise, before its first use",
            )
        if by.row not in barrier.seen_by:
            if not self.order.sees_init(by.row, barrier.record):
                self._fail(
                    "EMU_BARRIER_INIT_UNORDERED",
                    f"{what} at {address:#x}: nothing orders its mbarrier.init before this use",
                    by,
                    barrier,
                    fix="a CTA barrier after mbarrier.init; for other CTAs fence.mbarrier_init.release.cluster and a "
                    "cluster barrier",
                )
            barrier.seen_by.add(by.row)
        return barrier

    def _behind(self, barrier: Mbarrier, phase: int, by: By) -> NoReturn:
        self._fail(
            "EMU_BARRIER_PHASE_BEHIND",
            f"a wait for phase {phase} of the mbarrier at {barrier.address:#x}, which is in phase {barrier.phase}: "
            "only the current and the immediately preceding phase can be told apart",
            by,
            barrier,
            numbers={"waited_for": phase, "phase": barrier.phase},
            fix="let the waiting thread's arrival gate the next phase, so that none completes while it still waits",
        )

    def _event(self, what: str, by: By) -> Event:
        return self.order.reporter.event(what, self.order.who(by.row), by.pc, by.lane)

    def _fail(
        self,
        code: str,
        message: str,
        by: By,
        barrier: Mbarrier | None = None,
        *,
        numbers: dict[str, object] | None = None,
        fix: str = "",
        extra: tuple[Event, ...] = (),
    ) -> NoReturn:
        history = extra + (self.story(barrier) if barrier is not None else ())
        self.order.reporter.fail(
            code, message, self.order.who(by.row), by.pc, by.lane, history=history, numbers=numbers, fix=fix
        )


# The state token is opaque to kernels (9.7.13.15.13): the phase, and the pending count before the arrive-on.
PHASE_MASK = 2**32 - 1


def state_token(phase: int, pending: int) -> int:
    return ((phase & PHASE_MASK) << 32) | pending


def token_phase(token: int) -> int:
    return token >> 32


def token_pending(token: int) -> int:
    """mbarrier.pending_count (9.7.13.15.17)."""
    return token & PHASE_MASK
