"""What compile_cuda promises: one compilation, all messages, all resources, and bytes that depend on the unit alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.codegen import templates
from advisor.errors import ToolError
from advisor.records.launch import Kernel
from advisor.toolchain import (
    Unit,
    broken_promises,
    compile_cuda,
    compile_many,
    compiler_version,
    kernel_hash,
    known_targets,
    nvrtc,
)

REPOSITORY = Path(__file__).parents[2]
HEADER = "#pragma once\n__device__ __forceinline__ float twice(float x) { return x * FACTOR; }\n"
SOURCE = """#include "ptx/twice.cuh"
extern "C" __global__ void __launch_bounds__(128) scale(float* out, const float* in) {
    __shared__ float tile[128];
    tile[threadIdx.x] = twice(in[threadIdx.x]);
    __syncthreads();
    out[threadIdx.x] = tile[127 - threadIdx.x];
}
"""
UNIT = Unit("kernel_scale.cu", SOURCE, {"ptx/twice.cuh": HEADER}, "sm_90a", {"FACTOR": 2})


def build(unit: Unit = UNIT):
    return compile_cuda(unit, use_cache=False)


def test_ptx_and_cubin_come_from_one_compilation_with_their_resources():
    compiled = build()
    assert ".target sm_90a" in compiled.ptx
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.static_smem_bytes == 512
    assert 4 <= compiled.registers <= 32
    assert (compiled.spill_bytes, compiled.stack_bytes) == (0, 0)
    assert set(compiled.entries) == {"scale"}
    assert re.fullmatch(r"nvrtc 13\.\d+\.\d+", compiled.compiler)
    assert not compiled.cached


def test_every_target_of_the_portable_family_builds_from_one_source():
    targets = ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"]
    images = compile_many([replace(UNIT, target=target) for target in targets], use_cache=False)
    assert [image.target for image in images] == targets
    assert all(f".target {target}" in image.ptx for target, image in zip(targets, images, strict=True))
    assert len({image.kernel_hash for image in images}) == 1
    assert len({image.cubin_sha256 for image in images}) == len(targets)


def test_a_compile_error_carries_the_log_with_the_bundle_s_own_file_names():
    with pytest.raises(ToolError) as caught:
        build(replace(UNIT, headers={"ptx/twice.cuh": "#pragma once\n\n__device__ float twice(flaot x);\n"}))
    assert caught.value.code == "COMPILE_FAILED"
    assert "include/ptx/twice.cuh(3): error" in caught.value.message
    assert "flaot" in caught.value.message
    assert 'compilation of "kernel_scale.cu"' in caught.value.message


def test_an_assembler_error_carries_its_log_too():
    source = '#include "ptx/wgmma.cuh"\nextern "C" __global__ void k() { ptx::wgmma_fence(); }'
    with pytest.raises(ToolError) as caught:
        build(Unit("kernel.cu", source, templates.headers_for(source), "sm_90", {}))
    assert caught.value.code == "COMPILE_FAILED"
    assert "wgmma" in caught.value.message


@pytest.mark.parametrize("target", ["sm_90f", "sm_101a", "sm_999", "compute_90", "sm_90a; rm", "hopper"])
def test_a_target_that_the_compiler_does_not_know_is_named(target):
    with pytest.raises(ToolError) as caught:
        build(replace(UNIT, target=target))
    assert caught.value.code == "TARGET_UNKNOWN"
    assert repr(target) in caught.value.message
    assert "sm_100" in caught.value.fix


def test_known_targets_hold_what_the_families_need():
    assert {80, 89, 90, 100, 103, 120} <= set(known_targets())


def test_a_missing_compiler_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(ToolError) as caught:
        build()
    assert caught.value.code == "NVRTC_MISSING"
    assert "nvidia-cuda-nvrtc" in caught.value.fix


def test_a_library_that_does_not_load_says_how_to_install_it(monkeypatch):
    from cuda.bindings import nvrtc as bindings

    def not_found():
        raise RuntimeError('Failure finding "libnvrtc.so"')

    monkeypatch.setattr(bindings, "nvrtcVersion", not_found)
    with pytest.raises(ToolError) as caught:
        build()
    assert caught.value.code == "NVRTC_MISSING"
    assert "libnvrtc.so" in caught.value.message


def test_a_library_that_cannot_compile_an_empty_program_is_unusable(monkeypatch):
    monkeypatch.setattr(nvrtc, "_compile", lambda *_: (7, "", "nvrtc: error: failed to open libnvrtc-builtins.so"))
    compiler_version.cache_clear()
    try:
        with pytest.raises(ToolError) as caught:
            compiler_version()
    finally:
        compiler_version.cache_clear()
    assert caught.value.code == "NVRTC_UNUSABLE"
    assert "libnvrtc-builtins" in caught.value.message


def test_importing_the_room_does_not_load_the_compiler():
    program = "import sys, advisor.toolchain; assert not [m for m in sys.modules if m.split('.')[0] == 'cuda']"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=REPOSITORY)


def test_the_bytes_do_not_depend_on_the_working_directory(tmp_path):
    program = (
        "import sys; from tests_unit import UNIT; from advisor.toolchain import compile_cuda;"
        "c = compile_cuda(UNIT, use_cache=False); print(c.ptx_sha256, c.cubin_sha256)"
    )
    helper = (
        f"from advisor.toolchain import Unit\nUNIT = Unit({UNIT.name!r}, {UNIT.source!r}, {dict(UNIT.headers)!r}, "
        f"{UNIT.target!r}, {dict(UNIT.defines)!r})\n"
    )
    (tmp_path / "tests_unit.py").write_text(helper)
    elsewhere = tmp_path / "some" / "other place"
    elsewhere.mkdir(parents=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(tmp_path)])}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=elsewhere, env=environment, check=True, capture_output=True, text=True
    )
    here = build()
    assert run.stdout.split() == [here.ptx_sha256, here.cubin_sha256]
    assert str(Path.cwd()).encode() not in here.cubin
    assert '.file\t2 "/include/ptx/twice.cuh"' in here.ptx


def test_the_kernel_hash_covers_source_headers_defines_and_flags_but_not_the_target():
    base = kernel_hash(UNIT)
    assert kernel_hash(replace(UNIT, target="sm_100a")) == base
    changed = [
        replace(UNIT, source=SOURCE + "\n"),
        replace(UNIT, headers={"ptx/twice.cuh": HEADER + "\n"}),
        replace(UNIT, defines={"FACTOR": 3}),
        replace(UNIT, flags=("--extra-device-vectorization",)),
    ]
    assert len({base, *map(kernel_hash, changed)}) == 5
    assert build().kernel_hash == base


def test_defines_reach_the_source_and_text_defines_too():
    source = 'extern "C" __global__ void ENTRY(TYPE* p) { p[0] = VALUE; }'
    compiled = build(Unit("k.cu", source, {}, "sm_80", {"ENTRY": "named", "TYPE": "long long", "VALUE": 7}))
    assert set(compiled.entries) == {"named"}
    assert "st.global" in compiled.ptx


@pytest.mark.parametrize(
    "change",
    [
        {"name": "/etc/kernel.cu"},
        {"name": "../kernel.cu"},
        {"headers": {'a"b.cuh': ""}},
        {"defines": {"A B": 1}},
        {"defines": {"A": "1\n#include </etc/passwd>"}},
    ],
)
def test_a_unit_that_reaches_outside_of_itself_is_a_bug(change):
    with pytest.raises(ValueError, match=r"not a path inside a bundle|not one macro"):
        replace(UNIT, **change)


def test_spills_and_stack_are_reported():
    values = "".join(f"    float v{i} = p[threadIdx.x + {i * 32}];\n" for i in range(64))
    shift = "".join(f"        float t{i} = v{i} * v{(i * 7 + 1) % 64} + 1.0f;\n" for i in range(64))
    back = "".join(f"        v{i} = t{i};\n" for i in range(64))
    stores = "".join(f"    p[threadIdx.x + {i * 32}] = v{i};\n" for i in range(64))
    source = (
        'extern "C" __global__ void __launch_bounds__(1024, 2) k(float* p, int n) {\n'
        f"{values}    for (int r = 0; r < n; ++r) {{\n{shift}{back}    }}\n{stores}}}\n"
    )
    compiled = build(Unit("k.cu", source, {}, "sm_90a", {}))
    assert compiled.spill_bytes > 0
    assert compiled.stack_bytes > 0
    kernel = make_kernel(entry="k", static_smem_bytes=0)
    assert [each.code for each in broken_promises(compiled, kernel)] == ["REGISTER_SPILL"]


def make_kernel(**changes) -> Kernel:
    row = {
        "id": "portable_one_tile",
        "family": "portable",
        "schedule": "one_tile",
        "source": "kernel_scale.cu",
        "defines": {},
        "entry": "scale",
        "images": {"sm_90a": "build/x.cubin"},
        "block": (128, 1, 1),
        "cluster": (1, 1, 1),
        "nonportable": False,
        "dynamic_smem_bytes": 0,
        "static_smem_bytes": 512,
        "registers": 32,
        "grid_blocks": (1, 1, 1),
        "params": [],
        "tile": (1, 1, 1),
    }
    return Kernel(**(row | changes))


def test_an_image_that_keeps_its_promises_has_no_finding():
    assert broken_promises(build(), make_kernel()) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"entry": "other"}, "ENTRY_MISSING"),
        ({"registers": 2}, "REGISTERS_ABOVE_PLAN"),
        ({"static_smem_bytes": 0}, "STATIC_SMEM_DIFFERS"),
    ],
)
def test_a_broken_promise_is_named(change, code):
    assert [each.code for each in broken_promises(build(), make_kernel(**change))] == [code]


def test_compile_many_keeps_the_order_and_raises_the_first_error():
    good, bad = UNIT, replace(UNIT, source="broken")
    with pytest.raises(ToolError) as caught:
        compile_many([good, bad, good], use_cache=False)
    assert caught.value.code == "COMPILE_FAILED"
    factors = [compile_many([replace(UNIT, defines={"FACTOR": f}) for f in (2, 3)], use_cache=False)]
    assert [each.kernel_hash for each in factors[0]] == [
        kernel_hash(replace(UNIT, defines={"FACTOR": f})) for f in (2, 3)
    ]


_PRESS_CTRL_C = """
import os, signal, threading, time
from advisor.toolchain import compiler_version
pressed, done = [], threading.Event()
signal.signal(signal.SIGINT, lambda *_: pressed.append(1))

def press():
    while not done.is_set():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.0005)

thread = threading.Thread(target=press)
thread.start()
version = compiler_version()
done.set()
thread.join()
print(version, len(pressed) > 0)
"""


def test_ctrl_c_during_the_first_compilation_of_a_process_is_the_callers():
    """The library takes SIGINT for itself there, and ends the process with status 4."""
    child = subprocess.run([sys.executable, "-c", _PRESS_CTRL_C], capture_output=True, text=True, timeout=60)
    assert (child.returncode, child.stdout) == (0, f"{compiler_version()} True\n"), child.stderr
