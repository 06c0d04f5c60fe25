"""Every candidate of one family as a table of columns, with its footprint and residency.

Imports `machine`, `problem`, `records` and the family modules. A table depends on the types, layouts, overrides and
constraints of a problem but not on its extents, so it is built once and shared by every problem of the same make;
what depends on the extents is in `clauses.py` and `cost.py`. Arrays have one entry per candidate.

A family module answers for one candidate at a time. Footprint and family limits are asked for each *part* of the
space (tile and schedule; cluster, split and schedule) and spread over the rows: a few hundred questions for tens of
thousands of rows. `Gemm.clauses` asks again, in full, for every candidate that a plan names.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.gemm import launches, tma
from advisor.kinds.gemm.families import FamilyModule, module_of
from advisor.kinds.gemm.work import GemmWork, Raster
from advisor.machine.features import Feature, supports
from advisor.machine.occupancy import clusters_by_group, ctas_per_sm
from advisor.machine.profile import DeviceProfile
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate, Family, OccupancyKey, Resources, Schedule
from advisor.records.rows import Violation

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

CLUSTER_SIDES = (1, 2, 4, 8, 16)
MAX_CLUSTER = 16
SCHEDULE_RANK: dict[Schedule, int] = {"one_tile": 0, "static": 1, "ticket": 2, "clc": 3}
SCHEDULE_OF: dict[int, Schedule] = {rank: name for name, rank in SCHEDULE_RANK.items()}
PORTABLE_SMEM_BYTES = 99 * 1024  # what every GPU from compute capability 8.6 on can give one CTA
LEGAL = -1
_KEPT_TABLES = 24


@dataclass(frozen=True, slots=True)
class TileOption:
    """A tile of one CTA in MMA elements, bytes of a K step, how many CTAs issue its MMA, the CTA's threads, and the
    most stages that are worth having (None: as many as there can be)."""

    m: int
    n: int
    k_bytes: int
    mma_ctas: int
    threads: int
    stages: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the space that one family covers. `splits` pairs cluster z with the number of K slices; `mixes` are
    launches of two cluster sizes: x and y of the smaller one, and the preferred one."""

    tiles: tuple[TileOption, ...]
    schedules: tuple[Schedule, ...]
    clusters: tuple[tuple[int, int], ...]
    splits: tuple[tuple[int, int], ...]
    swaps: tuple[bool, ...]
    stages: tuple[int, int]
    mixes: tuple[tuple[tuple[int, int], tuple[int, int, int]], ...] = ()

    @property
    def shapes(self) -> tuple[tuple[int, int, int, int, int], ...]:
        """x and y of the cluster; x, y and z of the preferred one, 0 where there is none."""
        alone = tuple((x, y, 0, 0, 0) for x, y in self.clusters)
        return alone + tuple((x, y, *preferred) for (x, y), preferred in self.mixes)


class OccupancyOracle(Protocol):
    """A live answer for a built kernel: the clusters that are resident, and where the number comes from."""

    def __call__(self, key: OccupancyKey, profile: DeviceProfile, /) -> tuple[int, dict[str, Any]] | None: ...


_FACTORINGS = tuple((x, y) for x in CLUSTER_SIDES for y in CLUSTER_SIDES if x * y <= MAX_CLUSTER)
SMALLER = (2, 1)  # the cluster beside a preferred one: a pair, which reaches every SM
_PREFERRED = ((4, 1, 1), (2, 2, 1), (8, 1, 1), (4, 2, 1), (2, 4, 1))  # sizes that leave SMs over, without the opt-in
_SPLITS = ((1, 1), (2, 2), (4, 4), (8, 8), (1, 2), (1, 3), (1, 4), (1, 6), (1, 8), (1, 12), (1, 16))


