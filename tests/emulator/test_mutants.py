"""A sample of the mutants of correct kernels: each is reported, or the committed list says why it is not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tests.emulator.mutants import kept, subject
from tests.emulator.mutants.edits import KINDS, mutants
from tests.emulator.mutants.kept import Kept
from tests.emulator.mutants.runner import Verdict, everything, run_all, sample
from tests.emulator.mutants.subjects import subjects
from tests.emulator.mutants.survivors import reasons, unexplained

SAMPLE = 60
SEED = 0
PTX = """
    mbarrier.init.shared::cta.b64 [%r1], 4;
    fence.proxy.async.shared::cta; // fence.proxy.async in a comment
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
W:  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], %r3;
    cp.async.bulk.wait_group.read 1;
    bar.warp.sync -1;
    setmaxnreg.inc.sync.aligned.u32 216;
    setmaxnreg.dec.sync.aligned.u32 40;
    cp.async.cg.shared.global [%r1], [%rd1], 16;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r1], {%r2, %r3}, [%r4];
    st.shared.v2.b32 [%r1], {%r2, %r3};
"""
BLACKWELL = """
    @%p1 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 64;
    cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1, {%r2, %r3}], [%r4+8];
    tcgen05.mma.cta_group::2.kind::f16 [%r1], %d1, %d2, %r2, %p1;
    tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %h1;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%r1], [%r2];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q1;
    elect.sync _|%p3, -1;
    and.b32 %r5, %r4, -16777224;
    and.b32 %r5, %r4, 16777215;
    tcgen05.wait::ld.sync.aligned;
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r1, 64;
"""  # noqa: E501


@pytest.mark.slow
def test_a_sample_of_mutants_is_reported_or_explained() -> None:
    """Of all kernels whose compiler is installed."""
    verdicts = list(run_all(sample(SAMPLE, SEED), processes=2))
    assert len(verdicts) == SAMPLE
    assert [each.key for each in unexplained(verdicts)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", subjects())
def test_a_kernel_is_silent_and_right_before_it_is_mutated(name: str) -> None:
    subject = subjects()[name]
    if not subject.available:
        pytest.skip(f"{subject.package} is not installed")
    assert subject.sound


def test_every_kind_of_kernel_is_there() -> None:
    kernels: dict[str, list[str]] = {}
    for each in subjects().values():
        kernels.setdefault(each.group, []).append(each.name)
    counts = {group: len(names) for group, names in kernels.items()}
    assert counts == {"sm90": 5, "sm100": 5, "rows": 7, "Gluon": 3, "opengemm": 2}
    for group in ("sm100", "Gluon", "opengemm"):
        assert any("claim" in name for name in kernels[group])
        assert any("pair" in name for name in kernels[group])
    assert any("cluster that claims" in name for name in kernels["rows"])


def test_kernels_of_a_compiler_that_is_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(subject, "find_spec", nothing)
    assert everything(["Gluon", "opengemm"]) == []


def test_a_verdict_is_taken_again_where_its_kernel_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, path = "rows, one CTA to a row, one row", tmp_path / "verdicts.jsonl"
    verdict = Verdict("rows", name, subjects()[name].mutants[0], "EMU_DEADLOCK", "lazy, seed 0")
    Kept(path).add(verdict)
    assert Kept(path).verdict((name, 0)) == verdict
    assert Kept(path).verdict((name, 1)) is None
    monkeypatch.setattr(kept, "digest", lambda subject: "another kernel")
    assert Kept(path).verdict((name, 0)) is None


def names_of(ptx: str, of: str = "") -> list[str]:
    return [each.name for each in mutants(ptx) if of in each.name]


def test_every_step_has_its_edits() -> None:
    assert names_of(PTX) == [
        "no initialisation: mbarrier.init.shared::cta.b64 #1",
        "at the next mbarrier: mbarrier.init.shared::cta.b64 #1",
        "an arrival more: mbarrier.init.shared::cta.b64 #1",
        "an arrival fewer: mbarrier.init.shared::cta.b64 #1",
        "no fence: fence.proxy.async.shared::cta #1",
        "no arrival: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "two arrivals: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "at the next mbarrier: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "16 bytes more: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "16 bytes fewer: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "no bytes: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "by every thread: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "no wait: mbarrier.try_wait.parity.shared::cta.b64 #1",
        "at the next mbarrier: mbarrier.try_wait.parity.shared::cta.b64 #1",
        "the other parity: mbarrier.try_wait.parity.shared::cta.b64 #1",
        "relaxed: mbarrier.try_wait.parity.shared::cta.b64 #1",
        "no wait: cp.async.bulk.wait_group.read #1",
        "a group more may be pending: cp.async.bulk.wait_group.read #1",
        "a mask without a lane: bar.warp.sync #1",
        "8 registers more: setmaxnreg.inc.sync.aligned.u32 #1",
        "8 registers more: setmaxnreg.dec.sync.aligned.u32 #1",
        "no registers given back: setmaxnreg.dec.sync.aligned.u32 #1",
        "no copy: cp.async.cg.shared.global #1",
        "no store: st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 #1",
        "two stores: st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 #1",
        "at the next mbarrier: st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 #1",
        "8 bytes further: st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 #1",
    ]


BLACKWELL_EDITS: dict[str, Sequence[str]] = {
    "tcgen05.alloc": (
        "of one CTA", "by every thread", "no allocation", "half of the columns", "the permit given up first",
    ),
    "cp.async.bulk.tensor": ("no copy", "two copies", "at the next mbarrier", "of one CTA"),
    "tcgen05.mma": ("of one CTA",),
    "tcgen05.commit": (
        "a mask without its lowest CTA", "a mask with the next CTA", "no commit", "two commits", "at the next mbarrier",
        "a commit to this CTA alone", "of one CTA",
    ),
    "try_cancel": (
        "no request", "two requests", "at the next mbarrier", "a response 16 bytes further", "a request of one CTA",
    ),
    "is_canceled": ("granted, whatever the answer", "declined, whatever the answer"),
    "and.b32": ("in this CTA",),
    "elect.sync": ("a mask without a lane", "every lane elected", "no lane elected"),
    "tcgen05.wait": ("no wait",),
    "tcgen05.dealloc": ("of one CTA", "no deallocation", "half of the columns", "two deallocations"),
}  # fmt: skip


@pytest.mark.parametrize("step", list(BLACKWELL_EDITS))
def test_steps_of_blackwell(step: str) -> None:
    assert [each.split(":")[0] for each in names_of(BLACKWELL, step)] == list(BLACKWELL_EDITS[step])


def test_nothing_else_of_blackwell_is_a_step() -> None:
    assert len(mutants(BLACKWELL)) == sum(map(len, BLACKWELL_EDITS.values()))
    assert {each.kind for each in mutants(PTX + BLACKWELL)} == set(KINDS)


def test_an_edit_changes_the_text_as_it_says() -> None:
    by_name = {each.name: each for each in mutants(BLACKWELL)}
    (copy,) = [each for name, each in by_name.items() if name.startswith("at the next mbarrier: cp.async")]
    assert "[%r4+16];" in copy.apply(BLACKWELL)
    (plain,) = [each for name, each in by_name.items() if name.startswith("a commit to this CTA alone")]
    assert "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%r1];" in plain.apply(BLACKWELL)
    (push,) = [each for each in mutants(PTX) if each.name.startswith("at the next mbarrier: st.async")]
    assert "[%r1], {%r2, %r3}, [%r4+8];" in push.apply(PTX)
    assert "and.b32 %r5, %r4, -8;" in by_name["in this CTA: and.b32 #1"].apply(BLACKWELL)


def test_an_edit_touches_its_instruction_alone() -> None:
    (fence,) = [each for each in mutants(PTX) if each.kind == "fences"]
    changed = fence.apply(PTX)
    assert len(PTX) - len(changed) == len("fence.proxy.async.shared::cta;")
    assert "in a comment" in changed
    assert fence.line == 3


def test_every_reason_says_which_of_two_it_is_and_why() -> None:
    known = list(subjects())
    for reason in reasons():
        assert reason.because in ("redundant", "gap")
        assert reason.why
        assert reason.mutants
        for pattern in reason.kernels:
            assert any(re.fullmatch(pattern.replace("*", ".*"), name) for name in known), f"{pattern} names no kernel"
