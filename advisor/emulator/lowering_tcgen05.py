"""The emitters of tcgen05. Imports its own room.

alloc, dealloc and relinquish_alloc_permit end a block and are not here: see `tcgen05.Tcgen05.wait`.
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.emulator import numbers
from advisor.emulator.lowering import Emitter, Value, handles
from advisor.emulator.lowering_async import shared_address
from advisor.emulator.lowering_memory import elements_of
from advisor.emulator.ptx.ir import Address, Immediate, Instruction, Operand, Register, Vector, registers_of
from advisor.emulator.tcgen05 import TransferForm
from advisor.emulator.tcgen05_descriptors import BLOCK_SCALED, KINDS
from advisor.emulator.tcgen05_layouts import COPIES, SHAPES, CopyShape, Fragment
from advisor.emulator.tcgen05_pipe import CopyForm, MultiplyForm, Operands

_GROUPS = frozenset({"cta_group::1", "cta_group::2"})
_REPEATS = {f"x{1 << each}": 1 << each for each in range(8)}


@handles("tcgen05")
def tcgen05(emitter: Emitter, index: int, instruction: Instruction) -> None:
    writer = _WRITERS.get(instruction.qualifiers[0])
    if writer is None:
        emitter.refuse()
    writer(emitter, index, instruction)


def _array(emitter: Emitter, operand: Operand, kind: str) -> str:
    return emitter.array(emitter.source(operand, kind))


def _tensor_address(emitter: Emitter, operand: Operand) -> str:
    if not isinstance(operand, Address):
        emitter.refuse("an operand that is no address of tensor memory")
    return emitter.address(operand, 32)


def _group(instruction: Instruction) -> int:
    return 2 if instruction.has("cta_group::2") else 1


# --- loads, stores, waits, fences -------------------------------------------------------------------------------------


def _transfer(emitter: Emitter, index: int, instruction: Instruction) -> str:
    """The name of the form of a load or store."""
    packing = "pack::16b" if instruction.has("ld") else "unpack::16b"
    if instruction.has("red"):
        emitter.only(instruction, "ld", "red", "sync", "aligned", _REDUCTIONS, set(_REDUCED_SHAPES), set(_REPEATS))
    else:
        emitter.only(instruction, "ld", "st", "sync", "aligned", "b32", packing, set(SHAPES), set(_REPEATS))
    shape = next((each for each in instruction.qualifiers if each in SHAPES), "")
    repeats = next((_REPEATS[each] for each in instruction.qualifiers if each in _REPEATS), 0)
    if not shape or not repeats:
        emitter.refuse("no shape or no number of repeats")
    fragment = Fragment(shape, repeats, instruction.has(packing))
    if fragment.registers > 128:
        emitter.refuse(f"{fragment.registers} registers, where there are at most 128")
    split = 0
    if shape == "16x32bx2":
        last = instruction.operands[-1 if instruction.has("ld") else 1]
        if not isinstance(last, Immediate):
            emitter.refuse("no immediate distance of the second part")
        split = last.value
    return emitter.program.constant(TransferForm(index, fragment, split), "tcgen05", index)


def _load(emitter: Emitter, index: int, instruction: Instruction) -> None:
    form = _transfer(emitter, index, instruction)
    fragment = emitter.program.constants[form].fragment
    lanes = emitter.lanes(instruction)
    reduces = instruction.has("red")
    address = _tensor_address(emitter, instruction.operands[2 if reduces else 1])
    names = [emitter.fresh() for _ in range(fragment.registers)]
    undefined = emitter.undefined = emitter.fresh()
    emitter.emit(f"({', '.join(names)},), {undefined} = M.tcgen05.load(g, {form}, {address}, {lanes})")
    elements = elements_of(emitter, instruction.operands[0], fragment.registers)
    if emitter.follower is None:
        slots = [emitter.program.slots.get(each.name) if isinstance(each, Register) else None for each in elements]
        marks = undefined
        if reduces:
            slots += [emitter.program.slots.get(each) for each in registers_of(instruction.operands[1])]
            marks = f"[*{undefined}, np.logical_or.reduce({undefined})]"
        emitter.emit(f"if {undefined} is not None: M.undefined.begin(g, {index}, {marks}, {tuple(slots)})")
    for element, name in zip(elements, names, strict=True):
        emitter.define(element, Value(name, 32), instruction)
    if reduces:
        _reduce(emitter, instruction, names)


_REDUCED_SHAPES = ("32x32b", "16x32bx2")
_REDUCTIONS = frozenset({"min", "max", "abs", "NaN", "f32", "u32", "s32"})


def _reduce(emitter: Emitter, instruction: Instruction, names: list[str]) -> None:
    """`.red`: the smallest or largest of a thread's registers goes into one more."""
    qualifiers = instruction.qualifiers
    kind = next((each for each in ("f32", "u32", "s32") if each in qualifiers), "")
    floats = kind == "f32"
    if not kind or ("min" in qualifiers) == ("max" in qualifiers) or len(names) < 2:
        emitter.refuse("a reduction is min or max of f32, u32 or s32, over two registers at least")
    if not floats and {"abs", "NaN"} & set(qualifiers):
        emitter.refuse(".abs and .NaN are for f32")
    spelled = f"{'min' if 'min' in qualifiers else 'max'}{'.NaN' if 'NaN' in qualifiers else ''}.{kind}"
    operation = numbers.operation(spelled, 1, 2)
    assert operation is not None
    function = emitter.program.constant(operation.function, "function", spelled, 1, 2)
    source = [f"({each} & np.uint32(0x7FFFFFFF))" for each in names] if "abs" in qualifiers else names
    result = emitter.fresh()
    emitter.emit(f"{result} = {source[0]}")
    for each in source[1:]:
        emitter.emit(f"{result} = {function}({result}, {each})")
    emitter.define(instruction.operands[1], Value(result, 32), instruction)


