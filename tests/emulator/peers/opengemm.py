"""GEMM kernels that the PyPI package opengemm emits for sm_100a, made when a test asks for them and never stored.

The package (MIT) writes CUDA without a GPU, but asks nvcc and a host compiler for the values of its own constants. Here
NVRTC does that: a module with the constants in an array, whose PTX has their values. PyTorch is not needed either.
`emitted` gives the PTX of a kernel, `launch` its launch as the package's host function makes it, `data` operands and
their product.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.formats import FORMATS, encode
from advisor.records.launch import (
    BufferInit,
    ElementMapParam,
    LaunchAttributes,
    PtrParam,
    ResolvedLaunch,
    ResolvedParam,
    ScalarParam,
    TensorMapParam,
    TorchType,
)
from advisor.toolchain import Unit, compile_cuda

Array = NDArray[Any]
TARGET = "sm_100a"
SMS = 148  # of a B200: how many CTAs a static schedule launches at most
ELEMENT_TYPES = [
    "UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT32_FTZ",
    "TFLOAT32", "TFLOAT32_FTZ", "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B",
]  # fmt: skip
# What the emitted headers use of the CUDA headers that NVRTC does not have.
SHIM = """#pragma once
#define __builtin_memcpy memcpy
typedef signed char int8_t; typedef unsigned char uint8_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t; typedef long long int64_t; typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };
enum CUtensorMapDataType { TYPES };
namespace std {
template <bool Yes, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
}
""".replace("TYPES", ", ".join(f"CU_TENSOR_MAP_DATA_TYPE_{name}" for name in ELEMENT_TYPES))


@dataclass(frozen=True, slots=True)
class Emitted:
    """A kernel as PTX, the constants that it was made with, and its problem."""

    name: str
    dtype: str
    shape: tuple[int, int, int]
    config: dict[str, int]
    geometry: dict[str, int]
    ptx: str

    @property
    def scaled(self) -> bool:
        return self.dtype in ("nvfp4", "mxfp8", "mxfp4")


def _compile(name: str, source: str, headers: dict[str, str]) -> str:
    unit = Unit(name, source, {"cudaTypedefs.h": SHIM, **headers}, TARGET, {}, ("-default-device",))
    return compile_cuda(unit).ptx


def probed(header: str, declarations: str, names: list[str]) -> dict[str, int]:
    """The values of constant expressions, by the last part of their name: what the package asks nvcc for."""
    values = ", ".join(f"(long long)({name})" for name in names)
    source = f'#include "geom.cuh"\n{declarations}\nextern "C" {{ __device__ long long probed[] = {{{values}}}; }}\n'
    ptx = _compile("probe.cu", source, {"geom.cuh": header})
    found = re.search(r"\.b8 probed\[\d+\](?: = \{([^}]*)\})?;", ptx)
    assert found is not None, "the probe left no array"
    content = bytes(int(each) for each in (found[1] or "0").split(",")).ljust(8 * len(names), b"\0")
    numbers = np.frombuffer(content, np.int64).tolist()
    return {name.rsplit("::", 1)[-1]: value for name, value in zip(names, numbers, strict=True)}


class _Names(ModuleType):
    """Stands for PyTorch: the package takes the names of its types when it is imported, and emission nothing else."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {})
        setattr(self, name, value)
        return value


@lru_cache(maxsize=1)
def package() -> Any:
    """The package's emitter and its table of formats, imported without PyTorch."""
    kept = sys.modules.get("torch")
    sys.modules["torch"] = _Names("torch")
    try:
        emitter = import_module("opengemm.python.emit")
    finally:
        del sys.modules["torch"]
        if kept is not None:
            sys.modules["torch"] = kept
    return emitter


