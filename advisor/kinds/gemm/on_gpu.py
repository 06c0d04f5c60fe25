"""A GEMM's buffers made by torch on a GPU, and the vendor library's same work: what a comparison needs beside a kernel.

Imports `numerics`, `storage`, `problem` and `records`; torch is passed in, or is there because the caller's tensors are
its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from advisor.kinds.gemm.numerics import matrices, storage_elements, view_of
from advisor.kinds.storage import poisoned_on
from advisor.problem.base import TORCH_NAME
from advisor.problem.gemm import GemmProblem, Matrix
from advisor.records.case import Case

Library = tuple[str, Callable[[], None]]
_SCALES = {"a": 0.75, "b": 1.25}


def flops(case: Case) -> int:
    """Floating-point operations of a case: a multiplication and an addition for each product."""
    m, n, k, batch = (int(case.arguments[each]) for each in ("m", "n", "k", "batch"))
    return 2 * m * n * k * batch


def least_bytes(p: GemmProblem, case: Case) -> int:
    """Bytes that any kernel moves: every input element read once, every output element written once."""
    m, n, k, batch = (int(case.arguments[each]) for each in ("m", "n", "k", "batch"))
    elements = {"a": m * k, "b": n * k, "c": m * n, "d": m * n}
    total = sum(elements[name] * matrix.element_bytes for name, matrix in matrices(p).items()) * batch
    bias = {"none": 0, "row": n, "col": m}[p.epilogue.bias]
    return total + bias * p.d.element_bytes


def inputs(p: GemmProblem, case: Case, torch: Any, device: str) -> dict[str, Any]:
    """`numerics.inputs` as flat tensors on `device`: normals with the case's seed, poison in padding and in D.

    The values differ from NumPy's, their kind does not. For normal data only.
    """
    values = case.arguments
    m, n, k, batch = (int(values[each]) for each in ("m", "n", "k", "batch"))
    source = torch.Generator(device=device)
    source.manual_seed(case.seed)
    made: dict[str, Any] = {}
    for name, matrix in matrices(p).items():
        elements = storage_elements(p, case, name)
        flat = poisoned_on(device, TORCH_NAME[matrix.dtype], elements, torch, output=name == "d")
        made[name.upper()] = flat
        if name == "d" or 0 in (m, n, batch) or (k == 0 and name in "ab"):
            continue
        view = view_of(flat, name, matrix, values)
        for index in range(batch if values[f"batch_stride_{name}"] else 1):
            _draw(view[index], matrix, source, torch)
    if p.epilogue.bias != "none":
        extent = n if p.epilogue.bias == "row" else m
        made["bias"] = torch.empty(extent, dtype=getattr(torch, TORCH_NAME[p.d.dtype]), device=device)
        _draw(made["bias"][None, :], p.d, source, torch)
    for name, value in _SCALES.items():
        if getattr(p.scale, name) == "tensor":
            made[f"scale_{name}"] = torch.full((1,), value, dtype=torch.float32, device=device)
    return made


def _draw(view: Any, matrix: Matrix, source: Any, torch: Any) -> None:
    """Random normals rounded to the storage type, a block of rows at a time."""
    rows = max(1, 2**26 // max(1, view.shape[1]))
    for first in range(0, view.shape[0], rows):
        part = view[first : first + rows]
        drawn = torch.randn(part.shape, generator=source, device=view.device, dtype=torch.float32)
        if matrix.dtype == "tf32":  # to nearest even, the low 13 bits zero
            bits = drawn.view(torch.int32)
            drawn = (bits + 0xFFF + (bits >> 13 & 1) & ~0x1FFF).view(torch.float32)
        part.copy_(drawn)


# ---- the library ---------------------------------------------------------------------------------------------------


def product(p: GemmProblem, case: Case, tensors: Mapping[str, Any]) -> Library | None:
    """(what it is, a call) of the vendor library's product of the same operands, through torch.

    `tensors` are the flat buffers on the GPU. The product alone: no C, bias or activation. None where torch has no
    such product (fp8 with other than K-major e4m3 operands, or a batch of them).
    """
    found = _multiplication(p, case, tensors)
    if found is None:
        return None
    label, multiply = found

    def call() -> None:
        multiply()

    return label + ("" if _is_plain(p) else ", without the epilogue"), call


def whole(p: GemmProblem, case: Case, tensors: Mapping[str, Any]) -> Library | None:
    """The library's way to all of the problem: the product, alpha and a bias along rows in its own epilogue where it
    has one, then one pointwise kernel for what is left (C, or the activation). None as for `product`, and for what
    would take more than one pointwise kernel: nobody would write it so."""
    if _is_plain(p):
        return product(p, case, tensors)
    torch = sys.modules["torch"]
    if p.is_fp8 or p.d.major != "n" or p.a.dtype == "tf32" or p.epilogue.bias == "col":
        return None
    a, b, d = (_matrix(p, case, tensors, name) for name in ("a", "b", "d"))
    has_bias, activation = p.epilogue.bias == "row", p.epilogue.activation
    if a.dim() != 2 or (p.uses_c and (has_bias or activation != "none")):
        return None
    alpha, beta = float(case.arguments["alpha"]), float(case.arguments["beta"])
    pointwise = {
        "none": None,
        "relu": lambda x: torch.relu(x),
        "gelu": lambda x: torch.nn.functional.gelu(x),
        "silu": lambda x: torch.nn.functional.silu(x),
    }[activation]
    version = str(torch.__version__).split("+")[0]
    scratch = torch.empty_like(d) if d.is_contiguous() else torch.empty(d.shape, dtype=d.dtype, device=d.device)
    if p.uses_c:
        c = _matrix(p, case, tensors, "c")

        def with_c() -> None:
            torch.addmm(scratch, a, b, beta=0.0, alpha=alpha, out=scratch)
            torch.add(scratch, c, alpha=beta, out=d)

        return f"cuBLAS through torch {version} addmm, then one add", with_c
    bias = tensors["bias"] if has_bias else scratch

    def with_activation() -> None:
        torch.addmm(bias, a, b, beta=1.0 if has_bias else 0.0, alpha=alpha, out=scratch)
        if pointwise is not None:
            pointwise(scratch)

    words = f"addmm{' with the bias' if has_bias else ''}" + (f", then {activation}" if pointwise else "")
    return f"cuBLAS through torch {version} {words}", with_activation


def _is_plain(p: GemmProblem) -> bool:
    e = p.epilogue
    return not p.uses_c and e.bias == e.activation == "none" and e.alpha == 1.0


def _matrix(p: GemmProblem, case: Case, tensors: Mapping[str, Any], name: str) -> Any:
    view = view_of(tensors[name.upper()], name, getattr(p, name), case.arguments)
    return view[0] if view.shape[0] == 1 else view


def _multiplication(p: GemmProblem, case: Case, tensors: Mapping[str, Any]) -> tuple[str, Callable[[], Any]] | None:
    torch = sys.modules["torch"]
    a, b, d = (_matrix(p, case, tensors, name) for name in ("a", "b", "d"))
    version = str(torch.__version__).split("+")[0]
    if p.is_fp8:
        k_major = p.a.major == p.b.major == "k" and p.a.dtype == p.b.dtype == "e4m3"
        if not k_major or a.dim() != 2 or any(int(case.arguments[each]) % 16 for each in "mnk"):
            return None
        scales = [
            tensors[f"scale_{name}"].reshape(())
            if f"scale_{name}" in tensors
            else torch.ones((), dtype=torch.float32, device=a.device)
            for name in ("a", "b")
        ]
        fast = p.accumulate == "fast"
        kind = getattr(torch, TORCH_NAME[p.d.dtype])

        def scaled() -> Any:
            return torch._scaled_mm(a, b, scales[0], scales[1], out_dtype=kind, use_fast_accum=fast)

        mode = "fast" if fast else "precise"
        return f"cuBLASLt through torch {version} _scaled_mm, {mode} sums", scaled
    if p.a.dtype == "tf32":
        torch.set_float32_matmul_precision("high")  # tf32 on the tensor cores
    if d.dtype == a.dtype and p.d.major == "n":
        return f"cuBLAS through torch {version} matmul", lambda: torch.matmul(a, b, out=d)
    return f"cuBLAS through torch {version} matmul", lambda: torch.matmul(a, b)
