"""The protocol between a kind of work and the rest of the house. No other room compares `kind`.

A kind owns its facts; the planner, codegen and validation only ask. Every method is pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.machine.profile import DeviceProfile
from advisor.records.candidate import Candidate, Family, Resources
from advisor.records.case import Case
from advisor.records.launch import Argument, Buffer, KernelSpec
from advisor.records.plan import Finding
from advisor.records.rows import BarrierRow, SharingRow, TileMap, Traffic, Violation

Arrays = Mapping[str, NDArray[Any]]


class Workload(Protocol):
    """One problem, as the house asks about it."""

    @property
    def name(self) -> str: ...

    @property
    def document(self) -> dict[str, Any]:
        """The resolved problem, as plan.json holds it."""

    def empty(self) -> str | None:
        """Why there is nothing to launch, or None."""

    def findings(self, profile: DeviceProfile) -> list[Finding]:
        """What the kind has to say before any search: operands no kernel of the target takes, padding to fix."""

    def arguments(self) -> list[Argument]: ...

    def buffers(self) -> dict[str, Buffer]: ...

    def families(self, profile: DeviceProfile) -> tuple[Family, ...]:
        """Families the target can run, best first."""

    def candidates(self, profile: DeviceProfile, family: Family) -> Sequence[Candidate]: ...

    def clauses(self, c: Candidate, profile: DeviceProfile) -> list[Violation]:
        """Every clause that the candidate breaks; empty means legal."""

    def resources(self, c: Candidate) -> Resources: ...

    def coordinates(self, c: Candidate) -> TileMap: ...

    def traffic(self, c: Candidate, profile: DeviceProfile) -> Traffic: ...

    def sharing(self, c: Candidate) -> list[SharingRow]: ...

    def barriers(self, c: Candidate) -> list[BarrierRow]: ...

    def units(self, c: Candidate, profile: DeviceProfile) -> NDArray[np.float64]:
        """Main-loop time of each cluster tile in launch order, microseconds."""

    def kernels(self, c: Candidate) -> list[KernelSpec]:
        """The kernels that run this candidate, in launch order (two for split-K over scratch); empty where the
        family has no template yet."""

    def cases(self, c: Candidate, resident_clusters: int) -> list[Case]: ...

    def inputs(self, case: Case) -> dict[str, NDArray[Any]]:
        """Every buffer of the launch file by name; outputs are poisoned."""

    def reference(self, case: Case, inputs: Arrays) -> dict[str, NDArray[np.float64]]: ...

    def bound(self, case: Case, inputs: Arrays, family: Family) -> dict[str, NDArray[np.float64]]:
        """Largest allowed |y - reference| of each output element."""

    def simpler(self, c: Candidate) -> tuple[int, ...]:
        """Sort key of the tie rule: smaller is simpler."""
