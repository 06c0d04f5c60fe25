"""Row reductions in the emulator: every operation, type and form; infinities and NaN as torch has them; the faults that
the exchange could have, each beside the same kernel without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from advisor.emulator import KernelFault
from advisor.emulator.policy import POLICIES
from advisor.kinds.row_reduce import kernels, numerics
from tests.emulator.rows import RowKernel, candidate, own_case, problem
from tests.kinds import torch_rows

OPS = torch_rows.OPS
ELEMENTWISE = OPS[:4]


def affine(op: str) -> dict[str, bool]:
    return {"weight": op in ("layernorm", "rmsnorm"), "bias": op == "layernorm"}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("dtype", "out_dtype"), [("fp16", "fp16"), ("bf16", "fp32"), ("fp32", "fp32")])
def test_a_row_on_a_cluster_is_right_in_every_type(op: str, dtype: str, out_dtype: str) -> None:
    p = problem(op, 5, 700, dtype=dtype, out_dtype=out_dtype, row_stride=704, **affine(op))
    kernel = RowKernel(p, candidate(cluster=2, schedule="static", slots=3))
    kernel.check(own_case(p, out_stride=704 if p.elementwise else 1))


FORMS = {
    "a part of a warp to a row": candidate(threads=128, row_threads=8, vectors=2),
    "a warp to a row": candidate(threads=128, row_threads=32, vectors=2),
    "a CTA to a row": candidate(vectors=4, batch=2),
    "the next row comes in behind": candidate(schedule="static", vectors=2, slots=4),
    "one vector of the next row": candidate(schedule="static", vectors=3, slots=4),
    "all of the next row": candidate(cluster=2, schedule="static", vectors=2, slots=4),
    "all held in registers": candidate(schedule="static", vectors=2, slots=3, held=2),
    "half held in registers": candidate(cluster=2, schedule="static", vectors=4, slots=7, batch=2, held=2),
    "held by one row": candidate(vectors=2, held=2),
    "read early": candidate(cluster=2, schedule="static", vectors=3, slots=5, early=2, prefetch=3),
    "read early beside what is held": candidate(
        cluster=2, schedule="static", vectors=4, slots=7, batch=2, held=2, early=2, prefetch=1
    ),
    "read early of claimed rows": candidate(
        "sm100", cluster=2, schedule="clc", vectors=4, slots=7, batch=2, held=2, early=2, prefetch=2
    ),
    "rows asked ahead": candidate(threads=128, row_threads=32, vectors=2, prefetch=2),
    "weights in registers and slots": candidate(
        cluster=2, schedule="static", vectors=3, slots=4, held=1, weight_slots=1
    ),
    "streamed": candidate(schedule="static", vectors=0),
    "streamed by a cluster": candidate(cluster=4, schedule="static", vectors=0, batch=2),
    "portable": candidate("portable", vectors=0, batch=2),
    "Blackwell": candidate("sm100", cluster=2, schedule="static", vectors=2, slots=4),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", ["softmax", "layernorm", "sum"])
def test_every_form_is_right_at_its_boundaries(form: str, op: str) -> None:
    c = FORMS[form]
    p = problem(op, 3, 100, **affine(op))
    if any(each.code == "ROW_HELD" for each in kernels.violations(p, c)):  # nothing of this operation is held so
        c = replace(c, work=replace(c.work, held=0, weight_slots=0))
    kernel = RowKernel(p, c)
    ran = 0
    for case in numerics.cases(p, c, 2, small=True):
        rows, cols, _, _ = numerics.extents(case)
        fits = not c.work.vectors or cols <= c.work.vectors * c.work.row_threads * c.cluster_size * 8
        if rows == 0 or (cols == 0 and p.elementwise) or not fits or (not case.tma and c.family != "portable"):
            continue
        kernel.check(case, async_policy=POLICIES[ran % len(POLICIES)], seed=ran)
        ran += 1
    assert ran > 6


@pytest.mark.parametrize("op", OPS)
def test_infinities_and_nan_come_out_as_torch_has_them(op: str) -> None:
    rows = torch_rows.special_rows()
    p = problem(op, *rows.shape, dtype="fp32")
    got = RowKernel(p, candidate(cluster=2, schedule="static", slots=4)).of(rows)
    wanted = torch_rows.recorded()[f"special.{op}"].astype(np.float64)
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    infinite = np.isinf(wanted)
    assert np.array_equal(got[infinite], wanted[infinite])  # the sign too
    finite = np.isfinite(wanted)
    assert np.allclose(got[finite], wanted[finite], rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("offset", torch_rows.OFFSETS)
def test_float32_results_err_no_more_than_torch(op: str, offset: float) -> None:
    rows, which = torch_rows.normal_rows(offset), torch_rows.OFFSETS.index(offset)
    p = problem(op, *rows.shape, dtype="fp32")
    case = own_case(p)
    inputs = numerics.inputs(p, case)
    inputs["X"] = rows.reshape(inputs["X"].shape)
    exact = numerics.reference(p, case, inputs)["Y"].reshape(rows.shape if p.elementwise else -1)
    got = RowKernel(p, candidate(cluster=2, schedule="static", vectors=4, slots=6, batch=2)).of(rows)
    error, worst = float(np.sqrt(np.mean((got - exact) ** 2))), float(np.max(np.abs(got - exact)))
    theirs, their_worst = (float(torch_rows.recorded()[f"{each}.{op}"][which]) for each in ("error", "worst"))
    assert error <= theirs
    assert worst <= their_worst


def _large_rows(dtype: str) -> Any:
    """[6, 300]: masks of the lowest number and of one that is large, rows of equal numbers, numbers far from 0."""
    kind = numerics.storage(dtype)
    lowest, far = float(ml_dtypes.finfo(kind).min), 3e4 if dtype == "fp16" else 1e6
    rows = np.random.default_rng(7).standard_normal((6, 300))
    rows[0] = lowest
    rows[1, :200] = lowest
    rows[2, :200] = max(lowest, -1e12)
    rows[3] = -lowest
    rows[4] = -far
    rows[5] += far
    return rows.astype(kind)


@pytest.mark.parametrize("op", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize(
    ("dtype", "out_dtype"), [("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "fp16"), ("bf16", "fp32")]
)
def test_exponentials_of_large_numbers_are_as_exact_as_of_others(op: str, dtype: str, out_dtype: str) -> None:
    rows = _large_rows(dtype)
    p = problem(op, *rows.shape, dtype=dtype, out_dtype=out_dtype, row_stride=304)
    held = 2 if kernels.held_kind(p) else 0
    x = rows.astype(np.float64)
    largest = x.max(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        below = x - largest
    logarithm = np.log(np.exp(below).sum(axis=1, keepdims=True))
    exact = {
        "softmax": np.exp(below - logarithm),
        "log_softmax": below - logarithm,
        "logsumexp": largest + logarithm,
    }[op]
    allowed = (numerics.UNIT_ROUNDOFF[out_dtype] + 2.0**-20) * abs(exact) + numerics.HALF_SUBNORMAL[out_dtype]
    for c in (
        candidate(cluster=2, schedule="static", vectors=4, slots=6, batch=2, held=held),
        candidate(schedule="static", vectors=0),
    ):
        case = own_case(p, out_stride=304 if p.elementwise else 1)
        inputs = numerics.inputs(p, case)
        inputs["X"].reshape(6, 304)[:, :300] = rows
        found = RowKernel(p, c).run(case, inputs).typed("Y").astype(np.float64)
        found = found.reshape(6, 304)[:, :300] if p.elementwise else found.reshape(6, 1)
        inside = abs(exact) <= float(ml_dtypes.finfo(numerics.storage(out_dtype)).max)
        assert inside.mean() > 0.3
        assert np.isfinite(found[inside]).all()
        assert (abs(found - exact)[inside] <= allowed[inside]).all()


@pytest.mark.parametrize("op", ["sum", "logsumexp"])
def test_rows_without_columns_give_what_torch_gives(op: str) -> None:
    p = problem(op, 3, 64)
    kernel = RowKernel(p, candidate(vectors=0, schedule="static"))
    inputs = {"X": numerics.inputs(p, own_case(p))["X"], "Y": numerics.inputs(p, own_case(p))["Y"]}
    found = kernel.run(own_case(p, cols=0), inputs).typed("Y").astype(np.float64)
    assert found.tolist() == ([0.0] * 3 if op == "sum" else [-np.inf] * 3)


def test_every_schedule_and_policy_gives_the_same_bits() -> None:
    p = problem("layernorm", 9, 500, row_stride=504)
    found = set()
    for schedule, slots in (("one_tile", 2), ("static", 2), ("static", 4)):
        kernel = RowKernel(p, candidate(cluster=2, schedule=schedule, slots=slots))  # type: ignore[arg-type]
        for policy in POLICIES:
            case = own_case(p, out_stride=504)
            outcome = kernel.run(case, numerics.inputs(p, case), async_policy=policy, seed=1)
            found.add(outcome.typed("Y").tobytes())
    assert len(found) == 1


EXIT = """    if constexpr (kCluster > 1) {
        ptx::barrier_cluster_arrive_release();
        ptx::barrier_cluster_wait_acquire();
    }
}
"""
INIT = "ptx::mbarrier_init(barrier(1), "
FAULTS: dict[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {
    "one arrival too many is counted": (
        ("row_exchange.cuh", f"{INIT}1 + kCluster);", f"{INIT}2 + kCluster);"),
        ("EMU_DEADLOCK",),
    ),
    "one arrival too few is counted": (
        ("row_exchange.cuh", f"{INIT}1 + kCluster);", f"{INIT}kCluster);"),
        ("EMU_DATA_RACE", "EMU_UNINITIALISED", "EMU_BARRIER_OVERWRITTEN", "EMU_BARRIER_UNOBSERVED"),
    ),
    "one push too many is expected": (
        ("row_exchange.cuh", "kCluster * kPartialBytes);\n                if (lane < kCluster)",
         "(kCluster + 1) * kPartialBytes);\n                if (lane < kCluster)"),
        ("EMU_DEADLOCK",),
    ),
    "a partial is read before its phase": (
        ("row_exchange.cuh", "            wait_cluster(barrier(turn), parity);\n", ""),
        ("EMU_DATA_RACE", "EMU_UNINITIALISED"),
    ),
    "the wait is for the phase before": (
        ("row_exchange.cuh", "            wait_cluster(barrier(turn), parity);\n",
         "            wait_cluster(barrier(turn), parity ^ 1);\n"),
        ("EMU_DATA_RACE", "EMU_UNINITIALISED"),
    ),
    "a push is not aligned to its width": (
        ("row_exchange.cuh", "pushed() + rank * kPushBytes, lane)", "pushed() + rank * kPushBytes + 8, lane)"),
        ("EMU_MISALIGNED",),
    ),
    "pushes of two rows share a slot": (
        ("row_exchange.cuh", "return Place::kPartials + turn * (kCluster * kPushBytes);",
         "return Place::kPartials;"),
        ("EMU_DATA_RACE",),
    ),
    "peers are written before they have started": (
        ("kernel", """        ptx::barrier_cluster_arrive_release();
        ptx::barrier_cluster_wait_acquire();
    }

    const float count""", "    }\n\n    const float count"),
        ("EMU_PEER_NOT_STARTED", "EMU_BARRIER_UNINITIALISED", "EMU_DATA_RACE", "EMU_UNINITIALISED"),
    ),
    "partials of warps are read without a barrier": (
        ("row_exchange.cuh", "            __syncthreads();\n            if (warp", "            if (warp"),
        ("EMU_DATA_RACE", "EMU_UNINITIALISED"),
    ),
    "a slot is read before its copy has landed": (
        ("kernel", "(kNewer - v - kBatch);", "(kNewer);"),
        ("EMU_DATA_RACE", "EMU_UNINITIALISED"),
    ),
}  # fmt: skip


def _faults(edits: tuple[tuple[str, str, str], ...], family: Any) -> list[str]:
    """The codes that some policy and seed gets."""
    p = problem("softmax", 9, 800)
    kernel = RowKernel(p, candidate(family, cluster=2, schedule="static", slots=3), edits)
    found = []
    for policy in POLICIES:
        for seed in range(2):
            try:
                kernel.check(own_case(p), async_policy=policy, seed=seed, step_limit=200_000)
            except KernelFault as fault:
                found.append(fault.code)
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_named(name: str) -> None:
    edit, codes = FAULTS[name]
    found = _faults((edit,), "sm90")
    assert found, "no policy shows it"
    assert set(found) & set(codes), found


# ---- the ring of slots, and what stays ------------------------------------------------------------------------------

# Half of the exponentials held; and of weights the first held, the next in slots, the last fetched for each row.
HOLDS_POWERS = (
    problem("softmax", 7, 4000),
    candidate(cluster=2, schedule="static", vectors=4, slots=6, held=2),
)
# Two vectors of the next row are read while partials are exchanged, and four asked into the L2: of the next row, and of
# the one after it, whose last CTA has a vector that is no whole one.
READS_EARLY = (
    problem("rmsnorm", 7, 3003, row_stride=3008),
    candidate(cluster=2, schedule="static", vectors=4, slots=6, early=2, prefetch=4),
)
HOLDS_WEIGHTS = (
    problem("layernorm", 7, 1600, weight=True, bias=True),
    candidate(cluster=2, schedule="static", vectors=2, slots=3, held=1, weight_slots=2),
)
RING_FAULTS: dict[str, tuple[Any, tuple[str, str, str]]] = {
    "a slot is refilled before its last reading": (
        HOLDS_POWERS,
        ("kernel", "        const i32 here =", "        refill(part, next, after, v, slot);\n        const i32 here ="),
    ),
    "more is counted as begun than was": (
        HOLDS_POWERS,
        ("kernel", "wait_groups<kNewer>(kNewer - v - kBatch);", "wait_groups<kNewer + 1>(kNewer - v - kBatch + 1);"),
    ),
    "a refill closes no group": (
        HOLDS_POWERS,
        ("kernel", """stepped(slot, v));
        ptx::cp_async_commit_group();
    }
}

