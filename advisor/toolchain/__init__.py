"""CUDA to PTX and cubin of one compilation, resource usage, SASS facts, and the cache of images.

Imports `records` and `errors`. The compiler is NVRTC from its wheel, loaded at the first compilation; nothing here
needs a CUDA toolkit or a GPU, and nothing here knows of a live one.
"""

from advisor.toolchain.build import broken_promises, compile_cuda, compile_many
from advisor.toolchain.cache import Cache, default_root
from advisor.toolchain.nvrtc import compiler_version, known_targets
from advisor.toolchain.sass import SassFacts, sass_facts
from advisor.toolchain.unit import Compiled, EntryResources, Unit, kernel_hash

__all__ = [
    "Cache",
    "Compiled",
    "EntryResources",
    "SassFacts",
    "Unit",
    "broken_promises",
    "compile_cuda",
    "compile_many",
    "compiler_version",
    "default_root",
    "kernel_hash",
    "known_targets",
    "sass_facts",
]
