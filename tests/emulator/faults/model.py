"""What a seeded fault is: a correct kernel, one edit of it, and the code that the emulator must give for the edit.

A fault is data. `Kernel` is the correct twin with its launch; an edit changes its text, its launch or the options of
the run, in one place. The twin must be silent under every setting of `Kernel.settings`; the fault must be named under
the setting that it states (and under whichever others happen to show it).

To add faults: a module beside this one with a list `FAULTS`, named in `__init__.py`. Imports the emulator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from advisor.emulator import KernelFault, Outcome, Program, load_program, run
from advisor.emulator.expected import compare, expectations
from advisor.emulator.policy import POLICIES
from advisor.errors import AdvisorError
from advisor.records.launch import ResolvedLaunch
from tests.emulator.kernels import launch as small_launch
from tests.emulator.kernels import module

Setting = Mapping[str, Any]
WRONG_VALUES = "wrong values"
"""In place of a code: no rule of PTX is broken, and the formula of the launch is not met."""


def settings(seeds: int = 2, **axes: tuple[Any, ...]) -> tuple[Setting, ...]:
    """Every way in which asynchronous work may land, with `seeds` seeds each, times the values of the other axes."""
    found: list[Setting] = [{"async_policy": policy, "seed": seed} for policy in POLICIES for seed in range(seeds)]
    for name, values in axes.items():
        found = [{**each, name: value} for each in found for value in values]
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A correct kernel, its launch and its first bytes. `text` may be a function where a compiler makes the PTX; where
    it takes the names of macros, `Macro` edits the source."""

    text: str | Callable[..., str]
    launch: ResolvedLaunch = field(default_factory=small_launch)
    inputs: Mapping[str, np.ndarray] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of `run`
    settings: tuple[Setting, ...] = settings()

    @property
    def ptx(self) -> str:
        return self.text if isinstance(self.text, str) else self.text()

    def run(self, **setting: Any) -> Outcome:
        options = {"step_limit": 200_000, **self.options, **setting}
        return run(_program(self.ptx, self.launch.entry), self.launch, inputs=self.inputs, **options)


@dataclass(frozen=True, eq=False)
class Routine:
    """A correct kernel behind a function of a test, which builds and runs it. `Arguments` edits the call."""

    function: Callable[..., object]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[Setting, ...] = settings()

    def run(self, **setting: Any) -> object:
        return self.function(**self.arguments, **setting)


@cache
def _program(ptx: str, entry: str) -> Program:
    return load_program(ptx, entry)


def kernel(body: str, launch: ResolvedLaunch | None = None, *, declarations: str = "", **more: Any) -> Kernel:
    """A kernel of a few lines after the prologue of `tests.emulator.kernels`."""
    return Kernel(module(body, declarations=declarations), launch or small_launch(), **more)


# --- edits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """Another text at one place of the PTX."""

    old: str
    new: str

    def apply(self, twin: Kernel) -> Kernel:
        ptx = twin.ptx
        assert ptx.count(self.old) == 1, f"{self.old!r} occurs {ptx.count(self.old)} times"
        return replace(twin, text=ptx.replace(self.old, self.new))


@dataclass(frozen=True)
class Pattern:
    """Another text at every place of the PTX that matches: one edit of the source, where a compiler unrolls. `only`
    names one of the places, from 1."""

    old: str
    new: str
    only: int | None = None

    def apply(self, twin: Kernel) -> Kernel:
        ptx = twin.ptx
        matches = list(re.finditer(self.old, ptx))
        chosen = matches if self.only is None else matches[self.only - 1 : self.only]
        assert chosen, f"{self.old!r} is nowhere"
        for match in reversed(chosen):
            ptx = ptx[: match.start()] + match.expand(self.new) + ptx[match.end() :]
        return replace(twin, text=ptx)


@dataclass(frozen=True)
class Macro:
    """Another source: the macro says what is left out or done wrong."""

    name: str

    def apply(self, twin: Kernel) -> Kernel:
        assert not isinstance(twin.text, str)
        return replace(twin, text=partial(twin.text, self.name))


@dataclass(frozen=True)
class Launch:
    """Other fields of the launch."""

    fields: Mapping[str, Any]

    def apply(self, twin: Kernel) -> Kernel:
        return replace(twin, launch=twin.launch.model_copy(update=dict(self.fields)))


@dataclass(frozen=True)
class Options:
    """Other options of the run, or other first bytes (`inputs`)."""

    fields: Mapping[str, Any]

    def apply(self, twin: Kernel) -> Kernel:
        fields = dict(self.fields)
        inputs = fields.pop("inputs", twin.inputs)
        return replace(twin, inputs=inputs, options={**twin.options, **fields})


@dataclass(frozen=True)
class Arguments:
    """Other arguments of the call that builds the kernel: one part of its text, or one of its numbers."""

    fields: Mapping[str, Any]

    def apply(self, twin: Routine) -> Routine:
        return replace(twin, arguments={**twin.arguments, **self.fields})


Edit = Text | Pattern | Macro | Launch | Options


# --- faults -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """`name` says what is wrong. `setting` is one under which the emulator must give `code`; a warning's code counts
    where the page of the code is a warning's. `field_case` is the number of an incident in the field of this kind."""

    name: str
    code: str
    twin: Kernel | Routine
    edit: Edit | Arguments
    setting: Setting = field(default_factory=lambda: {"async_policy": "lazy", "seed": 0})
    field_case: str = ""

    def found(self) -> list[str]:
        """The codes that the faulty kernel gets: of the fault that stopped it, or of its warnings."""
        return codes_of(self.edit.apply(self.twin), self.setting)  # type: ignore[arg-type]


def codes_of(kernel: Kernel | Routine, setting: Setting) -> list[str]:
    outcome: Any
    try:
        outcome = kernel.run(**setting)
    except KernelFault as fault:
        is_placed = fault.finding.place.ptx_line is not None or fault.code == "EMU_DEADLOCK"
        return [fault.code if is_placed else f"{fault.code} without a place"]
    except AdvisorError as error:
        return [error.code]
    found = [each.code for each in getattr(outcome, "warnings", ())]
    if isinstance(kernel, Kernel):
        for each in expectations(kernel.launch, kernel.inputs or {}):
            if not compare(each, outcome.buffers[each.buffer], kernel.launch.buffers[each.buffer]).passed:
                found.append(WRONG_VALUES)
    return found


@dataclass(frozen=True)
class Mistake:
    """A mistake in the files around a kernel. Both actions get an empty folder; `wrong` must raise `code`."""

    name: str
    code: str
    right: Callable[[Path], object]
    wrong: Callable[[Path], object]