// One thread: asks""", """stepped(slot, v));
    }
}

// One thread: asks"""),
    ),
    "all that was begun counts as newer than what is read early": (
        READS_EARLY,
        ("kernel", "first_pass<false, 0, kEarly, kExtra>", "first_pass<false, 0, kEarly, kSlots>"),
    ),
    "what is read early is counted with the row before too": (
        READS_EARLY,
        ("kernel", "        p = TheOp::identity();\n        if constexpr (kEarly", "        if constexpr (kEarly"),
    ),
    "rows that are not there are asked into the L2": (
        READS_EARLY,
        ("kernel", "if (left >= 16) {\n            ptx::cp_async_bulk", "{\n            ptx::cp_async_bulk"),
    ),
    "a part of 16 bytes is asked into the L2": (
        READS_EARLY,
        ("kernel", "(left < kMost ? left : kMost) & ~15u", "(left < kMost ? left : kMost)"),
    ),
    "the row after the next one comes too early": (
        HOLDS_POWERS,
        ("kernel", "const bool is_next = v + kExtra < kVectors;", "const bool is_next = v + kExtra + 1 < kVectors;"),
    ),
    "copies of weights are of a later group": (
        HOLDS_WEIGHTS,
        ("kernel", """    weights.begin(part.bytes);
""", """    ptx::cp_async_commit_group();
"""),
    ),
}  # fmt: skip