def _store(emitter: Emitter, index: int, instruction: Instruction) -> None:
    form = _transfer(emitter, index, instruction)
    fragment = emitter.program.constants[form].fragment
    lanes = emitter.lanes(instruction)
    address = _tensor_address(emitter, instruction.operands[0])
    source = instruction.operands[-1]
    elements = source.elements if isinstance(source, Vector) else (source,)
    if len(elements) != fragment.registers:
        emitter.refuse(f"{len(elements)} registers where the form has {fragment.registers}")
    values = ", ".join(_array(emitter, each, "b32") for each in elements)
    emitter.emit(f"M.tcgen05.store(g, {form}, {address}, [{values}], {lanes})")


def _wait(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "wait::ld", "wait::st", "sync", "aligned")
    what = "ld" if instruction.has("wait::ld") else "st"
    emitter.emit(f"M.tcgen05.wait_for(g, {index}, {what!r}, {emitter.lanes(instruction)})")


def _fence(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "fence::before_thread_sync", "fence::after_thread_sync")
    before = instruction.has("fence::before_thread_sync")
    emitter.emit(f"M.tcgen05.fence(g, {before}, {emitter.lanes(instruction)})")


# --- what one thread issues -------------------------------------------------------------------------------------------


def _commit(emitter: Emitter, index: int, instruction: Instruction) -> None:
    known = {"commit", "mbarrier::arrive::one", "shared::cluster", "multicast::cluster", "b64"}
    emitter.only(instruction, known, _GROUPS)
    lanes = emitter.lanes(instruction)
    place = shared_address(emitter, instruction, instruction.operands[0])
    mask = _array(emitter, instruction.operands[1], "u16") if instruction.has("multicast::cluster") else "None"
    emitter.emit(f"M.tcgen05.pipes.commit(g, {index}, {_group(instruction)}, {place}, {mask}, {lanes})")


_BLOCKS = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4}
_SIZES = {"block16": 16, "block32": 32}


def _blocks(emitter: Emitter, instruction: Instruction, kind: str) -> tuple[int, int]:
    """Scales in a row of one instruction, or 0; and elements of a block, or 0: one of both is given."""
    if not instruction.has("block_scale"):
        emitter.refuse(f"kind::{kind} without .block_scale")
    for each in instruction.qualifiers:
        if each in _BLOCKS:
            return _BLOCKS[each], 0
        if each in _SIZES:
            return 0, _SIZES[each]
    if kind == "mxf4nvf4":
        emitter.refuse("kind::mxf4nvf4 without the size of its blocks")
    return 0, 32


