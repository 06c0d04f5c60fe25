"""What an acceptance runs in the child that has the GPU: the validation's backend, and launches in other surroundings.

Imports `validation`, `runtime`, `machine` and `errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from advisor.errors import DeviceError
from advisor.machine.profile_file import write_profile
from advisor.records.case import Case
from advisor.runtime.contention import LIMIT_S as HOLDERS_LEAVE_S
from advisor.runtime.contention import Holder
from advisor.runtime.probe import probe
from advisor.validation.gpu import LAUNCHES, CaseOutcome, GpuBackend, Ready, Setup, Stage, each_once

HELD_LIMIT_S = HOLDERS_LEAVE_S - 2.0  # a launch that takes longer might have waited for the holders to leave
CALIBRATION_LIMIT_S = 180.0  # of one piece of the probe
REPLAYS = 4
MANY = 1000
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class AcceptSetup:
    """`launch_limit_s` is how long anything with a launch of ours in it may take; `hold` the cubin that holds SMs."""

    gpu: Setup
    launch_limit_s: float
    hold: bytes


class AcceptBackend(GpuBackend):
    """Made by `validation.child`; every public method is a call of the parent."""

    def __init__(self, stage: Stage) -> None:
        self._launch_limit_s = 0.0
        self._announce = stage

        def limited(name: str, limit_s: float) -> None:
            """What waits for a launch has the limit that was asked for."""
            stage(name, self._launch_limit_s if "launch" in name else limit_s)

        super().__init__(limited)

    def open(self, setup: AcceptSetup) -> None:  # type: ignore[override]
        self._launch_limit_s, self._hold_image = setup.launch_limit_s, setup.hold
        super().open(setup.gpu)

    def load(self) -> dict[str, str]:
        """Why the image of each kernel does not load; empty where it does."""
        found = {}
        for kernel_id, image in self._setup.images.items():
            self._stage(f"loading {kernel_id}", 60.0)
            try:
                self._device.load(Path(image.path).read_bytes(), self._setup.launch.kernel(kernel_id).entry)
                found[kernel_id] = ""
            except DeviceError as error:
                found[kernel_id] = str(error)
        return found

    def calibrate(self, images: Mapping[str, bytes]) -> tuple[str, dict[str, Any]]:
        """The measured profile as TOML, and what it was made from."""
        self._stage("calibration", CALIBRATION_LIMIT_S)
        found = probe(
            self._device, images, progress=lambda name: self._announce(f"calibration: {name}", CALIBRATION_LIMIT_S)
        )
        return write_profile(found.profile), found.document

    def run_held(self, run: str, kernel_ids: Sequence[str], case: Case, sms: int) -> CaseOutcome:
        """A launch while other work holds `sms` SMs, all of them until it has ended.

        Raises DeviceError HOLDERS_MISSING where that many cannot be held.
        """
        ready = self._made_ready(kernel_ids, case)
        first = self._first(ready)  # loads and sets up whatever the launch needs: nothing may wait for the device below
        if not all(first.checks.values()):
            return first
        holder = Holder(self._device, self._hold_image, sms)
        self._repoison(ready.arrays, ready.outputs)
        self._stage(f"{case.name}: holding {sms} SMs", HOLDERS_LEAVE_S)
        with holder:
            self._announce(f"{case.name}: launch while {sms} SMs are held", min(HELD_LIMIT_S, self._launch_limit_s))
            each_once(ready.works, self._device.stream)
            self._device.wait(self._device.stream)
            self._stage(f"{case.name}: letting go", HOLDERS_LEAVE_S)
        holder.close()
        self._stage(f"{case.name}: comparison", 180.0)
        outcome = self._check(ready)
        same = outcome.digest == first.digest
        self._device.release(ready.scratch)
        return replace(
            outcome,
            checks={**outcome.checks, "same_bits_as_on_an_idle_gpu": same},
            detail=outcome.detail if same else "other bits than on the idle GPU",
            launches=2,
        )

    def run_graph(self, run: str, kernel_ids: Sequence[str], case: Case) -> CaseOutcome:
        """Replays of a graph of 64 launches, each over fresh poison."""
        ready = self._made_ready(kernel_ids, case)
        first = self._first(ready)
        if ready.is_empty or not all(first.checks.values()):
            return first
        graph = self._device.capture(partial(each_once, list(ready.works) * LAUNCHES))
        outcome = self._again(ready, first, "same_bits_in_a_graph", REPLAYS, graph.launch, LAUNCHES)
        graph.close()
        return outcome

    def run_many(self, run: str, kernel_ids: Sequence[str], case: Case) -> CaseOutcome:
        """A thousand launches back to back, in rounds over fresh poison."""
        ready = self._made_ready(kernel_ids, case)
        first = self._first(ready)
        if ready.is_empty or not all(first.checks.values()):
            return first
        each_round = MANY // ROUNDS

        def launch(stream: Any) -> None:
            for _ in range(each_round):
                each_once(ready.works, stream)

        return self._again(ready, first, "same_bits_1000_launches", ROUNDS, launch, each_round)

    def _again(
        self,
        ready: Ready,
        first: CaseOutcome,
        check: str,
        rounds: int,
        launch: Callable[[Any], None],
        launches: int,
    ) -> CaseOutcome:
        """The first launch's outcome, and whether `rounds` of `launches` left its bits."""
        bits = {name: self._xp.copy(self._array(name)) for name in ready.outputs}
        same = True
        for number in range(1, rounds + 1):
            self._repoison(ready.arrays, ready.outputs)
            self._stage(f"{ready.case.name}: {launches} launches, round {number} of {rounds}", 0.0)
            launch(self._device.stream)
            self._device.synchronize()
            same = same and all(self._xp.same(self._array(name), bits[name]) for name in ready.outputs)
        self._device.release(ready.scratch)
        return replace(
            first,
            checks={**first.checks, check: same},
            detail=first.detail if same else f"{check} is false",
            launches=1 + rounds * launches,
        )