def _ring(case: tuple[Any, Any], *edits: tuple[str, str, str]) -> set[str]:
    p, c = case
    kernel = RowKernel(p, c, edits)
    found = set()
    for policy in POLICIES:
        try:
            kernel.check(own_case(p, out_stride=p.row_stride), async_policy=policy, seed=1, step_limit=400_000)
        except KernelFault as fault:
            found.add(fault.code)
        except AssertionError:
            found.add("wrong")
    return found


@pytest.mark.parametrize("name", RING_FAULTS)
def test_a_fault_of_the_ring_is_named(name: str) -> None:
    case, edit = RING_FAULTS[name]
    codes = {"EMU_DATA_RACE", "EMU_UNINITIALISED", "EMU_OUT_OF_BOUNDS", "EMU_MISALIGNED", "wrong"}
    assert _ring(case, edit) & codes


@pytest.mark.parametrize("case", [HOLDS_POWERS, HOLDS_WEIGHTS, READS_EARLY], ids=["powers", "weights", "early"])
def test_the_ring_without_a_fault_is_silent(case: tuple[Any, Any]) -> None:
    assert _ring(case) == set()


# ---- the exit --------------------------------------------------------------------------------------------------------

NO_EXIT = ("kernel", EXIT, "}\n")
# A CTA that would not wait, because it has no use for the result of its last row.
HURRIES = (
    "row_exchange.cuh",
    """            wait_cluster(barrier(turn), parity);
            p = gathered<kCluster>(pushed(), kPushBytes);
""",
    """            if (rank == 0) {
                wait_cluster(barrier(turn), parity);
                p = gathered<kCluster>(pushed(), kPushBytes);
            }
""",
)
# "Read" is said after reading, at the barrier of the next exchange, and not with the next push.
SAID_LATER = (
    (
        "row_exchange.cuh",
        f"            {INIT}1 + kCluster);\n",
        f"            {INIT}1 + kCluster);\n"
        "            for (u32 i = 0; i < kCluster; ++i) ptx::mbarrier_arrive(barrier(0));  // before the first\n",
    ),
    ("row_exchange.cuh", "                    ptx::mbarrier_arrive_shared_cluster(there);\n", ""),
    (
        "row_exchange.cuh",
        "            p = gathered<kCluster>(pushed(), kPushBytes);\n",
        """            p = gathered<kCluster>(pushed(), kPushBytes);
            __syncthreads();
            if (threadIdx.x < kCluster) {
                ptx::mbarrier_arrive_shared_cluster(ptx::mapa_shared_cluster(barrier(turn ^ 1), threadIdx.x));
            }
""",
    ),
)
LEAVING = {
    "one row": (problem("logsumexp", 1, 800), candidate("sm90", cluster=2, vectors=0)),
    "many rows": (problem("softmax", 9, 800), candidate("sm90", cluster=4, schedule="static", slots=3)),
}


