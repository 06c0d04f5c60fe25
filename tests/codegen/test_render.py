"""A plan rendered to a bundle: complete, the same bytes each time, and safe against hostile text."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from advisor.bundle import Facts, pick_rung, resolve, store, units
from advisor.codegen import bundle_runs, render_bundle, render_variants, templates
from advisor.codegen.render import check_launch, problem_yaml
from advisor.errors import AdvisorError, RefusedError, ToolError
from advisor.kinds import workload
from advisor.kinds.gemm import sm100
from advisor.kinds.gemm.work import GemmWork
from advisor.kinds.workload import Workload
from advisor.machine import load_profile
from advisor.problem import parse_problem
from advisor.records.candidate import Candidate
from advisor.records.launch import KernelSpec, Launch
from advisor.records.plan import Plan
from tests.codegen.conftest import make_plan, problem, sm90_candidate

Make = Callable[..., tuple[Plan, Workload]]


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


def test_a_bundle_is_complete(make: Make) -> None:
    rendered = render_bundle(*make([{"schedule": "ticket", "cluster": (2, 1, 1)}]))
    assert {
        "README.md",
        "kernel_portable.cu",
        "kernel_sm90.cu",
        "launch.json",
        "launcher/arithmetic.h",
        "launcher/driver.h",
        "launcher/runtime_file.h",
        "manifest.json",
        "plan.json",
        "problem.yaml",
        "sample.cpp",
        "sample.h",
        "sample.py",
        "test/CMakeLists.txt",
        "test/sample_test.cpp",
    } == {path for path in rendered.files if not path.startswith("include/")}
    assert rendered.files["manifest.json"] == store.manifest_text("sample", rendered.files)
    assert Launch.model_validate_json(rendered.files["launch.json"]) == rendered.launch
    for path, text in rendered.files.items():
        assert text.endswith("\n"), path
        assert "\t" not in text, path
        assert not re.search(r"[ \t]\n", text), path


def test_the_same_plan_renders_the_same_bytes_in_another_process(make: Make) -> None:
    program = (
        "import importlib.util, hashlib, sys\n"
        "spec = importlib.util.spec_from_file_location('c', sys.argv[1])\n"
        "c = importlib.util.module_from_spec(spec); spec.loader.exec_module(c)\n"
        "from advisor.codegen import render_bundle\n"
        "from advisor.kinds import workload\n"
        "p = c.problem()\n"
        "plan = c.make_plan(p, [c.sm90_candidate(p, schedule='ticket', cluster=(2, 1, 1))])\n"
        "print(hashlib.sha256(repr(render_bundle(plan, workload(p)).files).encode()).hexdigest())\n"
    )
    conftest = os.path.join(os.path.dirname(__file__), "conftest.py")
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program, conftest],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    assert len(hashes) == 1


def test_nothing_of_this_machine_is_rendered(make: Make) -> None:
    rendered = render_bundle(*make())
    for path, text in rendered.files.items():
        assert os.getcwd() not in text, path
        assert "/home/" not in text, path
        assert "/tmp/" not in text, path
        assert not re.search(r"\b20[2-9][0-9]-[01][0-9]-[0-3][0-9]\b", text), path


def test_every_line_fits_a_screen(make: Make) -> None:
    rendered = render_bundle(*make([{"split_k": 4}], epilogue={"beta": 2.0, "bias": "row", "activation": "gelu"}))
    for path, text in rendered.files.items():
        if path.endswith((".h", ".cpp", ".py")):
            assert max(len(line) for line in text.splitlines()) <= 120, path


# --- which kernels, and when ---------------------------------------------------------------------------------------


def test_the_ladder_goes_from_the_choice_to_the_portable_kernel(make: Make) -> None:
    launch = render_bundle(*make([{"schedule": "ticket", "cluster": (4, 1, 1)}])).launch
    assert [step.run for step in launch.ladder] == [
        "sm90_ticket_4x1x1",
        "sm90_static_4x1x1",
        "sm90_ticket_2x1x1",
        "sm90_one_tile",
        "portable_one_tile",
    ]
    assert launch.ladder[-1].when == "True"
    assert [kernel.id for kernel in launch.kernels] == [step.run for step in launch.ladder]


@pytest.mark.parametrize(
    ("arguments", "changes", "rung"),
    [
        ({}, {}, "sm90_ticket_4x1x1"),
        ({}, {"max_active_clusters": {"sm90_ticket_2x1x1": 40, "sm90_one_tile": 132}}, "sm90_ticket_2x1x1"),
        ({}, {"max_active_clusters": {"sm90_one_tile": 132}}, "sm90_one_tile"),
        ({}, {"max_active_clusters": {"sm90_one_tile": 132}, "sm_budget": 64}, "portable_one_tile"),
        ({}, {"loadable": frozenset({"portable_one_tile"})}, "portable_one_tile"),
        ({"lda": 97}, {}, "portable_one_tile"),
        ({"ldd": 201}, {}, "portable_one_tile"),
        ({"batch": 2, "batch_stride_a": 300 * 96 + 1}, {}, "portable_one_tile"),
        ({"batch": 1, "batch_stride_a": 300 * 96 + 1}, {}, "sm90_ticket_4x1x1"),
        ({}, {"alignments": {"A": 16, "B": 16, "D": 16}}, "sm90_ticket_4x1x1"),
        ({}, {"alignments": {"A": 16, "B": 8, "D": 16}}, "portable_one_tile"),
        ({}, {"alignments": {"A": 16, "B": 16, "D": 2}}, "portable_one_tile"),
    ],
)
def test_each_rung_has_its_exact_trigger(
    make: Make, arguments: dict[str, int], changes: dict[str, Any], rung: str
) -> None:
    launch = render_bundle(*make([{"schedule": "ticket", "cluster": (4, 1, 1)}])).launch
    assert pick_rung(launch, arguments, _facts(launch, **changes)) == rung


def test_a_budget_of_sms_moves_a_one_tile_choice_to_its_static_twin(make: Make) -> None:
    launch = render_bundle(*make([{"schedule": "one_tile"}])).launch
    assert pick_rung(launch, {}, _facts(launch)) == "sm90_one_tile"
    assert pick_rung(launch, {}, _facts(launch, sm_budget=100)) == "sm90_static"


def test_slices_over_scratch_run_as_a_sequence(make: Make) -> None:
    launch = render_bundle(*make([{"split_k": 4}])).launch
    assert launch.sequences["sm90_one_tile_s4"] == ["sm90_one_tile_s4_main", "sm90_one_tile_s4_reduce"]
    facts = _facts(launch)
    assert pick_rung(launch, {}, facts) == "sm90_one_tile_s4"
    sizes = {
        param.bytes
        for kernel in launch.sequences["sm90_one_tile_s4"]
        for param in resolve(launch, kernel, {}, facts).params
        if param.kind == "scratch"
    }
    assert sizes == {4 * 300 * 200 * 4}


def test_a_blackwell_bundle_holds_the_choice_its_twins_and_the_older_families() -> None:
    p = problem(m=8192, n=8192, k=8192)
    work = GemmWork(mma_ctas=2, multicast_b=2)
    pair = Candidate("sm100", (2, 1, 1), "clc", (128, 256, 64), 6, sm100.THREADS, work)
    hopper = sm90_candidate(p, tile=(128, 256), cluster=(2, 1, 1), schedule="static")
    rendered = render_bundle(make_plan(p, [pair, hopper]), workload(p))
    kernels = {each.id: each for each in rendered.launch.kernels}
    assert [step.run for step in rendered.launch.ladder] == [
        "sm100_clc_2x1x1", "sm100_static_2x1x1", "sm100_one_tile", "sm90_static_2x1x1", "sm90_one_tile",
        "portable_one_tile",
    ]  # fmt: skip
    assert {"kernel_sm100.cu", "kernel_sm90.cu", "kernel_portable.cu"} <= set(rendered.files)
    assert "sm_budget >= num_sms" in rendered.launch.ladder[0].when
    assert "sm_budget" not in rendered.launch.ladder[1].when
    # One CTA of the pair held half of B: alone it holds all of it, and has room for fewer stages.
    assert [kernels[each].defines["ADVISOR_STAGES"] for each in ("sm100_clc_2x1x1", "sm100_one_tile")] == [6, 4]
    assert all(int(each.dynamic_smem_bytes) <= 227 * 1024 for each in kernels.values())
    assert {target for target in kernels["sm100_clc_2x1x1"].images} == {"sm_100a", "sm_103a", "sm_100f"}


def test_a_plan_without_a_choice_renders_nothing(make: Make) -> None:
    plan, work = make()
    refused = plan.model_copy(update={"choices": [], "choice": None, "verdict": "refuse"})
    with pytest.raises(RefusedError) as error:
        render_bundle(refused, work)
    assert error.value.code == "NOTHING_TO_RENDER"


def test_every_kernel_resolves_for_small_and_empty_problems(make: Make) -> None:
    launch = render_bundle(*make([{"schedule": "static", "cluster": (4, 4, 1)}, {"split_k": 2}])).launch
    for kernel in launch.kernels:
        for arguments in ({}, {"k": 0}, {"m": 1}, {"m": 0}, {"batch": 0}):
            resolved = resolve(launch, kernel.id, arguments, _facts(launch))
            assert (0 in resolved.grid_blocks) == (0 in (arguments.get("m", 1), arguments.get("batch", 1)))


def test_kernels_of_a_bundle_stay_within_the_shared_memory_of_hopper(make: Make) -> None:
    """Twins are not searched for: each must be legal because the choice is."""
    profile = load_profile("h200")
    for choice in ({"schedule": "ticket", "cluster": (4, 4, 1), "stages": 6}, {"cluster": (1, 1, 4), "split_k": 4}):
        plan, work = make([choice], k=4096)
        for run in bundle_runs(plan, work):
            broken = {each.code for each in work.clauses(run.candidate, profile)}
            assert broken <= {"CLUSTER_EXCEEDS_TILES"}, run.id


# --- sources --------------------------------------------------------------------------------------------------------


def test_a_source_is_shared_by_every_kernel_of_its_family(make: Make) -> None:
    rendered = render_bundle(*make([{"schedule": "ticket", "cluster": (2, 1, 1)}]))
    rows = units(rendered)
    assert {row.name for row in rows} == {"kernel_sm90.cu", "kernel_portable.cu"}
    assert len({json.dumps(row.defines) for row in rows if row.name == "kernel_sm90.cu"}) == 3
    assert len({row.target for row in rows if row.name == "kernel_portable.cu"}) == 4
    for row in rows:
        assert row.headers == templates.headers_for(row.source)


def test_kernels_that_share_a_source_must_agree(make: Make) -> None:
    plan, work = make([{"schedule": "ticket", "cluster": (2, 1, 1)}])

    class Torn:
        """A kind whose static kernels want another context."""

        def __getattr__(self, name: str) -> Any:
            return getattr(work, name)

        def kernels(self, c: Any) -> list[KernelSpec]:
            specs = work.kernels(c)
            if c.schedule != "static":
                return specs
            return [spec.model_copy(update={"context": {**spec.context, "tile_k": 32}}) for spec in specs]

    with pytest.raises(ToolError, match="differ in template or context") as error:
        render_bundle(plan, Torn())  # type: ignore[arg-type]
    assert error.value.code == "LAUNCH_INCONSISTENT"


def test_validation_builds_other_schedules_and_traced_twins_from_the_same_sources(make: Make) -> None:
    plan, work = make([{"schedule": "static", "cluster": (2, 1, 1)}], k=4096)
    rendered, variants = render_bundle(plan, work), render_variants(plan, work)
    ids = {kernel.id for kernel in variants.launch.kernels}
    assert {"sm90_one_tile_2x1x1", "sm90_ticket_2x1x1", "sm90_static_2x1x1_traced", "portable_one_tile_traced"} <= ids
    assert not ids & {kernel.id for kernel in rendered.launch.kernels}
    for path, text in variants.files.items():
        assert rendered.files[path] == text
    traced = variants.launch.kernel("sm90_static_2x1x1_traced")
    assert traced.defines["ADVISOR_TRACE"] == 1
    assert "trace_sm90_static_2x1x1" in variants.launch.buffers
    resolved = resolve(variants.launch, traced.id, {}, _facts(variants.launch))
    assert resolved.buffers["trace_sm90_static_2x1x1"].shape == [3 * 2]


# --- hostile text -----------------------------------------------------------------------------------------------------


def test_problem_yaml_reads_back_as_the_same_problem(make: Make) -> None:
    _, work = make(epilogue={"alpha": 1 / 3, "beta": 1e-7}, target='x: "y" # z')
    text = problem_yaml(work.document)
    assert parse_problem(text, "problem.yaml").model_dump(mode="json") == work.document


def test_a_hostile_target_stays_data(make: Make) -> None:
    """`target` may be any path; it appears in data files, quoted, and nowhere else."""
    evil = '"); system("evil"); // #include "evil" `${evil}` {{ evil }} */'
    plan, work = make(target=evil)
    plan = plan.model_copy(update={"conclusion": f"Planned for {evil}."})
    rendered = render_bundle(plan, work)
    for path, text in rendered.files.items():
        if path not in ("problem.yaml", "plan.json", "README.md"):
            assert "evil" not in text, path
    assert r"\#include" in rendered.files["README.md"]
    assert json.loads(rendered.files["plan.json"])["problem"]["target"] == evil
    assert parse_problem(rendered.files["problem.yaml"], "problem.yaml").target == evil


class _Renamed:
    """A workload under another name, as if the problem's own check had let it through."""

    def __init__(self, work: Workload, name: str) -> None:
        self._work, self._name = work, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    @property
    def name(self) -> str:
        return self._name