def _multiply(emitter: Emitter, index: int, instruction: Instruction) -> None:
    ws = instruction.has("ws")
    buffers = [f"b{each}" for each in range(4)] if ws else ["a"]
    collectors = {f"collector::{each}::{use}" for each in buffers for use in ("fill", "use", "lastuse", "discard")}
    kinds = {f"kind::{each}" for each in KINDS}
    emitter.only(
        instruction, "mma", "ws", "ashift", "block_scale", _GROUPS, kinds, collectors, set(_BLOCKS), set(_SIZES)
    )
    kind = next((each for each in instruction.qualifiers if each in kinds), "").removeprefix("kind::")
    if not kind:
        emitter.refuse("no kind")
    d, a, b, descriptor, *rest = instruction.operands
    blocks, block_size = _blocks(emitter, instruction, kind) if kind in BLOCK_SCALED else (0, 0)
    named = {"d": _tensor_address(emitter, d), "b": _array(emitter, b, "b64")}
    named["a"] = _tensor_address(emitter, a) if isinstance(a, Address) else _array(emitter, a, "b64")
    named["descriptor"] = _array(emitter, descriptor, "b32")
    if kind in BLOCK_SCALED:
        named["scales"] = f"[{', '.join(_tensor_address(emitter, each) for each in rest[:2])}]"
        rest = rest[2:]
    if isinstance(rest[0], Vector):
        words = rest.pop(0)
        assert isinstance(words, Vector)
        if len(words.elements) != 4 * _group(instruction):
            emitter.refuse(f"{len(words.elements)} words of disabled lanes")
        named["disabled"] = f"[{', '.join(_array(emitter, each, 'b32') for each in words.elements)}]"
    named["use_d"] = _array(emitter, rest.pop(0), "pred")
    halvings = 0
    if rest and ws:
        named["zero_mask"] = _array(emitter, rest[0], "b64")
    elif rest:
        if not isinstance(rest[0], Immediate) or kind not in ("f16", "tf32") or not 0 <= rest[0].value <= 15:
            emitter.refuse("scale-input-d is an immediate from 0 to 15, of kinds f16 and tf32")
        halvings = rest[0].value
    if instruction.has("ashift") and not isinstance(a, Address):
        emitter.refuse("a shifted A lies in tensor memory")
    form = MultiplyForm(
        index,
        kind,
        _group(instruction),
        ws,
        isinstance(a, Address),
        blocks,
        block_size,
        halvings,
        instruction.has("ashift"),
    )
    name = emitter.program.constant(form, "tcgen05", index)
    operands = emitter.program.constant(Operands, "tcgen05 operands")
    lanes = emitter.lanes(instruction)
    given = ", ".join(f"{each}={text}" for each, text in named.items())
    emitter.emit(f"M.tcgen05.pipes.multiply(g, {name}, {operands}({given}), {lanes})")


_MULTICASTS = frozenset({"warpx2::02_13", "warpx2::01_23", "warpx4"})
_PACKED = frozenset({"b6x16_p32", "b4x16_p64"})


def _copy(emitter: Emitter, index: int, instruction: Instruction) -> None:
    shapes = {shape for shape, _ in COPIES}
    emitter.only(instruction, "cp", "b8x16", _GROUPS, _MULTICASTS, _PACKED, shapes)
    shape = next((each for each in instruction.qualifiers if each in shapes), "")
    multicast = next((each for each in instruction.qualifiers if each in _MULTICASTS), "")
    source = next((each for each in instruction.qualifiers if each in _PACKED), "")
    if (shape, multicast) not in COPIES or bool(source) != instruction.has("b8x16"):
        emitter.refuse("a shape, a multicast and formats that do not belong together")
    form = CopyForm(index, _group(instruction), CopyShape(shape, multicast), source)
    name = emitter.program.constant(form, "tcgen05", index)
    lanes = emitter.lanes(instruction)
    address, descriptor = instruction.operands
    operands = f"{_tensor_address(emitter, address)}, {_array(emitter, descriptor, 'b64')}"
    emitter.emit(f"M.tcgen05.pipes.copy(g, {name}, {operands}, {lanes})")


def _shift(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "shift", "down", _GROUPS)
    lanes = emitter.lanes(instruction)
    address = _tensor_address(emitter, instruction.operands[0])
    emitter.emit(f"M.tcgen05.pipes.shift(g, {index}, {_group(instruction)}, {address}, {lanes})")


_WRITERS: dict[str, Callable[[Emitter, int, Instruction], None]] = {
    "ld": _load,
    "st": _store,
    "wait::ld": _wait,
    "wait::st": _wait,
    "fence::before_thread_sync": _fence,
    "fence::after_thread_sync": _fence,
    "commit": _commit,
    "mma": _multiply,
    "cp": _copy,
    "shift": _shift,
}
