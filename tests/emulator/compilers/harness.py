"""Kernels of Triton and Gluon: compiled with no GPU, launched in the emulator, held against NumPy in float64.

A `Case` says which kernel, with which arguments, and what must come out. The device code is in modules of its own
(`kernels_*.py`), which import Triton; this module and the cases import it only when something is compiled, so that
collecting the tests costs nothing. Compilation is what `triton.compile` does for an explicit target.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.emulator import Outcome, Program, load_program, run
from advisor.records.launch import BufferInit, PtrParam, ResolvedLaunch, ScalarParam, ScratchParam, TensorMapParam

Array = NDArray[Any]

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton exists for Linux only")
POLICIES = ("eager", "lazy", "random", "adversarial")
CACHE = Path(__file__).parents[3] / ".triton_cache"
PACKAGE = __package__ or "tests.emulator.compilers"

TYPES = {  # a NumPy type: Triton's name, the launch file's name
    "float16": ("fp16", "float16"),
    "bfloat16": ("bf16", "bfloat16"),
    "float32": ("fp32", "float32"),
    "float64": ("fp64", "float64"),
    "float8_e4m3fn": ("fp8e4nv", "float8_e4m3fn"),
    "float8_e5m2": ("fp8e5", "float8_e5m2"),
    "int8": ("i8", "int8"),
    "uint8": ("u8", "uint8"),
    "int32": ("i32", "int32"),
    "uint32": ("u32", "uint32"),
    "int64": ("i64", "int64"),
}
SWIZZLES = ("none", "32B", "64B", "128B")  # by CUtensorMapSwizzle


@dataclass(frozen=True, slots=True)
class Out:
    """A buffer that the kernel writes; its first bytes are never to be read, unless `zeros`."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    zeros: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """A tensor descriptor made on the host, over an array or a buffer, with the block that one copy moves.

    `layout` is the arguments of Gluon's NVMMASharedLayout; without them the compiler chooses, as Triton does.
    """

    of: Array | Out
    block: tuple[int, ...]
    layout: Mapping[str, Any] | None = None
    nan: bool = False


@dataclass(frozen=True, slots=True)
class Gluon:
    """A constant out of Gluon, made when a kernel is compiled: a layout with its arguments, or a thing by its name."""

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def make(self) -> Any:
        from triton.experimental.gluon import language
        from triton.experimental.gluon.language.nvidia import blackwell

        found = getattr(blackwell, self.name, None) or getattr(language, self.name)
        return found(**{key: _thawed(each) for key, each in self.arguments}) if self.arguments else found


def layout(name: str, **arguments: Any) -> Gluon:
    """A layout of Gluon. Lists become tuples, so that cases can be compared."""
    return Gluon(name, tuple((key, _frozen(each)) for key, each in arguments.items()))


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list | tuple) else value


def _thawed(value: Any) -> Any:
    return [_thawed(each) for each in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Near:
    """What a buffer must hold: `value`, each element within `bound` (absolute, of the same shape or one number)."""

    value: Array
    bound: Array | float = 0.0


@dataclass(frozen=True)
class Case:
    """One kernel, its arguments in the order of its parameters, and what must come out.

    `kernel` is "module.function" within this package; `grid` counts programs, of `num_ctas` CTAs each. An int argument
    is 32 bits, a float is fp32; arrays and `Out` are pointers, `Tile` is a tensor descriptor.
    """

    kernel: str
    grid: tuple[int, ...]
    arguments: Mapping[str, Array | Out | Tile | int | float]
    expected: Mapping[str, Near]
    constants: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    target: int = 90
    warnings: frozenset[str] = frozenset()  # codes of advice that is true of this kernel; no other may come


@dataclass(frozen=True)
class Compiled:
    """PTX and what its launcher has to know."""

    ptx: str
    entry: str
    warps: int
    ctas: int
    smem_bytes: int
    scratch_bytes: int  # per CTA
    scratch_align: int
    descriptors: tuple[Mapping[str, Any], ...]

    @property
    def target(self) -> str:
        return self.ptx.split(".target", 1)[1].split(None, 1)[0].rstrip(",")


# --- compilation ------------------------------------------------------------------------------------------------------


def compile_case(case: Case) -> Compiled:
    """Compiles the case's kernel, once per process; between processes Triton's own cache serves."""
    signature = tuple((name, _type_of(each)) for name, each in case.arguments.items())
    aligned = tuple(index for index, each in enumerate(case.arguments.values()) if _divisible(each))
    return _compile(
        case.kernel,
        signature,
        aligned,
        tuple(sorted(case.constants.items())),
        tuple(sorted(case.options.items())),
        case.target,
    )


@cache
def _compile(
    kernel: str,
    signature: tuple[tuple[str, str], ...],
    aligned: tuple[int, ...],
    constants: tuple[tuple[str, Any], ...],
    options: tuple[tuple[str, Any], ...],
    target: int,
) -> Compiled:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    triton.knobs.cache.dir = str(CACHE)
    module, function = kernel.split(".")
    compiled_function = getattr(importlib.import_module(f"{PACKAGE}.{module}"), function)
    source_type = GluonASTSource if compiled_function.is_gluon() else ASTSource
    defaults = {each.name: each.default for each in compiled_function.params if each.is_constexpr and each.has_default}
    constexprs = defaults | {name: each.make() if isinstance(each, Gluon) else each for name, each in constants}
    source = source_type(
        fn=compiled_function,
        signature=dict(signature) | dict.fromkeys(constexprs, "constexpr"),
        constexprs=constexprs,
        attrs={(index,): [["tt.divisibility", 16]] for index in aligned},
    )
    built = triton.compile(
        source, target=GPUTarget("cuda", target, 32), options={"enable_fp_fusion": True} | dict(options)
    )
    facts = built.metadata
    return Compiled(
        ptx=built.asm["ptx"],
        entry=facts.name,
        warps=facts.num_warps,
        ctas=facts.num_ctas,
        smem_bytes=facts.shared,
        scratch_bytes=facts.global_scratch_size,
        scratch_align=facts.global_scratch_align,
        descriptors=tuple(facts.tensordesc_meta or ()),
    )


@cache
def program_of(ptx: str, entry: str) -> Program:
    return load_program(ptx, entry)


def _type_of(argument: Array | Out | Tile | int | float) -> str:
    if isinstance(argument, int):
        return "i32"
    if isinstance(argument, float):
        return "fp32"
    if isinstance(argument, Tile):
        inner = _type_of(argument.of)[1:]
        block = ",".join(map(str, argument.block))
        return f"tensordesc<{inner}[{block}]{_layout(argument)}>"
    return "*" + TYPES[str(argument.dtype)][0]


def _layout(tile: Tile) -> str:
    if tile.layout is None:
        return ""
    from triton.experimental.gluon.language import NVMMASharedLayout

    return f",{NVMMASharedLayout(**tile.layout)!r}"


def _divisible(argument: Array | Out | Tile | int | float) -> bool:
    """As Triton specialises: pointers are aligned, integers where they divide by 16."""
    if isinstance(argument, int):
        return argument % 16 == 0
    return not isinstance(argument, float | Tile)


# --- launch -----------------------------------------------------------------------------------------------------------


def launch_of(case: Case, compiled: Compiled) -> ResolvedLaunch:
    """What Triton's launcher passes: arguments, descriptors with their extents and strides, and two scratch areas."""
    params: list[Any] = []
    buffers: dict[str, BufferInit] = {}
    descriptors = iter(compiled.descriptors)
    for name, argument in case.arguments.items():
        if isinstance(argument, int | float):
            params.append(ScalarParam(kind="i32" if isinstance(argument, int) else "f32", name=name, value=argument))
            continue
        memory = argument.of if isinstance(argument, Tile) else argument
        buffers[name] = _buffer(memory)
        if isinstance(argument, Tile):
            params += _descriptor(name, argument, next(descriptors))
        else:
            params.append(PtrParam(name=name, buffer=name))
    grid = case.grid + (1,) * (3 - len(case.grid))
    ctas = grid[0] * grid[1] * grid[2] * compiled.ctas
    scratch = compiled.scratch_bytes * ctas
    params += [
        ScratchParam(name="global_scratch", bytes=scratch, align=compiled.scratch_align)
        if scratch
        else PtrParam(name="global_scratch", buffer=None),
        PtrParam(name="profile_scratch", buffer=None),
    ]
    return ResolvedLaunch(
        entry=compiled.entry,
        target=compiled.target,
        grid_blocks=(grid[0] * compiled.ctas, grid[1], grid[2]),
        block=(compiled.warps * 32, 1, 1),
        cluster=(compiled.ctas, 1, 1),
        nonportable=compiled.ctas > 8,
        dynamic_smem_bytes=compiled.smem_bytes,
        params=params,
        buffers=buffers,
    )


