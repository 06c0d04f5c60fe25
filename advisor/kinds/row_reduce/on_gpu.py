"""A reduction's buffers made by torch on a GPU, and torch's same work: what a comparison needs beside a kernel.

Imports `numerics`, `storage`, `problem` and `records`; torch is passed in, or is there because the caller's tensors are
its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from advisor.kinds.row_reduce.numerics import extents
from advisor.kinds.storage import poisoned_on
from advisor.problem.base import TORCH_NAME
from advisor.problem.row_reduce import RowReduceProblem
from advisor.records.case import Case

Library = tuple[str, Callable[[], None]]
_WORDS = {2: "int16", 4: "int32"}


def least_bytes(p: RowReduceProblem, case: Case) -> int:
    """Bytes that any kernel moves: every element read once, every result written once."""
    rows, cols, _, _ = extents(case)
    affine = cols * p.in_bytes * (int(p.weight) + int(p.bias))
    return rows * cols * p.in_bytes + rows * (cols if p.elementwise else 1) * p.out_bytes + affine


def inputs(p: RowReduceProblem, case: Case, torch: Any, device: str) -> dict[str, Any]:
    """`numerics.inputs` as flat tensors on `device`: normals with the case's seed, poison in padding and in Y."""
    rows, cols, row_stride, out_stride = extents(case)
    source = torch.Generator(device=device)
    source.manual_seed(case.seed)

    x = poisoned_on(device, TORCH_NAME[p.dtype], rows * row_stride, torch, output=False)
    y = poisoned_on(device, TORCH_NAME[p.out_dtype], rows * out_stride, torch, output=True)
    made = {"X": x, "Y": y}
    view = x.view(rows, row_stride)[:, :cols]
    step = max(1, 2**26 // max(1, cols))
    for first in range(0, rows, step):
        part = view[first : first + step]
        part.copy_(torch.randn(part.shape, generator=source, device=device, dtype=torch.float32))
    for name in ("weight", "bias"):
        if getattr(p, name):
            made[name] = torch.randn(cols, generator=source, device=device, dtype=torch.float32).to(x.dtype)
    return made


def operation(p: RowReduceProblem, case: Case, tensors: Mapping[str, Any]) -> Library | None:
    """(what it is, a call) of torch's own operation on the same rows; its result is a tensor of its own."""
    torch = sys.modules["torch"]
    rows, cols, row_stride, _ = extents(case)
    x = tensors["X"].view(rows, row_stride)[:, :cols]
    weight, bias, eps = tensors.get("weight"), tensors.get("bias"), float(case.arguments["eps"])
    out = getattr(torch, TORCH_NAME[p.out_dtype])
    functional = torch.nn.functional
    as_out = None if x.dtype == out else out
    calls: dict[str, Callable[[], Any]] = {
        "softmax": lambda: torch.softmax(x, -1, dtype=as_out),
        "log_softmax": lambda: torch.log_softmax(x, -1, dtype=as_out),
        "logsumexp": lambda: torch.logsumexp(x, -1),
        "sum": lambda: torch.sum(x, -1, dtype=as_out),
        "max": lambda: torch.amax(x, -1),
        "layernorm": lambda: functional.layer_norm(x, (cols,), weight, bias, eps),
        "rmsnorm": lambda: functional.rms_norm(x, (cols,), weight, eps),
    }
    if cols == 0 or (p.op == "rmsnorm" and bias is not None):
        return None
    return f"torch {str(torch.__version__).split('+')[0]} {p.op}", calls[p.op]
