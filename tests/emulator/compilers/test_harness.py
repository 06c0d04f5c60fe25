"""The harness can fail: wrong values, values beyond the bound, NaN, faults made in a compiler's PTX."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import numpy as np
import pytest

from advisor.emulator import KernelFault, run
from tests.emulator.compilers.cases_sm90 import SM90
from tests.emulator.compilers.cases_sm100 import SM100
from tests.emulator.compilers.harness import Near, check, compile_case, inputs_of, launch_of, needs_triton

pytestmark = needs_triton


@pytest.mark.parametrize("shift", [1.0, np.nan])
def test_a_value_beyond_its_bound_is_seen(shift):
    case = SM90.cases["softmax"]()
    wanted = np.array(case.expected["out"].value)
    wanted[3, 77] += shift
    wrong = dataclasses.replace(case, expected={"out": Near(wanted, case.expected["out"].bound)})
    with pytest.raises(AssertionError, match=r"out\[3, 77\]|NaN"):
        check(wrong)


def test_the_same_case_compiles_once_and_to_the_same_text():
    first, second = (compile_case(SM90.cases["softmax"]()) for _ in range(2))
    assert first is second


def test_collecting_the_cases_imports_no_compiler():
    code = "import tests.emulator.compilers.cases_sm90, sys; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


BROKEN = {  # case: what is taken out of its PTX, what takes its place, the report
    "a store by the async proxy without its fence": (
        "gluon_ring", r"fence\.proxy\.async\.shared::cta;", "", "EMU_DATA_RACE",
    ),
    "operands overwritten while products read them": (
        "gluon_ring", r"wgmma\.wait_group\.sync\.aligned 0;", "", "EMU_DATA_RACE",
    ),
    "a store in flight at exit": (
        "gluon_ring", r"cp\.async\.bulk\.wait_group\.read \t0;", "", "EMU_ASYNC_AT_EXIT",
    ),
    "bytes that nobody sends": (
        "gluon_specialized", r"(expect_tx\S+ _, \[%r\d+\]), 16384", r"\1, 16400", "EMU_DEADLOCK",
    ),
    "a stage that is never given back": (
        "gluon_specialized", r"@%p\d+ mbarrier\.arrive\.shared::cta\.b64 .*;", "", "EMU_DEADLOCK",
    ),
    "a peer's memory read before it is written": (
        "gluon_cluster_transpose", r"barrier\.cluster\.(arrive|wait)\.aligned;", "", "EMU_PEER_NOT_STARTED",
    ),
    "a copy used one group too early": (
        "gluon_ampere_pipeline", r"cp\.async\.wait_group \t2;", "cp.async.wait_group 3;", "EMU_UNINITIALISED",
    ),
    "a multicast to a peer that may not have started": (
        "gluon_multicast_2", r"barrier\.cluster\.(arrive|wait)\S*aligned;", "", "EMU_PEER_NOT_STARTED",
    ),
    "an accumulator read while its products run": (
        "sm100 gluon_one_cta",
        r"mbarrier\.try_wait\.parity\S* (complete), \[%r\d+\], %r\d+;(?=[\s\S]{0,2500}tcgen05\.ld)",
        r"mov.pred \1, -1;", "EMU_TMEM_BEFORE_COMMIT",
    ),
    "tensor memory freed under a load": (
        "sm100 gluon_one_cta", r"tcgen05\.wait::ld\.sync\.aligned;", "", "EMU_TMEM_FREED_EARLY",
    ),
    "a product of what a peer has not stored yet": (
        "sm100 gluon_a_from_tmem_pair",
        r"(wait::st\.sync\.aligned;[\s\S]{0,300}?)barrier\.cluster\.arrive\.aligned;[\s\S]{0,200}?"
        r"barrier\.cluster\.wait\.aligned;", r"\1", "EMU_TMEM_RACE",
    ),
    "stores to tensor memory that nobody waits for": (
        "sm100 gluon_a_from_tmem_pair", r"tcgen05\.wait::st\.sync\.aligned;", "", "EMU_TMEM_NOT_WAITED",
    ),
    "bytes of a partner left out": (
        "sm100 gluon_pair",
        r"expect_tx\.shared::cluster\.b64 _, (\[%r\d+\]), 20480",
        r"expect_tx.shared::cluster.b64 _, \1, 20464",
        "EMU_DEADLOCK",
    ),
    "tensor memory never given back": (
        "sm100 gluon_one_cta", r"@%p\d+ tcgen05\.dealloc.*;", "", "EMU_TMEM_LEAK",
    ),
    "a response overwritten while the next reads it": (
        "sm100 gluon_clc_one_slot",
        r"(query_cancel\.get_first_ctaid\S+ %r\d+, %rq\d;[\s\S]{0,400}?)fence\.proxy\.async\.shared::cta;",
        r"\1",
        "EMU_CLC_SLOT_IN_USE",
    ),
    "a request that misses its bytes": (
        "sm100 gluon_clc", r"(expect_tx\S+ _, \[%r\d+\]), 16;", r"\1, 32;", "EMU_DEADLOCK",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", list(BROKEN))
def test_a_fault_made_in_a_compilers_output_is_named(fault):
    name, pattern, replacement, code = BROKEN[fault]
    case = (SM100 if name.startswith("sm100 ") else SM90).cases[name.split()[-1]]()
    compiled = compile_case(case)
    broken, times = re.subn(pattern, replacement, compiled.ptx)
    assert times
    busy = 146 if "clc" in name else 0  # so that requests are granted, and slots are used again
    with pytest.raises(KernelFault) as found:
        run(broken, launch_of(case, compiled), inputs=inputs_of(case), async_policy="adversarial", busy_sms=busy)
    assert found.value.code == code, str(found.value)