def _at_the_exit(name: str, *edits: tuple[str, str, str]) -> set[str]:
    p, c = LEAVING[name]
    kernel = RowKernel(p, c, edits)
    found = set()
    for policy in POLICIES:
        for seed in range(3):
            try:
                kernel.check(own_case(p), async_policy=policy, seed=seed)
            except KernelFault as fault:
                found.add(fault.code)
    return found


@pytest.mark.parametrize("name", LEAVING)
def test_all_that_reaches_a_cta_has_been_awaited_when_it_leaves(name: str) -> None:
    """Every receiver waits for every push and every arrival: the barrier at the exit has nothing left to hold."""
    assert _at_the_exit(name, NO_EXIT) == set()


@pytest.mark.parametrize("name", LEAVING)
def test_an_arrival_that_nobody_awaits_needs_the_barrier_at_the_exit(name: str) -> None:
    assert _at_the_exit(name, *SAID_LATER) == set()
    assert _at_the_exit(name, *SAID_LATER, NO_EXIT) == {"EMU_PEER_EXITED"}


def test_a_cta_that_leaves_before_a_push_has_landed_is_named() -> None:
    """The barrier does not help it: threads that meet there order no asynchronous store that none has waited for."""
    assert _at_the_exit("one row", HURRIES, NO_EXIT) == {"EMU_PEER_EXITED"}
    assert _at_the_exit("one row", HURRIES) == {"EMU_ASYNC_AT_EXIT"}
    assert _at_the_exit("one row") == set()


@pytest.mark.parametrize("family", ["sm90", "sm100"])
def test_the_same_kernel_without_the_fault_is_silent(family: str) -> None:
    assert _faults((), family) == []
