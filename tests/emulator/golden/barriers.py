"""Cases of barriers, clusters and registers of the machine: what each thread can tell of them afterwards.

A sequence of one thread writes what it saw, word by word; phases and counts of an mbarrier are as PTX ISA 9.7.13.15
defines them. An mbarrier's state is opaque: only `pending_count` of it is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.emulator.golden.copies import SYNC, wait
from tests.emulator.golden.memory import random_bytes
from tests.emulator.golden.text import Arrays, Case, assembled, at, seed_of
from tests.emulator.golden.warps import single

SEEN = "seen"  # a line of a sequence: the predicate %p0 goes to the next word of the output
COUNT = "count"  # or the register %r0


def sequence(name: str, lines: Sequence[str], expected: Sequence[int]) -> Case:
    """What one thread does with the barriers in the tile, and what it saw."""
    body = ["cvt.u64.u32 %d9, %base;", "cvta.shared.u64 %d9, %d9;", "setp.ne.u32 %p5, %t, 0;", "@%p5 bra DONE;"]
    word = 0
    for line in lines:
        if line == SEEN:
            body.append("selp.u32 %r0, 1, 0, %p0;")
        if line in (SEEN, COUNT):
            body.append(f"st.global.b32 [%out+{4 * word}], %r0;")
            word += 1
        else:
            body.append(line)
    assert word == len(expected), name
    values = np.array(expected, np.uint32)
    text = assembled(["out"], [*body, "DONE:"], shared_bytes=64)
    return Case(name, text, {}, {"out": ((word,), np.uint32)}, 1, 32, lambda given: {"out": values.copy()})


def parity(form: str, phase: int, barrier: str = "[%base]") -> list[str]:
    return [f"{form} %p0, {barrier}, {phase};", SEEN]


TEST = "mbarrier.test_wait.parity.shared::cta.b64"
TRY = "mbarrier.try_wait.parity.shared::cta.b64"


def _one_thread() -> list[Case]:
    init = "mbarrier.init.shared::cta.b64 [%base], {};"
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%base];"
    state = "mbarrier.arrive.shared::cta.b64 %d0, [%base];"
    pending = ["mbarrier.pending_count.b64 %r0, %d0;", COUNT]
    done = ["mbarrier.test_wait.shared::cta.b64 %p0, [%base], %d0;", SEEN]
    cases = [
        sequence(
            "mbarrier/two phases",
            [init.format(1), *parity(TEST, 0), *parity(TEST, 1), arrive, *parity(TEST, 0), *parity(TEST, 1),
             arrive, *parity(TEST, 1), *parity(TEST, 0)],
            [0, 1, 1, 0, 1, 0],
        ),
        sequence(
            "mbarrier.pending_count.b64",
            [init.format(3), state, *pending, *done, state, *pending, *done, state, *pending, *done, state, *pending],
            [3, 0, 2, 0, 1, 1, 3],
        ),
        sequence(
            "mbarrier.arrive/with a count",
            [init.format(5), "mbarrier.arrive.shared::cta.b64 %d0, [%base], 2;", *pending,
             "mbarrier.arrive.shared::cta.b64 %d0, [%base], 3;", *pending, *done, *parity(TEST, 0)],
            [5, 3, 1, 1],
        ),
        sequence(
            "mbarrier.arrive.noComplete",
            [init.format(3), "mbarrier.arrive.noComplete.shared.b64 %d0, [%base], 2;", *pending, *done, arrive, *done],
            [3, 0, 1],
        ),
        sequence(
            "mbarrier.arrive_drop",
            [init.format(3), "mbarrier.arrive_drop.shared::cta.b64 %d0, [%base];", *pending, arrive, arrive, *done,
            state,
             *pending, arrive, *parity(TEST, 1)],
            [3, 1, 2, 1],
        ),
        sequence(
            "mbarrier.arrive_drop.noComplete",
            [init.format(3), "mbarrier.arrive_drop.noComplete.shared.b64 %d0, [%base], 2;", *pending, arrive, *done,
            state,
             *pending, *done],
            [3, 1, 1, 1],
        ),
        sequence(
            "mbarrier.expect_tx",
            [init.format(1), "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%base], 32;", arrive, *parity(TEST, 0),
             "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%base], 16;", *parity(TEST, 0),
             "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%base], 16;", *parity(TEST, 0)],
            [0, 0, 1],
        ),
        sequence(
            "mbarrier.complete_tx/before its expect_tx",
            [init.format(2), "mbarrier.complete_tx.shared::cta.b64 [%base], 64;", arrive, *parity(TEST, 0),
             "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%base], 64;", *parity(TEST, 0)],
            [0, 1],
        ),
        sequence(
            "mbarrier.arrive.expect_tx",
            [init.format(2), "mbarrier.arrive.expect_tx.shared::cta.b64 %d0, [%base], 8;", *pending, arrive, *done,
             "mbarrier.complete_tx.shared::cta.b64 [%base], 8;", *done],
            [2, 0, 1],
        ),
        sequence(
            "mbarrier.arrive_drop.expect_tx",
            [init.format(2), "mbarrier.arrive_drop.expect_tx.shared::cta.b64 %d0, [%base], 8;", *pending, arrive, *done,
             "mbarrier.complete_tx.shared::cta.b64 [%base], 8;", *done, state, *pending, *done],
            [2, 0, 1, 1, 1],
        ),
        sequence(
            "mbarrier.inval",
            [init.format(1), arrive, *parity(TEST, 0), "mbarrier.inval.shared::cta.b64 [%base];", init.format(2),
            *parity(TEST, 0),
             state, *pending],
            [1, 0, 2],
        ),
        sequence(
            "mbarrier/at generic addresses",
            ["mbarrier.init.b64 [%d9], 2;", "mbarrier.arrive.b64 %d0, [%d9];", *pending,
             "mbarrier.arrive.expect_tx.b64 %d0, [%d9], 4;", *pending,
             "mbarrier.test_wait.b64 %p0, [%d9], %d0;", SEEN, "mbarrier.complete_tx.shared.b64 [%base], 4;",
             "mbarrier.try_wait.b64 %p0, [%d9], %d0;", SEEN, "mbarrier.test_wait.parity.b64 %p0, [%d9], 0;", SEEN,
             "mbarrier.inval.b64 [%d9];"],
            [2, 1, 0, 1, 1],
        ),
        sequence(
            "mbarrier/of .shared",
            ["mbarrier.init.shared.b64 [%base], 2;", "mbarrier.arrive.shared.b64 %d0, [%base];", *pending,
             "mbarrier.arrive.expect_tx.shared.b64 %d0, [%base], 4;", "mbarrier.complete_tx.shared.b64 [%base], 4;",
             "mbarrier.test_wait.shared.b64 %p0, [%base], %d0;", SEEN,
             "mbarrier.test_wait.parity.shared.b64 %p0, [%base], 0;", SEEN,
             "mbarrier.try_wait.parity.shared.b64 %p0, [%base], 0;", SEEN, "mbarrier.inval.shared.b64 [%base];"],
            [2, 1, 1, 1],
        ),
    ]  # fmt: skip
    for operation in ("test_wait", "try_wait"):
        for order in ("acquire.cta", "acquire.cluster", "relaxed.cta", "relaxed.cluster"):
            form = f"mbarrier.{operation}.parity.{order}.shared::cta.b64"
            cases.append(sequence(form, [init.format(1), *parity(form, 1), arrive, *parity(form, 0)], [1, 1]))
            form = f"mbarrier.{operation}.{order}.shared::cta.b64"
            lines = [init.format(1), state, f"{form} %p0, [%base], %d0;", SEEN]
            cases.append(sequence(form, lines, [1]))
    hint = "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p0, [%base], {}, 100;"
    lines = [init.format(1), hint.format(1), SEEN, arrive, hint.format(0), SEEN]
    cases.append(sequence("mbarrier.try_wait/with a time", lines, [1, 1]))
    for form in ("release.cta", "relaxed.cta", "release.cluster", "relaxed.cluster"):
        for more, amount in (("", ""), (".expect_tx", ", 0")):
            arrival = f"mbarrier.arrive{more}.{form}.shared::cta.b64"
            lines = [
                init.format(2),
                f"{arrival} %d0, [%base]{amount};",
                *pending,
                f"{arrival} _, [%base]{amount};",
                *parity(TEST, 0),
            ]
            cases.append(sequence(arrival, lines, [2, 1]))
    return cases


# --- barriers of another CTA ------------------------------------------------------------------------------------------


def remote(form: str, amount: str = "") -> Case:
    """Each of two CTAs writes into the other's tile, then arrives at its barrier, which the other waits for."""
    data = random_bytes(form, 256)
    lines = ["setp.eq.u32 %p1, %t, 0;", "@%p1 mbarrier.init.shared::cta.b64 [%base], 32;"]
    lines += [
        "@%p1 fence.mbarrier_init.release.cluster;",
        *SYNC,
        "mov.u32 %r1, %cluster_ctarank;",
        "xor.b32 %r1, %r1, 1;",
    ]
    lines += ["mad.lo.u32 %r0, %t, 4, %base;", "add.u32 %r0, %r0, 1024;", "mapa.shared::cluster.u32 %r2, %r0, %r1;"]
    lines += ["mapa.shared::cluster.u32 %r3, %base, %r1;", at("data", 4), "ld.global.b32 %r5, [%d0];"]
    lines += [
        "st.shared::cluster.b32 [%r2], %r5;",
        f"{form} _, [%r3]{amount};" if "complete_tx" not in form else f"{form};",
    ]
    lines += [*wait(form="mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"), "ld.shared.b32 %r6, [%r0];"]
    lines += ["selp.b32 %r6, %r6, 0, %p9;", at("out", 4), "st.global.b32 [%d0], %r6;", *SYNC]

    def function(given: Arrays) -> Arrays:
        return {"out": given["data"].view(np.uint32).reshape(2, 32)[::-1].reshape(-1).copy()}

    text = assembled(["data", "out"], lines, shared_bytes=2048)
    return Case(
        f"{form}{'/' + amount.strip(', ') if amount else ''}",
        text,
        {"data": data},
        {"out": ((64,), np.uint32)},
        2,
        32,
        function,
        cluster=2,
    )


