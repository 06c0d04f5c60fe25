"""The emitters of asynchronous work: mbarrier, bulk and tensor copies, wgmma. Imports its own room.

The generated lines call the machine's `engine`. Waits on an mbarrier end a block and are not here.
"""

from __future__ import annotations

from advisor.emulator import lowering_memory, wgmma
from advisor.emulator.lowering import Emitter, Value, handles
from advisor.emulator.lowering_memory import HINTS
from advisor.emulator.memory import SHARED_WINDOW
from advisor.emulator.ptx.ir import TYPE_BITS, Address, Immediate, Instruction, Operand, Register, Sink, Vector
from advisor.emulator.shared_operand import Major
from advisor.emulator.transfers import Bulk, TensorCopy
from advisor.emulator.warpgroups import Multiply

_ORDER = frozenset({"release", "acquire", "relaxed", "cta", "cluster"})
_SHARED = frozenset({"shared", "shared::cta", "shared::cluster"})
_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


def shared_address(emitter: Emitter, instruction: Instruction, address: Operand) -> str:
    """Text of shared addresses, [n, 32] of 32 bits, also where the instruction takes generic ones."""
    assert isinstance(address, Address)
    if _SHARED & set(instruction.qualifiers):
        return emitter.address(address, 32)
    window = emitter.constant(SHARED_WINDOW, 64).text
    return f"({emitter.address(address, 64)} - {window}).astype(np.uint32)"


def _number(emitter: Emitter, operand: Operand, kind: str = "u32") -> str:
    return emitter.array(emitter.source(operand, kind))


# --- mbarrier ---------------------------------------------------------------------------------------------------------


@handles("mbarrier")
def mbarrier(emitter: Emitter, index: int, instruction: Instruction) -> None:
    operation = instruction.qualifiers[0]
    if operation == "pending_count":
        emitter.only(instruction, "pending_count", "b64")
        state = _number(emitter, instruction.operands[1], "b64")
        emitter.define(
            instruction.operands[0], Value(f"({state} & np.uint64(0xFFFFFFFF)).astype(np.uint32)", 32), instruction
        )
        return
    if operation in ("arrive", "arrive_drop"):
        _arrive(emitter, index, instruction)
        return
    emitter.only(instruction, "init", "inval", "expect_tx", "complete_tx", "b64", _ORDER, _SHARED)
    if operation not in ("init", "inval", "expect_tx", "complete_tx"):
        emitter.refuse()
    lanes = emitter.lanes(instruction)
    place = shared_address(emitter, instruction, instruction.operands[0])
    count = _number(emitter, instruction.operands[1]) if len(instruction.operands) > 1 else "None"
    emitter.emit(f"M.engine.barrier({operation!r}, g, {index}, {place}, {count}, {lanes})")


def _arrive(emitter: Emitter, index: int, instruction: Instruction) -> None:
    emitter.only(instruction, "arrive", "arrive_drop", "expect_tx", "noComplete", "b64", _ORDER, _SHARED)
    operands = list(instruction.operands)
    state = operands.pop(0) if not isinstance(operands[0], Address) else Sink()
    place = shared_address(emitter, instruction, operands[0])
    given = _number(emitter, operands[1]) if len(operands) > 1 else "None"
    lanes = emitter.lanes(instruction)
    expects = instruction.has("expect_tx")
    form = (
        f"drop={instruction.has('arrive_drop')}, no_complete={instruction.has('noComplete')}, "
        f"relaxed={instruction.has('relaxed')}, cluster={instruction.has('cluster')}"
    )
    amount = f"{given if not expects else 'None'}, {given if expects else 'None'}"
    name = emitter.fresh()
    emitter.emit(f"{name} = M.engine.arrive(g, {index}, {place}, {amount}, {lanes}, {form})")
    emitter.define(state, Value(name, 64), instruction)


# --- copies -----------------------------------------------------------------------------------------------------------


@handles("cp")
def copy(emitter: Emitter, index: int, instruction: Instruction) -> None:
    if instruction.has("mbarrier") and not instruction.has("bulk"):
        emitter.only(instruction, "async", "mbarrier", "arrive", "noinc", "b64", _SHARED)
        place = shared_address(emitter, instruction, instruction.operands[0])
        lanes = emitter.lanes(instruction)
        emitter.emit(f"M.engine.arrive_after_copies(g, {index}, {place}, {instruction.has('noinc')}, {lanes})")
    elif not instruction.has("bulk"):
        lowering_memory.copy(emitter, index, instruction)
    elif instruction.has("commit_group"):
        emitter.emit(f"M.transfers.bulk_commit(g, {index}, {emitter.lanes(instruction)})")
    elif instruction.has("wait_group"):
        emitter.only(instruction, "async", "bulk", "wait_group", "read")
        (count,) = instruction.operands
        assert isinstance(count, Immediate)
        lanes = emitter.lanes(instruction)
        emitter.emit(f"M.transfers.bulk_wait(g, {index}, {count.value}, {instruction.has('read')}, {lanes})")
    elif instruction.has("prefetch"):
        _prefetch(emitter, index, instruction)
    elif instruction.has("tensor"):
        _tensor_copy(emitter, index, instruction)
    else:
        _bulk_copy(emitter, index, instruction)


