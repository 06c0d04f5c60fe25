"""Single-instruction kernels as PTX text, with inputs, and what the emulator's functions say of the outputs.

Each case stands alone: a module with one entry `kernel` whose parameters are pointers, inputs first, outputs after.
Inputs come from seeds, so only outputs are stored. `make.py` runs the cases on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np

from advisor.emulator import fragments
from advisor.emulator.formats import FORMATS, encode
from advisor.emulator.mma import WarpMma, warp_mma
from advisor.emulator.numbers import Operation, operation, quiet
from advisor.emulator.operation import WIDTH, unsigned
from advisor.emulator.shared_operand import Major, read_operand
from advisor.emulator.wgmma import Descriptor, WarpgroupMma, warpgroup_mma
from tests.emulator.exact import tricky_f32
from tests.emulator.golden.barriers import barrier_cases
from tests.emulator.golden.copies import copy_cases
from tests.emulator.golden.memory import memory_cases
from tests.emulator.golden.text import HEADER as HEADER
from tests.emulator.golden.text import Arrays, Bound, Case, Writer, seed_of
from tests.emulator.golden.warps import warp_cases

CANDIDATES = 2048
ELEMENTS = 768  # of them, so that the stored outputs stay small


# --- scalar instructions ----------------------------------------------------------------------------------------------


def values(kind: str, seed: int, small: bool = False) -> np.ndarray:
    """Operands of a PTX type: the edges of it, few-bit values, anything. `small`: amounts and positions up to 80."""
    rng = np.random.default_rng(seed)
    if kind == "pred":
        return rng.integers(0, 2, CANDIDATES).astype(np.uint8)
    dtype = unsigned(kind)
    bits = WIDTH[kind]
    if small:
        return rng.integers(0, 80, CANDIDATES).astype(dtype)
    if kind in ("f32", "tf32"):
        return tricky_f32(seed, 2 * CANDIDATES)[:CANDIDATES]
    if kind == "f64":
        return _doubles(rng)
    result = rng.integers(0, 1 << bits, CANDIDATES, dtype=dtype)
    edges = [0, 1, 2, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 1, 0x5A, 0x80]
    where = rng.choice(CANDIDATES, 40 * len(edges) if bits < 64 else len(edges), replace=False)
    result[where] = np.resize(np.array(edges, dtype), len(where))
    quarter = CANDIDATES // 4
    if bits >= 32 and kind[0] in "usb":
        result[:quarter] >>= rng.integers(0, bits, quarter).astype(dtype)
    return result


def _doubles(rng: np.random.Generator) -> np.ndarray:
    anything = rng.integers(0, 1 << 64, CANDIDATES, dtype=np.uint64)
    usual = np.ldexp(rng.standard_normal(CANDIDATES), rng.integers(-40, 70, CANDIDATES)).view(np.uint64)
    result = np.where(rng.random(CANDIDATES) < 0.25, anything, usual)
    edges = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, 0.5, 1.5, 2.5, 2.0**63, -(2.0**31)])
    result[: len(edges)] = edges.view(np.uint64)
    return result


def is_edge(codes: np.ndarray, kind: str) -> np.ndarray:
    """Floats that are no normal number, integers that are 0, all ones or the top bit alone, in any lane."""
    lane = kind.removesuffix("x2") if kind in ("f16x2", "bf16x2") else kind
    raw = unsigned(lane)
    lanes = np.ascontiguousarray(codes)[..., None].view(raw)
    if kind == "pred":
        edge = np.zeros(lanes.shape, np.bool_)
    elif lane in FORMATS or lane == "f64":
        infinity = raw(0x7FF << 52 if lane == "f64" else _INFINITY[lane])
        edge = ((lanes & infinity) == 0) | ((lanes & infinity) == infinity)
    else:
        edge = (lanes == 0) | (lanes == ~raw(0)) | (lanes == raw(1 << WIDTH[lane] - 1))
    return edge.any(axis=-1)


def chosen(operands: list[np.ndarray], kinds: tuple[str, ...]) -> np.ndarray:
    """The candidates to keep: those with an edge among their operands as far as they make up half, then the first."""
    edge = np.any([is_edge(codes, kind) for codes, kind in zip(operands, kinds, strict=True)], axis=0)
    first = np.flatnonzero(edge)[: ELEMENTS // 2]
    others = np.setdiff1d(np.arange(len(edge)), first)[: ELEMENTS - len(first)]
    return np.sort(np.concatenate([first, others]))


_INFINITY = {"f32": 0x7F800000, "tf32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}
SMALL_OPERANDS = {"shl": (1,), "shr": (1,), "shf": (2,), "bfe": (1, 2), "bfi": (2, 3), "szext": (1,), "bmsk": (0, 1)}
BOUNDS = {
    "ex2.f32": Bound(ulps=3), "rcp.f32": Bound(ulps=2), "rsqrt.f32": Bound(ulps=2), "sqrt.f32": Bound(ulps=2),
    "lg2.f32": Bound(ulps=3, absolute=2.0**-21.9), "sin.f32": Bound(absolute=2.0**-20),
    "cos.f32": Bound(absolute=2.0**-20), "tanh.f32": Bound(relative=2.0**-10.9), "div.f32": Bound(ulps=3),
    "ex2.f16": Bound(relative=2.0**-9), "tanh.f16": Bound(absolute=2.0**-10),
    "ex2.bf16": Bound(relative=2.0**-6.5), "tanh.bf16": Bound(absolute=2.0**-7),
    "rcp.f64": Bound(relative=2.0**-19), "rsqrt.f64": Bound(relative=2.0**-19),
}  # fmt: skip
_PERIODIC = ("sin", "cos")


def scalar(opcode: str, *, destinations: int = 1, table: int | None = None) -> Case:
    """One instruction on arrays: every thread loads its operands, runs it once, stores the results."""
    found = operation(opcode, destinations)
    assert found is not None, opcode
    root = opcode.split(".")[0]
    name = opcode if destinations == 1 else f"{opcode}.pair"
    name = name if table is None else f"{name}.{table:#04x}"
    sources = found.sources if table is None else tuple(each for at, each in enumerate(found.sources) if at != 3)
    inputs = {
        f"in{at}": values(kind, seed_of(f"{name}/{at}"), at in SMALL_OPERANDS.get(root, ()))
        for at, kind in enumerate(sources)
    }
    if root in _PERIODIC:
        angles = np.random.default_rng(seed_of(name)).uniform(-6.28, 6.28, CANDIDATES).astype(np.float32)
        inputs = {"in0": angles.view(np.uint32)}
    keep = chosen(list(inputs.values()), sources)
    inputs = {each: codes[keep] for each, codes in inputs.items()}
    outputs = {
        f"out{at}": ((ELEMENTS,), np.uint8 if kind == "pred" else unsigned(kind))
        for at, kind in enumerate(found.results)
    }
    ptx = _scalar_text(opcode, found, sources, table, inputs, outputs)
    kinds = {f"out{at}": kind for at, kind in enumerate(found.results)}
    lane = found.results[0].removesuffix("x2")
    bound = BOUNDS[f"{root}.{lane}"] if found.approximate else Bound()
    function = _evaluation(found, sources, table)
    return Case(name, ptx, inputs, outputs, ELEMENTS // 256, 256, function, bound, kinds)


def _scalar_text(
    opcode: str, found: Operation, sources: tuple[str, ...], table: int | None, inputs: Arrays, outputs: Any
) -> str:
    writer = Writer([*inputs, *outputs])
    index = writer.thread_index()
    operands = []
    for at, kind in enumerate(sources):
        size = max(WIDTH[kind] // 8, 1)
        operands.append(writer.load(WIDTH[kind], writer.address(writer.pointer(f"in{at}"), index, size)))
    if table is not None:
        operands.insert(3, str(table))
    if opcode.split(".")[0] in ("addc", "subc", "madc"):  # the carry flag is made by a sum that overflows
        carry = operands.pop()
        word, ones = writer.register(32), writer.register(32)
        writer.emit(f"selp.u32 {word}, 1, 0, {carry};")
        writer.emit(f"mov.u32 {ones}, {'0xffffffff' if opcode[:4] != 'subc' else '0'};")
        writer.emit(f"{'sub' if opcode[:4] == 'subc' else 'add'}.cc.u32 {ones}, {ones}, {word};")
    results = [writer.register(WIDTH[each]) for each in found.results]
    flag = len(found.results) == 2 and found.results[1] == "pred" and "cc" in opcode.split(".")
    if flag:
        writer.emit(f"{opcode} {', '.join([results[0], *operands])};")
        word = writer.register(32)
        borrow = opcode.startswith("sub")
        writer.emit(f"{'subc' if borrow else 'addc'}.u32 {word}, 0, 0;")
        writer.emit(f"setp.ne.u32 {results[1]}, {word}, 0;")
    else:
        writer.emit(f"{opcode} {', '.join(['|'.join(results), *operands])};")
    for at, (kind, value) in enumerate(zip(found.results, results, strict=True)):
        size = max(WIDTH[kind] // 8, 1)
        writer.store(WIDTH[kind], writer.address(writer.pointer(f"out{at}"), index, size), value)
    return writer.text()


def _evaluation(found: Operation, sources: tuple[str, ...], table: int | None) -> Callable[[Arrays], Arrays]:
    def function(inputs: Arrays) -> Arrays:
        operands = [
            inputs[f"in{at}"].astype(np.bool_) if kind == "pred" else inputs[f"in{at}"]
            for at, kind in enumerate(sources)
        ]
        if table is not None:
            operands.insert(3, np.uint32(table))
        results = found.function(*operands)
        columns = results if isinstance(results, tuple) else (results,)
        return {
            f"out{at}": np.asarray(each).astype(np.uint8) if each.dtype == np.bool_ else each
            for at, each in enumerate(columns)
        }

    return function


_WORDS = ("u32", "s32", "u64", "s64")
_ALL = ("u16", "s16", *_WORDS)
SCALAR_OPCODES = (
    *(f"{root}.{kind}" for root in ("add", "sub", "mul.lo", "min", "max", "div", "rem") for kind in _ALL),
    *(f"{root}.{kind}" for root in ("mad.lo", "mul.hi") for kind in _WORDS),
    *(f"{root}.{kind}" for root in ("mul.wide", "mad.wide") for kind in ("u16", "s16", "u32", "s32")),
    *(f"{root}.{kind}" for root in ("abs", "neg") for kind in ("s16", "s32", "s64")),
    *(f"{root}.{kind}" for root in ("and", "or", "xor", "not", "shl") for kind in ("b16", "b32", "b64")),
    *(f"shr.{kind}" for kind in _ALL),
    *(f"{root}.{kind}" for root in ("popc", "clz", "brev", "bfi") for kind in ("b32", "b64")),
    *(f"{root}.{kind}" for root in ("bfe", "bfind", "bfind.shiftamt") for kind in _WORDS),
    "add.sat.s32", "sub.sat.s32", "sad.u32", "sad.s32", "cnot.b32", "prmt.b32", "prmt.b32.f4e", "prmt.b32.rc16",
    "shf.l.wrap.b32", "shf.l.clamp.b32", "shf.r.wrap.b32", "shf.r.clamp.b32", "dp4a.u32.u32", "dp4a.s32.s32",
    "dp2a.lo.s32.u32", "add.cc.u32", "sub.cc.u32", "addc.cc.u32", "addc.u32", "subc.cc.u32", "mad.lo.cc.u32",
    "madc.hi.u32", "max.s16x2", "max.relu.s16x2", "min.u16x2", "add.u16x2", "szext.clamp.s32", "szext.wrap.u32",
    "bmsk.clamp.b32", "mul24.lo.u32", "and.pred", "or.pred", "xor.pred", "not.pred",
    *(f"setp.{name}.{kind}" for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in (*_WORDS, "u16", "s16")),
    *(f"setp.{name}.{kind}" for kind in ("b16", "b32", "b64") for name in ("eq", "ne")), "selp.u32", "selp.u64",
    *(f"setp.{name}.f32" for name in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "gtu", "num", "nan")),
    "setp.lt.f64", "setp.neu.f16", "setp.lt.bf16", "setp.lt.and.s32", "setp.gt.ftz.f32", "set.lt.u32.f32",
    "set.ge.f32.f32", "selp.b16", "selp.b32", "selp.b64", "selp.f32", "slct.b32.s32", "slct.b32.f32",
    *(f"{root}.f32" for root in ("add", "sub", "mul", "neg", "abs", "min", "max")),
    *(f"{root}.{rounding}.f32" for root in ("add", "mul", "fma", "div") for rounding in ("rn", "rz", "rm", "rp")),
    *(f"{root}.ftz.f32" for root in ("add", "mul", "min", "max", "neg", "abs")),
    "fma.rn.ftz.f32", "fma.rn.sat.f32", "add.sat.f32", "mul.ftz.sat.f32", "min.NaN.f32", "max.NaN.f32",
    "max.xorsign.abs.f32", "copysign.f32", "sqrt.rn.f32", "sqrt.rz.f32", "rcp.rn.f32", "rcp.rp.f32", "div.rn.ftz.f32",
    "add.f64", "mul.f64", "fma.rn.f64", "fma.rz.f64", "div.rn.f64", "sqrt.rn.f64", "min.f64", "max.f64", "neg.f64",
    *(f"{root}.{kind}" for root in ("add", "sub", "mul", "fma.rn", "min", "max", "neg", "abs")
      for kind in ("f16", "f16x2", "bf16", "bf16x2")),
    "add.ftz.f16x2", "add.sat.f16x2", "fma.rn.relu.f16x2", "fma.rn.relu.bf16x2", "min.NaN.f16x2", "max.NaN.bf16x2",
    "fma.rn.ftz.f16",
    *(f"{root}.approx.f32" for root in ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos")),
    *(f"{root}.approx.ftz.f32" for root in ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos")),
    "tanh.approx.f32", "tanh.approx.f16", "tanh.approx.bf16x2", "ex2.approx.f16x2", "ex2.approx.ftz.bf16",
    "div.full.f32", "div.full.ftz.f32", "div.approx.f32", "div.approx.ftz.f32",
    *(f"cvt.{rounding}.{kind}.f32" for rounding in ("rni", "rzi", "rmi", "rpi") for kind in ("s32", "u32")),
    *(f"cvt.rzi.{kind}.f32" for kind in ("s8", "u8", "s16", "u16", "s64", "u64")),
    *(f"cvt.rzi.{kind}.{source}" for kind in ("s32", "s64") for source in ("f16", "bf16", "f64")),
    *(f"cvt.{rounding}.f32.{kind}" for rounding in ("rn", "rz") for kind in ("s32", "u32", "s64", "u64")),
    "cvt.rn.f32.s8", "cvt.rn.f32.u16", "cvt.rn.f16.s32", "cvt.rn.bf16.u32", "cvt.rn.f64.s64", "cvt.rn.f64.u32",
    *(f"cvt.{rounding}.f32.f32" for rounding in ("rni", "rzi", "rmi", "rpi")), "cvt.sat.f32.f32", "cvt.rzi.ftz.s32.f32",
    *(f"cvt.{rounding}.{kind}.f32" for rounding in ("rn", "rz") for kind in ("f16", "bf16")), "cvt.rn.relu.bf16.f32",
    "cvt.rn.satfinite.f16.f32", "cvt.f32.f16", "cvt.f32.bf16", "cvt.f64.f32", "cvt.rn.f32.f64", "cvt.rz.f32.f64",
    "cvt.rn.f16.f64", "cvt.rn.bf16.f16", "cvt.rn.f16x2.f32", "cvt.rz.f16x2.f32", "cvt.rn.bf16x2.f32",
    "cvt.rn.relu.bf16x2.f32", "cvt.rna.tf32.f32", "cvt.rn.tf32.f32", "cvt.rz.tf32.f32", "cvt.rn.relu.tf32.f32",
    *(f"cvt.rn.satfinite.{kind}x2.{source}" for kind in ("e4m3", "e5m2") for source in ("f32", "f16x2")),
    "cvt.rn.satfinite.relu.e4m3x2.f32", "cvt.rn.f16x2.e4m3x2", "cvt.rn.f16x2.e5m2x2", "cvt.rn.relu.f16x2.e4m3x2",
    "cvt.u32.u16", "cvt.s32.s16", "cvt.u32.u8", "cvt.s32.s8", "cvt.u16.u32", "cvt.u64.u32", "cvt.s64.s32",
    "cvt.u32.u64",
    "cvt.sat.s8.s32", "cvt.sat.u8.s32", "cvt.sat.u16.u32", "cvt.sat.s32.s64",
    "cvt.pack.sat.u8.s32.b32", "cvt.pack.sat.s16.s32",
    "testp.normal.f32", "testp.subnormal.f32", "testp.finite.f64",
    # what Triton writes beside these
    *(f"{root}.rn.ftz.f32" for root in ("add", "sub", "mul")), "sub.ftz.f32", "sub.rn.f32", "abs.ftz.f16",
    "neg.ftz.f16x2",
    *(f"cvt.{rounding}.ftz.{kind}.f32" for rounding in ("rni", "rzi", "rmi", "rpi") for kind in ("f32", "s32", "u32")
      if (rounding, kind) != ("rzi", "s32")),
    *(f"setp.{name}.f32" for name in ("leu", "geu")), *(f"setp.{name}.ftz.f32" for name in ("eq", "lt", "ge", "neu",
    "geu", "nan")),
    *(f"setp.{name}.{kind}" for name in ("eq", "ne", "le", "gt", "ge", "equ", "ltu", "nan") for kind in ("f16", "bf16",
    "f64")),
    *(f"{root}.{rounding}.f64" for root in ("add", "mul", "sub") for rounding in ("rn", "rz")), "sub.f64", "abs.f64",
    "min.ftz.NaN.f32", "max.ftz.NaN.f32", "min.NaN.bf16", "max.NaN.f16", "min.NaN.bf16x2", "max.NaN.f16x2",
    "min.ftz.f16x2",
    "sqrt.rn.ftz.f32", "rcp.rn.ftz.f32", "rcp.rn.f64", "cvt.rn.bf16.f64", "cvt.ftz.f64.f32", "cvt.rn.ftz.f32.f64",
    "cvt.ftz.f32.f16",
    "cvt.rzi.u32.f64", "cvt.rzi.u64.f64", "cvt.rzi.s16.f16", "cvt.rn.f16.u16", "cvt.rn.f16.s64", "cvt.rn.bf16.s32",
    "cvt.rn.bf16.s64",
    "cvt.rn.f64.s32", "cvt.rn.f64.u64", "cvt.f64.f16", "cvt.rn.f32.u8", "cvt.rn.f32.s16", "cvt.rn.f16.s8",
    "cvt.rni.f16.f16", "cvt.rzi.bf16.bf16", "cvt.rmi.f64.f64", "cvt.u16.u8", "cvt.s16.s8", "cvt.s16.s32",
    "cvt.u64.u16", "cvt.s64.s16",
    "cvt.u16.u64", "cvt.u8.u32", "cvt.s8.s32", "cvt.u8.u16", "cvt.s64.s8", "cvt.u64.u8", "copysign.f64",
    "ex2.approx.ftz.bf16x2",
    "tanh.approx.f16x2", "tanh.approx.bf16", "ex2.approx.f16", "selp.s32", "selp.s64", "selp.u16", "selp.s16",
    "selp.f64", "setp.ltu.and.f32",
    "setp.ne.or.s32", "setp.ge.xor.u32", "setp.eq.and.u64", "mul.hi.u16", "mul.hi.s16", "mad.lo.u16", "mad.hi.u32",
    "mad.hi.s32",
    "mad24.lo.u32", "max.relu.s32", "min.relu.s32", "prmt.b32.b4e", "prmt.b32.rc8", "prmt.b32.ecl", "prmt.b32.ecr",
    "dp4a.s32.u32",
    "dp4a.u32.s32", "dp2a.hi.u32.u32", "cnot.b16",
)  # fmt: skip


# --- matrices in registers --------------------------------------------------------------------------------------------

WARPS = 16


def matrix_values(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Codes of a matrix: magnitudes over a wide range, zeros, subnormals; any integers."""
    rng = np.random.default_rng(seed)
    if kind in ("s32", "b1", "s4", "u4", "s8", "u8"):
        bits = fragments.ELEMENT_BITS[kind]
        return rng.integers(0, 1 << bits, shape, dtype=np.uint32 if bits == 32 else np.uint8)
    spread = 3 if kind in ("e4m3", "e5m2", "f16") else 12
    reals = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread, shape)
    reals[rng.random(shape) < 0.05] = 0.0
    if kind == "f64":
        return reals.view(np.uint64)
    if kind == "tf32":
        return reals.astype(np.float32).view(np.uint32)
    return encode(reals, FORMATS[kind], finite=True)


