"""Cases of loads, stores and atomics: every thread at a place of its own, so that no order shows in what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from advisor.emulator.numbers import operation
from advisor.emulator.operation import WIDTH, unsigned
from advisor.records.launch import BytesParam
from tests.emulator.golden.text import Arrays, Case, assembled, at, seed_of

THREADS = 64
TILE = 4096  # bytes of shared memory: up to 64 for each thread

BITS = {**WIDTH, "b128": 128}
_CLUSTER = ["barrier.cluster.arrive.release;", "barrier.cluster.wait.acquire;"]


def parts(opcode: str) -> tuple[str, int]:
    """The type of an access, and the elements of its vector."""
    qualifiers = opcode.split(".")
    count = next((int(each[1:]) for each in qualifiers if each in ("v2", "v4", "v8")), 1)
    return next(each for each in reversed(qualifiers) if each in BITS), count


def place(opcode: str) -> str:
    """The state space of an access."""
    for space in ("shared::cluster", "shared::cta", "shared", "local", "param", "const", "global"):
        if space in opcode.split("."):
            return space
    return "generic"


def random_bytes(name: str, count: int) -> np.ndarray:
    return np.random.default_rng(seed_of(name)).integers(0, 256, count, dtype=np.uint8)


# --- places -----------------------------------------------------------------------------------------------------------


def prologue(space: str, pointer: str, size: int) -> tuple[list[str], str]:
    """Lines that leave the thread's place of `size` bytes in a register, and the register."""
    if space == "global":
        return [at(pointer, size)], "%d0"
    if space == "generic":  # of a pointer into global memory: the numbers are the same
        return [at(pointer, size)], "%d0"
    if space == "shared::cluster":  # of the other CTA
        lines = [f"mad.lo.u32 %r0, %t, {size}, %base;", "mov.u32 %r1, %cluster_ctarank;", "xor.b32 %r1, %r1, 1;"]
        return [*lines, "mapa.shared::cluster.u32 %r0, %r0, %r1;"], "%r0"
    return [f"mad.lo.u32 %r0, %t, {size}, %base;"], "%r0"


def move(pointer: str, size: int, *, to_tile: bool) -> list[str]:
    """Each thread carries its `size` bytes between a global array and its place in the tile, in words or halves."""
    width = 4 if size % 4 == 0 else size
    kind = {1: "u8", 2: "b16", 4: "b32"}[width]
    value = "%r40" if width == 4 else "%h30"
    lines = [f"mad.lo.u32 %r41, %t, {size}, %base;", at(pointer, size, "%d40")]
    for offset in range(0, size, width):
        if to_tile:
            lines += [f"ld.global.{kind} {value}, [%d40+{offset}];", f"st.shared.{kind} [%r41+{offset}], {value};"]
        else:
            lines += [f"ld.shared.{kind} {value}, [%r41+{offset}];", f"st.global.{kind} [%d40+{offset}], {value};"]
    return lines


def registers(kind: str, count: int) -> tuple[list[str], str]:
    """Registers for `count` values of a type, and their PTX vector."""
    letter = {8: "h", 16: "h", 32: "r", 64: "d", 128: "q"}[BITS[kind]]
    names = [f"%{letter}{10 + index if letter != 'q' else index}" for index in range(count)]
    return names, names[0] if count == 1 else "{" + ", ".join(names) + "}"


def other_half(values: np.ndarray, space: str) -> np.ndarray:
    """What the other CTA holds, where an access goes there."""
    if space != "shared::cluster":
        return values
    return np.concatenate([values[THREADS:], values[:THREADS]])


# --- loads ------------------------------------------------------------------------------------------------------------


