"""The C++ launcher, compiled and run on a driver that only writes down what it is asked.

What it launches must be what `resolve` and `pick_rung` say: three readers of one launch file, one answer. The driver
and its header are a stand-in of the tests (`fake_cuda/`), so no toolkit is needed; where one is installed, the rendered
files are also compiled against the real cuda.h.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.bundle import Facts, RenderedBundle, is_empty, pick_rung, resolve, write_bundle
from advisor.codegen import render_bundle
from advisor.errors import AdvisorError
from advisor.kinds.workload import Workload
from advisor.records.launch import Launch, ScalarParam
from advisor.records.plan import Plan

Make = Callable[..., tuple[Plan, Workload]]

pytestmark = pytest.mark.slow

FAKE = Path(__file__).parent / "fake_cuda"
STRICT = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
SCALARS = {"f32": "<f", "u32": "<I", "i64": "<q"}
ADDRESSES = {"A": 0x10000, "B": 0x20000, "C": 0x30000, "D": 0x40000, "bias": 0x50000, "scale_a": 0x60000}
WORKSPACE = 0x70000


def _toolkit_headers() -> list[Path]:
    """The folder of the real cuda.h, where a toolkit is installed: CUDA_HOME, CUDA_PATH or /usr/local/cuda."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    found = [Path(root) / "include" for root in roots if root and (Path(root) / "include" / "cuda.h").is_file()]
    return found[:1]


PROBLEMS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "ticket": ([{"schedule": "ticket", "cluster": (2, 1, 1)}], {}),
    "scratch": ([{"split_k": 4}], {"epilogue": {"alpha": 0.5, "beta": 2.0, "bias": "row", "activation": "gelu"}}),
    "sixteen": ([{"cluster": (4, 4, 1), "schedule": "static"}], {"dtype": "e4m3", "scale": {"a": "tensor"}}),
    "slices": ([{"cluster": (1, 1, 4), "split_k": 4, "swap_ab": True}], {"dtype": "tf32", "launch": {"pdl": True}}),
    "pairs": ([{"family": "sm100"}], {"epilogue": {"beta": 0.5}}),
    "budget": ([{"schedule": "static"}], {"constraints": {"sm_budget": 40}, "d": {"major": "m"}}),
}


@pytest.mark.parametrize("headers", [FAKE, *_toolkit_headers()], ids=lambda path: path.parent.name)
@pytest.mark.parametrize("problem", sorted(PROBLEMS))
def test_the_host_files_compile_without_a_warning(make: Make, tmp_path: Path, problem: str, headers: Path) -> None:
    candidates, fields = PROBLEMS[problem]
    folder = write_bundle(tmp_path / "sample", render_bundle(*make(candidates, **fields)))
    for source in ("sample.cpp", "test/sample_test.cpp"):
        command = [*STRICT, "-fsyntax-only", "-isystem", str(headers), "-I", str(folder), str(folder / source)]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr[:4000]


