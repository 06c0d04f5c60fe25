"""What is refused before a kernel runs: PTX, launches and files that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from advisor.emulator.expected import expectations
from advisor.emulator.launch_file import read_arrays, read_launch
from advisor.records.launch import Expected
from tests.emulator.faults.accesses import MEET
from tests.emulator.faults.model import Fault, Kernel, Launch, Mistake, Options, Text, kernel
from tests.emulator.kernels import launch

CALLEE = """.func (.param .b32 result) twice(.param .b32 value)
{ .reg .b32 %a<4>; ld.param.b32 %a1, [value]; add.s32 %a2, %a1, %a1; st.param.b32 [result], %a2; ret; }
"""
CALL = """{ .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %r0;
    call.uni (r0), twice, (p0); ld.param.b32 %r9, [r0]; } ret;"""


def plain() -> Kernel:
    return kernel("st.global.u32 [%d4], %r0; ret;")


def pair() -> Kernel:
    return kernel(f"{MEET} ret;", launch(64, 2, 2))


def _launch_file(folder: Path, **changes: Any) -> Path:
    document = json.loads(launch().model_dump_json()) | changes
    path = folder / "launch.json"
    path.write_text(json.dumps(document))
    return path


def _arrays(folder: Path, *, pickled: bool) -> object:
    path = folder / "in.npz"
    content = np.array([{}]) if pickled else np.zeros(256, np.uint8)
    np.savez(path, allow_pickle=pickled, IN=content)
    return read_arrays(path)


def _formula(text: str) -> object:
    expected = Expected(buffer="OUT", formula=text, bound="0")
    return expectations(launch().model_copy(update={"expected": [expected]}), {})


FAULTS = [
    Fault(
        "text that is not PTX",
        "EMU_PTX_SYNTAX",
        plain(),
        Text(".visible .entry", "__global__ void"),
    ),
    Fault(
        "a jump to a label that is nowhere",
        "EMU_PTX_SYNTAX",
        kernel("setp.eq.u32 %p1, %r0, 0; @%p1 bra E; E: ret;"),
        Text("@%p1 bra E;", "@%p1 bra F;"),
    ),
    Fault(
        "an instruction that does not exist",
        "EMU_UNKNOWN_OPCODE",
        kernel("add.s32 %r9, %r0, 1; ret;"),
        Text("add.s32 %r9", "frobnicate.s32 %r9"),
    ),
    Fault(
        "a call of a function without a body",
        "EMU_CALL",
        kernel(CALL, declarations=CALLEE),
        Text("call.uni (r0), twice,", "call.uni (r0), thrice,"),
    ),
    Fault(
        "an entry that the module does not have",
        "EMU_ENTRY",
        plain(),
        Launch({"entry": "other"}),
    ),
    Fault(
        "a parameter too few",
        "EMU_PARAMETERS",
        plain(),
        Launch({"params": launch().params[:2]}),
    ),
    Fault(
        "first bytes of another size than the buffer",
        "EMU_BUFFER",
        plain(),
        Options({"inputs": {"IN": np.zeros(3, np.uint8)}}),
    ),
    Fault(
        "a block of more threads than a CTA may have",
        "EMU_LAUNCH_REFUSED",
        plain(),
        Launch({"block": (2048, 1, 1)}),
    ),
    Fault(
        "a grid that is no multiple of its cluster",
        "EMU_LAUNCH_REFUSED",
        pair(),
        Launch({"grid_blocks": (3, 1, 1)}),
    ),
    Fault(
        "a cluster of 16 CTAs without the non-portable attribute",
        "EMU_LAUNCH_REFUSED",
        kernel(f"{MEET} ret;", launch(64, 16, 16).model_copy(update={"nonportable": True})),
        Launch({"nonportable": False}),
    ),
    Fault(
        "more shared memory than a CTA may have",
        "EMU_LAUNCH_REFUSED",
        plain(),
        Launch({"dynamic_smem_bytes": 300_000}),
    ),
    Fault(
        "a cluster on SMs that other work holds",
        "EMU_LAUNCH_REFUSED",
        pair(),
        Options({"busy_sms": 132}),
    ),
    Fault(
        "a launch for another target than the PTX",
        "EMU_LAUNCH_REFUSED",
        plain(),
        Launch({"target": "sm_80"}),
    ),
    Fault(
        "PTX of one chip on another",
        "EMU_LAUNCH_REFUSED",
        plain(),
        Options({"profile": "b200"}),
    ),
    Fault(
        "a policy that does not exist",
        "EMU_POLICY",
        plain(),
        Options({}),
        setting={"async_policy": "hasty", "seed": 0},
    ),
]

MISTAKES = [
    Mistake(
        "a launch file with an expression where a number belongs",
        "EMU_LAUNCH_FILE",
        lambda folder: read_launch(_launch_file(folder)),
        lambda folder: read_launch(_launch_file(folder, grid_blocks=["ceil_div(n, 64)", 1, 1])),
    ),
    Mistake(
        "inputs that hold Python objects",
        "EMU_INPUTS_FILE",
        lambda folder: _arrays(folder, pickled=False),
        lambda folder: _arrays(folder, pickled=True),
    ),
    Mistake(
        "a formula that names a buffer which is not there",
        "EMU_FORMULA",
        lambda folder: _formula("IN + 1"),
        lambda folder: _formula("INPUT + 1"),
    ),
]
