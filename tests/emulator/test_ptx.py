"""The PTX front end: what is parsed, how control flows, what lives where."""

from __future__ import annotations

import pytest

from advisor.emulator.ptx import build_graph, parse
from advisor.emulator.ptx.graph import EXIT, Graph
from advisor.emulator.ptx.inline import flatten
from advisor.emulator.ptx.ir import Address, Immediate, Not, Pair, Register, Sink, Special, Symbol, Vector
from advisor.errors import InputError
from tests.emulator.kernels import module

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"


def entry(body: str, registers: str = ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<9>;"):
    return parse(f"{HEADER}.entry k() {{ {registers}\n{body}\n}}").functions["k"]


def graph_of(body: str) -> Graph:
    return build_graph(entry(body))


def test_operands_of_every_form():
    (ins,) = entry(
        "foo.bar.b32 {%r1, _}, %p1|%p2, !%p3, [%d1+-8], [table+4, {%r1, %r2}], %tid.x, -3, 0f3F800000;"
    ).instructions
    vector, pair, negated, plain, tensor, special, integer, real = ins.operands
    assert vector == Vector((Register("%r1"), Sink()))
    assert pair == Pair(Register("%p1"), Register("%p2"))
    assert negated == Not(Register("%p3"))
    assert plain == Address(Register("%d1"), -8)
    assert tensor == Address(Symbol("table"), 4, (Vector((Register("%r1"), Register("%r2"))),))
    assert special == Special("tid.x")
    assert integer == Immediate(-3)
    assert real == Immediate(0x3F800000, 32)


def test_an_instruction_knows_its_lines():
    text = f'{HEADER}.entry k() {{\n.reg .b32 %r<3>;\n.loc 1 40 5\nmov.u32 %r1, 1;\nret;\n}}\n.file 1 "/kernel.cu"\n'
    first = parse(text).functions["k"].instructions[0]
    assert first.line == 7
    assert first.place is not None
    assert (first.place.file, first.place.line) == ("/kernel.cu", 40)


def test_names_of_an_inner_scope_are_its_own():
    function = entry("{ .reg .pred p; setp.eq.s32 p, %r1, 0; }\n{ .reg .pred p; setp.ne.s32 p, %r1, 0; }")
    first, second = (each.operands[0] for each in function.instructions)
    assert first != second
    assert {function.registers[each.name] for each in (first, second)} == {"pred"}


def test_labels_of_an_inner_scope_are_its_own():
    wait = "{ WAIT: add.s32 %r0, %r0, 1; @%p1 bra DONE; bra WAIT; DONE: }"
    code = entry(f"{wait} {wait} ret;")
    targets = [code.labels[each.operands[0].name] for each in code.instructions if each.opcode == "bra"]
    assert targets == [3, 0, 6, 3]


def test_variables_with_initialisers_and_sizes():
    declared = ".global .align 4 .u32 a = 7; .const .f32 b[2] = {0f3F800000, 2.0}; .extern .shared .align 128 .b8 s[];"
    text = HEADER + declared
    found = parse(text).variables
    assert found["a"].initial == (7,)
    assert found["b"].initial == (0x3F800000, 0x40000000)
    assert found["b"].bytes == 8
    assert found["s"].external
    assert found["s"].align == 128


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello", "expected a declaration"),
        (f"{HEADER}.entry k() {{ mov.u32 %r1, 1; }}", "neither a declared register"),
        (f"{HEADER}.entry k() {{ .reg .b32 %r<2>; mov.u32 %r1 1; }}", "expected ';'"),
        (f"{HEADER}.entry k() {{ ret;", "end of the text"),
        ("\x00\x01", "cannot read"),
        ("", "no .target"),
    ],
)
def test_what_is_not_ptx_is_refused_with_its_line(text, says):
    with pytest.raises(InputError, match=says) as caught:
        parse(text, "sample.ptx")
    assert caught.value.code == "EMU_PTX_SYNTAX"
    assert caught.value.where is not None


