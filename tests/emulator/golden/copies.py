"""Cases of asynchronous copies: cp.async, bulk copies, tensor copies with their maps, st.async and red.async.

What a box brings is worked out here from the tensor as a NumPy array, element by element; swizzles are address bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from advisor.records.launch import ElementMapParam, TensorMapParam
from tests.emulator.exact import tricky_f32
from tests.emulator.golden.memory import near_zero, random_bytes, updates
from tests.emulator.golden.text import Arrays, Case, assembled, at, seed_of

Swizzle = Literal["none", "32B", "64B", "128B"]
Map = TensorMapParam | ElementMapParam

SYNC = ["barrier.cluster.arrive.release;", "barrier.cluster.wait.acquire;"]
BARRIER = 0  # of the shared memory: the mbarrier; the data begins at `DATA`
DATA = 1024


def one_barrier(count: int = 1) -> list[str]:
    """Thread 0 initialises the mbarrier at the tile's start and makes it visible to copies."""
    return [
        "setp.eq.u32 %p1, %t, 0;",
        f"@%p1 mbarrier.init.shared::cta.b64 [%base], {count};",
        "@%p1 fence.mbarrier_init.release.cluster;",
        "bar.sync 0;",
    ]


def expect(bytes_: int) -> str:
    return f"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%base], {bytes_};"


def wait(label: str = "WAIT", parity: int = 0, form: str = "mbarrier.try_wait.parity.shared::cta.b64") -> list[str]:
    """Waits for a phase, at most some thousand times: a chip that never gets there stops as well."""
    return [
        "mov.u32 %r90, 0;",
        f"{label}:",
        f"{form} %p9, [%base], {parity};",
        "add.u32 %r90, %r90, 1;",
        "setp.lt.and.u32 %p10, %r90, 100000, !%p9;",
        f"@%p10 bra {label};",
    ]


def tile_out(size: int, threads: int, pointer: str = "out", index: str = "%cta") -> list[str]:
    """All threads copy `size` bytes from the tile's data to their CTA's part of an array."""
    lines = [f"mad.lo.u32 %r91, {index}, {size // 4}, %t;", at(pointer, 4, "%d46", "%r91")]
    lines += ["mad.lo.u32 %r92, %t, 4, %base;", f"add.u32 %r92, %r92, {DATA};"]
    for offset in range(0, size, 4 * threads):
        lines += [f"setp.lt.u32 %p11, %t, {(size - offset + 3) // 4};", f"@%p11 ld.shared.b32 %r93, [%r92+{offset}];"]
        lines.append(f"@%p11 st.global.b32 [%d46+{offset}], %r93;")
    return lines


def tile_in(size: int, threads: int, pointer: str, index: str = "%cta") -> list[str]:
    """The inverse of `tile_out`; the async proxy sees what was written."""
    lines = [f"mad.lo.u32 %r91, {index}, {size // 4}, %t;", at(pointer, 4, "%d46", "%r91")]
    lines += ["mad.lo.u32 %r92, %t, 4, %base;", f"add.u32 %r92, %r92, {DATA};"]
    for offset in range(0, size, 4 * threads):
        lines += [f"setp.lt.u32 %p11, %t, {(size - offset + 3) // 4};", f"@%p11 ld.global.b32 %r93, [%d46+{offset}];"]
        lines.append(f"@%p11 st.shared.b32 [%r92+{offset}], %r93;")
    return [*lines, "fence.proxy.async;", "bar.sync 0;"]


# --- cp.async ---------------------------------------------------------------------------------------------------------


