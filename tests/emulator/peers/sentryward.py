"""A second opinion: the static verifier sentryward (PyPI, Apache-2.0), on a kernel and its launch.

It proves over all schedules of one launch that barriers are used well and that accesses are ordered. It models no
fences and takes every request of Cluster Launch Control as refused, so its silence clears nothing there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.emulator.ptx.parser import parse
from advisor.records.launch import (
    BytesParam,
    ElementMapParam,
    PtrParam,
    ResolvedLaunch,
    ResolvedParam,
    ScalarParam,
    ScratchParam,
    TensorMapParam,
)

ELEMENTS = {
    "bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "float8_e4m3fn": "u8",
    "float8_e5m2": "u8", "float8_e8m0fnu": "u8", "float4_e2m1fn_x2": "u8", "int8": "u8", "uint8": "u8", "int32": "s32",
    "uint32": "u32", "int64": "s64", "TFLOAT32": "tf32", "UINT16": "u16", "UINT64": "u64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Opinion:
    """`result` is race_free, not_wellsynced, potential_race, invalid_lifecycle, or why there is no verdict."""

    result: str
    checks: dict[str, str]
    codes: tuple[str, ...]
    text: str

    @property
    def silent(self) -> bool:
        return self.result == "race_free"

    @property
    def accuses(self) -> bool:
        return self.result in ("not_wellsynced", "potential_race", "invalid_lifecycle")


def available() -> bool:
    return shutil.which("sentryward", path=str(Path(sys.executable).parent)) is not None


# --- the same kernel, spelled for sentryward --------------------------------------------------------------------------


def respelled(ptx: str) -> str:
    """The kernel as sentryward 0.1.1 can read it; it does the same.

    Registers that inner scopes declare get names of their own (it takes those of one name for one register); a wait
    that goes through a general register branches on its predicate; all 512 columns of tensor memory stand in place of
    each allocation, since it knows where those begin.
    """
    return whole_tensor_memory(_direct_waits(_own_names(ptx)))


def whole_tensor_memory(ptx: str) -> str:
    wider = re.sub(r"(tcgen05\.alloc\.[^;]*,\s*)[^,;]+;", r"\g<1>512;", ptx)
    return re.sub(r"(tcgen05\.dealloc\.[^;]*,\s*)[^,;]+;", r"\g<1>512;", wider)


_DECLARED = re.compile(r"\{?\s*\.reg\s+\.\w+\s+([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*);")


def _own_names(ptx: str) -> str:
    """Line by line: scopes open and close on lines that begin with a brace."""
    lines, scopes, count = [], [], 0
    for line in ptx.split("\n"):
        text = line.strip()
        if text.startswith(("//", ".loc", ".file")):
            continue
        if text.startswith("{") and "}" not in text:
            scopes.append({})
        declared = _DECLARED.match(text)
        if declared is not None and len(scopes) > 1:
            for name in re.split(r"\s*,\s*", declared[1]):
                count += 1
                scopes[-1][name] = f"{name}_{count}"
        for scope in scopes[1:]:
            for old, new in scope.items():
                line = re.sub(rf"(?<![\w%$.]){old}(?!\w)", new, line)
        lines.append(line)
        if text.startswith("}") and scopes:
            scopes.pop()
    return "\n".join(lines)


_WAIT = re.compile(
    r"\{\s*\.reg \.pred (\w+);\s*(mbarrier\.try_wait\S+) \1, ([^;]*);\s*selp\.u32 (%r\d+), 1, 0, \1;\s*\}"
    r"\s*setp\.(eq|ne)\.s32\s+(%p\d+), \4, 0;\s*@(!?)\6 bra(?:\.uni)?\s+([^;]+);"
)


def _direct_waits(ptx: str) -> str:
    count = 0

    def direct(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        failed = "!" if (match[5] == "eq") != (match[7] == "!") else ""
        return f"{match[2]} %waited{count}, {match[3]};\n@{failed}%waited{count} bra {match[8]};"

    changed = _WAIT.sub(direct, ptx)
    if not count:
        return changed
    body = changed.index("{", changed.index(".entry")) + 1
    return f"{changed[:body]}\n.reg .pred %waited<{count + 1}>;\n{changed[body:]}"


# --- a question and its answer ----------------------------------------------------------------------------------------


def document(ptx: str, launch: ResolvedLaunch) -> dict[str, Any]:
    """The launch as sentryward's input; a scalar has the type that the entry declares."""
    declared = [each.type for each in parse(ptx).functions[launch.entry].params]
    found: dict[str, Any] = {
        "schema": "spverify.kernel-input/v1",
        "entry": launch.entry,
        "launch": {
            "grid_dim": list(launch.grid_blocks),
            "block_dim": list(launch.block),
            "cluster_dim": list(launch.cluster),
            "dynamic_shared_bytes": launch.dynamic_smem_bytes,
        },
        "arguments": [],
        "declarations": [],
        "tma_descriptors": [],
    }
    for index, (param, type_) in enumerate(zip(launch.params, declared, strict=True)):
        kind, entry = _parameter(index, param, type_)
        found[kind].append(entry)
    return found


def _parameter(index: int, param: ResolvedParam, type_: str) -> tuple[str, dict[str, Any]]:
    if isinstance(param, (TensorMapParam, ElementMapParam)):
        return "tma_descriptors", {
            "parameter": index,
            "object": param.buffer,
            "element_type": ELEMENTS.get(param.dtype, param.dtype.lower()),
            "rank": param.rank,
            "global_shape": [int(each) for each in param.global_dim],
            "global_strides_bytes": [int(each) for each in param.global_stride_bytes],
            "box_shape": param.box_dim,
            "element_strides": param.element_strides,
            "swizzle": param.swizzle,
            "interleave": param.interleave,
            "oob_fill": param.oob_fill,
        }
    if isinstance(param, ScalarParam):
        return "arguments", {"parameter": index, "type": type_, "value": param.value}
    if isinstance(param, BytesParam):
        raise ValueError("a struct by value")
    if isinstance(param, PtrParam) and param.buffer is None:
        return "declarations", {"parameter": index, "type": "pointer", "space": "global", "object": f"null{index}"}
    name = param.name if isinstance(param, ScratchParam) else param.buffer
    return "declarations", {"parameter": index, "type": "pointer", "space": "global", "object": name}


def ask(ptx: str, launch: ResolvedLaunch, seconds: int = 60, memory_mib: int = 3000) -> Opinion:
    """Its verdict. Whatever it cannot decide has a result that neither accuses nor is silent."""
    with tempfile.TemporaryDirectory() as folder:
        kernel, given = Path(folder) / "kernel.ptx", Path(folder) / "input.json"
        kernel.write_text(respelled(ptx))
        given.write_text(json.dumps(document(ptx, launch)))
        command = [str(Path(sys.executable).parent / "sentryward"), str(kernel), "--input", str(given)]
        command += ["--timeout", str(seconds), "--memory-limit-mib", str(memory_mib)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    report = json.loads(done.stdout)
    diagnostics = report.get("diagnostics", [])
    codes = tuple(sorted({str(each.get("code")) for each in diagnostics}))
    return Opinion(report["result"], report.get("checks", {}), codes, json.dumps(diagnostics)[:4000])
