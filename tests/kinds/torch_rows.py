"""What torch gives for rows, recorded so that the tests hold where torch is not installed.

`python -m tests.kinds.torch_rows` needs torch and writes tests/data/torch_rows.npz. Keys are question.op: `reference`
(float64), `special` (float32: infinities, NaN, equal rows), `error` and `worst` (the root-mean-square and the largest
error of torch's float32 result against its float64 one on the same rows; one of each for `OFFSETS`), and `extreme`, by
type of input and result (what torch's results of `extreme_rows` are: the class of each), and `affine` (the same with
`extreme_weights`).

What torch gives for finite numbers near the largest one hangs on the order in which it adds: it has NaN or infinity for
some, where float64 has a number, and the CPU has others than CUDA. The class of an element is recorded as "any" where
torch's own computation (float32 within, whatever the type) and its float64 one disagree.
"""

from __future__ import annotations

from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.row_reduce import numerics
from advisor.problem.row_reduce import RowReduceProblem

NORMS = ("layernorm", "rmsnorm")
OPS = ("softmax", "log_softmax", "layernorm", "rmsnorm", "logsumexp", "sum", "max")
FILE = Path(__file__).parents[1] / "data" / "torch_rows.npz"
EPS = 1e-5  # the problem's default


OFFSETS = (0.0, 10.0, 1e3, 1e5)  # of `normal_rows` from 0
PAIRS = [("fp32", "fp32"), ("bf16", "bf16"), ("fp16", "fp16"), ("bf16", "fp32"), ("fp16", "fp32"),
         ("fp32", "bf16"), ("fp32", "fp16")]  # fmt: skip
FINITE, HIGHEST, LOWEST, NAN, ANY = range(5)
"""Classes of an element: a number, infinity, -infinity, NaN, any of these."""


def reference_rows(op: str) -> NDArray[np.float64]:
    """[6, 500]: the kind's own normal data of a problem with padded rows."""
    p = reference_problem(op)
    x: NDArray[Any] = numerics.inputs(p, numerics.own_case(p))["X"]
    return x.reshape(6, 512)[:, :500].astype(np.float64)


def reference_problem(op: str) -> RowReduceProblem:
    values = {"kind": "row_reduce", "name": "sample", "op": op, "rows": 6, "cols": 500, "row_stride": 512}
    return RowReduceProblem.model_validate(values | {"dtype": "fp32"})


def special_rows() -> NDArray[np.float32]:
    """[7, 300]"""
    rows = np.random.default_rng(3).standard_normal((7, 300)).astype(np.float32)
    rows[0, 5] = np.inf
    rows[1, 290] = np.nan
    rows[2] = -np.inf
    rows[3, 100:] = -np.inf
    rows[4] = 0.0
    rows[5] = 1.5
    return rows


def normal_rows(offset: float = 0.0) -> NDArray[np.float32]:
    """[32, 1000]"""
    return (np.random.default_rng(5).standard_normal((32, 1000)) + offset).astype(np.float32)


def extreme_rows(dtype: str) -> dict[str, NDArray[Any]]:
    """Rows of 300, by what they hold, in the storage type: its largest and smallest numbers, infinities and NaN."""
    import ml_dtypes

    kind = numerics.storage(dtype)
    most, tiny = float(ml_dtypes.finfo(kind).max), float(ml_dtypes.finfo(kind).tiny)
    infinity, normal = np.inf, np.random.default_rng(11).standard_normal(300)

    def of(*values: float) -> NDArray[np.float64]:
        return np.array(list(islice(cycle(values), 300)))

    def with_(base: NDArray[np.float64], *values: tuple[int, float]) -> NDArray[np.float64]:
        found = base.copy()
        for at, value in values:
            found[at] = value
        return found

    first_half, every_second = np.arange(300) < 150, np.arange(300) % 2 == 0
    rows = {
        "all the largest": of(most),
        "all the lowest": of(-most),
        "all half of the lowest": of(-most / 2),
        "all a power below the largest": of(most / 2**20),
        "the largest and the lowest by turns": of(most, -most),
        "the largest, then the lowest": np.where(first_half, most, -most),
        "one largest of zeros": with_(of(0.0), (7, most)),
        "one lowest of zeros, late": with_(of(0.0), (290, -most)),
        "one lowest of the largest": with_(of(most), (0, -most)),
        "the largest beside ordinary ones": np.where(every_second, most, normal),
        "half of the lowest, then ordinary ones": np.where(first_half, -most / 2, normal),
        "ordinary ones, then the largest": np.where(first_half, normal, most),
        "squares beyond float32": normal * min(most / 8, 2.0**68),
        "subnormal": np.sign(normal) * tiny / 8,
        "the smallest normal": of(tiny),
        "equal, far from 0": of(1000.0),
        "zeros": of(0.0),
        "one infinity": with_(normal, (3, infinity)),
        "one -infinity": with_(normal, (3, -infinity)),
        "both infinities": with_(normal, (3, infinity), (200, -infinity)),
        "all infinity": of(infinity),
        "all -infinity": of(-infinity),
        "an infinity and the largest": with_(of(most), (3, infinity)),
        "a -infinity and the largest": with_(of(most), (3, -infinity)),
        "the lowest, and a -infinity late": with_(of(-most), (290, -infinity)),
        "one NaN": with_(normal, (3, np.nan)),
        "a NaN and the largest": with_(of(most), (299, np.nan)),
        "all NaN": of(np.nan),
    }
    return {name: row.astype(kind) for name, row in rows.items()}


