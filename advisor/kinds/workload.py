"""The protocol between a kind of work and the rest of the house. No other room compares `kind`.

A kind owns its facts; the planner, codegen and validation only ask. Every method is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.machine.profile import DeviceProfile
from advisor.records.candidate import Candidate, Family, OccupancyKey, Resources
from advisor.records.case import Case
from advisor.records.counts import CountTable
from advisor.records.launch import Argument, Buffer, KernelSpec
from advisor.records.plan import Decision, Finding, Prediction
from advisor.records.rows import BarrierRow, KernelLayout, SharingRow, TileMap, Traffic, Violation

if TYPE_CHECKING:
    from advisor.kinds.words import Chosen, View

Arrays = Mapping[str, NDArray[Any]]
Occupancy = Callable[[OccupancyKey, DeviceProfile], tuple[int, dict[str, Any]] | None]
"""Clusters resident at once for a built kernel, and where the answer comes from; None: not this oracle's to say."""
DRAM_SHARPNESS = 4  # exponent of the norm that joins a launch with its DRAM time: bursts and tiles overlap less well
Measurements = Mapping[Candidate, float]
"""Measured time of a candidate on the very problem, microseconds a launch, on the GPU of its family's profile."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one candidate costs, microseconds unless the name says otherwise: the inputs of the simulation, and the
    total that the search ranked it by."""

    time_us: float
    makespan_us: float
    launch_us: float  # the launch, and what comes once with it
    main_us: float  # main loop of one cluster tile
    prologue_us: float
    epilogue_us: float
    overlap: float  # share of the epilogue that hides under the next main loop
    claim_us: float
    extra_us: float  # that nothing overlaps: the second kernel of split-K, a ring that fills and empties
    dram_us: float
    tiles: int  # cluster tiles of the launch
    planned: int  # clusters of the grid
    resident: int  # clusters at once on an idle GPU
    available: int  # the same while other work holds its SMs
    bound: str  # what limits it
    bounds: Mapping[str, float]  # each bound's own time for the launch
    claims_ahead: int = 1  # tiles that a worker may have claimed beyond the one that it runs
    sharing: int = 1  # CTAs of one SM that begin and end under each other's main loops, one tile per cluster

    def total_us(self, makespan_us: float) -> float:
        """The launch from start to start, if its clusters take `makespan_us`: the one sum of the parts above."""
        largest = max(makespan_us, self.dram_us, 1e-9)
        parts = (makespan_us / largest) ** DRAM_SHARPNESS + (self.dram_us / largest) ** DRAM_SHARPNESS
        return self.launch_us + largest * float(parts ** (1.0 / DRAM_SHARPNESS)) + self.extra_us


@dataclass(frozen=True, slots=True)
class Axes:
    """Which questions of a search play which part."""

    shape: tuple[str, ...] = ("cluster", "tile")  # what two candidates that differ in their schedule alone share
    alternatives: tuple[str, ...] = ("cluster_size", "schedule", "tile", "stages")  # the plan names the best other one
    swept: tuple[str, ...] = ("tile", "cluster", "schedule", "stages")  # a sweep of a benchmark tries every option


class Search(Protocol):
    """All candidates of one family, evaluated. Arrays have one entry per candidate.

    `axes` names the questions whose options compete: for each, the options and every candidate's option. `time_us` is
    infinite where `reason` is not -1; `reasons[reason]` is the clause that the candidate breaks.
    """

    @property
    def family(self) -> Family: ...
    @property
    def profile(self) -> DeviceProfile: ...
    @property
    def time_us(self) -> NDArray[np.float64]: ...
    @property
    def reason(self) -> NDArray[np.int64]: ...
    @property
    def reasons(self) -> Sequence[Violation]: ...
    @property
    def simplicity(self) -> NDArray[np.int64]:
        """The tie rule's order: smaller is simpler."""

    @property
    def moved_bytes(self) -> NDArray[np.float64]:
        """What a launch reads from the L2: among equally simple candidates in a tie, fewer is better."""

    @property
    def axes(self) -> Mapping[str, tuple[Sequence[Any], NDArray[np.int64]]]:
        """At least schedule, cluster_size, cluster, tile, stages."""

    @property
    def roles(self) -> Axes: ...

    def candidate(self, i: int) -> Candidate: ...

    def timing(self, i: int) -> Timing: ...

    def queried(self, i: int) -> dict[str, Any] | None:
        """The oracle's facts where its answer was used for row `i`."""

    @property
    def measured(self) -> Mapping[int, float]:
        """The rows whose time was measured, with that time, microseconds."""