@lru_cache(maxsize=64)
def _emit(dtype: str, m: int, n: int, k: int, config: tuple[tuple[str, int], ...]) -> tuple[str, dict[str, int]]:
    emitter = package()
    geometry: dict[str, int] = {}

    def probe(header: str, declarations: str, names: list[str], _: Path) -> dict[str, int]:
        values = probed(header, declarations, names)
        if not declarations:
            geometry.update(values)
        return values

    original = emitter.run_probe
    emitter.run_probe = probe
    try:
        _, header = emitter.emit(dtype, m, n, k, dict(config), "kernel")
    finally:
        emitter.run_probe = original
    return header, geometry


def emitted(dtype: str, m: int, n: int, k: int, **changes: int) -> Emitted:
    """The kernel for a problem with the package's plainest configuration, changed as asked."""
    impl = package().DTYPES[dtype].impl
    config = {**(_SCALED if impl == "smm" else _DENSE), **changes}
    if config["use_2cta"] and "cluster_m" not in changes:
        config["cluster_m"] = 2
    header, geometry = _emit(dtype, m, n, k, tuple(sorted(config.items())))
    ptx = _compile("kernel.cu", '#include "kernel.cuh"\n', {"kernel.cuh": header})
    entry = re.search(r"\.entry (\w+)", ptx)
    assert entry is not None, "the kernel is not in its PTX"
    return Emitted(entry[1], dtype, (m, n, k), config, geometry, ptx)


_DENSE = {
    "use_2cta": 0, "output_n": 128, "use_clc": 0, "supergroup": 1, "swap_ab": 0, "epi_direct": 0, "epi_hold": 1,
    "cluster_n": 1, "stages": 0, "epi_double": 0, "split_k": 1, "l2_promo": 0, "block_m": 128, "cluster_m": 1,
    "cluster_k": 1, "walk": 0,
}  # fmt: skip
_SCALED = {
    "use_2cta": 0, "output_n": 128, "use_clc": 0, "supergroup": 1, "swap_ab": 0, "cluster_n": 1, "cluster_m": 1,
    "cluster_k": 1, "deep_stages": 0, "epi_trade": 0, "persistent": 1, "epi_direct": 0,
}  # fmt: skip


# --- the launch, as the package's host function makes it --------------------------------------------------------------


