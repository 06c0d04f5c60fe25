"""A suite: a data file of problems, and what each is compared with. Imports `problem` and `errors`.

    title: The 20 shapes of data/h200_library_baseline.json
    compare: [library, copy]         # library, library_whole, copy, triton; default: library
    defaults: {kind: gemm, dtype: bf16}
    problems:
      - {m: 8192, n: 8192, k: 8192}  # keys of a problem file, over the defaults

A problem without a name of its own is called after its whole numbers: `m8192_n8192_k8192`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from advisor.errors import InputError, Where
from advisor.problem import Document, Problem, parse_problem, read_document

Baseline = Literal["library", "library_whole", "copy", "triton"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)
KEYS = ("title", "compare", "defaults", "problems")
MAX_PROBLEMS = 1000


@dataclass(frozen=True, slots=True)
class Item:
    """One problem of a suite. `text` is a problem file."""

    name: str
    text: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Suite:
    name: str  # the file's stem
    title: str
    sha256: str  # of the file
    compare: tuple[Baseline, ...]
    items: tuple[Item, ...]


def load_suite(path: str | Path) -> Suite:
    """The suite in a file. Raises ProblemError for a file that is no YAML and for a problem that breaks a rule,
    InputError SUITE_INVALID for anything else that is no suite."""
    path = Path(path)
    document = read_document(path)
    values = document.values
    unknown = [key for key in values if key not in KEYS]
    if unknown:
        raise _invalid(document, unknown[0], f"{unknown[0]!r} is not a key of a suite", f"it has {', '.join(KEYS)}")
    compare = values.get("compare", ["library"])
    if not isinstance(compare, list) or any(each not in BASELINES for each in compare):
        raise _invalid(document, "compare", f"compare lists some of {', '.join(BASELINES)}", "see docs/benchmarks.md")
    defaults, problems = values.get("defaults", {}), values.get("problems")
    if not isinstance(defaults, dict):
        raise _invalid(document, "defaults", "defaults is a mapping of keys of a problem file", "write defaults: {...}")
    if not isinstance(problems, list) or not 0 < len(problems) <= MAX_PROBLEMS:
        raise _invalid(document, "problems", f"problems lists 1 to {MAX_PROBLEMS} problems", "write problems: [{...}]")
    items: dict[str, Item] = {}
    for index, given in enumerate(problems):
        place = f"problems.{index}"
        if not isinstance(given, dict):
            raise _invalid(document, place, "a problem is a mapping", "write {m: 8192, n: 8192, k: 8192}")
        item = _item({**defaults, **given}, given, f"{path}: {place}")
        if item.name in items:
            raise _invalid(document, place, f"two problems are called {item.name}", "give one a name of its own")
        items[item.name] = item
    return Suite(
        name=path.stem,
        title=str(values.get("title", path.stem)),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        compare=tuple(compare),
        items=tuple(items.values()),
    )


def _item(values: dict[str, Any], given: Mapping[str, Any], place: str) -> Item:
    values.setdefault("name", default_name(given))
    text = _yaml(values)
    problem = parse_problem(text, place)
    return Item(problem.name, text, problem)


def default_name(values: Mapping[str, Any]) -> str:
    """`m8192_n8192_k8192`: the whole numbers of a problem in its own order."""
    numbers = [f"{key}{value}" for key, value in values.items() if type(value) is int]
    return "_".join(numbers) or "problem"


def _yaml(values: dict[str, Any]) -> str:
    from ruamel.yaml import YAML

    stream = io.StringIO()
    YAML(typ="safe", pure=True).dump(values, stream)
    return stream.getvalue()


def _invalid(document: Document, field: str, message: str, fix: str) -> InputError:
    place = tuple(int(each) if each.isdigit() else each for each in field.split("."))
    return InputError(
        "SUITE_INVALID", message, fix=fix, where=Where(document.path, document.line_of(place), field.split(".")[0])
    )
