"""wgmma on the machine: the four warps of a warpgroup meet at its instructions, however they come there."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.emulator import KernelFault
from advisor.emulator.policy import POLICIES
from tests.emulator.kernels import launch, results

# Warp 5 comes to the fence when the first warpgroup is past its own: the others of its warpgroup wait there for it.
LATE_WARP = """
    shr.u32 %r4, %r0, 5;
    setp.ne.u32 %p0, %r4, 5;
    @%p0 bra meet;
    bar.sync 1, 160;
meet:
    wgmma.fence.sync.aligned;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    setp.ge.u32 %p1, %r4, 4;
    @%p1 bra done;
    bar.sync 1, 160;
done:
    st.global.u32 [%d4], %r0;
"""


@pytest.mark.parametrize("policy", POLICIES)
def test_a_warpgroup_waits_for_its_last_warp_and_another_one_goes_on(policy: str) -> None:
    for seed in range(4):
        found = results(LATE_WARP, launch(256), async_policy=policy, seed=seed)
        np.testing.assert_array_equal(found, np.arange(256))


def test_a_warp_that_never_comes_is_named() -> None:
    leaves = LATE_WARP.replace("bar.sync 1, 160;\nmeet:", "exit;\nmeet:").replace("bar.sync 1, 160;\ndone", "done")
    with pytest.raises(KernelFault) as caught:
        results(leaves, launch(256))
    assert caught.value.code == "EMU_WARP_SYNC"
    assert "wgmma.fence" in str(caught.value)