def launch(kernel: Emitted, resident_ctas: int = SMS) -> ResolvedLaunch:
    """The launch of an emitted kernel. A static schedule launches no more CTAs than `resident_ctas`."""
    g, (m, n, k) = kernel.geometry, kernel.shape
    rows, columns = (n, m) if g["swap_ab"] else (m, n)
    buffers = {"A": _bytes(m * k * _bits(kernel, 0) // 8), "B": _bytes(n * k * _bits(kernel, 1) // 8)}
    first, second = ("B", "A") if g["swap_ab"] else ("A", "B")
    params: list[ResolvedParam] = [
        _operand(kernel, "a_tmap", first, rows, g["block_m"]),
        _operand(kernel, "b_tmap", second, columns, g["block_n"]),
        _result(kernel),
    ]
    if kernel.scaled:
        buffers |= {f"SF{name}": _bytes(_scale_bytes(kernel, each)) for name, each in (("A", m), ("B", n))}
        b_blocks = g["sf_n_blocks"] if g["cta_group"] == 1 else 1
        params += [_scales(kernel, "sfa_tmap", f"SF{first}", rows, 1)]
        params += [_scales(kernel, "sfb_tmap", f"SF{second}", columns, b_blocks)]
    buffers["C"] = BufferInit(dtype=_result_type(kernel), shape=[m, n], init="zeros" if _adds(kernel) else "poison")
    params.append(PtrParam(name="c", buffer="C"))
    params += [ScalarParam(kind="i32", name=name, value=each) for name, each in (("m", rows), ("n", columns), ("k", k))]
    x, y, z = g["cluster_x"] if kernel.scaled else g["cluster_m"], g["rn"], g["rk"]
    clusters = _logical_clusters(kernel, rows, columns)
    if not g["use_clc"] and kernel.config.get("persistent", 1):
        clusters = min(clusters, max(1, resident_ctas // (x * y * z)))
    return ResolvedLaunch(
        entry=kernel.name,
        target=TARGET,
        grid_blocks=(clusters * x, y, z),
        block=(g["threads"], 1, 1),
        cluster=(x, y, z),
        dynamic_smem_bytes=g["smem_bytes"],
        attributes=LaunchAttributes(programmatic_stream_serialization=True),
        params=params,
        buffers=buffers,
    )


def _bytes(count: int) -> BufferInit:
    return BufferInit(dtype="uint8", shape=[count], init="poison")


def _adds(kernel: Emitted) -> bool:
    return not kernel.scaled and bool(kernel.geometry["acc_store"])


def _result_type(kernel: Emitted) -> TorchType:
    if kernel.scaled:
        return "bfloat16"
    return "int32" if kernel.dtype in ("s8", "u8") else "float32"


def _logical_clusters(kernel: Emitted, rows: int, columns: int) -> int:
    g = kernel.geometry
    tiles = math.ceil(rows / g["mma_m" if kernel.scaled else "tile_m"]), math.ceil(columns / g["mma_n"])
    splits = 1 if kernel.scaled else min(kernel.config["split_k"], math.ceil(kernel.shape[2] / 128))
    return math.ceil(tiles[0] / g["rm"]) * math.ceil(tiles[1] / g["rn"]) * splits


def _operand(kernel: Emitted, name: str, buffer: str, rows: int, box_rows: int) -> ResolvedParam:
    g, k = kernel.geometry, kernel.shape[2]
    side = 0 if buffer == "A" else 1
    if kernel.scaled:
        element = "16U4_ALIGN8B" if g["elem_bits"] == 4 else "UINT8"
    else:
        element = ELEMENT_TYPES[g["tmap_a" if name == "a_tmap" else "tmap_b"]]
    dims = {
        "name": name,
        "buffer": buffer,
        "rank": 2,
        "global_dim": [k, rows],
        "global_stride_bytes": [k * _bits(kernel, side) // 8],
        "box_dim": [g["block_k"], box_rows],
        "element_strides": [1, 1],
        "swizzle": "128B",
        "l2_promotion": "none",
    }
    if (torch_type := _TORCH.get(element)) is not None:
        return TensorMapParam(dtype=torch_type, **dims)
    return ElementMapParam(dtype=element, **dims)


_TORCH: dict[str, TorchType] = {"BFLOAT16": "bfloat16", "FLOAT16": "float16", "UINT8": "uint8"}


def _result(kernel: Emitted) -> TensorMapParam:
    g, (m, n, _) = kernel.geometry, kernel.shape
    dtype = _result_type(kernel)
    size = {"bfloat16": 2, "float32": 4, "int32": 4}[dtype]
    columns = -(-n * size // 16) * 16 // size
    tall, wide = g["block_m"], g["store_n"] if g["vec_stage"] else g["c_tma_n"]
    if g["swap_ab"]:
        tall, wide = g["c_tma_n"], g["block_m"]
    return TensorMapParam(
        name="c_tmap",
        buffer="C",
        dtype=dtype,
        rank=2,
        global_dim=[columns, m],
        global_stride_bytes=[columns * size],
        box_dim=[wide, tall],
        element_strides=[1, 1],
        swizzle="128B" if g["vec_stage"] else "none",
        l2_promotion="none",
    )


def _scales(kernel: Emitted, name: str, buffer: str, rows: int, blocks: int) -> TensorMapParam:
    """Scale factors lie in blocks of 128 rows by 4 columns, 512 bytes each."""
    g, k = kernel.geometry, kernel.shape[2]
    group = 4 * g["sf_block"]
    groups = -(-k // group)
    return TensorMapParam(
        name=name,
        buffer=buffer,
        dtype="uint8",
        rank=3,
        global_dim=[256, 2 * groups, -(-rows // 128)],
        global_stride_bytes=[256, groups * 512],
        box_dim=[256, 2 * (g["block_k"] // group), blocks],
        element_strides=[1, 1, 1],
        swizzle="none",
        l2_promotion="none",
    )


def _scale_bytes(kernel: Emitted, rows: int) -> int:
    return -(-rows // 128) * -(-kernel.shape[2] // (4 * kernel.geometry["sf_block"])) * 512


# --- values -----------------------------------------------------------------------------------------------------------

_BITS = {"bf16": 16, "f16": 16, "tf32": 32, "e3m2": 6, "e2m3": 6, "e2m1": 4, "nvfp4": 4, "mxfp4": 4}
_ELEMENT = {"nvfp4": "e2m1", "mxfp4": "e2m1", "mxfp8": "e4m3"}


def _elements(kernel: Emitted) -> tuple[str, str]:
    """The element of A and the one of B."""
    first, _, second = kernel.dtype.partition("x")
    if kernel.scaled:
        first, second = _ELEMENT[kernel.dtype], ""
    return first, second or first


def _bits(kernel: Emitted, side: int) -> int:
    return _BITS.get(_elements(kernel)[side], 8)


def _codes(element: str, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Array, Array]:
    """Bit patterns of an operand and what they stand for: few bits, so that sums in fp32 are exact."""
    if element in ("s8", "u8"):
        low, high = (-128, 128) if element == "s8" else (0, 256)
        values = rng.integers(low, high, shape)
        return values.astype(np.int64).astype(np.uint8), values.astype(np.float64)
    choices = np.array([-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
    values = rng.choice(choices, shape)
    return encode(values, FORMATS["f32" if element == "tf32" else element]), values


def _packed(codes: Array, bits: int) -> Array:
    """Rows of codes as bytes, the first value in the low bits."""
    if bits >= 8:
        return np.ascontiguousarray(codes).reshape(-1).view(np.uint8)
    planes = (codes[..., None] >> np.arange(bits, dtype=codes.dtype)) & 1
    return np.packbits(planes.astype(np.uint8).reshape(codes.shape[0], -1), axis=1, bitorder="little").reshape(-1)


def _blocked(codes: Array) -> Array:
    """Scales (rows, K / block) in blocks of 128 by 4: row r of a block at 16 * (r % 32) + 4 * (r // 32)."""
    rows, columns = -(-codes.shape[0] // 128) * 128, -(-codes.shape[1] // 4) * 4
    padded = np.zeros((rows, columns), np.uint8)
    padded[: codes.shape[0], : codes.shape[1]] = codes
    blocks = padded.reshape(rows // 128, 4, 32, columns // 4, 4)
    return np.ascontiguousarray(blocks.transpose(0, 3, 2, 1, 4)).reshape(-1)


def _scale_codes(kernel: Emitted, rows: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Powers of two from 1/4 to 4, in e4m3 or e8m0; each value spread over its block."""
    block = kernel.geometry["sf_block"]
    exponents = rng.integers(-2, 3, (rows, -(-kernel.shape[2] // block)))
    values = np.ldexp(1.0, exponents)
    codes = encode(values, FORMATS["e4m3"]) if kernel.dtype == "nvfp4" else (exponents + 127).astype(np.uint8)
    return codes.astype(np.uint8), np.repeat(values, block, axis=1)[:, : kernel.shape[2]]


def data(kernel: Emitted, seed: int = 1) -> tuple[dict[str, Array], Array]:
    """The first bytes of the operands, and the product in float64."""
    rng = np.random.default_rng(seed)
    m, n, k = kernel.shape
    inputs, factors = {}, []
    for side, (name, rows) in enumerate((("A", m), ("B", n))):
        codes, values = _codes(_elements(kernel)[side], (rows, k), rng)
        inputs[name] = _packed(codes, _bits(kernel, side))
        if kernel.scaled:
            scales, spread = _scale_codes(kernel, rows, rng)
            inputs[f"SF{name}"] = _blocked(scales)
            values = values * spread
        factors.append(values)
    return inputs, factors[0] @ factors[1].T
