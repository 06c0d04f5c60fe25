"""`advisor emulate`: a kernel that is right, kernels that are not, and files that do not fit together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.errors import EXIT_DONE, EXIT_INPUT, EXIT_NO, InputError
from advisor.toolchain import Unit, compile_cuda

Advisor = Callable[..., Any]
PTX = "examples/emulate/axpy.ptx"
LAUNCH = "examples/emulate/axpy.json"


@pytest.fixture
def launch(workplace: Path) -> Callable[..., str]:
    """Writes the example's launch with changes: each is a function of the document."""

    def write(change: Callable[[dict[str, Any]], object]) -> str:
        document = json.loads((workplace / LAUNCH).read_text())
        change(document)
        (workplace / "launch.json").write_text(json.dumps(document))
        return "launch.json"

    return write


def longer(document: dict[str, Any]) -> None:
    document["params"][3]["value"] = 1001


# --- the examples -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target"), [("axpy", "sm_90"), ("failed_response", "sm_100a"), ("peer_leaves", "sm_90a")]
)
def test_the_ptx_of_an_example_is_that_of_its_source(name: str, target: str) -> None:
    folder = Path(__file__).parents[2] / "examples" / "emulate"
    made = compile_cuda(Unit(f"{name}.cu", (folder / f"{name}.cu").read_text(), {}, target, {})).ptx
    committed = (folder / f"{name}.ptx").read_text()
    assert made.replace(f'"/{name}.cu"', f'"{name}.cu"') == committed.replace(f'"/{name}.cu"', f'"{name}.cu"')


EXAMPLES = {
    "failed_response": ("EMU_CLC_FAILED_COORDINATE", 46, "get_first_ctaid", "if (block >= gridDim.x)", "if (!granted)"),
    "peer_leaves": ("EMU_PEER_EXITED", 27, "ld.shared::cluster.f32", "if (blockIdx.x % 2 == 1) return;", ""),
}


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_an_example_with_a_fault_is_named_with_both_places(advisor: Advisor, name: str) -> None:
    code, line, before, *_ = EXAMPLES[name]
    result = advisor("emulate", f"examples/emulate/{name}.ptx", "--launch", f"examples/emulate/{name}.json")
    assert result.status == EXIT_NO
    assert f"[{code}]" in result.stdout
    assert f"{name}.cu:{line}" in result.stdout
    assert before in result.stdout
    assert f"advisor explain {code}" in result.stdout


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_the_same_example_without_its_fault_passes(advisor: Advisor, workplace: Path, name: str) -> None:
    *_, wrong, right = EXAMPLES[name]
    source = (workplace / f"examples/emulate/{name}.cu").read_text()
    assert wrong in source
    source = source.replace(wrong, right)
    if name == "peer_leaves":  # both stay; only CTA 0 has a result
        source = source.replace("    y[", "    cluster_barrier();\n    if (blockIdx.x % 2 == 0) y[")
    target = json.loads((workplace / f"examples/emulate/{name}.json").read_text())["target"]
    (workplace / "right.ptx").write_text(compile_cuda(Unit("right.cu", source, {}, target, {})).ptx)
    result = advisor("emulate", "right.ptx", "--launch", f"examples/emulate/{name}.json")
    assert result.status == EXIT_DONE, result.stdout
    assert "no fault found, as expected" in result.stdout


# --- Cluster Launch Control -----------------------------------------------------------------------------------------


@pytest.fixture
def claiming(workplace: Path) -> tuple[str, ...]:
    """The example that asks for its work, without its fault."""
    source = (workplace / "examples/emulate/failed_response.cu").read_text()
    source = source.replace("if (block >= gridDim.x)", "if (!granted)")
    (workplace / "right.ptx").write_text(compile_cuda(Unit("right.cu", source, {}, "sm_100a", {})).ptx)
    return ("emulate", "right.ptx", "--launch", "examples/emulate/failed_response.json")


