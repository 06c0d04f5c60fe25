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
from advisor.kinds import workload as make_workload
from advisor.kinds.workload import Workload
from advisor.machine import load_profile
from advisor.planner import plan
from advisor.problem import parse_problem
from advisor.records.launch import Launch, ScalarParam
from advisor.records.plan import Plan

Make = Callable[..., tuple[Plan, Workload]]

pytestmark = pytest.mark.slow

FAKE = Path(__file__).parent / "fake_cuda"
STRICT = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
SCALARS = {"f32": "<f", "u32": "<I", "i64": "<q"}
ADDRESSES = {"A": 0x10000, "B": 0x20000, "C": 0x30000, "D": 0x40000, "bias": 0x50000, "scale_a": 0x60000}
ADDRESSES |= {"X": 0x80000, "Y": 0x90000, "weight": 0xA0000}
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
    "wide units": (
        [{"family": "sm100"}],
        {"dtype": "tf32", "a": {"major": "m", "ld": 304}, "b": {"major": "n", "ld": 200}},
    ),
    "two sizes": ([{"family": "sm100", "schedule": "static", "preferred_cluster": (4, 2, 1)}], {}),
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

    def run(self, body: str, declarations: str = "") -> list[str]:
        sizes = "".join(
            f'  fake.parameter_bytes["{kernel.id}.{target}.cubin"] = {{{", ".join(map(str, _sizes(kernel)))}}};\n'
            for kernel in self.launch.kernels
            for target in kernel.images
        )
        source = self.folder / "main.cpp"
        source.write_text(_MAIN.format(sizes=sizes, body=body, declarations=declarations))
        objects = [str(self.folder / name) for name in ("sample.o", "driver.o")]
        self._compile([str(source), *objects, "-o", str(self.folder / "main"), "-pthread"])
        main = [self.folder / "main"]
        done = subprocess.run(main, cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()


def _sizes(kernel: Any) -> list[int]:
    sizes = {"tensormap": 128, "ptr": 8, "scratch": 8, "u32": 4, "f32": 4, "i64": 8}
    return [sizes[param.kind] for param in kernel.params]


_MAIN = """\
#include "driver.h"
#include "sample.h"

#include <cstdio>
#include <string>
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
{declarations}
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
        kernel = launch.kernel(kernel_id)
        target = portable if kernel.family == "portable" else next(iter(kernel.images))
        lines += [
            f"map {ADDRESSES[param.buffer]:x} "
            + " ".join(str(value) for value in (*param.global_dim, *param.global_stride_bytes, *param.box_dim))
            for param in each.params
            if param.kind == "tensormap"
        ]
        numbers = (*each.grid_blocks, *each.block, *each.cluster, each.dynamic_smem_bytes)
        text = f"launch {kernel_id}.{target}.cubin {' '.join(str(value) for value in numbers)} 7 "
        preferred = each.attributes.preferred_cluster
        end = f" preferred {' '.join(map(str, preferred))}" if preferred else ""
        lines.append(text + " ".join(_bytes(param, offsets).hex() for param in each.params) + end)
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


OPEN = "  sample_launcher* launcher = open();\n"
# Of a row reduction: capacities, strides and the greatest extents, each with its neighbour.
ROWS: list[dict[str, int]] = [
    {},
    {"rows": 0},
    {"cols": 0},
    {"rows": 1, "cols": 1},
    {"cols": 131072},
    {"cols": 131073, "row_stride": 131080, "out_stride": 131080},
    {"cols": 1001, "row_stride": 1001, "out_stride": 1001},
    {"rows": 1, "cols": 1001, "row_stride": 1001, "out_stride": 1001},
    {"cols": 1001, "row_stride": 1008, "out_stride": 1001},
    {"rows": 2**31 - 1, "cols": 8, "row_stride": 8, "out_stride": 8},
    {"cols": 2**28, "row_stride": 2**40, "out_stride": 2**28},
]


def _row_program(folder: Path) -> Program:
    lines = "kind: row_reduce\nname: sample\nop: rmsnorm\nrows: 2048\ncols: 131072\nweight: true\n"
    work = make_workload(parse_problem(lines, "sample.yaml"))
    h200 = load_profile("h200")
    profiles = {"sm90": h200, "portable": h200}
    found = plan(work, h200, target_name="h200", target_source="profile", rung_profiles=profiles)  # type: ignore[arg-type]
    return Program(folder, render_bundle(found, work))


@pytest.mark.parametrize("budget", [0, 1, 40])
def test_every_reader_of_the_launch_file_launches_a_row_reduction_the_same(tmp_path: Path, budget: int) -> None:
    program = _row_program(tmp_path)
    launch = program.launch
    facts = _facts(launch, sm_budget=budget or 132)
    body, wanted, rungs = OPEN, ["status 0 "], set()
    for arguments in ROWS:
        body += _call(launch, arguments, sm_budget=budget)
        wanted += _expected(launch, arguments, facts)
        rungs.add(pick_rung(launch, arguments, facts))
    assert len(rungs) == (2 if budget else 3)  # the single CTA to a row fills every SM
    assert program.run(body) == wanted
    over = [{"cols": 2**28 + 1}, {"rows": 2**31}, {"rows": -1}, {"row_stride": 0}]
    said = program.run(OPEN + "".join(_call(launch, each) for each in over))
    assert said[1:] == [
        "status 1 cols is 268435457, at most 268435456 is taken",
        "status 1 rows is 2147483648, at most 2147483647 is taken",
        "status 1 rows is -1, at least 0 is needed",
        "status 1 row_stride is 0, at least 1 is needed",
    ]


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


def test_a_mix_of_two_cluster_sizes_is_a_rung_above_the_smaller_alone(make: Make, tmp_path: Path) -> None:
    mixed = {"family": "sm100", "schedule": "static", "preferred_cluster": (4, 1, 1)}
    launch = render_bundle(*make([mixed])).launch
    ids = [kernel.id for kernel in launch.kernels]
    assert ids[:3] == ["sm100_static_2x1x1_or_4x1x1", "sm100_static_2x1x1", "sm100_one_tile"]
    assert [kernel.attributes.preferred_cluster for kernel in launch.kernels[:3]] == [(4, 1, 1), None, None]
    assert pick_rung(launch, {}, _facts(launch)) == ids[0]
    assert pick_rung(launch, {}, _facts(launch, loadable=frozenset(ids[1:]))) == ids[1]
    grid = resolve(launch, ids[0], {"m": 8192, "n": 8192, "ldd": 8192}, _facts(launch)).grid_blocks
    assert grid == (132, 1, 1)  # 66 clusters of 2, as whole units of 4


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
    body += _call(launch, {"m": 2**31})
    body += _call(launch, {"m": 2**31 - 1, "n": 2**31 - 1, "batch": 9})
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
        "status 1 m is 2147483648, at most 2147483647 is taken",
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


@pytest.fixture(scope="module")
def programs(make: Make, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    """Programs by the name of a problem, each built once."""
    built: dict[str, Program] = {}
    problems: dict[str, list[dict[str, Any]]] = {
        "ticket": [{"schedule": "ticket", "cluster": (2, 1, 1)}],
        "nonportable": [{"cluster": (4, 4, 1), "schedule": "static"}],
        "clc": [{"family": "sm100", "cluster": (2, 1, 1)}, {}],
    }

    def get(name: str) -> Program:
        if name not in built:
            built[name] = Program(tmp_path_factory.mktemp(name), render_bundle(*make(problems[name])))
        return built[name]

    return get


# --- every call's status ---------------------------------------------------------------------------------------------


def _open_with(fails: dict[str, str], device: str = "") -> str:
    """C++ that makes a launcher on a driver whose calls fail so, runs the defaults, and says what came of it."""
    rows = ", ".join(f'{{"{call}", {result}}}' for call, result in fails.items())
    return f"""
  {{
    fake = FakeDevice{{}};
    {device}
    fake.fails = {{{rows}}};
    sample_launcher* launcher = nullptr;
    const sample_status made = sample_create("images", &launcher);
    if (made == SAMPLE_OK) {{
      sample_arguments arguments = sample_defaults();
      sample_buffers buffers = {{at(0x10000), at(0x20000), at(0x40000)}};
      say(sample_run(launcher, &arguments, &buffers, nullptr, at(0x70000), 1u << 30, nullptr));
      sample_destroy(launcher);
    }} else {{
      say(made);
    }}
    std::printf("loaded %d\\n", fake.loads);
  }}
"""


@pytest.mark.parametrize(
    ("call", "device"),
    [
        ("cuDeviceGetAttribute", ""),
        ("cuLibraryLoadFromFile", ""),
        ("cuLibraryGetKernel", ""),
        ("cuKernelGetFunction", ""),
        ("cuFuncSetAttribute smem", ""),
        ("cuFuncSetAttribute carveout", ""),
        ("cuFuncSetAttribute nonportable", ""),
        ("cuOccupancyMaxActiveClusters", ""),
        ("cuOccupancyMaxActiveBlocksPerMultiprocessor", "fake.major = 8;"),
        ("cuTensorMapEncodeTiled", ""),
        ("cuMemsetD8Async", ""),
    ],
)
def test_a_call_that_fails_is_a_status_and_never_a_lower_rung(
    programs: Callable[[str], Program], call: str, device: str
) -> None:
    problem = "nonportable" if "nonportable" in call else "ticket"
    lines = programs(problem).run(_open_with({call: "CUDA_ERROR_OUT_OF_MEMORY"}, device))
    printed = [line for line in lines if not line.startswith(("map", "memset"))]
    assert len(printed) == 2, printed
    assert printed[0].startswith(f"status 8 {call.split()[0]}"), printed
    assert printed[0].endswith("CUDA_ERROR_OUT_OF_MEMORY")
    assert printed[1] == "loaded 0"  # nothing that was loaded before is left behind


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("cuFuncSetAttribute smem", "CUDA_ERROR_INVALID_VALUE"),
        ("cuOccupancyMaxActiveClusters", "CUDA_ERROR_INVALID_CLUSTER_SIZE"),
        ("cuLibraryLoadFromFile", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ("cuLibraryLoadFromFile", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
        ("cuLibraryLoadFromFile", "CUDA_ERROR_INVALID_IMAGE"),
    ],
)
def test_what_the_device_cannot_hold_or_load_is_an_answer(
    programs: Callable[[str], Program], call: str, result: str
) -> None:
    """Every kernel gets it. The last rung has no condition: it is launched all the same where an image of it loads."""
    printed = programs("ticket").run(_open_with({call: result}))
    if call == "cuLibraryLoadFromFile":
        assert printed == ["status 4 no image of portable_one_tile loads on this device", "loaded 0"]
    else:
        assert printed[0].startswith("launch portable_one_tile.sm_90.cubin")
        assert printed[1:] == ["status 0 ", "loaded 0"]


def test_the_attributes_are_set_before_residency_is_asked_for(programs: Callable[[str], Program]) -> None:
    program = programs("nonportable")
    body = '  (void)open();\n  for (const auto& each : fake.trace) std::printf("%s\\n", each.c_str());\n'
    trace = [line for line in program.run(body) if line.startswith("cu")]
    first = trace[trace.index("cuKernelGetFunction") + 1 : trace.index("cuOccupancyMaxActiveClusters") + 1]
    assert first == [
        "cuFuncSetAttribute smem",
        "cuFuncSetAttribute carveout",
        "cuFuncSetAttribute nonportable",
        "cuOccupancyMaxActiveClusters",
    ]


def test_a_device_without_clusters_counts_blocks_and_has_no_room_for_a_cluster(
    programs: Callable[[str], Program],
) -> None:
    """A cubin for 9.0 does not load there; what matters is that the query for blocks answers for the portable one."""
    body = """
  fake.major = 8;
  sample_launcher* launcher = open();
  int clusters = -1;
  say(sample_residency(launcher, "portable_one_tile", &clusters));
  std::printf("residency %d\\n", clusters);
  say(sample_residency(launcher, "no_such_kernel", &clusters));
"""
    printed = programs("ticket").run(body)
    assert printed[1:3] == ["status 0 ", "residency 264"]
    assert printed[3].startswith("status 1 there is no kernel no_such_kernel")


def test_grids_beyond_the_limits_are_refused_and_offsets_have_64_bits(make: Make, tmp_path: Path) -> None:
    """The clusters lie along x, the long axis: y and z hold what is fixed. The sizes of operands exceed 32 bits."""
    program = Program(tmp_path, render_bundle(*make([{}])))
    many = {"m": 2**31 - 128, "n": 2**31 - 128, "batch": 1, "lda": 2**20, "ldb": 2**20, "ldd": 2**32}
    large = {"m": 2**20, "n": 2**12, "k": 2**13, "lda": 2**13, "ldb": 2**13, "ldd": 2**12, "batch": 1}
    body = "  sample_launcher* launcher = open();\n" + _call(program.launch, many) + _call(program.launch, large)
    printed = program.run(body)
    assert printed[1].startswith("status 1 "), printed
    assert "blocks along x cannot be launched" in printed[1]
    assert printed[-1] == "status 0 "
    maps = [line.split() for line in printed if line.startswith("map")]
    assert maps[0][2:5] == ["8192", "1048576", "1"]
    assert int(maps[0][5]) * int(maps[0][3]) > 2**33  # bytes of A


def test_a_kernel_that_may_overlap_the_one_before_it_says_so_at_launch(make: Make, tmp_path: Path) -> None:
    for pdl in (False, True):
        folder = tmp_path / str(pdl)
        folder.mkdir()
        program = Program(folder, render_bundle(*make([{}], launch={"pdl": pdl})))
        body = "  sample_launcher* launcher = open();\n" + _call(program.launch, {})
        body += '  for (const auto& each : fake.trace) std::printf("%s\\n", each.c_str());\n'
        assert program.run(body).count("overlap") == (1 if pdl else 0)


def test_nothing_that_is_null_or_too_long_is_followed(programs: Callable[[str], Program]) -> None:
    body = """
  sample_launcher* launcher = nullptr;
  const std::string folder(5000, 'x');
  say(sample_create(folder.c_str(), &launcher));
  say(sample_create(nullptr, &launcher));
  say(sample_create("images", nullptr));
  say(sample_get("images", nullptr));
  sample_destroy(nullptr);
  launcher = open();
  sample_arguments arguments = sample_defaults();
  sample_buffers buffers = {at(0x10000), at(0x20000), at(0x40000)};
  char text[8];
  const char* rung = nullptr;
  say(sample_pick(nullptr, &arguments, &buffers, nullptr, &rung));
  say(sample_pick(launcher, &arguments, &buffers, nullptr, nullptr));
  say(sample_pick(launcher, &arguments, nullptr, nullptr, &rung));
  say(sample_describe(launcher, &arguments, &buffers, nullptr, nullptr, 8));
  say(sample_describe(launcher, &arguments, &buffers, nullptr, text, 0));
  say(sample_workspace_bytes(launcher, &arguments, &buffers, nullptr, nullptr));
  say(sample_residency(launcher, "portable_one_tile", nullptr));
  say(sample_prepare_workspace(launcher, &arguments, &buffers, nullptr, nullptr, 0, nullptr));
  std::printf("%s %s\\n", sample_status_name(static_cast<sample_status>(15)), sample_rung(0));
"""
    _runtime_file(programs("clc"), None)
    printed = [line for line in programs("clc").run(body) if not line.startswith("memset")]
    wanted = [
        "status 1 the folder of images has a name that is too long",
        "status 1 image_folder or launcher is null",
        "status 1 image_folder or launcher is null",
        "status 1 launcher is null",
        "status 0 ",
        "status 1 launcher, arguments or buffers is null",
        "status 1 rung is null",
        "status 1 launcher, arguments or buffers is null",
        "status 1 text is null or has no bytes",
        "status 1 text is null or has no bytes",
        "status 1 bytes is null",
        "status 1 launcher, kernel or max_active_clusters is null",
        "status 0 ",
        "unknown sm100_clc_2x1x1",
    ]
    assert printed == wanted


# --- runtime.json ----------------------------------------------------------------------------------------------------


OFF = '{"schema_version": 1, "clc": "off", "reason": "clc_many_waves: no answer within 20 s"}\n'
B200 = "  fake.major = 10;\n"


def _pick_and_describe(name: str = "nullptr") -> str:
    return f"""
  {{
    sample_launcher* launcher = open();
    if (launcher != nullptr) {{
      sample_arguments arguments = sample_defaults();
      sample_buffers buffers = {{at(0x10000), at(0x20000), at(0x40000)}};
      const sample_options options = {{0, {name}}};
      const char* rung = "none";
      say(sample_pick(launcher, &arguments, &buffers, &options, &rung));
      std::printf("rung %s\\n", rung);
      char text[2048] = "";
      (void)sample_describe(launcher, &arguments, &buffers, &options, text, sizeof text);
      std::printf("%s\\n", text);
      char cut[12] = "";
      (void)sample_describe(launcher, &arguments, &buffers, &options, cut, sizeof cut);
      std::printf("cut %s\\n", cut);
    }}
  }}
"""


def _runtime_file(program: Program, text: str | None) -> None:
    """The file beside the folder of images, which is `images` below the current folder."""
    (program.folder / "images").mkdir(exist_ok=True)
    path = program.folder / "runtime.json"
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)


@pytest.mark.parametrize(
    "text", [None, '{"schema_version": 1, "clc": "on"}', '{"clc":"on","schema_version":1,"reason":""}']
)
def test_nothing_is_off_without_the_file_or_where_it_says_on(
    programs: Callable[[str], Program], text: str | None
) -> None:
    program = programs("clc")
    _runtime_file(program, text)
    printed = program.run(B200 + _pick_and_describe())
    assert printed[:3] == ["status 0 ", "status 0 ", "rung sm100_clc_2x1x1"]


def test_clc_that_is_off_is_no_rung_and_every_reader_says_so(programs: Callable[[str], Program]) -> None:
    program = programs("clc")
    _runtime_file(program, OFF)
    printed = program.run(B200 + _pick_and_describe() + _pick_and_describe('"sm100_clc_2x1x1"'))
    assert printed[2] == "rung sm100_static_2x1x1"
    assert printed[3] == (
        "sm100_static_2x1x1: sm100_static_2x1x1 (static, clusters of 2 x 1 x 1, 256 threads, image "
        "sm100_static_2x1x1.sm_100a.cubin, 66 clusters resident at once) on 132 SMs of compute capability 10.0; "
        "not sm100_clc_2x1x1: switched off in runtime.json: clc_many_waves: no answer within 20 s"
    )
    assert printed[4] == "cut sm100_stati"
    forced = "the rung sm100_clc_2x1x1 is switched off in runtime.json: clc_many_waves: no answer within 20 s"
    assert printed[6] == f"status 5 {forced}"
    facts = _facts(program.launch, clc=False, alignments=dict.fromkeys("ABD", 256))
    assert pick_rung(program.launch, {}, facts) == "sm100_static_2x1x1"


def test_the_description_says_why_each_better_rung_does_not_run(programs: Callable[[str], Program]) -> None:
    program = programs("clc")
    _runtime_file(program, None)
    refused = '  fake.refused = {"sm100_clc_2x1x1.sm_100a.cubin"};\n'
    empty = '  fake.residency = {{"sm100_static_2x1x1.sm_100a.cubin", 0}};\n'
    text = program.run(B200 + refused + empty + _pick_and_describe())[3]
    assert "not sm100_clc_2x1x1: the driver does not load sm100_clc_2x1x1.sm_100a.cubin" in text
    assert "not sm100_static_2x1x1: no cluster is resident" in text
    assert "not sm100_clc_2x1x1: no image for compute capability 9.0" in program.run(_pick_and_describe())[3]


MALFORMED = {
    "": "it is not a JSON object",
    "[]": "it is not a JSON object",
    "{}": "schema_version or clc is missing",
    '{"schema_version": 1}': "schema_version or clc is missing",
    '{"clc": "off"}': "schema_version or clc is missing",
    '{"schema_version": 2, "clc": "off"}': "schema_version is not 1",
    '{"schema_version": 1.0, "clc": "off"}': "schema_version is not 1",
    '{"schema_version": 11, "clc": "off"}': "schema_version is not 1",
    '{"schema_version": "1", "clc": "off"}': "schema_version is not 1",
    '{"schema_version": true, "clc": "off"}': "schema_version is not 1",
    '{"schema_version": 1, "clc": "no"}': "clc is neither on nor off",
    '{"schema_version": 1, "clc": false}': "clc is no text",
    '{"schema_version": 1, "clc": "off", "clc": "on"}': "given twice",
    '{"schema_version": 1, "clc": "off", "pairs": "off"}': "it has a key beside",
    '{"schema_version": 1, "clc": "off", "reason": 1}': "reason is no text",
    '{"schema_version": 1, "clc": "off",}': "a key is missing",
    '{"schema_version": 1 "clc": "off"}': "a comma or the closing brace",
    '{"schema_version": 1, "clc": "off"} {}': "something stands behind",
    '{"schema_version": 1, "clc": "off"': "a comma or the closing brace",
    '{"schema_version": 1, "clc": "of': "clc is no text",
    '{"schema_version": 1, "clc": "off", "reason": "a\nb"}': "reason is no text",
    '{"schema_version": 1, "clc": "off", "reason": "\\q"}': "reason is no text",
    " " * 70000: "it is too long",
}


def test_a_file_that_says_something_else_is_a_status_of_its_own(programs: Callable[[str], Program]) -> None:
    program = programs("clc")
    (program.folder / "images").mkdir(exist_ok=True)
    body = ""
    for number, text in enumerate(MALFORMED):
        folder = program.folder / f"bad{number}" / "images"
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / "runtime.json").write_text(text)
        body += f'  {{ sample_launcher* made = nullptr; say(sample_create("bad{number}/images", &made)); }}\n'
    folder = program.folder / "folder" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "runtime.json").mkdir(exist_ok=True)
    body += '  { sample_launcher* made = nullptr; say(sample_create("folder/images", &made)); }\n'
    body += '  std::printf("%s\\n", sample_status_name(SAMPLE_BAD_RUNTIME_FILE));\n'
    printed = program.run(B200 + body)
    for line, (text, why) in zip(printed, [*MALFORMED.items(), ("a folder", "cannot be read")], strict=False):
        assert line.startswith("status 9 "), (text, line)
        assert "runtime.json" in line
        assert why in line, (text, line)
    assert printed[-1] == "bad runtime file"


def test_a_reason_is_read_with_its_escapes_and_cut_where_it_is_long(programs: Callable[[str], Program]) -> None:
    program = programs("clc")
    reason = '\\"q\\" \\u0041 \\u00e9 \\/ ' + "x" * 400
    _runtime_file(program, f'{{"schema_version": 1, "clc": "off", "reason": "{reason}"}}')
    text = program.run(B200 + _pick_and_describe())[3]
    assert '"q" A ? / xxx' in text
    assert text.endswith("x")
    assert len(text) < 600