def relaxed_remote(form: str) -> Case:
    """The same with a relaxed arrival, which a fence of cluster scope goes before."""
    case = remote(form)
    ptx = case.ptx.replace(f"    {form} _", f"    fence.acq_rel.cluster;\n    {form} _")
    return Case(case.name, ptx, case.inputs, case.outputs, 2, 32, case.function, cluster=2)


def met_remote(form: str) -> Case:
    """The same with an arrival of CTA scope, which orders nothing for another CTA: a cluster barrier goes before it."""
    case = remote(form)
    ptx = case.ptx.replace(f"    {form} _", "".join(f"    {each}\n" for each in SYNC) + f"    {form} _")
    return Case(case.name, ptx, case.inputs, case.outputs, 2, 32, case.function, cluster=2)


def _clusters() -> list[Case]:
    cases = [remote("mbarrier.arrive.release.cluster.shared::cluster.b64"),
             remote("mbarrier.arrive.release.cluster.shared::cluster.b64", ", 1"),
             remote("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64", ", 0"),
             relaxed_remote("mbarrier.arrive.relaxed.cluster.shared::cluster.b64"),
             met_remote("mbarrier.arrive.shared::cluster.b64")]  # fmt: skip
    for name, lines in (
        ("mapa.u64", ["cvt.u64.u32 %d1, %base;", "cvta.shared.u64 %d1, %d1;", "mapa.u64 %d1, %d1, %r1;",
        "st.b32 [%d1], %t;"]),
        ("mapa.shared::cluster.u32", ["mapa.shared::cluster.u32 %r2, %base, %r1;",
        "st.shared::cluster.b32 [%r2], %t;"]),
        ("mapa.shared::cluster.u64", ["cvt.u64.u32 %d1, %base;", "mapa.shared::cluster.u64 %d1, %d1, %r1;",
                                      "cvt.u32.u64 %r2, %d1;", "st.shared::cluster.b32 [%r2], %t;"]),
    ):  # fmt: skip
        cases.append(_peer(name, lines))
    for name, lines in (
        (
            "getctarank.u64",
            [
                "cvt.u64.u32 %d1, %base;",
                "cvta.shared.u64 %d1, %d1;",
                "mapa.u64 %d1, %d1, %r1;",
                "getctarank.u64 %r5, %d1;",
            ],
        ),
        (
            "getctarank.shared::cluster.u32",
            ["mapa.shared::cluster.u32 %r2, %base, %r1;", "getctarank.shared::cluster.u32 %r5, %r2;"],
        ),
    ):
        cases.append(_rank(name, lines))
    for form in ("arrive.release", "arrive", "arrive.release.aligned", "arrive.aligned"):
        ending = ".aligned" if "aligned" in form else ""
        for acquire in ("", ".acquire"):
            cases.append(_cluster_barrier(f"barrier.cluster.{form}", f"barrier.cluster.wait{acquire}{ending}"))
    relaxed = (
        ("barrier.cluster.arrive.relaxed", "barrier.cluster.wait"),
        ("barrier.cluster.arrive.relaxed.aligned", "barrier.cluster.wait.aligned"),
    )
    return cases + [_cluster_barrier(*each, fence=True) for each in relaxed]