def matrix_product(opcode: str) -> Case:
    """`mma.sync`: one warp a block, operands in registers."""
    form = cast(WarpMma, warp_mma(opcode))
    kinds = form.product
    with quiet():
        seed = seed_of(opcode)
        stacks = {
            "a": fragments.registers_a(matrix_values(kinds.a, (WARPS, form.m, form.k), seed), kinds.a),
            "b": fragments.registers_b(matrix_values(kinds.b, (WARPS, form.k, form.n), seed + 1), kinds.b),
            "c": fragments.registers_c(matrix_values(kinds.d, (WARPS, form.m, form.n), seed + 2), kinds.d),
        }
    width = fragments.register_bits(kinds.d)
    writer = Writer(["a", "b", "c", "d"])
    lane, block = writer.register(32), writer.register(32)
    writer.emit(f"mov.u32 {lane}, %tid.x;")
    writer.emit(f"mov.u32 {block}, %ctaid.x;")
    groups = [_register_block(writer, name, stacks[name].shape[-2], width, lane, block, 32) for name in "abc"]
    results = [writer.register(width) for _ in range(form.d_registers)]
    texts = ["{" + ", ".join(each) + "}" for each in (results, *groups)]
    writer.emit(f"{opcode} {', '.join(texts)};")
    _store_block(writer, "d", results, width, lane, block, 32)
    outputs = {"d": ((WARPS, form.d_registers, 32), np.uint64 if width == 64 else np.uint32)}

    def function(inputs: Arrays) -> Arrays:
        registers = [fragments.unstack(inputs[name]) for name in "abc"]
        return {"d": fragments.stack(form(*registers, numerics="model"))}

    return Case(opcode, writer.text(), stacks, outputs, WARPS, 32, function, kinds={"d": kinds.d})


