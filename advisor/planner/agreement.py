"""How often the cost model picks what exhaustive tuning on real B200s picked. Imports `kinds`, `machine`, `problem`.

The table has one row per type and shape: `two_cta`, `tile_n`, `clc`, `swap_ab`, `split_k` of the winner (the tuner gave
ties within 1.5 % to the simpler). Candidates are narrowed to what that tuner compiled: clusters of 1 for one-CTA MMAs
and of 2 for pairs, tiles of 128 rows per CTA and the N tiles below, static persistent or CLC, D in fp32.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.errors import InputError
from advisor.kinds.gemm import cost, space
from advisor.machine.profile import DeviceProfile
from advisor.problem.base import MAX_EXTENT
from advisor.problem.gemm import GemmProblem

TYPES = {"bf16": "bf16", "f16": "fp16", "tf32": "tf32", "e4m3": "e4m3", "e5m2": "e5m2"}
# The N tiles of unswapped kernels that the tuner's package compiles, by CTAs per MMA and type: the list of policies in
# opengemm 0.1.4, src/mm/registry.cuh. Not the rows of its tables.
N_TILES: dict[int, dict[str, tuple[int, ...]]] = {1: {"bf16": (128, 256)}, 2: {"bf16": (64, 128, 192, 256)}}
OTHER_N_TILES = (128, 256)
TIE = 1.015
SMALL_M = 64  # at and below, the table's N tile is close to arbitrary
COLUMNS = ("dtype", "m", "n", "k", "two_cta", "tile_n", "swap_ab")


@dataclass(frozen=True, slots=True)
class Row:
    """One tuned winner and the model's pick."""

    dtype: str
    m: int
    n: int
    k: int
    tuned: tuple[int, int]  # (CTAs per MMA, N tile)
    picked: tuple[int, int]
    counts_n: bool  # M above 64 and no swap: the N tile is compared


@dataclass(frozen=True, slots=True)
class Agreement:
    """Shares of one type, 0 to 1."""

    dtype: str
    rows: int
    pair: float
    n_rows: int
    n_tile: float
    n_near: float  # the N tile within a factor of two
    differing: tuple[Row, ...]


def agreement(text: str, profile: DeviceProfile, dtypes: Sequence[str] = ()) -> list[Agreement]:
    """Agreement per type, then of all of them (`all`). `text` is the table as CSV; rows of types that a problem file
    does not have are left out.

    Raises InputError where a column is missing or a row holds no valid number.
    """
    rows = [compare(each, profile) for each in read(text) if not dtypes or each["dtype"] in dtypes]
    names = list(dict.fromkeys(row.dtype for row in rows))
    return [_share(name, [row for row in rows if name in (row.dtype, "all")]) for name in [*names, "all"] if rows]


RANGES = {
    "m": (1, MAX_EXTENT),
    "n": (1, MAX_EXTENT),
    "k": (1, MAX_EXTENT),
    "two_cta": (0, 1),
    "tile_n": (8, 256),
    "swap_ab": (0, 1),
}  # what a row may hold


def read(text: str) -> list[dict[str, str]]:
    """Rows of the table whose type the problem file knows."""
    reader = csv.DictReader(text.splitlines())
    try:
        numbered = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise _bad_value(reader.line_num, str(error)) from error
    rows = [row for _, row in numbered]
    missing = [name for name in COLUMNS if not rows or name not in rows[0]]
    if missing:
        raise InputError(
            "AGREEMENT_COLUMNS", f"the table has no column {', '.join(missing)}", fix=f"columns: {', '.join(COLUMNS)}"
        )
    known = [(line, row) for line, row in numbered if row["dtype"] in TYPES]
    for line, row in known:
        for name, (low, high) in RANGES.items():
            value = row[name] or ""
            if not (value.isascii() and value.isdigit() and len(value) <= 10 and low <= int(value) <= high):
                raise _bad_value(line, f"{name} is {value[:40]!r}, not a whole number from {low} to {high}")
    return [row for _, row in known]


def _bad_value(line: int, message: str) -> InputError:
    return InputError(
        "AGREEMENT_VALUE",
        f"line {line} of the table: {message}",
        fix="correct the row, or leave it out",
        numbers={"line": line},
    )


def compare(row: dict[str, str], profile: DeviceProfile) -> Row:
    """The model's pick for one row of the table, within the tuner's space and under its tie rule."""
    m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
    p = GemmProblem.model_validate(
        {"kind": "gemm", "m": m, "n": n, "k": k, "dtype": TYPES[row["dtype"]], "d": {"dtype": "fp32"}}
    )
    table = space.table(p, "sm100", profile)
    costs = cost.evaluate(p, table, restrict=tuner_space(table, row["dtype"]))
    best = float(costs.time_us.min())
    near = np.flatnonzero(costs.time_us <= best * TIE)
    pick = int(near[np.lexsort((costs.time_us[near], table.mma_ctas[near]))[0]])
    swapped = row["swap_ab"] == "1"
    return Row(
        dtype=row["dtype"],
        m=m,
        n=n,
        k=k,
        tuned=(2 if row["two_cta"] == "1" else 1, int(row["tile_n"])),
        picked=(int(table.mma_ctas[pick]), int(table.tile_n[pick])),
        counts_n=m > SMALL_M and not swapped,
    )


def tuner_space(t: space.Table, dtype: str) -> space.Bools:
    """The rows of a table that the tuner had compiled."""
    tiles = np.zeros(t.rows, dtype=np.bool_)
    for ctas, by_type in N_TILES.items():
        tiles |= (t.mma_ctas == ctas) & np.isin(t.tile_n, by_type.get(dtype, OTHER_N_TILES))
    own_cluster = (t.cluster_x == t.mma_ctas) & (t.cluster_y == 1) & (t.cluster_z == 1)
    own_cluster &= ~t.mixed
    narrow = tiles & own_cluster & (t.tile_m == 128) & (t.split == 1) & ~t.swap & (t.schedule != cost.ONE_TILE)
    return np.asarray(narrow)


def _share(name: str, rows: Iterable[Row]) -> Agreement:
    rows = list(rows)
    counted = [row for row in rows if row.counts_n]
    pair = sum(row.tuned[0] == row.picked[0] for row in rows)
    n_tile = sum(row.tuned[1] == row.picked[1] for row in counted)
    near = sum(row.tuned[1] <= 2 * row.picked[1] and row.picked[1] <= 2 * row.tuned[1] for row in counted)
    differing = tuple(
        row for row in rows if row.tuned[0] != row.picked[0] or (row.counts_n and row.tuned[1] != row.picked[1])
    )
    of_rows, of_counted = max(1, len(rows)), max(1, len(counted))
    return Agreement(name, len(rows), pair / of_rows, len(counted), n_tile / of_counted, near / of_counted, differing)
