"""A third kind in one file, as a kind from elsewhere would be: `kind: scale`, Y[i] = alpha * X[i] of n floats.

It has no clusters and no barriers. What it does not say is `BaseWorkload`'s; test_third_kind.py takes it through the
whole house.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from advisor.kinds import Kind
from advisor.kinds.base import BaseWorkload
from advisor.kinds.words import Chosen, View, reason, table
from advisor.kinds.workload import Arrays, Axes, Interface, Measurements, Occupancy, Timing
from advisor.machine.occupancy import ctas_per_sm
from advisor.machine.profile import DeviceProfile
from advisor.problem.base import (
    Assume,
    Constraints,
    Extent,
    Factor,
    Frozen,
    Name,
    Problem,
    SharedGpu,
    Target,
    Triple,
    name_rule,
)
from advisor.records.candidate import SCHEDULES, Candidate, Family, OccupancyKey, Resources, Schedule, Work
from advisor.records.case import Case
from advisor.records.counts import CountTable
from advisor.records.launch import Argument, Buffer, Kernel, KernelSpec, PtrParam, ScalarParam
from advisor.records.plan import Decision, Prediction
from advisor.records.rows import BarrierRow, SharingRow, TileMap, Traffic, Violation
from advisor.records.work import WorkRecord
from advisor.simulation import skewed_costs

TILE, THREADS, REGISTERS = 1024, 256, 32
IMAGES: dict[Family, tuple[str, ...]] = {"sm90": ("sm_90a",), "portable": ("sm_80",)}


# ---- the problem ---------------------------------------------------------------------------------------------------


class ScaleOverrides(Frozen):
    kernel: Literal["sm90", "portable"] | None = None
    cluster: Triple | None = None
    schedule: Literal["one_tile", "static"] | None = None


class ScaleProblem(Problem):
    extents: ClassVar[tuple[str, ...]] = ("n",)
    begins: ClassVar[str] = "kind: scale and n:"

    kind: Literal["scale"]
    name: Name = "scale"
    n: Extent
    alpha: Factor = 1.0
    target: Target = "auto"
    shared_gpu: SharedGpu = SharedGpu()
    assume: Assume = Assume()
    constraints: Constraints = Constraints()
    overrides: ScaleOverrides = ScaleOverrides()

    @model_validator(mode="after")
    def _check(self) -> ScaleProblem:
        name_rule(self)
        return self

    @property
    def words(self) -> str:
        return f"scale n={self.n} alpha={self.alpha:g}"


# ---- the candidate's own part --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScaleWork(Work):
    def order_of_sums(self, c: Candidate) -> tuple[Any, ...]:
        return ("no sums",)


class ScaleWorkRecord(WorkRecord):
    @classmethod
    def of(cls, work: ScaleWork) -> ScaleWorkRecord:
        return cls()

    def work(self) -> ScaleWork:
        return ScaleWork()

    @property
    def extents(self) -> str:
        return "elements x 1 x 1"


# ---- the search ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScaleSearch:
    """Two candidates of a family: one tile a CTA, or a persistent loop."""

    roles = Axes()

    family: Family
    profile: DeviceProfile
    rows: Sequence[tuple[Candidate, Timing]]
    answers: Mapping[int, dict[str, Any]]
    measured: Mapping[int, float]
    reasons: Sequence[Violation] = ()

    @property
    def time_us(self) -> NDArray[np.float64]:
        return np.array([self.measured.get(i, t.time_us) for i, (_, t) in enumerate(self.rows)])

    @property
    def reason(self) -> NDArray[np.int64]:
        return np.full(len(self.rows), -1, dtype=np.int64)

    @property
    def simplicity(self) -> NDArray[np.int64]:
        return np.array([SCHEDULES.index(c.schedule) for c, _ in self.rows], dtype=np.int64)

    @property
    def moved_bytes(self) -> NDArray[np.float64]:
        return np.zeros(len(self.rows))

    @property
    def axes(self) -> Mapping[str, tuple[Sequence[Any], NDArray[np.int64]]]:
        one, own = np.zeros(len(self.rows), dtype=np.int64), [c.schedule for c, _ in self.rows]
        return {
            "schedule": (own, np.arange(len(own))),
            "cluster_size": ([1], one),
            "cluster": ([(1, 1, 1)], one),
            "tile": ([(TILE, 1)], one),
            "stages": ([1], one),
        }

    def candidate(self, i: int) -> Candidate:
        return self.rows[i][0]

    def timing(self, i: int) -> Timing:
        return self.rows[i][1]

    def queried(self, i: int) -> dict[str, Any] | None:
        return self.answers.get(i)


# ---- the workload --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale(BaseWorkload):
    problem: ScaleProblem

    OVERRIDES = ("cluster", "schedule")

    def empty(self) -> str | None:
        return None if self.problem.n else "n is 0: Y has no element"

    def families(self, profile: DeviceProfile) -> tuple[Family, ...]:
        return tuple(each for each in super().families(profile) if each in IMAGES)

    @property
    def tiles(self) -> int:
        return -(-self.problem.n // TILE)

    def explore(
        self,
        profile: DeviceProfile,
        family: Family,
        *,
        forced: bool,
        occupancy: Occupancy | None = None,
        overrides: Mapping[str, Any] | None = None,
        measurements: Measurements | None = None,
    ) -> ScaleSearch:
        given = {**(self.forces() if forced else {}), **(overrides or {})}
        schedules: tuple[Schedule, ...] = ("one_tile", "static") if family != "portable" else ("one_tile",)
        plain = [Candidate(family, (1, 1, 1), each, (TILE, 1, 1), 1, THREADS, ScaleWork()) for each in schedules]
        found = list(dict.fromkeys(self.apply(c, given) for c in plain))
        fit, answers = ctas_per_sm(profile, THREADS, REGISTERS, 0), {}
        rows = []
        for number, c in enumerate(found):
            resident = profile.sms * fit
            key = OccupancyKey(THREADS, REGISTERS, 0, "max", c.cluster)
            if occupancy is not None and (answer := occupancy(key, profile)) is not None:
                resident, answers[number] = answer
            rows.append((c, self._timing(c, profile, resident)))
        known = {i: measurements[c] for i, c in enumerate(found) if measurements and c in measurements}
        return ScaleSearch(family, profile, rows, answers, known)

    def _timing(self, c: Candidate, profile: DeviceProfile, resident: int) -> Timing:
        moved_us = 8 * self.problem.n / profile.dram_bytes_per_s * 1e6
        planned = self.tiles if c.schedule == "one_tile" else min(self.tiles, resident)
        found = Timing(
            time_us=0.0, makespan_us=moved_us, launch_us=profile.launch_us, main_us=moved_us / max(1, self.tiles),
            prologue_us=0.0, epilogue_us=0.0, overlap=0.0, claim_us=0.0, extra_us=0.0, dram_us=moved_us,
            tiles=self.tiles, planned=planned, resident=resident, available=resident, bound="dram",
            bounds={"dram": moved_us, "latency": profile.launch_us},
        )  # fmt: skip
        return replace(found, time_us=found.total_us(moved_us))

    def apply(self, c: Candidate, overrides: Mapping[str, Any]) -> Candidate:
        given = {name: value for name, value in overrides.items() if value is not None}
        return replace(c, cluster=given.get("cluster", c.cluster), schedule=given.get("schedule", c.schedule))

    def clauses(self, c: Candidate, profile: DeviceProfile) -> list[Violation]:
        if c.schedule == "one_tile" or (c.schedule == "static" and c.family != "portable"):
            return []
        return [Violation("SCALE_SCHEDULE", f"{c.family} has no {c.schedule} kernel that scales")]

    def resources(self, c: Candidate) -> Resources:
        return Resources(THREADS, REGISTERS, 0, 0, 0)

    def coordinates(self, c: Candidate) -> TileMap:
        count = (self.tiles, 1, 1)
        return TileMap(count, count, count, 1, self.problem.n / (self.tiles * TILE))

    def traffic(self, c: Candidate, profile: DeviceProfile) -> Traffic:
        read = 4 * self.problem.n
        return Traffic(0, 4 * TILE, read, 2 * read, read, 0)

    def units(self, c: Candidate, profile: DeviceProfile) -> NDArray[np.float64]:
        assume = self.problem.assume
        return skewed_costs(self.tiles, self._timing(c, profile, 1).main_us, assume.tile_cost_cv, assume.seed)

    def simpler(self, c: Candidate) -> tuple[int, ...]:
        return (SCHEDULES.index(c.schedule),)

    # What the plan says.

    def analysis(self, c: Candidate, profile: DeviceProfile) -> Mapping[str, float]:
        traffic = self.traffic(c, profile)
        return {
            "flops": self.problem.n,
            "l2_read_bytes": traffic.l2_read_bytes,
            "dram_bytes": traffic.dram_bytes,
            "dsmem_bytes": 0,
        }

    def aligned_operands(self, c: Candidate, profile: DeviceProfile) -> str:
        return ""

    def gain(self, f: Chosen, single: Candidate) -> str:
        return "nothing: no element is read twice"

    def mapping(self, f: Chosen) -> View:
        why = [reason(f"{self.tiles} tiles of {TILE} elements", "derived", tiles=self.tiles)]
        grid = min(f.timing.tiles, f.timing.planned)
        return View(
            [Decision(question="Which tile?", choice=f"{TILE} elements a CTA", because=why)],
            {"grid_blocks": grid, "grid_clusters": grid},
        )

    def exchange(self, f: Chosen) -> View:
        why = [reason("each element is read once and written once", "derived")]
        columns = ["buffer", "producer", "consumer", "bytes"]
        rows = [["X", "global memory", "every thread", 4], ["Y", "every thread", "global memory", 4]]
        return View(
            [Decision(question="What do CTAs share, and how?", choice="nothing", because=why)],
            {"buffers": table(columns, rows)},
        )

    def counts(self, c: Candidate, profile: DeviceProfile, timing: Timing, prediction: Prediction) -> CountTable:
        return CountTable(kernel_id=c.kernel_id, rows=[])

    # What is rendered.

    def arguments(self) -> list[Argument]:
        return [
            Argument(name="n", type="i64", min=0, default=self.problem.n),
            Argument(name="alpha", type="f32", default=self.problem.alpha),
        ]

    def buffers(self) -> dict[str, Buffer]:
        return {
            "X": Buffer(dtype="float32", shape=["n"], role="in"),
            "Y": Buffer(dtype="float32", shape=["n"], role="out"),
        }

    def interface(self) -> Interface:
        return Interface(operands=("X", "Y"), result="Y", context={"tile": TILE})

    def sharing(self, c: Candidate) -> list[SharingRow]:
        return []

    def barriers(self, c: Candidate) -> list[BarrierRow]:
        return []

    def kernels(self, c: Candidate) -> list[KernelSpec]:
        tiles = f"ceil_div(n, {TILE})"
        held = "max(sm_budget, 1) + sm_budget // num_sms * max_active_clusters"
        kernel = Kernel(
            id=c.kernel_id,
            family=c.family,
            schedule=c.schedule,
            source=f"kernel_{c.family}.cu",
            defines={"ADVISOR_THREADS": THREADS},
            entry="scale",
            images={target: f"build/{c.kernel_id}.{target}.cubin" for target in IMAGES[c.family]},
            block=(THREADS, 1, 1),
            cluster=c.cluster,
            nonportable=False,
            dynamic_smem_bytes=0,
            registers=REGISTERS,
            grid_blocks=(f"min(max_active_clusters, {held}, {tiles})" if c.schedule == "static" else tiles, 1, 1),
            params=[
                PtrParam(name="x", buffer="X"),
                PtrParam(name="y", buffer="Y"),
                ScalarParam(kind="i64", name="n", value="n"),
                ScalarParam(kind="f32", name="alpha", value="alpha"),
            ],
            tile=c.tile,
        )
        role = "portable" if c.family == "portable" else "chosen"
        return [KernelSpec(kernel=kernel, template="kernels/scale.cu.j2", context={"tile": TILE}, role=role)]

    # What is checked, and timed.

    def cases(self, c: Candidate, resident_clusters: int, *, small: bool = False) -> list[Case]:
        resident = max(1, resident_clusters)
        shapes = [
            ("own_shape", "the problem's own extent", self.problem.n, True),
            ("one", "a single element", 1, False),
            ("tile_less", "one element short of a tile", TILE - 1, False),
            ("clusters_one_more", "a tail wave of one", resident * TILE + 1, True),
            ("nothing", "nothing is launched or written", 0, False),
        ]
        return [self._case(name, why, n, scheduling) for name, why, n, scheduling in shapes]

    def _case(self, name: str, why: str, n: int, scheduling: bool) -> Case:
        return Case(name, why, {"n": n, "alpha": self.problem.alpha}, scheduling=scheduling)

    def inputs(self, case: Case) -> dict[str, NDArray[Any]]:
        n = int(case.arguments["n"])
        x = np.random.default_rng(case.seed).standard_normal(n, dtype=np.float32)
        return {"X": x, "Y": np.full(n, np.nan, dtype=np.float32)}

    def reference(self, case: Case, inputs: Arrays) -> dict[str, NDArray[np.float64]]:
        alpha = float(np.float32(case.arguments["alpha"]))
        return {"Y": alpha * inputs["X"].astype(np.float64)}

    def bound(self, case: Case, inputs: Arrays, family: Family) -> dict[str, NDArray[np.float64]]:
        """One rounding to fp32: 2^-24 of the result, and half of the smallest subnormal."""
        return {"Y": 2.0**-24 * np.abs(self.reference(case, inputs)["Y"]) + 2.0**-150}

    def own_case(self) -> Case:
        return self._case("own_shape", "the problem's own extent", self.problem.n, True)

    def inputs_on(self, case: Case, torch: Any, device: str) -> dict[str, Any]:
        x = torch.randn(int(case.arguments["n"]), device=device)
        return {"X": x, "Y": torch.empty_like(x)}

    def least_bytes(self, case: Case) -> int:
        return 8 * int(case.arguments["n"])


HERE = Path(__file__).parent
KIND = Kind(
    "scale",
    ScaleProblem,
    Scale,
    ScaleWorkRecord,
    templates=HERE / "templates",
    codes=HERE / "codes.toml",
    module=__name__,
)
