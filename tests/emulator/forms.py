"""The forms of tcgen05, Cluster Launch Control, TMA and mbarrier that the emulator executes, and those of one line.

A form is the opcode with the qualifiers and kinds of operands that change what happens. What may stand with any of an
opcode's forms (an order of memory, the operation of a reduction, a hint to a collector) is a form by itself, not one
with each of them. Two spellings of one thing are one form. Not part of a form: hints to caches, M and N, how often a
load repeats its shape, immediate values, and the width that an opcode has anyway.

`FAMILIES` has a line of PTX for each form; the tables of shapes, copies and kinds are the emulator's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import product

from advisor.emulator import load_program
from advisor.emulator.ptx.ir import Address, Immediate, Instruction, Vector
from advisor.emulator.tcgen05_descriptors import BLOCK_SCALED, KINDS
from advisor.emulator.tcgen05_layouts import COPIES, SHAPES, Fragment

GROUPS = ("cta_group::1", "cta_group::2")
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_DROPPED = frozenset({"sync", "aligned", "b32", "b64", "b128", "b1024", "L2::cache_hint", "tile"})
_OPCODES = frozenset({"tcgen05", "clusterlaunchcontrol", "mbarrier", "tensormap"})
_ORDERS = frozenset({"release", "acquire", "relaxed", "cta", "cluster", "gpu", "sys"})
_WIDTHS = frozenset({"weak", "v2", "v4", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64", "noftz"})
_FORMATS = frozenset({"b6x16_p32", "b4x16_p64"})
_BLOCKS = {  # of tcgen05.mma: the other spelling of a size, and what stands for none
    "mxf8f6f4": {"block32": "scale_vec::1X", "": "scale_vec::1X"},
    "mxf4": {"block32": "scale_vec::2X", "": "scale_vec::2X"},
    "mxf4nvf4": {"block32": "scale_vec::2X", "block16": "scale_vec::4X"},
}


# --- the forms of an instruction --------------------------------------------------------------------------------------


def forms_of(instruction: Instruction) -> tuple[str, ...]:
    """The forms of an instruction, spelled as in `FAMILIES`; none for one of another family."""
    return tuple(_spelled().get(_unordered(each), each) for each in _written(instruction))


def _unordered(form: str) -> frozenset[str]:
    """Compilers put qualifiers in more than one order."""
    text, _, more = form.partition(", ")
    return frozenset(text.split(".")) | {more}


@cache
def _spelled() -> dict[frozenset[str], str]:
    named = {_unordered(each): each for family in FAMILIES for each in forms(family)}
    assert len(named) == sum(len(forms(family)) for family in FAMILIES)
    return named


def _written(instruction: Instruction) -> tuple[str, ...]:
    """As the instruction has them."""
    if not _belongs(instruction):
        return ()
    opcode = instruction.opcode
    qualifiers = [
        "shared::cta" if each == "shared" else each for each in instruction.qualifiers if each not in _DROPPED
    ]
    if opcode == "tcgen05":
        return _tensor_core(instruction, qualifiers)
    if opcode == "mbarrier":
        return _barrier(instruction, qualifiers)
    if opcode in ("cp", "red", "st"):
        return _copy(opcode, qualifiers)
    if opcode == "tensormap" and "replace" in qualifiers:
        *field, space = qualifiers
        return (".".join((opcode, *field)), f"tensormap.replace.{space}")
    return (".".join((opcode, *qualifiers)),)


def _belongs(instruction: Instruction) -> bool:
    qualifiers = instruction.qualifiers
    if instruction.opcode in _OPCODES:
        return True
    if instruction.opcode == "cp":
        return "bulk" in qualifiers or "mbarrier" in qualifiers
    if instruction.opcode in ("st", "red"):
        return "async" in qualifiers
    if instruction.opcode == "fence":
        return "mbarrier_init" in qualifiers or "tensormap::generic" in qualifiers
    return instruction.opcode == "prefetch" and "tensormap" in qualifiers


def _tensor_core(instruction: Instruction, qualifiers: list[str]) -> tuple[str, ...]:
    if qualifiers[0] == "mma":
        return _product(instruction, qualifiers)
    if qualifiers[0] in ("ld", "st"):
        qualifiers = [each for each in qualifiers if not re.fullmatch(r"x\d+", each)]
    plain = [each for each in qualifiers if each not in _FORMATS and each != "b8x16"]
    more = [f"tcgen05.cp.b8x16.{each}" for each in qualifiers if each in _FORMATS]
    return (".".join(("tcgen05", *plain)), *more)


def _product(instruction: Instruction, qualifiers: list[str]) -> tuple[str, ...]:
    """tcgen05.mma: its kind, and what it has besides."""
    operands = instruction.operands
    kind = next(each for each in qualifiers if each.startswith("kind::")).removeprefix("kind::")
    sizes = [each for each in qualifiers if each.startswith("scale_vec::") or each in ("block16", "block32")]
    hints = [each for each in qualifiers if each.startswith("collector::")]
    plain = [each for each in qualifiers if each not in (*sizes, *hints, "ashift")]
    if kind in _BLOCKS:
        size = sizes[0] if sizes else ""
        plain.append(_BLOCKS[kind].get(size, size))
    name = ".".join(("tcgen05", *plain)) + (", A in tensor memory" if isinstance(operands[1], Address) else "")
    short = "tcgen05.mma.ws" if instruction.has("ws") else "tcgen05.mma"
    more = [f"{short}.{re.sub('::b[0-3]::', '::b::', each)}" for each in hints]
    if instruction.has("ashift"):
        more.append(f"{short}.ashift")
    if any(isinstance(each, Vector) for each in operands[4:]):
        more.append(f"{short}.{next(each for each in GROUPS if instruction.has(each))}, lanes disabled")
    if isinstance(operands[-1], Immediate):
        more.append(f"{short}, input D scaled")
    if instruction.has("ws") and len(operands) > 5:
        more.append(f"{short}, columns of B zeroed")
    return (name, *more)


def _barrier(instruction: Instruction, qualifiers: list[str]) -> tuple[str, ...]:
    """A count is an operand that need not be there. The order is a form by itself."""
    operation = qualifiers[0]
    order = ".".join(each for each in qualifiers if each in _ORDERS)
    name = ".".join(("mbarrier", *(each for each in qualifiers if each not in _ORDERS)))
    if operation in ("arrive", "arrive_drop"):
        operands = instruction.operands
        counted = len(operands) - (not isinstance(operands[0], Address)) > 1 and not instruction.has("expect_tx")
        return (name + ", count" * counted, f"mbarrier.arrive, {order or 'release.cta'}")
    if operation in ("test_wait", "try_wait"):
        return (name, f"mbarrier.try_wait, {order or 'acquire.cta'}")
    return (name,)


def _copy(opcode: str, qualifiers: list[str]) -> tuple[str, ...]:
    """No group of CTAs is the group of one. The operation of a reduction is a form by itself."""
    operation = [each for each in qualifiers if each in REDUCTIONS]
    left_out = {*operation, *_WIDTHS, "cta_group::1"}
    name = ".".join((opcode, *(each for each in qualifiers if each not in left_out)))
    if not operation:
        return (name,)
    tensor = ".tensor" if "tensor" in qualifiers else ""
    return (name, f"{'red.async' if opcode == 'red' else 'cp.reduce.async.bulk' + tensor}, {operation[0]}")


# --- a line of PTX for each form --------------------------------------------------------------------------------------


def _registers(count: int) -> str:
    return "{" + ", ".join(f"%r{2 + each}" for each in range(count)) + "}"


def _tcgen05() -> Iterator[str]:
    for group in GROUPS:
        yield f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%r0], 32;"
        yield f"tcgen05.dealloc.{group}.sync.aligned.b32 %r0, 32;"
        yield f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned;"
    for shape, packed in product(sorted(SHAPES), (False, True)):
        registers = _registers(Fragment(shape, 2, packed).registers)
        split = ", 4" if shape == "16x32bx2" else ""
        yield f"tcgen05.ld.sync.aligned.{shape}.x2{'.pack::16b' * packed}.b32 {registers}, [%r0]{split};"
        yield f"tcgen05.st.sync.aligned.{shape}.x2{'.unpack::16b' * packed}.b32 [%r0]{split}, {registers};"
    for shape, operation in product(("32x32b", "16x32bx2"), ("min", "max")):
        split = ", 4" if shape == "16x32bx2" else ""
        for kind in ("f32", "abs.f32", "NaN.f32", "u32", "s32"):
            load = f"tcgen05.ld.red.sync.aligned.{shape}.x2.{operation}.{kind}"
            yield f"{load} {_registers(2)}, %r9, [%r0]{split};"
    yield from ("tcgen05.wait::ld.sync.aligned;", "tcgen05.wait::st.sync.aligned;")
    yield from ("tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;")
    for group in GROUPS:
        commit = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
        yield f"{commit}.b64 [%r0];"
        yield f"{commit}.multicast::cluster.b64 [%r0], %h0;"
        yield f"tcgen05.shift.{group}.down [%r0];"
    for group, (shape, multicast) in product(GROUPS, sorted(COPIES)):
        yield f"tcgen05.cp.{group}.{shape}{'.' * bool(multicast)}{multicast} [%r0], %d0;"
    for packed in sorted(_FORMATS):
        yield f"tcgen05.cp.cta_group::1.128x256b.b8x16.{packed} [%r0], %d0;"
    for kind, group, a in product(sorted(KINDS), GROUPS, ("%d0", "[%r1]")):
        scales = "[%r5], [%r6], " if kind in BLOCK_SCALED else ""
        for size in dict.fromkeys(_BLOCKS.get(kind, {"": ""}).values()):
            blocks = f".block_scale.{size}" if size else ""
            yield f"tcgen05.mma.{group}.kind::{kind}{blocks} [%r0], {a}, %d1, %r2, {scales}%p0;"
    for kind, a in product(sorted(set(KINDS) - set(BLOCK_SCALED)), ("%d0", "[%r1]")):
        yield f"tcgen05.mma.ws.cta_group::1.kind::{kind} [%r0], {a}, %d1, %r2, %p0;"
    one, ws = "tcgen05.mma.cta_group::1.kind::f16", "tcgen05.mma.ws.cta_group::1.kind::f16"
    for use in ("fill", "use", "lastuse", "discard"):
        yield f"{one}.collector::a::{use} [%r0], %d0, %d1, %r2, %p0;"
        yield f"{ws}.collector::b0::{use} [%r0], %d0, %d1, %r2, %p0;"
    yield f"{one}.ashift [%r0], [%r1], %d1, %r2, %p0;"
    yield f"{one} [%r0], %d0, %d1, %r2, {_registers(4)}, %p0;"
    yield f"tcgen05.mma.cta_group::2.kind::f16 [%r0], %d0, %d1, %r2, {_registers(8)}, %p0;"
    yield f"{one} [%r0], %d0, %d1, %r2, %p0, 3;"
    yield f"{ws} [%r0], %d0, %d1, %r2, %p0, %d2;"


def _requests() -> Iterator[str]:
    ask = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
    yield f"{ask}.b128 [%r0], [%r1];"
    yield f"{ask}.multicast::cluster::all.b128 [%r0], [%r1];"
    yield "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p0, %q0;"
    for axis in "xyz":
        yield f"clusterlaunchcontrol.query_cancel.get_first_ctaid::{axis}.b32.b128 %r0, %q0;"
    yield "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r0, %r1, %r2, %r3}, %q0;"


def _copies() -> Iterator[str]:
    counted = "mbarrier::complete_tx::bytes"
    for rank in range(1, 6):
        where = _registers(rank)
        for group in ("", ".cta_group::2"):
            load = f"cp.async.bulk.tensor.{rank}d{group}"
            yield f"{load}.shared::cta.global.{counted} [%r0], [%d0, {where}], [%r1];"
            yield f"{load}.shared::cluster.global.{counted} [%r0], [%d0, {where}], [%r1];"
            yield f"{load}.shared::cluster.global.{counted}.multicast::cluster [%r0], [%d0, {where}], [%r1], %h0;"
        yield f"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%d0, {where}], [%r0];"
        yield f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.bulk_group [%d0, {where}], [%r0];"
        yield f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global [%d0, {where}];"
    for operation in REDUCTIONS:
        yield f"cp.reduce.async.bulk.tensor.1d.global.shared::cta.{operation}.bulk_group [%d0, {{%r2}}], [%r0];"
    rows = _registers(5)
    for group in ("", ".cta_group::2"):
        for space in ("shared::cta", "shared::cluster"):
            gather = f"cp.async.bulk.tensor.2d{group}.{space}.global.tile::gather4.{counted}"
            yield f"{gather} [%r0], [%d0, {rows}], [%r1];"
        yield f"{gather}.multicast::cluster [%r0], [%d0, {rows}], [%r1], %h0;"
    yield f"cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%d0, {rows}], [%r0];"
    yield f"cp.async.bulk.shared::cta.global.{counted} [%r0], [%d0], 64, [%r1];"
    yield f"cp.async.bulk.shared::cluster.global.{counted} [%r0], [%d0], 64, [%r1];"
    yield f"cp.async.bulk.shared::cluster.global.{counted}.multicast::cluster [%r0], [%d0], 64, [%r1], %h0;"
    yield f"cp.async.bulk.shared::cluster.shared::cta.{counted} [%r0], [%r2], 64, [%r1];"
    yield "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r0], 64;"
    yield f"cp.reduce.async.bulk.shared::cluster.shared::cta.{counted}.add.u32 [%r0], [%r2], 64, [%r1];"
    for operation in REDUCTIONS:
        kind = "b32" if operation in ("and", "or", "xor") else "u32"
        yield f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{kind} [%d0], [%r0], 64;"
    yield "cp.async.bulk.prefetch.L2.global [%d0], 64;"
    yield from ("cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;")
    yield "prefetch.tensormap [%d0];"


def _tensor_maps() -> Iterator[str]:
    fields = {
        "global_address": ("b64", "%d1"),
        "rank": ("b32", "%r1"),
        "box_dim": ("b32", "0, %r1"),
        "global_dim": ("b32", "0, %r1"),
        "global_stride": ("b64", "0, %d1"),
        "element_stride": ("b32", "0, %r1"),
        "elemtype": ("b32", "1"),
        "interleave_layout": ("b32", "0"),
        "swizzle_mode": ("b32", "0"),
        "swizzle_atomicity": ("b32", "0"),
        "fill_mode": ("b32", "0"),
    }
    for field, (width, value) in fields.items():
        yield f"tensormap.replace.tile.{field}.shared::cta.b1024.{width} [%d0], {value};"
    yield "tensormap.replace.tile.rank.global.b1024.b32 [%d0], %r1;"
    yield "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d0], [%d1], 128;"
    for scope in ("cta", "cluster", "gpu", "sys"):
        yield f"fence.proxy.tensormap::generic.release.{scope};"
        yield f"fence.proxy.tensormap::generic.acquire.{scope} [%d0], 128;"


def _mbarriers() -> Iterator[str]:
    cta, cluster = "shared::cta", "shared::cluster"
    yield f"mbarrier.init.{cta}.b64 [%r0], 1;"
    yield f"mbarrier.inval.{cta}.b64 [%r0];"
    for space in (cta, cluster):
        yield f"mbarrier.expect_tx.relaxed.cluster.{space}.b64 [%r0], 64;"
        yield f"mbarrier.complete_tx.relaxed.cluster.{space}.b64 [%r0], 64;"
    for name in ("mbarrier.arrive", "mbarrier.arrive_drop"):
        yield f"{name}.{cta}.b64 %d0, [%r0];"
        yield f"{name}.{cta}.b64 %d0, [%r0], 2;"
        yield f"{name}.expect_tx.{cta}.b64 %d0, [%r0], 64;"
        yield f"{name}.noComplete.{cta}.b64 %d0, [%r0], 2;"
        yield f"{name}.{cluster}.b64 _, [%r0];"
        yield f"{name}.{cluster}.b64 _, [%r0], 2;"
        yield f"{name}.expect_tx.{cluster}.b64 _, [%r0], 64;"
    for order in ("release.cluster", "relaxed.cta", "relaxed.cluster"):
        yield f"mbarrier.arrive.{order}.{cta}.b64 %d0, [%r0];"
    for test, parity in product(("test_wait", "try_wait"), ("", ".parity")):
        yield f"mbarrier.{test}{parity}.{cta}.b64 %p0, [%r0], {'%r1' if parity else '%d0'};"
    for order in ("acquire.cluster", "relaxed.cta", "relaxed.cluster"):
        yield f"mbarrier.try_wait.{order}.{cta}.b64 %p0, [%r0], %d0;"
    yield "mbarrier.pending_count.b64 %r0, %d0;"
    yield f"cp.async.mbarrier.arrive.{cta}.b64 [%r0];"
    yield f"cp.async.mbarrier.arrive.noinc.{cta}.b64 [%r0];"
    yield "fence.mbarrier_init.release.cluster;"
    counted = "shared::cluster.mbarrier::complete_tx::bytes"
    yield f"st.async.{counted}.b32 [%r0], %r2, [%r1];"
    for operation in REDUCTIONS:
        kind = "b32" if operation in ("and", "or", "xor") else "u32"
        yield f"red.async.relaxed.cluster.{counted}.{operation}.{kind} [%r0], %r2, [%r1];"


FAMILIES = {
    "tcgen05": tuple(_tcgen05()),
    "Cluster Launch Control": tuple(_requests()),
    "TMA": (*_copies(), *_tensor_maps()),
    "mbarrier": tuple(_mbarriers()),
}


def module(lines: tuple[str, ...]) -> str:
    """Lines of PTX as a kernel that nobody runs, for a target that has every form."""
    body = "\n".join(lines)
    return f""".version 9.4
.target sm_110a
.address_size 64
.visible .entry forms()
{{
.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<64>; .reg .b64 %d<8>; .reg .b128 %q<2>;
{body}
ret;
}}
"""


@cache
def forms(family: str) -> tuple[str, ...]:
    """Every form of a family, in the order of its lines."""
    program = load_program(module(FAMILIES[family]))
    found: list[Instruction] = []
    for block in program.graph.blocks:
        found += program.instructions[block.start : block.end]
        found += [block.terminator] if block.terminator is not None else []
    return tuple(dict.fromkeys(each for one in found for each in _written(one)))
