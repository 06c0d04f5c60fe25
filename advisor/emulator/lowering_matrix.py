"""The emitters of matrix instructions of one warp: ldmatrix, stmatrix, movmatrix, mma.sync. Imports its own room.

Which lane holds which element is the business of `fragments`, the arithmetic that of `mma`.
"""

from __future__ import annotations

from advisor.emulator import mma
from advisor.emulator.lowering import Emitter, Value, handles
from advisor.emulator.lowering_memory import Access, elements_of
from advisor.emulator.ptx.ir import Address, Immediate, Instruction, Operand, Vector
from advisor.emulator.scaled_mma import scaled_mma

_SHAPES = {"m8n8", "m16n16", "m8n16", "m16n8"}
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_PACKED = {"b6x16_p32", "b4x16_p64"}


def _matrices(emitter: Emitter, instruction: Instruction) -> tuple[str, int, bool]:
    """Shape, number of matrices, and whether they are transposed."""
    qualifiers = instruction.qualifiers
    known = {"sync", "aligned", "trans", "shared", "shared::cta", "b16", "b8", "b8x16"}
    emitter.only(instruction, known, _SHAPES, set(_COUNTS), _PACKED)
    shape = next((each for each in qualifiers if each in _SHAPES), "")
    count = next((_COUNTS[each] for each in qualifiers if each in _COUNTS), 0)
    if not shape or not count:
        emitter.refuse("no shape or no number of matrices")
    return shape, count, "trans" in qualifiers


def _whole(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """All 32 lanes of each warp take part."""
    emitter.emit(f"M.whole_warps(g, {index}, {emitter.lanes(instruction)})")


@handles("ldmatrix")
def load_matrix(emitter: Emitter, index: int, instruction: Instruction) -> None:
    shape, count, transpose = _matrices(emitter, instruction)
    to, address = instruction.operands
    assert isinstance(address, Address)
    source = next((each for each in instruction.qualifiers if each in _PACKED), "")
    registers = count * (2 if shape == "m16n16" else 1)
    _whole(emitter, index, instruction)
    access = emitter.program.constant(Access(index, "shared", 8, 2), "access", index)
    names = [emitter.fresh() for _ in range(registers)]
    place = emitter.address(address, 32)
    form = f"{shape!r}, {count}, {transpose}, {source!r}"
    emitter.emit(f"{', '.join(names)}, = M.load_matrix(g, {access}, {place}, {form})")
    for element, name in zip(elements_of(emitter, to, registers), names, strict=True):
        emitter.define(element, Value(name, 32), instruction)


@handles("stmatrix")
def store_matrix(emitter: Emitter, index: int, instruction: Instruction) -> None:
    shape, count, transpose = _matrices(emitter, instruction)
    address, source = instruction.operands
    assert isinstance(address, Address)
    _whole(emitter, index, instruction)
    access = emitter.program.constant(Access(index, "shared", 8, 2), "access", index)
    values = _arrays(emitter, source, count)
    emitter.emit(f"M.store_matrix(g, {access}, {emitter.address(address, 32)}, {shape!r}, {transpose}, {values})")


@handles("movmatrix")
def move_matrix(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "sync", "aligned", "m8n8", "trans", "b16")
    to, source = instruction.operands
    _whole(emitter, index, instruction)
    text = emitter.array(emitter.source(source, "b32"))
    emitter.define(to, Value(f"M.transposed({text})", 32), instruction)


@handles("mma")
def multiply(emitter: Emitter, index: int, instruction: Instruction) -> None:
    if instruction.has("block_scale"):
        _scaled(emitter, index, instruction)
        return
    form = mma.warp_mma(instruction.text)
    if form is None:
        emitter.refuse()
    to, a, b, c = instruction.operands
    _whole(emitter, index, instruction)
    bits = 64 if form.product.d == "f64" else 32
    function = emitter.program.constant(form, "mma", instruction.text)
    operands = ", ".join(
        (
            _arrays(emitter, a, form.a_registers, 64 if form.product.a == "f64" else 32),
            _arrays(emitter, b, form.b_registers, 64 if form.product.b == "f64" else 32),
            _arrays(emitter, c, form.d_registers, bits),
        )
    )
    names = [emitter.fresh() for _ in range(form.d_registers)]
    emitter.emit(f"{', '.join(names)}, = {function}({operands}, M.numerics)")
    for element, name in zip(elements_of(emitter, to, form.d_registers), names, strict=True):
        emitter.define(element, Value(name, bits), instruction)


def _scaled(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """`mma.sync` with block scales, whose selectors are immediates."""
    form = scaled_mma(instruction.text)
    if form is None:
        emitter.refuse()
    to, a, b, c, scale_a, which_a, scale_b, which_b = instruction.operands
    selectors = []
    for which in (which_a, which_b):
        words = which.elements if isinstance(which, Vector) else ()
        selectors.append([each.value for each in words if isinstance(each, Immediate)])
        if len(selectors[-1]) != 2:
            emitter.refuse("the selectors of scales are two immediates")
    bytes_, threads = zip(*selectors, strict=True)
    wrong = form.violations(bytes_, threads)
    if wrong:
        emitter.refuse("; ".join(wrong))
    _whole(emitter, index, instruction)
    function = emitter.program.constant(form, "mma", instruction.text)
    operands = ", ".join(_arrays(emitter, each, count) for each, count in ((a, 4), (b, 2), (c, 4)))
    scales = f"({', '.join(emitter.array(emitter.source(each, 'b32')) for each in (scale_a, scale_b))})"
    names = [emitter.fresh() for _ in range(form.d_registers)]
    emitter.emit(f"{', '.join(names)}, = {function}({operands}, {scales}, {bytes_}, {threads})")
    for element, name in zip(elements_of(emitter, to, form.d_registers), names, strict=True):
        emitter.define(element, Value(name, 32), instruction)


def _arrays(emitter: Emitter, operand: Operand, count: int, bits: int = 32) -> str:
    """Text of a list of `count` arrays."""
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(elements) != count:
        emitter.refuse(f"{len(elements)} registers where the form has {count}")
    return f"[{', '.join(emitter.array(emitter.source(each, f'b{bits}')) for each in elements)}]"
