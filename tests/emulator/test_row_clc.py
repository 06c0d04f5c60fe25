"""Row reductions that claim their rows by Cluster Launch Control: every row once under every policy, on few SMs and on
busy ones; and the faults that the claim could have, each beside the same kernel without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from advisor.emulator import KernelFault, Outcome
from advisor.emulator.policy import CLC_POLICIES, POLICIES
from advisor.emulator.world import cut_profile
from advisor.kinds import workload
from advisor.kinds.row_reduce import kernels, numerics
from advisor.machine import load_profile
from advisor.machine.profile import DeviceProfile
from advisor.records.candidate import Candidate
from advisor.validation.plan_counts import compare, promises
from tests.emulator.rows import RowKernel, candidate, own_case, problem

CLC = tuple(each.replace("N", "2") for each in CLC_POLICIES)
B200 = load_profile("b200")


def few_sms(count: int) -> DeviceProfile:
    """A B200 of so few SMs that most clusters of a small grid wait."""
    return replace(B200, sms=count, sm_groups=(count,))


def claiming(cluster: int = 1, **changes: Any) -> Candidate:
    return candidate("sm100", cluster, "clc", **changes)


@dataclass(frozen=True)
class Form:
    """A small kernel, and rows enough that each cluster of a few SMs comes to several."""

    candidate: Candidate
    op: str
    rows: int
    cols: int

    def kernel(self, *edits: tuple[str, str, str]) -> RowKernel:
        return RowKernel(
            problem(self.op, self.rows, self.cols, row_stride=-(-self.cols // 8) * 8), self.candidate, edits
        )

    def check(self, kernel: RowKernel, **options: Any) -> Outcome:
        p = kernel.problem
        case = own_case(p, out_stride=p.row_stride if p.elementwise else 1)
        return kernel.check(case, **{"profile": few_sms(2), "step_limit": 200_000, **options})


FORMS = {
    "a part of a warp to a row": Form(claiming(threads=128, row_threads=8, vectors=2), "softmax", 250, 100),
    "a CTA to a row": Form(claiming(vectors=2), "layernorm", 23, 300),
    "the next row comes in behind": Form(claiming(2, vectors=2, slots=4), "softmax", 23, 900),
    "four CTAs to a row": Form(claiming(4, vectors=3, slots=4), "rmsnorm", 9, 1100),
    "streamed by one CTA": Form(claiming(vectors=0), "softmax", 17, 700),
    "streamed by a cluster": Form(claiming(2, vectors=0, batch=2), "softmax", 15, 5000),
    "short rows streamed, several ahead": Form(claiming(2, vectors=0), "sum", 23, 100),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_row_is_computed_once_under_every_policy(name: str) -> None:
    form = FORMS[name]
    kernel = form.kernel()
    items = -(-form.rows // kernels.rows_per_cta(form.candidate))
    device = few_sms(max(2, form.candidate.cluster_size))
    taken = 0
    for number, clc in enumerate(CLC):
        policy = POLICIES[number % len(POLICIES)]
        outcome = form.check(kernel, async_policy=policy, clc=clc, seed=number, count_writes=("Y",), profile=device)
        assert outcome.warnings == ()
        assert outcome.requests is not None
        assert outcome.clusters + outcome.requests.granted == items
        assert outcome.requests.receivers == {form.candidate.cluster_size}
        assert sum(tiles * count for tiles, count in outcome.requests.tiles.items()) == items
        written = outcome.writes["Y"].reshape(form.rows, -1)[:, : form.cols * 2]
        assert (written == 1).all()
        taken += outcome.requests.granted
    assert taken > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_pair_of_policies_gives_every_row(name: str, policy: str) -> None:
    form = FORMS[name]
    kernel = form.kernel()
    device = few_sms(max(2, form.candidate.cluster_size))
    for clc, seed in product(CLC, range(4)):
        form.check(kernel, async_policy=policy, clc=clc, seed=seed, profile=device)


@pytest.mark.parametrize("busy", [0, 2, 5])
@pytest.mark.parametrize("name", ["the next row comes in behind", "streamed by a cluster"])
def test_rows_come_out_beside_other_work(name: str, busy: int) -> None:
    """A device cut to a few SMs in groups as the chip has them, some of which other work holds."""
    form = FORMS[name]
    device = cut_profile(B200, 2)
    outcome = form.check(form.kernel(), profile=device, busy_sms=min(busy, device.sms - 2), clc="preempt", seed=busy)
    assert outcome.requests is not None
    assert outcome.requests.granted > 0


@pytest.mark.parametrize("name", ["a part of a warp to a row", "the next row comes in behind", "streamed by a cluster"])
def test_the_boundaries_are_right_where_rows_are_claimed(name: str) -> None:
    form = FORMS[name]
    kernel, ran = form.kernel(), 0
    for number, case in enumerate(numerics.cases(kernel.problem, form.candidate, 2, small=True)):
        rows, cols, _, _ = numerics.extents(case)
        capacity = kernels.capacity(kernel.problem, form.candidate)
        if rows == 0 or cols == 0 or not case.tma or (capacity and cols > capacity):
            continue
        clc = CLC[number % len(CLC)]
        kernel.check(case, async_policy=POLICIES[number % len(POLICIES)], clc=clc, seed=number, profile=few_sms(2))
        ran += 1
    assert ran > 6


def test_rows_that_are_claimed_have_the_bits_of_rows_that_are_dealt_out() -> None:
    form = FORMS["the next row comes in behind"]
    dealt = replace(form, candidate=form.candidate.with_schedule("static"))
    found = {form.check(form.kernel(), clc=clc, seed=3).typed("Y").tobytes() for clc in CLC}
    found.add(dealt.check(dealt.kernel()).typed("Y").tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("name", FORMS)
def test_the_kernel_does_what_the_tables_of_its_plan_say(name: str) -> None:
    form = FORMS[name]
    kernel = form.kernel()
    promised = promises(workload(kernel.problem), form.candidate)
    assert promised is not None
    items = -(-form.rows // kernels.rows_per_cta(form.candidate))
    device = few_sms(max(2, form.candidate.cluster_size))
    outcome = form.check(kernel, clc="random", seed=2, profile=device)
    found = compare(promised, outcome.counts, outcome.requests, clusters=outcome.clusters, tiles=items)
    assert [each.message for each in found] == []


# ---- faults ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """One edit of the source: a header by its name, or `kernel`. `codes`: one of them names it."""

    file: str
    old: str
    new: str
    codes: tuple[str, ...]
    form: str = "the next row comes in behind"


MEET = """        ptx::barrier_cluster_arrive_release();
        ptx::barrier_cluster_wait_acquire();
