"""How many operands an instruction takes, by its opcode and leading qualifiers (PTX ISA 9.0). Imports nothing.

The parser asks for every instruction, so that what executes one may rely on its operands being there. Opcodes that are
not in the table are not executed: they are refused by name later.
"""

from __future__ import annotations

from collections.abc import Sequence

_TABLE = """
0  brkpt exit ret trap membar fence griddepcontrol barrier.cluster tcgen05.fence tcgen05.wait
0  tcgen05.relinquish_alloc_permit wgmma.fence wgmma.commit_group cp.async.commit_group cp.async.wait_all
0  cp.async.bulk.commit_group
1  activemask bra pmevent nanosleep setmaxnreg prefetch prefetchu bar.warp mbarrier.inval wgmma.wait_group
1  cp.async.wait_group cp.async.bulk.wait_group cp.async.mbarrier tcgen05.shift tcgen05.commit
2  abs applypriority bfind brev brx clz clusterlaunchcontrol cnot cos cvta discard elect ex2
2  fence.proxy.tensormap::generic.acquire getctarank isspacep ld ldmatrix ldu lg2 mov movmatrix neg not popc rcp red
2  rsqrt sin sqrt st stmatrix tanh testp
2  mbarrier.init mbarrier.expect_tx mbarrier.complete_tx mbarrier.pending_count tcgen05.alloc tcgen05.dealloc tcgen05.cp
2  cp.async.bulk.prefetch
3  add addc and atom copysign div mapa match mul mul24 or redux rem shl shr sub subc szext vote xor
3  st.async st.bulk red.async mbarrier.arrive.noComplete mbarrier.arrive_drop.noComplete
4  atom.cas bfe dp2a dp4a fma fns mad mad24 madc prmt sad selp shf slct
5  bfi shfl
1-2  bar.sync barrier.sync
1-4  createpolicy
2  bar.arrive barrier.arrive
3-4  bar.red barrier.red
2-4  cvt
2-3  mbarrier.arrive mbarrier.arrive_drop tensormap tcgen05.ld tcgen05.st
3-4  mbarrier.test_wait mbarrier.try_wait max min set setp bmsk
3-4  cp.async.ca cp.async.cg
3-5  cp.async.bulk cp.reduce.async.bulk
2-4  cp.async.bulk.tensor
1-2  cp.async.bulk.prefetch.tensor
2  cp.reduce.async.bulk.tensor
4-10  mma
4-10  wgmma.mma_async
5-8  tcgen05.mma
2-5  tcgen05.ld.red
5-6  lop3
"""
_MORE = ("L2::cache_hint", "multicast::cluster")
"""Qualifiers that each bring an operand more."""


def _read(table: str) -> dict[tuple[str, ...], tuple[int, int]]:
    counts: dict[tuple[str, ...], tuple[int, int]] = {}
    for line in table.strip().splitlines():
        written, *names = line.split()
        least, _, most = written.partition("-")
        for name in names:
            key = tuple(name.split("."))
            if key in counts:
                raise ValueError(f"{name} stands twice")
            counts[key] = int(least), int(most or least)
    return counts


_COUNTS = _read(_TABLE)
_LONGEST = max(map(len, _COUNTS))


def operand_count(opcode: str, qualifiers: Sequence[str]) -> tuple[int, int] | None:
    """(fewest, most) operands of an instruction; None for an opcode that the table does not have. A predicate beside a
    destination (`p|q`), a vector and an address with coordinates are one operand each."""
    if opcode == "atom" and "cas" in qualifiers:  # which stands behind scope and state space
        qualifiers = ("cas", *qualifiers)
    words = (opcode, *qualifiers)
    for length in range(min(len(words), _LONGEST), 0, -1):
        found = _COUNTS.get(words[:length])
        if found is not None:
            more = sum(each in qualifiers for each in _MORE)
            return found[0] + more, found[1] + more
    return None
