"""The emitters of instructions that touch memory: ld, st, atom, red, fences, cp.async. Imports its own room.

Everything about an access that does not change from run to run is one `Access`, made here once; the generated line
hands it to the machine with the addresses and the lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor.emulator.lowering import Emitter, Value, handles
from advisor.emulator.memory import Update
from advisor.emulator.ptx.ir import TYPE_BITS, Address, Immediate, Instruction, Operand, Register, Symbol, Vector
from advisor.emulator.updates import OPERATIONS, update

SPACES = frozenset({"global", "shared", "shared::cta", "shared::cluster", "local", "param", "const"})
STRENGTHS = frozenset({"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio"})
SCOPES = frozenset({"cta", "cluster", "gpu", "sys"})
_HINTS = """L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate L2::cache_hint L2::64B
L2::128B L2::256B L2::evict_last L2::evict_normal L2::evict_first nc ca cg cs lu cv wb wt unified noftz"""
HINTS = frozenset(_HINTS.split())
"""Qualifiers that change nothing that a kernel can see."""
_TYPES = frozenset(TYPE_BITS)


@dataclass(frozen=True, slots=True)
class Access:
    """One instruction's access: `count` elements of `width` bytes of each lane, in one piece."""

    site: int  # the instruction's index
    space: str  # global, shared, local, param, or generic
    width: int
    count: int
    everywhere: bool = False  # shared::cluster: any CTA of the cluster
    strength: str = "weak"
    scope: str = "sys"
    spot: bool = False  # names a variable of the kernel itself: always inside

    @property
    def size(self) -> int:
        return self.width * self.count


def access_of(
    emitter: Emitter, index: int, instruction: Instruction, *others: str | set[str] | frozenset[str]
) -> Access:
    """Reads space, order, scope, vector and type off the qualifiers; refuses what is not among them or `others`."""
    emitter.only(instruction, SPACES, STRENGTHS, SCOPES, HINTS, _TYPES, "v2", "v4", "v8", *others)
    qualifiers = instruction.qualifiers
    space = next((each for each in qualifiers if each in SPACES), "generic")
    address = next(each for each in instruction.operands if isinstance(each, Address))
    if isinstance(address.base, Symbol) and space in ("generic", "param", "local"):
        space = emitter.space_of(address.base.name)
    kind = next(each for each in reversed(qualifiers) if each in _TYPES)
    count = next((int(each[1:]) for each in qualifiers if each in ("v2", "v4", "v8")), 1)
    if kind == "b128":
        kind, count = "b64", 2 * count
    return Access(
        site=index,
        space="global" if space == "const" else space.split("::")[0],
        width=TYPE_BITS[kind] // 8,
        count=count,
        everywhere=space == "shared::cluster",
        strength=next((each for each in qualifiers if each in STRENGTHS), "weak"),
        scope=next((each for each in qualifiers if each in SCOPES), "sys"),
    )


def address_text(emitter: Emitter, access: Access, address: Address) -> str:
    return emitter.address(address, 32 if access.space == "shared" else 64)


def elements_of(emitter: Emitter, operand: Operand, count: int) -> tuple[Operand, ...]:
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(elements) != count:
        emitter.refuse(f"{count} elements are accessed and {len(elements)} named")
    return elements


