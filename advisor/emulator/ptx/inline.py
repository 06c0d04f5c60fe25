"""Device functions put into the place of their calls. Imports only `ir` and `errors`.

The executor keeps one program counter for every group of warps and no call stack: after this pass a kernel is one flat
function. A recursive or indirect call, and a call of a function without a body, raise EMU_CALL.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from advisor.emulator.ptx.ir import (
    Function,
    Instruction,
    Module,
    Operand,
    Register,
    Symbol,
    Variable,
    Vector,
    rename,
)
from advisor.errors import InputError

_DEEPEST = 64


@dataclass
class _Flat:
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    copies: int = 0


def flatten(module: Module, entry: str) -> Function:
    """The entry function with every call replaced by the callee's body."""
    function = module.functions[entry]
    if not any(each.opcode == "call" for each in function.instructions):
        return function
    flat = _Flat(registers=dict(function.registers), variables=list(function.variables))
    _copy(module, function, flat, {}, {}, "", None, (entry,))
    return replace(
        function,
        instructions=tuple(flat.instructions),
        labels=flat.labels,
        registers=flat.registers,
        variables=tuple(flat.variables),
        tables=flat.tables,
    )


def _copy(
    module: Module,
    function: Function,
    flat: _Flat,
    registers: dict[str, str],
    symbols: dict[str, str],
    suffix: str,
    end: str | None,
    chain: tuple[str, ...],
) -> None:
    """Appends the body of `function`; a `ret` of a callee becomes a jump to its `end`."""
    at: dict[int, list[str]] = {}
    for label, index in function.labels.items():
        at.setdefault(index, []).append(label)
    for label, targets in function.tables.items():
        flat.tables[label + suffix] = tuple(each + suffix for each in targets)
    names = {**symbols, **{each: each + suffix for each in (*function.labels, *function.tables)}}
    for index, instruction in enumerate(function.instructions):
        for label in at.get(index, ()):
            flat.labels[label + suffix] = len(flat.instructions)
        guard = instruction.guard and Register(registers.get(instruction.guard.name, instruction.guard.name))
        if instruction.opcode == "call":
            moved = tuple(rename(each, registers, names) for each in instruction.operands)
            _call(module, replace(instruction, operands=moved, guard=guard), flat, chain)
        elif instruction.opcode == "ret" and end is not None:
            jump = replace(instruction, opcode="bra", qualifiers=(), operands=(Symbol(end),), guard=guard)
            flat.instructions.append(jump)
        else:
            operands = tuple(rename(each, registers, names) for each in instruction.operands)
            flat.instructions.append(replace(instruction, operands=operands, guard=guard))
    for label in at.get(len(function.instructions), ()):
        flat.labels[label + suffix] = len(flat.instructions)


def _call(module: Module, call: Instruction, flat: _Flat, chain: tuple[str, ...]) -> None:
    returns, name, arguments = _parts(call)
    callee = module.functions.get(name)
    if callee is None or not callee.instructions:
        raise _refused(call, f"calls {name}, which has no body in this module and cannot be executed")
    if name in chain or len(chain) > _DEEPEST:
        raise _refused(call, f"calls {name} from within itself: recursion is not executed")
    flat.copies += 1
    suffix = f"#{flat.copies}"
    registers = {each: each + suffix for each in callee.registers}
    flat.registers.update({each + suffix: kind for each, kind in callee.registers.items()})
    symbols = {}
    for each in callee.variables:
        symbols[each.name] = each.name + suffix
        flat.variables.append(replace(each, name=each.name + suffix))
    for formal, actual in zip(callee.returns, returns, strict=True):
        if formal.space == "param":
            assert isinstance(actual, Symbol)
            symbols[formal.name] = actual.name
    for formal, actual in zip(callee.params, arguments, strict=True):
        if formal.space == "param":
            assert isinstance(actual, Symbol)
            symbols[formal.name] = actual.name
        else:
            flat.instructions.append(_move(call, formal.type, Register(registers[formal.name]), actual))
    end = f"$end{suffix}"
    skip = f"$skip{suffix}"
    if call.guard is not None:
        jump = replace(call, opcode="bra", qualifiers=(), operands=(Symbol(skip),))
        flat.instructions.append(replace(jump, guard_negated=not call.guard_negated))
    _copy(module, callee, flat, registers, symbols, suffix, end, (*chain, name))
    flat.labels[end] = len(flat.instructions)
    for formal, actual in zip(callee.returns, returns, strict=True):
        if formal.space == "reg":
            flat.instructions.append(_move(call, formal.type, actual, Register(registers[formal.name])))
    flat.labels[skip] = len(flat.instructions)


def _move(call: Instruction, kind: str, to: Operand, source: Operand) -> Instruction:
    return replace(call, opcode="mov", qualifiers=(kind,), operands=(to, source), guard=None)


def _parts(call: Instruction) -> tuple[tuple[Operand, ...], str, tuple[Operand, ...]]:
    operands = list(call.operands)
    returns: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], Vector):
        returns = operands.pop(0).elements  # type: ignore[union-attr]
    target = operands.pop(0) if operands else None
    if not isinstance(target, Symbol):
        raise _refused(call, "is a call through a register, which is not executed")
    first = operands[0] if operands else None
    return returns, target.name, first.elements if isinstance(first, Vector) else ()


def _refused(call: Instruction, why: str) -> InputError:
    return InputError(
        "EMU_CALL",
        f"line {call.line}: {call.text} {why}",
        fix="compile with the callee in the same module, without recursion and function pointers",
        numbers={"line": call.line},
    )