def _peer(name: str, lines: Sequence[str]) -> Case:
    """Thread 5 of each CTA stores its index into the other's tile."""
    body = [
        "mov.u32 %r1, %cluster_ctarank;",
        "xor.b32 %r1, %r1, 1;",
        "setp.ne.u32 %p0, %t, 5;",
        *SYNC,
        "@%p0 bra OVER;",
        *lines,
        "OVER:",
    ]
    body += [*SYNC, "ld.shared.b32 %r7, [%base];", at("out", 4), "st.global.b32 [%d0], %r7;"]
    text = assembled(["out"], body, shared_bytes=64)
    return Case(
        name, text, {}, {"out": ((64,), np.uint32)}, 2, 32, lambda given: {"out": np.full(64, 5, np.uint32)}, cluster=2
    )


def _rank(name: str, lines: Sequence[str]) -> Case:
    body = ["mov.u32 %r1, %cluster_ctarank;", "xor.b32 %r1, %r1, 3;", *lines, at("out", 4), "st.global.b32 [%d0], %r5;"]
    expected = np.repeat(np.arange(4) ^ 3, 32).astype(np.uint32)
    text = assembled(["out"], body, shared_bytes=64)
    return Case(name, text, {}, {"out": ((128,), np.uint32)}, 4, 32, lambda given: {"out": expected.copy()}, cluster=4)