def _prefetch(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """A hint to L2. What the plain form demands of its bytes is checked; the form with a tensor map does nothing."""
    if instruction.has("tensor"):
        return
    emitter.only(instruction, "async", "bulk", "prefetch", "L2", "global", "L2::cache_hint")
    source, size = instruction.operands[:2]
    assert isinstance(source, Address)
    place, count = emitter.address(source, 64), _number(emitter, size)
    emitter.emit(f"M.transfers.bulk_prefetch(g, {index}, {place}, {count}, {emitter.lanes(instruction)})")


def _tensor_copy(emitter: Emitter, index: int, instruction: Instruction) -> None:
    ranks = {f"{rank}d": rank for rank in range(1, 6)}
    known = """async bulk tensor tile global mbarrier::complete_tx::bytes bulk_group multicast::cluster reduce
    tile::gather4 tile::scatter4 cta_group::1 cta_group::2"""
    emitter.only(instruction, frozenset(known.split()), set(ranks), _SHARED, HINTS, set(_REDUCTIONS))
    qualifiers = instruction.qualifiers
    rank = next(ranks[each] for each in qualifiers if each in ranks)
    four = "tile::gather4" in qualifiers or "tile::scatter4" in qualifiers
    operands = list(instruction.operands)
    if "L2::cache_hint" in qualifiers:
        operands.pop()
    store = "bulk_group" in qualifiers
    tensor, memory = (operands[0], operands[1]) if store else (operands[1], operands[0])
    assert isinstance(tensor, Address)
    (coordinates,) = tensor.extra
    assert isinstance(coordinates, Vector)
    if len(coordinates.elements) != (5 if four else rank):
        emitter.refuse(f"{len(coordinates.elements)} coordinates of a tensor of rank {rank}")
    reduction = next((each for each in qualifiers if each in _REDUCTIONS), "") if "reduce" in qualifiers else ""
    form = emitter.program.constant(
        TensorCopy(index, rank, store, reduction, four, "shared::cluster" in qualifiers, "cta_group::2" in qualifiers),
        "tensor",
        index,
    )
    place = shared_address(emitter, instruction, memory)
    barrier = "None" if store else shared_address(emitter, instruction, operands[2])
    mask = _number(emitter, operands[3], "u16") if "multicast::cluster" in qualifiers else "None"
    where = f"[{', '.join(_number(emitter, each) for each in coordinates.elements)}]"
    descriptor = emitter.address(Address(tensor.base, tensor.offset), 64)
    lanes = emitter.lanes(instruction)
    emitter.emit(f"M.transfers.tensor_copy(g, {form}, {descriptor}, {where}, {place}, {barrier}, {mask}, {lanes})")


_FIELDS = """global_address rank box_dim global_dim global_stride element_stride elemtype interleave_layout swizzle_mode
swizzle_atomicity fill_mode"""
_WITH_ORDINAL = frozenset({"box_dim", "global_dim", "global_stride", "element_stride"})


@handles("tensormap")
def tensor_map(emitter: Emitter, index: int, instruction: Instruction) -> None:
    """Maps that a kernel makes: replaced field by field in shared memory, then copied out with a release."""
    lanes = emitter.lanes(instruction)
    if instruction.has("cp_fenceproxy"):
        known = "cp_fenceproxy global shared::cta tensormap::generic release gpu cta cluster sys sync aligned"
        emitter.only(instruction, frozenset(known.split()))
        to, source = instruction.operands[:2]
        assert isinstance(to, Address)
        assert isinstance(source, Address)
        places = f"{emitter.address(to, 64)}, {emitter.address(source, 32)}"
        scope = next(each for each in instruction.qualifiers if each in ("gpu", "cta", "cluster", "sys"))
        emitter.emit(f"M.transfers.publish_map(g, {index}, {places}, {scope!r}, {lanes})")
        return
    emitter.only(
        instruction, "replace", "tile", "b1024", "b32", "b64", "global", "shared::cta", frozenset(_FIELDS.split())
    )
    field = next((each for each in instruction.qualifiers if each in _FIELDS.split()), "")
    address, *rest = instruction.operands
    assert isinstance(address, Address)
    space = "shared" if instruction.has("shared::cta") else "global"
    ordinal = 0
    if field in _WITH_ORDINAL:
        first = rest.pop(0)
        ordinal = first.value if isinstance(first, Immediate) else -1
    value = _number(emitter, rest[0], instruction.qualifiers[-1])
    place = emitter.address(address, 32 if space == "shared" else 64)
    emitter.emit(f"M.transfers.replace_field(g, {index}, {space!r}, {place}, {field!r}, {ordinal}, {value}, {lanes})")


def _bulk_copy(emitter: Emitter, index: int, instruction: Instruction) -> None:
    known = "async bulk global mbarrier::complete_tx::bytes bulk_group multicast::cluster"
    qualifiers = instruction.qualifiers
    change = None
    if "reduce" in qualifiers:
        emitter.only(instruction, frozenset(known.split()), _SHARED, HINTS, "reduce", set(_REDUCTIONS), qualifiers[-1])
        operation = next(each for each in qualifiers if each in _REDUCTIONS)
        function = lowering_memory.update_of(emitter, operation, qualifiers[-1])
        change = (TYPE_BITS[qualifiers[-1]] // 8, function)
    else:
        emitter.only(instruction, frozenset(known.split()), _SHARED, HINTS)
    operands = list(instruction.operands)
    if "L2::cache_hint" in qualifiers:
        operands.pop()
    spaces = [each for each in qualifiers if each == "global" or each in _SHARED]
    to_space, from_space = (each.split("::")[0] for each in spaces)
    to, source = operands[:2]
    assert isinstance(to, Address)
    assert isinstance(source, Address)
    form = emitter.program.constant(
        Bulk(index, to_space, from_space, spaces[0] == "shared::cluster", change), "bulk", index
    )
    places = [
        emitter.address(each, 64 if space == "global" else 32) for each, space in ((to, to_space), (source, from_space))
    ]
    size = _number(emitter, operands[2])
    barrier = "None"
    if "bulk_group" not in qualifiers:
        assert isinstance(operands[3], Address)
        barrier = emitter.address(operands[3], 32)
    mask = _number(emitter, operands[4], "u16") if "multicast::cluster" in qualifiers else "None"
    lanes = emitter.lanes(instruction)
    emitter.emit(f"M.transfers.bulk_copy(g, {form}, {', '.join(places)}, {size}, {barrier}, {mask}, {lanes})")


# --- wgmma ------------------------------------------------------------------------------------------------------------


@handles("wgmma")
def warpgroup(emitter: Emitter, index: int, instruction: Instruction) -> None:
    operation = instruction.qualifiers[0]
    if operation == "mma_async":
        _multiply(emitter, index, instruction)
        return
    emitter.only(instruction, "fence", "commit_group", "wait_group", "sync", "aligned")
    lanes = emitter.lanes(instruction)
    if operation == "wait_group":
        (count,) = instruction.operands
        assert isinstance(count, Immediate)
        emitter.emit(f"M.warpgroups.warpgroup_wait(g, {index}, {count.value}, {lanes})")
    elif operation == "fence":
        emitter.emit(f"M.warpgroups.warpgroup_fence(g, {index}, {lanes})")
    elif operation == "commit_group":
        emitter.emit(f"M.warpgroups.warpgroup_commit(g, {index}, {lanes})")
    else:
        emitter.refuse()


def _multiply(emitter: Emitter, index: int, instruction: Instruction) -> None:
    form = wgmma.warpgroup_mma(instruction.text)
    if form is None:
        emitter.refuse()
    to, a, b, scale_d, *rest = instruction.operands
    flags = [each.value for each in rest if isinstance(each, Immediate)]
    if not isinstance(to, Vector) or len(to.elements) != form.d_registers or len(flags) != len(rest):
        emitter.refuse(f"the form has {form.d_registers} accumulators and immediate flags")
    scales = (flags.pop(0), flags.pop(0)) if form.may_negate else (1, 1)
    in_registers = isinstance(a, Vector)
    wanted = (1 if in_registers else 2) if form.may_transpose else 0
    if len(flags) != wanted:
        emitter.refuse(f"{len(flags)} transpose flags where the form has {wanted}")
    turned = [bool(each) for each in flags] or [False] * (1 if in_registers else 2)
    majors: list[Major] = ["MN" if each else "K" for each in turned]
    accumulators = tuple(
        emitter.program.register_number(each.name) for each in to.elements if isinstance(each, Register)
    )
    a_names = tuple(
        emitter.program.register_number(each.name)
        for each in (a.elements if isinstance(a, Vector) else ())
        if isinstance(each, Register)
    )
    constant = emitter.program.constant(
        Multiply(index, form, scales, majors[0], majors[-1], accumulators, a_names), "wgmma", index
    )
    operands_a = (
        f"[{', '.join(_number(emitter, each, 'b32') for each in a.elements)}]"
        if isinstance(a, Vector)
        else _number(emitter, a, "b64")
    )
    values = ", ".join(_number(emitter, each, "b32") for each in to.elements)
    use = (
        _number(emitter, scale_d, "pred")
        if not isinstance(scale_d, Immediate)
        else f"full((n, 32), {bool(scale_d.value)})"
    )
    lanes = emitter.lanes(instruction)
    names = [emitter.fresh() for _ in to.elements]
    emitter.emit(
        f"{', '.join(names)}, = M.warpgroups.multiply(g, {constant}, {operands_a}, {_number(emitter, b, 'b64')}, "
        f"[{values}], {use}, {lanes})"
    )
    for element, name in zip(to.elements, names, strict=True):
        emitter.define(element, Value(name, 32), instruction)
