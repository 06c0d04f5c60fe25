"""`kind: gemm` as one Workload: composes the three families, the space, the cost and the numerics.

Imports `machine`, `problem`, `records`, `simulation` and this package. The kernels of a family, its footprint and its
limits are in `sm100.py`, `sm90.py` and `portable.py`; the search space in `space.py`; the equations in `cost.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.kinds import base
from advisor.kinds.base import BaseWorkload
from advisor.kinds.gemm import cost, interface, launches, space, tma, words
from advisor.kinds.gemm.families import module_of
from advisor.kinds.gemm.work import GemmWorkRecord
from advisor.kinds.kind import Kind
from advisor.kinds.words import Chosen, View
from advisor.kinds.workload import Arrays, Axes, Interface, Measurements, Occupancy, Timing
from advisor.machine.features import Feature, supports
from advisor.machine.profile import DeviceProfile
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate, Family, OccupancyKey, Resources
from advisor.records.case import Case
from advisor.records.counts import CountTable
from advisor.records.launch import Argument, Buffer, KernelSpec
from advisor.records.plan import Decision, Finding, Prediction
from advisor.records.rows import BarrierRow, KernelLayout, SharingRow, TileMap, Traffic, Violation

OVERRIDES = ("cluster", "schedule", "tile", "stages", "mma_ctas", "split_k", "swap_ab", "preferred_cluster")
BOUNDS = base.BOUNDS | {
    "tensor": "the tensor cores",
    "smem": "shared memory reads of the MMA",
    "epilogue": "the epilogue",
}
MADE_OF: Mapping[Family, str] = {"sm100": ": tcgen05", "sm90": ": wgmma", "portable": " (fp8 from 8.9): mma.sync"}
AXES = Axes(
    shape=("cluster", "tile", "mma_ctas", "split_k", "swap_ab", "shares_sm"),
    alternatives=("cluster_size", "schedule", "mma_ctas", "tile", "stages"),
    swept=("tile", "cluster", "schedule", "split_k", "swap_ab", "stages"),
)
RATES = ("tensor_flop_per_clk_per_sm", "mma_sync_flop_per_clk_per_sm")  # tables of a profile, by operand type


@dataclass(frozen=True, eq=False)
class GemmSearch:
    """One family's table with its costs: a `Search`."""

    table: space.Table
    costs: cost.Costs
    answers: dict[int, dict[str, Any]]  # rows that an oracle answered
    measured: Mapping[int, float]  # microseconds, by row

    roles = AXES

    @property
    def family(self) -> Family:
        return self.table.family

    @property
    def profile(self) -> DeviceProfile:
        return self.table.profile

    @cached_property
    def time_us(self) -> NDArray[np.float64]:
        if not self.measured:
            return self.costs.time_us
        times = self.costs.time_us.copy()
        times[list(self.measured)] = list(self.measured.values())
        return times

    @property
    def reason(self) -> NDArray[np.int64]:
        return self.costs.reason

    @property
    def reasons(self) -> Sequence[Violation]:
        return self.costs.reasons

    @property
    def simplicity(self) -> NDArray[np.int64]:
        return self.table.simplicity

    @property
    def moved_bytes(self) -> NDArray[np.float64]:
        return self.costs.l2_bytes

    @cached_property
    def axes(self) -> Mapping[str, tuple[Sequence[Any], NDArray[np.int64]]]:
        t = self.table
        return {
            "schedule": _axis(t.schedule, lambda v: space.SCHEDULE_OF[v]),
            "cluster_size": _axis(t.size + 64 * np.where(t.mixed, t.unit_size, 0), _size_label),
            "cluster": _axis(
                _packed(t.cluster_x, t.cluster_y, t.cluster_z)
                + 64**3 * np.where(t.mixed, _packed(t.unit_x, t.unit_y, t.cluster_z), 0),
                _cluster_label,
            ),
            "mixed": _axis(t.mixed.astype(np.int64), bool),
            "mma_ctas": _axis(t.mma_ctas, int),
            "tile": _axis(t.tile_m * 1024 + t.tile_n, lambda v: (v // 1024, v % 1024)),
            "split_k": _axis(
                t.split * 64 + t.cluster_z, lambda v: (v // 64, "in the cluster" if v % 64 > 1 else "over scratch")
            ),
            "swap_ab": _axis(t.swap.astype(np.int64), bool),
            "stages": _axis(t.stages, int),
            "shares_sm": _axis(t.shares_sm.astype(np.int64), bool),
        }

    def candidate(self, i: int) -> Candidate:
        return self.table.candidate(i, cost.raster_of(self.costs, i))

    def timing(self, i: int) -> Timing:
        c, t = self.costs, self.table
        clk = t.profile.max_clock_hz / 1e6
        rounds = max(1, -(-int(c.clusters[i]) // max(1, int(min(c.planned[i], c.available[i])))))
        bounds = {name: float(values[i]) * int(c.k_steps[i]) * rounds / clk for name, values in c.steps.items()}
        bounds["epilogue"] = float(c.epilogue_us[i]) * rounds
        bounds["dram"] = float(c.dram_us[i])
        bounds["latency"] += float(c.prologue_us[i]) * (rounds if t.schedule[i] == cost.ONE_TILE else 1)
        bounds["latency"] += c.start_us
        return Timing(
            time_us=float(c.time_us[i]),
            makespan_us=float(c.makespan_us[i]),
            launch_us=c.start_us,
            main_us=float(c.main_us[i]),
            prologue_us=float(c.prologue_us[i]),
            epilogue_us=float(c.epilogue_us[i]),
            overlap=float(c.overlap[i]),
            claim_us=float(c.claim_us[i]),
            extra_us=float(c.reduce_us[i]),
            dram_us=float(c.dram_us[i]),
            tiles=int(c.clusters[i]),
            planned=int(c.planned[i]),
            resident=int(c.resident[i]),
            available=int(c.available[i]),
            bound=max(bounds, key=lambda name: bounds[name]),
            bounds=bounds,
            sharing=int(cost.sharing(t)[i]),
        )

    def queried(self, i: int) -> dict[str, Any] | None:
        return self.answers.get(i)


def _packed(x: NDArray[np.int64], y: NDArray[np.int64], z: NDArray[np.int64]) -> NDArray[np.int64]:
    return (x * 64 + y) * 64 + z


def _size_label(v: int) -> Any:
    """A cluster size, or both of a launch that mixes two."""
    return v if v < 64 else f"{v % 64} or {v // 64}"


def _cluster_label(v: int) -> Any:
    larger, own = divmod(v, 64**3)
    shape = (own // 4096, own // 64 % 64, own % 64)
    if not larger:
        return shape
    return " or ".join("x".join(map(str, each)) for each in (shape, (larger // 4096, larger // 64 % 64, larger % 64)))


COUNTED = 8192  # values of an axis up to it are counted


def _axis(values: NDArray[np.int64], label: Any) -> tuple[Sequence[Any], NDArray[np.int64]]:
    if len(values) and values.min() >= 0 and values.max() <= COUNTED:  # counting is ten times as fast as sorting
        there = np.bincount(values) > 0
        distinct, codes = np.flatnonzero(there), (np.cumsum(there) - 1)[values]
    else:
        distinct, codes = np.unique(values, return_inverse=True)
    return [label(int(each)) for each in distinct], codes


@dataclass(frozen=True)
class Gemm(BaseWorkload):
    """A dense GEMM as the house asks about it."""

    problem: GemmProblem

    OVERRIDES = OVERRIDES
    operand_codes = ("TMA_STRIDE_16B", "TMA_BASE_16B", "TMA_STRIDE_RANGE", "WGMMA_MN_MAJOR")
    bounds = BOUNDS

    @property
    def summary(self) -> str:
        p = self.problem
        return f"m={p.m} n={p.n} k={p.k}"

    def empty(self) -> str | None:
        """Zero m, n or batch: no output element. (k = 0 still writes beta C + bias.)"""
        p = self.problem
        zero = [name for name in ("m", "n", "batch") if getattr(p, name) == 0]
        return f"{' and '.join(zero)} {'is' if len(zero) == 1 else 'are'} 0: D has no element" if zero else None

    def uses(self, number: str) -> bool:
        """All but the rates of other operand types."""
        field, _, key = number.partition(".")
        return field not in RATES or key == cost.rate_key(self.problem.a.dtype)

    def findings(self, profile: DeviceProfile) -> list[Finding]:
        """What limits every kernel of the target before any search."""
        p, found = self.problem, super().findings(profile)
        if supports(Feature.TMA, profile.arch) and self.families(profile) != ("portable",):
            for each in tma.operand_violations(p, "d"):
                found.append(
                    Finding(
                        code=each.code,
                        severity="warning",
                        message=f"{each.message}. Until then D is stored directly, without TMA",
                        numbers=dict(each.numbers),
                    )
                )
        if p.launch.pdl:
            alone = p.overrides.kernel == "portable" or self.families(profile) == ("portable",)
            found.append(
                Finding(
                    code="PDL_PORTABLE",
                    severity="warning" if alone else "info",
                    message="the portable kernel is launched without pdl: it starts when the kernel before it on the "
                    "stream has ended" + (", and it is the only one here" if alone else ""),
                )
            )
        return found

    def arguments(self) -> list[Argument]:
        return interface.arguments(self.problem)

    def buffers(self) -> dict[str, Buffer]:
        return interface.buffers(self.problem)

    def explore(
        self,
        profile: DeviceProfile,
        family: Family,
        *,
        forced: bool,
        occupancy: Occupancy | None = None,
        overrides: Mapping[str, Any] | None = None,
        measurements: Measurements | None = None,
    ) -> GemmSearch:
        p = self.problem
        given = dict(self.forces()) if forced else {}
        given.update(overrides or {})
        table = space.table(p, family, profile, forced=tuple(given.get(name) for name in OVERRIDES))
        answers: dict[int, dict[str, Any]] = {}
        resident = None if occupancy is None else _ask(table, profile, occupancy, answers)
        costs = cost.evaluate(p, table, resident=resident)
        return GemmSearch(table, costs, answers, _measured(table, costs, measurements or {}))

    def pins(self, c: Candidate) -> Mapping[str, Any]:
        own = {name: getattr(c, name) for name in BaseWorkload.OVERRIDES}
        return own | {name: getattr(c.work, name) for name in ("mma_ctas", "split_k", "swap_ab")}

    def clauses(self, c: Candidate, profile: DeviceProfile) -> list[Violation]:
        """Every clause of the family, and the first of the others that the candidate breaks."""
        found = space.no_clc(c.schedule, profile) + module_of(c.family).violations(self.problem, c)
        costs, _ = self._row(c, profile)
        seen = {each.code for each in found}
        found += [costs.reasons[int(i)] for i in costs.reason if i >= 0 and costs.reasons[int(i)].code not in seen]
        return found

    def interface(self) -> Interface:
        return interface.calling(self.problem)

    def fitted(self, c: Candidate) -> Candidate:
        return module_of(c.family).fitted(self.problem, c)

    def resources(self, c: Candidate) -> Resources:
        return module_of(c.family).resources(self.problem, c)

    def apply(self, c: Candidate, overrides: Mapping[str, Any]) -> Candidate:
        """The candidate with overrides put in, legal or not: what was asked for, so that `clauses` can name why not.
        What was not asked for follows: no pair in an odd cluster, the threads that the tile takes."""
        cluster = overrides.get("cluster", c.cluster)
        tile = overrides.get("tile", c.tile)
        split = overrides.get("split_k", cluster[2] if cluster[2] > 1 else c.work.split_k)
        threads = {(each.m, each.n): each.threads for each in space.family_span(c.family).tiles}
        preferred = overrides.get("preferred_cluster")
        if preferred is not None and "cluster" not in overrides:
            cluster = (*space.SMALLER, 1)
        unit = preferred or cluster
        work = replace(
            c.work,
            mma_ctas=overrides.get("mma_ctas", c.work.mma_ctas if cluster[0] % 2 == 0 else 1),
            multicast_a=unit[1],
            multicast_b=unit[0],
            split_k=split,
            swap_ab=overrides.get("swap_ab", c.work.swap_ab),
            preferred_cluster=preferred,
        )
        return replace(
            c,
            cluster=cluster,
            schedule=overrides.get("schedule", c.schedule),
            tile=tile,
            stages=overrides.get("stages", c.stages),
            threads=threads.get((tile[0], tile[1]), c.threads),
            work=work,
        )

    def coordinates(self, c: Candidate) -> TileMap:
        p = self.problem
        m, n = (p.n, p.m) if c.work.swap_ab else (p.m, p.n)
        x, y, z = c.unit
        tiles_m, tiles_n = -(-m // c.tile[0]), -(-n // c.tile[1])
        across, along = -(-tiles_m // x), -(-tiles_n // y)
        slices = c.work.split_k if z == 1 else 1
        launched = (across * x, along * y, p.batch)
        area = launched[0] * launched[1] * c.tile[0] * c.tile[1]
        return TileMap(
            tiles=(tiles_m, tiles_n, p.batch),
            launched=launched,
            clusters=(across, along, p.batch * slices),
            k_steps=-(-max(1, -(-p.k // c.tile[2])) // c.work.split_k),
            useful_share=m * n / area if area else 0.0,
        )

    def traffic(self, c: Candidate, profile: DeviceProfile) -> Traffic:
        p = self.problem
        costs, i = self._row(c, profile)
        tiles = self.coordinates(c)
        a_box = c.tile[0] * c.tile[2] * p.a.element_bytes
        b_box = c.tile[1] // c.work.mma_ctas * c.tile[2] * p.b.element_bytes
        z = c.cluster[2]
        of_a, of_b = launches.sharers(p, c)
        outputs = p.m * p.n * p.batch
        partial = 8 * c.work.split_k * outputs if z == 1 and c.work.split_k > 1 else 0
        l2_bytes = float(costs.l2_bytes[i])
        if c.work.preferred_cluster is not None:  # what each size moves, by the share that is expected of it
            l2_bytes = float(f"{l2_bytes:.3g}")
        return Traffic(
            tma_bytes_per_tile=(a_box // of_a + b_box // of_b) * tiles.k_steps,
            smem_fill_bytes_per_tile=(a_box + b_box) * tiles.k_steps,
            l2_read_bytes=int(l2_bytes),
            dram_bytes=int(costs.dram_bytes[i]),
            store_bytes=outputs * p.d.element_bytes + partial,
            dsmem_bytes=outputs * 4 * (z - 1) if z > 1 else 0,
        )

    def analysis(self, c: Candidate, profile: DeviceProfile) -> Mapping[str, float]:
        p = self.problem
        in_scratch = launches.slices_in_scratch(c)  # the second kernel adds C and stores D, without TMA
        traffic = self.traffic(c, profile)
        return {
            "flops": p.flops,
            "dram_bytes": traffic.dram_bytes,
            "l2_read_bytes": traffic.l2_read_bytes,
            "l2_read_bytes_unshared": self._unshared(c),
            "l2_bytes_per_flop": traffic.l2_read_bytes / max(1, p.flops),
            "flops_per_dram_byte": p.flops / max(1, traffic.dram_bytes),
            "smem_fill_bytes_per_tile": traffic.smem_fill_bytes_per_tile,
            "dsmem_bytes": traffic.dsmem_bytes,
            "store_bytes": traffic.store_bytes,
            "store_bytes_per_tile": c.tile[0] * c.tile[1] * p.d.element_bytes,
            "c_bytes_per_tile": c.tile[0] * c.tile[1] * p.c.element_bytes if p.uses_c else 0,
            "loads_c_through_tma": float(cost.loads_c_through_tma(p, c.family) and not in_scratch),
            "stores_through_tma": float(cost.stores_through_tma(p, c.family) and not in_scratch),
        }

    def aligned_operands(self, c: Candidate, profile: DeviceProfile) -> str:
        facts = self.analysis(c, profile)
        names = ["A", "B", *("C" * bool(facts["loads_c_through_tma"])), *("D" * bool(facts["stores_through_tma"]))]
        return f"{', '.join(names[:-1])} and {names[-1]}"

    def weaker(self, forced: Mapping[str, Any], profile: DeviceProfile) -> tuple[dict[str, Any], Finding] | None:
        return words.weaker(forced, profile)

    def runs_on(self, family: Family) -> str:
        return super().runs_on(family) + MADE_OF[family]

    def necessity(self, f: Chosen) -> list[Decision]:
        return words.pair(f, self.sharing(f.candidate))

    def gain(self, f: Chosen, single: Candidate) -> str:
        one, many = (self.analysis(c, f.profile)["l2_read_bytes"] for c in (single, f.candidate))
        return words.gain(f, one, many)

    def mapping(self, f: Chosen) -> View:
        return words.mapping(f)

    def exchange(self, f: Chosen) -> View:
        c = f.candidate
        return words.exchange(f, self.sharing(c), self.sharing(c.in_smaller_clusters), self.analysis(c, f.profile))

    def signals(self, f: Chosen) -> list[Decision]:
        return words.leader(f.candidate)

    def remarks(self, f: Chosen) -> list[Finding]:
        return words.remarks(f)

    def _unshared(self, c: Candidate) -> int:
        """Bytes that the launch would ask the L2 for if every CTA loaded both of its operand tiles itself."""
        p, tiles = self.problem, self.coordinates(c)
        m, n = (p.n, p.m) if c.work.swap_ab else (p.m, p.n)
        depth = tiles.k_steps * c.work.split_k * c.tile[2] * p.a.element_bytes
        return (m * tiles.tiles[1] + n * tiles.tiles[0]) * p.batch * int(depth)

    def counts(self, c: Candidate, profile: DeviceProfile, timing: Timing, prediction: Prediction) -> CountTable:
        from advisor.kinds.gemm import counts

        tiles, traffic = self.coordinates(c), self.traffic(c, profile)
        rows = counts.rows(self.problem, c, profile, tiles=tiles, traffic=traffic, timing=timing, prediction=prediction)
        found = counts.published(self.problem, profile, c)
        return CountTable(kernel_id=launches.kernel_id(c), rows=rows, published=found)

    def sharing(self, c: Candidate) -> list[SharingRow]:
        p, (x, y, _), pair = self.problem, c.unit, c.work.mma_ctas
        of_a, of_b = launches.sharers(p, c)
        a, b = (p.b, p.a) if c.work.swap_ab else (p.a, p.b)
        a_bytes = c.tile[0] * c.tile[2] * a.element_bytes
        b_bytes = c.tile[1] // pair * c.tile[2] * b.element_bytes
        a_lines = c.tile[0] if a.major == "k" else c.tile[2]
        b_lines = c.tile[1] // pair if b.major == "k" else c.tile[2]
        rank = f"1 << (x + {x} y + {x * y} z)"
        mask_a = f"{sum(1 << (x * each) for each in range(of_a)):#06x} for rank 0"
        mask_b = f"{sum(1 << (pair * each) for each in range(of_b)):#06x} for rank 0"
        along_y = (
            "every rank with this x and z" if of_a == y else f"the {of_a} ranks of this y // {of_a}, with this x and z"
        )
        parity, same = ("of this parity, y and z", "x = rank % 2, + 2 ...") if pair == 2 else ("with this y and z", "x")
        along_x = (
            f"every rank {parity}" if of_b * pair == x else f"the {of_b} ranks of this x // {of_b * pair}, {parity}"
        )
        return [
            SharingRow(
                operand="A",
                shared_along="y" if y > 1 else "none",
                receivers=of_a,
                mask=f"{along_y}: sum over y of {rank}; {mask_a}" if of_a > 1 else "none",
                bytes_per_load=a_bytes // _slices(a_lines, of_a),
                loads_per_stage=1,
            ),
            SharingRow(
                operand="B",
                shared_along="x" if x > 1 else "none",
                receivers=of_b,
                mask=f"{along_x}: sum over {same} of {rank}; {mask_b}" if of_b > 1 else "none",
                bytes_per_load=b_bytes // _slices(b_lines, of_b),
                loads_per_stage=1,
            ),
        ]

    def barriers(self, c: Candidate) -> list[BarrierRow]:
        return module_of(c.family).barriers(self.problem, c)

    def layout(self, c: Candidate) -> KernelLayout | None:
        from advisor.kinds.gemm import layouts

        return layouts.layout(self.problem, c)

    def units(self, c: Candidate, profile: DeviceProfile) -> NDArray[np.float64]:
        """Main-loop time of each cluster tile, microseconds; skewed as `assume.tile_cost_cv` says."""
        from advisor.simulation import skewed_costs

        costs, i = self._row(c, profile)
        assume = self.problem.assume
        return skewed_costs(int(costs.clusters[i]), float(costs.main_us[i]), assume.tile_cost_cv, assume.seed)

    def kernels(self, c: Candidate) -> list[KernelSpec]:
        return module_of(c.family).kernels(self.problem, c)

    def cases(self, c: Candidate, resident_clusters: int, *, small: bool = False) -> list[Case]:
        from advisor.kinds.gemm import numerics

        units = max(1, resident_clusters * c.cluster_size // c.unit_size) if resident_clusters else 0
        return numerics.cases(self.problem, c, units, small=small)

    def inputs(self, case: Case) -> dict[str, NDArray[Any]]:
        from advisor.kinds.gemm import numerics

        return numerics.inputs(self.problem, case)

    def reference(self, case: Case, inputs: Arrays) -> dict[str, NDArray[np.float64]]:
        from advisor.kinds.gemm import numerics

        return numerics.reference(self.problem, case, inputs)

    def bound(self, case: Case, inputs: Arrays, family: Family) -> dict[str, NDArray[np.float64]]:
        from advisor.kinds.gemm import numerics

        return numerics.bound(self.problem, case, inputs, family)

    def own_case(self) -> Case:
        from advisor.kinds.gemm import numerics

        return numerics.own_case(self.problem)

    def inputs_on(self, case: Case, torch: Any, device: str) -> dict[str, Any]:
        from advisor.kinds.gemm import on_gpu

        return on_gpu.inputs(self.problem, case, torch, device)

    def flops(self, case: Case) -> int:
        from advisor.kinds.gemm import on_gpu

        return on_gpu.flops(case)

    def least_bytes(self, case: Case) -> int:
        from advisor.kinds.gemm import on_gpu

        return on_gpu.least_bytes(self.problem, case)

    def library(
        self, case: Case, tensors: Mapping[str, Any], *, whole: bool = False
    ) -> tuple[str, Callable[[], None]] | None:
        from advisor.kinds.gemm import on_gpu

        return (on_gpu.whole if whole else on_gpu.product)(self.problem, case, tensors)

    def triton_products(self, case: Case, tensors: Mapping[str, Any], sms: int) -> list[tuple[str, Callable[[], None]]]:
        from advisor.kinds.gemm import triton_product

        return triton_product.products(self.problem, case, tensors, sms)

    def simpler(self, c: Candidate) -> tuple[int, ...]:
        return (
            space.SCHEDULE_RANK[c.schedule],
            int(c.work.mma_ctas),
            c.unit_size,
            int(c.work.split_k),
            int(c.work.preferred_cluster is not None),
            int(c.work.swap_ab),
        )

    def _row(self, c: Candidate, profile: DeviceProfile) -> tuple[cost.Costs, int]:
        """The candidate's own row, of a table of one. Asked often for the same few: the last ones are kept."""
        key = (c, id(profile))
        found = self._kept.get(key)
        if found is None:
            w = c.work
            forced = (
                c.cluster, c.schedule, c.tile, c.stages, w.mma_ctas, w.split_k, w.swap_ab, w.preferred_cluster
            )  # fmt: skip
            table = space.table(self.problem, c.family, profile, forced=forced)
            found = self._kept[key] = (cost.evaluate(self.problem, table), profile)
        return found[0], 0

    @cached_property
    def _kept(self) -> dict[tuple[Candidate, int], tuple[cost.Costs, DeviceProfile]]:
        return {}


def _slices(lines: int, receivers: int) -> int:
    """Into how many slices the receivers of a tile cut it, each loading one: a slice is whole groups of 8 lines, which
    the swizzle repeats after."""
    return gcd(max(1, lines // 8), receivers)


def _measured(table: space.Table, costs: cost.Costs, measurements: Measurements) -> dict[int, float]:
    """The legal rows that were measured. A candidate is its row and its raster, which the row has one of."""
    found = {}
    for c, time_us in measurements.items():
        if c.family != table.family:
            continue
        (x, y, z), (m, n, k) = c.cluster, c.tile
        same = (table.tile_m == m) & (table.tile_n == n) & (table.tile_k == k) & (table.stages == c.stages)
        same &= (table.cluster_x == x) & (table.cluster_y == y) & (table.cluster_z == z)
        same &= (table.schedule == space.SCHEDULE_RANK[c.schedule]) & (table.split == c.work.split_k)
        for row in np.flatnonzero(same & np.isfinite(costs.time_us)).tolist():
            if table.candidate(row, cost.raster_of(costs, row)) == c:
                found[row] = float(time_us)
    return found


def _ask(
    table: space.Table, profile: DeviceProfile, occupancy: Occupancy, answers: dict[int, dict[str, Any]]
) -> NDArray[np.int64]:
    """The formula's residency with the oracle's answers over it."""
    resident = table.resident.copy()
    columns = np.stack(
        [table.threads, table.registers, table.smem_bytes, table.cluster_x, table.cluster_y, table.cluster_z]
    )
    keys, inverse = np.unique(columns, axis=1, return_inverse=True)
    inverse = inverse.ravel()
    for number, (threads, registers, smem, x, y, z) in enumerate(keys.T.tolist()):
        answer = occupancy(OccupancyKey(threads, registers, smem, "max", (x, y, z)), profile)
        if answer is not None:
            rows = np.flatnonzero(inverse == number)
            resident[rows] = answer[0]
            answers.update(dict.fromkeys(rows.tolist(), answer[1]))
    return resident


KIND = Kind("gemm", GemmProblem, Gemm, GemmWorkRecord)