@dataclass(frozen=True, slots=True)
class Interface:
    """How a bundle of the kind is called from Python and tested in C++, by templates of the kind's own."""

    operands: tuple[str, ...]  # buffers in the order of the call; what else is read follows by keyword
    result: str  # the buffer that the call returns
    context: Mapping[str, Any]  # of binding/<kind>.py.j2 and launcher/<kind>_test.cpp.j2, beside the problem


class Planned(Protocol):
    """What is planned: the problem, its candidates, what each costs and takes, and what rules it out."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def document(self) -> dict[str, Any]:
        """The resolved problem, as plan.json holds it."""

    @property
    def summary(self) -> str:
        """The problem in a few words, for progress: m=8192 n=8192 k=8192."""

    def empty(self) -> str | None:
        """Why there is nothing to launch, or None."""

    def uses(self, number: str) -> bool:
        """Whether a number of the profile, `field` or `field.key`, has a part in the kind's plans."""

    def findings(self, profile: DeviceProfile) -> list[Finding]:
        """What the kind has to say before any search: operands no kernel of the target takes, padding to fix."""

    def families(self, profile: DeviceProfile) -> tuple[Family, ...]:
        """Families the target can run, best first."""

    def candidates(self, profile: DeviceProfile, family: Family) -> Sequence[Candidate]: ...

    def explore(
        self,
        profile: DeviceProfile,
        family: Family,
        *,
        forced: bool,
        occupancy: Occupancy | None = None,
        overrides: Mapping[str, Any] | None = None,
        measurements: Measurements | None = None,
    ) -> Search:
        """The whole space of a family with legality and cost. `forced`: the problem's overrides bind it; `overrides`
        replaces single ones of them (None lifts one); a measured time stands over the cost of its legal candidate."""

    def forces(self) -> Mapping[str, Any]:
        """The overrides that the problem gives, by name."""

    def pins(self, c: Candidate) -> Mapping[str, Any]:
        """The overrides that leave nothing but the candidate."""

    def apply(self, c: Candidate, overrides: Mapping[str, Any]) -> Candidate:
        """The candidate with overrides put in, legal or not."""

    def limits(self) -> Mapping[str, Any]:
        """What the planner needs of constraints and assumptions: sm_budget, max_cluster_size, fallback, busy_sms,
        tile_cost_cv, seed."""

    @property
    def operand_codes(self) -> Sequence[str]:
        """Clauses on operands: they send the problem to the next family, with what would mend it."""

    def clauses(self, c: Candidate, profile: DeviceProfile) -> list[Violation]:
        """Every clause that the candidate breaks; empty means legal."""

    def fitted(self, c: Candidate) -> Candidate:
        """The candidate, with fewer stages where it would take more shared memory than its family's GPUs have: twins
        of a choice may take more than the choice does."""

    def resources(self, c: Candidate) -> Resources: ...

    def coordinates(self, c: Candidate) -> TileMap: ...

    def traffic(self, c: Candidate, profile: DeviceProfile) -> Traffic: ...

    def units(self, c: Candidate, profile: DeviceProfile) -> NDArray[np.float64]:
        """Main-loop time of each cluster tile in launch order, microseconds."""

    def simpler(self, c: Candidate) -> tuple[int, ...]:
        """Sort key of the tie rule: smaller is simpler."""

    def weaker(self, forced: Mapping[str, Any], profile: DeviceProfile) -> tuple[dict[str, Any], Finding] | None:
        """Overrides to change where the machine lacks what is forced, and the finding that says so. (Forced clusters
        are stepped down by the planner.)"""


