"""What a caller of a GEMM bundle passes: the run-time arguments and the buffers, in the problem's own coordinates.

Kernel parameters are expressions over these names; with `swap_ab` a kernel sees A and B exchanged, the caller does not.
"""

from __future__ import annotations

from advisor.kinds.workload import Interface
from advisor.problem.base import MAX_EXTENT, TORCH_NAME
from advisor.problem.gemm import GemmProblem, Matrix
from advisor.records.launch import Argument, Buffer


def arguments(p: GemmProblem) -> list[Argument]:
    """Extents and strides in elements, alpha and beta; the default of each is the problem's own value."""
    extents = [
        Argument(name=each, type="i64", min=0, max=MAX_EXTENT, default=getattr(p, each))
        for each in ("m", "n", "k", "batch")
    ]
    strides = []
    for name, matrix in _matrices(p):
        strides.append(Argument(name=f"ld{name}", type="i64", min=1, default=matrix.ld))
        strides.append(Argument(name=f"batch_stride_{name}", type="i64", min=0, default=matrix.batch_stride))
    scalars = [
        Argument(name="alpha", type="f32", default=p.epilogue.alpha),
        Argument(name="beta", type="f32", default=p.epilogue.beta),
    ]
    return extents + strides + scalars


def buffers(p: GemmProblem) -> dict[str, Buffer]:
    """Every buffer that some kernel of the bundle reads or writes. Matrices are flat: `ld` and the batch stride say
    how they fold, so padding inside the leading dimension is part of the buffer."""
    outer = {"a": "m" if p.a.major == "k" else "k", "b": "n" if p.b.major == "k" else "k"}
    outer |= {each: "m" if matrix.major == "n" else "n" for each, matrix in (("c", p.c), ("d", p.d))}
    result = {
        name.upper(): Buffer(
            dtype=TORCH_NAME[matrix.dtype],
            shape=[f"max(batch, 1) * batch_stride_{name} - batch_stride_{name} + {outer[name]} * ld{name}"],
            role="out" if name == "d" else "in",
            align_bytes=matrix.align_bytes,
        )
        for name, matrix in _matrices(p)
    }
    if p.epilogue.bias != "none":
        extent = "n" if p.epilogue.bias == "row" else "m"
        dtype = TORCH_NAME[p.d.dtype]
        result["bias"] = Buffer(dtype=dtype, shape=[extent], role="in", align_bytes=p.d.element_bytes)
    for name in ("a", "b"):
        if getattr(p.scale, name) == "tensor":
            result[f"scale_{name}"] = Buffer(dtype="float32", shape=[1], role="in", align_bytes=4)
    return result


def _matrices(p: GemmProblem) -> list[tuple[str, Matrix]]:
    return [("a", p.a), ("b", p.b), *([("c", p.c)] if p.uses_c else []), ("d", p.d)]


def calling(p: GemmProblem) -> Interface:
    """The operands of the binding and of the test program."""
    names = [name for name in buffers(p) if len(name) == 1]
    bias, scales = p.epilogue.bias, [name for name in buffers(p) if name.startswith("scale_")]
    return Interface(
        operands=("A", "B", "D"),
        result="D",
        context={
            "majors": {name.lower(): getattr(p, name.lower()).major for name in names},
            "uses_c": "C" in names,
            "bias": None if bias == "none" else "n" if bias == "row" else "m",
            "scales": scales,
            "alpha": repr(p.epilogue.alpha),
            "beta": repr(p.epilogue.beta),
        },
    )
