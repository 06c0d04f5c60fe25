"""How long a list of tiles takes on a GPU under each schedule. Imports nothing of the project.

A *worker* is a cluster in the place that it occupies: as many run at once as are resident. A tile is a main loop of
`cost` microseconds, then an epilogue, of which the share `overlap` hides under the worker's next main loop (at most
that main loop's own time). The schedules differ in who gets which tile when:

one_tile  A fresh cluster per tile, in launch order, in the place that frees first. Each pays launch and prologue, and
          nothing of its epilogue hides: the next cluster of that place starts when this one has left.
static    `planned` clusters; number w runs tiles w, w + planned, ... Those beyond residency start when others end.
ticket    The resident ones of `planned` clusters; each takes its next tile from an atomic counter.
clc       The whole grid is launched; a running cluster cancels an unlaunched one and takes its tile. The first tile
          of a worker is its own launch.

A claim (ticket, clc) is served in the order of issue and binds its tile at once; its answer arrives `claim_us` later.
With `prefetch` 0 a worker asks when its main loop ends. With p > 0 it asks ahead, one request in flight, holding at
most p tiles that it has not started. `throttle` caps p: without it deep prefetch lets a worker hoard the last tiles.
After one failed claim a worker asks no more, finishes what it holds, and leaves.

A shared GPU makes CLC decline claims though tiles are left: the scheduler wants the place for other work.
`decline_every` n declines each n-th request. The worker leaves; the place is then free for a fresh cluster, which pays
launch and prologue again. A decline never loses a tile, it only moves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Schedule = Literal["one_tile", "static", "ticket", "clc"]
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Setup:
    """One launch. Times are microseconds.

    `cost_us` is the main-loop time of every tile when it is a number (`tiles` then says how many), or one time per
    tile in tile order. Counts are positive, times non-negative; `simulate` raises ValueError for others.
    """

    schedule: Schedule
    cost_us: float | Floats
    resident: int  # clusters that run at once
    tiles: int | None = None  # needed with a single cost; else the length of the costs
    planned: int | None = None  # clusters of a static or ticket grid; default: as many as are resident
    prologue_us: float = 0.0  # barriers, tensor maps, first load: once per launched cluster
    epilogue_us: float = 0.0
    overlap: float = 0.0  # share of the epilogue that can hide under the worker's next main loop, 0 to 1
    launch_us: float = 0.0  # the scheduler's own cost of putting a cluster in a free place
    claim_us: float = 0.0  # round trip of one ticket or one try_cancel
    prefetch: int = 1  # tiles that a worker may hold ahead; 0: it asks when its main loop ends
    throttle: int | None = None  # upper limit of the same
    first_tile: Literal["own", "claimed"] = "own"  # ticket: by cluster number, or from the counter like the others
    starts_us: float | Floats = 0.0  # when each place becomes free; one number for all
    order: NDArray[np.intp] | None = None  # tile numbers in the order they are handed out; default 0, 1, 2, ...
    decline_every: int | None = None  # clc on a shared GPU
    trace: bool = False

    @property
    def tile_count(self) -> int:
        """Tiles of the launch."""
        if isinstance(self.cost_us, np.ndarray):
            return len(self.cost_us)
        return 0 if self.tiles is None else self.tiles

    @property
    def ahead(self) -> int:
        """Tiles that a worker may hold before it starts them."""
        return self.prefetch if self.throttle is None else min(self.prefetch, self.throttle)


@dataclass(frozen=True, slots=True)
class Span:
    """One tile of a trace: from the start of its main loop to the end of its epilogue."""

    start_us: float
    end_us: float
    worker: int
    tile: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened. `finish_us` and `tiles_of` have one entry per place; a place that ran nothing finishes at 0."""

    makespan_us: float  # from the launch until the last worker has left
    waves: float  # tiles / workers
    last_wave_use: float  # share of the workers that the last wave would occupy, 0 to 1
    idle_share: float  # of workers x makespan: before the start, waiting for a claim, after the end
    max_tiles: int  # most tiles run in one place
    launched: int  # clusters that were started
    finish_us: Floats = field(repr=False)
    tiles_of: Counts = field(repr=False)
    spans: tuple[Span, ...] = field(default=(), repr=False)


