"""Every opcode with its qualifiers in a Hopper kernel of the project, or of Triton, has a case that ran on a chip.

The kernels are compiled here. The order in which PTX spells the scope and the semantics of an access says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import pytest

from advisor.emulator.ptx.parser import parse
from advisor.toolchain import Unit, compile_cuda
from tests.emulator.bundles import ROWS
from tests.emulator.compilers.cases_sm90 import SM90
from tests.emulator.compilers.harness import compile_case, needs_triton
from tests.emulator.golden.cases import all_cases

WITHOUT_A_CASE = {
    "bra.uni": "control flow; where it leads shows in what runs next, and `bra` has cases",
    "brx.idx": "control flow",
    "call.uni": "control flow; the front end puts the callee into its place",
    "nanosleep.u32": "takes time and leaves nothing",
    "mov.u64/clock": "a clock",
    # Kernels with these ran on an H200 in benchmarks/results/ and agreed with a float64 reference, element by element.
    "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint": "the copy without "
    "the hint has cases; a policy of the L2 changes nothing that arrives",
}
FREE_ORDER = ("ld", "st", "atom", "red", "fence", "mbarrier")


def spelled(opcode: str, qualifiers: tuple[str, ...]) -> str:
    return ".".join((opcode, *(sorted(qualifiers) if opcode in FREE_ORDER else qualifiers)))


def forms(ptx: str) -> set[str]:
    """Every opcode with its qualifiers in a module."""
    functions = parse(ptx).functions.values()
    return {spelled(each.opcode, each.qualifiers) for function in functions for each in function.instructions}


@lru_cache(maxsize=1)
def covered() -> frozenset[str]:
    return frozenset(form for case in all_cases() for form in forms(case.ptx))


def missing(modules: Iterable[str]) -> list[str]:
    found = {form for ptx in modules for form in forms(ptx)}
    return sorted(found - covered() - set(WITHOUT_A_CASE))


def bundle_ptx(key: str) -> str:
    _, row = ROWS[key]
    return compile_cuda(Unit(row.name, row.source, row.headers, row.target, row.defines, row.flags)).ptx


def test_one_bundle() -> None:
    assert missing(bundle_ptx(key) for key in ROWS if key.startswith("gemm_small-")) == []


@pytest.mark.slow
def test_every_bundle() -> None:
    assert {row.target for _, row in ROWS.values()} == {"sm_80", "sm_90a"}
    assert missing(bundle_ptx(key) for key in ROWS) == []


@pytest.mark.slow
@needs_triton
def test_kernels_of_triton() -> None:
    assert len(SM90.cases) >= 25
    assert missing(compile_case(make()).ptx for make in SM90.cases.values()) == []


def test_a_form_without_a_case_is_named() -> None:
    kernel = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<3>;\nREST\nret;\n}\n"
    assert missing([kernel.replace("REST", "sad.u32 %r0, %r1, %r2, %r0;")]) == []
    assert missing([kernel.replace("REST", "vadd.u32.u32.u32 %r0, %r1, %r2;")]) == ["vadd.u32.u32.u32"]


def test_what_has_a_case_needs_no_reason() -> None:
    assert covered().isdisjoint(WITHOUT_A_CASE)
