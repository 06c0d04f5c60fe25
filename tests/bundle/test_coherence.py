"""A launch file that follows the schema and still does not hold together is refused where the bundle is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.bundle import RenderedBundle
from advisor.bundle.coherence import check_launch
from advisor.errors import BundleError
from advisor.records.launch import Launch

ROOT = Path(__file__).parent.parent.parent
Document = dict[str, Any]


def changed(rendered: RenderedBundle, change: Callable[[Document], object]) -> Launch:
    document = rendered.launch.model_dump(mode="json")
    change(document)
    return Launch.model_validate(document)


def kernel(**fields: object) -> Callable[[Document], object]:
    return lambda document: document["kernels"][0].update(fields)


def param(index: int, **fields: object) -> Callable[[Document], object]:
    return lambda document: document["kernels"][0]["params"][index].update(fields)


def argument(index: int, **fields: object) -> Callable[[Document], object]:
    return lambda document: document["arguments"][index].update(fields)


def buffer(name: str, **fields: object) -> Callable[[Document], object]:
    return lambda document: document["buffers"][name].update(fields)


def rung(**fields: object) -> Callable[[Document], object]:
    return lambda document: document["ladder"][0].update(fields)


def test_a_rendered_launch_holds_together(rendered: RenderedBundle) -> None:
    check_launch(rendered.launch, rendered.files, Path("sample"))


@pytest.mark.parametrize("launch", sorted(ROOT.glob("generated/*/launch.json")), ids=lambda path: path.parent.name)
def test_every_committed_launch_holds_together(launch: Path) -> None:
    folder = launch.parent
    files = {
        str(each.relative_to(folder)): each.read_text(encoding="utf-8")
        for each in folder.rglob("*")
        if each.suffix in (".cu", ".cuh")
    }
    check_launch(Launch.model_validate_json(launch.read_text(encoding="utf-8")), files, folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (kernel(source="../kernel.cu"), "not in the bundle"),
        (kernel(images={"sm_90a": "../../evil.cubin"}), "not a cubin of build/"),
        (kernel(images={"sm_90a": "/tmp/evil.cubin"}), "not a cubin of build/"),
        (kernel(images={"sm_90a": "build/../plan.json"}), "not a cubin of build/"),
        (kernel(images={"--output=x": "build/a.cubin"}), "for a target like sm_90a"),
        (kernel(images={"sm_90a": "build/portable_one_tile.sm_80.cubin"}), "more than one kernel"),
        (kernel(images={}), "no image"),
        (kernel(defines={"A;B": "1"}), "one macro definition"),
        (kernel(defines={"A": "1\n#include </etc/passwd>"}), "one macro definition"),
        (kernel(entry='x"; system("id'), "no name of a function"),
        (kernel(id="../../x"), "no name"),
        (kernel(id="portable_one_tile"), "more than once"),
        (kernel(block=[0, 1, 1]), "block"),
        (kernel(block=[1024, 2, 1]), "block"),
        (kernel(cluster=[0, 1, 1]), "cluster"),
        (kernel(cluster=[32, 1, 1]), "cluster"),
        (kernel(cluster=[2, 1, 1], attributes={"preferred_cluster": [3, 1, 1]}), "preferred cluster"),
        (kernel(cluster=[2, 1, 1], attributes={"preferred_cluster": [4, 1, 2]}), "equal in z"),
        (kernel(cluster=[2, 1, 1], attributes={"preferred_cluster": [32, 1, 1]}), "at most 16"),
        (kernel(grid_blocks=["m == n", "1", "1"]), "condition where a number belongs"),
        (kernel(grid_blocks=["m * q", "1", "1"]), "'q', which has no value"),
        (kernel(grid_blocks=["max_active_clusters('portable_one_tile')", "1", "1"]), "only a rung's condition"),
        (kernel(dynamic_smem_bytes="loadable('portable_one_tile')"), "condition where a number belongs"),
        (param(0, buffer="Z"), "no buffer 'Z'"),
        (param(0, global_dim=["k", "alpha", "batch"]), "'alpha', which has no value"),
        (param(1, offset_bytes="True"), "condition where a number belongs"),
        (param(2, value=1.5), "not an integer expression"),
        (param(3, value="gamma"), "not an argument"),
        (param(4, align=3), "power of two"),
        (rung(run="sm90_clc"), "no such kernel"),
        (rung(when="m + 1"), "not a condition"),
        (rung(when="loadable('sm90_clc')"), "there is none"),
        (rung(when="aligned('Z', 16)"), "there is none"),
        (rung(when="max_active_clusters > 0"), "'max_active_clusters', which has no value"),
        (lambda document: document.update(ladder=[]), "no rung"),
        (lambda document: document.update(name='x"; y'), "no name for the bundle"),
        (lambda document: document.update(sequences={"both": []}), "not all kernels"),
        (lambda document: document.update(sequences={"both": ["nobody"]}), "not all kernels"),
        (lambda document: document["arguments"].append(document["arguments"][0]), "more than once"),
        (lambda document: document["arguments"][0].update(name="__class__"), "no name for an argument"),
        (lambda document: document["arguments"][0].update(name="num_sms"), "the device answers"),
        (argument(0, min=9, max=8), "at least 9 and at most 8"),
        (argument(0, default=-1), "its default -1 is out of its range"),
        (argument(0, default=1.5), "its default 1.5 is no whole number"),
        (buffer("A", align_bytes=0), "power of two"),
        (buffer("A", align_bytes=-16), "power of two"),
        (buffer("A", align_bytes=2**40), "power of two up to"),
        (argument(0, max=2**70), "no number of 64 bits"),
        (param(0, name=""), "no name for a parameter"),
        (buffer("A", shape=["batch", "m", -1]), "-1 is no number of a launch"),
        (buffer("A", shape=["batch", "m", 2**63]), "is no number of a launch"),
        (kernel(registers=0), "0 registers"),
        (kernel(registers=2**31), "registers a thread"),
        (kernel(tmem_columns=-1), "tensor memory"),
        (kernel(tmem_columns=48), "tensor memory"),
        (kernel(tmem_columns=1024), "tensor memory"),
        (kernel(dynamic_smem_bytes=-1), "no number of a launch"),
        (kernel(dynamic_smem_bytes=232_449), "at most 232448"),
        (kernel(dynamic_smem_bytes="200000 + 32449"), "at most 232448"),
        (kernel(static_smem_bytes=-1), "shared memory"),
        (kernel(grid_blocks=["0", "1", "1"]), "0 blocks along x"),
        (kernel(grid_blocks=[1, 65_536, 1]), "65536 blocks along y"),
        (kernel(tile=[0, 128, 64]), "a tile of [0, 128, 64]"),
        (kernel(nonportable=True), "not of a non-portable size"),
        (param(0, rank=6), "rank 6"),
        (param(0, rank=0), "rank 0"),
        (param(0, box_dim=[64]), "not those of rank"),
        (param(0, box_dim=[64, 257, 1]), "a box of"),
        (param(0, box_dim=[64, 0, 1]), "a box of"),
        (param(0, element_strides=[1, 1, 9]), "a step of"),
        (param(2, value=-4), "-4 is no number of a launch"),
    ],
)
def test_what_does_not_fit_is_named(rendered: RenderedBundle, change: Callable[[Document], object], words: str) -> None:
    with pytest.raises(BundleError) as caught:
        check_launch(changed(rendered, change), rendered.files, Path("sample"))
    assert caught.value.code == "BUNDLE_LAUNCH"
    assert words in caught.value.message
    assert "sample/launch.json" in str(caught.value)


def test_an_expression_of_another_language_is_refused_before_anything_evaluates_it(rendered: RenderedBundle) -> None:
    launch = changed(rendered, rung(when="__import__('os').system('id')"))
    with pytest.raises(BundleError) as caught:
        check_launch(launch, rendered.files, Path("sample"))
    assert caught.value.code == "EXPRESSION_INVALID"


def test_a_header_that_is_not_in_the_bundle_is_named(rendered: RenderedBundle) -> None:
    files = {**rendered.files, "include/types.cuh": '#include "/etc/passwd"\n'}
    with pytest.raises(BundleError, match="/etc/passwd"):
        check_launch(rendered.launch, files, Path("sample"))
