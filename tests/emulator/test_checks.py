"""What reports say; what is refused. The faults themselves are in `tests/emulator/faults/`."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import KernelFault
from advisor.errors import AdvisorError, InputError, RefusedError
from advisor.records.launch import ResolvedLaunch, ScalarParam
from tests.emulator.kernels import execute, launch


def test_a_report_says_where():
    with pytest.raises(KernelFault) as caught:
        execute("setp.lt.u32 %p1, %r3, 101; @%p1 bra E;\nst.global.u32 [%d4+4096], %r0;\nE: ret;", launch(64, 2))
    place = caught.value.finding.place
    assert place.instruction == "st.global.u32"
    assert (place.cta, place.warp, place.lane) == ((1, 0, 0), 1, 5)
    assert place.ptx_line is not None
    assert "offset 4500 of the buffer OUT, which has 512" in str(caught.value)


def test_a_deadlock_says_who_waits_for_what():
    with pytest.raises(KernelFault) as caught:
        execute("setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 2; ret; A: bar.sync 1, 64; ret;")
    text = str(caught.value)
    assert "barrier 2: 32 of 64 threads have come" in text
    assert "barrier 1: 32 of 64 threads have come" in text


@pytest.mark.parametrize(
    ("body", "near"),
    [
        ("frobnicate.u32 %r1, %r2;", "frobnicate.u32"),
        ("add.s32.frob %r1, %r2, %r3;", "add.s32.frob"),
        ("ld.global.frob.u32 %r1, [%d3];", "frob"),
        ("bar.sync.frob 0;", "frob"),
        ("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%d1, {%r1}];", "tex.1d"),
    ],
)
def test_what_is_not_executed_stops_with_its_line(body, near):
    with pytest.raises(RefusedError, match=near) as caught:
        execute(f"{body} ret;")
    assert caught.value.code == "EMU_UNKNOWN_OPCODE"
    assert caught.value.numbers["line"] == 17


def changed(**changes) -> ResolvedLaunch:
    return launch().model_copy(update=changes)


@pytest.mark.parametrize(
    ("shape", "inputs", "code"),
    [
        (changed(entry="other"), None, "EMU_ENTRY"),
        (changed(params=launch().params[:2]), None, "EMU_PARAMETERS"),
        (changed(params=[*launch().params[:2], ScalarParam(kind="u64", name="n", value=1)]), None, "EMU_PARAMETERS"),
        (changed(params=[*launch().params[:2], ScalarParam(kind="u32", name="n", value=-1)]), None, "EMU_PARAMETERS"),
        (changed(buffers={"IN": launch().buffers["IN"]}), None, "EMU_BUFFER"),
        (launch(), {"IN": np.zeros(3, np.uint8)}, "EMU_BUFFER"),
        (launch(), {"ELSE": np.zeros(3, np.uint8)}, "EMU_BUFFER"),
        (launch(2048), None, "EMU_LAUNCH_REFUSED"),
        (launch(64, 3, 2), None, "EMU_LAUNCH_REFUSED"),
        (launch(dynamic=300_000), None, "EMU_LAUNCH_REFUSED"),
    ],
)
def test_a_launch_that_does_not_fit_is_an_input_error(shape, inputs, code):
    with pytest.raises(AdvisorError) as caught:
        execute("ret;", shape, inputs=inputs)
    assert isinstance(caught.value, InputError)
    assert caught.value.code == code
