"""A backend whose reference of `kind: scale` is off by a part in a million: what judges must see it."""

from __future__ import annotations

from typing import Any

from advisor.validation.emulator import EmulatorBackend, Setup


class WrongReference(EmulatorBackend):
    def open(self, setup: Setup) -> None:
        super().open(setup)
        right = self._workload

        class Off:
            def __getattr__(self, name: str) -> Any:
                return getattr(right, name)

            def reference(self, case: Any, inputs: Any) -> Any:
                return {name: values * (1.0 + 1e-6) for name, values in right.reference(case, inputs).items()}

        self._workload = Off()