def test_requests_are_summed_up(advisor: Advisor, claiming: tuple[str, ...]) -> None:
    result = advisor(*claiming, "--busy-sms", "147")
    assert result.status == EXIT_DONE, result.stdout
    assert "requests: 38 granted, 2 declined" in result.stdout
    assert "2 clusters started at the launch" in result.stdout
    document = advisor(*claiming, "--busy-sms", "147", "--clc", "decline:1", "--json").document
    assert document["requests"] == {
        "granted": 0, "declined": 40, "clusters_by_tiles": {"1": 40}, "clusters_at_launch": 2
    }  # fmt: skip


@pytest.mark.parametrize("clc", ["grant", "decline:2", "random", "preempt", "spurious"])
def test_every_policy_gives_the_same_result(advisor: Advisor, claiming: tuple[str, ...], clc: str) -> None:
    assert advisor(*claiming, "--busy-sms", "147", "--clc", clc, "--seed", "3").status == EXIT_DONE


def test_a_seed_is_no_negative_number(advisor: Advisor, claiming: tuple[str, ...]) -> None:
    assert advisor(*claiming, "--seed", "-1").status == EXIT_INPUT


@pytest.mark.parametrize("names", ["x", "x, y", "all"])
def test_a_kernel_that_does_not_wait_for_the_one_before_it(advisor: Advisor, names: str) -> None:
    """The vector kernel has no griddepcontrol.wait. A kernel before it that writes nothing of it changes nothing."""
    result = advisor("emulate", PTX, "--launch", LAUNCH, "--predecessor-writes", names)
    assert result.status == EXIT_NO
    assert "[EMU_GRID_WAIT]" in result.stdout


def test_only_the_word_none_undoes_the_kernel_before_it_of_a_launch_file(
    advisor: Advisor, launch: Callable[..., str]
) -> None:
    command = ("emulate", PTX, "--launch", launch(lambda d: d.update(predecessor_writes=["x"])))
    assert advisor(*command).status == EXIT_NO
    assert advisor(*command, "--predecessor-writes", "none").status == EXIT_DONE
    for nothing in ("", " , "):
        refused = advisor(*command, "--predecessor-writes", nothing)
        assert refused.status == EXIT_INPUT
        assert "name some, all or none; leave it out for what the launch file says" in refused.stderr


def test_a_kernel_before_it_that_writes_what_is_not_there(advisor: Advisor) -> None:
    result = advisor("emulate", PTX, "--launch", LAUNCH, "--predecessor-writes", "z")
    assert result.status == EXIT_INPUT
    assert "name some of x, y" in result.stderr


@pytest.mark.parametrize("options", [("--clc", "sometimes"), ("--clc", "decline:0"), ("--busy-sms", "148")])
def test_policies_and_busy_sms_that_cannot_be(
    advisor: Advisor, claiming: tuple[str, ...], options: tuple[str, ...]
) -> None:
    result = advisor(*claiming, *options)
    assert result.status == EXIT_INPUT
    assert "EMU_POLICY" in result.stderr or "EMU_LAUNCH_REFUSED" in result.stderr


# --- a kernel that is right ---------------------------------------------------------------------------------------


def test_the_example_passes_and_is_summed_up(advisor: Advisor) -> None:
    result = advisor("emulate", PTX, "--launch", LAUNCH)
    assert result.status == EXIT_DONE
    assert "ok: y = 0.5 * x + y: 1000 elements" in result.stdout
    assert "warp instructions: memory 288, arithmetic 288, control 64" in result.stdout
    assert "bytes: global load 8,000, global store 4,000" in result.stdout
    assert "emulate   axpy: 640 warp instructions" in result.stderr


def test_json_is_one_document(advisor: Advisor) -> None:
    document = advisor("emulate", PTX, "--launch", LAUNCH, "--json").document
    assert (document["passed"], document["fault"], document["clusters"]) == (True, None, 4)
    assert document["stored_bytes"] == [1024, 1024, 1024, 928]  # 1000 floats, 256 to a CTA
    assert sum(document["warp_instructions"].values()) == sum(document["opcodes"].values()) == 640
    assert document["expected"][0]["wrong"] == 0


