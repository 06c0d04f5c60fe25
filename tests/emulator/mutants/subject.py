"""What is mutated: a correct kernel with its launch, its inputs, and what must come out.

Imports its own package and the emulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np

from advisor.emulator import Outcome, Program, load_program, run
from advisor.machine.profile import DeviceProfile
from advisor.machine.profile_file import load_profile
from advisor.records.launch import ResolvedLaunch
from tests.emulator.mutants.edits import Mutant, mutants

Setting = Mapping[str, Any]
ASYNC: tuple[Setting, ...] = tuple(
    {"async_policy": policy, "seed": seed}
    for policy, seed in (
        ("adversarial", 0), ("random", 0), ("lazy", 0), ("eager", 0), ("random", 1), ("adversarial", 1), ("random", 2),
    )
)  # fmt: skip
"""In the order in which they are tried; the first report ends the search."""
CLAIMING: tuple[Setting, ...] = tuple(
    setting | {"clc": clc}
    for setting, clc in zip(
        ASYNC, ("grant", "random", "decline:1", "spurious", "grant", "preempt", "decline:2"), strict=True
    )
)
"""For kernels that ask for their work."""
STEP_LIMIT = 100_000


def few_sms(count: int) -> DeviceProfile:
    """A B200 of so few SMs that several tiles fall to each cluster."""
    return replace(load_profile("b200"), sms=count, sm_groups=(count,))


@dataclass(frozen=True, eq=False)
class Kernel:
    """`right` says whether an outcome has the expected values."""

    ptx: str
    launch: ResolvedLaunch
    right: Callable[[Outcome], bool]
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Subject:
    """`build` compiles the kernel, when it is first asked for; `package` is what it takes beside NVRTC, or empty."""

    group: str
    name: str
    build: Callable[[], Kernel]
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[Setting, ...] = ASYNC
    package: str = ""

    @property
    def available(self) -> bool:
        return not self.package or find_spec(self.package) is not None

    @cached_property
    def kernel(self) -> Kernel:
        return self.build()

    @cached_property
    def mutants(self) -> list[Mutant]:
        return mutants(self.kernel.ptx)

    def load(self, ptx: str) -> Program:
        return load_program(ptx, self.kernel.launch.entry)

    def run(self, program: Program, setting: Setting) -> Outcome:
        kernel = self.kernel
        return run(program, kernel.launch, inputs=kernel.inputs, **{**self.options, **setting})

    @property
    def sound(self) -> bool:
        """Whether the kernel itself is silent and right under every setting. Raises what the emulator raises."""
        program = self.load(self.kernel.ptx)
        outcomes = [self.run(program, setting) for setting in self.settings]
        return all(not each.warnings and self.kernel.right(each) for each in outcomes)
