"""The whole of it on a GPU: generate an example for the device at hand, validate it, time it against its rival.

Never part of CI: `python -m pytest -m gpu`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.bundle import read_bundle
from advisor.runtime import open_device
from advisor.runtime.probe import probe, probe_units
from advisor.validation import validate
from advisor.workflow import generate

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", ["gemm_small", "gemm_tail", "gemm_decode", "gemm"])
def test_an_example_validates_on_the_device_at_hand(name: str, tmp_path: Path) -> None:
    generated = generate(EXAMPLES / f"{name}.yaml", target="auto", output=tmp_path)
    assert generated.bundle is not None
    with open_device(0) as device:
        evidence = validate(read_bundle(generated.bundle.folder), device=device, experiment="ab")
    wrong = [(each.rung, each.name, each.verdict, each.detail) for each in evidence.cases if each.verdict != "correct"]
    assert wrong == []
    assert evidence.verdict == "pass"
    assert all(each.predicted == each.queried for each in evidence.residency)
    assert evidence.experiment is not None
    assert evidence.experiment["verdict"] in ("confirms", "refutes", "open")


def test_a_probed_profile_agrees_with_the_shipped_one_where_both_are_facts() -> None:
    from advisor.codegen import templates
    from advisor.toolchain import Unit, compile_cuda

    with open_device(0) as device:
        images = {}
        for unit in probe_units(device.info.compute_capability):
            source = templates.load(unit.template)
            compiled = compile_cuda(Unit(f"{unit.name}.cu", source, templates.headers_for(source), unit.target, {}))
            images[unit.name] = compiled.cubin
        shipped, probed = device.profile(), probe(device, images).profile
    assert sum(probed.sm_groups) == shipped.sms
    for kind, rate in shipped.tensor_flop_per_clk_per_sm.items():
        assert probed.tensor_flop_per_clk_per_sm[kind] == pytest.approx(rate, rel=0.02)