def stored_values(emitter: Emitter, instruction: Instruction, access: Access, source: Operand) -> list[str]:
    """Texts of the elements that are stored; a register of 128 bits is two of 64."""
    if not instruction.has("b128"):
        elements = elements_of(emitter, source, access.count)
        return [emitter.array(emitter.source(each, f"b{8 * access.width}")) for each in elements]
    values = []
    for each in elements_of(emitter, source, access.count // 2):
        variable = emitter.fresh()
        emitter.emit(f"{variable} = {emitter.array(emitter.source(each, 'b128'))}")
        values += [f"{variable}['low']", f"{variable}['high']"]
    return values


@handles("ld", "ldu")
def load(emitter: Emitter, index: int, instruction: Instruction) -> None:
    access = access_of(emitter, index, instruction)
    to, address = instruction.operands[:2]
    assert isinstance(address, Address)
    kind = next(each for each in reversed(instruction.qualifiers) if each in _TYPES)
    count = access.count
    if access.space == "param" and isinstance(address.base, Symbol):
        values = _parameters(emitter, access, address)
    else:
        lanes = emitter.lanes(instruction)
        constant = emitter.program.constant(access, "access", index)
        names = [emitter.fresh() for _ in range(access.count)]
        text = address_text(emitter, access, address)
        emitter.emit(f"{', '.join(names)}, = M.load_{access.space}(g, {constant}, {text}, {lanes})")
        values = [Value(name, 8 * access.width) for name in names]
    if kind == "b128":
        count //= 2
        halves = [emitter.array(each) for each in values]
        values = [Value(f"joined({halves[2 * each]}, {halves[2 * each + 1]})", 128) for each in range(count)]
    for element, value in zip(elements_of(emitter, to, count), values, strict=True):
        emitter.define(element, value, instruction, signed=kind[0] == "s")


def _parameters(emitter: Emitter, access: Access, address: Address) -> list[Value]:
    """A kernel's parameters at fixed offsets: the same in all lanes."""
    assert isinstance(address.base, Symbol)
    start = emitter.program.params[address.base.name] + address.offset
    if start % access.size:
        emitter.refuse(f"reads {access.size} bytes at offset {start} of the parameters")
    values = []
    for each in range(access.count):
        name = emitter.fresh()
        emitter.emit(f"{name} = M.parameters.view[{access.width}][{start // access.width + each}]")
        values.append(Value(name, 8 * access.width, True))
    return values


@handles("st")
def store(emitter: Emitter, index: int, instruction: Instruction) -> None:
    if instruction.has("async"):
        _remote_store(emitter, index, instruction)
        return
    access = access_of(emitter, index, instruction)
    address, source = instruction.operands[:2]
    assert isinstance(address, Address)
    lanes = emitter.lanes(instruction)
    constant = emitter.program.constant(access, "access", index)
    values = stored_values(emitter, instruction, access, source)
    text = address_text(emitter, access, address)
    emitter.emit(f"M.store_{access.space}(g, {constant}, {text}, [{', '.join(values)}], {lanes})")


def _remote_store(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """`st.async` and `red.async`: into the shared memory of a CTA of the cluster, whose mbarrier counts the bytes."""
    others = {"async", "mbarrier::complete_tx::bytes", *OPERATIONS}
    access = access_of(emitter, index, instruction, others)
    if access.space != "shared":
        emitter.refuse("only the form into shared::cluster is executed")
    operation = next((each for each in instruction.qualifiers if each in OPERATIONS), "")
    kind = next(each for each in reversed(instruction.qualifiers) if each in _TYPES)
    address, source, barrier = instruction.operands
    assert isinstance(address, Address)
    assert isinstance(barrier, Address)
    lanes = emitter.lanes(instruction)
    constant = emitter.program.constant(access, "access", index)
    change = "None"
    if instruction.opcode == "red":
        change = emitter.program.constant(update_of(emitter, operation, kind), "update", operation, kind)
    values = [
        emitter.array(emitter.source(each, f"b{8 * access.width}"))
        for each in elements_of(emitter, source, access.count)
    ]
    places = f"{emitter.address(address, 32)}, {emitter.address(barrier, 32)}"
    emitter.emit(f"M.transfers.remote_store(g, {constant}, {places}, [{', '.join(values)}], {change}, {lanes})")


# --- atomics ----------------------------------------------------------------------------------------------------------

_VECTOR_ATOMICS = frozenset({"f16", "bf16", "f16x2", "bf16x2", "f32"})  # PTX ISA, atom and red: .v2, .v4, .v8


def update_of(emitter: Emitter, operation: str, kind: str) -> Update:
    """What an atomic operation does to one location."""
    found = update(operation, kind)
    if found is None:
        emitter.refuse(f"no {operation} of {kind} to update memory with")
    return found


@handles("atom", "red")
def atomic(emitter: Emitter, index: int, instruction: Instruction) -> None:
    if instruction.has("async"):
        _remote_store(emitter, index, instruction)
        return
    access = access_of(emitter, index, instruction, set(OPERATIONS))
    operation = next((each for each in instruction.qualifiers if each in OPERATIONS), "")
    kind = next(each for each in reversed(instruction.qualifiers) if each in _TYPES)
    operands = list(instruction.operands)
    to = operands.pop(0) if instruction.opcode == "atom" else None
    address = operands.pop(0)
    assert isinstance(address, Address)
    if not operation:
        emitter.refuse("no operation is named")
    if kind == "b128":
        access = replace(access, width=16, count=1)
    if access.count > 1 and (access.space != "global" or kind not in _VECTOR_ATOMICS or access.size > 16):
        emitter.refuse("vectors of atomics exist for floating-point types of global memory, up to 16 bytes")
    lanes = emitter.lanes(instruction)
    constant = emitter.program.constant(access, "access", index)
    changes = {"shared": update_of(emitter, operation, kind), "global": update(operation, kind, flushed=True)}
    change = emitter.program.constant(changes, "updates", operation, kind)
    b = [
        emitter.array(emitter.source(each, f"b{8 * access.width}"))
        for each in elements_of(emitter, operands[0], access.count)
    ]
    c = emitter.array(emitter.source(operands[1], f"b{8 * access.width}")) if operation == "cas" else "None"
    text = address_text(emitter, access, address)
    results = [emitter.fresh() for _ in range(access.count)]
    emitter.emit(f"{', '.join(results)}, = M.atomic(g, {constant}, {text}, {change}, [{', '.join(b)}], {c}, {lanes})")
    if to is not None:
        for element, result in zip(elements_of(emitter, to, access.count), results, strict=True):
            emitter.define(element, Value(result, 8 * access.width), instruction, signed=kind[0] == "s")


# --- order ------------------------------------------------------------------------------------------------------------


_FENCE = """proxy async alias generic tensormap::generic mbarrier_init sc acq_rel acquire release cta cluster gpu sys gl
global shared::cta shared::cluster shared sync_restrict::shared::cluster sync_restrict::shared::cta async::generic
async::global async::shared::cta async::shared::cluster"""
_HINTED = """L1 L2 global local tensormap const param L2::evict_last L2::evict_normal L2::128B L1::evict_normal"""


@handles("fence", "membar")
def fence(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, frozenset(_FENCE.split()))
    # membar is a synonym of fence.sc; a fence without semantics is .acq_rel (PTX ISA 9.7.13.4)
    qualifiers = instruction.qualifiers + (("sc",) if instruction.opcode == "membar" else ())
    emitter.emit(f"M.fence(g, {index}, {qualifiers!r}, {emitter.lanes(instruction)})")


@handles("prefetch", "prefetchu", "discard", "applypriority")
def hint(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """A hint to the caches changes nothing that a kernel can see."""
    emitter.only(instruction, frozenset(_HINTED.split()))


@handles("createpolicy")
def cache_policy(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """A cache policy is an opaque operand of hints."""
    known = "fractional range cvt L2 L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged global b64"
    emitter.only(instruction, frozenset(known.split()))
    emitter.define(instruction.operands[0], emitter.constant(0, 64), instruction)


# --- asynchronous copies of single threads ----------------------------------------------------------------------------


def copy(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """`cp.async` without bulk."""
    if "async" not in instruction.qualifiers:
        emitter.refuse()
    if instruction.has("commit_group"):
        emitter.emit(f"M.copies.commit(g, {emitter.lanes(instruction)})")
        return
    if instruction.has("wait_all"):
        emitter.emit(f"M.copies.wait_all(g, {emitter.lanes(instruction)})")
        return
    if instruction.has("wait_group"):
        keep = emitter.source(instruction.operands[0], "u32").text
        emitter.emit(f"M.copies.wait(g, {keep}, {emitter.lanes(instruction)})")
        return
    emitter.only(instruction, "async", "ca", "cg", SPACES, HINTS)
    to, source, size, *rest = instruction.operands
    assert isinstance(to, Address)
    assert isinstance(source, Address)
    bytes_ = size.value if isinstance(size, Immediate) else 0
    if bytes_ not in (4, 8, 16):
        emitter.refuse(f"copies {bytes_} bytes; 4, 8 and 16 exist")
    shared = Access(index, "shared", min(8, bytes_), max(1, bytes_ // 8))
    source_access = Access(index, "global", min(8, bytes_), max(1, bytes_ // 8))
    first = emitter.program.constant(shared, "access", index, "to")
    second = emitter.program.constant(source_access, "access", index, "from")
    if rest and instruction.has("L2::cache_hint"):
        rest.pop()
    kept = "None"
    if rest and isinstance(rest[0], Register) and emitter.type_of(rest[0]) == "pred":
        kept = f"where({emitter.array(emitter.source(rest[0], 'pred'))}, np.uint32(0), np.uint32({bytes_}))"
    elif rest:
        kept = emitter.array(emitter.source(rest[0], "u32"))
    lanes = emitter.lanes(instruction)
    places = f"{emitter.address(to, 32)}, {emitter.address(source, 64)}"
    emitter.emit(f"M.copies.issue(g, {first}, {second}, {places}, {kept}, {lanes})")


# --- clusters ---------------------------------------------------------------------------------------------------------


@handles("mapa")
def mapa(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "shared::cluster", "u32", "u64")
    kind = instruction.qualifiers[-1]
    address = emitter.array(emitter.source(instruction.operands[1], kind))
    rank = emitter.source(instruction.operands[2], "u32")
    if instruction.has("shared::cluster"):
        text = f"M.mapped({address}, {emitter.array(rank)})"
    else:
        window = emitter.constant(1 << 33, 64).text
        text = f"M.mapped({address} - {window}, {emitter.array(rank)}) + {window}"
    emitter.define(instruction.operands[0], Value(text, TYPE_BITS[kind]), instruction)


@handles("getctarank")
def getctarank(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "shared::cluster", "u32", "u64")
    kind = instruction.qualifiers[-1]
    address = emitter.array(emitter.source(instruction.operands[1], kind))
    if not instruction.has("shared::cluster"):
        address = f"({address} - {emitter.constant(1 << 33, 64).text})"
    emitter.define(instruction.operands[0], Value(f"({address} >> 24).astype(np.uint32)", 32), instruction)