@pytest.mark.parametrize("name", ['x"; evil', "../x", "a b", "x\n", ""])
def test_a_hostile_name_is_refused_before_anything_is_rendered(make: Make, name: str) -> None:
    plan, work = make()
    with pytest.raises(ToolError) as error:
        render_bundle(plan, _Renamed(work, name))  # type: ignore[arg-type]
    assert error.value.code == "TEXT_UNSAFE"


def _broken(launch: Launch, **changes: Any) -> Launch:
    kernel = launch.kernels[0].model_copy(update=changes)
    return launch.model_copy(update={"kernels": [kernel, *launch.kernels[1:]]})


@pytest.mark.parametrize(
    "changes",
    [
        {"grid_blocks": ("unknown", 1, 1)},
        {"grid_blocks": ("__import__('os')", 1, 1)},
        {"dynamic_smem_bytes": "m"},
        {"entry": 'x"'},
        {"id": "a b"},
        {"images": {"sm_90a": "../x.cubin"}},
        {"images": {}},
        {"defines": {"x": 1}},
        {"defines": {"ADVISOR_X": '1"; evil'}},
    ],
)
def test_a_launch_that_its_readers_could_not_read_is_refused(make: Make, changes: dict[str, Any]) -> None:
    launch = render_bundle(*make()).launch
    with pytest.raises(AdvisorError) as error:
        check_launch(_broken(launch, **changes))
    assert error.value.code in ("LAUNCH_INCONSISTENT", "TEXT_UNSAFE", "EXPRESSION_INVALID")