"""
EXIT = f"    if constexpr (kCluster > 1) {{\n{MEET}    }}\n}}\n"
ARM = "            ptx::mbarrier_arrive_expect_tx(full, 16);"
EMPTY = "            if (rank == 0) wait_cluster(responses.place.empty + 8 * stage, responses.slot.parity ^ 1);\n"
IN_USE = ("EMU_CLC_SLOT_IN_USE", "EMU_BARRIER_UNOBSERVED")
CLAIMS, READS = "row_clc.cuh", "clc_scheduler.cuh"
FAULTS = {
    "a slot is asked into before every CTA has read it": Fault(CLAIMS, EMPTY, "", IN_USE),
    "the same where rows need no exchange": Fault(CLAIMS, EMPTY, "", IN_USE, "a part of a warp to a row"),
    "the same where several rows are ahead": Fault(CLAIMS, EMPTY, "", IN_USE, "short rows streamed, several ahead"),
    "one reading warp is not counted": Fault(CLAIMS, "kWarps * kCluster)", "kWarps * kCluster - 1)", IN_USE),
    "only the warps of CTA 0 are counted": Fault(CLAIMS, "kWarps * kCluster)", "kWarps)", IN_USE),
    "a reading warp too many is counted": Fault(
        CLAIMS, "kWarps * kCluster)", "kWarps * kCluster + 1)", ("EMU_DEADLOCK",)
    ),
    "a slot is given back before it is read": Fault(
        READS,
        "        const ptx::ClcResponse response",
        "        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive_release_cluster(empty_of_cta0 + 8 * slot.stage);\n"
        "        const ptx::ClcResponse response",
        IN_USE,
    ),
    "a slot is given back without a proxy fence": Fault(
        READS,
        "        ptx::fence_proxy_async_shared_cta();  // the next",
        "        // the next",
        ("EMU_CLC_SLOT_IN_USE",),
    ),
    "the wait for a slot is for the phase before": Fault(
        CLAIMS, EMPTY, EMPTY.replace("parity ^ 1", "parity"), ("EMU_DEADLOCK",)
    ),
    "a response is decoded before its phase": Fault(
        READS,
        "            wait_cluster(place.full + 8 * slot.stage, slot.parity);\n",
        "",
        ("EMU_DATA_RACE", "EMU_UNINITIALISED"),
    ),
    "the coordinate of a failed request is used": Fault(
        READS,
        "        if (!ptx::clusterlaunchcontrol_query_cancel_is_canceled(response)) return {0, false};\n",
        "",
        ("EMU_CLC_FAILED_COORDINATE", "EMU_CLC_AFTER_FAILURE"),
    ),
    "every CTA asks": Fault(
        CLAIMS,
        "            if (rank == 0) {\n                if constexpr",
        "            {\n                if constexpr",
        ("EMU_CLC_SLOT_IN_USE", "EMU_CLC_REQUEST_PER_CTA"),
    ),
    "every warp asks": Fault(
        CLAIMS, "threadIdx.x < 32 && ptx::elect_sync()", "ptx::elect_sync()", ("EMU_BARRIER_OVERRUN",)
    ),
    "the CTA that asks alone expects the response": Fault(
        CLAIMS, ARM, f"            if (rank == 0) {ARM.strip()}", ("EMU_DEADLOCK",)
    ),
    "the other CTAs expect no bytes": Fault(
        CLAIMS,
        ARM,
        f"            if (rank == 0) {ARM.strip()}\n            else ptx::mbarrier_arrive(full);",
        ("EMU_DATA_RACE", "EMU_DEADLOCK"),
    ),
    "twice the bytes are expected": Fault(CLAIMS, ARM, ARM.replace("16", "32"), ("EMU_DEADLOCK",)),
    "the response goes to the CTA that asks alone": Fault(
        CLAIMS, "clusterlaunchcontrol_try_cancel_multicast(", "clusterlaunchcontrol_try_cancel(", ("EMU_DEADLOCK",)
    ),
    "another is asked for after a failure": Fault(
        CLAIMS, "        if (!work.more) return work;\n", "", ("EMU_CLC_AFTER_FAILURE", "EMU_CLC_IN_FLIGHT")
    ),
    "the cluster with the last row leaves with a response in flight": Fault(
        CLAIMS,
        "        work = responses.next(work);\n",
        "        if (work.index + 1 == responses.total) return {0, false};\n        work = responses.next(work);\n",
        ("EMU_CLC_IN_FLIGHT",),
    ),
    "the cluster asks before all of its CTAs have started": Fault(
        "kernel",
        f"{MEET}    }}\n\n    const float count",
        "    }\n\n    const float count",
        ("EMU_PEER_NOT_STARTED", "EMU_BARRIER_INIT_UNORDERED"),
    ),
    "a CTA leaves before its peers have given the last slot back": Fault(
        "kernel", EXIT, "}\n", ("EMU_PEER_EXITED",), "streamed by a cluster"
    ),
}


def named(form: Form, *edits: tuple[str, str, str]) -> set[str]:
    """What the policies get to see, errors and warnings."""
    kernel = form.kernel(*edits)
    found: set[str] = set()
    for number, (policy, clc) in enumerate(product(POLICIES, ("grant", "random", "decline:2"))):
        try:
            outcome = form.check(kernel, async_policy=policy, clc=clc, seed=number)
        except KernelFault as fault:
            found.add(fault.code)
        else:
            found |= {each.code for each in outcome.warnings}
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_named(name: str) -> None:
    fault = FAULTS[name]
    found = named(FORMS[fault.form], (fault.file, fault.old, fault.new))
    assert found, "no policy shows it"
    assert found <= set(fault.codes), found


@pytest.mark.parametrize("form", sorted({fault.form for fault in FAULTS.values()}))
def test_the_same_kernel_without_the_fault_is_silent(form: str) -> None:
    assert named(FORMS[form]) == set()


def test_the_queue_of_claimed_rows_has_not_a_place_to_spare() -> None:
    """Of rows of one batch the copies run as far ahead as slots allow. One place fewer, and a row is dropped."""
    edit = ("kernel", "1 + kSlots / (kBatch * kPasses)", "kSlots / (kBatch * kPasses)")
    form = FORMS["short rows streamed, several ahead"]
    with pytest.raises(AssertionError):
        form.check(form.kernel(edit), clc="grant")


def test_a_claiming_kernel_takes_the_shared_memory_that_it_lays_out() -> None:
    for cluster, vectors in ((1, 2), (2, 2), (4, 0)):
        c = claiming(cluster, vectors=vectors, threads=128, row_threads=128)
        need = kernels.resources(c)
        assert sum(size for _, size in need.smem_parts) == need.dynamic_smem_bytes
        ends = [offset + 8 for offsets in kernels.layout(c).mbarriers.values() for offset in offsets]
        assert max(ends) == need.dynamic_smem_bytes
        assert need.dynamic_smem_bytes - kernels.resources(c.with_schedule("static")).dynamic_smem_bytes == 64
