"""Every kernel of the committed bundles, on a device with few SMs, so that tails and waves occur with few tiles."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from advisor.bundle.resolve import Facts, resolve
from advisor.bundle.store import read_bundle, units
from advisor.emulator import load_program, run
from advisor.emulator.world import cut_profile
from advisor.kinds.gemm import numerics
from advisor.machine.profile_file import load_profile
from advisor.problem import load_problem
from advisor.records.case import Case
from advisor.toolchain import Unit, compile_cuda

GENERATED = Path(__file__).parent.parent.parent / "generated"
BUNDLES = {each.name: read_bundle(each) for each in sorted(GENERATED.iterdir()) if (each / "launch.json").exists()}
ROWS = {
    f"{name}-{row.kernel_id}-{row.target}": (name, row)
    for name, bundle in BUNDLES.items()
    for row in units(bundle)
    if row.target in ("sm_80", "sm_90a")
}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["random", "adversarial"])
@pytest.mark.parametrize("key", list(ROWS))
def test_a_kernel_of_a_committed_bundle(key, policy):
    name, row = ROWS[key]
    launch = BUNDLES[name].launch
    kernel = launch.kernel(row.kernel_id)
    p = load_problem(GENERATED / name / "problem.yaml")
    unit = Unit(row.name, row.source, row.headers, row.target, row.defines, row.flags)
    program = load_program(compile_cuda(unit).ptx, kernel.entry)
    device = cut_profile(load_profile("h200"), math.prod(kernel.cluster))
    m, n, k = (
        tile * cluster * count + rest
        for tile, cluster, count, rest in zip(kernel.tile, kernel.cluster, (3, 2, 6), (8, 16, 8), strict=True)
    )
    given = numerics.arguments(p, m, n, k, p.batch) | {"alpha": p.epilogue.alpha, "beta": p.epilogue.beta}
    values = {each.name: given[each.name] for each in launch.arguments}
    case = Case("sample", "more tiles than the device holds", values, "normal", 1)
    facts = Facts(device.sms, device.sms, {kernel.id: 3}, frozenset({kernel.id}))
    resolved = resolve(launch, kernel.id, values, facts, row.target)
    inputs = numerics.inputs(p, case)
    outcome = run(
        program,
        resolved,
        inputs={buffer: each for buffer, each in inputs.items() if buffer != "D" and buffer in resolved.buffers},
        async_policy=policy,
        profile=device,
        registers=kernel.registers,
        seed=3,
    )
    wanted = numerics.reference(p, case, inputs)["D"]
    allowed = numerics.bound(p, case, inputs, kernel.family)["D"]
    inside = ~np.isnan(wanted)
    error = np.abs(outcome.typed("D").astype(np.float64).reshape(wanted.shape) - wanted)
    assert outcome.warnings == ()
    assert (error[inside] <= allowed[inside]).all()
