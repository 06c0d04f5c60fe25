"""The tcgen05 family, planned: footprint, barriers and limits of a kernel for sm_100a, sm_100f and sm_103a.

Imports `problem`, `records` and `tma`. There is no template of this family yet, so `kernels` returns nothing: what a
plan says about it is planned and no more. The roles are those of the stock design: warp 0 issues the MMA, warp 1 asks
for work, warp 2 loads through TMA, warp 3 loads C, warps 4 to 7 run the epilogue.

Sources: PTX ISA, tcgen05 (shapes, CTA pairs, tensor memory) and mbarrier; the limits are those of the profiles.
"""

from __future__ import annotations

from advisor.kinds.gemm import tma
from advisor.problem.gemm import ELEMENT_BYTES, GemmProblem
from advisor.records.candidate import Candidate, Resources
from advisor.records.launch import KernelSpec
from advisor.records.rows import BarrierRow, Violation

THREADS = 256
REGISTERS = 168  # 256 threads x 168 = 43,008 of 65,536; the epilogue warps hold a slab of the accumulator
TILE_M = (64, 128)  # per CTA; 64 leaves half of the tensor memory lanes idle
TILE_N = (8, 16, 32, 64, 96, 128, 192, 256)
MIN_STAGES, MAX_STAGES = 2, 10
TMEM_COLUMNS = 512
TMEM_MIN_COLUMNS = 32
SWIZZLE_BYTES = 128  # one row of a K-major tile: every K step is this wide
SLAB_COLUMNS_BYTES = 128  # the epilogue stores D through slabs of 128 bytes by tile M rows
CLC_SLOTS = 3
EPILOGUE_WARPS = 4


def tile_k(p: GemmProblem) -> int:
    """K elements of one stage: 128 bytes, the width of the swizzle."""
    return SWIZZLE_BYTES // p.a.element_bytes


def accumulator_columns(c: Candidate) -> int:
    """Tensor memory columns of one accumulator. A pair of 64 rows per CTA folds N over both halves of the lanes."""
    return c.tile[1] // 2 if c.work.mma_ctas == 2 and c.tile[0] == 64 else c.tile[1]


def accumulators(c: Candidate) -> int:
    """Two where the next tile's MMA can run under this tile's epilogue: persistent, and both fit 512 columns."""
    return 2 if c.schedule != "one_tile" and 2 * accumulator_columns(c) <= TMEM_COLUMNS else 1


def tmem_columns(c: Candidate) -> int:
    """The allocation: one, a power of two from 32 up. Above 512 the candidate is illegal."""
    return _power_of_two(max(TMEM_MIN_COLUMNS, accumulators(c) * accumulator_columns(c)))


def stage_bytes(p: GemmProblem, c: Candidate) -> tuple[int, int]:
    """(A, B) bytes of one stage in one CTA; each CTA of a pair holds half of B's rows."""
    tile_m, tile_n, k = c.tile
    return tile_m * k * p.a.element_bytes, tile_n // c.work.mma_ctas * k * p.b.element_bytes


