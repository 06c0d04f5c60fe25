"""What a PTX module is made of after parsing. Imports nothing from the project.

An instruction keeps its opcode and its qualifiers as PTX writes them (`ld`, `("global", "v4", "u32")`); what they mean
is the business of the lowering. Registers of nested scopes have unique names, so a function has one flat set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

TYPE_BITS: Mapping[str, int] = {
    **{f"{kind}{bits}": bits for kind in "bsuf" for bits in (8, 16, 32, 64)},
    "b128": 128,
    "pred": 1,
    "f16x2": 32,
    "bf16": 16,
    "bf16x2": 32,
    "tf32": 32,
    "texref": 64,
    "samplerref": 64,
    "surfref": 64,
}


@dataclass(frozen=True, slots=True)
class Register:
    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """An integer, or the bits of a float literal: `0f3F800000` has 32 bits, `0d...` and decimal fractions 64."""

    value: int
    float_bits: int = 0  # 0: an integer


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, a function or a label."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Special:
    """A special register; `%tid.x` has the name `tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result that nobody wants."""


@dataclass(frozen=True, slots=True)
class Not:
    """`!p` as a source."""

    register: Register


@dataclass(frozen=True, slots=True)
class Vector:
    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`p|q`: two destinations."""

    first: Register | Sink
    second: Register | Sink


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; `extra` holds what else the brackets name: coordinates and offsets of a tensor access."""

    base: Register | Symbol | Immediate
    offset: int = 0
    extra: tuple[Operand, ...] = ()


Operand = Register | Immediate | Symbol | Special | Sink | Not | Vector | Pair | Address


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the source that the compiler read."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Instruction:
    opcode: str
    qualifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    line: int  # of the PTX text
    guard: Register | None = None
    guard_negated: bool = False
    place: Place | None = None

    @property
    def text(self) -> str:
        """The opcode with its qualifiers, as PTX spells it."""
        return ".".join((self.opcode, *self.qualifiers))

    def has(self, qualifier: str) -> bool:
        return qualifier in self.qualifiers


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of any state space. `elements` is the product of its dimensions, 0 for `[]` of unknown size."""

    name: str
    space: str
    type: str
    align: int
    elements: int
    initial: tuple[int | Symbol, ...] = ()
    external: bool = False
    scalar: bool = False  # declared without brackets

    @property
    def bytes(self) -> int:
        return self.elements * (TYPE_BITS[self.type] // 8)


@dataclass(frozen=True, slots=True)
class Function:
    """An entry or a device function. `labels` maps a label to the index of the instruction that follows it."""

    name: str
    entry: bool
    params: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    registers: Mapping[str, str]  # name -> type
    variables: tuple[Variable, ...]  # local, shared and param variables of the body
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # .branchtargets
    directives: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # maxntid, reqnctapercluster, ...
    line: int = 0


@dataclass(frozen=True, slots=True)
class Module:
    version: tuple[int, int]
    target: str
    functions: Mapping[str, Function]
    variables: Mapping[str, Variable]

    @property
    def entries(self) -> tuple[str, ...]:
        return tuple(name for name, function in self.functions.items() if function.entry)


def rename(operand: Operand, registers: Mapping[str, str], symbols: Mapping[str, str]) -> Operand:
    """`operand` with other names for its registers and symbols."""
    if isinstance(operand, Register):
        return Register(registers.get(operand.name, operand.name))
    if isinstance(operand, Symbol):
        return replace(operand, name=symbols.get(operand.name, operand.name))
    if isinstance(operand, Not):
        return Not(Register(registers.get(operand.register.name, operand.register.name)))
    if isinstance(operand, Vector):
        return Vector(tuple(rename(each, registers, symbols) for each in operand.elements))
    if isinstance(operand, Pair):
        first, second = (rename(each, registers, symbols) for each in (operand.first, operand.second))
        assert isinstance(first, Register | Sink)
        assert isinstance(second, Register | Sink)
        return Pair(first, second)
    if isinstance(operand, Address):
        base = rename(operand.base, registers, symbols)
        assert isinstance(base, Register | Symbol | Immediate)
        return Address(base, operand.offset, tuple(rename(each, registers, symbols) for each in operand.extra))
    return operand


def registers_of(operand: Operand) -> tuple[str, ...]:
    """Names of every register inside `operand`."""
    if isinstance(operand, Register):
        return (operand.name,)
    if isinstance(operand, Not):
        return (operand.register.name,)
    if isinstance(operand, Vector):
        return tuple(name for each in operand.elements for name in registers_of(each))
    if isinstance(operand, Pair):
        return tuple(each.name for each in (operand.first, operand.second) if isinstance(each, Register))
    if isinstance(operand, Address):
        return (*registers_of(operand.base), *(name for each in operand.extra for name in registers_of(each)))
    return ()
