"""`expected` of a launch file: formulas over the buffers, evaluated in float64, against what the kernel left behind.

A formula is a NumPy expression of a small language: arithmetic, comparisons, `@`, `.T` and `.mT`, subscripts of whole
numbers and slices, and the functions below. Its names are the buffers as they were before the kernel ran. Nothing else
can be named, so a launch file from anywhere is safe to read. Raises InputError EMU_FORMULA.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.launching import initial_values, numpy_type
from advisor.errors import InputError
from advisor.records.launch import TORCH_TYPE_BYTES, BufferInit, ResolvedLaunch

Array = NDArray[Any]

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    name: getattr(np, name)
    for name in (
        "abs", "ceil", "clip", "cos", "exp", "exp2", "floor", "log", "log2", "max", "maximum", "mean", "min", "minimum",
        "reshape", "rint", "sign", "sin", "sqrt", "square", "sum", "swapaxes", "tanh", "where",
    )
}  # fmt: skip
_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
}
_UNARY: Mapping[type, Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_COMPARE: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_TRANSPOSES = ("T", "mT")
MAX_FORMULA = 4096  # characters: the parser's own stack is not the reader's concern


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a formula gives for a buffer, and how far from it each element may be."""

    buffer: str
    formula: str
    wanted: Array
    bound: Array


@dataclass(frozen=True, slots=True)
class Comparison:
    """One buffer against its formula. The worst element is the one furthest beyond its bound."""

    buffer: str
    formula: str
    elements: int
    wrong: int
    worst: tuple[int, ...] | None  # where; None for an empty buffer
    value: float
    wanted: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.wrong == 0

    def as_document(self) -> dict[str, Any]:
        """For --json; numbers that JSON does not have become text."""
        figures = {"value": self.value, "wanted": self.wanted, "bound": self.bound}
        return {
            "buffer": self.buffer,
            "formula": self.formula,
            "passed": self.passed,
            "elements": self.elements,
            "wrong": self.wrong,
            "worst": list(self.worst) if self.worst is not None else None,
            **{name: each if math.isfinite(each) else str(each) for name, each in figures.items()},
        }

    def __str__(self) -> str:
        if self.worst is None:
            return f"{self.buffer}: empty"
        at = f"{self.buffer}[{', '.join(map(str, self.worst))}]"
        error = f"{at} is {self.value:.9g}, wanted {self.wanted:.9g}: off by {abs(self.value - self.wanted):.3g}"
        share = f"{self.wrong} of {self.elements} elements are wrong" if self.wrong else f"{self.elements} elements"
        return f"{self.buffer} = {self.formula}: {share}; worst {error}, bound {self.bound:.3g}"


def float64_values(raw: Array, buffer: BufferInit) -> Array:
    """The bytes of a buffer as float64, in its shape; two values of 4 bits per byte double the last extent."""
    if buffer.dtype == "float4_e2m1fn_x2":
        nibbles = np.stack([raw & 15, raw >> 4], axis=-1).reshape(*buffer.shape[:-1], -1)
        return nibbles.view(numpy_type("float4_e2m1fn")).astype(np.float64)
    return raw.view(numpy_type(buffer.dtype)).reshape(buffer.shape).astype(np.float64)


