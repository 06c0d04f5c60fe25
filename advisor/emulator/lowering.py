"""PTX instructions to lines of Python over NumPy arrays. Imports its own room.

`Emitter` writes one block. What only computes is looked up in `numbers` (or is one NumPy expression, where that is all
there is to it); what touches memory, other lanes or other warps is a call of a method of the machine. An opcode or a
qualifier that nothing here knows raises EMU_UNKNOWN_OPCODE: it is never ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from advisor.emulator import numbers, wide
from advisor.emulator.memory import GLOBAL_BASE, LOCAL_WINDOW, PARAM_WINDOW, SHARED_START, SHARED_WINDOW
from advisor.emulator.operation import WIDTH, Operation
from advisor.emulator.ptx.graph import Block, destination_count, read, written
from advisor.emulator.ptx.ir import (
    TYPE_BITS,
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

if TYPE_CHECKING:
    from advisor.emulator.lowering_undefined import Follower
    from advisor.emulator.program import Program

_DTYPE = {1: "np.bool_", 8: "np.uint8", 16: "np.uint16", 32: "np.uint32", 64: "np.uint64"}
_SIGNED = {8: "np.int8", 16: "np.int16", 32: "np.int32", 64: "np.int64"}
_SCALAR = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


@dataclass(frozen=True, slots=True)
class Value:
    """A Python expression: an array [rows, 32], or a NumPy scalar that all lanes share."""

    text: str
    bits: int
    scalar: bool = False


Handler = Callable[["Emitter", int, Instruction], None]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Registers the emitter of an opcode."""

    def register(function: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = function
        return function

    return register


def opcodes() -> list[str]:
    """Every opcode that is executed."""
    waits = ["bar", "barrier", "mbarrier", "nanosleep", "griddepcontrol", "setmaxnreg"]
    return sorted({*HANDLERS, *numbers.roots(), *_INLINE_ROOTS, *waits, "bra", "brx", "ret", "exit", "call"})


class Emitter:
    """Writes the function of one block."""

    def __init__(self, program: Program, block: Block, *, masked: bool) -> None:
        self.program = program
        self.block = block
        self.is_masked = masked
        self.lines: list[str] = []
        self.values: dict[str, Value] = {}
        self.count = 0
        self.at: Instruction | None = None
        self.stored = set(block.stored)
        self.follower: Follower | None = None  # where marks of undefined values are carried along
        self.undefined = "None"  # text of the lanes whose results are undefined
        self.touched: tuple[dict[int, int], dict[int, int]] = (
            {},
            {},
        )  # register -> first instruction that reads, writes

    # --- the frame ----------------------------------------------------------------------------------------------

    def instruction(self, index: int, instruction: Instruction) -> None:
        self.at = instruction
        if self.program.warpgroup_registers:
            self._note_touches(index, instruction)
        if self.follower is not None:
            self.follower.before(index, instruction)
        handler = HANDLERS.get(instruction.opcode)
        if handler is not None:
            handler(self, index, instruction)
        elif not inline(self, instruction):
            pure(self, instruction)
        if self.follower is not None:
            self.follower.after(index, instruction)

    def _note_touches(self, index: int, instruction: Instruction) -> None:
        """Collects uses of registers that a wgmma may hold; they are reported before the next wgmma instruction."""
        watched = self.program.warpgroup_registers
        if instruction.opcode == "wgmma":
            self._report_touches()
            return
        for names, found in ((read(instruction), self.touched[0]), (written(instruction), self.touched[1])):
            for name in names:
                if name in watched:
                    found.setdefault(self.program.register_number(name), index)

    def _report_touches(self) -> None:
        if any(self.touched):
            both = ", ".join(repr(tuple(each.items())) for each in self.touched)
            self.emit(f"M.warpgroups.touch(g, {both})")
            self.touched = ({}, {})

    def finish(self) -> str:
        """The function's text. It gives the guard of a branch, else None."""
        self._report_touches()
        if self.follower is not None:
            self.follower.finish(self.block)
        result = "None"
        terminator = self.block.terminator
        if terminator is not None and terminator.guard is not None and self.block.kind in ("branch", "exit"):
            self.at = terminator
            result = self.array(self.guard(terminator))
        elif terminator is not None and self.block.kind == "table":
            self.at = terminator
            result = self.array(self.source(terminator.operands[0], "u32"))
        for name in self.block.stored:
            place = f"R[{self.program.slots[name]}]"
            value = self.values[name].text
            self.lines.append(
                f"{place}[s] = where(m, {value}, {place}[s])" if self.is_masked else f"{place}[s] = {value}"
            )
        body = "\n    ".join(self.lines) or "pass"
        return f"def block(M, g, R, s, n, m):\n    {body}\n    return {result}\n"

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def refuse(self, why: str = "") -> NoReturn:
        from advisor.emulator.program import unknown

        assert self.at is not None
        raise unknown(self.at, why)

    def only(self, instruction: Instruction, *allowed: str | set[str] | frozenset[str]) -> None:
        """Refuses an instruction with a qualifier outside `allowed`."""
        known = {name for each in allowed for name in ({each} if isinstance(each, str) else each)}
        for qualifier in instruction.qualifiers:
            if qualifier not in known:
                self.refuse(f".{qualifier} is not known with {instruction.opcode}")

    # --- sources ------------------------------------------------------------------------------------------------

    def type_of(self, register: Register | str) -> str:
        name = register if isinstance(register, str) else register.name
        return self.program.function.registers[name]

    def register(self, name: str) -> Value:
        value = self.values.get(name)
        if value is None:
            bits = TYPE_BITS[self.type_of(name)]
            slot = self.program.slots.get(name)
            if slot is None:  # nothing writes it: PTX leaves its value open
                value = self.constant(0, bits)
            else:
                # A register that this block stores later must not change under an expression that still reads it.
                variable = self.fresh()
                self.emit(f"{variable} = R[{slot}][s]{'.copy()' if name in self.stored else ''}")
                value = Value(variable, bits)
            self.values[name] = value
        return value

    def constant(self, value: int, bits: int) -> Value:
        if bits == 1:
            return Value(self.program.constant(np.bool_(value & 1), "bool", value & 1), 1, True)
        if bits == 128:
            if value:
                self.refuse("a literal of 128 bits")
            return Value(self.program.constant(wide.ZERO, 128, 0), 128, True)
        value &= (1 << bits) - 1
        return Value(self.program.constant(_SCALAR[bits](value), bits, value), bits, True)

    def source(self, operand: Operand, kind: str) -> Value:
        """An operand as unsigned integers of the width of `kind`."""
        bits = TYPE_BITS.get(kind) or WIDTH[kind]
        if isinstance(operand, Register):
            return self.fit(self.register(operand.name), bits, signed=False)
        if isinstance(operand, Immediate):
            return self.constant(_immediate_bits(operand, kind), bits)
        if isinstance(operand, Not):
            return Value(f"~{self.register(operand.register.name).text}", 1)
        if isinstance(operand, Special):
            return self.fit(self.special(operand.name), bits, signed=False)
        if isinstance(operand, Symbol):
            return self.fit(self.symbol(operand), bits, signed=False)
        if isinstance(operand, Vector):
            return self.packed(operand, bits)
        self.refuse("an operand that cannot be read here")

    def packed(self, vector: Vector, bits: int) -> Value:
        """`{lo, hi}` as one value."""
        if bits == 128:
            if len(vector.elements) != 2:
                self.refuse("128 bits are two registers of 64")
            low, high = (self.array(self.source(each, "b64")) for each in vector.elements)
            return Value(f"joined({low}, {high})", 128)
        width = bits // len(vector.elements)
        parts = []
        for index, each in enumerate(vector.elements):
            value = self.source(each, f"b{width}")
            part = f"({value.text}).astype({_DTYPE[bits]})"
            parts.append(part if index == 0 else f"({part} << {self.constant(index * width, bits).text})")
        return Value(f"({' | '.join(parts)})", bits)

    def fit(self, value: Value, bits: int, *, signed: bool) -> Value:
        """The value in another width: cut off, or extended by zeros or the sign."""
        if value.bits == bits or value.bits == 1:
            return value
        if 128 in (value.bits, bits):
            self.refuse(f"{value.bits} bits where {bits} are wanted")
        if signed and bits > value.bits:
            wide = f"({value.text}).view({_SIGNED[value.bits]}).astype({_SIGNED[bits]}).view({_DTYPE[bits]})"
            return Value(wide, bits, value.scalar)
        return Value(f"({value.text}).astype({_DTYPE[bits]})", bits, value.scalar)

    def array(self, value: Value) -> str:
        """Text of an array [rows, 32]."""
        return f"full((n, 32), {value.text})" if value.scalar else value.text

    def special(self, name: str) -> Value:
        bits = 64 if name in ("clock64", "globaltimer", "gridid") else 32
        variable = self.fresh()
        if name.startswith(("clock", "globaltimer", "pm")):
            self.emit(f"{variable} = M.time({name!r}, n)")
        else:
            self.emit(f"{variable} = M.special({name!r})[s]")
        return Value(variable, bits)

    def symbol(self, symbol: Symbol) -> Value:
        """The address of a variable in its own space."""
        program, name = self.program, symbol.name
        if name in program.shared:
            variable = self.fresh()
            offset = self.constant(SHARED_START + program.shared[name] + symbol.offset, 32)
            self.emit(f"{variable} = M.window[s] | {offset.text}")
            return Value(variable, 32)
        if name in program.local:
            return self.constant(program.local[name] + symbol.offset, 64)
        if name in program.params:
            return self.constant(program.params[name] + symbol.offset, 64)
        variable = self.fresh()
        if any(each.name == name for each in program.global_variables):
            self.emit(f"{variable} = M.addresses[{name!r}] + {self.constant(symbol.offset, 64).text}")
            return Value(variable, 64, True)
        self.refuse(f"{name} is not a variable of this module")

    def guard(self, instruction: Instruction) -> Value:
        assert instruction.guard is not None
        value = self.register(instruction.guard.name)
        return Value(f"~{value.text}", 1, value.scalar) if instruction.guard_negated else value

    def lanes(self, instruction: Instruction) -> str:
        """Text of the mask of lanes that execute an instruction, or None where all do."""
        if instruction.guard is None:
            return "m"
        variable = self.fresh()
        guard = self.array(self.guard(instruction))
        self.emit(f"{variable} = {guard} & m" if self.is_masked else f"{variable} = {guard}")
        return variable

    def space_of(self, symbol: str) -> str:
        """The state space of a variable."""
        program = self.program
        for space, names in (("shared", program.shared), ("local", program.local), ("param", program.params)):
            if symbol in names:
                return space
        return "global"

    def address(self, address: Address, bits: int) -> str:
        """Text of an array of addresses of `bits`."""
        base = address.base
        if isinstance(base, Symbol):
            return self.array(
                self.fit(self.symbol(Symbol(base.name, base.offset + address.offset)), bits, signed=False)
            )
        if isinstance(base, Immediate):
            return self.array(self.constant(base.value + address.offset, bits))
        value = self.fit(self.register(base.name), bits, signed=False)
        text = self.array(value)
        return f"({text} + {self.constant(address.offset, bits).text})" if address.offset else text

    # --- destinations -------------------------------------------------------------------------------------------

    def define(self, operand: Operand, value: Value, instruction: Instruction, *, signed: bool = False) -> None:
        """Puts a value into a destination; under a guard only the lanes that it lets through."""
        if isinstance(operand, Sink):
            return
        if isinstance(operand, Vector):
            self.unpack(operand, value, instruction)
            return
        if not isinstance(operand, Register):
            self.refuse("a destination that is not a register")
        bits = TYPE_BITS[self.type_of(operand)]
        value = self.fit(value, bits, signed=signed)
        if instruction.guard is not None:
            old = self.register(operand.name)
            value = Value(f"where({self.guard(instruction).text}, {value.text}, {old.text})", bits)
        variable = self.fresh()
        self.emit(f"{variable} = {value.text}")
        self.values[operand.name] = Value(variable, bits, value.scalar)

    def unpack(self, vector: Vector, value: Value, instruction: Instruction) -> None:
        variable = self.fresh()
        self.emit(f"{variable} = {value.text}")
        if value.bits == 128:
            if len(vector.elements) != 2:
                self.refuse("128 bits are two registers of 64")
            for each, half in zip(vector.elements, ("low", "high"), strict=True):
                self.define(each, Value(f"{variable}[{half!r}]", 64, value.scalar), instruction)
            return
        width = value.bits // len(vector.elements)
        for index, each in enumerate(vector.elements):
            shifted = f"({variable} >> {self.constant(index * width, value.bits).text})" if index else variable
            part = Value(f"{shifted}.astype({_DTYPE[width]})", width, value.scalar)
            self.define(each, part, instruction)


def _immediate_bits(immediate: Immediate, kind: str) -> int:
    """The bits of a literal as a value of `kind`: a fraction without 0f or 0d is a double until it meets its type."""
    if immediate.float_bits == 64 and kind == "f32":
        return int(np.uint64(immediate.value).view(np.float64).astype(np.float32).view(np.uint32))
    if immediate.float_bits == 32 and kind == "f64":
        return int(np.uint32(immediate.value).view(np.float32).astype(np.float64).view(np.uint64))
    return immediate.value


# --- one NumPy expression ---------------------------------------------------------------------------------------------

_COMPARE = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_BINARY = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
_INTEGER = {f"{kind}{bits}" for kind in "us" for bits in (16, 32, 64)}
_BITS = {"b16", "b32", "b64", "pred"}
_INLINE_ROOTS = ("add", "sub", "and", "or", "xor", "mul", "setp", "selp", "shl", "shr", "mov", "cvt")


def inline(emitter: Emitter, instruction: Instruction) -> bool:
    """Emits the hottest integer instructions as one expression; False where it is none of them."""
    writer = _INLINE.get(instruction.opcode)
    return writer is not None and writer(emitter, instruction)


def _two(emitter: Emitter, instruction: Instruction, kind: str) -> tuple[str, str, bool]:
    a = emitter.source(instruction.operands[1], kind)
    b = emitter.source(instruction.operands[2], kind)
    return (emitter.array(a) if a.scalar and b.scalar else a.text), b.text, a.scalar and b.scalar


def _binary(emitter: Emitter, instruction: Instruction) -> bool:
    kind = instruction.qualifiers[-1]
    allowed = _INTEGER if instruction.opcode in ("add", "sub") else _BITS
    if len(instruction.qualifiers) != 1 or kind not in allowed:
        return False
    a, b, _ = _two(emitter, instruction, kind)
    emitter.define(
        instruction.operands[0], Value(f"{a} {_BINARY[instruction.opcode]} {b}", TYPE_BITS[kind]), instruction
    )
    return True


def _multiply(emitter: Emitter, instruction: Instruction) -> bool:
    if len(instruction.qualifiers) != 2 or instruction.qualifiers[1] not in _INTEGER:
        return False
    part, kind = instruction.qualifiers
    bits = TYPE_BITS[kind]
    if part == "lo":
        a, b, _ = _two(emitter, instruction, kind)
        emitter.define(instruction.operands[0], Value(f"{a} * {b}", bits), instruction)
        return True
    if part == "wide" and bits < 64:
        signed = kind[0] == "s"
        first = emitter.fit(emitter.source(instruction.operands[1], kind), 2 * bits, signed=signed)
        second = emitter.fit(emitter.source(instruction.operands[2], kind), 2 * bits, signed=signed)
        left = emitter.array(first) if first.scalar and second.scalar else first.text
        emitter.define(instruction.operands[0], Value(f"{left} * {second.text}", 2 * bits), instruction)
        return True
    return False


def _compare(emitter: Emitter, instruction: Instruction) -> bool:
    qualifiers = instruction.qualifiers
    if len(qualifiers) != 2 or qualifiers[0] not in _COMPARE or isinstance(instruction.operands[0], Pair):
        return False
    operation, kind = qualifiers
    if kind not in _INTEGER and not (kind in ("b16", "b32", "b64") and operation in ("eq", "ne")):
        return False
    a, b, _ = _two(emitter, instruction, kind)
    if kind[0] == "s" and operation not in ("eq", "ne"):
        number = _SIGNED[TYPE_BITS[kind]]
        a, b = f"({a}).view({number})", f"({b}).view({number})"
    emitter.define(instruction.operands[0], Value(f"{a} {_COMPARE[operation]} {b}", 1), instruction)
    return True


def _select(emitter: Emitter, instruction: Instruction) -> bool:
    if len(instruction.qualifiers) != 1:
        return False
    kind = instruction.qualifiers[0]
    yes, no = (emitter.source(each, kind) for each in instruction.operands[1:3])
    p = emitter.source(instruction.operands[3], "pred")
    text = f"where({emitter.array(p)}, {yes.text}, {no.text})"
    emitter.define(instruction.operands[0], Value(text, TYPE_BITS[kind]), instruction)
    return True


def _shift(emitter: Emitter, instruction: Instruction) -> bool:
    amount = instruction.operands[2]
    if len(instruction.qualifiers) != 1 or not isinstance(amount, Immediate):
        return False
    kind = instruction.qualifiers[0]
    bits = TYPE_BITS[kind]
    if (kind[0] not in "bu" and instruction.opcode == "shl") or not 0 <= amount.value < bits:
        return False
    a = emitter.array(emitter.source(instruction.operands[1], kind))
    by = emitter.constant(amount.value, bits).text
    if kind[0] == "s":
        text = f"(({a}).view({_SIGNED[bits]}) >> {by}.view({_SIGNED[bits]})).view({_DTYPE[bits]})"
    else:
        text = f"{a} {'<<' if instruction.opcode == 'shl' else '>>'} {by}"
    emitter.define(instruction.operands[0], Value(text, bits), instruction)
    return True


def _move(emitter: Emitter, instruction: Instruction) -> bool:
    if len(instruction.qualifiers) != 1:
        return False
    kind = instruction.qualifiers[0]
    to, source = instruction.operands
    emitter.define(to, emitter.source(source, kind), instruction)
    return True


def _convert(emitter: Emitter, instruction: Instruction) -> bool:
    """Between integers, without saturation."""
    integers = {f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64)}
    if len(instruction.qualifiers) != 2 or not set(instruction.qualifiers) <= integers:
        return False
    to, source = instruction.qualifiers
    signed = source[0] == "s"
    value = emitter.source(instruction.operands[1], source)
    value = emitter.fit(value, TYPE_BITS[to], signed=signed)
    emitter.define(instruction.operands[0], value, instruction, signed=to[0] == "s")
    return True


