"""Cluster Launch Control that hangs on one machine, from the kernel to what runs there afterwards.

The kernel is the project's own, with a fault seeded into its source; its PTX runs in the emulator, which finds the
deadlock by itself. `accept` ends the process and writes runtime.json; the C++ launcher and the Python binding of that
very folder, on drivers that only record, then take the static rung. The twin without the fault leaves nothing off.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.accept import Accepted, accept_bundle
from advisor.bundle import RenderedBundle, manifest_text, read_bundle, units, write_build
from advisor.codegen.render import render_bundle
from advisor.kinds import workload
from advisor.machine import load_profile
from advisor.planner import plan
from advisor.problem import parse_problem
from advisor.toolchain import Unit, compile_many
from tests.accept.conftest import BACKENDS, build, target
from tests.codegen import test_binding as binding
from tests.codegen import test_launcher as launcher

pytestmark = pytest.mark.slow

PROBLEM = """\
kind: gemm
name: sample
m: 512
n: 512
k: 128
target: b200
overrides: {schedule: clc, cluster: [2, 1, 1], tile: [128, 128, 64]}
"""
CLC, STATIC = "sm100_clc_2x1x1", "sm100_static_2x1x1"
READERS = "ptx::mbarrier_init(smem + Smem::kClcEmpty + 8 * each, kResponseReaders);"
TOO_MANY = "ptx::mbarrier_init(smem + Smem::kClcEmpty + 8 * each, kResponseReaders + 1);"


def rendered(*, fault: bool) -> RenderedBundle:
    """With the fault, a slot for responses is given back by one reader more than there are: the first requests are
    answered, and whoever asks again for the first slot waits for ever. Work of one wave comes out right."""
    problem = parse_problem(PROBLEM, "problem.yaml")
    work, own = workload(problem), load_profile("b200")
    profiles: Any = {"sm100": own, "sm90": load_profile("h200"), "portable": own}
    made = render_bundle(plan(work, own, target_name="b200", target_source="profile", rung_profiles=profiles), work)
    files = dict(made.files)
    assert files["kernel_sm100.cu"].count(READERS) == 1
    if fault:
        files["kernel_sm100.cu"] = files["kernel_sm100.cu"].replace(READERS, TOO_MANY)
        files["manifest.json"] = manifest_text(made.name, files)
    return RenderedBundle(made.name, files, made.launch, made.plan)


@pytest.fixture
def accepted(tmp_path: Path) -> Callable[[bool], tuple[launcher.Program, Accepted]]:
    """The bundle with its launcher, built; and what an acceptance of it on that GPU says."""

    def run(fault: bool) -> tuple[launcher.Program, Accepted]:
        program = launcher.Program(tmp_path, rendered(fault=fault))
        bundle = read_bundle(program.bundle)
        rows = units(bundle)
        images = {(row.kernel_id, row.target): image for row, image in zip(rows, build(rows), strict=True)}
        unit = next(row for row in rows if (row.kernel_id, row.target) == (CLC, "sm_100a"))
        (real,) = compile_many([Unit(unit.name, unit.source, unit.headers, unit.target, unit.defines, unit.flags)])
        digest = hashlib.sha256(real.ptx.encode()).hexdigest()
        images[CLC, "sm_100a"] = replace(images[CLC, "sm_100a"], ptx=real.ptx, ptx_sha256=digest)
        write_build(bundle, images)
        found = accept_bundle(
            bundle.folder,
            target=target("b200"),
            build=build,
            backend=f"{BACKENDS}:ClcInTheEmulator",
            output=tmp_path / "results",
            timeout_s=1.0,
            cases=("own_shape", "clusters_fewer"),
            steps="clc_many_waves",
        )
        return program, found

    return run


def steps(accepted: Accepted) -> dict[str, str]:
    return {each.name: each.verdict for each in accepted.acceptance.steps if each.name.startswith("clc")}


def launched(program: launcher.Program) -> list[str]:
    """What the C++ launcher says of the built bundle: the status of each call, the rung, and the description."""
    body = launcher.B200 + launcher._pick_and_describe().replace("open()", 'open_folder("sample/build")')
    return program.run(body, declarations=OPEN_FOLDER)


OPEN_FOLDER = """
inline sample_launcher* open_folder(const char* folder) {
  sample_launcher* launcher = nullptr;
  say(sample_get(folder, &launcher));
  return launcher;
}
"""


def bound(program: launcher.Program) -> tuple[str, dict[str, Any]]:
    """What the Python binding of the bundle launches, and what it says of it."""
    driver = binding.FakeDriver(attributes=binding.B200)
    with binding._imported(program.bundle / "sample.py") as module:
        module._driver = lambda: driver  # type: ignore[attr-defined]
        operands = binding._abd(512, 512, 128)
        module.run(*operands)
        return driver.launched[0].function, module.describe(*operands)


def test_a_kernel_that_hangs_is_off_for_every_reader_of_that_folder(accepted: Any) -> None:
    program, found = accepted(True)
    assert steps(found) == {"clc_one_wave": "pass", "clc_many_waves": "fail"}
    reason = found.acceptance.switched_off
    assert reason.startswith(f"clc_many_waves, {CLC}, own_shape: no answer within 1 s while in 'own_shape: launch'")
    assert found.runtime == program.bundle / "runtime.json"
    lines = launched(program)
    assert lines[1:3] == ["status 0 ", f"rung {STATIC}"]
    assert f"not {CLC}: switched off in runtime.json: {reason}" in lines[3]
    function, described = bound(program)
    assert function.startswith(STATIC)
    assert (described["rung"], described["not_run"]) == (STATIC, {CLC: f"switched off in runtime.json: {reason}"})


def test_the_same_kernel_without_the_fault_stays_on(accepted: Any) -> None:
    program, found = accepted(False)
    assert steps(found) == {"clc_one_wave": "pass", "clc_many_waves": "pass"}
    assert found.runtime is None
    assert launched(program)[2] == f"rung {CLC}"
    assert bound(program)[0].startswith(CLC)
