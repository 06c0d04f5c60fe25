"""What a plan says of a row reduction: the views of steps 1, 2 and 3, and what can be counted.

Kinds return records; the planner puts them into its steps. Imports `kernels`, `space` and `records`.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.kinds.row_reduce import kernels, space
from advisor.kinds.words import Chosen, View
from advisor.kinds.workload import DRAM_SHARPNESS
from advisor.machine.occupancy import ctas_per_sm
from advisor.machine.profile import DeviceProfile
from advisor.problem.row_reduce import RowReduceProblem
from advisor.records.candidate import Candidate
from advisor.records.counts import CountRow
from advisor.records.plan import Decision, Reason
from advisor.records.rows import Traffic

CLC_ROWS = (
    ("arm", "warp 0 of each CTA", "mbarrier.arrive.expect_tx of 16 bytes on its own barrier", "before the request"),
    ("request", "1 elected thread of warp 0 of CTA 0", "clusterlaunchcontrol.try_cancel, multicast to the cluster",
     "one per cluster, as the copies of the row before it begin"),
    ("wait", "every warp", "mbarrier.try_wait.parity with acquire at cluster scope", "16 bytes have landed"),
    ("read", "every warp", "one 128-bit load, then is_canceled", "once"),
    ("decode", "every warp", "first CTA id + own rank", "only where the predicate says success"),
    ("release", "every warp of every CTA", "fence.proxy.async, then arrive at CTA 0", "after the read"),
    ("stop", "all", "no request after an observed failure; none in flight at exit", "a failure says stop, never all is "
     "done"),
)  # fmt: skip


def kib(count: float) -> str:
    """KiB, or bytes where that is less than one."""
    return f"{count / 1024:.4g} KiB" if count >= 1024 else f"{count:.0f} bytes"


def size_of(count: float) -> str:
    """MiB, or the smaller unit where that is less than one."""
    return f"{count / 2**20:.4g} MiB" if count >= 2**20 else kib(count)


def memory(p: RowReduceProblem, f: Chosen) -> Reason:
    """The arithmetic of the times of DRAM and L2, with every constant in it."""
    c, profile, timing = f.candidate, f.profile, f.timing
    moved, asked = space.dram_bytes(p, c, profile, timing.resident), space.l2_bytes(p, c)
    faster = 1.0 if p.elementwise else space.READ_ONLY
    idle = space.idle_share(c, profile, timing.available)
    uneven = space.uneven_share(c)
    dram_us, l2_us = timing.bounds["dram"], timing.bounds["l2"]
    text = (
        f"DRAM takes {dram_us:.4g} us: {moved:,} bytes at {f'{faster:g} times ' if faster != 1.0 else ''}"
        f"{profile.dram_bytes_per_s / 1e6:.4g} bytes a us"
        + (", as hardly anything is written" if faster != 1.0 else "")
        + (f", longer by {space.IDLE_SHARE:g} of the {idle:.3g} of the CTAs' places that are empty" if idle else "")
        + (f", and by {uneven:.2g} as persistent CTAs ask unevenly" if uneven else "")
        + f"; the L2 {l2_us:.4g} us: {asked:,} bytes of rows, and of weights that a row waits for, at "
        f"{space.L2_BYTES_PER_US:.4g} bytes a us; joined, the {DRAM_SHARPNESS:g}th root of the sum of their "
        f"{DRAM_SHARPNESS:g}th powers, {timing.dram_us:.4g} us"
    )
    numbers = {
        "dram_bytes": moved,
        "dram_bytes_per_us": profile.dram_bytes_per_s / 1e6,
        "read_only": faster,
        "idle": idle,
        "idle_share": space.IDLE_SHARE,
        "uneven_share": uneven,
        "l2_bytes": asked,
        "l2_bytes_per_us": space.L2_BYTES_PER_US,
        "sharpness": DRAM_SHARPNESS,
    }
    return Reason(text=text, evidence="assumed", numbers=numbers)


def on_chip(p: RowReduceProblem, cluster: int) -> int:
    """Bytes of a row that one CTA of a cluster would keep."""
    return space.vectors_of(p, cluster) * kernels.VECTOR_BYTES


def least_cluster(p: RowReduceProblem, profile: DeviceProfile) -> int | None:
    """The smallest cluster of a GPU whose CTAs keep a row in their shared memory; None where its largest cannot."""
    sizes = [size for size in space.CLUSTERS if size <= profile.max_cluster_size]
    return next((size for size in sizes if space.holds(p, size, profile.smem_per_block_bytes)), None)


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def mapping(p: RowReduceProblem, f: Chosen) -> View:
    c, timing, size = f.candidate, f.timing, f.candidate.cluster_size
    share = f"{counted(size, 'CTA')} of {kib(on_chip(p, size))} for each row"
    ranks = [
        [rank, rank, f"{rank} x run to {rank + 1} x run", "run = columns / CTAs, in whole vectors"]
        for rank in range(size)
    ]
    clusters = min(timing.tiles, timing.planned)
    return View(
        decisions=(
            _is_kept(p, f),
            Decision(
                question="How many CTAs share a row?",
                choice=f"{size}" if size > 1 else "one: no cluster",
                because=[Reason(text=share, evidence="derived")],
                rejected=f.rejections("cluster_size", size, "cluster of {}"),
            ),
            _threads_and_slots(f),
        ),
        artifact={
            "coordinates": {"columns": ["rank", "x", "columns_of_a_row", "arithmetic"], "rows": ranks},
            "sizes": {
                "columns": ["extent", "per_cta", "per_cluster"],
                "rows": [["rows", c.tile[0], c.tile[0]], ["columns", c.tile[1], c.tile[1] * size]],
            },
            "grid_blocks": clusters * size,
            "grid_clusters": clusters,
            "grid_launch": [clusters * size, 1, 1],
            "work_clusters": timing.tiles,
        },
    )


def _is_kept(p: RowReduceProblem, f: Chosen) -> Decision:
    c, profile = f.candidate, f.profile
    w = kernels.work_of(c)
    if w.vectors:
        run = kib(on_chip(p, c.cluster_size))
        choice = f"kept on chip: {counted(w.vectors, 'vector')} of 16 bytes a thread, {run} a CTA"
        because = [_where_it_fits(p, profile), *(_beside_eight(p) if c.nonportable else ())]
    elif p.elementwise:
        choice = "streamed twice: once for the partials, once for the results"
        because = [_where_it_fits(p, profile), *_streamed_twice(p, f)]
    else:
        choice = "streamed once: one number a row is the result, so nothing is kept"
        because = [_where_it_fits(p, profile)]
        if c.schedule != "one_tile":
            text = (
                "a CTA or cluster for each streamed row (one_tile) is not weighed: the costs of streaming were fitted "
                "to persistent CTAs alone"
            )
            because.append(Reason(text=text, evidence="assumed"))
    fitted = (
        "instructions of an element, waits of a row and the cost of an exchange are constants fitted to one "
        f"H200{'' if profile.name == 'h200' else f'; none was measured on {profile.title}'}"
    )
    return Decision(
        question="Is the row kept on chip?",
        choice=choice,
        because=[*because, Reason(text=fitted, evidence="assumed"), memory(p, f)],
        rejected=f.rejections("form", space.form(c)),
    )


def _where_it_fits(p: RowReduceProblem, profile: DeviceProfile) -> Reason:
    row, most = p.cols * p.in_bytes, profile.max_cluster_size
    least = least_cluster(p, profile)
    fits = (
        f"a row is {kib(row)}; the smallest cluster whose shared memory keeps it has {counted(least, 'CTA')}, "
        f"{kib(on_chip(p, least))} each"
        if least
        else f"a row is {kib(row)}: {kib(on_chip(p, most))} for each of {counted(most, 'CTA')}, more than their "
        "shared memory"
    )
    return Reason(text=fits, evidence="derived", numbers={"row_bytes": row, "least_cluster": least})


def _streamed_twice(p: RowReduceProblem, f: Chosen) -> Iterator[Reason]:
    c, size, least = f.candidate, f.candidate.cluster_size, least_cluster(p, f.profile)
    moved = space.dram_bytes(p, c, f.profile, f.timing.resident)
    again = max(0, moved - space.read_bytes(p) - space.written_bytes(p) - space.affine_bytes(p))
    text = (
        f"the second reading asks the L2 for {size_of(space.read_bytes(p))}, of which "
        f"{size_of(again)} come from DRAM again"
    )
    yield Reason(text=text, evidence="derived", numbers={"again_bytes": again})
    if c.family == "portable":
        yield Reason(text="the portable kernels keep no row: they stream it, in one CTA", evidence="derived")
    elif least and size >= least:
        text = (
            f"{counted(size, 'CTA')} could keep the row: it is streamed because the model has the second "
            "reading, out of the L2, cheaper than keeping it"
        )
        yield Reason(text=text, evidence="derived", numbers={"least_cluster": least})


def _beside_eight(p: RowReduceProblem) -> Iterator[Reason]:
    """Why more CTAs than a portable cluster has."""
    eight = on_chip(p, 8)
    limit = kernels.SMEM_BYTES["sm90"]
    text = f"8 CTAs, the largest portable cluster, would have to keep {kib(eight)} each; a CTA has {kib(limit)}"
    if eight <= limit:
        fit = kernels.SMEM_PER_SM_BYTES // (eight + kernels.SMEM_RESERVED_BYTES)
        text = f"8 CTAs would keep {kib(eight)} each, {counted(fit, 'CTA')} to an SM by shared memory"
    yield Reason(text=text, evidence="derived", numbers={"bytes_at_8": eight, "limit": limit})


def _threads_and_slots(f: Chosen) -> Decision:
    c, w = f.candidate, kernels.work_of(f.candidate)
    vectors, registers = f.tiles.k_steps, kernels.resources(c).registers
    ahead = max(0, c.stages - w.vectors)
    slots = f"{counted(c.stages, 'slot')} of 16 bytes a thread"
    if w.vectors:
        slots += f": the row and {counted(ahead, 'vector')} of the next one" if ahead else ": the row"
    side = kernels.rows_per_cta(c)
    beside = f"{side} rows side by side" if side > 1 else "one row at a time"
    text = (
        f"{counted(vectors, 'vector')} a thread, {registers} registers, {counted(w.ctas_per_sm, 'CTA')} an SM by "
        "registers"
    )
    return Decision(
        question="How many threads, and slots?",
        choice=f"{w.row_threads} threads of a CTA to a row, {beside}; {slots}",
        because=[Reason(text=text, evidence="derived", numbers={"vectors": vectors, "registers": registers})],
        rejected=f.rejections("threads", c.threads, "{} threads"),
    )


def exchange(p: RowReduceProblem, f: Chosen, traffic: Traffic) -> View:
    c = f.candidate
    w, size = kernels.work_of(c), c.cluster_size
    fence = "cp.async.wait_group of the same thread; nobody else reads the slot"
    rows: list[list[object]] = [
        ["X", "cp.async, every thread its own vectors", "the same thread", kernels.VECTOR_BYTES, "none", 16, fence,
         "from its copy to its last reading"],
    ]  # fmt: skip
    if w.row_threads > 32:
        rows.append(
            ["partials of warps", "lane 0 of each warp", "every warp of the CTA", kernels.PARTIAL_BYTES, "none", 16,
             "a barrier of the CTA", "one row; the other half is the next row's"]
        )  # fmt: skip
    if size > 1:
        rows.append(
            [kernels.PUSHED, f"{size} lanes of warp 0, st.async, {kernels.PARTIAL_BYTES} bytes to each CTA",
             "every warp of each CTA", kernels.PARTIAL_BYTES * (size - 1), "none: unicast by rank", kernels.PUSH_BYTES,
             "complete_tx on the receiver's mbarrier; its readers acquire at cluster scope",
             "one row; the other half is the next row's"]
        )  # fmt: skip
    stored = ["Y", "every thread, from registers", "global memory, ordinary stores", kernels.VECTOR_BYTES, "none", 16]
    rows.append([*stored, "none", "one row"])
    choice = "nothing is shared between CTAs"
    because = [
        Reason(
            text="a row is reduced by shuffles within a warp"
            + (", then through shared memory" if w.row_threads > 32 else ""),
            evidence="derived",
        )
    ]
    if size > 1:
        choice = f"one exchange a row: {kernels.EXCHANGED[p.op]}, packed into {kernels.PARTIAL_BYTES} bytes"
        a_row = size * size * kernels.PARTIAL_BYTES
        because += [
            Reason(
                text=f"{size} CTAs push {kernels.PARTIAL_BYTES} bytes to each other: {a_row} bytes a row, "
                f"{size_of(traffic.dsmem_bytes)} in all, each in a 32-byte segment of its own",
                evidence="derived",
                numbers={"dsmem_bytes": traffic.dsmem_bytes},
            ),
            Reason(
                text="pushed, not pulled: remote reads reach 4.8 B/clk where remote stores reach 21.4 on an H100 "
                "(CR26, table II)",
                evidence="published",
            ),
        ]
    return View(
        decisions=(Decision(question="What do CTAs share, and how?", choice=choice, because=because),),
        artifact={
            "buffers": {
                "columns": [
                    "buffer",
                    "producer",
                    "consumer",
                    "bytes",
                    "multicast_mask",
                    "align_bytes",
                    "fences",
                    "lifetime",
                ],
                "rows": rows,
            },
            "smem": {"columns": ["part", "bytes"], "rows": [list(each) for each in kernels.resources(c).smem_parts]},
        },
    )


def gain(p: RowReduceProblem, f: Chosen, single: Candidate) -> str:
    """What a cluster changes about the best design of single CTAs."""
    c, sms = f.candidate, f.profile.sms
    if kernels.passes(p, single) > kernels.passes(p, c):
        row = kib(p.cols * p.in_bytes)
        why = "cannot keep" if (least_cluster(p, f.profile) or 0) != 1 else "streams"
        return f"one CTA {why} a row of {row} and reads it twice; {c.cluster_size} CTAs read it once"
    shared = f"{c.cluster_size} CTAs share a row, {kib(on_chip(p, c.cluster_size))} each"
    alone = -(-p.rows // kernels.rows_per_cta(single))
    if alone < sms:
        return f"{counted(alone, 'single CTA')} would leave {sms - alone} of {sms} SMs without a row; {shared}"
    many, few = (
        ctas_per_sm(f.profile, each.threads, each.registers, each.dynamic_smem_bytes)
        for each in (kernels.resources(c), kernels.resources(single))
    )
    return f"{shared}: {many} CTAs fit on an SM, not {few}" if many > few else shared


def count_rows(p: RowReduceProblem, c: Candidate, profile: DeviceProfile, traffic: Traffic) -> list[CountRow]:
    """What the plan's arithmetic says of a launch."""
    least = space.read_bytes(p) + space.written_bytes(p) + space.affine_bytes(p)
    moved = traffic.dram_bytes
    return [
        CountRow(
            group="bytes",
            name="DRAM traffic of a launch",
            unit="bytes",
            value=moved,
            how="every element read once, every result written once, and what a second reading finds gone from the L2",
            relation="at_least",
            limit=least,
            limit_is="what any kernel moves",
            within="no less than any kernel",
            beyond="less than any kernel: a fault of the plan",
        ),
        CountRow(
            group="shared memory",
            name="dynamic shared memory of a CTA",
            unit="bytes",
            value=kernels.smem_bytes(c),
            how="slots, weights that stay, partials, pushes and barriers",
            relation="at_most",
            limit=profile.smem_per_block_bytes,
            limit_is="the opt-in limit of a block",
        ),
    ]
