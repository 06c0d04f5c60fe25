"""Draws the random problems of suites/random.yaml: `python benchmarks/draw.py > benchmarks/suites/random.yaml`.

Extents are log-uniform from 64 to 16384, half of them as they fall, half rounded down to a multiple of 8. TMA takes
leading dimensions of whole 16 bytes, so an odd one is padded, as a caller with a choice would pad it. Nothing of the
planner is asked, and nothing is left out: the seed is the first one that was tried.
"""

from __future__ import annotations

import random
import sys

SEED = 1
COUNT = 40
LOW, HIGH = 64, 16384
STEP = 8  # elements in 16 bytes of bf16

HEAD = f"""\
title: {COUNT} random shapes, extents {LOW} to {HIGH}, odd tails with padded leading dimensions
# Written by benchmarks/draw.py, seed {SEED}.
compare: [library]
defaults: {{kind: gemm, dtype: bf16}}
problems:
"""


def draw(source: random.Random) -> int:
    value = int(LOW * (HIGH / LOW) ** source.random())
    if source.random() < 0.5:
        return max(LOW, value // STEP * STEP)
    return value


def padded(extent: int) -> int:
    return -(-extent // STEP) * STEP


def main() -> None:
    source = random.Random(SEED)
    lines = []
    for _ in range(COUNT):
        m, n, k = draw(source), draw(source), draw(source)
        strides = f"a: {{ld: {padded(k)}}}, b: {{ld: {padded(k)}}}, d: {{ld: {padded(n)}}}"
        plain = k % STEP == 0 and n % STEP == 0
        lines.append(f"  - {{m: {m}, n: {n}, k: {k}{'' if plain else ', ' + strides}}}\n")
    sys.stdout.write(HEAD + "".join(lines))


if __name__ == "__main__":
    main()