@cache
def family_span(family: Family) -> Span:
    """What a family covers: the tiles and limits are the family module's, the combinations are made here."""
    k_bytes = launches.K_BYTES
    if family == "sm100":
        from advisor.kinds.gemm import sm100

        return Span(
            tiles=tuple(
                TileOption(m, n, k_bytes, ctas, sm100.THREADS)
                for ctas in (1, 2)
                for m in sm100.TILE_M
                for n in sm100.TILE_N
                if n >= 8 * ctas
            ),
            schedules=("one_tile", "static", "clc"),
            clusters=_FACTORINGS,
            splits=_SPLITS,
            swaps=(False, True),
            stages=(sm100.MIN_STAGES, sm100.MAX_STAGES),
            mixes=tuple((SMALLER, each) for each in _PREFERRED),
        )
    if family == "sm90":
        from advisor.kinds.gemm import sm90

        return Span(
            tiles=tuple(
                TileOption(m, n, k_bytes, 1, sm90.threads(m), sm90.useful_stages(m, n))
                for m in sm90.TILE_M
                for n in sm90.TILE_N
            ),
            schedules=sm90.SCHEDULES,
            clusters=_FACTORINGS,
            splits=_SPLITS,
            swaps=(False, True),
            stages=(sm90.MIN_STAGES, sm90.MAX_STAGES),
        )
    from advisor.kinds.gemm import portable

    return Span(
        tiles=tuple(
            TileOption(m, n, k_bytes, 1, 32 * warps[0] * warps[1])
            for (m, n), warps in portable.WARPS.items()
            for k_bytes in portable.K_STEP_BYTES
        ),
        schedules=("one_tile",),
        clusters=((1, 1),),
        splits=((1, 1),),
        swaps=(False,),
        stages=(portable.STAGES[0], portable.STAGES[-1]),
    )


@dataclass(frozen=True, eq=False)
class Table:
    """The columns. `reason` is an index into `reasons`, or LEGAL; `footprint` one into `resources`."""

    family: Family
    profile: DeviceProfile
    forced: tuple[Any, ...]
    tile_m: Ints
    tile_n: Ints
    tile_k: Ints
    cluster_x: Ints
    cluster_y: Ints
    cluster_z: Ints
    size: Ints
    mixed: Bools  # the launch prefers larger clusters and mixes two sizes
    preferred_z: Ints
    unit_x: Ints  # CTAs of a unit of work: of the preferred cluster where there is one, else of the cluster
    unit_y: Ints
    unit_size: Ints
    whole: Floats  # share of the resident CTAs that preferred clusters hold where two sizes mix; else 1
    split: Ints
    mma_ctas: Ints
    swap: Bools
    schedule: Ints
    stages: Ints
    shares_sm: Bools  # fewer stages than fit, so that two CTAs share an SM
    threads: Ints
    footprint: Ints
    smem_bytes: Ints
    tmem_columns: Ints
    registers: Ints
    ctas_per_sm: Ints
    resident: Ints  # clusters that are resident at once, by the formula
    reach: Ints  # SMs that clusters of this size can use
    reason: Ints
    reasons: tuple[Violation, ...]
    simplicity: Ints  # the tie rule: smaller is simpler

    @property
    def rows(self) -> int:
        return len(self.tile_m)

    def candidate(self, i: int, raster: Raster) -> Candidate:
        """Row `i` as the record that other rooms take."""
        x, y, z = int(self.cluster_x[i]), int(self.cluster_y[i]), int(self.cluster_z[i])
        unit_x, unit_y = int(self.unit_x[i]), int(self.unit_y[i])
        return Candidate(
            family=self.family,
            cluster=(x, y, z),
            schedule=SCHEDULE_OF[int(self.schedule[i])],
            tile=(int(self.tile_m[i]), int(self.tile_n[i]), int(self.tile_k[i])),
            stages=int(self.stages[i]),
            threads=int(self.threads[i]),
            work=GemmWork(
                mma_ctas=int(self.mma_ctas[i]),
                multicast_a=unit_y,
                multicast_b=unit_x,
                split_k=int(self.split[i]),
                swap_ab=bool(self.swap[i]),
                raster=raster,
                preferred_cluster=(unit_x, unit_y, int(self.preferred_z[i])) if self.mixed[i] else None,
            ),
        )


