"""Cases of the kernels that work on blocks of values: rows, scans, sorts, atomics, functions. For any target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.emulator.compilers.data import integers, normal, numpy_type, real, rounded
from tests.emulator.compilers.data import softmax as reference_softmax
from tests.emulator.compilers.harness import Case, Near, Out, Tile

EPSILON = 2.0**-24  # of fp32
KERNELS = "kernels_blocks."


def softmax_near(x: Any) -> Near:
    """Over the last dimension, in fp32: ex2.approx of a difference that is rounded when it is scaled by log2(e)."""
    wanted = reference_softmax(real(x))
    below = real(x).max(axis=-1, keepdims=True) - real(x)
    return Near(wanted, (2.0**-20 + 2 * EPSILON * below) * wanted)


def softmax(target: int) -> Case:
    x = normal((8, 400), "float32", 1, scale=3)
    return Case(
        KERNELS + "softmax",
        (8,),
        {"out": Out(x.shape), "x": x, "columns": 400},
        {"out": softmax_near(x)},
        {"BLOCK": 512},
        target=target,
    )


def layernorm(target: int) -> Case:
    x, gain, shift = normal((6, 200), "float16", 1), normal((200,), "float32", 2), normal((200,), "float32", 3)
    values = real(x)
    mu, variance = values.mean(axis=1), values.var(axis=1)
    inverse = 1 / np.sqrt(variance + 1e-5)
    wanted = (values - mu[:, None]) * inverse[:, None] * real(gain) + real(shift)
    return Case(
        KERNELS + "layernorm",
        (6,),
        {
            "out": Out(x.shape, "float16"),
            "mean": Out((6,)),
            "rstd": Out((6,)),
            "x": x,
            "gain": gain,
            "shift": shift,
            "columns": 200,
            "epsilon": 1e-5,
        },
        {
            "out": rounded(wanted, "float16", 2.0**-18 * (np.abs(wanted) + np.abs(real(shift)) + 1)),
            "mean": Near(mu, 2.0**-20 * np.abs(values).mean(axis=1)),
            "rstd": Near(inverse, 2.0**-19 * inverse),
        },
        {"BLOCK": 128},
        target=target,
    )


def rmsnorm(target: int) -> Case:
    x, gain = normal((10, 100), "bfloat16", 1), normal((100,), "float32", 2)
    values = real(x)
    wanted = values / np.sqrt((values**2).mean(axis=1, keepdims=True) + 1e-6) * real(gain)
    return Case(
        KERNELS + "rmsnorm",
        (3,),
        {"out": Out(x.shape, "bfloat16"), "x": x, "gain": gain, "rows": 10, "columns": 100, "epsilon": 1e-6},
        {"out": rounded(wanted, "bfloat16", 2.0**-19 * np.abs(wanted))},
        {"ROWS": 4, "BLOCK": 128},
        target=target,
    )


def scans(target: int) -> Case:
    rows, block = 8, 128
    x = normal((rows, block), "float32", 1)
    decay = np.random.default_rng(2).uniform(0.5, 1, (rows, block)).astype(np.float32)
    values = real(x)
    states = np.zeros_like(values)
    sizes = np.zeros_like(values)
    for column in range(block):
        before = (states[:, column - 1], sizes[:, column - 1]) if column else (0.0, 0.0)
        states[:, column] = before[0] * real(decay)[:, column] + values[:, column]
        sizes[:, column] = before[1] * real(decay)[:, column] + np.abs(values)[:, column]
    products = np.cumprod(np.abs(values), axis=0)
    return Case(
        KERNELS + "scans",
        (1,),
        {name: Out(x.shape) for name in ("sums", "products", "backwards", "linear")} | {"x": x, "decay": decay},
        {
            "sums": Near(values.cumsum(axis=1), block * EPSILON * np.abs(values).cumsum(axis=1)),
            "products": Near(products, 2 * rows * EPSILON * products),
            "backwards": Near(
                values[::-1].cumsum(axis=0)[::-1], rows * EPSILON * np.abs(values)[::-1].cumsum(axis=0)[::-1]
            ),
            "linear": Near(states, block * EPSILON * sizes),
        },
        {"ROWS": rows, "BLOCK": block},
        target=target,
    )


def histogram(target: int) -> Case:
    x = integers((900,), 0, 64, "int32", 1)
    return Case(
        KERNELS + "histogram",
        (4,),
        {"out": Out((64,), "int32", zeros=True), "x": x, "count": 900},
        {"out": Near(np.bincount(x, minlength=64))},
        {"BINS": 64, "BLOCK": 256},
        target=target,
    )


def _slots(x: Any, function: Any, start: Any) -> Any:
    """`function` over all values of a slot, eight slots, in any order."""
    return np.array([function.reduce(np.concatenate([[start], x.reshape(-1)[slot::8]])) for slot in range(8)])


def atomics(target: int) -> Case:
    block, programs = 128, 3
    x = integers((programs, block), -60, 60, "int32", 1)
    flat, words, wide = x.reshape(-1), x.view(np.uint32), x.astype(np.int64)
    zero = np.int32(0)
    lows = [_slots(x, each, zero) for each in (np.add, np.maximum, np.minimum, np.bitwise_and, np.bitwise_or)]
    integer = np.concatenate([*lows, _slots(x, np.bitwise_xor, zero)])
    real_part = np.concatenate(
        [_slots(flat.astype(np.float64), each, 0.0) for each in (np.add, np.maximum, np.minimum)]
    )
    unsigned = np.concatenate([_slots(words, each, np.uint32(0)) for each in (np.maximum, np.minimum)])
    long = np.concatenate([_slots(wide * 1000003, np.add, np.int64(0)), _slots(wide << 33, np.maximum, np.int64(0))])
    return Case(
        KERNELS + "atomics",
        (programs,),
        {
            "f32": Out((24,), "float32", zeros=True),
            "f16": Out((block,), "float16", zeros=True),
            "i32": Out((48,), "int32", zeros=True),
            "u32": Out((16,), "uint32", zeros=True),
            "i64": Out((16,), "int64", zeros=True),
            "x": x,
        },
        {
            "f32": Near(real_part),
            "f16": Near(x.sum(axis=0)),
            "i32": Near(integer),
            "u32": Near(unsigned),
            "i64": Near(long),
        },
        {"BLOCK": block},
        target=target,
    )


def locked(target: int) -> Case:
    x = integers((6, 128), -50, 50).astype(np.float32)
    return Case(
        KERNELS + "locked",
        (6,),
        {"out": Out((128,), zeros=True), "lock": Out((1,), "int32", zeros=True), "x": x},
        {"out": Near(real(x).sum(axis=0)), "lock": Near(np.zeros(1))},
        {"BLOCK": 128},
        target=target,
    )


def last_one_sums(target: int) -> Case:
    x = integers((5, 256), -50, 50).astype(np.float32)
    return Case(
        KERNELS + "last_one_sums",
        (5,),
        {"out": Out((256,)), "partial": Out(x.shape), "arrived": Out((1,), "int32", zeros=True), "x": x},
        {"out": Near(2 * real(x).sum(axis=0)), "arrived": Near(np.array([5]))},
        {"BLOCK": 256},
        target=target,
    )


def reductions(target: int) -> Case:
    rows, columns = 32, 64
    x, words = normal((rows, columns), "float32", 1), integers((rows, columns), -(2**31), 2**31, "int32", 2)
    values = real(x)
    return Case(
        KERNELS + "reductions",
        (1,),
        {
            "over_rows": Out((columns,)),
            "over_columns": Out((rows,)),
            "largest": Out((rows,)),
            "where_largest": Out((rows,), "int32"),
            "smallest": Out((columns,), "int32"),
            "bits": Out((columns,), "int32"),
            "total": Out((1,)),
            "x": x,
            "words": words,
        },
        {
            "over_rows": Near(values.sum(axis=0), rows * EPSILON * np.abs(values).sum(axis=0)),
            "over_columns": Near(values.sum(axis=1), columns * EPSILON * np.abs(values).sum(axis=1)),
            "largest": Near(values.max(axis=1)),
            "where_largest": Near(values.argmax(axis=1)),
            "smallest": Near(values.argmin(axis=0)),
            "bits": Near(np.bitwise_xor.reduce(words, axis=0)),
            "total": Near(values.sum(keepdims=True).reshape(1), 2 * columns * EPSILON * np.abs(values).sum()),
        },
        {"ROWS": rows, "COLUMNS": columns},
        target=target,
    )


def transpose(target: int) -> Case:
    x = normal((4, 16, 32), "float16", 1)
    return Case(
        KERNELS + "transpose",
        (1,),
        {"out": Out((32, 4, 16), "float16"), "x": x},
        {"out": Near(real(x).transpose(2, 0, 1))},
        {"ROWS": 16, "COLUMNS": 32, "D0": 4, "D1": 1},
        target=target,
    )


def gathers(target: int) -> Case:
    rows, columns = 16, 64
    x, index = normal((rows, columns), "float32", 1), integers((rows, columns), 0, 500, "int32", 2)
    table = normal((500,), "float32", 3)
    return Case(
        KERNELS + "gathers",
        (1,),
        {name: Out(x.shape) for name in ("along_columns", "along_rows", "looked_up")}
        | {"x": x, "index": index, "table": table},
        {
            "along_columns": Near(np.take_along_axis(real(x), index % columns, axis=1)),
            "along_rows": Near(np.take_along_axis(real(x), index % rows, axis=0)),
            "looked_up": Near(real(table)[index]),
        },
        {"ROWS": rows, "COLUMNS": columns},
        target=target,
    )


def sorts(target: int) -> Case:
    rows, columns, k = 4, 64, 8
    x = normal((rows, columns), "float32", 1)
    ordered = np.sort(real(x), axis=1)
    return Case(
        KERNELS + "sorts",
        (1,),
        {"ascending": Out(x.shape), "descending": Out(x.shape), "best": Out((rows, k)), "x": x},
        {
            "ascending": Near(ordered),
            "descending": Near(ordered[:, ::-1]),
            "best": Near(ordered[:, ::-1][:, :k]),
        },
        {"ROWS": rows, "COLUMNS": columns, "K": k},
        target=target,
    )


def shuffles(target: int) -> Case:
    block = 256
    x, y = normal((block,), "float32", 1), normal((block,), "float32", 2)
    return Case(
        KERNELS + "shuffles",
        (1,),
        {
            "joined": Out((2 * block,)),
            "halves": Out((block // 2,)),
            "mirrored": Out((block,)),
            "mixed": Out((2 * block,)),
            "x": x,
            "y": y,
        },
        {
            "joined": Near(np.stack([real(x), real(y)], axis=1).reshape(-1)),
            "halves": Near((x[::2] - x[1::2]).astype(np.float64)),
            "mirrored": Near(real(x)[::-1]),
            "mixed": Near(np.concatenate([real(x), real(y)])),
        },
        {"BLOCK": block},
        target=target,
    )


def inline_asm(target: int) -> Case:
    block = 512
    x, y = integers((block,), 0, 256, "uint8", 1).view(np.int8), integers((block,), 0, 256, "uint8", 2).view(np.int8)
    f = normal((block,), "float32", 3)
    nibbles = (x & 0x0F) | (y & np.int8(-16))  # the lower four bits of one, the upper four of the other
    mixed = nibbles.reshape(-1, 4)[:, [1, 0, 3, 2]]
    bits = f.astype(numpy_type("bfloat16")).view(np.uint16).astype(np.int64)
    return Case(
        KERNELS + "inline_asm",
        (1,),
        {
            "mixed": Out((block,), "int8"),
            "packed": Out((block,), "int32"),
            "clamped": Out((block,)),
            "x": x,
            "y": y,
            "f": f,
        },
        {
            "mixed": Near(mixed.reshape(-1)),
            "packed": Near(2 * bits),
            "clamped": Near(np.minimum(real(f), 1.0)),
        },
        {"BLOCK": block},
        target=target,
    )


def _philox(key: int, counters: Any) -> Any:
    """The first word of Philox 4x32, ten rounds, for counters (i, 0, 0, 0)."""
    mask = np.uint64(0xFFFFFFFF)
    words = [counters.astype(np.uint64), *(np.zeros(counters.shape, np.uint64) for _ in range(3))]
    low, high = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)
    for _ in range(10):
        first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (second >> np.uint64(32)) ^ words[1] ^ low,
            second & mask,
            (first >> np.uint64(32)) ^ words[3] ^ high,
            first & mask,
        ]
        low, high = (low + np.uint64(0x9E3779B9)) & mask, (high + np.uint64(0xBB67AE85)) & mask
    return words[0].astype(np.uint32)


def dropout(target: int) -> Case:
    count, key, keep = 512, 1234, 0.75
    x = normal((count,), "float32", 1)
    words = _philox(key, np.arange(count)).view(np.int32).astype(np.int64)
    magnitude = np.where(words < 0, -words - 1, words)
    uniform = (magnitude.astype(np.float32) * np.float32(4.6566127342e-10)).astype(np.float64)
    wanted = np.where(uniform < keep, real(x) / keep, 0.0)
    return Case(
        KERNELS + "dropout",
        (2,),
        {"out": Out((count,)), "words": Out((count,), "int32"), "x": x, "keep": keep, "key": key},
        {"out": Near(wanted, 2 * EPSILON * np.abs(wanted)), "words": Near(words)},
        {"BLOCK": 256},
        target=target,
    )


def functions(target: int) -> Case:
    block = 256
    x = normal((block,), "float32", 1, scale=2)
    y = (np.abs(normal((block,), "float32", 2)) + 0.01).astype(np.float32)
    a, b = real(x), real(y)
    erf = np.vectorize(math.erf)
    exp, power = np.exp(a), b**a
    rows = [  # value, bound: approximate instructions where Triton uses them, else a few units in the last place
        (exp, 2.0**-21 * exp * (1 + np.abs(a))),
        (np.exp2(a), 2.0**-22 * np.exp2(a)),
        (np.log(b), 2.0**-21 * (1 + np.abs(np.log(b)))),
        (np.log2(b), 2.0**-21 * (1 + np.abs(np.log2(b)))),
        (np.sin(a), np.full(block, 2.0**-20)),
        (np.cos(a), np.full(block, 2.0**-20)),
        (np.sqrt(b), 2.0**-22 * np.sqrt(b)),
        (1 / np.sqrt(b), 2.0**-21 / np.sqrt(b)),
        (erf(a), np.full(block, 2.0**-22)),
        (1 / (1 + np.exp(-a)), 2.0**-20 / (1 + np.exp(-a))),
        (np.floor(a) + np.ceil(b), np.zeros(block)),
        (a / b, EPSILON * np.abs(a / b)),
        (a * b + a, EPSILON * np.abs(a * b + a)),
        (np.tanh(a), np.full(block, 2.0**-22)),
        (power, 2.0**-21 * power),
        (np.arctan2(a, b), np.full(block, 2.0**-21)),
    ]
    return Case(
        KERNELS + "functions",
        (1,),
        {"out": Out((len(rows), block)), "x": x, "y": y},
        {"out": Near(np.stack([value for value, _ in rows]), np.stack([bound for _, bound in rows]))},
        {"BLOCK": block},
        target=target,
    )


def whole_numbers(target: int) -> Case:
    block = 256
    x = integers((block,), -(2**31), 2**31, "int32", 1)
    y = integers((block,), 1, 2**20, "int32", 2) * np.where(np.arange(block) % 3 == 0, -1, 1).astype(np.int32)
    a, b = x.astype(object), y.astype(object)
    quotients = np.array([int(math.copysign(1, m * n)) * (abs(m) // abs(n)) for m, n in zip(a, b, strict=True)])
    unsigned = [(int(m) % 2**32, int(n) % 2**32) for m, n in zip(a, b, strict=True)]
    big = [int(m) * 1234567 for m in a]
    wide = [(abs(m) // abs(int(n))) * (1 if (m < 0) == (n < 0) else -1) for m, n in zip(big, b, strict=True)]
    return Case(
        KERNELS + "whole_numbers",
        (1,),
        {
            "quotients": Out((block,), "int32"),
            "remainders": Out((block,), "int32"),
            "high": Out((block,), "uint32"),
            "wide": Out((block,), "int64"),
            "counts": Out((block,), "int32"),
            "x": x,
            "y": y,
        },
        {
            "quotients": Near(quotients),
            "remainders": Near(np.array([m - n * q for m, n, q in zip(a, b, quotients, strict=True)], np.int64)),
            "high": Near(np.array([m * n >> 32 for m, n in unsigned], np.int64)),
            "wide": Near(np.array(wide, np.int64)),
            "counts": Near(np.array([m.bit_count() + 64 * (32 - m.bit_length()) for m, _ in unsigned])),
        },
        {"BLOCK": block},
        target=target,
    )


def casts(target: int) -> Case:
    block = 512
    x = normal((block,), "float32", 1, scale=40)
    e4m3 = x.astype(numpy_type("float8_e4m3fn"))
    e5m2 = x.astype(numpy_type("float8_e5m2"))
    return Case(
        KERNELS + "casts",
        (1,),
        {
            "half": Out((block,), "float16"),
            "brain": Out((block,), "bfloat16"),
            "e4m3": Out((block,), "float8_e4m3fn"),
            "e5m2": Out((block,), "float8_e5m2"),
            "double": Out((block,), "float64"),
            "small": Out((block,), "int8"),
            "back": Out((block,)),
            "x": x,
        },
        {
            "half": Near(real(x.astype(np.float16))),
            "brain": Near(real(x.astype(numpy_type("bfloat16")))),
            "e4m3": Near(real(e4m3)),
            "e5m2": Near(real(e5m2)),
            "double": Near(real(x) * 3),
            "small": Near(x.astype(np.int64).astype(np.int8)),
            "back": Near(real(e4m3.astype(np.float32) + e5m2.astype(np.float32))),
        },
        {"BLOCK": block},
        target=target,
    )


def collatz(target: int) -> Case:
    x = integers((2, 128), 1, 40, "int32", 1)
    steps = []
    for value in x.reshape(-1).tolist():
        taken = 0
        while value > 1:
            value = 3 * value + 1 if value & 1 else value >> 1
            taken += 1
        steps.append(taken)
    return Case(
        KERNELS + "collatz",
        (2,),
        {"steps": Out(x.shape, "int32"), "x": x},
        {"steps": Near(np.array(steps).reshape(x.shape))},
        {"BLOCK": 128},
        target=target,
    )


def cross_entropy(target: int) -> Case:
    rows, columns = 5, 300
    logits, labels = normal((rows, columns), "bfloat16", 1, scale=2), integers((rows,), 0, columns, "int32", 2)
    values = real(logits)
    weights = reference_softmax(values)
    hit = np.arange(columns) == labels[:, None]
    loss = np.log(np.exp(values).sum(axis=1)) - values[hit]
    return Case(
        KERNELS + "cross_entropy",
        (rows,),
        {"loss": Out((rows,)), "gradient": Out(logits.shape), "logits": logits, "labels": labels, "columns": columns},
        {
            "loss": Near(loss, 2.0**-18 * (1 + np.abs(loss))),
            "gradient": Near(weights - hit, 2.0**-18 * weights + 2.0**-23),
        },
        {"BLOCK": 128},
        target=target,
    )


def descriptor_reductions(target: int) -> Case:
    rows, columns, programs = 16, 32, 4
    x = integers((programs * rows, columns), -50, 50).astype(np.float32)
    words = integers((programs * rows, columns), -1000, 1000, "int32", 2)
    stacked = words.reshape(programs, rows, columns)
    block = (rows, columns)
    zeros = Out(block, "int32", zeros=True)
    return Case(
        KERNELS + "descriptor_reductions",
        (programs,),
        {
            "sums": Tile(Out(block, zeros=True), block),
            "lows": Tile(zeros, block),
            "highs": Tile(zeros, block),
            "bits": Tile(zeros, block),
            "x": Tile(x, block),
            "words": Tile(words, block),
        },
        {
            "sums": Near(real(x).reshape(programs, rows, columns).sum(axis=0)),
            "lows": Near(np.minimum(stacked.min(axis=0), 0)),
            "highs": Near(np.maximum(stacked.max(axis=0), 0)),
            "bits": Near(np.bitwise_xor.reduce(stacked, axis=0)),
        },
        target=target,
    )


ALL = (
    softmax,
    layernorm,
    rmsnorm,
    scans,
    histogram,
    atomics,
    locked,
    last_one_sums,
    reductions,
    transpose,
    gathers,
    sorts,
    shuffles,
    inline_asm,
    dropout,
    functions,
    whole_numbers,
    casts,
    collatz,
    cross_entropy,
    descriptor_reductions,
)
