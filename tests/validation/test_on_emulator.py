"""`validate` in the emulator: a right bundle passes, and a fault in its PTX is named as what it is."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.bundle import BuildUnit, Bundle, read_build, read_bundle, units, write_build, write_bundle
from advisor.codegen.render import render_bundle
from advisor.errors import ToolError, registry
from advisor.kinds import workload
from advisor.machine import load_profile
from advisor.planner import plan
from advisor.problem import parse_problem
from advisor.records.base import canonical_json
from advisor.records.evidence import CaseResult, EmulatedRun, Evidence
from advisor.records.launch import LaunchAttributes
from advisor.records.plan import Plan
from advisor.toolchain import Unit, compile_many
from advisor.validation import Emulation, validate
from advisor.validation.emulator import VERDICTS
from advisor.validation.on_emulator import OnEmulator
from advisor.workflow import generate
from tests.validation.test_run import FakeImage

BACKENDS = Path(__file__).with_name("backends.py")
PROBLEM = """\
kind: gemm
name: small
m: 100
n: 40
k: 200
dtype: bf16
target: h200
overrides: {tile: [64, 16, 64], schedule: static, cluster: [2, 1, 1], stages: 3}
"""
COMPILED = ("sm_90a", "sm_80")  # the portable kernel's other images get the text of its first


def image_of(ptx: str, registers: int) -> FakeImage:
    digest = hashlib.sha256(ptx.encode()).hexdigest()
    cubin = hashlib.sha256(b"cubin").hexdigest()
    return FakeImage(ptx=ptx, ptx_sha256=digest, cubin_sha256=cubin, registers=registers)


def no_compiler(_: list[BuildUnit]) -> list[Any]:
    raise ToolError("NVRTC_MISSING", "the CUDA compiler cannot be imported")


def written(
    folder: Path,
    images: Mapping[tuple[str, str], FakeImage],
    change: Callable[[Plan], Plan] = lambda made: made,
    text: str = PROBLEM,
) -> Bundle:
    problem = parse_problem(text, "problem.yaml")
    work, profile = workload(problem), load_profile("h200")
    profiles = {"sm90": profile, "portable": profile}
    made = plan(work, profile, target_name="h200", target_source="profile", rung_profiles=profiles)
    rendered = render_bundle(change(made), work)
    bundle = read_bundle(write_bundle(folder / rendered.name, rendered))
    write_build(bundle, images or {(row.kernel_id, row.target): FakeImage() for row in units(bundle)})
    return bundle


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], FakeImage]:
    """The images of the bundle: real PTX, and a cubin that nobody loads."""
    return images_of(written(tmp_path_factory.mktemp("sources"), {}))


def images_of(bundle: Bundle) -> dict[tuple[str, str], FakeImage]:
    rows = units(bundle)
    wanted = [row for row in rows if row.target in COMPILED]
    compiled = compile_many(
        [Unit(row.name, row.source, row.headers, row.target, row.defines, row.flags) for row in wanted]
    )
    found = {
        (row.kernel_id, row.target): image_of(each.ptx, each.registers)
        for row, each in zip(wanted, compiled, strict=True)
    }
    for row in rows:
        if row.target not in COMPILED:
            first = found[row.kernel_id, "sm_80"]
            text = first.ptx.replace(".target sm_80", f".target {row.target}")
            found[row.kernel_id, row.target] = image_of(text, first.registers)
    return found


def emulated(bundle: Bundle, cases: Collection[str] | None = None, **options: Any) -> Evidence:
    emulation = Emulation(**{"processes": 1, "async_policies": ("random",), **options})
    return validate(bundle, device=None, emulation=emulation, build=no_compiler, cases=cases)


def gate(evidence: Evidence, kernel_id: str, image: str) -> Any:
    row = next(each for each in evidence.gates if (each.kernel_id, each.image) == (kernel_id, image))
    return next(each for each in row.gates if each.gate == "emulated")


def of(evidence: Evidence, rung: str, name: str) -> CaseResult:
    return next(each for each in evidence.cases if (each.rung, each.name) == (rung, name))


STATIC, ONE_TILE, PORTABLE = "sm90_static_2x1x1", "sm90_one_tile", "portable_one_tile"


@pytest.fixture(scope="module")
def right(images: dict[tuple[str, str], FakeImage], tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    bundle = written(tmp_path_factory.mktemp("right"), images)
    return emulated(bundle, ("own_shape", "own_shape_cut", "clusters_one_more", "k_zero", "m_zero", "k_deep"))


def test_a_right_bundle_passes_on_every_rung(right: Evidence) -> None:
    ran = [each for each in right.cases if each.name != "other_schedules"]
    assert {each.verdict for each in ran} == {"correct"}
    assert {(each.rung, each.image) for each in ran} == {
        (STATIC, "sm_90a"), (ONE_TILE, "sm_90a"), (PORTABLE, "sm_80")
    }  # fmt: skip
    assert (right.verdict, right.devices, right.chip) == ("pass", ["emulator"], None)
    assert right.not_run_reason == "no GPU at hand"
    json.loads(canonical_json(right))


def test_the_gate_says_how_it_was_emulated_and_that_nothing_ran_on_a_gpu(right: Evidence) -> None:
    found = gate(right, STATIC, "sm_90a")
    assert found.result == "pass"
    assert found.facts["profile"] == "h200_cut"
    assert sum(found.facts["sm_groups"]) == 8
    assert found.facts["async_policies"] == ["random"]
    assert len(found.facts["seeds"]) > 1
    assert found.facts["correct"] == found.facts["cases"] == 5
    row = next(each for each in right.gates if each.kernel_id == STATIC)
    assert [(each.gate, each.result) for each in row.gates][-2:] == [("emulated", "pass"), ("ran", "not_run")]
    assert row.reached == "emulated"


def test_images_that_are_one_text_share_what_one_of_them_showed(right: Evidence) -> None:
    assert "ptx_of" not in gate(right, PORTABLE, "sm_80").facts
    for target in ("sm_90", "sm_100", "sm_120"):
        found = gate(right, PORTABLE, target)
        assert (found.result, found.facts["ptx_of"]) == ("pass", "sm_80")


def test_every_element_is_written_once_and_the_bits_are_those_of_every_schedule(right: Evidence) -> None:
    result = of(right, ONE_TILE, "clusters_one_more")
    assert result.checks["written_once"] is True
    assert result.checks["as_planned"] is True
    assert result.checks["padding_untouched"] is True
    assert result.checks["exact_integers"] is True
    assert of(right, ONE_TILE, "own_shape_cut").checks["same_bits"] is True
    assert result.runs[0].async_policy == "random"
    assert result.launch is not None
    assert result.launch.grid_blocks[0] > 8


def test_nothing_is_launched_for_an_empty_case(right: Evidence) -> None:
    result = of(right, STATIC, "m_zero")
    assert (result.verdict, result.launches) == ("correct", 0)


def test_other_schedules_without_a_compiler_did_not_run_and_say_why(right: Evidence) -> None:
    assert "compiler cannot be imported" in of(right, STATIC, "other_schedules").detail


# --- a fault in the PTX -----------------------------------------------------------------------------------------------

WAIT_FOR_STORES = (r"cp\.async\.bulk\.wait_group 0;", "")
# name: (kernel, pattern, replacement, case, verdict, code)
FAULTS: dict[str, tuple[str, str, str, str, str, str]] = {
    "no proxy fence before the store": (
        STATIC, r"fence\.proxy\.async\.shared::cta;", "", "k_one", "race", "EMU_DATA_RACE"
    ),
    "stages never given back": (
        ONE_TILE, r"mbarrier\.arrive\.shared::cta\.b64 _, \[[^\]]*\];", "", "k_deep", "deadlock", "EMU_DEADLOCK"
    ),
    "no wait for the stores before the exit": (STATIC, *WAIT_FOR_STORES, "k_one", "protocol", "EMU_ASYNC_AT_EXIT"),
    "a loop without end": (PORTABLE, r"(mov\.u32\s+%r\d+, %ctaid\.x;)", r"\1 SPIN: bra SPIN;", "k_one", "timeout",
        "EMU_STEP_LIMIT"),
    "a store past the end": (
        PORTABLE, r"(st\.global\.\S+\s+\[%rd\d+)\]", r"\1+1048576]", "k_one", "launch_error", "EMU_OUT_OF_BOUNDS"
    ),
    "every store made twice": (PORTABLE, r"(st\.global\.[^;]*;)", r"\1 \1", "k_one", "mismatch", ""),
    "alpha added and not multiplied": (PORTABLE, r"mul\.f32\b", "add.f32", "k_deep", "mismatch", ""),
    "an instruction that is not executed": (
        ONE_TILE, r"setmaxnreg\.dec\.sync\.aligned\.u32 \d+;", "tex.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [t, {%r1}];",
        "k_one", "not_run", "EMU_UNKNOWN_OPCODE"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_in_the_ptx_gets_its_verdict(name: str, images: Any, tmp_path: Path) -> None:
    kernel_id, pattern, replacement, case, verdict, code = FAULTS[name]
    edited = dict(images)
    target = "sm_80" if kernel_id == PORTABLE else "sm_90a"
    text, count = re.subn(pattern, replacement, images[kernel_id, target].ptx)
    assert count > 0
    for key, each in images.items():
        if key[0] == kernel_id:
            own = text.replace(f".target {target}", f".target {key[1]}")
            edited[key] = image_of(own, each.registers)
    bundle = written(tmp_path, edited)
    evidence = emulated(bundle, (case,))
    result = of(evidence, kernel_id, case)
    assert (result.verdict, result.runs[0].code) == (verdict, code), result.detail
    assert gate(evidence, kernel_id, target).result == ("not_run" if verdict == "not_run" else "fail")
    others = [each for each in evidence.cases if each.rung != kernel_id and each.name == case]
    assert {each.verdict for each in others} == {"correct"}
    assert evidence.verdict == ("pass" if verdict == "not_run" else "fail")
    if code:
        assert code in result.detail


def test_a_byte_written_twice_is_within_the_bound_and_still_wrong(images: Any, tmp_path: Path) -> None:
    first = images[PORTABLE, "sm_80"]
    twice = re.sub(r"(st\.global\.[^;]*;)", r"\1 \1", first.ptx)
    edited = {key: image_of(twice, 40) if key[0] == PORTABLE else each for key, each in images.items()}
    result = of(emulated(written(tmp_path, edited), ("k_one",)), PORTABLE, "k_one")
    assert result.checks["within_bound"] is True
    assert result.checks["written_once"] is False
    assert "2 times" in result.detail


def test_a_kernel_that_does_something_else_than_its_plan_says_is_a_mismatch(images: Any, tmp_path: Path) -> None:
    def other(made: Plan) -> Plan:
        (step,) = [each for each in made.steps if each.step == 5]
        table = step.artifact["barriers"]
        column = table["columns"].index("tx_bytes")
        rows = [[*row[:column], row[column] + 16 if row[column] else 0, *row[column + 1 :]] for row in table["rows"]]
        changed = step.model_copy(update={"artifact": {**step.artifact, "barriers": {**table, "rows": rows}}})
        return made.model_copy(update={"steps": [changed if each.step == 5 else each for each in made.steps]})

    result = of(emulated(written(tmp_path, images, other), ("k_one",)), STATIC, "k_one")
    assert (result.verdict, result.checks["as_planned"], result.checks["within_bound"]) == ("mismatch", False, True)
    assert "PLAN_KERNEL_MISMATCH" in result.detail
    assert "bytes of a phase" in result.detail


def test_a_rung_of_which_no_cluster_is_resident_did_not_run_and_is_no_failure(images: Any, tmp_path: Path) -> None:
    edited = {**images, (STATIC, "sm_90a"): replace(images[STATIC, "sm_90a"], registers=256)}
    evidence = emulated(written(tmp_path, edited), ("k_one",))
    result = of(evidence, STATIC, "k_one")
    assert result.verdict == "not_run"
    assert "the ladder steps down" in result.detail
    assert gate(evidence, STATIC, "sm_90a").result == "not_run"
    assert of(evidence, ONE_TILE, "k_one").verdict == "correct"


def test_every_report_of_the_emulator_has_a_verdict() -> None:
    assert {code for code in VERDICTS if code not in registry()} == set()


# --- two kernels in a row ---------------------------------------------------------------------------------------------

SPLIT = """\
kind: gemm
m: 100
n: 37
k: 504
dtype: bf16
d: {ld: 40}
target: h200
overrides: {tile: [64, 16, 64], schedule: static, cluster: [1, 1, 1], split_k: 3}
"""


@pytest.mark.slow
def test_a_sequence_runs_on_what_its_first_kernel_left(tmp_path: Path) -> None:
    from advisor.workflow import generate

    (tmp_path / "split.yaml").write_text(SPLIT)
    bundle = generate(tmp_path / "split.yaml", output=tmp_path / "out").bundle
    assert bundle is not None
    rows = {(row["kernel_id"], row["target"]): row for row in read_build(bundle) or ()}
    cases = ("own_shape_cut", "k_zero", "k_one_slice", "tile_minus_one")
    evidence = emulated(bundle, cases)
    for name in cases:
        result = of(evidence, "sm90_static_s3", name)
        assert (result.verdict, result.checks["written_once"]) == ("correct", True), result.detail
    assert gate(evidence, "sm90_static_s3_reduce", "sm_90a").result == "pass"
    # Without the first kernel's stores the second one reads what nobody has written.
    images = {
        key: image_of(bundle.image(*key).with_suffix(".ptx").read_text(), row["registers"]) for key, row in rows.items()
    }
    main = ("sm90_static_s3_main", "sm_90a")
    text = re.sub(r"st\.global\.v?\d?\.?f32[^;]*;", "", images[main].ptx)
    assert text != images[main].ptx
    write_build(bundle, {**images, main: image_of(text, images[main].registers)})
    result = of(emulated(bundle, ("k_one_slice",)), "sm90_static_s3", "k_one_slice")
    assert (result.verdict, result.runs[0].code) == ("protocol", "EMU_UNINITIALISED")
    assert "sm90_static_s3_reduce:" in result.detail


# --- behind another kernel --------------------------------------------------------------------------------------------

BEHIND = PROBLEM + "launch: {pdl: true}\n"


@pytest.fixture(scope="module")
def images_behind(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], FakeImage]:
    return images_of(written(tmp_path_factory.mktemp("behind"), {}, text=BEHIND))


def test_kernels_that_start_early_run_behind_one_that_is_late(images_behind: Any, tmp_path: Path) -> None:
    evidence = emulated(written(tmp_path, images_behind, text=BEHIND), ("k_one", "k_zero"), async_policies=("lazy",))
    result = of(evidence, STATIC, "k_one")
    assert result.verdict == "correct", result.detail
    assert result.launch is not None
    assert set(result.launch.predecessor_writes) == {"A", "B", "D"}
    assert gate(evidence, STATIC, "sm_90a").facts["predecessor"] == "late"
    # A portable kernel cannot wait, so it is never launched early.
    portable = of(evidence, PORTABLE, "k_one")
    assert portable.launch is not None
    assert portable.launch.predecessor_writes == []
    assert portable.launch.attributes.programmatic_stream_serialization is False
    assert "predecessor" not in gate(evidence, PORTABLE, "sm_80").facts


@pytest.mark.parametrize(("warp", "code"), [(0, "EMU_GRID_WAIT"), (3, "EMU_GRID_WAIT_SKIPPED")])
def test_a_warp_that_does_not_wait_fails_the_bundle(warp: int, code: str, images_behind: Any, tmp_path: Path) -> None:
    """Warp 0 loads; warp 3 has nothing to do and leaves a CTA without a cluster at once."""
    others = f"setp.ne.u32 %pskip, %rskip, {warp}; @%pskip griddepcontrol.wait;"
    skip = "{ .reg .pred %pskip; .reg .u32 %rskip; mov.u32 %rskip, %tid.x; shr.u32 %rskip, %rskip, 5; " + others + " }"
    edited = dict(images_behind)
    key = (ONE_TILE, "sm_90a")
    text, count = re.subn(r"griddepcontrol\.wait;", skip, images_behind[key].ptx)
    assert count == 1
    edited[key] = image_of(text, images_behind[key].registers)
    evidence = emulated(written(tmp_path, edited, text=BEHIND), ("k_one",))
    result = of(evidence, ONE_TILE, "k_one")
    assert (result.verdict, result.runs[0].code) == ("protocol", code), result.detail
    assert gate(evidence, ONE_TILE, "sm_90a").result == "fail"
    assert of(evidence, STATIC, "k_one").verdict == "correct"


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_case_without_end_and_a_process_that_dies_cost_one_result_each(images: Any, tmp_path: Path) -> None:
    bundle = written(tmp_path, images)
    backend = f"{BACKENDS}:EmulatorThatHangs"
    evidence = emulated(bundle, ("k_one", "k_short", "tile_minus_one"), backend=backend, processes=2)
    for rung in (STATIC, PORTABLE):
        hung, died = of(evidence, rung, "k_one"), of(evidence, rung, "k_short")
        assert hung.verdict == "timeout"
        assert "k_one: random" in hung.detail
        assert died.verdict == "not_run"  # says nothing of the kernel
        assert "SIGKILL" in died.detail
        assert of(evidence, rung, "tile_minus_one").verdict == "correct"
    assert gate(evidence, STATIC, "sm_90a").result == "fail"


# --- cases that run again ---------------------------------------------------------------------------------------------


def test_a_kept_case_runs_again_with_the_emulate_command(images: Any, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from advisor.cli import app

    text = re.sub(*WAIT_FOR_STORES, images[STATIC, "sm_90a"].ptx)
    edited = {**images, (STATIC, "sm_90a"): image_of(text, images[STATIC, "sm_90a"].registers)}
    keep = tmp_path / "kept"
    emulation = Emulation(processes=1, async_policies=("lazy",))
    bundle = written(tmp_path, edited)
    validate(bundle, device=None, emulation=emulation, build=no_compiler, cases=("k_one",), keep=keep)
    for rung, kernel, status in ((STATIC, f"{STATIC}.sm_90a", 1), (ONE_TILE, f"{ONE_TILE}.sm_90a", 0)):
        place = keep / rung
        arguments = ["emulate", f"{place / kernel}.ptx", "--launch", str(place / "k_one.json"), "--async", "lazy"]
        arguments += ["--inputs", str(place / "k_one.inputs.npz"), "--profile", str(place / f"{rung}.profile.toml")]
        arguments += ["--outputs", str(tmp_path / "out.npz")]
        result = CliRunner().invoke(app, [*arguments, "--json"], prog_name="advisor")
        assert result.exit_code == status, result.output
        document = json.loads(result.stdout)
        assert (document["fault"] or {}).get("code") == ("EMU_ASYNC_AT_EXIT" if status else None)
    assert np.load(tmp_path / "out.npz")["D"].size > 0


# --- with a GPU -------------------------------------------------------------------------------------------------------


def test_what_the_gpu_does_not_run_goes_to_the_emulator(images: Any, tmp_path: Path) -> None:
    """`auto` on a GPU on which no cluster of Hopper's kernels is resident."""
    from tests.validation.test_run import FakeDevice

    bundle = written(tmp_path, images)
    evidence = validate(
        bundle,
        device=FakeDevice(),  # type: ignore[arg-type]
        emulation=Emulation(processes=1, async_policies=("eager",)),
        build=no_compiler,
        cases=("k_one", "tile_minus_one"),
        backend=f"{BACKENDS}:NoClusters",
    )
    assert {(each.rung, each.device) for each in evidence.cases if each.name == "k_one"} == {
        (STATIC, "emulator"), (ONE_TILE, "cuda"), (PORTABLE, "cuda")
    }  # fmt: skip
    assert evidence.devices == ["cuda", "emulator"]
    assert evidence.chip is not None
    assert gate(evidence, STATIC, "sm_90a").result == "pass"
    reached = {each.kernel_id: each.reached for each in evidence.gates if each.image in ("sm_90a", "sm_90")}
    assert reached == {STATIC: "emulated", ONE_TILE: "ran", PORTABLE: "ran"}
    assert evidence.verdict == "pass"


