"""`kind: row_reduce` as one Workload: composes footprint, space, cost and numerics.

Imports `machine`, `problem`, `records` and this package. The kernels, their footprint and limits are in `kernels.py`;
the candidates and their cost in `space.py`; cases, references and bounds in `numerics.py`; the words of the plan in
`words.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.base import BaseWorkload
from advisor.kinds.kind import Kind
from advisor.kinds.row_reduce import kernels, space, words
from advisor.kinds.row_reduce.work import RowWorkRecord
from advisor.kinds.words import Chosen, View
from advisor.kinds.workload import Arrays, Interface, Measurements, Occupancy, Timing
from advisor.machine.profile import DeviceProfile
from advisor.problem.row_reduce import RowReduceProblem
from advisor.records.candidate import Candidate, Family, Resources
from advisor.records.case import Case
from advisor.records.counts import CountTable
from advisor.records.launch import Argument, Buffer, KernelSpec
from advisor.records.plan import Prediction
from advisor.records.rows import BarrierRow, KernelLayout, SharingRow, TileMap, Traffic, Violation

# Numbers of a profile that a plan of rows depends on: no tensor core, no tensor memory.
USED = frozenset(
    {
        "clc_round_trip_cycles",
        "compute_capability",
        "dram_bytes_per_s",
        "l2_bytes",
        "launch_us",
        "max_blocks_per_sm",
        "max_clock_hz",
        "max_cluster_size",
        "max_portable_cluster_size",
        "max_threads_per_sm",
        "registers_per_sm",
        "sm_groups",
        "smem_per_block_bytes",
        "smem_per_sm_bytes",
        "smem_reserved_bytes",
        "sms",
    }
)


@dataclass(frozen=True)
class RowReduce(BaseWorkload):
    """A row reduction as the house asks about it."""

    problem: RowReduceProblem

    OVERRIDES = ("cluster", "schedule", "stages")
    operand_codes = ("ROW_STRIDE_16B",)

    @property
    def summary(self) -> str:
        p = self.problem
        return f"{p.op} rows={p.rows} cols={p.cols} {p.dtype}"

    def empty(self) -> str | None:
        """No rows, or no columns where a result belongs to an element. (A sum of no columns is still written.)"""
        p = self.problem
        if p.rows == 0:
            return "rows is 0: Y has no element"
        return "cols is 0: Y has no element" if p.cols == 0 and p.elementwise else None

    def uses(self, number: str) -> bool:
        return number in USED

    def arguments(self) -> list[Argument]:
        from advisor.kinds.row_reduce import numerics

        return numerics.arguments(self.problem)

    def buffers(self) -> dict[str, Buffer]:
        from advisor.kinds.row_reduce import numerics

        return numerics.buffers(self.problem)

    def interface(self) -> Interface:
        return Interface(operands=("X", "Y"), result="Y", context={})

    def explore(
        self,
        profile: DeviceProfile,
        family: Family,
        *,
        forced: bool,
        occupancy: Occupancy | None = None,
        overrides: Mapping[str, Any] | None = None,
        measurements: Measurements | None = None,
    ) -> space.RowSearch:
        p = self.problem
        given = {**(self.forces() if forced else {}), **(overrides or {})}
        found = [space.evaluate(p, c, profile, occupancy) for c in space.chosen(p, family, given)]
        rows = [row for row, _ in found]
        return space.RowSearch(
            family=family,
            profile=profile,
            rows=rows,
            answers={number: facts for number, (_, facts) in enumerate(found) if facts is not None},
            measured={
                number: float(measurements[row.candidate])
                for number, row in enumerate(rows)
                if measurements and row.violation is None and row.candidate in measurements
            },
            moved=np.array([float(space.dram_bytes(p, row.candidate, profile, row.timing.resident)) for row in rows]),
        )

    def apply(self, c: Candidate, overrides: Mapping[str, Any]) -> Candidate:
        return space.forced(c, overrides)

    def analysis(self, c: Candidate, profile: DeviceProfile) -> Mapping[str, float]:
        traffic = self.traffic(c, profile)
        return {
            "flops": 0,
            "dram_bytes": traffic.dram_bytes,
            "l2_read_bytes": traffic.l2_read_bytes,
            "dsmem_bytes": traffic.dsmem_bytes,
            "store_bytes": traffic.store_bytes,
        }

    def aligned_operands(self, c: Candidate, profile: DeviceProfile) -> str:
        """The buffers whose addresses and strides the kernel's copies bind, in words."""
        names = [name for name in ("X", "Y", "weight", "bias") if name in self.buffers()]
        return f"{', '.join(names[:-1])} and {names[-1]}" if self.problem.elementwise else "X"

    def clauses(self, c: Candidate, profile: DeviceProfile) -> list[Violation]:
        row, _ = space.evaluate(self.problem, c, profile)
        fits = not (row.violation is not None and row.violation.code == "ZERO_ACTIVE_CLUSTERS")
        return space.clauses(self.problem, c, profile, row.timing.resident if fits else 0)

    def resources(self, c: Candidate) -> Resources:
        return kernels.resources(c)

    def coordinates(self, c: Candidate) -> TileMap:
        p, side, size = self.problem, kernels.rows_per_cta(c), c.cluster_size
        items = -(-p.rows // side)
        per_cta = max(1, c.tile[1])
        used = -(-p.cols // per_cta)
        area = items * side * size * per_cta
        turns = kernels.work_of(c).vectors or -(-space.vectors_of(p, size) // kernels.work_of(c).row_threads)
        return TileMap(
            tiles=(items, used, 1),
            launched=(items, size, 1),
            clusters=(items, 1, 1),
            k_steps=turns,
            useful_share=p.rows * p.cols / area if area else 0.0,
        )

    def traffic(self, c: Candidate, profile: DeviceProfile) -> Traffic:
        p = self.problem
        row, _ = space.evaluate(p, c, profile)
        size, passes = c.cluster_size, kernels.passes(p, c)
        per_cta = kernels.rows_per_cta(c) * min(p.cols, c.tile[1]) * p.in_bytes
        return Traffic(
            tma_bytes_per_tile=0,
            smem_fill_bytes_per_tile=per_cta * passes,
            l2_read_bytes=space.read_bytes(p) * passes + space.weight_reads(p, c, row.timing.planned),
            dram_bytes=space.dram_bytes(p, c, profile, row.timing.resident),
            store_bytes=space.written_bytes(p),
            dsmem_bytes=p.rows * size * size * kernels.PARTIAL_BYTES if size > 1 else 0,
        )

    def counts(self, c: Candidate, profile: DeviceProfile, timing: Timing, prediction: Prediction) -> CountTable:
        return CountTable(
            kernel_id=c.kernel_id, rows=words.count_rows(self.problem, c, profile, self.traffic(c, profile))
        )

    def sharing(self, c: Candidate) -> list[SharingRow]:
        return kernels.sharing(self.problem, c)

    def barriers(self, c: Candidate) -> list[BarrierRow]:
        return kernels.barriers(self.problem, c)

    def claim(self, c: Candidate) -> Sequence[tuple[str, str, str, str]] | None:
        return words.CLC_ROWS if c.schedule == "clc" else None

    def layout(self, c: Candidate) -> KernelLayout | None:
        return kernels.layout(c)

    def mapping(self, f: Chosen) -> View:
        return words.mapping(self.problem, f)

    def exchange(self, f: Chosen) -> View:
        return words.exchange(self.problem, f, self.traffic(f.candidate, f.profile))

    def gain(self, f: Chosen, single: Candidate) -> str:
        return words.gain(self.problem, f, single)

    def units(self, c: Candidate, profile: DeviceProfile) -> NDArray[np.float64]:
        from advisor.simulation import skewed_costs

        row, _ = space.evaluate(self.problem, c, profile)
        assume = self.problem.assume
        return skewed_costs(row.timing.tiles, row.timing.main_us, assume.tile_cost_cv, assume.seed)

    def kernels(self, c: Candidate) -> list[KernelSpec]:
        return kernels.kernels(self.problem, c)

    def cases(self, c: Candidate, resident_clusters: int, *, small: bool = False) -> list[Case]:
        from advisor.kinds.row_reduce import numerics

        return numerics.cases(self.problem, c, resident_clusters, small=small)

    def inputs(self, case: Case) -> dict[str, NDArray[Any]]:
        from advisor.kinds.row_reduce import numerics

        return numerics.inputs(self.problem, case)

    def reference(self, case: Case, inputs: Arrays) -> dict[str, NDArray[np.float64]]:
        from advisor.kinds.row_reduce import numerics

        return numerics.reference(self.problem, case, inputs)

    def bound(self, case: Case, inputs: Arrays, family: Family) -> dict[str, NDArray[np.float64]]:
        from advisor.kinds.row_reduce import numerics

        return numerics.bound(self.problem, case, inputs)

    def own_case(self) -> Case:
        from advisor.kinds.row_reduce import numerics

        return numerics.own_case(self.problem)

    def inputs_on(self, case: Case, torch: Any, device: str) -> dict[str, Any]:
        from advisor.kinds.row_reduce import on_gpu

        return on_gpu.inputs(self.problem, case, torch, device)

    def least_bytes(self, case: Case) -> int:
        from advisor.kinds.row_reduce import on_gpu

        return on_gpu.least_bytes(self.problem, case)

    def library(
        self, case: Case, tensors: Mapping[str, Any], *, whole: bool = False
    ) -> tuple[str, Callable[[], None]] | None:
        from advisor.kinds.row_reduce import on_gpu

        return on_gpu.operation(self.problem, case, tensors)

    def simpler(self, c: Candidate) -> tuple[int, ...]:
        return space.simpler(c)


KIND = Kind("row_reduce", RowReduceProblem, RowReduce, RowWorkRecord)