_INLINE: dict[str, Callable[[Emitter, Instruction], bool]] = {
    **dict.fromkeys(_BINARY, _binary),
    "mul": _multiply,
    "setp": _compare,
    "selp": _select,
    "shl": _shift,
    "shr": _shift,
    "mov": _move,
    "cvt": _convert,
}

# --- everything else that only computes -------------------------------------------------------------------------------

CARRY = "%carry"


def pure(emitter: Emitter, instruction: Instruction) -> None:
    """An instruction of `numbers`: a function of its sources."""
    destination = instruction.operands[0] if destination_count(instruction) else None
    outputs = _outputs(destination)
    sources = instruction.operands[1:]
    operation = numbers.operation(instruction.text, len(outputs), len(sources))
    if operation is None or destination is None:
        emitter.refuse()
    texts = [_argument(emitter, each, kind) for each, kind in zip(sources, operation.sources, strict=False)]
    if len(operation.sources) == len(sources) + 1:  # the carry flag goes in
        texts.append(emitter.values.get(CARRY, Value("full((n, 32), False)", 1)).text)
    names = [emitter.fresh() for _ in operation.results]
    function = emitter.program.constant(operation.function, "function", instruction.text, len(outputs), len(sources))
    emitter.emit(f"{', '.join(names)} = {function}({', '.join(texts)})")
    for index, (name, kind) in enumerate(zip(names, operation.results, strict=True)):
        value = Value(name, WIDTH[kind])
        if index < len(outputs):
            emitter.define(outputs[index], value, instruction, signed=_is_signed(operation, index))
        else:
            emitter.values[CARRY] = value