def thread_copy(opcode: str, size: int, extra: str = "") -> Case:
    """`cp.async` of every thread. `extra`: "register" and "immediate" copy fewer bytes and fill with zeros, "ignore"
    leaves the source out where a predicate says so."""
    name = f"{opcode}/{size}" + (f"/{extra}" if extra else "")
    data = random_bytes(name, 64 * size)
    kept = np.random.default_rng(seed_of(name) + 1).integers(0, size + 1, 64).astype(np.uint32)
    if extra == "immediate":
        kept[:] = size // 2
    elif extra == "ignore":
        kept = np.where(kept < size // 2, 0, size).astype(np.uint32)
    elif not extra:
        kept[:] = size
    lines = [f"mad.lo.u32 %r0, %t, {size}, %base;", f"add.u32 %r0, %r0, {DATA};", at("data", size)]
    lines += [at("kept", 4, "%d1"), "ld.global.b32 %r1, [%d1];", "setp.eq.u32 %p0, %r1, 0;"]
    arguments = ["[%r0]", "[%d0]", str(size)]
    arguments += {"register": ["%r1"], "immediate": [str(size // 2)], "ignore": ["%p0"]}.get(extra, [])
    if "L2::cache_hint" in opcode:
        lines.append("createpolicy.fractional.L2::evict_first.b64 %d30, 1.0;")
        arguments.append("%d30")
    lines += [f"{opcode} {', '.join(arguments)};", "cp.async.commit_group;", "cp.async.wait_group 0;", "bar.sync 0;"]
    lines += tile_out(64 * size, 64)

    def function(given: Arrays) -> Arrays:
        rows = given["data"].reshape(64, size)
        return {"out": np.where(np.arange(size) < given["kept"][:, None], rows, 0).astype(np.uint8).reshape(-1)}

    text = assembled(["data", "kept", "out"], lines, shared_bytes=DATA + 64 * size)
    return Case(name, text, {"data": data, "kept": kept}, {"out": ((64 * size,), np.uint8)}, 1, 64, function)


def thread_copy_groups(form: str) -> Case:
    """Three groups, of which all but the last two are waited for, then all: `wait_group N` and `wait_all`."""
    name = f"cp.async.{form}/groups"
    data = random_bytes(name, 3 * 64 * 16)
    lines = ["mad.lo.u32 %r0, %t, 16, %base;", f"add.u32 %r0, %r0, {DATA};", at("data", 16)]
    for group in range(3):
        lines += [f"cp.async.cg.shared.global [%r0+{1024 * group}], [%d0+{1024 * group}], 16;"]
        lines += ["cp.async.commit_group;"] if form == "wait_group" or group < 2 else []
    lines += [f"cp.async.wait_group {each};" for each in (2, 1, 0)] if form == "wait_group" else ["cp.async.wait_all;"]
    lines += ["bar.sync 0;", *tile_out(3072, 64)]
    text = assembled(["data", "out"], lines, shared_bytes=DATA + 3072)
    outputs = {"out": ((3072,), np.uint8)}
    return Case(name, text, {"data": data}, outputs, 1, 64, lambda given: {"out": given["data"].copy()})


def thread_copy_barrier(opcode: str) -> Case:
    """Copies that arrive at an mbarrier: with `.noinc` the arrivals are part of its count, else they add to it."""
    data = random_bytes(opcode, 1024)
    count = 65 if "noinc" in opcode else 1
    lines = [*one_barrier(count), "mad.lo.u32 %r0, %t, 16, %base;", f"add.u32 %r0, %r0, {DATA};", at("data", 16)]
    lines += ["cp.async.ca.shared.global [%r0], [%d0], 16;"]
    place = "[%base]"
    if "shared" not in opcode:
        lines += ["cvt.u64.u32 %d3, %base;", "cvta.shared.u64 %d3, %d3;"]
        place = "[%d3]"
    lines += [f"{opcode} {place};", "bar.sync 0;", "@%p1 mbarrier.arrive.shared::cta.b64 _, [%base];", *wait()]
    lines += tile_out(1024, 64)
    text = assembled(["data", "out"], lines, shared_bytes=DATA + 1024)
    outputs = {"out": ((1024,), np.uint8)}
    return Case(opcode, text, {"data": data}, outputs, 1, 64, lambda given: {"out": given["data"].copy()})


# --- bulk copies ------------------------------------------------------------------------------------------------------


def bulk_load(opcode: str, ctas: int = 1) -> Case:
    """One thread brings 2048 bytes; with multicast CTA 0 brings them to both."""
    data = random_bytes(opcode, 2048 * ctas)
    multicast, hint = "multicast" in opcode, "cache_hint" in opcode
    lines = [*one_barrier(), *SYNC, expect(2048), f"add.u32 %r0, %base, {DATA};", at("data", 2048, "%d0", "%cta")]
    arguments = ["[%r0]", "[%d0]", "2048", "[%base]", *(["%h0"] if multicast else []), *(["%d30"] if hint else [])]
    lines += ["mov.b16 %h0, 3;", "setp.eq.and.u32 %p2, %cta, 0, %p1;"] if multicast else ["mov.pred %p2, %p1;"]
    lines += ["createpolicy.fractional.L2::evict_first.b64 %d30, 1.0;"] if hint else []
    lines += [f"@%p2 {opcode} {', '.join(arguments)};", *wait(), *tile_out(2048, 64), *SYNC]

    def function(given: Arrays) -> Arrays:
        return {"out": np.tile(given["data"][:2048], ctas) if multicast else given["data"].copy()}

    text = assembled(["data", "out"], lines, shared_bytes=DATA + 2048)
    outputs = {"out": ((2048 * ctas,), np.uint8)}
    return Case(opcode, text, {"data": data}, outputs, ctas, 64, function, cluster=ctas)


def bulk_between(opcode: str) -> Case:
    """From the shared memory of a CTA into that of the other."""
    data = random_bytes(opcode, 2 * 1024)
    lines = [*one_barrier(), *tile_in(1024, 64, "data"), expect(1024), *SYNC]
    lines += ["mov.u32 %r1, %cluster_ctarank;", "xor.b32 %r1, %r1, 1;", f"add.u32 %r0, %base, {DATA};"]
    lines += [
        "mapa.shared::cluster.u32 %r2, %r0, %r1;",
        "add.u32 %r2, %r2, 1024;",
        "mapa.shared::cluster.u32 %r3, %base, %r1;",
    ]
    lines += [f"@%p1 {opcode} [%r2], [%r0], 1024, [%r3];", *wait()]
    lines += [*tile_out(2048, 64), *SYNC]

    def function(given: Arrays) -> Arrays:
        own = given["data"].reshape(2, 1024)
        return {"out": np.concatenate([own, own[::-1]], axis=1).reshape(-1)}

    text = assembled(["data", "out"], lines, shared_bytes=DATA + 2048)
    outputs = {"out": ((4096,), np.uint8)}
    return Case(opcode, text, {"data": data}, outputs, 2, 64, function, cluster=2)


def bulk_store(opcode: str, wait_form: str = "cp.async.bulk.wait_group 0;") -> Case:
    """Out of shared memory; `wait_form` may wait for the reads only, before the whole is waited for."""
    name = f"{opcode}/{wait_form.split()[0]}"
    data = random_bytes(name, 2048)
    lines = ["setp.eq.u32 %p1, %t, 0;", *tile_in(2048, 64, "data"), f"add.u32 %r0, %base, {DATA};"]
    arguments = ["[%out]", "[%r0]", "2048"]
    if "cache_hint" in opcode:
        lines.append("createpolicy.fractional.L2::evict_first.b64 %d30, 1.0;")
        arguments.append("%d30")
    lines += [f"@%p1 {opcode} {', '.join(arguments)};", "@%p1 cp.async.bulk.commit_group;", f"@%p1 {wait_form}"]
    lines += ["@%p1 cp.async.bulk.wait_group 0;"]
    text = assembled(["data", "out"], lines, shared_bytes=DATA + 2048)
    outputs = {"out": ((2048,), np.uint8)}
    return Case(name, text, {"data": data}, outputs, 1, 64, lambda given: {"out": given["data"].copy()})


def numbers_of(kind: str, name: str, count: int) -> np.ndarray:
    """Values of an element type, floats with subnormals among them."""
    rng = np.random.default_rng(seed_of(name))
    if kind == "f32":
        return near_zero(rng, count)
    bits = {"u32": 32, "s32": 32, "u64": 64, "s64": 64, "f16": 16, "bf16": 16, "f64": 64, "b32": 32, "b64": 64}[kind]
    if kind == "f64":
        return rng.standard_normal(count).view(np.uint64)
    return rng.integers(0, 1 << bits, count, dtype=np.uint64).astype(f"u{bits // 8}")


def bulk_reduction(opcode: str) -> Case:
    """`cp.reduce.async.bulk`: elements of shared memory into global memory, or into the other CTA's."""
    qualifiers = opcode.split(".")
    kind = qualifiers[-1]
    root = next(each for each in qualifiers if each in ("add", "min", "max", "inc", "dec", "and", "or", "xor"))
    to_shared = "mbarrier::complete_tx::bytes" in qualifiers
    count = 1024 // {"32": 4, "64": 8, "16": 2}[kind[-2:]]
    old, new = (numbers_of(kind, f"{opcode}/{each}", count) for each in ("old", "new"))
    if root in ("inc", "dec"):
        old, new = old % 3, new % 3
    inputs = {"old": old, "new": new}
    lines = [*one_barrier(), *tile_in(1024, 64, "new", "0"), f"add.u32 %r0, %base, {DATA};"]
    if to_shared:
        lines += [
            "add.u32 %base, %base, 1024;",
            *tile_in(1024, 64, "old", "0"),
            "sub.u32 %base, %base, 1024;",
            expect(1024),
            *SYNC,
        ]
        lines += ["mov.u32 %r1, %cluster_ctarank;", "xor.b32 %r1, %r1, 1;", "mapa.shared::cluster.u32 %r2, %r0, %r1;"]
        lines += ["add.u32 %r2, %r2, 1024;", "mapa.shared::cluster.u32 %r3, %base, %r1;"]
        lines += [f"@%p1 {opcode} [%r2], [%r0], 1024, [%r3];", *wait(), "add.u32 %base, %base, 1024;"]
        lines += [*tile_out(1024, 64), *SYNC]
    else:
        lines += [at("old", 4, "%d1"), at("out", 4, "%d2")]
        lines += [
            line
            for at_ in range(0, 1024, 256)
            for line in (f"ld.global.b32 %r5, [%d1+{at_}];", f"st.global.b32 [%d2+{at_}], %r5;")
        ]
        lines += ["fence.proxy.async;", "bar.sync 0;", f"@%p1 {opcode} [%out], [%r0], 1024;"]
        lines += ["@%p1 cp.async.bulk.commit_group;", "@%p1 cp.async.bulk.wait_group 0;"]
    ctas = 2 if to_shared else 1

    def function(given: Arrays) -> Arrays:
        return {"out": np.tile(updates(root, kind)(given["old"], given["new"], None), ctas)}

    text = assembled(["old", "new", "out"], lines, shared_bytes=DATA + 2048)
    outputs = {"out": ((count * ctas,), old.dtype.type)}
    return Case(opcode, text, inputs, outputs, ctas, 64, function, cluster=ctas)


# --- tensor copies ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """A tensor in global memory and a box of it, innermost dimension first as the encoder has it."""

    dtype: str
    dims: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: Swizzle = "none"
    steps: tuple[int, ...] = ()
    fill: Literal["zero", "nan"] = "zero"
    pad: int = 0  # bytes between rows

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def size(self) -> int:
        return {"uint8": 1, "float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "UINT64": 8, "UINT16": 2}.get(
            self.dtype, 4
        )

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, of every dimension."""
        found = [self.size]
        for axis, extent in enumerate(self.dims[:-1]):
            found.append(found[-1] * extent + (self.pad if axis == 0 else 0))
        return tuple(found)

    @property
    def bytes(self) -> int:
        return self.strides[-1] * self.dims[-1]

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements of the box along each dimension; the first takes no step."""
        steps = (1, *(self.steps or (1,) * self.rank)[1:])
        return tuple(-(-extent // step) for extent, step in zip(self.box, steps, strict=True))

    @property
    def box_bytes(self) -> int:
        return int(np.prod(self.counts)) * self.size

    def parameter(self, buffer: str) -> Map:
        fields: dict[str, Any] = {
            "name": "map",
            "buffer": buffer,
            "dtype": self.dtype,
            "rank": self.rank,
            "global_dim": list(self.dims),
            "global_stride_bytes": list(self.strides[1:]),
            "box_dim": list(self.box),
            "element_strides": list(self.steps or (1,) * self.rank),
            "swizzle": self.swizzle,
            "oob_fill": self.fill,
        }
        return ElementMapParam(**fields) if self.dtype.isupper() else TensorMapParam(**fields)

    def places(self, start: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each element of the box at `start`: its byte in global memory, whether the tensor holds it, and its byte
        in shared memory from a pattern's start."""
        steps = (1, *(self.steps or (1,) * self.rank)[1:])
        where = np.zeros(1, np.int64)
        inside = np.ones(1, bool)
        for axis in range(self.rank):  # the innermost dimension varies fastest
            along = start[axis] + np.arange(self.counts[axis]) * steps[axis]
            held = (along >= 0) & (along < self.dims[axis])
            where = (along[:, None] * self.strides[axis] + where[None, :]).ravel()
            inside = (held[:, None] & inside[None, :]).ravel()
        linear = np.arange(where.size) * self.size
        mask = {"none": 0, "32B": 0x10, "64B": 0x30, "128B": 0x70}[self.swizzle]
        return where, inside, linear ^ (linear >> 3 & mask)


def _coordinates(start: Sequence[int]) -> str:
    return "{" + ", ".join(str(each) for each in start) + "}"


def tensor_load(form: str, tensor: Tensor, start: Sequence[int], tag: str, *, ctas: int = 1) -> Case:
    """One box into shared memory; with multicast CTA 0 brings it to all CTAs of the cluster."""
    name = f"{form}/{tag}"
    data = _content(tensor, name)
    size = tensor.box_bytes
    multicast = "multicast" in form
    lines = [*one_barrier(), *(SYNC if ctas > 1 else []), expect(size), f"add.u32 %r0, %base, {DATA};"]
    arguments = ["[%r0]", f"[%map, {_coordinates(start)}]", "[%base]"]
    if multicast:
        lines += [f"mov.b16 %h0, {(1 << ctas) - 1};", "setp.eq.and.u32 %p2, %cta, 0, %p1;"]
        arguments.append("%h0")
    else:
        lines.append("mov.pred %p2, %p1;")
    if "cache_hint" in form:
        lines.append("createpolicy.fractional.L2::evict_first.b64 %d30, 1.0;")
        arguments.append("%d30")
    lines += [f"@%p2 {form} {', '.join(arguments)};", *wait(), *tile_out(size, 64), *(SYNC if ctas > 1 else [])]

    def function(given: Arrays) -> Arrays:
        where, inside, to = tensor.places(start)
        result = np.zeros(size, np.uint8)
        blank = np.resize(np.array([0xF7, 0x7F] if tensor.fill == "nan" else [0], np.uint8), tensor.size)
        for each in range(tensor.size):
            result[to + each] = np.where(inside, given["data"][np.where(inside, where, 0) + each], blank[each])
        if tensor.dtype in _LOADED:
            result = _LOADED[tensor.dtype](result.view(np.uint32)).view(np.uint8)
        return {"out": np.tile(result, ctas)}

    extra = (tensor.parameter("data"),)
    text = assembled(["data", "out"], lines, extra=extra, shared_bytes=DATA + size)
    outputs = {"out": ((size * ctas,), np.uint8)}
    return Case(name, text, {"data": data}, outputs, ctas, 64, function, cluster=ctas, extra=extra)


def _tf32(words: np.ndarray) -> np.ndarray:
    """Nearest of 10 bits of mantissa, even half way; one NaN."""
    values = words.view(np.float32).astype(np.float64)
    step = np.exp2(np.maximum(np.frexp(values)[1] - 1, -126) - 10.0)
    near = (np.rint(values / step) * step).astype(np.float32).view(np.uint32)
    return np.where(np.isnan(values), np.uint32(0x7FFFE000), np.where(np.isinf(values), words, near))


_LOADED = {"TFLOAT32": _tf32, "TFLOAT32_FTZ": _tf32}


def _content(tensor: Tensor, name: str) -> np.ndarray:
    if tensor.dtype.startswith("TFLOAT32"):
        return _edges_of_tf32(tensor.bytes // 4, name).view(np.uint8)
    if tensor.size == 4 and "FLOAT" in tensor.dtype.upper():
        count = tensor.bytes // 4
        return tricky_f32(seed_of(name), max(count, 400))[:count].view(np.uint8)
    return random_bytes(name, tensor.bytes)


def _edges_of_tf32(count: int, name: str) -> np.ndarray:
    """Values half way and next to it, subnormal numbers, infinities and NaNs, of both signs; then anything."""
    rng = np.random.default_rng(seed_of(name))
    words = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    words[::2] = (
        words[::2] & np.uint32(0xFFFFE000) | rng.choice(np.array([0xFFF, 0x1000, 0x1001], np.uint32), count)[::2]
    )
    special = [
        0x7F800000,
        0x7F800001,
        0x7FC00000,
        0x7FFFFFFF,
        0x7F7FFFFF,
        0x7F7FEFFF,
        1,
        0xFFF,
        0x1000,
        0x3000,
        0x7FF000,
        0x7FFFFF,
        0,
        0x800000,
    ]
    signed = np.array(special + [each | 1 << 31 for each in special], np.uint32)
    words[5 : 5 + 9 * len(signed) : 9] = signed[: len(words[5 : 5 + 9 * len(signed) : 9])]
    return words


def tensor_store(form: str, tensor: Tensor, start: Sequence[int], tag: str) -> Case:
    """One box out of shared memory; what lies outside the tensor stays as it was."""
    name = f"{form}/{tag}"
    size = tensor.box_bytes
    inputs = {"data": random_bytes(name, size), "before": random_bytes(name + "/before", tensor.bytes)}
    lines = [*one_barrier(), *tile_in(size, 64, "data", "0"), f"add.u32 %r0, %base, {DATA};", *_given(tensor.bytes)]
    arguments = [f"[%map, {_coordinates(start)}]", "[%r0]"]
    if "cache_hint" in form:
        lines.append("createpolicy.fractional.L2::evict_first.b64 %d30, 1.0;")
        arguments.append("%d30")
    lines += [
        f"@%p1 {form} {', '.join(arguments)};",
        "@%p1 cp.async.bulk.commit_group;",
        "@%p1 cp.async.bulk.wait_group 0;",
    ]

    def function(given: Arrays) -> Arrays:
        where, inside, source = tensor.places(start)
        result = given["before"].copy()
        for each in range(tensor.size):
            result[where[inside] + each] = given["data"][source[inside] + each]
        return {"out": result}

    extra = (tensor.parameter("out"),)
    text = assembled([*inputs, "out"], lines, extra=extra, shared_bytes=DATA + size)
    return Case(name, text, inputs, {"out": ((tensor.bytes,), np.uint8)}, 1, 64, function, extra=extra)


def _given(size: int) -> list[str]:
    """The output begins as the array `before`; the async proxy sees that."""
    lines = [at("before", 4, "%d1"), at("out", 4, "%d2")]
    for offset in range(0, size, 256):
        lines += [f"setp.lt.u32 %p11, %t, {(size - offset + 3) // 4};", f"@%p11 ld.global.b32 %r5, [%d1+{offset}];"]
        lines.append(f"@%p11 st.global.b32 [%d2+{offset}], %r5;")
    return [*lines, "fence.proxy.async;", "bar.sync 0;"]


_KINDS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int32": "s32", "uint32": "u32",
    "int64": "s64",
          "UINT64": "u64", "FLOAT32_FTZ": "f32", "TFLOAT32": "f32", "TFLOAT32_FTZ": "f32"}  # fmt: skip


def tensor_reduction(form: str, dtype: str) -> Case:
    """`cp.reduce.async.bulk.tensor` of a box that ends outside the tensor."""
    name = f"{form}/{dtype}"
    kind = _KINDS[dtype]
    root = next(each for each in form.split(".") if each in ("add", "min", "max", "inc", "dec", "and", "or", "xor"))
    rank = int(next(each[0] for each in form.split(".") if each in ("1d", "2d", "3d", "4d", "5d")))
    size = int(kind[-2:]) // 8
    dims = ((128 // size, 6, 2, 2, 2) if rank > 1 else (1024 // size,))[:rank]
    tensor = Tensor(dtype, dims, ((64 // size, 4, 1, 1, 1) if rank > 1 else (256 // size,))[:rank])
    start = (96 // size, 3, 1, 0, 1)[:rank] if rank > 1 else (832 // size,)
    count = tensor.box_bytes // size
    inputs = {
        "data": numbers_of(kind, f"{name}/new", count),
        "before": numbers_of(kind, f"{name}/old", tensor.bytes // size),
    }
    if root in ("inc", "dec"):
        inputs = {key: each % 3 for key, each in inputs.items()}
    lines = [
        *one_barrier(),
        *tile_in(tensor.box_bytes, 64, "data", "0"),
        f"add.u32 %r0, %base, {DATA};",
        *_given(tensor.bytes),
    ]
    lines += [f"@%p1 {form} [%map, {_coordinates(start)}], [%r0];"]
    lines += ["@%p1 cp.async.bulk.commit_group;", "@%p1 cp.async.bulk.wait_group 0;"]

    def function(given: Arrays) -> Arrays:
        where, inside, source = tensor.places(start)
        result = given["before"].copy()
        at_, from_ = where[inside] // size, source[inside] // size
        result[at_] = updates(root, kind, flushed=dtype.endswith("FTZ"))(result[at_], given["data"][from_], None)
        return {"out": result}

    extra = (tensor.parameter("out"),)
    text = assembled([*inputs, "out"], lines, extra=extra, shared_bytes=DATA + tensor.box_bytes)
    dtype_of = inputs["data"].dtype.type
    return Case(name, text, inputs, {"out": ((tensor.bytes // size,), dtype_of)}, 1, 64, function, extra=extra)


# --- stores that land later -------------------------------------------------------------------------------------------


def remote_store(opcode: str) -> Case:
    """`st.async` of every thread into the other CTA's tile."""
    qualifiers = opcode.split(".")
    count = next((int(each[1:]) for each in qualifiers if each in ("v2", "v4")), 1)
    bits = int(qualifiers[-1][1:])
    size = count * bits // 8
    data = random_bytes(opcode, 2 * 64 * size)
    lines = [*one_barrier(), expect(64 * size), *SYNC, *_other(size), at("data", size)]
    names = [f"%{'r' if bits == 32 else 'd'}{20 + each}" for each in range(count)]
    lines += [f"ld.global.b{bits} {name}, [%d0+{index * bits // 8}];" for index, name in enumerate(names)]
    value = names[0] if count == 1 else "{" + ", ".join(names) + "}"
    lines += [f"{opcode} [%r2], {value}, [%r3];", *wait(), *tile_out(64 * size, 64), *SYNC]

    def function(given: Arrays) -> Arrays:
        return {"out": given["data"].reshape(2, -1)[::-1].reshape(-1).copy()}

    text = assembled(["data", "out"], lines, shared_bytes=DATA + 64 * size)
    outputs = {"out": ((2 * 64 * size,), np.uint8)}
    return Case(opcode, text, {"data": data}, outputs, 2, 64, function, cluster=2)


def _other(size: int) -> list[str]:
    """%r2 is the thread's place of `size` bytes in the other CTA's tile, %r3 the other's mbarrier."""
    lines = ["mov.u32 %r1, %cluster_ctarank;", "xor.b32 %r1, %r1, 1;", f"mad.lo.u32 %r0, %t, {size}, %base;"]
    lines += [f"add.u32 %r0, %r0, {DATA};", "mapa.shared::cluster.u32 %r2, %r0, %r1;"]
    return [*lines, "mapa.shared::cluster.u32 %r3, %base, %r1;"]


def remote_reduction(opcode: str) -> Case:
    """`red.async` of every thread on its own place in the other CTA's tile."""
    qualifiers = opcode.split(".")
    kind = qualifiers[-1]
    root = next(each for each in qualifiers if each in ("add", "min", "max", "inc", "dec", "and", "or", "xor"))
    bits = int(kind[1:])
    size = bits // 8
    inputs = {each: numbers_of(kind, f"{opcode}/{each}", 128) for each in ("old", "new")}
    if root in ("inc", "dec"):
        inputs = {name: each % 3 for name, each in inputs.items()}
    lines = [*one_barrier(), expect(64 * size), *tile_in(64 * size, 64, "old"), *SYNC, *_other(size), at("new", size)]
    value = "%r20" if bits == 32 else "%d20"
    lines += [f"ld.global.b{bits} {value}, [%d0];", f"{opcode} [%r2], {value}, [%r3];", *wait()]
    lines += [*tile_out(64 * size, 64), *SYNC]

    def function(given: Arrays) -> Arrays:
        other = given["new"].reshape(2, 64)[::-1].reshape(-1)
        return {"out": updates(root, kind)(given["old"], other, None)}

    text = assembled([*inputs, "out"], lines, shared_bytes=DATA + 64 * size)
    outputs = {"out": ((128,), inputs["old"].dtype.type)}
    return Case(opcode, text, inputs, outputs, 2, 64, function, cluster=2)


# --- maps that a kernel makes -----------------------------------------------------------------------------------------


def made_map() -> Case:
    """A map is copied into shared memory, every field is replaced, it is published, and a box is loaded through it."""
    name = "tensormap.replace"
    tensor = Tensor("float16", (64, 16), (32, 8), "64B")
    old = Tensor("uint8", (32, 4, 2), (16, 2, 1))
    data = random_bytes(name, tensor.bytes)
    start = (40, 10)
    lines = [*one_barrier(), "setp.lt.u32 %p3, %t, 32;", "mad.lo.u32 %r0, %t, 4, %base;", f"add.u32 %r0, %r0, {DATA};"]
    lines += [
        "mul.wide.u32 %d5, %t, 4;",
        "add.s64 %d5, %d5, %map;",
        "@%p3 ld.b32 %r1, [%d5];",
        "@%p3 st.shared.b32 [%r0], %r1;",
    ]
    lines += ["bar.sync 0;", f"add.u32 %r2, %base, {DATA};"]
    for field, kind, *rest in _FIELDS:
        lines.append(f"@%p1 tensormap.replace.tile.{field}.shared::cta.b1024.{kind} [%r2], {', '.join(rest)};")
    lines.insert(-len(_FIELDS), "mov.b64 %d8, 128;")
    lines += ["bar.sync 0;", "@!%p3 bra PUBLISHED;"]
    lines += [f"{_PUBLISH} [%room], [%r2], 128;", "PUBLISHED:", "bar.sync 0;", f"{_ACQUIRE} [%room], 128;"]
    lines += [expect(tensor.box_bytes), f"add.u32 %r3, %base, {2 * DATA};"]
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    lines += [f"@%p1 {load} [%r3], [%room, {_coordinates(start)}], [%base];", *wait(), f"add.u32 %base, %base, {DATA};"]
    lines += tile_out(tensor.box_bytes, 64)

    def function(given: Arrays) -> Arrays:
        where, inside, to = tensor.places(start)
        result = np.zeros(tensor.box_bytes, np.uint8)
        for each in range(2):
            result[to + each] = np.where(inside, given["data"][np.where(inside, where, 0) + each], 0)
        return {"out": result}

    extra = (old.parameter("data"),)
    text = assembled(["data", "room", "out"], lines, extra=extra, shared_bytes=2 * DATA + tensor.box_bytes)
    inputs = {"data": data, "room": np.zeros(128, np.uint8)}
    return Case(name, text, inputs, {"out": ((tensor.box_bytes,), np.uint8)}, 1, 64, function, extra=extra)


def prefetched() -> Case:
    """Prefetches of a map and of its boxes, before a load through it."""
    tensor = Tensor("uint8", (32, 4, 3, 2, 2), (16, 2, 2, 1, 2))
    case = tensor_load(f"{_BULK}.tensor.5d.shared::cluster.global.{_TX}", tensor, (16, 1, 1, 1, 0), "prefetched")
    lines = ["prefetch.tensormap [%map];", "prefetch.param.tensormap [map];"]
    lines += [f"cp.async.bulk.prefetch.tensor.5d.L2.global [%map, {_coordinates((16, 1, 1, 1, 0))}];"]
    lines += [f"cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%map, {_coordinates((0, 0, 0, 0, 0))}];"]
    ptx = case.ptx.replace(
        "    mov.u32 %base, tile;", "\n".join(["    mov.u32 %base, tile;", *(f"    {line}" for line in lines)])
    )
    return replace(case, name="prefetch.tensormap", ptx=ptx)


_PUBLISH = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
_ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu"
_FIELDS = (
    ("global_address", "b64", "%data"), ("rank", "b32", "1"), ("box_dim", "b32", "0", "32"), ("box_dim", "b32", "1",
    "8"),
    ("global_dim", "b32", "0", "64"), ("global_dim", "b32", "1", "16"), ("global_stride", "b64", "0", "%d8"),
    ("element_stride", "b32", "0", "1"), ("element_stride", "b32", "1", "1"), ("elemtype", "b32", "6"),
    ("interleave_layout", "b32", "0"), ("swizzle_mode", "b32", "2"), ("fill_mode", "b32", "0"),
)  # fmt: skip


# --- the forms --------------------------------------------------------------------------------------------------------

_MAP_FLOATS = ("FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ")
_BULK = "cp.async.bulk"
_TX = "mbarrier::complete_tx::bytes"


def _thread_cases() -> list[Case]:
    ca, cg = "cp.async.ca.shared.global", "cp.async.cg.shared.global"
    cases = [thread_copy(ca, size, extra) for size in (4, 8, 16) for extra in ("", "register", "ignore")]
    cases += [thread_copy(cg, 16, extra) for extra in ("", "register", "immediate", "ignore")]
    cases += [
        thread_copy(f"{form}.{hint}", 16)
        for form in (ca, cg)
        for hint in ("L2::64B", "L2::128B", "L2::256B", "L2::cache_hint")
    ]
    cases += [thread_copy(f"cp.async.{each}.shared::cta.global", 16) for each in ("ca", "cg")]
    cases += [thread_copy_groups("wait_group"), thread_copy_groups("wait_all")]
    forms = ("noinc.shared.b64", "noinc.shared::cta.b64", "shared.b64", "shared::cta.b64", "noinc.b64", "b64")
    return cases + [thread_copy_barrier(f"cp.async.mbarrier.arrive.{form}") for form in forms]


def _bulk_cases() -> list[Case]:
    cluster, cta = (f"{_BULK}.shared::{each}.global.{_TX}" for each in ("cluster", "cta"))
    cases = [bulk_load(cluster), bulk_load(cta), bulk_load(f"{cluster}.L2::cache_hint")]
    cases += [
        bulk_load(f"{cluster}.multicast::cluster", 2),
        bulk_load(f"{cluster}.multicast::cluster.L2::cache_hint", 2),
    ]
    cases.append(bulk_between(f"{_BULK}.shared::cluster.shared::cta.{_TX}"))
    store = f"{_BULK}.global.shared::cta.bulk_group"
    cases += [
        bulk_store(store),
        bulk_store(f"{store}.L2::cache_hint"),
        bulk_store(store, f"{_BULK}.wait_group.read 0;"),
    ]
    prefix = "cp.reduce.async.bulk.global.shared::cta.bulk_group"
    forms = [f"{root}.{kind}" for root in ("add", "min", "max") for kind in ("u32", "s32", "u64")]
    forms += ["min.s64", "max.s64", "add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16", "min.f16", "max.bf16",
    "inc.u32",
              "dec.u32", *(f"{root}.{kind}" for root in ("and", "or", "xor") for kind in ("b32", "b64"))]  # fmt: skip
    cases += [bulk_reduction(f"{prefix}.{form}") for form in forms]
    inside = f"cp.reduce.async.bulk.shared::cluster.shared::cta.{_TX}"
    forms = [
        "add.u32",
        "add.s32",
        "add.u64",
        "min.u32",
        "min.s32",
        "max.u32",
        "max.s32",
        "inc.u32",
        "dec.u32",
        "and.b32",
        "or.b32",
        "xor.b32",
    ]
    return cases + [bulk_reduction(f"{inside}.{form}") for form in forms]


def _loads() -> list[Case]:
    def form(rank: int, more: str = "", to: str = "cluster") -> str:
        return f"{_BULK}.tensor.{rank}d.shared::{to}.global{more}.{_TX}"

    plain = [
        ("whole", Tensor("float16", (512,), (128,)), (64,)),
        ("past both ends", Tensor("uint8", (64,), (128,)), (-32,)),
        ("inside", Tensor("float32", (24, 12), (16, 8)), (4, 2)),
        ("past the corner", Tensor("bfloat16", (40, 12), (32, 8)), (24, 7)),
        ("before the corner", Tensor("float64", (12, 12), (8, 8)), (-4, -2)),
        ("wholly outside", Tensor("float32", (24, 12), (16, 8)), (40, 3)),
        ("inside", Tensor("float16", (32, 6, 5), (16, 4, 3)), (8, 1, 1)),
        ("past the corner", Tensor("int32", (16, 6, 5), (8, 4, 3)), (12, 4, 3)),
        ("inside", Tensor("uint8", (48, 5, 4, 3), (32, 3, 2, 2)), (16, 1, 1, 0)),
        ("past the corner", Tensor("float32", (10, 5, 4, 3), (4, 3, 3, 2), pad=8), (8, 3, 2, 2)),
        ("inside", Tensor("bfloat16", (16, 4, 3, 3, 2), (8, 2, 2, 2, 2)), (8, 1, 1, 0, 0)),
        ("past the corner", Tensor("uint32", (6, 4, 3, 3, 2), (4, 3, 2, 2, 2), pad=8), (4, 2, 2, 2, 1)),
        ("padded rows", Tensor("float16", (40, 12), (32, 8), pad=16), (8, 2)),
        ("int64", Tensor("int64", (12, 8), (8, 4)), (2, 1)),
    ]  # fmt: skip
    cases = [tensor_load(form(tensor.rank), tensor, start, tag) for tag, tensor, start in plain]
    widths: dict[Swizzle, int] = {"32B": 32, "64B": 64, "128B": 128}
    for swizzle, width in widths.items():
        full = Tensor("bfloat16", (128, 40), (width // 2, 32), swizzle)
        cases.append(tensor_load(form(2), full, (32, 3), f"{swizzle}"))
        cases.append(
            tensor_load(
                form(2), Tensor("uint8", (256, 20), (width, 16), swizzle), (240, 10), f"{swizzle} past the corner"
            )
        )
        deep = Tensor("float16", (64, 12, 4), (width // 2, 8, 2), swizzle)
        cases.append(tensor_load(form(3), deep, (0, 2, 1), f"{swizzle}"))
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        tensor = Tensor(dtype, (24, 12), (16, 8), fill="nan")
        cases.append(tensor_load(form(2), tensor, (16, 7), f"NaN fill of {dtype}"))
    strided = [
        ("every second row", Tensor("float16", (32, 40), (16, 16), steps=(1, 2)), (8, 3)),
        ("every third of a box that it does not divide", Tensor("uint8", (32, 40), (32, 16), steps=(1, 3)), (0, 30)),
        ("a step along the rows, which is ignored", Tensor("float32", (32, 8), (16, 4), steps=(2, 1)), (4, 2)),
        ("steps in three dimensions", Tensor("float16", (16, 12, 10), (8, 8, 6), steps=(1, 4, 2)), (8, 3, 5)),
    ]  # fmt: skip
    cases += [tensor_load(form(tensor.rank), tensor, start, tag) for tag, tensor, start in strided]
    cases += [
        tensor_load(form(2), Tensor(each, (32, 16), (32, 16)), (0, 0), each)
        for each in ("FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ")
    ]
    box = Tensor("float16", (64, 24), (64, 8), "128B")
    small = {1: Tensor("float16", (64,), (32,)), 3: Tensor("float16", (16, 6, 4), (8, 4, 2)), 4: Tensor("uint8", (32,
    4, 3, 2), (16, 2, 2, 2)),
             5: Tensor("uint8", (32, 4, 3, 2, 2), (16, 2, 2, 1, 2))}  # fmt: skip
    for rank, tensor in {**small, 2: box}.items():
        start = (16 // tensor.size, *(1,) * (rank - 1)) if rank > 1 else (16,)
        cases.append(tensor_load(form(rank, to="cta"), tensor, start, "cta"))
        cases.append(tensor_load(form(rank, ".tile", to="cluster"), tensor, start, "tile"))
        cases.append(tensor_load(f"{form(rank)}.multicast::cluster", tensor, start, "two CTAs", ctas=2))
    cases.append(tensor_load(f"{form(2)}.multicast::cluster", box, (0, 20), "four CTAs, past the end", ctas=4))
    cases.append(tensor_load(f"{form(2)}.L2::cache_hint", box, (0, 5), "hint"))
    cases.append(tensor_load(f"{form(2)}.multicast::cluster.L2::cache_hint", box, (0, 5), "hint", ctas=2))
    return [*cases, made_map(), prefetched()]


def _stores() -> list[Case]:
    def form(rank: int, more: str = "") -> str:
        return f"{_BULK}.tensor.{rank}d.global.shared::cta{more}.bulk_group"

    cases = [
        tensor_store(form(1), Tensor("float16", (512,), (128,)), (448,), "past the end"),
        tensor_store(form(2), Tensor("float32", (24, 12), (16, 8)), (4, 2), "inside"),
        tensor_store(form(2), Tensor("bfloat16", (40, 12), (32, 8)), (24, 7), "past the corner"),
        tensor_store(form(3), Tensor("float16", (32, 6, 5), (16, 4, 3)), (24, 4, 3), "past the corner"),
        tensor_store(form(4), Tensor("uint8", (48, 5, 4, 3), (32, 3, 2, 2)), (16, 3, 3, 2), "past the corner"),
        tensor_store(form(5), Tensor("uint8", (32, 4, 3, 3, 2), (16, 2, 2, 2, 2)), (16, 3, 1, 2, 0), "past the corner"),
        tensor_store(form(2), Tensor("float16", (32, 40), (16, 16), steps=(1, 2)), (8, 3), "every second row"),
        tensor_store(form(2, ".tile"), Tensor("float32", (24, 12), (16, 8)), (4, 2), "tile"),
        tensor_store(f"{form(2)}.L2::cache_hint", Tensor("float32", (24, 12), (16, 8)), (4, 2), "hint"),
    ]
    cases += [tensor_store(form(2), Tensor(each, (32, 16), (32, 16)), (0, 0), f"store {each}") for each in _MAP_FLOATS]
    swizzles: dict[Swizzle, int] = {"32B": 32, "64B": 64, "128B": 128}
    for swizzle, width in swizzles.items():
        tensor = Tensor("float16", (96, 20), (width // 2, 16), swizzle)
        cases.append(tensor_store(form(2), tensor, (8, 3), swizzle))
        cases.append(
            tensor_store(
                form(2), Tensor("float32", (40, 20), (width // 4, 16), swizzle), (36, 10), f"{swizzle} past the corner"
            )
        )
    reduce = "cp.reduce.async.bulk.tensor.{}d.global.shared::cta.{}.tile.bulk_group"
    for root in ("add", "min", "max"):
        for dtype in (
            "float16",
            "bfloat16",
            "int32",
            "uint32",
            "UINT64",
            *(("float32",) if root == "add" else ("int64",)),
        ):
            cases.append(tensor_reduction(reduce.format(2, root), dtype))
    cases += [tensor_reduction(reduce.format(2, root), "uint32") for root in ("and", "or", "xor", "inc", "dec")]
    cases += [tensor_reduction(reduce.format(rank, "add"), "float32") for rank in (1, 3, 4, 5)]
    cases += [tensor_reduction(reduce.format(2, "add"), each) for each in _MAP_FLOATS]
    plain = reduce.replace(".tile", "")
    cases += [
        tensor_reduction(plain.format(2, root), "uint32")
        for root in ("add", "min", "max", "and", "or", "xor", "inc", "dec")
    ]
    cases += [tensor_reduction(plain.format(2, root), "float16") for root in ("add", "min", "max")]
    cases += [
        tensor_reduction(plain.format(rank, root), "int32") for rank in (1, 3, 4, 5) for root in ("min", "max", "xor")
    ]
    return cases + [tensor_reduction(plain.format(rank, "add"), "float32") for rank in (1, 2, 3, 4, 5)]


def _later_cases() -> list[Case]:
    prefix = f"async.shared::cluster.{_TX}"
    cases = [remote_store(f"st.{prefix}.{kind}") for kind in ("b32", "b64", "v2.b32", "v4.b32", "v2.b64")]
    cases += [remote_store(f"st.async.weak.shared::cluster.{_TX}.{kind}") for kind in ("b32", "v4.b32")]
    cases += [remote_store(f"st.{prefix}.{kind}") for kind in ("f32", "v4.f32")]
    forms = [f"{root}.{kind}" for root in ("add", "min", "max") for kind in ("u32", "s32")]
    forms += ["add.u64", "inc.u32", "dec.u32", "and.b32", "or.b32", "xor.b32"]
    return cases + [remote_reduction(f"red.async.relaxed.cluster.shared::cluster.{_TX}.{form}") for form in forms]


def copy_cases() -> list[Case]:
    return [*_thread_cases(), *_bulk_cases(), *_loads(), *_stores(), *_later_cases()]