def smem_limit(family: Family, profile: DeviceProfile) -> int:
    """Dynamic shared memory that one CTA of the family may ask for, bytes."""
    if family == "portable":
        return min(PORTABLE_SMEM_BYTES, profile.smem_per_block_bytes)
    return profile.smem_per_block_bytes


def make_of(p: GemmProblem) -> tuple[Any, ...]:
    """What a table depends on: everything of the problem that is fixed at compile time, and no extent."""
    aligned = tuple(
        tuple((each.code, str(each.numbers)) for each in tma.operand_violations(p, name))
        for name in ("a", "b", "c", "d")
    )
    operands = tuple((m.dtype, m.major) for m in (p.a, p.b, p.c, p.d))
    return (operands, p.accumulate, p.uses_c, p.epilogue.bias, p.epilogue.activation, p.scale.a, p.scale.b, aligned)


def forced_of(p: GemmProblem) -> tuple[Any, ...]:
    """The overrides that bind the shape of a candidate."""
    o = p.overrides
    return (o.cluster, o.schedule, o.tile, o.stages, o.mma_ctas, o.split_k, o.swap_ab, o.preferred_cluster)


_TABLES: OrderedDict[tuple[Any, ...], Table] = OrderedDict()


def table(p: GemmProblem, family: Family, profile: DeviceProfile, *, forced: tuple[Any, ...] | None = None) -> Table:
    """The table of a family; `forced` are the overrides that bind it (none: the free space)."""
    forced = forced or (None,) * 8
    if None not in forced[:7]:  # one candidate: not worth a place among the tables that are kept
        return _build(p, family, profile, forced)
    key = (id(profile), family, make_of(p), forced)
    found = _TABLES.get(key)
    if found is None:
        found = _build(p, family, profile, forced)
        _TABLES[key] = found
        if len(_TABLES) > _KEPT_TABLES:
            _TABLES.popitem(last=False)
    else:
        _TABLES.move_to_end(key)
    return found


def span_of(family: Family, forced: tuple[Any, ...], element_bytes: int) -> Span:
    """The family's span narrowed to the overrides. What an override names joins the span even where no kernel has
    it, so that its refusal has a reason."""
    cluster, schedule, tile, _, mma_ctas, split_k, swap, preferred = forced
    base = family_span(family)
    tiles = base.tiles
    if tile is not None:
        kinds = sorted({each.mma_ctas for each in tiles})
        same = [each for each in tiles if (each.m, each.n) == (tile[0], tile[1])]
        threads = {each.mma_ctas: each.threads for each in same}
        k_bytes = tile[2] * element_bytes
        tiles = tuple(TileOption(tile[0], tile[1], k_bytes, n, threads.get(n, base.tiles[0].threads)) for n in kinds)
    if mma_ctas is not None:
        wanted = tuple(each for each in tiles if each.mma_ctas == mma_ctas)
        tiles = wanted or tuple(replace(each, mma_ctas=mma_ctas) for each in tiles)
    splits = base.splits
    if split_k is not None:
        splits = tuple(each for each in splits if each[1] == split_k) or ((1, split_k),)
    if cluster is not None:
        z = cluster[2]
        splits = tuple(each for each in splits if each[0] == z) or ((z, split_k or z),)
    clusters, mixes = base.clusters, base.mixes
    if cluster is not None:
        clusters, mixes = ((cluster[0], cluster[1]),), ()
    if preferred is not None:
        clusters, mixes = (), tuple((each, preferred) for each in (clusters if cluster is not None else (SMALLER,)))
    return Span(
        tiles=tiles,
        schedules=base.schedules if schedule is None else (schedule,),
        clusters=clusters,
        splits=splits,
        swaps=base.swaps if swap is None else (swap,),
        stages=base.stages,
        mixes=mixes,
    )


