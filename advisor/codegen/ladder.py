"""The ladder of a bundle: which kernel or sequence runs, on exactly which condition. Imports `records`.

An image that loads, clusters that fit, a grid that the caller's SM budget allows: these follow from the launch itself.
What the kernel's tensor maps ask of addresses and strides comes with its specs. The portable rung always runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records.launch import Kernel, KernelSpec, Rung

# These launch one cluster per tile: their grid covers every SM, whatever the caller's budget is.
_WHOLE_GRID = ("one_tile", "clc")


def rung(run: str, specs: Sequence[KernelSpec]) -> Rung:
    """The rung that launches the kernels of `specs` in order under the name `run`."""
    kernels = [spec.kernel for spec in specs]
    if all(kernel.family == "portable" for kernel in kernels):
        return Rung(run=run, when="True")
    terms = [f"loadable('{kernel.id}')" for kernel in kernels]
    terms += [f"max_active_clusters('{kernel.id}') > 0" for kernel in kernels if _may_not_fit(kernel)]
    if kernels[0].schedule in _WHOLE_GRID:
        terms.append("sm_budget >= num_sms")
    terms += [term for spec in specs for term in spec.conditions]
    return Rung(run=run, when=" and ".join(dict.fromkeys(terms)))


def _may_not_fit(kernel: Kernel) -> bool:
    """Whether a device that loads the kernel might still be unable to hold one cluster of it."""
    return kernel.cluster != (1, 1, 1) or kernel.dynamic_smem_bytes not in (0, "0")
