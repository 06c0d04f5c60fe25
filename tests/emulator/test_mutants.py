"""A sample of mutants of the project's kernels: each is reported, or the committed list says why it is not."""

from __future__ import annotations

import pytest

from tests.emulator.mutants.edits import mutants
from tests.emulator.mutants.runner import run_all, sample
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
"""


@pytest.mark.slow
def test_a_sample_of_mutants_is_reported_or_explained() -> None:
    verdicts = list(run_all(sample(SAMPLE, SEED), processes=2))
    assert len(verdicts) == SAMPLE
    assert [each.key for each in unexplained(verdicts)] == []


def test_every_step_has_its_edits() -> None:
    names = [each.name for each in mutants(PTX)]
    assert names == [
        "an arrival more: mbarrier.init.shared::cta.b64 #1",
        "an arrival fewer: mbarrier.init.shared::cta.b64 #1",
        "no fence: fence.proxy.async.shared::cta #1",
        "no arrival: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "two arrivals: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "16 bytes more: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "16 bytes fewer: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "no bytes: mbarrier.arrive.expect_tx.shared::cta.b64 #1",
        "no wait: mbarrier.try_wait.parity.shared::cta.b64 #1",
        "the other parity: mbarrier.try_wait.parity.shared::cta.b64 #1",
        "relaxed: mbarrier.try_wait.parity.shared::cta.b64 #1",
        "no wait: cp.async.bulk.wait_group.read #1",
        "a group more may be pending: cp.async.bulk.wait_group.read #1",
        "a mask without a lane: bar.warp.sync #1",
    ]


def test_an_edit_touches_its_instruction_alone() -> None:
    (fence,) = [each for each in mutants(PTX) if each.kind == "fences"]
    changed = fence.apply(PTX)
    assert len(PTX) - len(changed) == len("fence.proxy.async.shared::cta;")
    assert "in a comment" in changed
    assert fence.line == 3


def test_every_reason_says_which_of_two_it_is_and_why() -> None:
    for reason in reasons():
        assert reason.because in ("redundant", "gap")
        assert reason.why
        assert reason.kernels
        assert reason.mutants