def test_an_experiment_needs_a_gpu(images: Any, tmp_path: Path) -> None:
    bundle = written(tmp_path, images)
    evidence = validate(
        bundle, device=None, emulation=Emulation(processes=1), build=no_compiler, cases=(), experiment="ab"
    )
    assert evidence.experiment is not None
    assert evidence.experiment["verdict"] == "not_run"
    assert "the emulator has none" in evidence.experiment["reason"]


# --- clusters of two sizes in one launch --------------------------------------------------------------------------

MIX = """\
kind: gemm
name: mix
m: 1024
n: 1024
k: 128
target: b200
overrides: {kernel: sm100, cluster: [4, 1, 1], preferred_cluster: [8, 1, 1], tile: [128, 64, 64], schedule: static}
"""


@pytest.mark.slow
def test_a_launch_of_two_cluster_sizes_runs_both_at_once(tmp_path: Path) -> None:
    """Clusters of four fit into none of the lone TPCs beside preferred ones of eight: the cut profile has groups for
    them, so that the hardware's way of filling SMs is seen too, not only the tossed coin."""
    (tmp_path / "mix.yaml").write_text(MIX)
    bundle = generate(tmp_path / "mix.yaml", output=tmp_path).bundle
    assert bundle is not None
    evidence = validate(bundle, device=None, emulation=Emulation(processes=2), cases=("clusters_one_more", "own_shape"))
    mixed = [each for each in bundle.launch.kernels if each.attributes.preferred_cluster]
    found = gate(evidence, mixed[0].id, "sm_100a")
    assert found.result == "pass", found.reason
    sizes = found.facts["cluster_sizes"]
    assert (sizes["fill"], sizes["preferred"], sizes["smaller"]) == ([4, 8], [8], [4])
    assert any(
        run.cluster_mix == "fill" and run.cluster_sizes == [4, 8] for each in evidence.cases for run in each.runs
    )
    single = next(each for each in bundle.launch.kernels if each.family == "sm100" and each not in mixed)
    assert "cluster_sizes" not in gate(evidence, single.id, "sm_100a").facts


@pytest.mark.parametrize(("sizes", "result"), [(((4,), (8,)), "not_run"), (((4, 8), (8,)), "pass")])
def test_a_mix_that_never_held_both_sizes_in_one_launch_has_not_run(sizes: Any, result: str) -> None:
    runs = [
        EmulatedRun(async_policy="lazy", cluster_mix=mix, cluster_sizes=list(each), seed=0, verdict="correct")
        for mix, each in zip(("fill", "preferred"), sizes, strict=True)
    ]
    case = CaseResult(
        name="own_shape",
        kernel_id="k",
        rung="k",
        device="emulator",
        arguments={},
        launch=None,
        verdict="correct",
        runs=runs,
    )
    lane: Any = SimpleNamespace(
        row=SimpleNamespace(main=SimpleNamespace(attributes=LaunchAttributes(preferred_cluster=(8, 1, 1)))),
        images=(("k", "sm_100a"),),
        target="sm_100a",
    )
    driver: Any = SimpleNamespace(counted={})
    found = OnEmulator._gate(driver, lane, "sm_100a", [case], load_profile("b200"))
    assert found.result == result
    assert ("both sizes" in found.reason) == (result == "not_run")
