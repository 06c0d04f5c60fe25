"""Stored outputs of a chip against what the emulator computes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from advisor.emulator.formats import as_real
from advisor.emulator.numbers import quiet
from tests.emulator.golden.cases import Bound, Case, all_cases

KEY_CHIP = "chip"


def fingerprint(case: Case) -> str:
    """Changes with the kernel and with its inputs: stored outputs of an older case are not taken for those of this."""
    digest = hashlib.sha256(case.ptx.encode())
    for name, array in case.inputs.items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    for each in case.extra:
        digest.update(each.model_dump_json().encode())
    return digest.hexdigest()[:12]


def key(case: Case, output: str) -> str:
    return f"{case.name}|{output}|{fingerprint(case)}"


def differences(path: Path) -> list[str]:
    """One line for each output that is missing in the file or differs from the emulator's beyond its bound."""
    lines = []
    with np.load(path) as stored:
        for case in all_cases():
            ours = case.expected()
            for name, wanted in ours.items():
                if key(case, name) not in stored:
                    lines.append(f"{case.name}: {name} is not in the file, or the case has changed")
                    continue
                theirs = stored[key(case, name)]
                wrong = beyond(wanted, theirs, case.kinds.get(name, ""), case.bound)
                if wrong.any():
                    at = tuple(int(each) for each in np.argwhere(wrong)[0])
                    lines.append(
                        f"{case.name}: {name} differs in {int(wrong.sum())} of {wrong.size} "
                        f"by more than {case.bound}, first at {at}: "
                        f"chip {int(theirs[at]):#x}, emulator {int(wanted[at]):#x}"
                    )
    return lines


def beyond(ours: Any, theirs: Any, kind: str, bound: Bound) -> Any:
    """Where two arrays of codes differ by more than the bound. An exact bound compares bits, NaN payloads too."""
    if bound == Bound():
        return ours != theirs
    lane = kind.removesuffix("x2")
    if lane != kind:
        ours, theirs = (np.ascontiguousarray(each)[..., None].view(np.uint16) for each in (ours, theirs))
    with quiet():
        first, second = as_real(ours, lane), as_real(theirs, lane)
        distance = np.abs(first - second)
        size = np.maximum(np.abs(first), np.abs(second))
        ulps = np.abs(_ordered(ours) - _ordered(theirs))
        near = (ulps <= bound.ulps) | (distance <= bound.absolute) | (distance <= bound.relative * size)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    wrong = ~(near | same) | (np.isnan(first) != np.isnan(second))
    return wrong.any(axis=-1) if lane != kind else wrong


def _ordered(codes: Any) -> Any:
    """Codes as integers in the order of their values."""
    bits = codes.dtype.itemsize * 8
    whole = codes.astype(np.int64) if bits < 64 else codes.view(np.int64)
    sign = np.int64(1) << np.int64(min(bits, 63) - 1) if bits < 64 else np.int64(0)
    if bits == 64:
        return np.where(whole < 0, np.int64(-(1 << 63)) - whole, whole)
    return np.where(whole & sign, sign - whole, whole)