def _cluster_barrier(arrive: str, wait_form: str, fence: bool = False) -> Case:
    """What each CTA stored into the next one's tile is there after the barrier."""
    body = [
        "mov.u32 %r1, %cluster_ctarank;",
        "add.u32 %r1, %r1, 1;",
        "and.b32 %r1, %r1, 3;",
        "mad.lo.u32 %r0, %t, 4, %base;",
    ]
    body += ["mapa.shared::cluster.u32 %r2, %r0, %r1;", *SYNC, "st.shared::cluster.b32 [%r2], %g;"]
    body += ["fence.acq_rel.cluster;"] if fence else []
    body += [f"{arrive};", f"{wait_form};", "ld.shared.b32 %r7, [%r0];", at("out", 4), "st.global.b32 [%d0], %r7;"]
    expected = np.roll(np.arange(256, dtype=np.uint32).reshape(4, 64), 1, axis=0).reshape(-1)
    text = assembled(["out"], body, shared_bytes=256)
    return Case(
        f"{arrive}/{wait_form}",
        text,
        {},
        {"out": ((256,), np.uint32)},
        4,
        64,
        lambda given: {"out": expected.copy()},
        cluster=4,
    )


# --- barriers of a CTA ------------------------------------------------------------------------------------------------


def reduction(form: str) -> Case:
    """`bar.red` over 128 threads, and over the 64 that a count names."""
    flags = np.random.default_rng(seed_of(form)).integers(0, 2, 128).astype(np.uint32)
    flags[64:] = 1 if "and" in form else 0 if "or" in form else flags[64:]
    lines = [at("flag", 4), "ld.global.b32 %r1, [%d0];", "setp.ne.u32 %p0, %r1, 0;", "setp.ge.u32 %p2, %t, 64;"]
    result = "%p3" if form.endswith("pred") else "%r4"
    lines += [
        f"{form} {result}, 0, %p0;",
        *_as_word(form),
        "mov.u32 %r6, %r4;",
        "@!%p2 bra OVER;",
        f"{form} {result}, 1, 64, %p0;",
    ]
    lines += [*_as_word(form), "OVER:", at("out", 8), "st.global.v2.b32 [%d0], {%r6, %r4};"]

    def function(given: Arrays) -> Arrays:
        found = [_reduced(form, given["flag"]), _reduced(form, given["flag"][64:])]
        second = np.where(np.arange(128) < 64, found[0], found[1])
        return {"out": np.stack([np.full(128, found[0]), second], axis=1).astype(np.uint32)}

    text = assembled(["flag", "out"], lines)
    return Case(form, text, {"flag": flags}, {"out": ((128, 2), np.uint32)}, 1, 128, function)


