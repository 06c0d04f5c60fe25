"""Cases of instructions of a whole warp, and of memory: what they give is written out here lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.emulator.golden.text import Arrays, Case, Writer, seed_of

WARPS = 8
LANES = 32 * WARPS


def lane_case(
    name: str,
    lines: Sequence[str],
    inputs: Arrays,
    outputs: int,
    function: Callable[[Arrays], list[np.ndarray]],
    shared: str = "",
) -> Case:
    """A kernel of one block: `{a}`, `{b}` in `lines` are the lane's inputs, `{x}`, `{y}` its outputs, all of 32 bits;
    `{p}` and `{q}` are predicates, `{lane}` is %laneid, `{base}` the shared tile's address, `{t}` a free register."""
    writer = Writer([*inputs, *(f"out{at}" for at in range(outputs))])
    writer.shared = shared
    index = writer.thread_index()
    names = {letter: writer.register(32) for letter in ("x", "y", "t", "lane", "base")}
    names |= {letter: writer.register(1) for letter in "pq"}
    names["wide"] = writer.register(64)
    for letter, parameter in zip("abc", inputs, strict=False):
        names[letter] = writer.load(32, writer.address(writer.pointer(parameter), index, 4))
    writer.emit(f"mov.u32 {names['lane']}, %laneid;")
    if shared:
        writer.emit(f"mov.u32 {names['base']}, tile;")
    for line in lines:
        writer.emit(line.format(**names))
    for at, letter in zip(range(outputs), "xy", strict=False):
        writer.store(32, writer.address(writer.pointer(f"out{at}"), index, 4), names[letter])

    def by_name(given: Arrays) -> Arrays:
        return {f"out{at}": each.astype(np.uint32) for at, each in enumerate(function(given))}

    shapes = {f"out{at}": ((LANES,), np.uint32) for at in range(outputs)}
    return Case(name, writer.text(), inputs, shapes, 1, LANES, by_name)


def random_words(seed: int, high: int = 1 << 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, LANES, dtype=np.uint32)


# --- shuffles ---------------------------------------------------------------------------------------------------------


def shuffled(mode: str, value: np.ndarray, amount: np.ndarray, control: int) -> list[np.ndarray]:
    """PTX ISA 9.7.9.6, lane by lane: segments from bits 12 to 8 of the control, the clamp from bits 4 to 0."""
    result, inside = np.zeros(LANES, np.uint32), np.zeros(LANES, np.uint32)
    segment, clamp = control >> 8 & 31, control & 31
    for thread in range(LANES):
        lane, first = thread % 32, thread - thread % 32
        b = int(amount[thread]) & 31
        top = (lane & segment) | (clamp & ~segment)
        bottom = lane & segment
        source, good = {
            "up": (lane - b, lane - b >= top),
            "down": (lane + b, lane + b <= top),
            "bfly": (lane ^ b, lane ^ b <= top) if (lane ^ b) <= top else (lane, False),
            "idx": (bottom | (b & ~segment), (bottom | (b & ~segment)) <= top),
        }[mode]
        inside[thread] = bool(good)
        result[thread] = value[first + (source if good else lane)]
    return [result, inside]


def shuffle(mode: str, control: int) -> Case:
    name = f"shfl.sync.{mode}.b32/{control:#x}"
    inputs = {"value": random_words(seed_of(name)), "amount": _one_amount_per_warp(mode, seed_of(name) + 1)}
    lines = [
        f"shfl.sync.{mode}.b32 {{x}}|{{p}}, {{a}}, {{b}}, {control}, 0xffffffff;",
        "selp.u32 {y}, 1, 0, {p};",
    ]
    return lane_case(name, lines, inputs, 2, lambda given: shuffled(mode, given["value"], given["amount"], control))


def _one_amount_per_warp(mode: str, seed: int) -> np.ndarray:
    """`idx` may take another lane in every lane; the other modes are used with one distance."""
    amounts = random_words(seed, 32)
    return amounts if mode == "idx" else np.repeat(amounts[:WARPS], 32)


# --- votes, matches, reductions ---------------------------------------------------------------------------------------


def _warps(values: np.ndarray) -> np.ndarray:
    return values.reshape(WARPS, 32)


def _everywhere(values: Any) -> np.ndarray:
    return np.repeat(np.asarray(values).astype(np.uint32), 32)


