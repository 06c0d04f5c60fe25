"""What only row reductions understand of a candidate, and that part as data. Imports `records`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from advisor.records.candidate import Candidate, Schedule, Unit, Work
from advisor.records.work import WorkRecord

REGISTERS_PER_SM = 65_536
LOOP_REGISTERS = {"static": 64, "clc": 96}  # of a thread, that a loop over rows takes without spilling
ROWS = Unit("row", "rows", "row", "rows", "slots")
ROWS_SIDE_BY_SIDE = Unit("group of rows", "groups of rows", "group of rows", "groups of rows", "slots")
CLAIM_THREADS = 512  # of a CTA at most that streams claimed rows: more have 64 registers each
MORE_REGISTERS = 16  # of a thread, that the loop takes beside what one row does
STREAM_SLOTS = 8  # vectors of a thread in flight where a row is streamed


@dataclass(frozen=True, slots=True)
class RowWork(Work):
    """The part of a candidate that only row reductions understand. A candidate's `tile` is (rows of a CTA side by side,
    columns of one CTA's run, elements of a vector), its `stages` the slots of a thread."""

    row_threads: int = 256  # of one CTA that share a row
    vectors: int = 0  # of 16 bytes that a thread keeps of a row; 0: the row is streamed
    batch: int = 1  # vectors of a thread that are computed at a time
    ctas_per_sm: int = 1  # that an SM's registers must hold: what caps the registers of a thread
    held: int = 0  # vectors of a thread that stay in registers: weights and biases, or else exponentials
    weight_slots: int = 0  # further vectors of a thread whose weights and biases stay in shared memory
    early: int = 0  # vectors of the next row that a thread reads while partials of this one are exchanged
    prefetch: int = 0  # asked into the L2 ahead: items of work by a CTA that runs one, else vectors beyond the slots

    def kept_columns(self, c: Candidate) -> int:
        """Columns that a cluster keeps on chip; 0 where it streams."""
        return self.vectors * self.row_threads * c.cluster_size * c.tile[2]

    def conditions(self, c: Candidate) -> list[str]:
        return [f"a row has at most {self.kept_columns(c)} columns"] if self.vectors else []

    def suffix(self, c: Candidate) -> str:
        return "" if self.vectors else "_streamed"

    def on_cluster(self, c: Candidate, x: int, y: int, z: int) -> Candidate:
        """A smaller cluster may not hold the row, so it streams it: rows of any length pass through."""
        threads = min(c.threads, CLAIM_THREADS) if c.schedule == "clc" else c.threads
        share = REGISTERS_PER_SM // (threads * LOOP_REGISTERS.get(c.schedule, LOOP_REGISTERS["static"]))
        work = RowWork(row_threads=threads, vectors=0, batch=min(self.batch, 2), ctas_per_sm=max(1, share))
        tile = (1, *c.tile[1:])
        return replace(c, cluster=(x, y, z), threads=threads, work=work, stages=STREAM_SLOTS, tile=tile)

    def on_schedule(self, c: Candidate, schedule: Schedule) -> Candidate:
        """A loop over rows takes more registers than one row, and a claim more again: fewer CTAs share an SM."""
        work = self
        if schedule != c.schedule and schedule in LOOP_REGISTERS:
            registers = LOOP_REGISTERS[schedule]
            if c.schedule == "one_tile":  # results of 24 bits take more than 64 already
                registers = max(registers, REGISTERS_PER_SM // (c.threads * self.ctas_per_sm) + MORE_REGISTERS)
            share = REGISTERS_PER_SM // (c.threads * registers)
            work = replace(self, ctas_per_sm=max(1, min(self.ctas_per_sm, share)))
        if "one_tile" in (schedule, c.schedule) and schedule != c.schedule:
            held = 0 if c.threads * LOOP_REGISTERS["static"] >= REGISTERS_PER_SM else self.held  # none are to spare
            work = replace(work, early=0, prefetch=0, held=held)  # both of these are of one form or the other
        return replace(c, schedule=schedule, work=work)

    def cluster_tile(self, c: Candidate) -> tuple[int, int]:
        """(rows, columns) of one cluster: all of its CTAs share a row."""
        return c.tile[0], c.tile[1] * c.cluster_size

    def unit(self, c: Candidate) -> Unit:
        return ROWS if c.tile[0] == 1 else ROWS_SIDE_BY_SIDE

    def part(self, c: Candidate) -> str:
        rows, columns, _ = c.tile
        if c.cluster_size > 1:
            return f"{columns} columns of a row"
        return f"{rows} row{'s' * (rows > 1)} of {columns} columns"

    def order_of_sums(self, c: Candidate) -> tuple[Any, ...]:
        return (c.family, c.tile, self.row_threads, self.vectors, self.batch, self.held, c.cluster)


class RowWorkRecord(WorkRecord):
    """The choice as row reductions see it."""

    row_threads: int  # of one CTA that share a row
    vectors: int  # of 16 bytes that a thread keeps of a row; 0: the row is streamed
    batch: int
    ctas_per_sm: int
    held: int = 0  # vectors of a thread that stay in registers: weights and biases, or else exponentials
    weight_slots: int = 0  # further vectors of a thread whose weights and biases stay in shared memory
    early: int = 0  # vectors of the next row that a thread reads while partials of this one are exchanged
    prefetch: int = 0  # asked into the L2 ahead: items of work by a CTA that runs one, else vectors beyond the slots

    @classmethod
    def of(cls, work: RowWork) -> RowWorkRecord:
        return cls(**asdict(work))

    def work(self) -> RowWork:
        return RowWork(**self.model_dump())

    @property
    def extents(self) -> str:
        """What the three numbers of a tile are."""
        return "rows x columns x elements of a vector"

    def words(self) -> list[str]:
        """What is particular about the choice, for a report."""
        vectors = f"{self.vectors} vector{'s' * (self.vectors > 1)}"
        kept = f"{vectors} a thread kept on chip" if self.vectors else "the row streamed"
        early = f"{self.early} of the next row read while partials are exchanged" if self.early else ""
        ahead = "what follows asked into the L2" if self.prefetch else ""
        return [f"{self.row_threads} threads of a CTA to a row", kept, *filter(None, (early, ahead))]

    def label(self, c: Candidate) -> list[str]:
        return [f"{c.threads} threads", *([] if self.vectors else ["streamed"])]

    @classmethod
    def earlier(cls, data: Mapping[str, Any]) -> RowWorkRecord:
        return cls.model_validate(data["row"])
