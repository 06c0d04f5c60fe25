"""Faults of synchronisation that both the emulator and sentryward support: one edit each of a kernel of opengemm.

The kernel: three tiles of one CTA, four steps of K through three stages, two accumulators; warps for the copies, the
products and the epilogue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cache

from tests.emulator.peers.opengemm import Emitted, emitted

Edit = Callable[[str], str]


@cache
def kernel() -> Emitted:
    return emitted("bf16", 384, 128, 256)


def nth(pattern: str, which: Collection[int], replacement: str = "") -> Edit:
    """Replaces the matches whose numbers are in `which`."""

    def edit(ptx: str) -> str:
        matches = list(re.finditer(pattern, ptx, flags=re.M))
        assert max(which) < len(matches), pattern
        for each in sorted(which, reverse=True):
            match = matches[each]
            ptx = ptx[: match.start()] + match.expand(replacement) + ptx[match.end() :]
        return ptx

    return edit


def every(pattern: str, replacement: str = "") -> Edit:
    def edit(ptx: str) -> str:
        changed, count = re.subn(pattern, replacement, ptx, flags=re.M)
        assert count, pattern
        return changed

    return edit


_WAIT = r"WAIT: mbarrier\.try_wait\.parity\.acquire\.cluster\S+ P, [^;]*;"  # 1 accumulator, 2 to 4 stage, 5 sums
_GONE = "WAIT: setp.eq.u32 P, 0, 0;"
_EMPTY = r"mbarrier\.try_wait\.parity\.acquire\.cta\S+\s+p, [^;]*;"
_COMMIT = r"^\s*tcgen05\.commit[^;]*;\n"  # 0 to 2 a stage, 3 the sums
_EXPECT = r"(mbarrier\.arrive\.expect_tx\S+ _, \[[^\]]+\], )%r\d+;"
_BARRIER = r"^\s*bar\.sync[^;]*;\n"


def _expected(more: int) -> Edit:
    return lambda ptx: every(_EXPECT, rf"\g<1>{kernel().geometry['stage_tx'] + more};")(ptx)


FAULTS: dict[str, Edit] = {
    "the products do not wait for their stage": nth(_WAIT, (2, 3, 4), _GONE),
    "the copies do not wait for a free stage": every(_EMPTY, "setp.eq.u32 p, 0, 0;"),
    "the epilogue does not wait for the sums": nth(_WAIT, (5,), _GONE),
    "the products do not wait for the accumulator": nth(_WAIT, (1,), _GONE),
    "no commit gives a stage back": nth(_COMMIT, (0, 1, 2)),
    "the sums are not committed": nth(_COMMIT, (3,)),
    "the accumulator is not given back": nth(r"^\s*mbarrier\.arrive\.shared::cluster[^;]*;\n", (1,)),
    "16 bytes more are expected": _expected(16),
    "16 bytes less are expected": _expected(-16),
    "a stage that waits for two arrivals": nth(
        r"(mbarrier\.init\.shared::cta\.b64 \[%r\d+\], )%r\d+;", (0,), r"\g<1>2;"
    ),
    "no barrier after the mbarriers are made": nth(_BARRIER, (0,)),
    "no barrier after the loads, before the accumulator is given back": nth(_BARRIER, (1,)),
    "no barrier before the store reads what the warps staged": nth(_BARRIER, (4,)),
    "the store is not waited for": every(r"^\s*cp\.async\.bulk\.wait_group 0;\n"),
    "the loads of tensor memory are not waited for": every(r"^\s*tcgen05\.wait::ld[^;]*;\n"),
    "no barrier before tensor memory is freed": nth(_BARRIER, (6, 7)),
}
REDUNDANT: dict[str, Edit] = {  # the next barrier orders the same accesses
    "no barrier between a store and what is staged next": nth(_BARRIER, (5,)),
}