def test_inputs_replace_first_bytes_and_outputs_hold_the_last(advisor: Advisor, workplace: Path) -> None:
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    np.savez(workplace / "in.npz", x=x.view(np.uint8), y=y.view(np.uint8))
    result = advisor("emulate", PTX, "--launch", LAUNCH, "--inputs", "in.npz", "--outputs", "out.npz", "-q")
    assert (result.status, result.stderr) == (EXIT_DONE, "")
    with np.load(workplace / "out.npz") as written:
        assert set(written.files) == {"x", "y"}
        assert written["y"].dtype == np.uint8
        np.testing.assert_array_equal(written["y"].view(np.float32), x / 2 + 1)
        np.testing.assert_array_equal(written["x"].view(np.float32), x)


def test_phases_of_barriers_are_counted(advisor: Advisor, workplace: Path, launch: Callable[..., str]) -> None:
    text = (workplace / PTX).read_text()
    (workplace / "barrier.ptx").write_text(text.replace("\tmov.u32 \t%r3,", "\tbar.sync 0;\n\tmov.u32 \t%r3,"))
    document = advisor("emulate", "barrier.ptx", "--launch", LAUNCH, "--json").document
    assert document["barrier_phases"] == {"CTA barrier": 4}


def test_without_formulas_the_checks_alone_decide(advisor: Advisor, launch: Callable[..., str]) -> None:
    result = advisor("emulate", PTX, "--launch", launch(lambda d: d.pop("expected")))
    assert result.status == EXIT_DONE
    assert "no formula" in result.stdout


def test_unknown_keys_are_ignored_with_a_note(advisor: Advisor, launch: Callable[..., str]) -> None:
    def change(document: dict[str, Any]) -> None:
        document["colour"] = 1
        document["params"][1]["shade"] = document["buffers"]["x"]["hue"] = "red"

    result = advisor("emulate", PTX, "--launch", launch(change), "--json")
    assert result.status == EXIT_DONE
    assert set(result.document["ignored_keys"]) == {"colour", "params.1.shade", "buffers.x.hue"}
    assert "note: launch.json: params.1.shade is not known and was ignored" in result.stderr


def test_size_and_offset_of_parameters_are_held_against_the_entry(advisor: Advisor, launch: Callable[..., str]) -> None:
    def right(document: dict[str, Any]) -> None:
        for param, size, offset in zip(document["params"], (8, 8, 4, 4), (0, 8, 16, 20), strict=True):
            param.update(size=size, offset=offset)

    def wrong(document: dict[str, Any]) -> None:
        right(document)
        document["params"][3]["offset"] = 24

    assert advisor("emulate", PTX, "--launch", launch(right)).status == EXIT_DONE
    result = advisor("emulate", PTX, "--launch", launch(wrong))
    assert result.status == EXIT_INPUT
    assert "offset 24 of the parameter n, the entry says 20 [EMU_PARAMETERS]" in result.stderr


def test_a_parameter_may_be_given_as_its_bytes(advisor: Advisor, launch: Callable[..., str]) -> None:
    def alpha(text: str) -> str:
        return launch(put("params", 2, value={"kind": "bytes", "name": "alpha", "value": text}))

    assert advisor("emulate", PTX, "--launch", alpha("0000003f")).status == EXIT_DONE
    assert advisor("emulate", PTX, "--launch", alpha("0000803f")).status == EXIT_NO, "1.0 is not what the formula has"


# --- kernels that are wrong ---------------------------------------------------------------------------------------