def _as_word(form: str) -> list[str]:
    return ["selp.u32 %r4, 1, 0, %p3;"] if form.endswith("pred") else []


def _reduced(form: str, flags: np.ndarray) -> int:
    return int(flags.sum() if "popc" in form else flags.all() if ".and" in form else flags.any())


def handed_on(arrive: str, sync: str) -> Case:
    """Two warps write and arrive; two others wait for all four and read."""
    lines = [
        "setp.lt.u32 %p0, %t, 64;",
        "mad.lo.u32 %r0, %t, 4, %base;",
        "@%p0 st.shared.b32 [%r0], %t;",
        f"@%p0 {arrive} 3, 128;",
    ]
    lines += [
        "@%p0 bra OVER;",
        f"{sync} 3, 128;",
        "ld.shared.b32 %r1, [%r0+-256];",
        at("out", 4),
        "st.global.b32 [%d0+-256], %r1;",
        "OVER:",
    ]
    text = assembled(["out"], lines, shared_bytes=512)
    outputs = {"out": ((64,), np.uint32)}
    return Case(f"{arrive}/{sync}", text, {}, outputs, 1, 128, lambda given: {"out": np.arange(64, dtype=np.uint32)})


def whole(sync: str, arguments: str) -> Case:
    """A barrier of all threads: each reads what the last one wrote."""
    lines = ["mad.lo.u32 %r0, %t, 4, %base;", "st.shared.b32 [%r0], %t;", "mov.u32 %r9, 2;", f"{sync} {arguments};"]
    lines += ["xor.b32 %r1, %t, 127;", "mad.lo.u32 %r1, %r1, 4, %base;", "ld.shared.b32 %r2, [%r1];", at("out", 4)]
    text = assembled(["out"], [*lines, "st.global.b32 [%d0], %r2;"], shared_bytes=512)
    expected = np.arange(128, dtype=np.uint32) ^ 127
    name = f"{sync} {arguments}"
    return Case(name, text, {}, {"out": ((128,), np.uint32)}, 1, 128, lambda given: {"out": expected.copy()})


def of_a_warp() -> Case:
    lines = [
        "mad.lo.u32 %r0, %t, 4, %base;",
        "st.shared.b32 [%r0], %t;",
        "bar.warp.sync 0xffffffff;",
        "xor.b32 %r1, %t, 31;",
    ]
    lines += ["mad.lo.u32 %r1, %r1, 4, %base;", "ld.shared.b32 %r2, [%r1];", at("out", 4), "st.global.b32 [%d0], %r2;"]
    text = assembled(["out"], lines, shared_bytes=512)
    expected = np.arange(64, dtype=np.uint32) ^ 31
    return Case("bar.warp.sync", text, {}, {"out": ((64,), np.uint32)}, 1, 64, lambda given: {"out": expected.copy()})