class Told(Protocol):
    """What the plan says of the choice, in the words of the kind. (`words.py` has what it may look at.)"""

    @property
    def bounds(self) -> Mapping[str, str]:
        """What each name of `Timing.bounds` is, in words: {"dram": "DRAM bandwidth"}."""

    def analysis(self, c: Candidate, profile: DeviceProfile) -> Mapping[str, float]:
        """FLOPs and bytes of the launch for step 1, whole numbers as far as they are counts: flops, l2_read_bytes,
        dram_bytes, dsmem_bytes and so on."""

    def aligned_operands(self, c: Candidate, profile: DeviceProfile) -> str:
        """In words, the buffers whose addresses and strides must be multiples of 16 bytes; "" for none."""

    def runs_on(self, family: Family) -> str:
        """Step 9: the GPUs that a family's images load on, and what its kernels are made of."""

    def necessity(self, f: Chosen) -> list[Decision]:
        """Step 1: questions beside whether a cluster pays."""

    def gain(self, f: Chosen, single: Candidate) -> str:
        """Step 1: what the cluster changes about the best single CTA."""

    def mapping(self, f: Chosen) -> View:
        """Step 2: tiles, cluster, coordinates; the artifact has at least `grid_blocks` and `grid_clusters`."""

    def exchange(self, f: Chosen) -> View:
        """Step 3: what CTAs share; the artifact has at least the table `buffers`."""

    def signals(self, f: Chosen) -> list[Decision]:
        """Step 5: questions beside who signals whom, and when a cluster meets."""

    def claim(self, c: Candidate) -> Sequence[tuple[str, str, str, str]] | None:
        """Step 7: how a cluster comes to its next tile, rows of (step, who, what, when); None: as in a kernel whose
        warps have a role each."""

    def remarks(self, f: Chosen) -> list[Finding]:
        """What a reader should know of the choice though nothing is wrong."""

    def counts(self, c: Candidate, profile: DeviceProfile, timing: Timing, prediction: Prediction) -> CountTable:
        """What can be counted of the candidate's main kernel without the chip, by arithmetic or by a build or the
        emulator, and what others published for the like. (Idle SMs and waves are the planner's.)"""


class Rendered(Protocol):
    """What is rendered: how kernels are launched, and where the rows of the plan lie in them."""

    def arguments(self) -> list[Argument]: ...

    def buffers(self) -> dict[str, Buffer]: ...

    def interface(self) -> Interface: ...

    def sharing(self, c: Candidate) -> list[SharingRow]: ...

    def barriers(self, c: Candidate) -> list[BarrierRow]: ...

    def layout(self, c: Candidate) -> KernelLayout | None:
        """Where the rows of `sharing` and `barriers` lie in the built kernel; None where no single kernel has them."""

    def kernels(self, c: Candidate) -> list[KernelSpec]:
        """The kernels that run this candidate, in launch order (two for split-K over scratch)."""


class Checked(Protocol):
    """What is checked: cases, inputs, references in float64, bounds."""

    def cases(self, c: Candidate, resident_clusters: int, *, small: bool = False) -> list[Case]:
        """The problem's own shape, boundaries of the candidate, and cluster counts around what is resident. `small`
        keeps every boundary and cuts what lies between: for the emulator."""

    def inputs(self, case: Case) -> dict[str, NDArray[Any]]:
        """Every buffer of the launch file by name; outputs are poisoned."""

    def reference(self, case: Case, inputs: Arrays) -> dict[str, NDArray[np.float64]]: ...

    def bound(self, case: Case, inputs: Arrays, family: Family) -> dict[str, NDArray[np.float64]]:
        """Largest allowed |y - reference| of each output element."""


class Timed(Protocol):
    """What a benchmark times, and what it compares with."""

    def own_case(self) -> Case:
        """The problem's own extents and strides, however large, with normal data: what a benchmark times."""

    def inputs_on(self, case: Case, torch: Any, device: str) -> dict[str, Any]:
        """`inputs` as flat tensors that torch made on a GPU: values of the same kind, other bits. Normal data only."""

    def flops(self, case: Case) -> int:
        """Floating-point operations of a case; 0 where the kind counts none."""

    def least_bytes(self, case: Case) -> int:
        """Bytes that any kernel moves: every input read once, every output written once."""

    def library(
        self, case: Case, tensors: Mapping[str, Any], *, whole: bool = False
    ) -> tuple[str, Callable[[], None]] | None:
        """(what it is, a call) of the vendor library's same work on torch tensors of the GPU, or None. `whole`: with
        what the kernel fuses behind it, as a kernel of its own; else the library's core alone."""

    def triton_products(self, case: Case, tensors: Mapping[str, Any], sms: int) -> list[tuple[str, Callable[[], None]]]:
        """(configuration, a call) of the same core written in Triton, to take the fastest of. Needs torch, triton."""


class Workload(Planned, Told, Rendered, Checked, Timed, Protocol):
    """One problem, as the house asks about it. `base.py` has what most kinds answer alike."""
