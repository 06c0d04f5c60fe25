"""Prints how fast the emulator is: `python -m tests.emulator.benchmark`."""

from __future__ import annotations

import resource
import sys
import time

from advisor.emulator.benchmark import measure_all
from tests.emulator import test_sm90, test_sm100
from tests.emulator.gemms import Gemm, case_of, problem

# M, N and K, the tile of a CTA, at most so many seconds of one core
HOPPER = (((256, 512, 256), (128, 128), 0.8), ((1024, 1024, 1024), (128, 256), 12.0))
BLACKWELL = (((256, 512, 256), (128, 128), 0.8), ((1024, 1024, 1024), (128, 256), 10.0))


def rows() -> list[str]:
    """What was measured, and what is asked for."""
    found = [
        f"{rate.name:18} {rate.per_second:12,.0f} warp instructions/s, at least {rate.wanted:9,.0f}"
        for rate in measure_all()
    ]
    for (m, n, k), tile, limit in HOPPER:
        p = problem(m, n, k)
        found.append(_timed(Gemm(p, test_sm90.candidate(p, tile, stages=3), "sm_90a"), limit, "sm_90a"))
    for (m, n, k), tile, limit in BLACKWELL:
        p = problem(m, n, k)
        pair = test_sm100.candidate(p, tile, (2, 1, 1), "clc", mma_ctas=2, stages=3)
        found.append(_timed(Gemm(p, pair, "sm_100a"), limit, "sm_100a, pairs, Cluster Launch Control"))
    found.append(f"{'memory':18} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:12.2f} GiB, at most 2")
    return found


def _timed(gemm: Gemm, limit: float, what: str) -> str:
    p = gemm.problem
    start = time.process_time()
    gemm.check(case_of(p))
    size = f"{p.m} x {p.n} x {p.k}"
    return f"{size:18} {time.process_time() - start:12.2f} s, at most {limit} (bf16, {what})"


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