def _named() -> list[Case]:
    cases = [reduction(f"{root}.{form}") for root in ("bar.red", "bar.cta.red", "barrier.red",
    "barrier.cta.red.aligned")
             for form in ("popc.u32", "and.pred", "or.pred")]  # fmt: skip
    cases += [handed_on("bar.arrive", "bar.sync"), handed_on("barrier.arrive", "barrier.sync"),
              handed_on("barrier.cta.arrive.aligned", "barrier.cta.sync.aligned"), handed_on("bar.cta.arrive",
              "bar.cta.sync")]  # fmt: skip
    for sync in ("bar.sync", "barrier.sync", "barrier.sync.aligned", "barrier.cta.sync"):
        cases += [whole(sync, each) for each in ("1", "1, 128", "%r9")]
    return [*cases, of_a_warp()]


# --- registers of the machine -----------------------------------------------------------------------------------------


def special(name: str, value: np.ndarray, ctas: int = 4, cluster: int = 2, kind: str = "u32") -> Case:
    """A special register of every thread of four CTAs in clusters of two."""
    register = "%p3" if kind == "pred" else "%r5"
    lines = [
        f"mov.{kind} {register}, %{name};",
        *(["selp.u32 %r5, 1, 0, %p3;"] if kind == "pred" else []),
        at("out", 4),
    ]
    text = assembled(["out"], [*lines, "st.global.b32 [%d0], %r5;"], shared_bytes=256)
    outputs = {"out": ((64 * ctas,), np.uint32)}
    expected = np.broadcast_to(np.asarray(value), (64 * ctas,)).astype(np.uint32)
    spelled = f"mov.{kind}{'.' if kind == 'u32' else '/'}%{name}"
    return Case(spelled, text, {}, outputs, ctas, 64, lambda given: {"out": expected.copy()}, cluster=cluster)


def _specials() -> list[Case]:
    thread, cta = np.tile(np.arange(64), 4), np.repeat(np.arange(4), 64)
    lane, one = thread % 32, np.uint64(1)
    below = (one << lane.astype(np.uint64)) - one
    values = {
        "tid.x": thread, "tid.y": 0, "tid.z": 0, "ntid.x": 64, "ntid.y": 1, "ntid.z": 1, "ctaid.x": cta, "ctaid.y": 0,
        "ctaid.z": 0,
        "nctaid.x": 4, "nctaid.y": 1, "nctaid.z": 1, "laneid": lane, "clusterid.x": cta // 2, "clusterid.y": 0,
        "clusterid.z": 0,
        "nclusterid.x": 2, "nclusterid.y": 1, "nclusterid.z": 1, "cluster_ctaid.x": cta % 2, "cluster_ctaid.y": 0,
        "cluster_ctaid.z": 0,
        "cluster_nctaid.x": 2, "cluster_nctaid.y": 1, "cluster_nctaid.z": 1, "cluster_ctarank": cta % 2,
        "cluster_nctarank": 2,
        "lanemask_eq": one << lane.astype(np.uint64), "lanemask_lt": below, "lanemask_le": below * 2 + 1,
        "lanemask_ge": 0xFFFFFFFF - below, "lanemask_gt": 0xFFFFFFFF - (below * 2 + 1), "dynamic_smem_size": 0,
    }  # fmt: skip
    had = ("lanemask_lt", "lanemask_eq", "lanemask_ge", "laneid", "tid.x")
    cases = [special(name, np.asarray(value)) for name, value in values.items() if name not in had]
    return [*cases, special("is_explicit_cluster", np.asarray(1), kind="pred")]


# --- moves, and what leaves no trace ----------------------------------------------------------------------------------


def moved(opcode: str, lines: Sequence[str], value: np.ndarray) -> Case:
    case = single(opcode, lines, value)
    return Case(opcode, case.ptx, case.inputs, case.outputs, case.blocks, case.threads, case.function)