def first_bytes(launch: ResolvedLaunch, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The bytes of each buffer before the kernel runs; all ones where nothing is written first."""
    found = {}
    for name, buffer in launch.buffers.items():
        size = math.prod(buffer.shape) * TORCH_TYPE_BYTES[buffer.dtype]
        if name in inputs:
            values = inputs[name]
        else:
            values = np.full(size, 0xFF, np.uint8) if buffer.init == "poison" else initial_values(buffer)
        found[name] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return found


def expectations(launch: ResolvedLaunch, inputs: Mapping[str, Array]) -> tuple[Expectation, ...]:
    """Every formula of a launch, evaluated; before the kernel runs, so that a wrong one is known at once."""
    for each in launch.expected:
        if each.buffer not in launch.buffers:
            _refuse(f"`expected` names the buffer {each.buffer!r}, which the launch does not have", each.buffer)
    if not launch.expected:
        return ()
    values = {name: float64_values(raw, launch.buffers[name]) for name, raw in first_bytes(launch, inputs).items()}
    found = []
    with np.errstate(all="ignore"):
        for each in launch.expected:
            shape = values[each.buffer].shape
            wanted = _spread(evaluate(each.formula, values), shape, each.formula)
            bound = _spread(evaluate(each.bound, values), shape, each.bound)
            if (np.isposinf(bound) & np.isfinite(wanted)).any():
                _refuse("as a bound it is infinite where the formula is a number, which nothing can miss", each.bound)
            found.append(Expectation(each.buffer, each.formula, wanted, bound))
    return tuple(found)


def compare(each: Expectation, raw: Array, buffer: BufferInit) -> Comparison:
    """The bytes that the kernel left against a formula."""
    got = float64_values(raw, buffer)
    wanted, bound = each.wanted, each.bound
    if not got.size:
        return Comparison(each.buffer, each.formula, 0, 0, None, 0.0, 0.0, 0.0)
    with np.errstate(all="ignore"):
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        error = np.where(same, 0.0, np.abs(got - wanted))
        wrong = ~(same | (error <= bound))  # a NaN on one side is not within any bound
        excess = error - bound
    if wrong.any():
        rank = np.where(wrong, np.where(np.isnan(excess), np.inf, excess), -np.inf)
    else:
        rank = np.where(np.isnan(excess), -np.inf, excess)
    place = int(np.argmax(rank))
    worst = tuple(int(index) for index in np.unravel_index(place, got.shape))
    return Comparison(
        each.buffer,
        each.formula,
        int(got.size),
        int(np.count_nonzero(wrong)),
        worst,
        float(got[worst]),
        float(wanted[worst]),
        float(bound[worst]),
    )


def _spread(value: Any, shape: tuple[int, ...], text: str) -> Array:
    try:
        return np.broadcast_to(np.asarray(value, np.float64), shape)
    except (TypeError, ValueError):
        _refuse(f"the value has shape {np.shape(value)}, the buffer {shape}", text)


def _refuse(why: str, text: str) -> NoReturn:
    raise InputError(
        "EMU_FORMULA",
        f"`{text}` cannot be evaluated: {why}",
        fix=f"use buffer names, arithmetic, @, .T, .mT and {', '.join(FUNCTIONS)}",
        numbers={"formula": text},
    )


def evaluate(text: str, values: Mapping[str, Array]) -> Any:
    """The value of one formula. Raises InputError EMU_FORMULA."""
    if len(text) > MAX_FORMULA:
        _refuse(f"it is longer than {MAX_FORMULA} characters", text[:40] + "...")
    try:
        body = ast.parse(text.strip(), mode="eval").body
        return _Evaluation(text, values).value(body)
    except SyntaxError as error:
        _refuse(f"{error.msg} at character {error.offset}", text)
    except (RecursionError, MemoryError):
        _refuse("it is too deep or too large", text)
    except (TypeError, ValueError, IndexError) as error:  # of NumPy: shapes that do not fit, an axis that is not there
        _refuse(str(error), text)


class _Evaluation:
    """Walks the syntax tree of one formula; whatever has no method here is refused."""

    def __init__(self, text: str, values: Mapping[str, Array]) -> None:
        self.text = text
        self.values = values

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return np.float64(number)  # whole numbers too: a power of them cannot grow without end
            case ast.Name():
                if node.id not in self.values:
                    _refuse(f"no buffer is named {node.id!r}", self.text)
                return self.values[node.id]
            case ast.BinOp() if type(node.op) in _BINARY:
                return _BINARY[type(node.op)](self.value(node.left), self.value(node.right))
            case ast.UnaryOp() if type(node.op) in _UNARY:
                return _UNARY[type(node.op)](self.value(node.operand))
            case ast.Compare(ops=[op]) if type(op) in _COMPARE:
                return _COMPARE[type(op)](self.value(node.left), self.value(node.comparators[0]))
            case ast.Attribute() if node.attr in _TRANSPOSES:
                return getattr(np.asarray(self.value(node.value)), node.attr)
            case ast.Subscript():
                return self.value(node.value)[self.index(node.slice)]
            case ast.Call():
                return self.call(node)
        _refuse(f"{ast.unparse(node)} is not part of the language", self.text)

    def call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func).removeprefix("np.")
        if name not in FUNCTIONS:
            _refuse(f"no function is named {name!r}", self.text)
        options = {}
        for keyword in node.keywords:
            if keyword.arg not in ("axis", "keepdims"):
                _refuse(f"{name} takes only axis and keepdims by name", self.text)
            options[keyword.arg] = self.whole(keyword.value)
        if name in ("reshape", "swapaxes") and node.args:
            numbers = [self.whole(each) for each in node.args[1:]]
            array = self.value(node.args[0])
            return np.reshape(array, numbers) if name == "reshape" else np.swapaxes(array, *numbers)
        return FUNCTIONS[name](*(self.value(each) for each in node.args), **options)

    def index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self.index(each) for each in node.elts)
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return slice(*(None if each is None else self.whole(each) for each in parts))
        if isinstance(node, ast.Constant) and node.value in (None, ...):
            return node.value
        return self.whole(node)

    def whole(self, node: ast.expr) -> Any:
        """A whole number, a truth value, or a tuple of them, as it is written."""
        try:
            found = ast.literal_eval(node)
        except ValueError:
            found = None
        parts = found if isinstance(found, tuple) else (found,)
        if not all(isinstance(each, int) for each in parts):
            _refuse(f"{ast.unparse(node)} is no whole number", self.text)
        return found