def test_wrong_values_exit_1_and_name_the_worst_element(advisor: Advisor, launch: Callable[..., str]) -> None:
    def change(document: dict[str, Any]) -> None:
        document["params"][3]["value"] = 998  # two elements are left as they were
        document["buffers"]["x"].update(init="arange")

    path = launch(change)
    result = advisor("emulate", PTX, "--launch", path)
    assert result.status == EXIT_NO
    assert "WRONG: y = 0.5 * x + y: 2 of 1000 elements are wrong; worst y[999] is" in result.stdout
    document = advisor("emulate", PTX, "--launch", path, "--json").document
    assert (document["passed"], document["fault"]) == (False, None)
    assert (document["expected"][0]["wrong"], document["expected"][0]["worst"]) == (2, [999])


def test_a_fault_is_one_report_and_writes_nothing(
    advisor: Advisor, launch: Callable[..., str], workplace: Path
) -> None:
    result = advisor("emulate", PTX, "--launch", launch(longer), "--outputs", "out.npz")
    assert result.status == EXIT_NO
    assert result.stdout.count("[EMU_OUT_OF_BOUNDS]") == 1
    for part in ("buffer x", "axpy.cu:8", "`ld.global.f32`", "CTA (3, 0, 0) warp 7 lane 8", "advisor explain"):
        assert part in result.stdout
    assert "Traceback" not in result.stderr
    assert not (workplace / "out.npz").exists()


def test_a_fault_with_json_has_its_place(advisor: Advisor, launch: Callable[..., str]) -> None:
    result = advisor("emulate", PTX, "--launch", launch(longer), "--json")
    assert result.status == EXIT_NO
    fault = result.document["fault"]
    assert fault["code"] == "EMU_OUT_OF_BOUNDS"
    assert (fault["place"]["source"], fault["place"]["cta"], fault["place"]["lane"]) == ("axpy.cu:8", [3, 0, 0], 8)


def test_an_instruction_that_is_not_executed_is_named(advisor: Advisor, workplace: Path) -> None:
    (workplace / "odd.ptx").write_text((workplace / PTX).read_text().replace("fma.rn.f32", "fmb.rn.f32"))
    result = advisor("emulate", "odd.ptx", "--launch", LAUNCH)
    assert result.status == EXIT_NO
    assert "fmb.rn.f32 is not executed [EMU_UNKNOWN_OPCODE]" in result.stderr


# --- files that do not fit together -------------------------------------------------------------------------------


