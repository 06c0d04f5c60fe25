"""Reading, writing and hashing a bundle; the expressions of launch.json. Imports only rooms below `bundle`.

expressions.py   the language of launch.json: evaluate, to_cpp
resolve.py       launch.json in numbers, and which rung runs: resolve, pick_rung, Facts
coherence.py     whether launch.json holds together: what read_bundle asks of it
runtime_file.py  what is switched off on this machine: read_runtime_file, write_runtime_file
headers.py       which device headers a source reaches
store.py         a bundle on disk: write_bundle, read_bundle, write_derived, units, write_build, read_build
"""

from advisor.bundle.expressions import evaluate, is_condition, names_in, queries_in, to_cpp, to_cpp_terms
from advisor.bundle.resolve import Facts, complete_arguments, is_empty, pick_rung, resolve
from advisor.bundle.runtime_file import read_runtime_file, write_runtime_file
from advisor.bundle.store import (
    BuildUnit,
    Bundle,
    RenderedBundle,
    bad_build,
    changed_meanwhile,
    manifest_text,
    read_build,
    read_bundle,
    units,
    write_build,
    write_bundle,
    write_derived,
)

__all__ = [
    "Bundle",
    "BuildUnit",
    "Facts",
    "RenderedBundle",
    "bad_build",
    "changed_meanwhile",
    "complete_arguments",
    "evaluate",
    "is_condition",
    "is_empty",
    "manifest_text",
    "names_in",
    "pick_rung",
    "queries_in",
    "read_build",
    "read_bundle",
    "read_runtime_file",
    "resolve",
    "to_cpp",
    "to_cpp_terms",
    "units",
    "write_build",
    "write_bundle",
    "write_derived",
    "write_runtime_file",
]
