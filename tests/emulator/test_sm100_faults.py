"""What the Blackwell kernels' protocol is made of: each piece taken out of the source is named by the emulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from advisor.codegen import templates
from advisor.emulator import KernelFault, load_program, run
from advisor.kinds.gemm import numerics, sm100
from advisor.machine.profile_file import load_profile
from advisor.records.launch import KernelSpec
from advisor.toolchain import Unit, compile_cuda
from tests.emulator.gemms import case_of, problem, resolved
from tests.emulator.test_sm100 import candidate

KERNEL = "kernel"  # the rendered source, beside the headers by their names


PAIR = (("cluster", (2, 1, 1)), ("mma_ctas", 2), ("schedule", "clc"))
CTAS = (("cluster", (2, 1, 1)), ("schedule", "clc"))
MIX = (("cluster", (2, 1, 1)), ("mma_ctas", 2), ("schedule", "static"), ("preferred_cluster", (4, 1, 1)))
TALL = (("cluster", (2, 1, 1)), ("mma_ctas", 2), ("schedule", "static"), ("preferred_cluster", (2, 2, 1)))
SLICES = (("cluster", (1, 1, 2)), ("split_k", 2), ("schedule", "static"))


@dataclass(frozen=True, slots=True)
class Fault:
    """One edit of the kernel's source, and the reports of which one must name it."""

    file: str
    old: str
    new: str
    codes: tuple[str, ...]
    how: tuple[tuple[str, Any], ...] = PAIR


SYNC = "        __syncwarp();\n"
PROXY = "        ptx::fence_proxy_async_shared_cta();\n"
FAULTS = {
    "responses are overwritten without a proxy fence": Fault(
        "clc_scheduler.cuh",
        "        ptx::fence_proxy_async_shared_cta();  // the next",
        "        // the next",
        ("EMU_CLC_SLOT_IN_USE",),
    ),
    "one reading warp is not counted": Fault(
        KERNEL,
        "(kEpilogueWarps + 3 + kLoadsC) * kUnitSize;",
        "(kEpilogueWarps + 3 + kLoadsC) * kUnitSize - 1;",
        ("EMU_BARRIER_UNOBSERVED", "EMU_CLC_SLOT_IN_USE"),
    ),
    "a response is read before it has landed": Fault(
        "clc_scheduler.cuh",
        "            wait_cluster(place.full + 8 * slot.stage, slot.parity);\n",
        "",
        ("EMU_UNINITIALISED", "EMU_DATA_RACE"),
    ),
    "the coordinate of a failed request is used": Fault(
        "clc_scheduler.cuh",
        "        if (!ptx::clusterlaunchcontrol_query_cancel_is_canceled(response)) return {0, false};\n",
        "",
        ("EMU_CLC_FAILED_COORDINATE",),
    ),
    "every CTA asks": Fault(
        "clc_scheduler.cuh",
        "            if (is_cta0) {\n                if constexpr",
        "            {\n                if constexpr",
        ("EMU_CLC_SLOT_IN_USE", "EMU_CLC_REQUEST_PER_CTA"),
    ),
    "no cluster barrier before the exit": Fault(
        KERNEL, "    cluster_barrier();\n}\n\n#endif", "}\n\n#endif", ("EMU_PEER_EXITED",), CTAS
    ),
    "a pair's tensor memory is freed before both have read it": Fault(
        KERNEL,
        "    if constexpr (kPair) {\n        cluster_barrier();\n    } else {",
        "    if constexpr (kPair) {\n    } else {",
        ("EMU_TMEM_FREED_EARLY",),
    ),
    "the leader expects the bytes of one CTA": Fault(
        KERNEL, "kStageBytes = kMmaCtas * (", "kStageBytes = (", ("EMU_UNINITIALISED", "EMU_DATA_RACE")
    ),
    "a stage is filled again before it was read": Fault(
        KERNEL,
        "wait(smem + Smem::kEmpty + 8 * ring.stage, ring.parity ^ 1);\n                    const u32 full",
        "const u32 full",
        ("EMU_BARRIER_OVERRUN", "EMU_DATA_RACE"),
    ),
    "an accumulator is overwritten while it is read": Fault(
        KERNEL,
        "wait_pair(smem + Smem::kAccumulatorEmpty + 8 * accumulator.stage, accumulator.parity ^ 1);\n",
        "\n",
        ("EMU_TMEM_RACE",),
    ),
    "an accumulator is handed on without a fence": Fault(
        KERNEL,
        "                ptx::tcgen05_fence_before_thread_sync();\n        " + SYNC,
        "        " + SYNC,
        ("EMU_TCGEN05_FENCE",),
    ),
    "sums are read before they are complete": Fault(
        KERNEL,
        "wait_pair(smem + Smem::kAccumulatorFull + 8 * accumulator.stage, accumulator.parity);\n",
        "\n",
        ("EMU_TMEM_RACE", "EMU_TMEM_UNINITIALISED", "EMU_TMEM_BEFORE_COMMIT"),
    ),
    "C is overwritten while it is added": Fault(
        KERNEL,
        "wait(smem + Smem::kCEmpty + 8 * ring.stage, ring.parity ^ 1);\n",
        "\n",
        ("EMU_BARRIER_OVERRUN", "EMU_BARRIER_UNOBSERVED", "EMU_DATA_RACE"),
    ),
    "D is stored before it was written": Fault("tmem_epilogue.cuh", PROXY + SYNC, SYNC, ("EMU_DATA_RACE",)),
    "a buffer of D is filled while it is stored": Fault(
        "tmem_epilogue.cuh",
        "        if (ptx::elect_sync()) ptx::cp_async_bulk_wait_group_read<1>();",
        "        //",
        ("EMU_DATA_RACE",),
    ),
    "partial sums arrive in a ring that is in use": Fault(
        KERNEL,
        "            if constexpr (kSlicesInCluster) {\n                cluster_barrier();\n#pragma unroll 1",
        "            if constexpr (kSlicesInCluster) {\n#pragma unroll 1",
        ("EMU_DATA_RACE",),
        SLICES,
    ),
    "the cluster size is taken for the preferred one": Fault(
        KERNEL, "!kMixed || ptx::cluster_nctarank() == kUnitSize", "true", ("EMU_NO_SUCH_PEER",), MIX
    ),
    "masks are those of a preferred cluster": Fault(
        KERNEL,
        "u32 sharers_b = whole ? kSharersB : kFewerSharersB;",
        "u32 sharers_b = kSharersB;",
        ("EMU_NO_SUCH_PEER",),
        MIX,
    ),
    "commits go to the CTAs of a preferred cluster": Fault(
        KERNEL,
        "            if (each < sharers_a) mask |= kOne << rank_of",
        "            mask |= kOne << rank_of",
        ("EMU_NO_SUCH_PEER",),
        TALL,
    ),
    "arrivals are those of a preferred cluster": Fault(
        KERNEL, "return sharers_a + sharers_b - 1;", "return kSharersA + kSharersB - 1;", ("EMU_DEADLOCK",), MIX
    ),
    "arrivals are those of a smaller cluster": Fault(
        KERNEL,
        "return sharers_a + sharers_b - 1;",
        "return kFewerSharersA + kFewerSharersB - 1;",
        ("EMU_BARRIER_OVERRUN", "EMU_DATA_RACE", "EMU_BARRIER_OVERWRITTEN"),
        MIX,
    ),
    "a CTA of a smaller cluster loads one slice": Fault(
        KERNEL, "slice += sharers) {", "slice += Tile::kSlices) {", ("EMU_DEADLOCK",), MIX
    ),
    "peers are addressed as in a preferred cluster": Fault(
        KERNEL,
        "u32 x = blockIdx.x % extent_x;",
        "u32 x = blockIdx.x % kUnitX;",
        ("EMU_NO_SUCH_PEER", "EMU_BARRIER_OTHER_CTA"),
        MIX,
    ),
}


