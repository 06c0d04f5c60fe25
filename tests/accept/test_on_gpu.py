"""An acceptance on a real GPU: every step that applies passes, and a kernel with a seeded hang is survived.

Never part of CI: `python -m pytest -m gpu tests/accept`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.accept import Accepted, accept_bundle
from advisor.bundle import RenderedBundle, manifest_text, read_bundle, write_build, write_bundle
from advisor.codegen.render import render_bundle
from advisor.records.acceptance import AcceptedStep
from advisor.runtime import open_device
from advisor.workflow import build, generate, plan_file

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ARRIVALS = "ptx::mbarrier_init(smem + Smem::kEmpty + 8 * stage, kEmptyArrivals);"
TOO_MANY = "ptx::mbarrier_init(smem + Smem::kEmpty + 8 * stage, kEmptyArrivals + (kClusterX > 1));"
SMALL = (
    "kind: gemm\nname: hangs\nm: 512\nn: 512\nk: 512\noverrides: {kernel: sm90, schedule: static, cluster: [2, 1, 1]}\n"
)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


def with_a_hang(rendered: RenderedBundle) -> RenderedBundle:
    """A stage of the cluster kernels is given back by one arrival more than there are: the pipeline stops where it
    wraps for the first time. Shallow products still come out right."""
    files = dict(rendered.files)
    assert files["kernel_sm90.cu"].count(ARRIVALS) == 1
    files["kernel_sm90.cu"] = files["kernel_sm90.cu"].replace(ARRIVALS, TOO_MANY)
    files["manifest.json"] = manifest_text(rendered.name, files)
    return RenderedBundle(rendered.name, files, rendered.launch, rendered.plan)


def hanging_bundle(folder: Path) -> Path:
    """On disk and built. Its other schedules are rendered from the plan and have no fault."""
    problem = folder / "hangs.yaml"
    problem.write_text(SMALL)
    planned = plan_file(problem, target="h200")
    rendered = with_a_hang(render_bundle(planned.plan, planned.workload))
    bundle = read_bundle(write_bundle(folder / rendered.name, rendered))
    write_build(bundle, build(bundle))
    return bundle.folder


def step(accepted: Accepted, name: str) -> AcceptedStep:
    return next(each for each in accepted.acceptance.steps if each.name == name)


@pytest.mark.parametrize("name", ["gemm", "is_pair_worth_it"])
def test_every_step_that_applies_passes(name: str, tmp_path: Path) -> None:
    generated = generate(EXAMPLES / f"{name}.yaml", output=tmp_path)
    assert generated.bundle is not None
    accepted = accept_bundle(generated.bundle.folder, output=tmp_path)
    with open_device(0) as device:
        major = device.info.compute_capability[0]
    wanted = {each.name: "pass" for each in accepted.acceptance.steps}
    if major < 10:
        wanted |= dict.fromkeys(("clc_one_wave", "clc_many_waves"), "not_applicable")
    assert {
        each.name: (each.verdict, each.reason) for each in accepted.acceptance.steps if each.verdict == "fail"
    } == {}
    assert {each.name: each.verdict for each in accepted.acceptance.steps} == wanted
    families = {k.kernel_id.split("_")[0] for k in accepted.acceptance.kernels if k.in_bundle and k.result == "pass"}
    assert families == ({"sm90", "portable"} if major == 9 else {"sm100", "portable"})


def test_a_kernel_with_a_seeded_hang_is_survived(tmp_path: Path) -> None:
    folder = hanging_bundle(tmp_path)
    accepted = accept_bundle(folder, output=tmp_path, timeout_s=5.0, steps="pairs,graphs")
    hung = [run for run in step(accepted, "pairs").runs if run.verdict != "correct"]
    assert [(run.run, run.verdict) for run in hung] == [("sm90_static_2x1x1", "deadlock")]
    assert "no answer within 5 s" in hung[0].detail
    assert step(accepted, "graphs").verdict == "pass"
    assert "sm90_static_2x1x1" in step(accepted, "graphs").facts["left_out"]
    results = {k.kernel_id: k.result for k in accepted.acceptance.kernels if k.result != "not_run"}
    assert results["sm90_static_2x1x1"] == "fail"
    assert {result for kernel, result in results.items() if kernel != "sm90_static_2x1x1"} == {"pass"}
    with open_device(0) as device:  # the GPU still answers
        device.synchronize()
