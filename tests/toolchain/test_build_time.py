"""What a user waits for: the images of one bundle, cold and cached."""

from __future__ import annotations

import time

from advisor.codegen import templates
from advisor.kinds.gemm import portable, sm90
from advisor.kinds.gemm.work import GemmWork
from advisor.problem.gemm import GemmProblem
from advisor.records.candidate import Candidate
from advisor.records.launch import KernelSpec
from advisor.toolchain import Cache, Unit, compile_cuda, compile_many, compiler_version


def bundle_units() -> list[Unit]:
    """Three Hopper kernels and the portable one for its four targets: what an H200 plan builds."""
    p = GemmProblem(kind="gemm", m=8192, n=8192, k=8192, epilogue={"bias": "row", "activation": "gelu"})
    specs: list[KernelSpec] = portable.kernels(p, portable.candidates(p)[0])
    for cluster, schedule in ((2, "static"), (2, "ticket"), (1, "one_tile")):
        work = GemmWork(multicast_b=cluster)
        specs += sm90.kernels(p, Candidate("sm90", (cluster, 1, 1), schedule, (128, 256, 64), 4, 384, work))
    units = []
    for spec in specs:
        source = templates.render(spec.template, **spec.context)
        headers = templates.headers_for(source)
        units += [
            Unit(spec.kernel.source, source, headers, target, spec.kernel.defines) for target in spec.kernel.images
        ]
    return units


def test_a_bundle_builds_cold_within_five_seconds_and_comes_cached_within_a_fifth(tmp_path):
    units, cache = bundle_units(), Cache(tmp_path)
    assert len(units) == 7
    compiler_version()
    start = time.process_time()  # of all threads: what one core would take, whatever else the machine does
    compile_many(units, 2, cache=cache)
    assert time.process_time() - start < 5.0
    start = time.perf_counter()
    assert all(compile_cuda(each, cache=cache).cached for each in units)
    assert time.perf_counter() - start < 0.2