def load(opcode: str) -> Case:
    """Every thread loads its elements and stores them, each extended to 32 or 64 bits by its type."""
    kind, count = parts(opcode)
    space, bits = place(opcode), BITS[kind]
    size = bits // 8 * count
    ctas = 2 if space == "shared::cluster" else 1
    threads = THREADS * ctas
    data = random_bytes(opcode, threads * size)
    names, vector = registers(kind, count)
    lines: list[str] = []
    if "L2::cache_hint" in opcode:
        lines.append("createpolicy.fractional.L2::evict_first.b64 %d30, 1.0;")
    hint = ", %d30" if lines else ""
    if space.startswith("shared"):
        lines += [*move("data", size, to_tile=True), *(_CLUSTER if ctas == 2 else ["bar.sync 0;"])]
    if space == "local":
        lines += [f".local .align 16 .b8 stack[{size}];", at("data", size, "%d40")]
        for offset in range(0, size, 4):
            lines += [f"ld.global.b32 %r40, [%d40+{offset}];", f"st.local.b32 [stack+{offset}], %r40;"]
        before, address = [], "stack"
    else:
        before, address = prologue(space, "data", size)
    lines += [*before, f"{opcode} {vector}, [{address}]{hint};"]
    out_bits = max(32, bits)
    for index, name in enumerate(names):
        lines += _extended(name, kind)
        value = {128: name, 64: name, 32: name}.get(bits, "%r42")
        lines += [f"add.u32 %r43, %g, {index * threads};", at("out", out_bits // 8, "%d41", "%r43")]
        lines.append(f"st.global.b{out_bits} [%d41], {value};")
    if ctas == 2:
        lines += _CLUSTER
    pointers = ["data", "out"]
    shape = (count, threads, *((2,) if bits == 128 else ()))

    def function(given: Arrays) -> Arrays:
        raw = other_half(given["data"].reshape(threads, size), space)
        words = np.ascontiguousarray(raw).view({8: "u1", 16: "u2", 32: "u4", 64: "u8", 128: "u8"}[bits])
        if bits < 32 and kind[0] == "s":
            words = words.view(f"i{bits // 8}").astype(np.int32).view(np.uint32)
        wide = words.astype(np.uint64 if bits >= 64 else np.uint32).reshape(threads, count, -1)
        return {"out": np.ascontiguousarray(np.swapaxes(wide, 0, 1)).reshape(shape)}

    text = assembled(pointers, lines, shared_bytes=TILE if space.startswith("shared") else 0)
    outputs = {"out": (shape, np.uint64 if bits >= 64 else np.uint32)}
    return Case(opcode, text, {"data": data}, outputs, ctas, THREADS, function, cluster=ctas)


def _extended(name: str, kind: str) -> list[str]:
    if BITS[kind] > 16:
        return []
    source = {"u": "u", "s": "s"}.get(kind[0], "u") + str(BITS[kind])
    return [f"cvt.{'s' if source[0] == 's' else 'u'}32.{source} %r42, {name};"]


def from_parameter(opcode: str) -> Case:
    """`ld.param` of a struct by value, and of its parts."""
    kind, count = parts(opcode)
    size = BITS[kind] // 8 * count
    content = random_bytes(opcode, size)
    names, vector = registers(kind, count)
    lines = [f"{opcode} {vector}, [given];"]
    width = max(32, BITS[kind])
    for index, name in enumerate(names):
        lines += [*_extended(name, kind), at("out", width // 8 * count)]
        lines.append(f"st.global.b{width} [%d0+{index * width // 8}], {name if width == BITS[kind] else '%r42'};")
    word: Any = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[BITS[kind]]
    number: Any = np.uint64 if width == 64 else np.uint32

    def function(given: Arrays) -> Arrays:
        return {"out": np.tile(content.view(word).astype(number), (32, 1))}

    extra = (BytesParam(name="given", value=content.tobytes().hex()),)
    text = assembled(["out"], lines, extra=extra)
    return Case(opcode, text, {}, {"out": ((32, count), number)}, 1, 32, function, extra=extra)


def from_constant() -> Case:
    """Constant memory with an initialiser, at an address that the thread computes."""
    values = np.arange(64, dtype=np.uint32) * np.uint32(2654435761)
    initial = ", ".join(str(each) for each in values)
    lines = ["mul.wide.u32 %d1, %t, 4;", "mov.u64 %d2, table;", "add.s64 %d1, %d1, %d2;", "ld.const.b32 %r0, [%d1];"]
    lines += [at("out", 4), "st.global.b32 [%d0], %r0;"]
    text = assembled(["out"], lines, module=f".const .align 4 .b32 table[64] = {{{initial}}};\n")
    outputs = {"out": ((64,), np.uint32)}
    return Case("ld.const.b32", text, {}, outputs, 1, 64, lambda given: {"out": values.copy()})


# --- stores -----------------------------------------------------------------------------------------------------------


def store(opcode: str) -> Case:
    """Every thread stores the low bits of its registers."""
    kind, count = parts(opcode)
    space, bits = place(opcode), BITS[kind]
    size = bits // 8 * count
    ctas = 2 if space == "shared::cluster" else 1
    threads = THREADS * ctas
    data = random_bytes(opcode, threads * size)
    names, vector = registers(kind, count)
    lines = [at("data", size, "%d40")]
    if "L2::cache_hint" in opcode:
        lines.append("createpolicy.fractional.L2::evict_last.b64 %d30, 1.0;")
    hint = ", %d30" if "L2::cache_hint" in opcode else ""
    for index, name in enumerate(names):
        lines.append(f"ld.global.{'u8' if bits == 8 else f'b{bits}'} {name}, [%d40+{index * bits // 8}];")
    if ctas == 2:
        lines += _CLUSTER
    before, address = prologue(space, "out", size)
    if space == "local":
        lines.append(f".local .align 16 .b8 stack[{size}];")
        before, address = [], "stack"
    lines += [*before, f"{opcode} [{address}], {vector}{hint};"]
    if space.startswith("shared"):
        lines += [*(_CLUSTER if ctas == 2 else ["bar.sync 0;"]), *move("out", size, to_tile=False)]
    if space == "local":
        lines.append(at("out", size, "%d40"))
        for offset in range(0, size, 4):
            lines += [f"ld.local.b32 %r40, [stack+{offset}];", f"st.global.b32 [%d40+{offset}], %r40;"]

    def function(given: Arrays) -> Arrays:
        return {"out": other_half(given["data"].reshape(threads, size), space).reshape(-1)}

    text = assembled(["data", "out"], lines, shared_bytes=TILE if space.startswith("shared") else 0)
    outputs = {"out": ((threads * size,), np.uint8)}
    return Case(opcode, text, {"data": data}, outputs, ctas, THREADS, function, cluster=ctas)


# --- atomics ----------------------------------------------------------------------------------------------------------


def updates(root: str, kind: str, *, flushed: bool = False) -> Callable[..., np.ndarray]:
    """The new content of a location, from the old one, the operand, and for `cas` the second operand. `flushed`: with
    subnormal numbers as zeros, as in atomics on global memory."""
    simple: dict[str, Callable[..., np.ndarray]] = {
        "exch": lambda old, b, c: b,
        "cas": lambda old, b, c: np.where(old == b, c, old),
        "inc": lambda old, b, c: np.where(old >= b, 0, old + np.uint32(1)).astype(np.uint32),
        "dec": lambda old, b, c: np.where((old == 0) | (old > b), b, old - np.uint32(1)).astype(np.uint32),
        "and": lambda old, b, c: old & b,
        "or": lambda old, b, c: old | b,
        "xor": lambda old, b, c: old ^ b,
    }
    if root in simple:
        return simple[root]
    rounded = ".rn" if root == "add" and kind in ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64") else ""
    rounded += ".ftz" if flushed and kind == "f32" else ""
    found = operation(f"{root}{rounded}.{kind}", 1)
    assert found is not None, (root, kind)
    return lambda old, b, c: found.function(old, b)


def operands(root: str, kind: str, name: str, count: int) -> np.ndarray:
    """Values of a type: floats with subnormals among them, integers near each other for `cas`, `inc` and `dec`."""
    rng = np.random.default_rng(seed_of(name))
    dtype = np.uint64 if kind == "b128" else unsigned(kind)
    if kind == "f32":
        return near_zero(rng, count)
    if root in ("cas", "inc", "dec"):
        return rng.integers(0, 3, count).astype(dtype)
    if kind == "f64":
        return rng.standard_normal(count).view(np.uint64)
    return rng.integers(0, 1 << min(BITS[kind], 64), count, dtype=np.uint64).astype(dtype)


def near_zero(rng: np.random.Generator, count: int) -> np.ndarray:
    """A quarter of ordinary numbers; subnormal ones, and normal ones whose sum may be subnormal."""
    small = rng.integers(0, 0x01800000, count, dtype=np.uint32)  # up to 8 times the smallest normal number
    signs = rng.integers(0, 2, count).astype(np.uint32) << np.uint32(31)
    usual = rng.standard_normal(count).astype(np.float32).view(np.uint32)
    return np.where(np.arange(count) % 4 == 0, usual, small | signs)


def atomic(opcode: str) -> Case:
    """`atom` and `red` of every thread on its own location: what was there, and what is there then."""
    root = next(each for each in opcode.split(".")[1:] if each in _OPERATIONS)
    kind, count = parts(opcode)
    space, bits = place(opcode), BITS[kind]
    size, returns = bits // 8 * count, opcode.startswith("atom")
    ctas = 2 if space == "shared::cluster" else 1
    threads = THREADS * ctas
    lanes = 2 if bits == 128 else 1  # halves of a 128-bit value
    inputs = {
        name: operands(root, kind, f"{opcode}/{name}", threads * count * lanes)
        for name in ("old", "b", *(("c",) if root == "cas" else ()))
    }
    names = {name: [f"%{_letter(bits)}{base + each}" for each in range(count)] for name, base in _bases(bits).items()}
    vectors = {name: each[0] if count == 1 else "{" + ", ".join(each) + "}" for name, each in names.items()}
    lines = ["createpolicy.fractional.L2::evict_first.b64 %d30, 1.0;"] if "L2::cache_hint" in opcode else []
    for name in inputs:
        if name != "old":
            lines += _fetch(name, names[name], bits, size)
    if space.startswith("shared"):
        lines += [*move("old", size, to_tile=True), *(_CLUSTER if ctas == 2 else ["bar.sync 0;"])]
    else:  # the array itself is changed, and copied out
        lines += _fetch("old", names["x"], bits, size)
        lines += [at("new", size), *_put("%d0", names["x"], bits)]
    before, address = prologue(space, "new", size)
    arguments = [vectors["x"]] if returns else []
    arguments += [f"[{address}]", *(vectors[name] for name in inputs if name != "old")]
    arguments += ["%d30"] if "L2::cache_hint" in opcode else []
    lines += [*before, f"{opcode} {', '.join(arguments)};"]
    if space.startswith("shared"):
        lines += [*(_CLUSTER if ctas == 2 else ["bar.sync 0;"]), *move("new", size, to_tile=False)]
    if returns:
        lines += [at("found", size, "%d44"), *_put("%d44", names["x"], bits)]

    def function(given: Arrays) -> Arrays:
        rows = {name: each.reshape(threads, count * lanes) for name, each in given.items()}
        old = rows["old"]
        b, c = rows["b"], rows.get("c")
        if space == "shared::cluster":  # a CTA changes the other's tile
            b, c = other_half(b, space), None if c is None else other_half(c, space)
        if bits == 128 and root == "cas":
            same = (old == b).all(axis=1, keepdims=True)
            new = np.where(same, c, old)
        else:
            new = updates(root, kind, flushed=not space.startswith("shared"))(old, b, c)
        result = {"new": np.ascontiguousarray(new).reshape(-1)}
        if returns:
            result["found"] = np.ascontiguousarray(other_half(old, space)).reshape(-1)
        return result

    dtype = inputs["old"].dtype.type
    outputs = {name: ((threads * count * lanes,), dtype) for name in ("new", *(("found",) if returns else ()))}
    text = assembled([*inputs, *outputs], lines, shared_bytes=TILE if space.startswith("shared") else 0)
    return Case(opcode, text, inputs, outputs, ctas, THREADS, function, cluster=ctas)


_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")


def _letter(bits: int) -> str:
    return {16: "h", 32: "r", 64: "d", 128: "q"}[bits]


def _bases(bits: int) -> dict[str, int]:
    return {"x": 0, "b": 1, "c": 2} if bits == 128 else {"x": 2, "b": 10, "c": 20}


def _fetch(pointer: str, names: Sequence[str], bits: int, size: int) -> list[str]:
    lines = [at(pointer, size, "%d42")]
    return lines + [f"ld.global.b{bits} {name}, [%d42+{index * bits // 8}];" for index, name in enumerate(names)]


def _put(address: str, names: Sequence[str], bits: int) -> list[str]:
    return [f"st.global.b{bits} [{address}+{index * bits // 8}], {name};" for index, name in enumerate(names)]


def together(opcode: str) -> Case:
    """All threads of four warps on one location: only what is there at the end does not depend on their order."""
    root = next(each for each in opcode.split(".")[1:] if each in _OPERATIONS)
    kind, _ = parts(opcode)
    name = f"{opcode}/together"
    values = operands(root, kind, name, 128)
    lines = ["setp.ne.u32 %p0, %t, 0;", "mov.u32 %r1, 0;", "@!%p0 st.shared.b32 [%base], %r1;", "bar.sync 0;"]
    lines += [at("b", 4, "%d0"), "ld.global.b32 %r2, [%d0];"]
    arguments = "[%base], %r2" if opcode.startswith("red") else "%r3, [%base], %r2"
    lines += [f"{opcode} {arguments};", "bar.sync 0;", "ld.shared.b32 %r4, [%base];", at("out", 4, "%d1")]
    lines.append("st.global.b32 [%d1], %r4;")

    def function(given: Arrays) -> Arrays:
        total = np.zeros(1, np.uint32)
        for each in given["b"]:
            total = updates(root, kind)(total, np.full(1, each), None)
        return {"out": np.full(128, total[0])}

    text = assembled(["b", "out"], lines, shared_bytes=16)
    return Case(name, text, {"b": values}, {"out": ((128,), np.uint32)}, 1, 128, function)


# --- the forms --------------------------------------------------------------------------------------------------------

_TYPES = ("u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32", "f32", "u64", "s64", "b64", "f64")
_VECTORS = ("v2.b8", "v2.u8", "v4.b8", "v2.b16", "v2.u16", "v4.b16", "v4.u16", "v2.b32", "v4.b32", "v2.u32", "v4.u32",
    "v2.f32",
            "v4.f32", "v2.b64", "v2.u64", "v2.f64")  # fmt: skip
_LOAD_HINTS = (
    "ca", "cg", "cs", "lu", "cv", "nc", "nc.L1::no_allocate", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
    "L1::evict_first.L2::cache_hint", "L1::evict_last.L2::cache_hint", "L2::128B", "L2::256B",
)  # fmt: skip
_STORE_HINTS = (
    "wb", "cg", "cs", "wt", "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L1::evict_first.L2::cache_hint",
    "L1::evict_last.L2::cache_hint",
)  # fmt: skip
_HINTED_TYPES = ("b8", "b16", "b32", "b64", "v2.b16", "v2.b32", "v4.b32", "v2.b64")
_SCOPES = ("cta", "cluster", "gpu", "sys")

LOADS = (
    *(f"ld.{space}.{kind}" for space in ("global", "shared") for kind in (*_TYPES, *_VECTORS)),
    *(f"ld.global.{hint}.{kind}" for hint in _LOAD_HINTS for kind in _HINTED_TYPES),
    *(f"ld.global.nc.{kind}" for kind in (*_TYPES, *_VECTORS) if kind not in _HINTED_TYPES),
    *(f"ld.volatile.global.{kind}" for kind in ("b32", "b64", "v4.b32")), "ld.volatile.shared.b32",
    *(f"ld.{order}.{scope}.global.{kind}" for order in ("relaxed", "acquire") for scope in _SCOPES
      for kind in ("b32", "b64")), "ld.mmio.relaxed.sys.global.b32",
    *(f"ld.{kind}" for kind in ("b8", "u16", "b32", "b64", "v2.b32", "v4.b32", "f32")),
    *(f"ld.shared::cta.{kind}" for kind in ("u8", "b16", "b32", "b64", "v2.b32", "v4.b32", "v4.f32", "v4.u32")),
    *(f"ld.shared::cluster.{kind}" for kind in ("u8", "b16", "b32", "u32", "f32", "b64", "v2.b32", "v2.f32", "v4.b32",
      "v4.f32", "v4.u32")), "ld.relaxed.cluster.shared::cluster.b32", "ld.acquire.cluster.shared::cluster.b32",
    *(f"ld.local.{kind}" for kind in ("b32", "b64", "v2.b32", "v4.b32")), "ld.global.b128", "ldu.global.b32",
)  # fmt: skip
PARAMETERS = ("ld.param.b32", "ld.param.u32", "ld.param.s32", "ld.param.f32", "ld.param.b64", "ld.param.u64",
    "ld.param.u8",
              "ld.param.s8", "ld.param.u16", "ld.param.b16", "ld.param.f64", "ld.param.v2.b32", "ld.param.v4.b32",
              "ld.param.v2.b64")  # fmt: skip
STORES = (
    *(f"st.{space}.{kind}" for space in ("global", "shared") for kind in (*_TYPES, *_VECTORS)),
    *(f"st.global.{hint}.{kind}" for hint in _STORE_HINTS for kind in _HINTED_TYPES),
    *(f"st.volatile.global.{kind}" for kind in ("b32", "v4.b32")), "st.volatile.shared.b32",
    *(f"st.{order}.{scope}.global.b32" for order in ("relaxed", "release") for scope in _SCOPES),
    "st.mmio.relaxed.sys.global.b32", *(f"st.{kind}" for kind in ("b8", "b16", "b32", "b64", "v4.b32", "f32")),
    *(f"st.shared::cta.{kind}" for kind in ("b8", "b16", "b32", "b64", "v2.b32", "v4.b32", "v4.f32")),
    *(f"st.shared::cluster.{kind}" for kind in ("b8", "b16", "b32", "f32", "b64", "v2.b32", "v2.f32", "v4.b32",
    "v4.f32")),
    "st.relaxed.cluster.shared::cluster.b32", "st.release.cluster.shared::cluster.b32",
    *(f"st.local.{kind}" for kind in ("b32", "b64", "v2.b32", "v4.b32")), "st.global.b128",
)  # fmt: skip
_UPDATES = (
    "add.u32", "add.s32", "add.u64", "add.f32", "add.f64", "add.noftz.f16", "add.noftz.f16x2", "add.noftz.bf16",
    "add.noftz.bf16x2",
    *(f"{root}.{kind}" for root in ("min", "max") for kind in ("u32", "s32", "u64", "s64")),
    *(f"{root}.{kind}" for root in ("and", "or", "xor") for kind in ("b32", "b64")), "inc.u32", "dec.u32",
)  # fmt: skip
_SWAPS = ("exch.b32", "exch.b64", "cas.b16", "cas.b32", "cas.b64")
_VECTOR_UPDATES = (
    "v2.f32.add", "v4.f32.add", *(f"v{count}.{kind}.{root}.noftz" for count in (2, 4, 8) for kind in ("f16", "bf16")
    for root in ("add", "min", "max")), *(f"v{count}.{kind}.{root}.noftz" for count in (2, 4) for kind in ("f16x2",
    "bf16x2")
    for root in ("add", "min", "max")),
)  # fmt: skip
_ORDERS = ("relaxed", "acquire", "release", "acq_rel")
_ORDERED = ("add.u32", "add.s32", "add.f32", "max.s32", "min.u32", "max.u32", "min.s32", "exch.b32", "cas.b32",
    "cas.b64", "add.u64",
            "or.b32", "and.b32", "xor.b32", "max.s64", "min.s64", "max.u64", "min.u64", "add.noftz.f16",
            "add.noftz.bf16", "add.noftz.f16x2", "add.noftz.bf16x2", "add.f64")  # fmt: skip
ATOMICS = (
    *(f"atom.global.{form}" for form in (*_UPDATES, *_SWAPS)), *(f"red.global.{form}" for form in _UPDATES),
    *(f"atom.{form}" for form in ("add.u32", "add.f32", "cas.b32", "exch.b64", "max.s64")), "red.add.u32",
    "red.add.f32",
    *(f"atom.shared.{form}" for form in ("add.u64", "add.f64", "add.noftz.f16", "add.noftz.f16x2", "add.noftz.bf16",
    "add.noftz.bf16x2",
      "min.u64", "max.s64", "and.b64", "or.b64", "xor.b64", "exch.b64", "cas.b16", "cas.b64")),
    *(f"red.shared.{form}" for form in ("add.u32", "add.f32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32",
    "inc.u32")),
    *(f"atom.shared::cta.{form}" for form in ("add.u32", "cas.b32", "exch.b32", "or.b32")),
    *(f"atom.shared::cluster.{form}" for form in ("add.u32", "add.f32", "max.s32", "cas.b32", "exch.b64", "inc.u32")),
    *(f"red.shared::cluster.{form}" for form in ("add.u32", "add.f32", "and.b32")),
    *(f"red.relaxed.cluster.shared::cluster.{form}" for form in ("add.u32", "add.s32")),
    "atom.acq_rel.cluster.shared::cluster.add.u32",
    *(f"atom.global.{scope}.{order}.{form}" for order in _ORDERS for scope in ("cta", "gpu",
    "sys") for form in _ORDERED),
    *(f"atom.global.{order}.gpu.{form}" for order in _ORDERS for form in ("cas.b32", "cas.b64", "add.u32", "add.f32",
    "exch.b32")),
    *(f"red.global.{scope}.{order}.{form}" for order in ("relaxed", "release") for scope in ("cta", "gpu", "sys")
      for form in ("add.u32", "add.u64", "add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16", "add.noftz.f16x2",
                   "add.noftz.bf16x2", "max.s32", "min.s32", "max.u32", "min.u32", "max.s64", "min.s64", "and.b32",
                   "or.b32", "xor.b32",
                   "add.v2.f32", "add.v4.f32", "add.noftz.v4.f16", "add.noftz.v8.f16", "add.noftz.v8.bf16",
                   "add.noftz.v4.f16x2",
                   "add.noftz.v4.bf16x2")),
    *(f"atom.shared.{order}.{scope}.{form}" for order in ("relaxed", "acq_rel") for scope in ("cta", "gpu", "sys")
      for form in ("add.u32", "add.s32", "add.f32", "exch.b32", "cas.b32")),
    *(f"atom.global.{form}" for form in _VECTOR_UPDATES), *(f"red.global.{form}" for form in _VECTOR_UPDATES),
    "atom.global.relaxed.gpu.add.L2::cache_hint.f32", "atom.global.exch.b128", "atom.global.cas.b128",
    "atom.shared.exch.b128", "atom.shared.cas.b128",
)  # fmt: skip
TOGETHER = (
    "atom.shared.add.u32", "red.shared.add.u32", "red.shared.max.s32", "atom.shared.or.b32",
    "atom.relaxed.sys.shared.add.u32",
)  # fmt: skip


def memory_cases() -> list[Case]:
    cases = [load(each) for each in LOADS if each not in _HAD] + [from_parameter(each) for each in PARAMETERS]
    cases += [from_constant(), *(store(each) for each in STORES)]
    return [*cases, *(atomic(each) for each in ATOMICS), *(together(each) for each in TOGETHER)]


_HAD = ("ld.shared.u8", "ld.shared.s8", "ld.shared.u16", "ld.shared.s16")  # cases of `warps`, with an extension each