def _argument(emitter: Emitter, operand: Operand, kind: str) -> str:
    value = emitter.source(operand, kind)
    return emitter.array(value) if value.scalar else value.text


def _outputs(destination: Operand | None) -> tuple[Operand, ...]:
    if isinstance(destination, Pair):
        return (destination.first, destination.second)
    return () if destination is None else (destination,)


def _is_signed(operation: Operation, index: int) -> bool:
    return operation.results[index].startswith("s")


# --- addresses and windows --------------------------------------------------------------------------------------------

_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW, "global": 0, "const": 0}


@handles("cvta")
def cvta(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """Generic addresses are the space's own plus its window; global and constant memory are generic as they are."""
    emitter.only(instruction, "to", set(_WINDOWS), "shared::cta", "shared::cluster", "u64", "u32")
    space = next(each for each in instruction.qualifiers if each not in ("to", "u64", "u32")).split("::")[0]
    kind = instruction.qualifiers[-1]
    source = instruction.operands[1]
    value = emitter.source(source, kind)
    window = emitter.constant(_WINDOWS[space], TYPE_BITS[kind])
    if _WINDOWS[space]:
        operator = "-" if instruction.has("to") else "+"
        value = Value(f"{emitter.array(value)} {operator} {window.text}", TYPE_BITS[kind])
    emitter.define(instruction.operands[0], value, instruction)


@handles("isspacep")
def isspacep(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, set(_WINDOWS), "shared::cta", "shared::cluster")
    space = instruction.qualifiers[0].split("::")[0]
    address = emitter.fresh()
    emitter.emit(f"{address} = {emitter.array(emitter.source(instruction.operands[1], 'u64'))}")
    if _WINDOWS[space]:
        text = f"({address} >> np.uint64(33)) == np.uint64({_WINDOWS[space] >> 33})"
    else:
        constants = [each for each in emitter.program.global_variables if each.space == "const"]
        starts = [(f"M.addresses[{each.name!r}]", each.bytes) for each in constants]
        ranges = [f"({address} - {start} < np.uint64({size}))" for start, size in starts]
        constant = " | ".join(ranges) or "full((n, 32), False)"
        text = f"({address} >= np.uint64({GLOBAL_BASE})) & ~({constant})" if space == "global" else constant
    emitter.define(instruction.operands[0], Value(text, 1), instruction)
