"""Prints how fast the emulator is: `python -m tests.emulator.benchmark`."""

from __future__ import annotations

import resource
import sys
import time

from advisor.emulator.benchmark import measure_all
from tests.emulator.gemms import Gemm, case_of, problem
from tests.emulator.test_sm90 import candidate

GEMMS = (((256, 512, 256), (128, 128), 0.8), ((1024, 1024, 1024), (128, 256), 12.0))


def rows() -> list[str]:
    """What was measured, and what is asked for."""
    found = [
        f"{rate.name:18} {rate.per_second:12,.0f} warp instructions/s, at least {rate.wanted:9,.0f}"
        for rate in measure_all()
    ]
    for (m, n, k), tile, limit in GEMMS:
        p = problem(m, n, k)
        gemm = Gemm(p, candidate(p, tile, stages=3), "sm_90a")
        start = time.perf_counter()
        gemm.check(case_of(p))
        found.append(f"{f'{m} x {n} x {k}':18} {time.perf_counter() - start:12.2f} s, at most {limit} (bf16, sm_90a)")
    found.append(f"{'memory':18} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:12.2f} GiB, at most 2")
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