def resources(p: GemmProblem, c: Candidate) -> Resources:
    """What one CTA occupies. Parts in address order; every part starts on 1,024 bytes where the swizzle needs it."""
    a_bytes, b_bytes = stage_bytes(p, c)
    slab = c.tile[0] * SLAB_COLUMNS_BYTES
    parts = [("align_1024", 1024), ("a_stages", c.stages * a_bytes), ("b_stages", c.stages * b_bytes)]
    if tma.store_through_tma(p):
        parts.append(("d_slabs", 2 * slab))
    if p.uses_c:
        parts.append(("c_slabs", 2 * slab))
    barriers = 2 * c.stages + 2 * accumulators(c) + (2 * CLC_SLOTS if c.schedule == "clc" else 0)
    parts.append(("barriers", 8 * barriers))
    if c.schedule == "clc":
        parts.append(("clc_responses", 16 * CLC_SLOTS))
    parts.append(("tmem_address", 16))
    return Resources(
        threads=c.threads,
        registers=REGISTERS,
        static_smem_bytes=0,
        dynamic_smem_bytes=-(-sum(size for _, size in parts) // 128) * 128,
        tmem_columns=tmem_columns(c),
        smem_parts=tuple(parts),
    )


def violations(p: GemmProblem, c: Candidate) -> list[Violation]:
    """What this family cannot do, whatever the profile."""
    found = tma.input_violations(p)
    tile_m, tile_n, k = c.tile
    pair = c.work.mma_ctas == 2
    if tile_m not in (64, 128) or tile_n not in range(16 if pair else 8, 257, 16 if pair else 8):
        found.append(
            Violation(
                "MMA_SHAPE",
                f"tcgen05.mma takes M 64 or 128 per CTA and N {16 if pair else 8} to 256 in steps of "
                f"{16 if pair else 8} for "
                f"{c.work.mma_ctas} CTA{'s' if pair else ''}; the tile is {tile_m} x {tile_n}",
                {"tile": list(c.tile), "mma_ctas": c.work.mma_ctas},
            )
        )
    if k != tile_k(p):
        found.append(
            Violation(
                "TILE_K",
                f"one stage is {SWIZZLE_BYTES} bytes of K: {tile_k(p)} elements, not {k}",
                {"tile_k": k, "needed": tile_k(p)},
            )
        )
    if pair and c.cluster[0] % 2:
        found.append(
            Violation(
                "PAIR_IN_CLUSTER",
                f"a CTA pair is ranks 2k and 2k+1 along cluster x, so x must be even; it is {c.cluster[0]}",
                {"cluster": list(c.cluster), "mma_ctas": 2},
            )
        )
    if c.schedule == "ticket":
        found.append(
            Violation(
                "SCHEDULE_NOT_BUILT",
                "the tcgen05 family claims work through CLC, not a ticket",
                {"schedule": c.schedule},
            )
        )
    if not MIN_STAGES <= c.stages <= MAX_STAGES:
        found.append(
            Violation(
                "STAGES_RANGE",
                f"{c.stages} stages; {MIN_STAGES} to {MAX_STAGES} are built",
                {"stages": c.stages, "max": MAX_STAGES},
            )
        )
    if c.work.split_k > 1 and c.schedule == "clc":
        found.append(
            Violation(
                "SPLIT_K_SCHEDULE", "split-K runs one tile per CTA or static persistent", {"split_k": c.work.split_k}
            )
        )
    ring, partial = c.stages * sum(stage_bytes(p, c)), tile_m * tile_n * 4
    if c.cluster[2] > 1 and partial > ring:
        found.append(
            Violation(
                "SPLIT_K_RING",
                f"{partial} bytes of partial sums are left in the ring's memory, which has {ring}: more stages or a "
                f"smaller tile",
                {"partial_bytes": partial, "ring_bytes": ring},
            )
        )
    if ELEMENT_BYTES[p.a.dtype] == 4 and p.a.major == "m":
        found.append(
            Violation(
                "TF32_MAJOR", "tf32 operands are K-major here: the 32-byte swizzle atom is not built", {"operand": "A"}
            )
        )
    if ELEMENT_BYTES[p.b.dtype] == 4 and p.b.major == "n":
        found.append(
            Violation(
                "TF32_MAJOR", "tf32 operands are K-major here: the 32-byte swizzle atom is not built", {"operand": "B"}
            )
        )
    return found


def barriers(p: GemmProblem, c: Candidate) -> list[BarrierRow]:
    """Every mbarrier array of one CTA, with the arithmetic of its counts."""
    x, y, z = c.cluster
    pair = c.work.mma_ctas == 2
    a_bytes, b_bytes = stage_bytes(p, c)
    tx = c.work.mma_ctas * (a_bytes + b_bytes)
    readers_a, readers_b = max(1, c.work.multicast_a), max(1, c.work.multicast_b // c.work.mma_ctas)
    issuers = readers_a + readers_b - 1
    depth = accumulators(c)
    rows = [
        BarrierRow(
            name="full",
            scope="pair" if pair else "cta",
            count=c.stages,
            arrivals=1,
            arrivals_from="1 elected thread of the leader's load warp, arrive.expect_tx",
            tx_bytes=tx,
            phases=f"all loads of a K step have landed: {c.work.mma_ctas} CTA x (A {a_bytes} + B {b_bytes}) bytes"
            + ("; both CTAs' loads signal the leader" if pair else ""),
            failure="too many bytes deadlock the MMA warp, too few let it read a tile that has not landed",
        ),
        BarrierRow(
            name="empty",
            scope="cluster" if x * y * z > 1 else "cta",
            count=c.stages,
            arrivals=issuers,
            arrivals_from=f"tcgen05.commit of every MMA issuer that reads this slot: {readers_a} along y + "
            f"{readers_b} along x - 1",
            tx_bytes=0,
            phases="every receiver of this CTA's multicast has read the slot",
            failure="one too few and a peer's tile is overwritten while its MMA reads it",
        ),
        BarrierRow(
            name="accumulator_full",
            scope="pair" if pair else "cta",
            count=depth,
            arrivals=1,
            arrivals_from="1 tcgen05.commit" + (", multicast to both CTAs (mask 3 << (rank & ~1))" if pair else ""),
            tx_bytes=0,
            phases="the accumulator of a tile is complete",
            failure="the epilogue reads columns that the MMA still writes",
        ),
        BarrierRow(
            name="accumulator_empty",
            scope="pair" if pair else "cta",
            count=depth,
            arrivals=EPILOGUE_WARPS * c.work.mma_ctas,
            arrivals_from=f"{EPILOGUE_WARPS} epilogue warps x {c.work.mma_ctas} CTA",
            tx_bytes=0,
            phases="every epilogue warp has read its lanes",
            failure="the next tile's MMA overwrites an accumulator that is being read",
        ),
    ]
    if c.schedule == "clc":
        size = x * y * z
        readers = EPILOGUE_WARPS + 3 + (1 if p.uses_c else 0)
        rows += [
            BarrierRow(
                name="clc_full",
                scope="cluster",
                count=CLC_SLOTS,
                arrivals=1,
                arrivals_from="1 arrive.expect_tx by each CTA's own scheduler warp",
                tx_bytes=16,
                phases="the 16-byte response of one request, multicast to every CTA, has landed",
                failure="a CTA that is not armed loses the response and waits for ever",
            ),
            BarrierRow(
                name="clc_empty",
                scope="cluster",
                count=CLC_SLOTS,
                arrivals=readers * size,
                arrivals_from=f"{readers} reading warps x {size} CTA",
                tx_bytes=0,
                phases="every reading warp of every CTA has decoded the response and passed the proxy fence",
                failure="a slow warp reads the next response: warps disagree on the tile",
            ),
        ]
    return rows + _cluster_rows(c)


def _cluster_rows(c: Candidate) -> list[BarrierRow]:
    """barrier.cluster: every thread of every CTA arrives."""
    size, pair, slices = c.cluster_size, c.work.mma_ctas == 2, c.cluster[2]
    if size == 1:
        return []
    when = {"start": (1, "once, before the first remote access" + (" and the pair's tensor memory allocation" * pair))}
    if slices > 1:
        text = "three times a tile: every ring is idle; all partial sums have arrived; all of them are read"
        when["partials"] = (3, text)
    if pair:
        when["tmem_release"] = (1, "once, before the pair's tensor memory is released")
    when["exit"] = (1, "once, before every thread's exit")
    return [
        BarrierRow(
            name=name,
            scope="cluster",
            count=count,
            arrivals=c.threads * size,
            arrivals_from=f"{c.threads} threads x {size} CTAs (barrier.cluster)",
            tx_bytes=0,
            phases=phases,
            failure="memory of a CTA is used before it runs or after it has gone",
        )
        for name, (count, phases) in when.items()
    ]


def kernels(p: GemmProblem, c: Candidate) -> list[KernelSpec]:
    """None: the family has no template."""
    del p, c
    return []


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()