def faulty(spec: KernelSpec, fault: Fault | None) -> str:
    """The PTX of the kernel with the edit."""
    source = templates.render(spec.template, **spec.context)
    headers = dict(templates.headers_for(source))
    if fault is not None:
        text = source if fault.file == KERNEL else headers[fault.file]
        assert text.count(fault.old) == 1, f"{text.count(fault.old)} places in {fault.file} look like {fault.old!r}"
        edited = text.replace(fault.old, fault.new)
        if fault.file == KERNEL:
            source = edited
        else:
            headers[fault.file] = edited
    return compile_cuda(Unit(spec.kernel.source, source, headers, "sm_100a", spec.kernel.defines)).ptx


def run_with(fault: Fault, *, seeded: bool, policy: str = "random") -> None:
    p = problem(400, 136, 256, epilogue={"beta": 0.5})
    c = candidate(p, (64, 128), stages=2, **dict(fault.how))
    (spec,) = sm100.kernels(p, c)
    case = case_of(p)
    launch = resolved(p, spec, case, "sm_100a")
    given = {name: each for name, each in numerics.inputs(p, case).items() if name in launch.buffers and name != "D"}
    program = load_program(faulty(spec, fault if seeded else None), spec.kernel.entry)
    if c.work.preferred_cluster is None:
        device = replace(load_profile("b200"), sms=c.cluster_size, sm_groups=(c.cluster_size,))  # one cluster walks all
    else:
        device = replace(load_profile("b200"), sms=6, sm_groups=(4, 2))  # one of either size
        launch = launch.model_copy(update={"grid_blocks": (2 * c.unit[0], c.unit[1], 1)})
    run(program, launch, inputs=given, async_policy=policy, profile=device)


@pytest.mark.parametrize("policy", [pytest.param("adversarial", marks=pytest.mark.slow), "random"])
@pytest.mark.parametrize("name", list(FAULTS))
def test_a_piece_of_the_protocol_that_is_missing_is_named(name: str, policy: str) -> None:
    with pytest.raises(KernelFault) as caught:
        run_with(FAULTS[name], seeded=True, policy=policy)
    assert caught.value.code in FAULTS[name].codes, str(caught.value)


@pytest.mark.parametrize("how", [PAIR, CTAS, SLICES, MIX, TALL])
def test_the_kernels_that_are_edited_have_no_fault_themselves(how: tuple[tuple[str, Any], ...]) -> None:
    run_with(next(fault for fault in FAULTS.values() if fault.how == how), seeded=False)