def _buffer(memory: Array | Out) -> BufferInit:
    init = "poison" if isinstance(memory, Out) and not memory.zeros else "zeros"
    return BufferInit(shape=list(memory.shape), dtype=TYPES[str(memory.dtype)][1], init=init)


def _descriptor(name: str, tile: Tile, facts: Mapping[str, Any]) -> list[Any]:
    """The tensor map, then extents (32 bits) and strides (64 bits), outermost first."""
    shape = tile.of.shape
    strides = [int(np.prod(shape[index + 1 :])) for index in range(len(shape))]
    element = np.dtype(tile.of.dtype).itemsize
    tensor_map = TensorMapParam(
        name=name,
        buffer=name,
        dtype=TYPES[str(tile.of.dtype)][1],
        rank=len(shape),
        global_dim=list(reversed(shape)),
        global_stride_bytes=[each * element for each in reversed(strides[:-1])],
        box_dim=list(reversed(facts["block_size"])),
        element_strides=[1] * len(shape),
        swizzle=SWIZZLES[facts["swizzle"]],
        oob_fill="nan" if tile.nan else "zero",
    )
    extents = [ScalarParam(kind="i32", name=f"{name}_extent_{index}", value=each) for index, each in enumerate(shape)]
    steps = [ScalarParam(kind="i64", name=f"{name}_stride_{index}", value=each) for index, each in enumerate(strides)]
    return [tensor_map, *extents, *steps]