def ballots(flags: np.ndarray) -> np.ndarray:
    return np.array([sum(int(bit) << lane for lane, bit in enumerate(row)) for row in _warps(flags)], np.uint32)


def vote(mode: str) -> Case:
    flags = random_words(seed_of(mode), 2)
    flags[:32], flags[32:64] = 1, 0
    compute: dict[str, Callable[[np.ndarray], Any]] = {
        "all": lambda rows: rows.all(axis=1),
        "any": lambda rows: rows.any(axis=1),
        "uni": lambda rows: rows.all(axis=1) | ~rows.any(axis=1),
    }
    if mode == "ballot":
        lines = ["setp.ne.u32 {p}, {a}, 0;", "vote.sync.ballot.b32 {x}, {p}, 0xffffffff;"]
        function = lambda given: [_everywhere(ballots(given["flag"]))]  # noqa: E731
    else:
        lines = [
            "setp.ne.u32 {p}, {a}, 0;",
            f"vote.sync.{mode}.pred {{q}}, {{p}}, 0xffffffff;",
            "selp.u32 {x}, 1, 0, {q};",
        ]
        function = lambda given: [_everywhere(compute[mode](_warps(given["flag"]) != 0))]  # noqa: E731
    return lane_case(f"vote.sync.{mode}", lines, {"flag": flags}, 1, function)


def match(mode: str) -> Case:
    values = random_words(seed_of(f"match {mode}"), 4)
    values[:32] = 7

    def any_(given: Arrays) -> list[np.ndarray]:
        rows = _warps(given["value"])
        return [np.array([ballots(np.tile(row == each, WARPS))[0] for row in rows for each in row])]

    def all_(given: Arrays) -> list[np.ndarray]:
        same = np.array([(row == row[0]).all() for row in _warps(given["value"])])
        return [_everywhere(np.where(same, 0xFFFFFFFF, 0)), _everywhere(same)]

    if mode == "any":
        lines = ["match.any.sync.b32 {x}, {a}, 0xffffffff;"]
        return lane_case("match.any.sync.b32", lines, {"value": values}, 1, any_)
    lines = ["match.all.sync.b32 {x}|{p}, {a}, 0xffffffff;", "selp.u32 {y}, 1, 0, {p};"]
    return lane_case("match.all.sync.b32", lines, {"value": values}, 2, all_)


def reduction(form: str) -> Case:
    """`redux.sync`: one value for the whole warp."""
    root, kind = form.split(".")
    view = np.int32 if kind == "s32" else np.uint32
    ufunc: Any = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
                  "xor": np.bitwise_xor}[root]  # fmt: skip

    def function(given: Arrays) -> list[np.ndarray]:
        rows = _warps(given["value"].view(view))
        return [_everywhere(ufunc.reduce(rows, axis=1, dtype=view).view(np.uint32))]

    lines = [f"redux.sync.{form} {{x}}, {{a}}, 0xffffffff;"]
    return lane_case(f"redux.sync.{form}", lines, {"value": random_words(seed_of(form))}, 1, function)


def single(name: str, lines: Sequence[str], expected: np.ndarray) -> Case:
    """An instruction without operands of the lane."""
    return lane_case(name, lines, {"unused": np.zeros(LANES, np.uint32)}, 1, lambda given: [expected])


# --- memory -----------------------------------------------------------------------------------------------------------

_TILE = f"    .shared .align 16 .b8 tile[{16 * LANES}];"


def atomic(form: str) -> Case:
    """An atomic of every lane on its own word of shared memory, with the old and the new value."""
    root, kind = form.split(".")
    view: Any = {"u32": np.uint32, "s32": np.int32, "f32": np.float32, "b32": np.uint32}[kind]
    first, second = random_words(seed_of(form)), random_words(seed_of(form) + 1)
    if kind == "f32":
        rng = np.random.default_rng(seed_of(form))
        first, second = (rng.standard_normal(LANES).astype(np.float32).view(np.uint32) for _ in range(2))

    def new(old: np.ndarray, operand: np.ndarray) -> np.ndarray:
        a, b = old.view(view), operand.view(view)
        results: dict[str, Callable[[], Any]] = {
            "add": lambda: a + b, "min": lambda: np.minimum(a, b), "max": lambda: np.maximum(a, b), "exch": lambda: b,
            "and": lambda: a & b, "or": lambda: a | b, "xor": lambda: a ^ b,
            "inc": lambda: np.where(a >= b, 0, a + np.uint32(1)),
            "dec": lambda: np.where((a == 0) | (a > b), b, a - np.uint32(1)),
        }  # fmt: skip
        return np.asarray(results[root](), view).view(np.uint32)

    lines = [
        "mov.u32 {t}, %tid.x;",
        "mad.lo.u32 {t}, {t}, 4, {base};",
        "st.shared.b32 [{t}], {a};",
        f"atom.shared.{form} {{x}}, [{{t}}], {{b}};",
        "ld.shared.b32 {y}, [{t}];",
    ]

    def function(given: Arrays) -> list[np.ndarray]:
        return [given["old"], new(given["old"], given["operand"])]

    return lane_case(f"atom.shared.{form}", lines, {"old": first, "operand": second}, 2, function, _TILE)