def put(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("params", 3, "value"), True, "params.3.value: true is not a whole number"),
        (("params", 2, "value"), True, "params.2.value: true is not a whole number"),
        (("params", 3, "size"), True, "True is no whole number"),
        (("params", 0, "offset_bytes"), False, "params.0.offset_bytes: false is not a whole number"),
        (("grid_blocks", 0), True, "grid_blocks.0: true is not a whole number"),
        (("grid_blocks", 0), "4", 'grid_blocks.0: "4" is not a whole number'),
        (("block", 0), 256.0, "block.0: 256.0 is not a whole number"),
        (("dynamic_smem_bytes",), False, "false is not a whole number"),
        (("buffers", "x", "shape", 0), True, "buffers.x.shape.0: true is not a whole number"),
        (("buffers", "x", "seed"), True, "buffers.x.seed: true is not a whole number"),
        (("buffers", "x", "scale"), True, "buffers.x.scale: true is not a number"),
        (("nonportable",), 1, "nonportable: 1 is not true or false"),
        (("attributes",), {"preferred_cluster": [True, 1, 1]}, "attributes.preferred_cluster.0: true is not a whole"),
    ],
)
def test_no_value_of_a_launch_file_is_converted(
    advisor: Advisor, launch: Callable[..., str], place: tuple[str | int, ...], value: object, message: str
) -> None:
    result = advisor("emulate", PTX, "--launch", launch(put(*place, value=value)))
    assert result.status == EXIT_INPUT
    assert message in result.stderr
    assert "[EMU_LAUNCH_FILE]" in result.stderr


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (put("entry", value="axpz"), "EMU_ENTRY"),
        (lambda d: d["params"].pop(), "EMU_PARAMETERS"),
        (put("params", 3, "kind", value="u64"), "EMU_PARAMETERS"),
        (put("params", 3, "value", value=1 << 32), "EMU_PARAMETERS"),
        (put("params", 2, value={"kind": "bytes", "name": "alpha", "value": "00003f"}), "EMU_PARAMETERS"),
        (put("params", 2, value={"kind": "bytes", "name": "alpha", "value": "0000003"}), "EMU_LAUNCH_FILE"),
        (put("params", 0, "buffer", value="w"), "EMU_BUFFER"),
        (put("params", 0, "offset_bytes", value="4001"), "EMU_BUFFER"),
        (put("block", value=[512, 1, 1]), "EMU_LAUNCH_REFUSED"),
        (put("block", value=[0, 1, 1]), "EMU_LAUNCH_FILE"),
        (put("block", value=[256, -1, 1]), "EMU_LAUNCH_FILE"),
        (put("cluster", value=[16, 1, 1]), "EMU_LAUNCH_REFUSED"),
        (put("cluster", value=[3, 1, 1]), "EMU_LAUNCH_REFUSED"),
        (put("cluster", value=[0, 1, 1]), "EMU_LAUNCH_REFUSED"),
        (put("grid_blocks", value=[0, 1, 1]), "EMU_LAUNCH_REFUSED"),
        (put("dynamic_smem_bytes", value=240_000), "EMU_LAUNCH_REFUSED"),
        (put("dynamic_smem_bytes", value=-1), "EMU_LAUNCH_FILE"),
        (put("params", 3, "value", value="n"), "EMU_LAUNCH_FILE"),
        (put("params", 3, "kind", value="tuple"), "EMU_LAUNCH_FILE"),
        (put("params", value=7), "EMU_LAUNCH_FILE"),
        (put("params", 0, "size", value="8"), "EMU_LAUNCH_FILE"),
        (put("buffers", "x", "shape", value=[-1]), "EMU_LAUNCH_FILE"),
        (put("buffers", "x", "shape", value=[1 << 50]), "EMU_LAUNCH_FILE"),
        (put("buffers", "x", "dtype", value="float12"), "EMU_LAUNCH_FILE"),
        (lambda d: d.pop("block"), "EMU_LAUNCH_FILE"),
        (put("expected", 0, "formula", value="exit()"), "EMU_FORMULA"),
        (put("expected", 0, "bound", value="x @"), "EMU_FORMULA"),
        (put("expected", 0, "buffer", value="z"), "EMU_FORMULA"),
    ],
)
def test_a_launch_that_does_not_fit_exits_2(
    advisor: Advisor, launch: Callable[..., str], change: Callable[[dict[str, Any]], object], code: str
) -> None:
    result = advisor("emulate", PTX, "--launch", launch(change), "--json")
    assert result.status == EXIT_INPUT, result.stderr
    assert result.document["error"]["code"] == code
    assert result.document["error"]["fix"]
    assert "Traceback" not in result.stderr


def test_a_formula_that_cannot_be_evaluated_is_known_before_the_kernel_runs(
    advisor: Advisor, launch: Callable[..., str]
) -> None:
    def change(document: dict[str, Any]) -> None:
        longer(document)
        document["expected"][0]["formula"] = "x @ y.mT"

    result = advisor("emulate", PTX, "--launch", launch(change))
    assert result.status == EXIT_INPUT
    assert "[EMU_FORMULA]" in result.stderr
    assert "EMU_OUT_OF_BOUNDS" not in result.stdout


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"int main() { return 0; }\n", "EMU_PTX_SYNTAX"),
        (b"", "EMU_PTX_SYNTAX"),
        (b"\x7fELF\x02\x01\xff\xfe", "EMU_INPUTS_FILE"),
        (b"\x00\x01\x02", "EMU_PTX_SYNTAX"),
    ],
)
def test_what_is_no_ptx_exits_2(advisor: Advisor, workplace: Path, text: bytes, code: str) -> None:
    (workplace / "kernel.ptx").write_bytes(text)
    result = advisor("emulate", "kernel.ptx", "--launch", LAUNCH, "--json")
    assert (result.status, result.document["error"]["code"]) == (EXIT_INPUT, code)