def _split_mode(split: tuple[int, int]) -> tuple[int, int]:
    """What of (cluster z, slices) a footprint can depend on: how many slices meet in scratch memory is not it."""
    z, slices = split
    return (1, min(slices, 2)) if z == 1 else split


def split_modes(span: Span) -> list[tuple[int, int]]:
    """The distinct ways to split K of a span."""
    return list(dict.fromkeys(_split_mode(each) for each in span.splits))


def _build(p: GemmProblem, family: Family, profile: DeviceProfile, forced: tuple[Any, ...]) -> Table:
    module = module_of(family)
    eb = p.a.element_bytes
    span = span_of(family, forced, eb)
    modes = split_modes(span)
    parts = _parts(p, module, family, profile, span, forced[3])

    shapes = np.array(span.shapes, dtype=np.int64)
    counts = (len(span.tiles), len(shapes), len(span.splits), len(span.swaps), len(span.schedules), 2)
    i_tile, i_cluster, i_split, i_swap, i_schedule, i_depth = (axis.ravel() for axis in np.indices(counts))
    mode = np.array([modes.index(_split_mode(each)) for each in span.splits], dtype=np.int64)[i_split]
    part = (((i_tile * len(span.swaps) + i_swap) * len(span.schedules) + i_schedule) * len(modes) + mode) * 2 + i_depth
    there = parts.numbers[part, 0] > 0  # most parts have one count of stages
    if forced[0] is None:  # what no machine has is not worth a row; an override may ask for it
        sizes = (shapes[:, 0] * shapes[:, 1])[i_cluster] * np.array([z for z, _ in span.splits])[i_split]
        there &= sizes <= MAX_CLUSTER
    if forced[7] is None:  # nor what no kernel has: two sizes are mixed for pairs, with tiles that are known beforehand
        alone = (shapes[:, 2] == 0)[i_cluster]
        pairs = np.array([each.mma_ctas == 2 for each in span.tiles])[i_tile]
        known = np.array([each != "clc" for each in span.schedules])[i_schedule]
        there &= alone | (pairs & known & np.array([each == (1, 1) for each in span.splits])[i_split])
    i_tile, i_cluster, i_split, i_swap, i_schedule, i_depth, part = (
        axis[there] for axis in (i_tile, i_cluster, i_split, i_swap, i_schedule, i_depth, part)
    )

    tiles = np.array([(t.m, t.n, t.mma_ctas, t.threads, t.k_bytes // eb) for t in span.tiles], dtype=np.int64)[i_tile]
    clusters = shapes[i_cluster]
    splits = np.array(span.splits, dtype=np.int64)[i_split]
    swap = np.array(span.swaps, dtype=np.bool_)[i_swap]
    schedule = np.array([SCHEDULE_RANK[each] for each in span.schedules], dtype=np.int64)[i_schedule]
    stages, smem, tmem, registers = (parts.numbers[part, column] for column in range(4))
    reasons, reason = list(parts.reasons), parts.reason[part].copy()
    _cluster_reasons(
        p, module, family, profile, span, reasons, reason, (i_tile, i_cluster, i_split, i_swap, i_schedule), stages
    )

    size = clusters[:, 0] * clusters[:, 1] * splits[:, 0]
    fit = _ctas_per_sm(profile, tiles[:, 3], registers, smem, tmem)
    resident = _resident(profile, fit, size)
    reach = _resident(profile, np.ones_like(size), size) * size
    mixed = clusters[:, 2] > 0
    unit_x, unit_y = (np.where(mixed, clusters[:, side + 2], clusters[:, side]) for side in (0, 1))
    unit = unit_x * unit_y * splits[:, 0]
    whole = np.ones(len(size))
    if mixed.any():
        whole[mixed] = (_resident(profile, fit[mixed], unit[mixed]) * unit[mixed]) / np.maximum(
            1, resident[mixed] * size[mixed]
        )
    order = ((schedule * 2 + tiles[:, 2] - 1) * 64 + np.minimum(unit, 63)) * 64 + np.minimum(splits[:, 1], 63)
    return Table(
        family=family,
        profile=profile,
        forced=forced,
        tile_m=tiles[:, 0],
        tile_n=tiles[:, 1],
        tile_k=tiles[:, 4],
        cluster_x=clusters[:, 0],
        cluster_y=clusters[:, 1],
        cluster_z=splits[:, 0],
        size=size,
        mixed=mixed,
        preferred_z=clusters[:, 4],
        unit_x=unit_x,
        unit_y=unit_y,
        unit_size=unit,
        whole=np.minimum(whole, 1.0),
        split=splits[:, 1],
        mma_ctas=tiles[:, 2],
        swap=swap,
        schedule=schedule,
        stages=stages,
        shares_sm=i_depth == 1,
        threads=tiles[:, 3],
        footprint=part,
        smem_bytes=smem,
        tmem_columns=tmem,
        registers=registers,
        ctas_per_sm=fit,
        resident=resident,
        reach=reach,
        reason=reason,
        reasons=tuple(reasons),
        simplicity=(order * 2 + mixed) * 2 + swap,
    )


@dataclass(frozen=True, eq=False)
class _Parts:
    numbers: Ints  # [part, (stages, dynamic SMEM, TMEM columns, registers)]; zeros where a part is not there
    reason: Ints
    reasons: tuple[Violation, ...]


def _parts(
    p: GemmProblem,
    module: FamilyModule,
    family: Family,
    profile: DeviceProfile,
    span: Span,
    forced_stages: int | None,
) -> _Parts:
    """Footprint and family limits of every (tile, swap, schedule, way to split K), twice: with as many stages as fit,
    and, where that is another number, with the most that let two CTAs share an SM."""
    limit = smem_limit(family, profile)
    numbers, reason = [], []
    reasons: list[Violation] = []
    for tile, swap, schedule, (z, slices) in itertools.product(
        span.tiles, span.swaps, span.schedules, split_modes(span)
    ):
        base = Candidate(
            family=family,
            cluster=(tile.mma_ctas, 1, z),
            schedule=schedule,
            tile=(tile.m, tile.n, tile.k_bytes // p.a.element_bytes),
            stages=forced_stages or span.stages[0],
            threads=tile.threads,
            work=GemmWork(mma_ctas=tile.mma_ctas, multicast_b=tile.mma_ctas, split_k=slices, swap_ab=swap),
        )
        low, high = span.stages
        useful = high if tile.stages is None else min(high, tile.stages)
        deepest = _deepest(p, module, base, (low, useful), limit, forced_stages)
        shared = None if forced_stages else _sharing(p, module, *deepest, span.stages[0], profile)
        for found in (deepest, shared):
            if found is None:
                numbers.append((0, 0, 0, 0))
                reason.append(LEGAL)
                continue
            chosen, taken = found
            numbers.append((chosen.stages, taken.dynamic_smem_bytes, taken.tmem_columns, taken.registers))
            broken = module.violations(p, replace(chosen, schedule="one_tile"))
            if not broken:
                broken = _fits(chosen, taken, limit, profile)
            reason.append(_index(reasons, broken[0]) if broken else LEGAL)
    return _Parts(np.array(numbers, dtype=np.int64), np.array(reason, dtype=np.int64), tuple(reasons))


def _deepest(
    p: GemmProblem,
    module: FamilyModule,
    base: Candidate,
    stages: tuple[int, int],
    limit: int,
    forced: int | None,
) -> tuple[Candidate, Resources]:
    """The candidate with as many stages as fit; with the fewest where none fits, so that the refusal has numbers."""
    if forced is not None:
        return base, module.resources(p, base)
    low, high = stages
    fewest = module.resources(p, base)
    if high > low and fewest.dynamic_smem_bytes <= limit:
        deeper = replace(base, stages=high)
        taken = module.resources(p, deeper)
        if taken.dynamic_smem_bytes > limit:  # what a stage takes is the same for each
            per_stage = (taken.dynamic_smem_bytes - fewest.dynamic_smem_bytes) // (high - low)
            deeper = replace(base, stages=low + (limit - fewest.dynamic_smem_bytes) // per_stage)
            taken = module.resources(p, deeper)
        if deeper.stages > low:
            return deeper, taken
    return base, fewest


def _sharing(
    p: GemmProblem, module: FamilyModule, deepest: Candidate, taken: Resources, fewest: int, profile: DeviceProfile
) -> tuple[Candidate, Resources] | None:
    """The most stages that let two CTAs share an SM; None where the deepest ring does, or no ring can: threads,
    registers and tensor memory have to allow two as well."""

    def fit(r: Resources) -> int:
        ctas = ctas_per_sm(profile, r.threads, r.registers, r.static_smem_bytes + r.dynamic_smem_bytes)
        return min(ctas, profile.tmem_columns // r.tmem_columns) if r.tmem_columns and profile.tmem_columns else ctas

    if fit(taken) >= 2 or fit(replace(taken, dynamic_smem_bytes=0)) < 2:
        return None
    for stages in range(deepest.stages - 1, fewest - 1, -1):
        shallower = replace(deepest, stages=stages)
        found = module.resources(p, shallower)
        if fit(found) >= 2:
            return shallower, found
    return None


def _fits(c: Candidate, taken: Resources, limit: int, profile: DeviceProfile) -> list[Violation]:
    """The clauses on one CTA's footprint. The only home of each."""
    found = []
    smem = taken.dynamic_smem_bytes + taken.static_smem_bytes
    if smem > limit:
        found.append(
            Violation(
                "SMEM_OVER_LIMIT",
                f"{c.stages} stages of a {c.tile[0]} x {c.tile[1]} tile take {smem} bytes of shared memory; one "
                f"CTA gets {limit}",
                {"smem_bytes": smem, "limit_bytes": limit, "stages": c.stages, "parts": dict(taken.smem_parts)},
            )
        )
    if taken.tmem_columns > profile.tmem_columns and c.family == "sm100":
        found.append(
            Violation(
                "TMEM_OVER_512",
                f"the accumulators take {taken.tmem_columns} tensor memory columns; an SM has {profile.tmem_columns}",
                {"tmem_columns": taken.tmem_columns, "limit": profile.tmem_columns},
            )
        )
    if taken.threads > 1024 or taken.threads * taken.registers > profile.registers_per_sm:
        found.append(
            Violation(
                "REGISTERS_OVER_BUDGET",
                f"{taken.threads} threads of {taken.registers} registers are {taken.threads * taken.registers}; "
                f"an SM has "
                f"{profile.registers_per_sm}, a block at most 1024 threads",
                {"threads": taken.threads, "registers": taken.registers, "limit": profile.registers_per_sm},
            )
        )
    tx = 0 if c.family == "portable" else c.work.mma_ctas * _stage_bytes(taken, c.stages)
    if tx >= tma.MAX_TX_BYTES:
        found.append(
            Violation(
                "TX_BYTES_1MIB",
                f"one phase expects {tx} bytes; an mbarrier counts less than 1 MiB",
                {"tx_bytes": tx, "limit": tma.MAX_TX_BYTES},
            )
        )
    return found


def _stage_bytes(taken: Resources, stages: int) -> int:
    operands = ("a", "b", "a_stages", "b_stages")
    return sum(size for name, size in taken.smem_parts if name in operands) // max(1, stages)


def _cluster_reasons(
    p: GemmProblem,
    module: FamilyModule,
    family: Family,
    profile: DeviceProfile,
    span: Span,
    reasons: list[Violation],
    reason: Ints,
    axes: tuple[Ints, Ints, Ints, Ints, Ints],
    stages: Ints,
) -> None:
    """Family limits of every (CTAs per MMA, cluster, split, schedule), asked with a tile that the family takes, and
    the stages and the swap of its row."""
    i_tile, i_cluster, i_split, i_swap, i_schedule = axes
    mma = np.array([tile.mma_ctas for tile in span.tiles], dtype=np.int64)[i_tile]
    for kind in sorted({tile.mma_ctas for tile in span.tiles}):
        rows = (mma == kind) & (reason == LEGAL)
        if not rows.any():
            continue
        first = int(np.argmax(rows))
        tile, swap = span.tiles[int(i_tile[first])], span.swaps[int(i_swap[first])]
        verdict = np.full((len(span.shapes), len(span.splits), len(span.schedules)), LEGAL, dtype=np.int64)
        for (i, (x, y, *larger)), (j, (z, split)), (k, schedule) in itertools.product(
            enumerate(span.shapes), enumerate(span.splits), enumerate(span.schedules)
        ):
            if x * y * z > MAX_CLUSTER and family != "portable":
                continue  # what no machine has is the machine's to refuse, and to step down from
            c = Candidate(
                family=family,
                cluster=(x, y, z),
                schedule=schedule,
                tile=(tile.m, tile.n, tile.k_bytes // p.a.element_bytes),
                stages=int(stages[first]),
                threads=tile.threads,
                work=replace(_work(kind, x, y, larger, split), swap_ab=swap),
            )
            found = no_clc(schedule, profile) or module.violations(p, c)
            if found:
                verdict[i, j, k] = _index(reasons, found[0])
        reason[rows] = verdict[i_cluster[rows], i_split[rows], i_schedule[rows]]


def _work(mma_ctas: int, x: int, y: int, larger: list[int], split: int) -> GemmWork:
    """Of a cluster of x by y, or of the preferred one beside it: all zeros where there is none."""
    unit_x, unit_y, z = larger
    preferred = (unit_x, unit_y, z) if unit_x else None
    return GemmWork(
        mma_ctas=mma_ctas,
        multicast_a=unit_y or y,
        multicast_b=unit_x or x,
        split_k=split,
        preferred_cluster=preferred,
    )


def no_clc(schedule: Schedule, profile: DeviceProfile) -> list[Violation]:
    """The clause on Cluster Launch Control: a matter of the target, not of a family."""
    if schedule != "clc" or supports(Feature.CLC, profile.arch):
        return []
    text = f"{profile.title} ({profile.arch}) has no Cluster Launch Control: it begins with compute capability 10.0"
    return [Violation("NO_CLC", text, {"target": profile.arch})]


def _index(reasons: list[Violation], found: Violation) -> int:
    for index, each in enumerate(reasons):
        if each.code == found.code and each.message == found.message:
            return index
    reasons.append(found)
    return len(reasons) - 1


def _ctas_per_sm(profile: DeviceProfile, threads: Ints, registers: Ints, smem: Ints, tmem: Ints) -> Ints:
    """CTAs that one SM holds: the occupancy formula, and tensor memory, which that formula does not know."""
    key = ((threads << 9 | registers) << 20 | smem) << 10 | tmem  # one number sorts ten times as fast as four
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    answers = []
    for thread_count, register_count, smem_bytes, columns in zip(
        *(each[first].tolist() for each in (threads, registers, smem, tmem)), strict=True
    ):
        fit = ctas_per_sm(profile, thread_count, register_count, smem_bytes)
        answers.append(min(fit, profile.tmem_columns // columns) if columns and profile.tmem_columns else fit)
    return np.array(answers, dtype=np.int64)[inverse]


def _resident(profile: DeviceProfile, fit: Ints, size: Ints) -> Ints:
    keys = fit * 64 + np.minimum(size, 63)
    answers = np.zeros(int(keys.max(initial=0)) + 1, dtype=np.int64)
    for row in np.flatnonzero(np.bincount(keys)).tolist():  # few and small: counting is faster than sorting
        answers[row] = sum(clusters_by_group(profile, row // 64, row % 64))
    return np.asarray(answers[keys])