def test_names_that_mean_something_in_cpp_are_refused(make: Make) -> None:
    launch = render_bundle(*make()).launch
    arguments = [*launch.arguments, launch.arguments[0].model_copy(update={"name": "namespace"})]
    with pytest.raises(ToolError, match="namespace"):
        check_launch(launch.model_copy(update={"arguments": arguments}))


def test_the_call_that_the_readme_shows_fits_the_bindings_signature(make: Make) -> None:
    options = {"epilogue": {"beta": 2.0, "bias": "row"}, "scale": {"a": "tensor", "b": "tensor"}, "dtype": "e4m3"}
    files = render_bundle(*make([{}], **options)).files
    shown = re.search(r"^d = (sample\.run\(.*\))$", files["README.md"], re.MULTILINE)
    assert shown is not None
    call = ast.parse(shown[1], mode="eval").body
    assert isinstance(call, ast.Call)
    (run,) = (
        node for node in ast.parse(files["sample.py"]).body if isinstance(node, ast.FunctionDef) and node.name == "run"
    )
    assert [arg.id for arg in call.args if isinstance(arg, ast.Name)] == [arg.arg for arg in run.args.args[:3]]
    assert {"c", "bias", "scale_a", "scale_b"} == {each.arg for each in call.keywords}
    assert {each.arg for each in call.keywords} <= {arg.arg for arg in [*run.args.args, *run.args.kwonlyargs]}
