"""What torch gives for rows, recorded so that the tests hold where torch is not installed.

`python -m tests.kinds.torch_rows` needs torch and writes tests/data/torch_rows.npz. Keys are question.op: `reference`
(float64), `special` (float32: infinities, NaN, equal rows), `error` (the root-mean-square error of torch's float32
result against its float64 one on the same rows).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.kinds.row_reduce import numerics
from advisor.problem.row_reduce import RowReduceProblem

OPS = ("softmax", "log_softmax", "layernorm", "rmsnorm", "logsumexp", "sum", "max")
FILE = Path(__file__).parents[1] / "data" / "torch_rows.npz"
EPS = 1e-5  # the problem's default


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


def normal_rows() -> NDArray[np.float32]:
    """[32, 1000]"""
    return np.random.default_rng(5).standard_normal((32, 1000)).astype(np.float32)


@cache
def recorded() -> dict[str, NDArray[Any]]:
    with np.load(FILE) as found:
        return dict(found)


def of_torch(torch: Any) -> dict[str, NDArray[Any]]:
    """Everything that is recorded, asked of torch on the CPU."""

    def result(op: str, rows: NDArray[Any]) -> NDArray[np.float64]:
        x, shape, functional = torch.from_numpy(rows), rows.shape[1:], torch.nn.functional
        answers = {
            "softmax": lambda: torch.softmax(x, -1),
            "log_softmax": lambda: torch.log_softmax(x, -1),
            "layernorm": lambda: functional.layer_norm(x, shape, eps=EPS),
            "rmsnorm": lambda: functional.rms_norm(x, shape, eps=EPS),
            "logsumexp": lambda: torch.logsumexp(x, -1),
            "sum": lambda: x.sum(-1),
            "max": lambda: x.amax(-1),
        }
        found: NDArray[np.float64] = answers[op]().double().numpy()
        return found

    answers: dict[str, NDArray[Any]] = {}
    for op in OPS:
        answers[f"reference.{op}"] = result(op, reference_rows(op))
        answers[f"special.{op}"] = result(op, special_rows()).astype(np.float32)
        exact, rounded = (result(op, normal_rows().astype(each)) for each in (np.float64, np.float32))
        answers[f"error.{op}"] = np.sqrt(np.mean((rounded - exact) ** 2))
    return answers


if __name__ == "__main__":
    import torch

    np.savez_compressed(FILE, version=np.array(torch.__version__), **of_torch(torch))
