"""The list of cases of one target: a name and a function that makes the case. Imports no compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.emulator.compilers.harness import Case

Builder = Callable[[], Case]


@dataclass
class Catalogue:
    """`slow` holds the names that the quick tier leaves out."""

    cases: dict[str, Builder] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)

    def add(self, name: str, build: Builder, *, slow: bool = False) -> None:
        assert name not in self.cases, f"two cases are named {name}"
        self.cases[name] = build
        if slow:
            self.slow.add(name)

    @property
    def quick(self) -> list[str]:
        return [name for name in self.cases if name not in self.slow]

    def case(self, build: Builder) -> Builder:
        """Adds a function under its own name."""
        self.add(build.__name__, build)
        return build