def _register_block(writer: Writer, name: str, count: int, width: int, lane: str, block: str, lanes: int) -> list[str]:
    """Registers loaded from an array [blocks, registers, lanes]."""
    where = _block_address(writer, name, count, width, lane, block, lanes)
    return [writer.load(width, where, at * lanes * width // 8) for at in range(count)]


def _store_block(
    writer: Writer, name: str, registers: list[str], width: int, lane: str, block: str, lanes: int
) -> None:
    where = _block_address(writer, name, len(registers), width, lane, block, lanes)
    for at, each in enumerate(registers):
        writer.store(width, where, each, at * lanes * width // 8)


def _block_address(writer: Writer, name: str, count: int, width: int, lane: str, block: str, lanes: int) -> str:
    index = writer.register(32)
    writer.emit(f"mad.lo.u32 {index}, {block}, {count * lanes}, {lane};")
    return writer.address(writer.pointer(name), index, width // 8)


MMA_FORMS = (
    *(f"m16n8k{k}.row.col.{d}.f16.f16.{d}" for k in (8, 16) for d in ("f16", "f32")),
    *(f"m16n8k{k}.row.col.f32.bf16.bf16.f32" for k in (8, 16)),
    *(f"m16n8k{k}.row.col.f32.tf32.tf32.f32" for k in (4, 8)),
    *(f"m16n8k32.row.col.f32.{a}.{b}.f32" for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    "m16n8k16.row.col.f32.e4m3.e4m3.f32",
    *(f"m16n8k{k}.row.col.s32.{a}.{b}.s32" for k in (16, 32) for a, b in (("s8", "s8"), ("u8", "s8"), ("u8", "u8"))),
    "m16n8k32.row.col.satfinite.s32.s8.s8.s32", "m8n8k16.row.col.s32.s8.s8.s32",
    "m16n8k64.row.col.s32.s4.s4.s32", "m16n8k32.row.col.s32.u4.u4.s32",
    "m16n8k256.row.col.s32.b1.b1.s32.and.popc", "m16n8k128.row.col.s32.b1.b1.s32.xor.popc",
    "m8n8k4.row.col.f64.f64.f64.f64", "m16n8k8.row.col.f64.f64.f64.f64",
)  # fmt: skip


# --- ldmatrix, stmatrix, movmatrix ------------------------------------------------------------------------------------


def _shared_copy(writer: Writer, name: str, base: str, lane: str, size: int, lanes: int, *, out: bool = False) -> None:
    """All lanes move `size` bytes between a global array and shared memory, a word at a time."""
    globe = writer.address(writer.pointer(name), lane, 4)
    local = writer.register(32)
    writer.emit(f"mad.lo.u32 {local}, {lane}, 4, {base};")
    word = writer.register(32)
    for at in range(0, size, 4 * lanes):
        if out:
            writer.emit(f"ld.shared.b32 {word}, [{local}+{at}];")
            writer.emit(f"st.global.b32 [{globe}+{at}], {word};")
        else:
            writer.emit(f"ld.global.b32 {word}, [{globe}+{at}];")
            writer.emit(f"st.shared.b32 [{local}+{at}], {word};")


def matrix_move(opcode: str, count: int) -> Case:
    """`ldmatrix` or `stmatrix` of `count` matrices; a lane's row address is an input."""
    loads, transpose = opcode.startswith("ldmatrix"), ".trans" in opcode
    rng = np.random.default_rng(seed_of(opcode))
    rows = rng.permutation(32).astype(np.uint32) * np.uint32(16)
    bytes_in = rng.integers(0, 256, 512, dtype=np.uint8)
    registers = rng.integers(0, 1 << 32, (count, 32), dtype=np.uint32)
    inputs = {"memory": bytes_in, "rows": rows} | ({} if loads else {"registers": registers})
    outputs = {"out": ((count, 32), np.uint32) if loads else ((512,), np.uint8)}
    writer = Writer([*inputs, *outputs])
    writer.shared = "    .shared .align 128 .b8 tile[512];"
    lane, base, address = (writer.register(32) for _ in range(3))
    writer.emit(f"mov.u32 {lane}, %tid.x;")
    writer.emit(f"mov.u32 {base}, tile;")
    _shared_copy(writer, "memory", base, lane, 512, 32)
    writer.emit("bar.sync 0;")
    offset = writer.load(32, writer.address(writer.pointer("rows"), lane, 4))
    writer.emit(f"add.u32 {address}, {base}, {offset};")
    zero = writer.register(32)
    writer.emit(f"mov.u32 {zero}, 0;")
    if loads:
        results = [writer.register(32) for _ in range(count)]
        writer.emit(f"{opcode} {{{', '.join(results)}}}, [{address}];")
        _store_block(writer, "out", results, 32, lane, zero, 32)
    else:
        loaded = _register_block(writer, "registers", count, 32, lane, zero, 32)
        writer.emit(f"{opcode} [{address}], {{{', '.join(loaded)}}};")
        writer.emit("bar.sync 0;")
        _shared_copy(writer, "out", base, lane, 512, 32, out=True)

    def function(given: Arrays) -> Arrays:
        chunks = given["memory"].reshape(32, 16).copy()
        chosen = (given["rows"][: fragments.row_lanes("m8n8", count)] // 16).reshape(count, 8)
        if loads:
            return {"out": fragments.loaded(chunks[chosen], "m8n8", transpose=transpose)}
        chunks[chosen] = fragments.stored(given["registers"], "m8n8", transpose=transpose)
        return {"out": chunks.reshape(512)}

    return Case(opcode, writer.text(), inputs, outputs, 1, 32, function)


def transpose_case() -> Case:
    opcode = "movmatrix.sync.aligned.m8n8.trans.b16"
    source = np.random.default_rng(seed_of(opcode)).integers(0, 1 << 32, 32, dtype=np.uint32)
    writer = Writer(["source", "out"])
    index = writer.thread_index()
    value, result = writer.load(32, writer.address(writer.pointer("source"), index, 4)), writer.register(32)
    writer.emit(f"{opcode} {result}, {value};")
    writer.store(32, writer.address(writer.pointer("out"), index, 4), result)
    function = lambda given: {"out": fragments.transposed(given["source"])}  # noqa: E731
    return Case(opcode, writer.text(), {"source": source}, {"out": ((32,), np.uint32)}, 1, 32, function)


# --- wgmma ------------------------------------------------------------------------------------------------------------

_A_BYTES, _B_BYTES = 8192, 32768
_ROW = {"none": 16, "32B": 32, "64B": 64, "128B": 128}


def warpgroup_product(
    shape: str,
    *,
    swizzle: str = "128B",
    major_a: Major = "K",
    major_b: Major = "K",
    a_in_registers: bool = False,
    scales: tuple[int, int] = (1, 1),
    accumulate: bool = True,
) -> Case:
    """One `wgmma.mma_async` with its fence, commit and wait; operands as raw bytes of shared memory."""
    opcode = f"wgmma.mma_async.sync.aligned.{shape}"
    form = cast(WarpgroupMma, warpgroup_mma(opcode))
    kinds = form.product
    name = "/".join([shape, swizzle, major_a, major_b, *(["registers"] if a_in_registers else []), f"{scales[0]:+d}"
                     f"{scales[1]:+d}", *([] if accumulate else ["zero"])])  # fmt: skip
    seed = seed_of(name)
    a_place = _descriptor(0, swizzle, major_a, 64)
    b_place = _descriptor(_A_BYTES, swizzle, major_b, form.n)
    inputs = {"memory": _operand_bytes(form, seed)}
    if a_in_registers:
        matrix = matrix_values(kinds.a, (4, 16, form.k), seed + 5)
        inputs["a"] = _by_threads(fragments.registers_a(matrix, kinds.a))
    with quiet():
        start = matrix_values(kinds.d, (64, form.n), seed + 2)
    inputs["c"] = np.stack([each.reshape(128) for each in form.d_to_registers(start)])
    text = _wgmma_text(form, a_place, b_place, (major_a, major_b), list(inputs), scales, accumulate)

    def function(given: Arrays) -> Arrays:
        memory = given["memory"]
        if a_in_registers:
            left = form.a_from_registers([each.reshape(4, 32) for each in given["a"]])
        else:
            left = read_operand(memory, a_place, 64, major_a, kinds.a)
        right = read_operand(memory, b_place, form.n, major_b, kinds.b)
        before = form.d_from_registers([each.reshape(4, 32) for each in given["c"]]) if accumulate else None
        after = form(left, right, before, scale_a=scales[0], scale_b=scales[1], numerics="model")
        return {"d": np.stack([each.reshape(128) for each in form.d_to_registers(after)])}

    outputs = {"d": ((form.d_registers, 128), np.uint32)}
    return Case(f"wgmma/{name}", text, inputs, outputs, 1, 128, function, kinds={"d": kinds.d})


def _descriptor(start: int, swizzle: str, major: Major, extent: int) -> Descriptor:
    """A dense operand: K-major rows one after another; MN-major blocks of K rows one after another."""
    width = _ROW[swizzle]
    if major == "K":
        return Descriptor(start, 8 * width * (extent // 8) if swizzle == "none" else 16, 8 * width, 0, swizzle, 0)
    if swizzle == "none":
        return Descriptor(start, 128, 256, 0, swizzle, 0)
    return Descriptor(start, 16 * width, 8 * width, 0, swizzle, 0)


def _operand_bytes(form: WarpgroupMma, seed: int) -> np.ndarray:
    kinds = form.product
    size = {"b1": 1}.get(kinds.a, fragments.ELEMENT_BITS[kinds.a] // 8)
    with quiet():
        if kinds.a == "b1":
            codes = np.random.default_rng(seed).integers(0, 256, _A_BYTES + _B_BYTES, dtype=np.uint8)
            return codes
        first = matrix_values(kinds.a, (_A_BYTES // size,), seed).view(np.uint8)
        second = matrix_values(kinds.b, (_B_BYTES // size,), seed + 1).view(np.uint8)
    return np.concatenate([first, second])


def _by_threads(stack: np.ndarray) -> np.ndarray:
    """[4 warps, registers, 32] to [registers, 128]."""
    return np.ascontiguousarray(np.swapaxes(stack, 0, 1)).reshape(stack.shape[1], 128)


def _wgmma_text(
    form: WarpgroupMma,
    a_place: Descriptor,
    b_place: Descriptor,
    majors: tuple[Major, Major],
    inputs: list[str],
    scales: tuple[int, int],
    accumulate: bool,
) -> str:
    writer = Writer([*inputs, "d"])
    writer.shared = f"    .shared .align 1024 .b8 tile[{_A_BYTES + _B_BYTES}];"
    lane, base, zero = (writer.register(32) for _ in range(3))
    writer.emit(f"mov.u32 {lane}, %tid.x;")
    writer.emit(f"mov.u32 {base}, tile;")
    writer.emit(f"mov.u32 {zero}, 0;")
    _shared_copy(writer, "memory", base, lane, _A_BYTES + _B_BYTES, 128)
    writer.emit("fence.proxy.async.shared::cta;")
    writer.emit("bar.sync 0;")
    in_registers = "a" in inputs
    left = ""
    if in_registers:
        left = "{" + ", ".join(_register_block(writer, "a", 4, 32, lane, zero, 128)) + "}"
    else:
        left = _descriptor_register(writer, a_place, base)
    right = _descriptor_register(writer, b_place, base)
    sums = _register_block(writer, "c", form.d_registers, 32, lane, zero, 128)
    keep = writer.register(1)
    writer.emit(f"setp.ne.u32 {keep}, {lane}, {'0xffffffff' if accumulate else lane};")
    extra = [str(each) for each in scales] if form.may_negate else []
    if form.may_transpose:
        extra += [str(int(each == "MN")) for each in (majors[1:] if in_registers else majors)]
    writer.emit("wgmma.fence.sync.aligned;")
    writer.emit(f"{form.opcode} {{{', '.join(sums)}}}, {', '.join([left, right, keep, *extra])};")
    writer.emit("wgmma.commit_group.sync.aligned;")
    writer.emit("wgmma.wait_group.sync.aligned 0;")
    _store_block(writer, "d", sums, 32, lane, zero, 128)
    return writer.text()


def _descriptor_register(writer: Writer, place: Descriptor, base: str) -> str:
    """The constant fields, and the address of the tile at run time."""
    constant = Descriptor(0, place.leading_bytes, place.stride_bytes, 0, place.swizzle, 0).encode()
    start, wide = writer.register(32), writer.register(64)
    writer.emit(f"add.u32 {start}, {base}, {place.start};")
    writer.emit(f"bfe.u32 {start}, {start}, 4, 14;")
    writer.emit(f"cvt.u64.u32 {wide}, {start};")
    writer.emit(f"or.b64 {wide}, {wide}, {constant};")
    return wide


def _warpgroup_cases() -> list[Case]:
    sizes = (8, 16, 32, 64, 96, 128, 144, 160, 176, 192, 224, 256)
    cases = [warpgroup_product(f"m64n{n}k16.f32.bf16.bf16") for n in sizes]
    cases += [warpgroup_product("m64n64k16.f32.bf16.bf16", swizzle=each) for each in ("none", "32B", "64B")]
    for each in ("none", "32B", "64B", "128B"):
        cases.append(warpgroup_product("m64n64k16.f32.bf16.bf16", swizzle=each, major_b="MN"))
        cases.append(warpgroup_product("m64n64k16.f32.f16.f16", swizzle=each, major_a="MN"))
    cases += [warpgroup_product(f"m64n{n}k16.f32.f16.f16") for n in (16, 32, 64, 96, 128, 192, 256)]
    cases += [warpgroup_product("m64n64k16.f16.f16.f16"), warpgroup_product("m64n96k8.f32.tf32.tf32")]
    cases += [warpgroup_product(f"m64n{n}k8.f32.tf32.tf32") for n in (32, 64, 128, 256)]
    cases += [warpgroup_product(f"m64n64k32.f32.{a}.{b}") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
    cases += [warpgroup_product(f"m64n{n}k32.f32.e4m3.e4m3") for n in (32, 128, 192, 256)]
    cases.append(warpgroup_product("m64n128k32.f16.e4m3.e4m3"))
    cases += [warpgroup_product(f"m64n64k32.s32.{a}.{b}") for a, b in (("s8", "s8"), ("u8", "u8"), ("s8", "u8"))]
    cases += [warpgroup_product("m64n32k32.satfinite.s32.s8.s8"), warpgroup_product("m64n16k256.s32.b1.b1.and.popc")]
    for shape in ("k16.f32.bf16.bf16", "k16.f16.f16.f16", "k8.f32.tf32.tf32", "k32.f32.e4m3.e4m3", "k32.s32.s8.s8"):
        cases.append(warpgroup_product(f"m64n64{shape}", a_in_registers=True))
    cases += [warpgroup_product(f"m64n{n}k8.f32.tf32.tf32") for n in (8, 16)] + [
        warpgroup_product("m64n8k16.f32.f16.f16")
    ]
    cases += [warpgroup_product(f"m64n{n}k16.f16.f16.f16") for n in (16, 128)]
    cases += [warpgroup_product(f"m64n{n}k32.f32.{kind}.{kind}") for kind, sizes in (("e4m3", (8, 16)), ("e5m2", (16,
    32, 128, 256)))
              for n in sizes]  # fmt: skip
    cases += [warpgroup_product(f"m64n{n}k32.s32.s8.s8") for n in (8, 16, 32, 128, 256)]
    for shape in (
        "n128k16.f32.f16.f16",
        "n128k16.f32.bf16.bf16",
        "n32k16.f32.f16.f16",
        "n16k16.f32.bf16.bf16",
        "n128k8.f32.tf32.tf32",
    ):
        cases.append(warpgroup_product(f"m64{shape}", a_in_registers=True))
    cases.append(warpgroup_product("m64n64k16.f32.bf16.bf16", accumulate=False))
    cases.append(warpgroup_product("m64n64k16.f32.bf16.bf16", scales=(-1, 1)))
    cases.append(warpgroup_product("m64n64k16.f32.f16.f16", scales=(-1, -1)))
    return cases


@lru_cache(maxsize=1)
def all_cases() -> tuple[Case, ...]:
    """Every case, in a fixed order."""
    cases = [scalar(each) for each in SCALAR_OPCODES]
    cases += [scalar(each, destinations=2) for each in ("setp.lt.s32", "setp.ltu.and.f32", "setp.gt.f16x2")]
    cases += [scalar("lop3.b32", table=each) for each in (0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x1B, 0x40, 0xF0)]
    cases += [matrix_product(f"mma.sync.aligned.{each}") for each in MMA_FORMS]
    for root, count, transpose in (
        (r, c, t) for r in ("ldmatrix", "stmatrix") for c in (1, 2, 4) for t in ("", ".trans")
    ):
        cases.append(matrix_move(f"{root}.sync.aligned.m8n8.x{count}{transpose}.shared.b16", count))
    for root, count, transpose in (
        (r, c, t) for r in ("ldmatrix", "stmatrix") for c in (1, 2, 4) for t in ("", ".trans")
    ):
        cases.append(matrix_move(f"{root}.sync.aligned.m8n8.x{count}{transpose}.shared::cta.b16", count))
    cases.append(transpose_case())
    cases += [*_warpgroup_cases(), *warp_cases(), *memory_cases(), *copy_cases(), *barrier_cases()]
    return tuple(cases)