def _moves() -> list[Case]:
    lane = np.arange(256, dtype=np.uint32)
    index = "mov.u32 {t}, %tid.x;"
    wide = [".reg .b64 %w<4>;", ".reg .b16 %s<4>;", ".reg .f32 %f<2>;", ".reg .f64 %e<2>;"]
    forms = {
        "mov.b32": ([index, "mov.b32 {x}, {t};"], lane),
        "mov.u32": ([index, "mov.u32 {x}, {t};"], lane),
        "mov.s32": ([index, "mov.s32 {x}, {t};"], lane),
        "mov.f32": ([index, "mov.f32 %f0, 0f3F800000;", "mov.b32 {x}, %f0;"], np.full(256, 0x3F800000)),
        "mov.b16": ([index, "cvt.u16.u32 %s0, {t};", "mov.b16 %s1, %s0;", "cvt.u32.u16 {x}, %s1;"], lane),
        "mov.u16": ([index, "cvt.u16.u32 %s0, {t};", "mov.u16 %s1, %s0;", "cvt.u32.u16 {x}, %s1;"], lane),
        "mov.s16": ([index, "cvt.u16.u32 %s0, {t};", "mov.s16 %s1, %s0;", "cvt.u32.u16 {x}, %s1;"], lane),
        "mov.b64": ([index, "mov.b64 %w0, {{{t}, 7}};", "mov.b64 %w1, %w0;", "mov.b64 {{_, {x}}}, %w1;"], np.full(256,
        7)),
        "mov.u64": ([index, "cvt.u64.u32 %w0, {t};", "mov.u64 %w1, %w0;", "cvt.u32.u64 {x}, %w1;"], lane),
        "mov.s64": ([index, "cvt.u64.u32 %w0, {t};", "mov.s64 %w1, %w0;", "cvt.u32.u64 {x}, %w1;"], lane),
        "mov.f64": (["mov.f64 %e0, 0d3FF0000000000000;", "mov.b64 {{_, {x}}}, %e0;"], np.full(256, 0x3FF00000)),
        "mov.pred": ([index, "setp.lt.u32 {p}, {t}, 9;", "mov.pred {q}, {p};", "selp.u32 {x}, 1, 0, {q};"], lane < 9),
        "mov.b32/pack": ([index, "cvt.u16.u32 %s0, {t};", "mov.b32 {x}, {{%s0, 5}};"], lane | 5 << 16),
        "mov.b32/unpack": ([index, "shl.b32 {t}, {t}, 16;", "mov.b32 {{%s0, %s1}}, {t};", "cvt.u32.u16 {x}, %s1;"],
        lane),
        "mov.b64/four": (["mov.b64 %w0, 0x0004000300020001;", "mov.b64 {{%s0, %s1, %s2, %s3}}, %w0;",
        "mov.b32 {x}, {{%s3, %s1}};"],
                         np.full(256, 0x20004)),
    }  # fmt: skip
    return [moved(name, [*wide, *lines], np.asarray(value)) for name, (lines, value) in forms.items()]


_SILENT = (
    "griddepcontrol.wait;", "griddepcontrol.launch_dependents;", "fence.acq_rel.cta;", "fence.acq_rel.gpu;",
    "fence.acq_rel.sys;",
    "fence.acq_rel.cluster;", "fence.sc.cta;", "fence.sc.gpu;", "fence.sc.sys;", "fence.sc.cluster;", "membar.cta;",
    "membar.gl;",
    "membar.sys;", "fence.proxy.async;", "fence.proxy.async.global;", "fence.proxy.async.shared::cta;",
    "fence.proxy.async.shared::cluster;",
    "fence.proxy.alias;", "fence.mbarrier_init.release.cluster;",
    "fence.acquire.sync_restrict::shared::cluster.cluster;",
    "fence.release.sync_restrict::shared::cta.cluster;",
    "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;",
    "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;", "fence.acquire.gpu;",
    "fence.release.gpu;",
    "fence.proxy.tensormap::generic.release.gpu;", "fence.proxy.tensormap::generic.release.sys;",
    "prefetch.global.L2 [%out];", "prefetch.global.L1 [%out];", "prefetch.L2 [%out];",
    "prefetch.global.L2::evict_last [%out];",
    "prefetchu.L1 [%out];", "cp.async.commit_group;", "cp.async.wait_group 0;", "cp.async.wait_all;",
    "cp.async.bulk.commit_group;",
    "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;", "cp.async.bulk.prefetch.L2.global [%out], 256;",
    "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;",
    "applypriority.global.L2::evict_normal [%out], 128;",
)  # fmt: skip


