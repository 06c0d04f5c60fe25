"""What every step sees. Imports `search`, `kinds`, `records`, `machine`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from advisor.kinds.words import Option, show, table
from advisor.kinds.workload import Timing, Workload
from advisor.machine.occupancy import clusters_that_fit, counted_ctas, ctas_per_sm
from advisor.machine.profile import DeviceProfile
from advisor.planner.search import MIX_GAIN, TIE, Rung, options
from advisor.records.candidate import Candidate, Resources, Unit
from advisor.records.plan import Rejected
from advisor.records.rows import TileMap

CLUSTER_SIZES = (1, 2, 4, 8, 16)
MAX_REJECTED = 8


@dataclass(frozen=True, eq=False)
class Facts:
    """A problem on a target with every rung picked; nothing is decided after this."""

    workload: Workload
    target: DeviceProfile
    rungs: tuple[Rung, ...]

    @property
    def top(self) -> Rung:
        return self.rungs[0]

    # What a kind reads: `Chosen`.
    @property
    def candidate(self) -> Candidate:
        return self.top.candidate

    @property
    def unit(self) -> Unit:
        return self.top.candidate.unit_words

    @property
    def profile(self) -> DeviceProfile:
        return self.top.profile

    @property
    def timing(self) -> Timing:
        return self.top.timing

    @property
    def time_us(self) -> float:
        return self.top.time_us

    @property
    def resources(self) -> Resources:
        return self.top.resources

    @property
    def tiles(self) -> TileMap:
        return self.top.tiles

    def label(self, axis: str) -> Any:
        return self.top.label(axis)

    def candidate_at(self, row: int) -> Candidate:
        return self.top.search.candidate(row)

    def rejections(self, axis: str, chosen: Any, words: str = "{}") -> list[Rejected]:
        return rejections(self.axis(axis), chosen, words)

    @cached_property
    def limits(self) -> Mapping[str, Any]:
        return self.workload.limits()

    @cached_property
    def forced(self) -> Mapping[str, Any]:
        return self.workload.forces()

    @cached_property
    def single(self) -> Option | None:
        """The best candidate of the top family without a cluster."""
        return next((each for each in self.axis("cluster_size") if each.label == 1 and each.row is not None), None)

    def axis(self, name: str) -> list[Option]:
        if name not in self._axes:
            self._axes[name] = options(self.top, name)
        return self._axes[name]

    @cached_property
    def _axes(self) -> dict[str, list[Option]]:
        return {}

    def tma_operands(self, rung: Rung) -> str:
        """The operands whose addresses and strides the rung's copies bind, in words."""
        return self.workload.aligned_operands(rung.candidate, rung.profile)

    @cached_property
    def ctas_per_sm(self) -> int:
        return fit_of(self.top)


def fit_of(rung: Rung) -> int:
    """CTAs of the rung's kernel that one SM holds, tensor memory included."""
    r = rung.resources
    fit = ctas_per_sm(rung.profile, r.threads, r.registers, r.static_smem_bytes + r.dynamic_smem_bytes)
    return min(fit, rung.profile.tmem_columns // r.tmem_columns) if r.tmem_columns else fit


def sms_under(rung: Rung, clusters: int, size: int) -> int:
    """SMs that this many clusters take, as the formula and the query fill an SM."""
    held = max(1, counted_ctas(rung.profile, fit_of(rung)))
    return min(rung.profile.sms, -(-clusters * size // held))


def residency_rows(rung: Rung) -> list[tuple[int, int, int, int, bool]]:
    """(size, max active clusters, SMs used, SMs idle, non-portable) of every cluster size at the kernel's footprint."""
    fit, rows = fit_of(rung), []
    for size in CLUSTER_SIZES:
        count = clusters_that_fit(rung.profile, fit, size)
        used = sms_under(rung, count, size)
        rows.append((size, count, used, rung.profile.sms - used, size > rung.profile.max_portable_cluster_size))
    return rows


def rejections(found: Sequence[Option], chosen: Any, words: str = "{}") -> list[Rejected]:
    """Every losing option with its margin, every impossible one with its clause."""
    rows = []
    for each in found:
        if each.label == chosen:
            continue
        label = words.format(show(each.label))
        if each.row is None:
            assert each.violation is not None
            rows.append(
                Rejected(
                    option=label,
                    reason=each.violation.message,
                    code=each.violation.code,
                    numbers={"candidates": each.count, **each.violation.numbers},
                )
            )
            continue
        text = f"{each.time_us:.4g} us at its best" + (", measured" if each.evidence == "measured" else "")
        if each.margin < 1.0 / TIE - 1.0:
            text += f", faster, but by less than the {MIX_GAIN - 1.0:.0%} that a mix of two cluster sizes has to win by"
        elif each.margin < 0.0:
            text += ", faster, but within the 1.5 % in which the simpler wins"
        elif each.margin <= TIE - 1.0:
            text += ", a tie, and the pick is no less simple"
        rows.append(Rejected(option=label, reason=text, margin=each.margin, numbers={"time_us": each.time_us}))
    return rows[:MAX_REJECTED]


def kernel_id(c: Candidate) -> str:
    """`{family}_{schedule}`, the cluster above one CTA, and the slices that a second kernel sums."""
    return c.kernel_id


def machine_table(workload: Workload, profile: DeviceProfile) -> dict[str, Any]:
    """The numbers of the profile that the kind uses, with the kind of evidence and the source's own words."""
    rows = []
    for name, source in sorted(profile.sources.items(), key=lambda each: (each[1].kind, each[0])):
        field, _, key = name.partition(".")
        value = getattr(profile, field, None)
        value = value.get(key) if key and isinstance(value, Mapping) else value
        if value is not None and workload.uses(name):
            rows.append([name, list(value) if isinstance(value, tuple) else value, source.kind, source.text])
    return table(["number", "value", "evidence", "source"], rows)
