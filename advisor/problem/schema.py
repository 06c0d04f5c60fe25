"""The JSON schema of the problem file, for editors: the form a person writes, with its shorthands.

Made from the pydantic model, so the two cannot drift apart. Imports only the models of this room.
"""

from __future__ import annotations

from typing import Any

from advisor.problem.gemm import EXTENTS, INPUT_TYPES, MAJORS, OUTPUT_TYPES, GemmProblem
from advisor.problem.row_reduce import RowReduceProblem

_DESCRIPTIONS = {
    "kind": "What the problem is. gemm: D = activation(alpha * scale_a * scale_b * A B + beta * C + bias).",
    "name": "Folder, namespace and module of the bundle: a-z, 0-9 and _. Default: the file's stem.",
    "m": "Rows of D. 0 is valid: nothing to launch.",
    "n": "Columns of D. 0 is valid: nothing to launch.",
    "k": "Depth of the product. 0 is valid: the epilogue alone is written.",
    "batch": "Independent products of one launch.",
    "dtype": "Shorthand for the types of a and b. d and c then default to it; tf32 to fp32, fp8 to bf16.",
    "a": "Operand A, m x k.",
    "b": "Operand B, k x n (stored n x k when k is its contiguous extent).",
    "c": "Operand C, m x n: compiled in when epilogue.beta is not 0.",
    "d": "Result D, m x n.",
    "scale": "Per-tensor scale factors: tensor reads one float from the device.",
    "accumulate": "fp8 on Hopper: precise promotes the partial sums to fp32, fast does not.",
    "epilogue": "alpha and beta, the bias vector and the activation.",
    "target": "A profile's name, a profile file, or auto. The command line's --target wins.",
    "launch": "pdl: programmatic dependent launch.",
    "shared_gpu": "busy_sms: SMs that other work holds.",
    "assume": "tile_cost_cv: skew of the tiles' costs. Marked in the plan as the user's assumption.",
    "constraints": "Limits on the choice: SM budget, cluster size, fallback, determinism.",
    "overrides": "Forced choices. The plan says what each costs, or why it is refused.",
}


_ROW_DESCRIPTIONS = {
    **{name: _DESCRIPTIONS[name] for name in ("name", "target", "shared_gpu", "assume", "constraints", "overrides")},
    "kind": "What the problem is. row_reduce: an operation over each row of X[rows, cols].",
    "op": "softmax, log_softmax, layernorm and rmsnorm write a row for a row; logsumexp, sum and max a number.",
    "rows": "Rows of X. 0 is valid: nothing to launch.",
    "cols": "Columns of X. 0 is valid, but for max: sums of nothing.",
    "row_stride": "Elements from one row of X to the next. Default: packed.",
    "dtype": "Type of X, weight and bias.",
    "out_dtype": "Type of Y. Default: that of X.",
    "weight": "layernorm and rmsnorm: a factor for each column.",
    "bias": "layernorm and rmsnorm: a term for each column.",
    "eps": "layernorm and rmsnorm: added to the variance or the mean square.",
}


def problem_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a problem file. It accepts every file that the loader accepts; rules between fields
    (a leading dimension against its extent, pairs of types) stay with the loader."""
    kinds = [_gemm_schema(), _row_schema()]
    definitions: dict[str, Any] = {}
    for each in kinds:
        definitions |= each.pop("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Problem file of the cluster advisor",
        "oneOf": kinds,
        "$defs": definitions,
    }


def _row_schema() -> dict[str, Any]:
    schema = RowReduceProblem.model_json_schema()
    for name, description in _ROW_DESCRIPTIONS.items():
        schema["properties"][name]["description"] = description
    schema["properties"]["name"].pop("default", None)
    schema["required"] = ["kind", "op", "rows", "cols"]
    schema["title"] = "A row reduction"
    return schema


def _gemm_schema() -> dict[str, Any]:
    schema = GemmProblem.model_json_schema()
    definitions = schema["$defs"]
    matrix = definitions.pop("Matrix")
    for name in ("a", "b", "c", "d"):
        types = INPUT_TYPES if name in "ab" else OUTPUT_TYPES
        properties = {key: dict(value) for key, value in matrix["properties"].items()}
        properties["dtype"] = {"enum": list(types)}
        properties["major"] = {"enum": list(MAJORS[name]), "default": MAJORS[name][0]}
        properties["ld"]["description"] = "Elements between neighbours along the other extent. Default: packed."
        properties["batch_stride"]["description"] = "Elements between batches. 0 broadcasts an input. Default: packed."
        properties["align_bytes"]["description"] = "What the base pointer is aligned to; TMA needs 16."
        schema["properties"][name] = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            "description": f"{EXTENTS[name][0]} x {EXTENTS[name][1]}",
        }
    for name, description in _DESCRIPTIONS.items():
        schema["properties"][name]["description"] = description
    schema["properties"]["name"].pop("default", None)
    schema["required"] = ["kind", "m", "n", "k"]
    schema["title"] = "A dense GEMM"
    return schema