def extreme_weights(dtype: str) -> dict[str, NDArray[Any]]:
    """Weights and biases of 300 columns, each of eight beside each of five. (Three quarters of the largest number: an
    element of about 1 times the largest itself is infinity or not by the last bit of that element.)"""
    import ml_dtypes

    kind = numerics.storage(dtype)
    most, tiny = float(ml_dtypes.finfo(kind).max), float(ml_dtypes.finfo(kind).tiny)
    values = {
        "weight": (1.0, 0.0, 0.75 * most, -0.75 * most, np.inf, -np.inf, np.nan, tiny),
        "bias": (0.0, most, -most, np.inf, 1.0),
    }
    return {name: np.array(list(islice(cycle(each), 300))).astype(kind) for name, each in values.items()}


def classes(values: NDArray[Any]) -> NDArray[np.int8]:
    """The class of each."""
    numbers = values.astype(np.float64)
    found = np.full(numbers.shape, FINITE, np.int8)
    found[numbers == np.inf], found[numbers == -np.inf], found[np.isnan(numbers)] = HIGHEST, LOWEST, NAN
    return found


@cache
def recorded() -> dict[str, NDArray[Any]]:
    with np.load(FILE) as found:
        return dict(found)


def of_torch(torch: Any) -> dict[str, NDArray[Any]]:
    """Everything that is recorded, asked of torch on the CPU."""

    def result(op: str, rows: NDArray[Any]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = answer(op, torch.from_numpy(rows)).double().numpy()
        return found

    def answer(op: str, x: Any, weight: Any = None, bias: Any = None) -> Any:
        shape, functional = x.shape[1:], torch.nn.functional
        answers = {
            "softmax": lambda: torch.softmax(x, -1),
            "log_softmax": lambda: torch.log_softmax(x, -1),
            "layernorm": lambda: functional.layer_norm(x, shape, weight, bias, eps=EPS),
            "rmsnorm": lambda: functional.rms_norm(x, shape, weight, eps=EPS),
            "logsumexp": lambda: torch.logsumexp(x, -1),
            "sum": lambda: x.sum(-1),
            "max": lambda: x.amax(-1),
        }
        return answers[op]()

    def extreme(op: str, dtype: str, out_dtype: str, affine: bool = False) -> NDArray[np.int8]:
        rows = np.stack([row.astype(np.float64) for row in extreme_rows(dtype).values()])
        out = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[out_dtype]
        given = [rows, *(each.astype(np.float64) for each in extreme_weights(dtype).values() if affine)]
        theirs, exact = (
            classes(answer(op, *(torch.from_numpy(each).to(within) for each in given)).to(out).double().numpy())
            for within in (torch.float32, torch.float64)
        )
        return np.where(theirs == exact, exact, ANY).astype(np.int8)

    answers: dict[str, NDArray[Any]] = {}
    for op in OPS:
        answers[f"reference.{op}"] = result(op, reference_rows(op))
        answers[f"special.{op}"] = result(op, special_rows()).astype(np.float32)
        errors = []
        for offset in OFFSETS:
            exact, rounded = (result(op, normal_rows(offset).astype(each)) for each in (np.float64, np.float32))
            errors.append(rounded - exact)
        answers[f"error.{op}"] = np.array([np.sqrt(np.mean(each**2)) for each in errors])
        answers[f"worst.{op}"] = np.array([np.max(np.abs(each)) for each in errors])
        for dtype, out_dtype in PAIRS:
            answers[f"extreme.{op}.{dtype}.{out_dtype}"] = extreme(op, dtype, out_dtype)
            if op in NORMS:
                answers[f"affine.{op}.{dtype}.{out_dtype}"] = extreme(op, dtype, out_dtype, affine=True)
    return answers


if __name__ == "__main__":
    import torch

    np.savez_compressed(FILE, version=np.array(torch.__version__), **of_torch(torch))