# --- run and judge ----------------------------------------------------------------------------------------------------


def inputs_of(case: Case) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, argument in case.arguments.items():
        memory = argument.of if isinstance(argument, Tile) else argument
        if isinstance(memory, np.ndarray):
            found[name] = memory
    return found


def execute(case: Case, **options: Any) -> Outcome:
    compiled = compile_case(case)
    return run(program_of(compiled.ptx, compiled.entry), launch_of(case, compiled), inputs=inputs_of(case), **options)


def check(case: Case, **options: Any) -> Outcome:
    """Runs the case: every element within its bound, NaN only where the reference has one, and nothing to report."""
    outcome = execute(case, **options)
    assert case.expected, "a case says what must come out"
    for name, near in case.expected.items():
        found = outcome.typed(name).astype(np.float64)
        wanted = np.asarray(near.value, np.float64)
        assert found.shape == wanted.shape, f"{name} has the shape {found.shape}, expected {wanted.shape}"
        assert np.array_equal(np.isnan(found), np.isnan(wanted)), f"{name}: NaN in other places than expected"
        same = (found == wanted) | np.isnan(wanted)
        excess = np.where(same, 0.0, np.abs(found - wanted) - near.bound)
        worst = np.unravel_index(np.argmax(excess), excess.shape)
        place = ", ".join(map(str, worst))
        assert excess[worst] <= 0, (
            f"{name}[{place}] is {found[worst]}, expected {wanted[worst]}, {excess[worst]} beyond"
        )
    assert {each.code for each in outcome.warnings} == case.warnings, [str(each) for each in outcome.warnings]
    return outcome
