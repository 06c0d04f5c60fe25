"""The emitters of tcgen05. Imports its own room.

alloc, dealloc and relinquish_alloc_permit end a block and are not here: see `tcgen05.Tcgen05.wait`.
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.emulator.lowering import Emitter, Value, handles
from advisor.emulator.lowering_async import shared_address
from advisor.emulator.lowering_memory import elements_of
from advisor.emulator.ptx.ir import Address, Immediate, Instruction, Operand, Vector
from advisor.emulator.tcgen05 import MultiplyForm, TransferForm
from advisor.emulator.tcgen05_descriptors import BLOCK_SCALED, KINDS
from advisor.emulator.tcgen05_layouts import SHAPES, Fragment

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
        last = instruction.operands[2 if instruction.has("ld") else 1]
        if not isinstance(last, Immediate):
            emitter.refuse("no immediate distance of the second part")
        split = last.value
    return emitter.program.constant(TransferForm(index, fragment, split), "tcgen05", index)


def _load(emitter: Emitter, index: int, instruction: Instruction) -> None:
    form = _transfer(emitter, index, instruction)
    fragment = emitter.program.constants[form].fragment
    lanes = emitter.lanes(instruction)
    address = _tensor_address(emitter, instruction.operands[1])
    names = [emitter.fresh() for _ in range(fragment.registers)]
    emitter.emit(f"{', '.join(names)}, = M.tcgen05.load(g, {form}, {address}, {lanes})")
    elements = elements_of(emitter, instruction.operands[0], fragment.registers)
    for element, name in zip(elements, names, strict=True):
        emitter.define(element, Value(name, 32), instruction)


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
    emitter.emit(f"M.tcgen05.commit(g, {index}, {_group(instruction)}, {place}, {mask}, {lanes})")


def _multiply(emitter: Emitter, index: int, instruction: Instruction) -> None:
    kinds = {f"kind::{each}" for each in KINDS - BLOCK_SCALED}
    collectors = {f"collector::a::{each}" for each in ("fill", "use", "lastuse", "discard")}
    emitter.only(instruction, "mma", _GROUPS, kinds, collectors)
    kind = next((each for each in instruction.qualifiers if each in kinds), "")
    if not kind:
        emitter.refuse("no kind")
    d, a, b, descriptor, *rest = instruction.operands
    if isinstance(a, Address) or isinstance(rest[0], Vector):
        emitter.refuse("A in tensor memory, or a mask of lanes")
    use_d = rest.pop(0)
    halvings = rest[0].value if rest and isinstance(rest[0], Immediate) else 0
    form = emitter.program.constant(
        MultiplyForm(index, kind.removeprefix("kind::"), _group(instruction), False, halvings), "tcgen05", index
    )
    lanes = emitter.lanes(instruction)
    operands = ", ".join(
        (
            _tensor_address(emitter, d),
            _array(emitter, a, "b64"),
            _array(emitter, b, "b64"),
            _array(emitter, descriptor, "b32"),
            _array(emitter, use_d, "pred"),
        )
    )
    emitter.emit(f"M.tcgen05.multiply(g, {form}, {operands}, {lanes})")


_WRITERS: dict[str, Callable[[Emitter, int, Instruction], None]] = {
    "ld": _load,
    "st": _store,
    "wait::ld": _wait,
    "wait::st": _wait,
    "fence::before_thread_sync": _fence,
    "fence::after_thread_sync": _fence,
    "commit": _commit,
    "mma": _multiply,
}
