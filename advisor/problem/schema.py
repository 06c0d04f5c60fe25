"""The JSON schema of the problem file, for editors: the form a person writes, with its shorthands.

Made from the pydantic models, so the two cannot drift apart. Imports the registry of kinds.
"""

from __future__ import annotations

from typing import Any

from advisor.problem.registry import kinds, model_of


def problem_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a problem file. It accepts every file that the loader accepts; rules between fields
    (a leading dimension against its extent, pairs of types) stay with the loader."""
    found = [model_of(kind).file_schema() for kind in kinds()]
    definitions: dict[str, Any] = {}
    for each in found:
        definitions |= each.pop("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Problem file of the cluster advisor",
        "oneOf": found,
        "$defs": definitions,
    }