def compare_and_swap() -> Case:
    old = random_words(1, 4)
    inputs = {"old": old, "compare": random_words(2, 4), "operand": random_words(3)}
    lines = [
        "mov.u32 {t}, %tid.x;",
        "mad.lo.u32 {t}, {t}, 4, {base};",
        "st.shared.b32 [{t}], {a};",
        "atom.shared.cas.b32 {x}, [{t}], {b}, {c};",
        "ld.shared.b32 {y}, [{t}];",
    ]

    def function(given: Arrays) -> list[np.ndarray]:
        return [given["old"], np.where(given["old"] == given["compare"], given["operand"], given["old"])]

    return lane_case("atom.shared.cas.b32", lines, inputs, 2, function, _TILE)


def narrow_access(kind: str) -> Case:
    """A store of the low bits and a load that extends them by the sign of the type."""
    bits = int(kind[1:])
    store = f"b{bits}" if bits > 8 else "u8"

    def function(given: Arrays) -> list[np.ndarray]:
        low = given["value"] & np.uint32((1 << bits) - 1)
        if kind[0] == "s":
            low = np.where(low >> np.uint32(bits - 1) == 1, low | np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF), low)
        return [low]

    lines = [
        "mov.u32 {t}, %tid.x;",
        "mad.lo.u32 {t}, {t}, 4, {base};",
        "cvt.u16.u32 {half}, {a};",
        f"st.shared.{store} [{{t}}], {{half}};",
        f"ld.shared.{kind} {{x}}, [{{t}}];",
    ]
    lines = [line.replace("{half}", "%h9") for line in lines]
    return lane_case(f"ld.shared.{kind}", [".reg .b16 %h9;", *lines], {"value": random_words(seed_of(kind))}, 1,
                     function, _TILE)  # fmt: skip


def warp_cases() -> list[Case]:
    cases = [shuffle(mode, 0 if mode == "up" else 31) for mode in ("up", "down", "bfly", "idx")]
    cases += [shuffle(mode, 0x1800 if mode == "up" else 0x181F) for mode in ("up", "down", "bfly", "idx")]
    cases += [shuffle("down", 15), shuffle("idx", 0x1C1F)]
    cases += [vote(mode) for mode in ("all", "any", "uni", "ballot")]
    cases += [match("any"), match("all")]
    cases += [reduction(form) for form in ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32",
                                           "or.b32", "xor.b32")]  # fmt: skip
    cases += [single("activemask.b32", ["activemask.b32 {x};"], np.full(LANES, 0xFFFFFFFF))]
    lane = np.arange(LANES) % 32
    elected = ["elect.sync {x}|{p}, 0xffffffff;", "selp.u32 {x}, 1, 0, {p};"]
    cases += [single("elect.sync", elected, lane == 0)]
    for name, value in (("laneid", lane), ("lanemask_lt", (1 << lane) - 1), ("lanemask_eq", 1 << lane),
                        ("lanemask_ge", 0x100000000 - (1 << lane)), ("tid.x", np.arange(LANES))):  # fmt: skip
        cases.append(single(f"mov.u32.%{name}", [f"mov.u32 {{x}}, %{name};"], value))
    cases += [atomic(form) for form in ("add.u32", "add.s32", "add.f32", "min.u32", "min.s32", "max.u32", "max.s32",
                                        "and.b32", "or.b32", "xor.b32", "exch.b32", "inc.u32", "dec.u32")]  # fmt: skip
    cases.append(compare_and_swap())
    return cases + [narrow_access(kind) for kind in ("u8", "s8", "u16", "s16")]