def test_the_header_is_plain_c(make: Make, tmp_path: Path) -> None:
    assert shutil.which("gcc"), "this test compiles C with gcc"
    folder = write_bundle(tmp_path / "sample", render_bundle(*make()))
    (tmp_path / "use.c").write_text('#include "sample.h"\nint main(void) { return sample_rung_count() == 0; }\n')
    (tmp_path / "cuda.h").write_text("typedef struct CUstream_st* CUstream;\n")
    command = [
        "gcc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        "-I",
        str(tmp_path),
        "-I",
        str(folder),
    ]
    built = subprocess.run([*command, str(tmp_path / "use.c")], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr


# --- behaviour -------------------------------------------------------------------------------------------------------


class Program:
    """A launcher built with the fake driver; `run(body)` compiles a main and gives the lines that it prints."""

    def __init__(self, folder: Path, rendered: RenderedBundle) -> None:
        assert shutil.which("g++"), "this test compiles C++ with g++"
        self.folder = folder
        self.launch = rendered.launch
        self.bundle = write_bundle(folder / "sample", rendered)
        self.includes = ["-I", str(FAKE), "-I", str(self.bundle)]
        for source, name in ((self.bundle / "sample.cpp", "sample.o"), (FAKE / "driver.cpp", "driver.o")):
            self._compile(["-c", str(source), "-o", str(folder / name)])

    def _compile(self, arguments: list[str]) -> None:
        built = subprocess.run([*STRICT, *self.includes, *arguments], capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr[:4000]

    def run(self, body: str) -> list[str]:
        sizes = "".join(
            f'  fake.parameter_bytes["{kernel.id}.{target}.cubin"] = {{{", ".join(map(str, _sizes(kernel)))}}};\n'
            for kernel in self.launch.kernels
            for target in kernel.images
        )
        source = self.folder / "main.cpp"
        source.write_text(_MAIN.format(sizes=sizes, body=body))
        objects = [str(self.folder / name) for name in ("sample.o", "driver.o")]
        self._compile([str(source), *objects, "-o", str(self.folder / "main"), "-pthread"])
        done = subprocess.run([self.folder / "main"], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()


def _sizes(kernel: Any) -> list[int]:
    sizes = {"tensormap": 128, "ptr": 8, "scratch": 8, "u32": 4, "f32": 4, "i64": 8}
    return [sizes[param.kind] for param in kernel.params]


_MAIN = """\
#include "driver.h"
#include "sample.h"

#include <cstdio>
#include <thread>
#include <vector>

inline void* at(unsigned long long address) {{ return reinterpret_cast<void*>(address); }}
inline void say(sample_status status) {{
  std::printf("status %d %s\\n", static_cast<int>(status), status == SAMPLE_OK ? "" : sample_last_message());
}}
inline sample_launcher* open() {{
  sample_launcher* launcher = nullptr;
  say(sample_get("images", &launcher));
  return launcher;
}}

int main() {{
{sizes}{body}
  return 0;
}}
"""


def _call(launch: Launch, arguments: dict[str, int], rung: str | None = None, sm_budget: int = 0) -> str:
    """C++ that runs the launcher with these arguments on stream 7."""
    lines = ["  {", "    sample_arguments arguments = sample_defaults();"]
    lines += [f"    arguments.{name} = {value};" for name, value in arguments.items()]
    lines += ["    sample_buffers buffers = {};"]
    lines += [f"    buffers.{name} = at({ADDRESSES[name]});" for name in launch.buffers]
    name = "nullptr" if rung is None else f'"{rung}"'
    lines += [
        f"    const sample_options options = {{{sm_budget}, {name}}};",
        f"    say(sample_run(launcher, &arguments, &buffers, &options, at({WORKSPACE}), 1ull << 50,",
        "                   reinterpret_cast<CUstream>(at(7))));",
        "  }",
    ]
    return "\n".join(lines) + "\n"


def _expected(launch: Launch, arguments: dict[str, int], facts: Facts, portable: str = "sm_90") -> list[str]:
    """What the driver is asked for, as the tool reads the launch file; `portable` is that kernel's image."""
    run = pick_rung(launch, arguments, facts)
    lines, offsets, end = [], {}, 0
    resolved = {kernel.id: resolve(launch, kernel.id, arguments, facts) for kernel in launch.kernels_of(run)}
    zeroed: dict[str, int] = {}
    for each in resolved.values():
        for param in each.params:
            if param.kind == "scratch" and param.name not in offsets:
                end = -(-end // param.align) * param.align
                offsets[param.name] = end if int(param.bytes) else None
                end += int(param.bytes)
                if param.init == "zeros" and int(param.bytes):
                    zeroed[param.name] = int(param.bytes)
    lines += [f"memset {WORKSPACE + (offsets[name] or 0):x} 0 {size}" for name, size in zeroed.items()]
    for kernel_id, each in resolved.items():
        if is_empty(each):
            continue
        target = next(iter(launch.kernel(kernel_id).images)) if kernel_id != "portable_one_tile" else portable
        lines += [
            f"map {ADDRESSES[param.buffer]:x} "
            + " ".join(str(value) for value in (*param.global_dim, *param.global_stride_bytes, *param.box_dim))
            for param in each.params
            if param.kind == "tensormap"
        ]
        numbers = (*each.grid_blocks, *each.block, *each.cluster, each.dynamic_smem_bytes)
        text = f"launch {kernel_id}.{target}.cubin {' '.join(str(value) for value in numbers)} 7 "
        lines.append(text + " ".join(_bytes(param, offsets).hex() for param in each.params))
    return [*lines, "status 0 "]


def _bytes(param: Any, offsets: dict[str, int | None]) -> bytes:
    if param.kind == "tensormap":
        return b"\x4d" * 128
    if param.kind == "scratch":
        offset = offsets[param.name]
        return struct.pack("<Q", 0 if offset is None else WORKSPACE + offset)
    if param.kind == "ptr":
        return struct.pack("<Q", 0 if param.buffer is None else ADDRESSES[param.buffer] + int(param.offset_bytes))
    assert isinstance(param, ScalarParam)
    return struct.pack(SCALARS[param.kind], param.value)


def _facts(launch: Launch, **changes: Any) -> Facts:
    ids = [kernel.id for kernel in launch.kernels]
    fields: dict[str, Any] = {
        "num_sms": 132,
        "sm_budget": 132,
        "max_active_clusters": dict.fromkeys(ids, 66),
        "loadable": frozenset(ids),
        **changes,
    }
    return Facts(**fields)


ARGUMENTS: list[dict[str, int]] = [
    {},
    {"m": 1, "n": 1, "k": 1},
    {"m": 8192, "n": 8192, "k": 512, "lda": 512, "ldb": 512, "ldd": 8192},
    {"batch": 7},
    {"batch": 2, "batch_stride_a": 28801},
    {"lda": 97},
    {"k": 0},
    {"m": 0},
    {"n": 0},
    {"batch": 0},
    {"m": 2**31 - 1, "ldd": 2**31},
]


@pytest.mark.parametrize("problem", sorted(PROBLEMS))
def test_every_reader_of_the_launch_file_launches_the_same(make: Make, tmp_path: Path, problem: str) -> None:
    candidates, fields = PROBLEMS[problem]
    program = Program(tmp_path, render_bundle(*make(candidates, **fields)))
    launch = program.launch
    default_budget = fields.get("constraints", {}).get("sm_budget", 132)
    blackwell = launch.kernels[0].family == "sm100"
    portable = "sm_100" if blackwell else "sm_90"
    body = "  fake.major = 10;\n" * blackwell + "  sample_launcher* launcher = open();\n"
    expected = ["status 0 "]
    for arguments in ARGUMENTS:
        for budget in (0, 64):
            body += _call(launch, arguments, sm_budget=budget)
            try:
                facts = _facts(launch, sm_budget=budget or default_budget)
                expected += _expected(launch, arguments, facts, portable)
            except AdvisorError as error:
                expected.append(f"refused {error.code}")
    printed = program.run(body)
    for line, wanted in zip(printed, expected, strict=False):
        if wanted.startswith("refused"):
            assert line.startswith("status 1"), (line, wanted)
        else:
            assert line == wanted
    assert len(printed) == len(expected)


def test_the_ladder_steps_down_as_the_device_gets_poorer(make: Make, tmp_path: Path) -> None:
    program = Program(tmp_path, render_bundle(*make([{"schedule": "ticket", "cluster": (4, 1, 1)}])))
    images = [f"{kernel.id}.sm_90a.cubin" for kernel in program.launch.kernels[:-1]]
    steps = [
        "",
        f'fake.refused = {{"{images[0]}"}};',
        f'fake.residency = {{{{"{images[0]}", 0}}, {{"{images[1]}", 0}}}};',
        f'fake.residency = {{{{"{images[0]}", 0}}, {{"{images[1]}", 0}}, {{"{images[2]}", 0}}}};',
        "fake.major = 8; fake.minor = 6;",
        "fake.major = 10; fake.minor = 3;",
        "fake.smem_limit = 101376;",
        "fake.major = 7;",
    ]
    body = "".join(
        f"  fake = FakeDevice{{}};\n  {step}\n  {{\n  sample_launcher* launcher = nullptr;\n"
        f'  say(sample_create("images", &launcher));\n  const char* rung = "none";\n'
        f"  sample_arguments arguments = sample_defaults();\n  sample_buffers buffers = {{at(16), at(32), at(48)}};\n"
        f"  (void)sample_pick(launcher, &arguments, &buffers, nullptr, &rung);\n"
        f'  std::printf("rung %s\\n", rung);\n  int clusters = -1;\n'
        f'  (void)sample_residency(launcher, "{program.launch.kernels[0].id}", &clusters);\n'
        f'  std::printf("residency %d\\n", clusters);\n'
        f'  sample_destroy(launcher);\n  std::printf("loaded %d\\n", fake.loads);\n  }}\n'
        for step in steps
    )
    printed = program.run(body)
    rungs = [line.split()[1] for line in printed if line.startswith("rung")]
    assert rungs == [
        "sm90_ticket_4x1x1",
        "sm90_static_4x1x1",
        "sm90_ticket_2x1x1",
        "sm90_one_tile",
        "portable_one_tile",
        "portable_one_tile",
        "portable_one_tile" if program.launch.kernels[2].dynamic_smem_bytes > 101376 else "sm90_ticket_4x1x1",
        "portable_one_tile",
    ]
    assert [line for line in printed if line.startswith("loaded")] == ["loaded 0"] * len(steps)
    assert [line for line in printed if line.startswith("residency")][:2] == ["residency 66", "residency 0"]


def test_the_ladder_of_a_blackwell_bundle(make: Make, tmp_path: Path) -> None:
    program = Program(tmp_path, render_bundle(*make([{"family": "sm100", "cluster": (4, 1, 1)}, {}])))
    b200 = "fake.major = 10; fake.minor = 0;"
    gone = "".join(f'{{"sm100_{each}.sm_100a.cubin", 0}}, ' for each in ("clc_4x1x1", "static_4x1x1"))
    steps = [
        (b200, "sm100_clc_4x1x1"),
        ("fake.major = 10; fake.minor = 3;", "sm100_clc_4x1x1"),  # through the image of the family target
        (b200 + f" fake.residency = {{{gone}}};", "sm100_clc_2x1x1"),
        (b200 + ' fake.refused = {"sm100_clc_4x1x1.sm_100a.cubin"};', "sm100_static_4x1x1"),
        ("fake.major = 9; fake.minor = 0;", "sm90_one_tile"),
        ("fake.major = 12; fake.minor = 0;", "portable_one_tile"),
    ]
    body = "".join(
        f"  fake = FakeDevice{{}};\n  {step}\n  {{\n  sample_launcher* launcher = nullptr;\n"
        f'  say(sample_create("images", &launcher));\n  const char* rung = "none";\n'
        f"  sample_arguments arguments = sample_defaults();\n  sample_buffers buffers = {{at(16), at(32), at(48)}};\n"
        f"  if (launcher) (void)sample_pick(launcher, &arguments, &buffers, nullptr, &rung);\n"
        f'  std::printf("rung %s\\n", rung);\n  if (launcher) sample_destroy(launcher);\n  }}\n'
        for step, _ in steps
    )
    rungs = [line.split()[1] for line in program.run(body) if line.startswith("rung")]
    assert rungs == [wanted for _, wanted in steps]


def test_what_is_wrong_is_a_status_and_a_message(make: Make, tmp_path: Path) -> None:
    program = Program(tmp_path, render_bundle(*make([{"split_k": 4}])))
    launch = program.launch
    body = """
  fake.context = 0;
  sample_launcher* launcher = open();
  fake.context = 1;
  fake.missing = {"portable_one_tile.sm_90.cubin"};
  launcher = open();
  fake.missing = {};
  launcher = open();
"""
    body += _call(launch, {"m": -1})
    body += _call(launch, {"lda": 0})
    body += _call(launch, {"m": 2**40, "n": 2**40})
    body += _call(launch, {}, rung="fastest")
    body += _call(launch, {"lda": 97}, rung="sm90_one_tile_s4")
    body += """
  sample_arguments arguments = sample_defaults();
  sample_buffers buffers = {at(0x10000), at(0x20000), at(0x40000)};
  say(sample_run(launcher, &arguments, &buffers, nullptr, nullptr, 0, nullptr));
  say(sample_run(launcher, &arguments, &buffers, nullptr, at(0x70001), 1u << 30, nullptr));
  size_t bytes = 0;
  say(sample_workspace_bytes(launcher, &arguments, &buffers, nullptr, &bytes));
  std::printf("bytes %zu\\n", bytes);
  buffers.D = nullptr;
  say(sample_run(launcher, &arguments, &buffers, nullptr, at(0x70000), 1u << 30, nullptr));
  buffers.D = at(0x40001);
  say(sample_run(launcher, &arguments, &buffers, nullptr, at(0x70000), 1u << 30, nullptr));
  buffers.D = at(0x40000);
  say(sample_run(launcher, nullptr, &buffers, nullptr, nullptr, 0, nullptr));
  say(sample_run(launcher, &arguments, &buffers, nullptr, nullptr, 0, nullptr));
  const sample_options negative = {-1, nullptr};
  say(sample_run(launcher, &arguments, &buffers, &negative, nullptr, 0, nullptr));
  fake.launch_result = CUDA_ERROR_INVALID_VALUE;
  say(sample_run(launcher, &arguments, &buffers, nullptr, at(0x70000), 1u << 30, nullptr));
  std::printf("%s %s\\n", sample_status_name(SAMPLE_NO_RUNG), sample_rung(99) == nullptr ? "none" : "some");
"""
    printed = [line for line in program.run(body) if not line.startswith(("map", "launch", "memset"))]
    wanted = [
        "status 2 no CUDA context is current",
        "status 3 images/portable_one_tile.sm_90.cubin is not there",
        "status 0",
        "status 1 m is -1, at least 0 is needed",
        "status 1 lda is 0, at least 1 is needed",
        "status 1 sm90_one_tile_s4: an extent or a stride is too large",
        "status 1 there is no rung fastest",
        "status 5 the rung sm90_one_tile_s4 does not run",
        "status 6 sm90_one_tile_s4 needs 960000 bytes of workspace, 0 are given",
        "status 1 the workspace is not aligned to 256 bytes",
        "status 0",
        "bytes 960000",
        "status 1 buffer D is null",
        "status 1 buffer D is not aligned to its elements of 2 bytes",
        "status 1 launcher, arguments or buffers is null",
        "status 6",
        "status 1 sm_budget is -1",
        "status 8 cuLaunchKernelEx (sm90_one_tile_s4_main): CUDA_ERROR_INVALID_VALUE",
        "no rung none",
    ]
    assert len(printed) == len(wanted), printed
    for line, start in zip(printed, wanted, strict=True):
        assert line.startswith(start), (line, start)


def test_threads_share_one_launcher_for_each_context(make: Make, tmp_path: Path) -> None:
    program = Program(tmp_path, render_bundle(*make()))
    body = """
  std::vector<sample_launcher*> found(16, nullptr);
  std::vector<std::thread> threads;
  for (auto& each : found) threads.emplace_back([&each] { (void)sample_get("images", &each); });
  for (auto& each : threads) each.join();
  bool same = true;
  for (const auto* each : found) same = same && each == found[0] && each != nullptr;
  std::printf("%s %d\\n", same ? "one" : "several", fake.loads);
  fake.context = 2;
  sample_launcher* other = nullptr;
  say(sample_get("images", &other));
  std::printf("%s\\n", other == found[0] ? "same" : "other");
"""
    kernels = len(program.launch.kernels)
    assert program.run(body) == [f"one {kernels}", "status 0 ", "other"]