def simulate(setup: Setup) -> Outcome:
    """Run one launch. Equal costs and starts take closed forms, anything else events: about 1 us a tile.

    Raises ValueError for a count or a time outside its range: the caller's bug, not the user's.
    """
    _check(setup)
    tiles = setup.tile_count
    workers = _workers(setup)
    if tiles == 0:
        return Outcome(0.0, 0.0, 0.0, 0.0, 0, 0, np.zeros(workers), np.zeros(workers, dtype=np.int64))
    if _has_closed_form(setup):
        return _uniform(setup, tiles, workers)
    if setup.schedule == "one_tile":
        return _one_tile(setup, tiles, workers)
    if setup.schedule == "static":
        return _static(setup, tiles, workers)
    return _claimed(setup, tiles, workers)


def uniform_makespan(
    schedule: Schedule,
    tiles: int,
    cost_us: float,
    resident: int,
    *,
    planned: int | None = None,
    prologue_us: float = 0.0,
    epilogue_us: float = 0.0,
    overlap: float = 0.0,
    launch_us: float = 0.0,
    claim_us: float = 0.0,
    prefetch: int = 1,
    first_tile: Literal["own", "claimed"] = "own",
) -> float:
    """The makespan, microseconds, of `tiles` equal tiles on an idle GPU: `simulate` without its arrays, under 1 us.

    `planned` clusters of a static or ticket grid must not exceed `resident`; the other arguments are those of Setup.
    """
    if tiles == 0:
        return 0.0
    workers = resident if planned is None or schedule in ("one_tile", "clc") else planned
    if workers > resident:
        raise ValueError(f"{workers} planned clusters on {resident} resident ones have no closed form: use simulate")
    rounds = -(-tiles // workers)
    whole = cost_us + epilogue_us
    if schedule == "one_tile":
        return rounds * (launch_us + prologue_us + whole)
    hidden = min(overlap * epilogue_us, cost_us)
    step = whole - hidden
    if schedule == "static":
        return launch_us + prologue_us + (rounds - 1) * step + whole
    if schedule == "ticket" and first_tile == "claimed":
        prologue_us = max(prologue_us, claim_us)
    answered = claim_us if prefetch > 0 else cost_us + claim_us
    return launch_us + prologue_us + (rounds - 1) * max(step, answered) + max(whole, answered)


def _workers(setup: Setup) -> int:
    """Places that can run clusters at once."""
    return min(setup.resident, _planned(setup)) if setup.schedule in ("static", "ticket") else setup.resident


def _planned(setup: Setup) -> int:
    return setup.resident if setup.planned is None else setup.planned


def _check(setup: Setup) -> None:
    if setup.tiles is None and not isinstance(setup.cost_us, np.ndarray):
        raise ValueError("tiles is needed with a single cost")
    if isinstance(setup.cost_us, np.ndarray) and setup.tiles not in (None, len(setup.cost_us)):
        raise ValueError(f"tiles is {setup.tiles}, but there are {len(setup.cost_us)} costs")
    if setup.resident < 1 or _planned(setup) < 1 or setup.tile_count < 0:
        raise ValueError("resident and planned clusters must be positive, tiles not negative")
    if setup.prefetch < 0 or (setup.throttle or 0) < 0 or (setup.decline_every is not None and setup.decline_every < 1):
        raise ValueError("prefetch and throttle must not be negative, decline_every must be positive")
    times = (setup.prologue_us, setup.epilogue_us, setup.launch_us, setup.claim_us)
    if min(times) < 0 or not 0 <= setup.overlap <= 1:
        raise ValueError("times must not be negative, overlap must lie between 0 and 1")
    if not isinstance(setup.cost_us, np.ndarray) and setup.cost_us < 0:
        raise ValueError("costs must not be negative")


def _has_closed_form(setup: Setup) -> bool:
    if setup.trace or isinstance(setup.cost_us, np.ndarray) or isinstance(setup.starts_us, np.ndarray):
        return False
    if setup.schedule == "clc":
        return setup.decline_every is None
    # Clusters beyond residency start one by one as others end: no closed form.
    return setup.schedule == "one_tile" or _planned(setup) <= setup.resident


def _uniform(setup: Setup, tiles: int, workers: int) -> Outcome:
    """Equal costs: every place runs `rounds` tiles or one fewer."""
    start, cost = float(setup.starts_us), float(setup.cost_us)
    rounds, last = -(-tiles // workers), (tiles - 1) % workers + 1

    def time(count: int) -> float:
        return uniform_makespan(
            setup.schedule,
            count,
            cost,
            1,
            prologue_us=setup.prologue_us,
            epilogue_us=setup.epilogue_us,
            overlap=setup.overlap,
            launch_us=setup.launch_us,
            claim_us=setup.claim_us,
            prefetch=setup.ahead,
            first_tile=setup.first_tile,
        )

    makespan = time(rounds)
    finish = np.full(workers, start + makespan)
    tiles_of = np.full(workers, rounds, dtype=np.int64)
    if last < workers:
        finish[last:] = start + time(rounds - 1) if rounds > 1 else 0.0
        tiles_of[last:] = rounds - 1
    clusters = tiles if setup.schedule == "one_tile" else min(tiles, workers)
    whole = cost + setup.epilogue_us
    hidden = 0.0 if setup.schedule == "one_tile" else min(setup.overlap * setup.epilogue_us, cost)
    # A step never ends before its tile's own work does, hidden share apart; what it takes longer is waiting.
    answered = 0.0
    if setup.schedule in ("ticket", "clc"):
        answered = setup.claim_us if setup.ahead > 0 else cost + setup.claim_us
    inner = min(max(whole - hidden, answered), whole)
    busy = clusters * (setup.launch_us + setup.prologue_us + whole) + (tiles - clusters) * inner
    return _outcome(start + makespan, tiles, workers, busy, clusters, finish, tiles_of, ())


def _one_tile(setup: Setup, tiles: int, workers: int) -> Outcome:
    costs, order = _costs(setup, tiles)
    heap = [(start, place) for place, start in enumerate(_starts(setup, workers))]
    heapify(heap)
    finish, count = [0.0] * workers, [0] * workers
    before = setup.launch_us + setup.prologue_us
    spans: list[Span] = []
    for number, cost in enumerate(costs):
        free, place = heap[0]
        end = free + before + cost + setup.epilogue_us
        heapreplace(heap, (end, place))
        finish[place] = end
        count[place] += 1
        if setup.trace:
            spans.append(Span(free + before, end, place, order[number]))
    busy = sum(costs) + tiles * (before + setup.epilogue_us)
    return _outcome(max(finish), tiles, workers, busy, tiles, np.array(finish), np.array(count), tuple(spans))


def _static(setup: Setup, tiles: int, workers: int) -> Outcome:
    planned = min(_planned(setup), tiles)
    costs, order = _costs_array(setup, tiles)
    epilogue, before = setup.epilogue_us, setup.launch_us + setup.prologue_us
    # Column w holds the tiles of cluster w; the padding of the last row costs nothing and hides nothing.
    rounds = -(-tiles // planned)
    table = np.zeros((rounds, planned))
    table.ravel()[:tiles] = costs
    hidden = np.minimum(setup.overlap * epilogue, table[1:])
    counts = np.full(planned, rounds, dtype=np.int64)
    counts[tiles - (rounds - 1) * planned :] -= 1
    durations = before + table.sum(axis=0) + counts * epilogue - hidden.sum(axis=0)

    heap = [(start, place) for place, start in enumerate(_starts(setup, workers))]
    heapify(heap)
    finish, count = [0.0] * workers, [0] * workers
    spans: list[Span] = []
    for cluster, (duration, its) in enumerate(zip(durations.tolist(), counts.tolist(), strict=True)):
        free, place = heap[0]
        heapreplace(heap, (free + duration, place))
        finish[place] = free + duration
        count[place] += its
        if setup.trace:
            begin = free + before
            for row in range(its):
                cost = float(table[row, cluster])
                spans.append(Span(begin, begin + cost + epilogue, place, int(order[row * planned + cluster])))
                if row + 1 < its:
                    begin += cost + epilogue - float(hidden[row, cluster])
    busy = float(durations.sum())
    return _outcome(max(finish), tiles, workers, busy, planned, np.array(finish), np.array(count), tuple(spans))


def _claimed(setup: Setup, tiles: int, workers: int) -> Outcome:
    """Ticket and CLC. Events are launches (number 0) and claims (number k is a cluster's k-th), in order of time."""
    costs, order = _costs(setup, tiles)
    epilogue, hideable, claim = setup.epilogue_us, setup.overlap * setup.epilogue_us, setup.claim_us
    before, ahead = setup.launch_us + setup.prologue_us, setup.ahead
    decline_every = setup.decline_every if setup.schedule == "clc" else None

    # Which tile a launch takes, and which a claim: CLC and a counter for all tiles draw both from one pool.
    launched_tiles = claimed_tiles = iter(range(tiles))
    if setup.schedule == "ticket" and setup.first_tile == "own":
        own = min(_planned(setup), tiles)
        launched_tiles, claimed_tiles = iter(range(own)), iter(range(own, tiles))
    elif setup.schedule == "ticket":
        before = setup.launch_us + max(setup.prologue_us, claim)

    begins: list[list[float]] = [[] for _ in range(workers)]  # main-loop starts of the tiles of the running cluster
    latest = [0.0] * workers  # main-loop time of the tile bound last
    finish, count = [0.0] * workers, [0] * workers
    launched = requests = 0
    busy = 0.0
    spans: list[Span] = []
    heap = [(start, 0, place) for place, start in enumerate(_starts(setup, workers))]
    heapify(heap)
    while heap:
        now, number, place = heap[0]
        if number == 0:
            tile = next(launched_tiles, None)
            if tile is None:
                heappop(heap)
                continue
            cost = costs[tile]
            response = begin = now + before
            begins[place] = [begin]
            launched += 1
            busy += setup.launch_us + setup.prologue_us
        else:
            requests += 1
            response = now + claim
            end = begins[place][-1] + latest[place] + epilogue
            busy += latest[place] + epilogue
            is_declined = decline_every is not None and requests % decline_every == 0
            tile = None if is_declined else next(claimed_tiles, None)
            if tile is None:  # the cluster leaves; if some wait for a place, the next starts in this one
                finish[place] = max(end, response)
                heapreplace(heap, (finish[place], 0, place))
                continue
            cost = costs[tile]
            begin = max(end - min(hideable, cost), response)
            busy -= max(0.0, end - begin)
            begins[place].append(begin)
        latest[place] = cost
        count[place] += 1
        if setup.trace:
            spans.append(Span(begin, begin + cost + epilogue, place, order[tile]))
        if ahead == 0:
            issue = begin + cost
        else:  # one request in flight, and a free slot: one frees when the tile `ahead` before has begun
            started = begins[place]
            issue = max(response, started[-ahead] if len(started) >= ahead else started[0])
        heapreplace(heap, (issue, number + 1, place))
    return _outcome(max(finish), tiles, workers, busy, launched, np.array(finish), np.array(count), tuple(spans))


def _outcome(
    makespan: float,
    tiles: int,
    workers: int,
    busy: float,
    launched: int,
    finish: Floats,
    tiles_of: Counts,
    spans: tuple[Span, ...],
) -> Outcome:
    last = (tiles - 1) % workers + 1
    idle = max(0.0, 1.0 - busy / (workers * makespan)) if makespan > 0 else 0.0
    return Outcome(
        makespan, tiles / workers, last / workers, idle, int(tiles_of.max()), launched, finish, tiles_of, spans
    )


def _costs_array(setup: Setup, tiles: int) -> tuple[Floats, NDArray[np.intp]]:
    """Costs in launch order, and the tile numbers in that order."""
    costs = np.broadcast_to(np.asarray(setup.cost_us, dtype=np.float64), tiles)
    if tiles and costs.min() < 0:
        raise ValueError("costs must not be negative")
    if setup.order is None:
        return costs, np.arange(tiles)
    if len(setup.order) != tiles or not np.array_equal(np.sort(setup.order), np.arange(tiles)):
        raise ValueError("order must hold every tile number once")
    return costs[setup.order], setup.order


def _costs(setup: Setup, tiles: int) -> tuple[list[float], list[int]]:
    costs, order = _costs_array(setup, tiles)
    return costs.tolist(), order.tolist() if setup.trace else []


def _starts(setup: Setup, workers: int) -> list[float]:
    """When each place becomes free, earliest first."""
    if isinstance(setup.starts_us, np.ndarray):
        if len(setup.starts_us) < workers or setup.starts_us.min() < 0:
            raise ValueError(f"{workers} places need {workers} start times, none negative")
        starts: list[float] = np.sort(setup.starts_us)[:workers].tolist()
        return starts
    return [float(setup.starts_us)] * workers