@pytest.mark.parametrize("text", ["{", "[]", "\ud800", "[" * 100_000])
def test_a_launch_file_that_is_none_exits_2(advisor: Advisor, workplace: Path, text: str) -> None:
    (workplace / "launch.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    result = advisor("emulate", PTX, "--launch", "launch.json", "--json")
    assert (result.status, result.document["error"]["code"]) == (EXIT_INPUT, "EMU_LAUNCH_FILE")


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        ({"x": np.zeros(3999, np.uint8)}, "EMU_BUFFER"),
        ({"w": np.zeros(4, np.uint8)}, "EMU_BUFFER"),
        ({"x": np.array([{}], object)}, "EMU_INPUTS_FILE"),
    ],
)
def test_inputs_that_do_not_fit_exit_2(advisor: Advisor, workplace: Path, arrays: dict[str, Any], code: str) -> None:
    np.savez(workplace / "in.npz", **arrays)
    result = advisor("emulate", PTX, "--launch", LAUNCH, "--inputs", "in.npz", "--json")
    assert (result.status, result.document["error"]["code"]) == (EXIT_INPUT, code)


@pytest.mark.parametrize("content", [b"no archive", b"", b"PK\x03\x04 broken"])
def test_inputs_that_are_no_archive_exit_2(advisor: Advisor, workplace: Path, content: bytes) -> None:
    (workplace / "in.npz").write_bytes(content)
    result = advisor("emulate", PTX, "--launch", LAUNCH, "--inputs", "in.npz", "--json")
    assert (result.status, result.document["error"]["code"]) == (EXIT_INPUT, "EMU_INPUTS_FILE")
    np.save(workplace / "one.npy", np.zeros(3))
    result = advisor("emulate", PTX, "--launch", LAUNCH, "--inputs", "one.npy", "--json")
    assert (result.status, result.document["error"]["code"]) == (EXIT_INPUT, "EMU_INPUTS_FILE")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--async", "sometimes"), "EMU_POLICY"),
        (("--mma", "fp64"), "EMU_POLICY"),
        (("--profile", "h999"), "UNKNOWN_TARGET"),
        (("--inputs", "missing.npz"), "EMU_INPUTS_FILE"),
        (("--outputs", "missing/out.npz"), "OUTPUT_NOT_WRITABLE"),
        (("--outputs", "examples"), "OUTPUT_NOT_WRITABLE"),
    ],
)
def test_an_option_that_is_wrong_exits_2(advisor: Advisor, options: tuple[str, str], code: str) -> None:
    result = advisor("emulate", PTX, "--launch", LAUNCH, *options, "--json")
    assert (result.status, result.document["error"]["code"]) == (EXIT_INPUT, code), result.stderr


def test_buffers_larger_than_this_machine_exit_2(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor import emulator

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(emulator, "run", full)
    result = advisor("emulate", PTX, "--launch", LAUNCH, "--json")
    assert (result.status, result.document["error"]["code"]) == (EXIT_INPUT, "EMU_BUFFER")


def test_a_file_that_is_missing_exits_2(advisor: Advisor) -> None:
    assert advisor("emulate", "missing.ptx", "--launch", LAUNCH).status == EXIT_INPUT
    assert advisor("emulate", PTX, "--launch", "missing.json").status == EXIT_INPUT
    assert advisor("emulate", PTX).status == EXIT_INPUT


def test_a_launch_file_with_a_number_of_too_many_digits_is_refused(tmp_path: Path) -> None:
    from advisor.emulator.launch_file import read_launch

    path = tmp_path / "launch.json"
    path.write_text('{"dynamic_smem_bytes": ' + "9" * 5000 + "}")
    with pytest.raises(InputError) as caught:
        read_launch(path)
    assert caught.value.code == "EMU_LAUNCH_FILE"
