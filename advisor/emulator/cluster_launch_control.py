"""Cluster Launch Control: requests for the work of clusters that wait, their responses, and what breaks the protocol.

Imports its own room. `world` has the pool of clusters, `policy.RequestPolicy` says which requests the hardware grants.
A request is an asynchronous operation: the hardware decides, and then 16 bytes land in every CTA that is to have them,
each with a complete-tx on the mbarrier there. The rules are those of PTX ISA 9.7.13.17 and .18.

A response is opaque to kernels. Here it holds the number of its request beside the answer, so that a query of it knows
which request it is of, wherever the kernel has kept the 16 bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.happens_before import AsyncOperation, Channel
from advisor.emulator.mbarrier import BarrierUnit, By
from advisor.emulator.memory import RANK_SHIFT
from advisor.emulator.policy import RequestPolicy
from advisor.emulator.report import Event, KernelFault

if TYPE_CHECKING:
    from advisor.emulator.machine import Machine
    from advisor.emulator.scheduler import Group

Array = NDArray[Any]

RESPONSE_BYTES = 16
_LOCAL = (1 << RANK_SHIFT) - 1
_MAGIC = 0xC1C5  # bits 112 to 127 of every response: what a kernel queries must be one
_GRANTED = 1 << 40  # of the high half; below it the number of the request
_NUMBER = _GRANTED - 1
_GARBAGE = 0xBAD1BAD2_BADC0DE5  # where a failed response has no coordinates


@dataclass(slots=True, eq=False)
class _Destination:
    """One CTA that gets the response."""

    slot: int
    unit: BarrierUnit
    barrier: int
    operation: AsyncOperation
    channel: Channel
    clock: int = 0  # of the channel, when the response has landed; 0 before


@dataclass(slots=True, eq=False)
class Request:
    """One clusterlaunchcontrol.try_cancel. `taken` is the number of the cluster that it was given, once `decided`."""

    number: int
    nth: int  # of its cluster, from 1
    cluster: int
    by: By
    decided: bool = False
    taken: int | None = None
    decoded: bool = False  # somebody asked for the coordinates
    destinations: list[_Destination] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """What became of all requests of a launch, and how the tiles spread.

    `tiles[n]` is how many of the launched clusters came to `n` clusters' worth of work: their own and what they took.
    `at_launch` of the clusters started at once, the others later, on SMs that had become free. `receivers` holds the
    numbers of CTAs that one response went to.
    """

    granted: int
    declined: int
    tiles: dict[int, int]
    at_launch: int
    receivers: frozenset[int]

    def __str__(self) -> str:
        spread = ", ".join(f"{count:,} with {tiles:,}" for tiles, count in self.tiles.items())
        return (
            f"requests: {self.granted:,} granted, {self.declined:,} declined; tiles (a cluster's own and those it "
            f"took): {spread}; {self.at_launch:,} clusters started at the launch"
        )

    def as_document(self) -> dict[str, Any]:
        return {
            "granted": self.granted,
            "declined": self.declined,
            "clusters_by_tiles": {str(tiles): count for tiles, count in self.tiles.items()},
            "clusters_at_launch": self.at_launch,
        }


class ClusterLaunchControl:
    """All requests of a machine."""

    def __init__(self, machine: Machine, policy: RequestPolicy) -> None:
        self.machine = machine
        self.policy = policy
        self.requests: list[Request] = []
        self.by_cluster: dict[int, list[Request]] = {}  # of resident clusters
        self.failures: dict[int, list[tuple[int, int, By]]] = {}  # by cluster: warp, its clock, where it saw a failure

    # --- requests -------------------------------------------------------------------------------------------------

    def request(self, g: Group, site: int, place: Array, barrier: Array, everywhere: bool, lanes: Array | None) -> None:
        """`try_cancel.async`: of each lane that is on, one request. `everywhere`: .multicast::cluster::all."""
        machine, engine = self.machine, self.machine.engine
        if machine.world.launch.preferred is not None:
            self._refuse_mixed(g, site, lanes)
        for index, lane in engine.each_lane(g, lanes):
            row = int(g.rows[index])
            own = int(machine.rank[row, 0])
            address, at = int(place[index, lane]), int(barrier[index, lane])
            self._check_places(g, index, lane, site, own, address, at)
            who = machine.who(row)
            known = self.by_cluster.setdefault(who.cluster, [])
            by = engine.by(g, index, site, lane)
            self._not_after_failure(who.cluster, by)
            made = Request(len(self.requests), len(known) + 1, who.cluster, by)
            starts = []
            for rank in range(machine.ranks) if everywhere else (own,):
                high = rank << RANK_SHIFT
                slot = engine.slot_of(g, index, address & _LOCAL | high, site, lane)
                target = engine.shared_offsets(g, index, lane, site, slot, np.array([address & _LOCAL]), RESPONSE_BYTES)
                unit, local = engine.unit(g, index, at & _LOCAL | high, site, lane)
                channel = unit.use(local, by, "clusterlaunchcontrol.try_cancel").channel
                operation = machine.order.issue(by.row, by.pc, lane, channel)
                self._claim_slot(operation, target)
                made.destinations.append(_Destination(slot, unit, local, operation, channel))
                starts.append(int(target[0]))
            self._once_for_the_cluster(known, by, own)
            known.append(made)
            self.requests.append(made)
            for to, start in zip(made.destinations, starts, strict=True):
                self._submit(made, to, start)

    def _refuse_mixed(self, g: Group, site: int, lanes: Array | None) -> None:
        """In a launch that mixes two cluster sizes: no document says which size a grant has, so none can be given."""
        for index, lane in self.machine.engine.each_lane(g, lanes):
            message = (
                "a request of Cluster Launch Control in a launch that mixes clusters of two sizes: it is not known of "
                "which size the cluster would be that it takes"
            )
            self.machine.fail(g, site, "EMU_CLC_MIXED_CLUSTERS", message, index, lane)

    def _check_places(self, g: Group, index: int, lane: int, site: int, own: int, address: int, barrier: int) -> None:
        fail = self.machine.fail
        if address % RESPONSE_BYTES:
            message = f"a response at {address:#x}, which is no multiple of {RESPONSE_BYTES}"
            fail(g, site, "EMU_MISALIGNED", message, index, lane)
        if address >> RANK_SHIFT != own or barrier >> RANK_SHIFT != own:
            message = (
                f"the response at {address:#x} and the mbarrier at {barrier:#x} are both shared::cta: of CTA rank {own}"
            )
            fail(g, site, "EMU_OUT_OF_BOUNDS", message, index, lane)

    def _not_after_failure(self, cluster: int, by: By) -> None:
        """A new request after a failed one was observed is undefined. What another warp has seen counts once its news
        may have reached this one: until then nobody could have told."""
        order = self.machine.order
        for row, clock, seen in self.failures.get(cluster, ()):
            if row == by.row or order.has_heard([by.row], row, clock):
                order.reporter.fail(
                    "EMU_CLC_AFTER_FAILURE",
                    "a request of Cluster Launch Control after the cluster has seen one fail",
                    order.who(by.row),
                    by.pc,
                    by.lane,
                    history=(self._event("the failed response was queried", seen),),
                    fix="leave the loop at the first failure: finish what was taken before it, and exit",
                )

    def _once_for_the_cluster(self, known: list[Request], by: By, rank: int) -> None:
        """A grant is a whole cluster: where several CTAs of one ask, each takes the work of all."""
        order = self.machine.order
        other = next((each for each in known if order.who(each.by.row).rank != rank), None)
        if other is not None:
            self.machine.reporter.warn(
                "EMU_CLC_REQUEST_PER_CTA",
                f"CTA rank {rank} asks for work, and rank {order.who(other.by.row).rank} of the same cluster has asked "
                "too: each request takes the work of a whole cluster",
                order.who(by.row),
                by.pc,
                by.lane,
                fix="one thread of one CTA asks for the cluster: .multicast::cluster::all, or hand the response on",
            )

    def _claim_slot(self, operation: AsyncOperation, target: Array) -> None:
        """The response is written by the async proxy. Every read of the last one there must be ordered before it, with
        a proxy fence, and the last one must have landed."""
        machine = self.machine
        if not machine.races:
            return
        try:
            machine.order.async_access(
                operation, machine.shared_shadow, target, RESPONSE_BYTES, write=True, fenced_reads=True
            )
        except KernelFault as fault:
            found = fault.finding
            if found.code != "EMU_DATA_RACE":
                raise
            changed = replace(
                found,
                code="EMU_CLC_SLOT_IN_USE",
                message=f"the response of this request goes where an earlier one may be in use: {found.message}",
                fix="ask again for a slot only after its last response has landed and every reading warp of every CTA "
                "has read it, done fence.proxy.async and arrived at the barrier that guards the slot",
            )
            raise KernelFault(changed) from None

    def _submit(self, request: Request, to: _Destination, start: int) -> None:
        machine = self.machine
        label = f"response of try_cancel at line {machine.line(request.by.pc)}"

        def land() -> None:
            if not request.decided:
                self._decide(request)
            memory = machine.shared.bytes
            memory.data[start : start + RESPONSE_BYTES] = self._response(request)
            memory.written[start : start + RESPONSE_BYTES] = 1
            to.clock = to.unit.complete_tx(to.barrier, RESPONSE_BYTES, request.by, to.operation) + 1
            machine.engine.wake()

        machine.queue.submit([land], label, owner=request.cluster)

    def _decide(self, request: Request) -> None:
        """The hardware takes a waiting cluster out of the pool, or says no."""
        world, policy = self.machine.world, self.policy
        request.decided = True
        self.pass_time()
        if not world.waiting:
            return
        was_calm = not policy.preempting
        if policy.grants(request.nth, self.machine.queue.now):
            request.taken = world.take(policy.place(len(world.waiting)))
        elif policy.preempting and was_calm:
            world.claim(policy.wanted_sms(world.profile.sms))

    def _response(self, request: Request) -> Array:
        low, high = _GARBAGE, _MAGIC << 48 | request.number
        if request.taken is not None:
            x, y, z = self.machine.world.first_ctaid(request.taken)
            low, high = x | y << 32 | z << 48, high | _GRANTED
        return np.array([low, high], np.uint64).view(np.uint8)

    # --- SMs that other work takes and gives back -----------------------------------------------------------------

    def pass_time(self) -> None:
        if self.policy.over(self.machine.queue.now):
            self.machine.world.give_back()

    def resume(self) -> bool:
        """Nothing can go on: the kernel of higher priority comes to its end. False where there is none."""
        if not self.policy.over(self.machine.queue.now, idle=True):
            return False
        self.machine.world.give_back()
        return bool(self.machine.world.waiting)

    # --- queries --------------------------------------------------------------------------------------------------

    def is_canceled(self, g: Group, site: int, response: Array, lanes: Array | None) -> Array:
        """`query_cancel.is_canceled`: whether a cluster was taken."""
        granted = self._granted(g, site, response, lanes)
        if not granted.all():
            self._see_failures(g, site, ~granted, lanes)
        return granted

    def first_ctaid(
        self, g: Group, site: int, response: Array, lanes: Array | None
    ) -> tuple[Array, Array, Array, Array | None]:
        """`query_cancel.get_first_ctaid`: x, y, z, and the lanes in which the request has failed (None: in none)."""
        granted = self._granted(g, site, response, lanes)
        on = g.lanes() if lanes is None else lanes
        for number in np.unique(response["high"][on & granted]) & np.uint64(_NUMBER):
            self.requests[int(number)].decoded = True
        low = response["low"]
        x = low.astype(np.uint32)
        y = (low >> np.uint64(32)).astype(np.uint32) & np.uint32(0xFFFF)
        z = (low >> np.uint64(48)).astype(np.uint32)
        failed = on & ~granted
        if not failed.any():
            return x, y, z, None
        self._see_failures(g, site, failed, lanes)
        return x, y, z, failed

    def _granted(self, g: Group, site: int, response: Array, lanes: Array | None) -> Array:
        high = response["high"]
        on = g.lanes() if lanes is None else lanes
        stray = on & ((high >> np.uint64(48)) != np.uint64(_MAGIC))
        if stray.any():
            row, lane = (int(each) for each in np.argwhere(stray)[0])
            message = (
                f"the 128 bits {int(high[row, lane]):#018x}:{int(response['low'][row, lane]):016x} are no response of "
                "a request"
            )
            self.machine.fail(g, site, "EMU_CLC_NO_RESPONSE", message, row, lane)
        granted: Array = (high & np.uint64(_GRANTED)) != 0
        return granted

    def _see_failures(self, g: Group, site: int, failed: Array, lanes: Array | None) -> None:
        order = self.machine.order
        seen = failed & (g.lanes() if lanes is None else lanes)
        for index in np.flatnonzero(seen.any(axis=1)).tolist():
            row = int(g.rows[index])
            by = self.machine.engine.by(g, index, site, int(seen[index].argmax()))
            cluster = self.machine.who(row).cluster
            known = self.failures.setdefault(cluster, [])
            if all(each[0] != by.row for each in known):
                known.append((by.row, int(order.epoch[by.row]), by))

    # --- the end of CTAs and clusters -----------------------------------------------------------------------------

    def cta_ended(self, slot: int, cluster: int, rows: Array) -> None:
        """The last warp of a CTA exits: every response that goes to it has landed, and a warp of it knows. `rows` are
        rows of `order`."""
        for request in self.by_cluster.get(cluster, ()):
            for to in request.destinations:
                if to.slot != slot or (to.clock and self.machine.order.knows(rows, to.channel, to.clock)):
                    continue
                state = "has landed, but no warp of it has waited for that" if to.clock else "is still on its way"
                self.machine.reporter.fail(
                    "EMU_CLC_IN_FLIGHT",
                    f"the CTA exits while the response of request {request.nth} of its cluster {state}: late bytes "
                    "would land in shared memory that is no longer its own",
                    self.machine.order.who(int(rows[-1])),
                    self.machine.exit_site,
                    history=(self._event("the request", request.by),),
                    fix="in every CTA that gets responses, wait for the phase of every request before the exit, the "
                    "failed one too",
                )

    def cluster_ended(self, cluster: int) -> None:
        """Work that was taken and that nobody decoded is done by nobody: its cluster is never launched."""
        world = self.machine.world
        for request in self.by_cluster.pop(cluster, ()):
            if request.taken is not None and not request.decoded:
                self.machine.reporter.fail(
                    "EMU_CLC_WORK_LOST",
                    f"the cluster took the work of the one at {world.first_ctaid(request.taken)}, and exits without "
                    "having asked for its coordinates: nobody does this work",
                    self.machine.order.who(request.by.row),
                    request.by.pc,
                    request.by.lane,
                    numbers={"first_ctaid": list(world.first_ctaid(request.taken)), "request": request.nth},
                    fix="query every response, and do the work of each that was granted before the exit",
                )
        self.failures.pop(cluster, None)

    def _event(self, what: str, by: By) -> Event:
        order = self.machine.order
        return order.reporter.event(what, order.who(by.row), by.pc, by.lane)

    # --- what is counted ------------------------------------------------------------------------------------------

    def counts(self, at_launch: int) -> RequestCounts | None:
        """None where nobody asked."""
        if not self.requests:
            return None
        granted = Counter(each.cluster for each in self.requests if each.taken is not None)
        tiles = Counter(1 + granted[serial] for serial in range(self.machine.world.started))
        taken = sum(granted.values())
        receivers = frozenset(len(each.destinations) for each in self.requests)
        return RequestCounts(taken, len(self.requests) - taken, dict(sorted(tiles.items())), at_launch, receivers)