@pytest.mark.parametrize(
    ("instruction", "says"),
    [
        ("bar.sync;", "takes 1 to 2 operands, not 0"),
        ("bra;", "takes 1 operands, not 0"),
        ("st.shared.b32 [%d1];", "takes 2 operands, not 1"),
        ("cp.async.wait_group;", "takes 1 operands, not 0"),
        ("mbarrier.init.shared.b64 [%d1];", "takes 2 operands, not 1"),
        ("clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [%d1];", "takes 2 operands, not 1"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.b32 [%d1];", "takes 2 operands, not 1"),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.multicast::cluster.b64 [%d1];", "takes 2 operands, not 1"),
        ("atom.global.cas.b32 %r1, [%d1], %r2;", "takes 4 operands, not 3"),
        ("fence.proxy.async %r1;", "takes 0 operands, not 1"),
        ("griddepcontrol.wait %r1;", "takes 0 operands, not 1"),
        ("barrier.cluster.arrive %r1;", "takes 0 operands, not 1"),
    ],
)
def test_an_instruction_without_its_operands_is_refused(instruction, says):
    with pytest.raises(InputError, match=says) as caught:
        entry(instruction)
    assert caught.value.code == "EMU_PTX_SYNTAX"
    assert caught.value.numbers["line"] == 5


def test_a_jump_to_nowhere_is_refused():
    with pytest.raises(InputError, match="not a label"):
        graph_of("bra NOWHERE;")


def test_both_sides_of_a_branch_meet_at_the_post_dominator():
    graph = graph_of("@%p1 bra A;\nmov.u32 %r1, 1;\nbra B;\nA: mov.u32 %r1, 2;\nB: st.global.u32 [%d1], %r1;\nret;")
    branch, no, yes, end = graph.blocks
    assert branch.successors == (yes.index, no.index)
    assert branch.join == end.index
    assert end.join == EXIT


def test_a_loop_meets_behind_its_exit():
    graph = graph_of("L: add.s32 %r1, %r1, 1;\nsetp.lt.s32 %p1, %r1, 9;\n@%p1 bra L;\nst.global.u32 [%d1], %r1;\nret;")
    loop, after = graph.blocks
    assert loop.successors == (loop.index, after.index)
    assert loop.join == after.index


def test_only_registers_that_outlive_a_block_are_stored():
    graph = graph_of(
        "mov.u32 %r1, 1;\nadd.s32 %r2, %r1, 1;\nadd.s32 %r3, %r2, 1;\nbar.sync 0;\nst.global.u32 [%d1], %r3;\nret;"
    )
    assert graph.blocks[0].stored == ("%r3",)
    assert set(graph.registers) == {"%r3", "%d1"}


def test_a_guarded_write_keeps_the_old_value_alive():
    graph = graph_of("mov.u32 %r1, 1;\nbar.sync 0;\n@%p1 mov.u32 %r1, 2;\nst.global.u32 [%d1], %r1;\nret;")
    assert "%r1" in graph.blocks[0].stored


def test_a_barrier_ends_a_block_and_an_arrival_does_not():
    assert [each.kind for each in graph_of("bar.sync 0;\nret;").blocks] == ["wait", "exit"]
    assert [each.kind for each in graph_of("bar.arrive 1, 64;\nret;").blocks] == ["exit"]


CALLEE = """
.func (.param .b32 back) twice(.param .b32 x)
{ .reg .b32 %r<3>; .reg .pred %p<2>;
  ld.param.b32 %r1, [x]; setp.eq.s32 %p1, %r1, 0; @%p1 bra Z; add.s32 %r2, %r1, %r1; st.param.b32 [back], %r2; ret;
  Z: st.param.b32 [back], %r1; ret; }
"""
CALL = """
    { .param .b32 a; st.param.b32 [a], %r3; .param .b32 b; call.uni (b), twice, (a); ld.param.b32 %r9, [b]; }
"""


def test_a_call_becomes_the_body_of_what_it_calls():
    text = module(f"{CALL}{CALL} st.global.u32 [%d4], %r9; ret;", declarations=CALLEE)
    flat = flatten(parse(text), "kernel")
    assert "call" not in {each.opcode for each in flat.instructions}
    assert len([each for each in flat.instructions if each.opcode == "setp"]) == 2
    assert len(set(flat.labels)) == len(flat.labels) >= 4


def test_recursion_and_calls_into_the_void_are_refused():
    recursive = ".func again() { call.uni again; ret; }"
    for declarations, body in ((recursive, "call.uni again; ret;"), (".extern .func gone();", "call.uni gone; ret;")):
        with pytest.raises(InputError) as caught:
            flatten(parse(module(body, declarations=declarations)), "kernel")
        assert caught.value.code == "EMU_CALL"