def silent(line: str) -> Case:
    """An instruction that orders, waits or hints: it compiles, runs, and changes nothing."""
    body = [line, at("out", 4), "st.global.b32 [%d0], %g;"]
    text = assembled(["out"], body)
    expected = np.arange(128, dtype=np.uint32)
    return Case(
        line.split(" ")[0].rstrip(";"),
        text,
        {},
        {"out": ((128,), np.uint32)},
        1,
        128,
        lambda given: {"out": expected.copy()},
    )


def register_counts() -> Case:
    """`setmaxnreg` of a kernel that is launched with 64 registers a thread: it gives some back and takes them again."""
    lines = [
        "setmaxnreg.dec.sync.aligned.u32 40;",
        "bar.sync 0;",
        "setmaxnreg.inc.sync.aligned.u32 64;",
        at("out", 4),
        "st.global.b32 [%d0], %g;",
    ]
    text = assembled(["out"], lines, directives=".maxnreg 64\n")
    expected = np.arange(128, dtype=np.uint32)
    return Case(
        "setmaxnreg.dec.sync.aligned.u32",
        text,
        {},
        {"out": ((128,), np.uint32)},
        1,
        128,
        lambda given: {"out": expected.copy()},
    )


def addresses() -> list[Case]:
    """Generic addresses and back, and which space they are in."""
    cases = []
    for space in ("global", "shared", "local", "const"):
        base = {"global": "%out", "shared": "%d1", "local": "%d2", "const": "%d3"}[space]
        body = [
            ".local .align 4 .b8 stack[16];",
            "cvt.u64.u32 %d1, %base;",
            "mov.u64 %d2, stack;",
            "mov.u64 %d3, table;",
        ]
        body += [
            f"cvta.{space}.u64 %d4, {base};",
            f"cvta.to.{space}.u64 %d5, %d4;",
            f"setp.eq.u64 %p0, %d5, {base};",
            "selp.u32 %r1, 1, 0, %p0;",
        ]
        for bit, other in enumerate(("global", "shared", "local")):
            body += [f"isspacep.{other} %p1, %d4;", f"selp.u32 %r2, {2 << bit}, 0, %p1;", "or.b32 %r1, %r1, %r2;"]
        body += ["isspacep.shared::cta %p1, %d4;", "selp.u32 %r2, 16, 0, %p1;", "or.b32 %r1, %r1, %r2;",
        "isspacep.shared::cluster %p1, %d4;",
                 "selp.u32 %r2, 32, 0, %p1;", "or.b32 %r1, %r1, %r2;", at("out", 4),
                 "st.global.b32 [%d0], %r1;"]  # fmt: skip
        value = {"global": 1 | 2, "shared": 1 | 4 | 16 | 32, "local": 1 | 8, "const": 1}[space]
        text = assembled(["out"], body, shared_bytes=64, module=".const .align 4 .b32 table[4] = {1, 2, 3, 4};\n")
        expected = np.full(32, value, np.uint32)
        cases.append(
            Case(
                f"cvta.{space}.u64",
                text,
                {},
                {"out": ((32,), np.uint32)},
                1,
                32,
                lambda given, e=expected: {"out": e.copy()},
            )
        )
    return cases


def barrier_cases() -> list[Case]:
    cases = [*_one_thread(), *_clusters(), *_named(), *_specials(), *_moves(), *(silent(each) for each in _SILENT)]
    return [*cases, register_counts(), *addresses()]
