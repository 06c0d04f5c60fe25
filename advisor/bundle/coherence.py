"""Whether launch.json holds together: every name that it uses is there, and every expression is of the language.

A bundle comes from anywhere. Its schema says which keys launch.json has; that a rung runs a kernel that exists, or that
an image lies inside build/, is checked here, once, where a bundle is read, so that nobody behind has to.
Imports `expressions`, `headers`, `records` and `errors`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from advisor.bundle.expressions import evaluate, is_condition, names_in, queries_in
from advisor.bundle.headers import headers_of, include_closure
from advisor.errors import BundleError, Where
from advisor.records.launch import (
    Argument,
    Kernel,
    Launch,
    Param,
    PtrParam,
    Rung,
    ScalarParam,
    ScratchParam,
    TensorMapParam,
)

DEVICE_NAMES = ("num_sms", "sm_budget", "max_active_clusters")
MAX_BLOCK_THREADS = 1024
MAX_CLUSTER_SIZE = 16
MAX_PORTABLE_CLUSTER_SIZE = 8
# The most that any GPU or the driver's encoder takes (CUDA Programming Guide, compute capabilities 9.0 to 12.1;
# cuTensorMapEncodeTiled); what one GPU takes is the driver's to say.
MAX_SMEM_BYTES = 232_448
MAX_REGISTERS = 255
MAX_TMEM_COLUMNS = 512
MAX_GRID = (2**31 - 1, 65_535, 65_535)
MAX_ALIGNMENT = 2**21  # a large page
MAX_RANK, MAX_BOX, MAX_ELEMENT_STRIDE = 5, 256, 8
FLOAT_TYPES = ("f16", "bf16", "f32", "f64")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MACRO = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ONE_LINE = re.compile(r"[ -~]*")
_TARGET = re.compile(r"sm_[0-9]{2,3}[af]?")
_IMAGE = re.compile(r"build/[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*\.cubin")


def check_launch(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
    """Raises BundleError BUNDLE_LAUNCH with the first thing in `launch` that does not fit, and EXPRESSION_INVALID for
    text that is not of the language. `files` are the bundle's, by path."""
    for fault in _faults(launch, files):
        raise BundleError(
            "BUNDLE_LAUNCH",
            f"launch.json does not hold together: {fault}",
            fix="generate the bundle again",
            where=Where(str(folder / "launch.json")),
            numbers={"fault": fault},
        )


def _faults(launch: Launch, files: Mapping[str, str]) -> Iterator[str]:
    yield from _name_faults(launch)
    if not launch.kernels or not launch.ladder:
        yield "it has no kernel, or no rung that runs one"
    images = [path for kernel in launch.kernels for path in kernel.images.values()]
    for path in sorted({each for each in images if images.count(each) > 1}):
        yield f"the image {path!r} belongs to more than one kernel or target"
    numbers = {each.name for each in launch.arguments if each.type == "i64"} | set(DEVICE_NAMES)
    for kernel in launch.kernels:
        yield from (f"{kernel.id}: {fault}" for fault in _kernel_faults(launch, kernel, numbers, files))
    for argument in launch.arguments:
        yield from (f"argument {argument.name}: {fault}" for fault in _argument_faults(argument))
    for name, buffer in launch.buffers.items():
        yield from (f"buffer {name}: {fault}" for fault in _value_faults(buffer.shape, numbers))
        yield from (f"buffer {name}: {fault}" for fault in _alignment_faults(buffer.align_bytes))
    ids = [kernel.id for kernel in launch.kernels]
    for name, kernels in launch.sequences.items():
        if not kernels or not set(kernels) <= set(ids):
            yield f"the sequence {name!r} runs {kernels}, which are not all kernels"
    for rung in launch.ladder:
        yield from (f"rung {rung.run}: {fault}" for fault in _rung_faults(launch, rung, ids))


def _name_faults(launch: Launch) -> Iterator[str]:
    arguments = [each.name for each in launch.arguments]
    named = {
        "the bundle": [launch.name],
        "a kernel or sequence": [*(kernel.id for kernel in launch.kernels), *launch.sequences],
        "an argument": arguments,
        "a buffer": list(launch.buffers),
    }
    for what, names in named.items():
        for name in names:
            if not _NAME.fullmatch(name):
                yield f"{name!r} is no name for {what}"
            if names.count(name) > 1:
                yield f"{name!r} names {what} more than once"
    for name in sorted(set(arguments) & set(DEVICE_NAMES)):
        yield f"the argument {name!r} has the name of a number that the device answers"


def _argument_faults(argument: Argument) -> Iterator[str]:
    low, high, default = argument.min, argument.max, argument.default
    for each in (low, high, default):
        if isinstance(each, int) and not -(2**63) <= each < 2**63:
            yield f"{each} is no number of 64 bits"
    if low is not None and high is not None and low > high:
        yield f"at least {low} and at most {high}"
    if default is None:
        return
    if argument.type == "i64" and not isinstance(default, int):
        yield f"its default {default} is no whole number"
    if not math.isfinite(default) or (low is not None and default < low) or (high is not None and default > high):
        yield f"its default {default} is out of its range"


def _alignment_faults(align: int) -> Iterator[str]:
    if not 1 <= align <= MAX_ALIGNMENT or align & (align - 1):
        yield f"an alignment of {align} is not a power of two up to {MAX_ALIGNMENT}"


def _kernel_faults(launch: Launch, kernel: Kernel, numbers: set[str], files: Mapping[str, str]) -> Iterator[str]:
    if kernel.source not in files:
        yield f"its source {kernel.source!r} is not in the bundle"
        return
    try:
        include_closure(files[kernel.source], headers_of(files).__getitem__)
    except KeyError as error:
        yield f"{kernel.source} includes {error.args[0]!r}, which is not in the bundle"
    if not _NAME.fullmatch(kernel.entry):
        yield f"the entry {kernel.entry!r} is no name of a function"
    if not kernel.images:
        yield "it has no image"
    for target, path in kernel.images.items():
        if not _TARGET.fullmatch(target) or not _IMAGE.fullmatch(path):
            yield f"the image {path!r} for {target!r} is not a cubin of build/ for a target like sm_90a"
    for macro, value in kernel.defines.items():
        if not _MACRO.fullmatch(macro) or not _ONE_LINE.fullmatch(str(value)):
            yield f"{macro!r} = {value!r} is not one macro definition"
    if min(kernel.block) < 1 or math.prod(kernel.block) > MAX_BLOCK_THREADS:
        yield f"a block of {list(kernel.block)} threads, at most {MAX_BLOCK_THREADS} are launched"
    if min(kernel.cluster) < 1 or math.prod(kernel.cluster) > MAX_CLUSTER_SIZE:
        yield f"a cluster of {list(kernel.cluster)}, at most {MAX_CLUSTER_SIZE} CTAs share one"
    yield from _preferred_faults(kernel)
    yield from _resource_faults(kernel)
    yield from _value_faults([*kernel.grid_blocks, kernel.dynamic_smem_bytes], numbers)
    for param in kernel.params:
        if not _NAME.fullmatch(param.name):
            yield f"{param.name!r} is no name for a parameter"
        yield from (f"parameter {param.name}: {fault}" for fault in _param_faults(launch, param, numbers))


def _resource_faults(kernel: Kernel) -> Iterator[str]:
    """Numbers that no launch has on any GPU. What depends on an argument is a number only at the launch."""
    if not 1 <= kernel.registers <= MAX_REGISTERS:
        yield f"{kernel.registers} registers a thread, at most {MAX_REGISTERS} are there"
    columns = kernel.tmem_columns
    if columns and (columns < 32 or columns > MAX_TMEM_COLUMNS or columns & (columns - 1)):
        yield f"{columns} columns of tensor memory: a power of two from 32 to {MAX_TMEM_COLUMNS}, or 0"
    dynamic = _constant(kernel.dynamic_smem_bytes) or 0
    if kernel.static_smem_bytes < 0 or dynamic + kernel.static_smem_bytes > MAX_SMEM_BYTES:
        yield f"{dynamic} + {kernel.static_smem_bytes} bytes of shared memory, at most {MAX_SMEM_BYTES} are there"
    for axis, value, most in zip("xyz", kernel.grid_blocks, MAX_GRID, strict=True):
        blocks = _constant(value)
        if blocks is not None and not 1 <= blocks <= most:
            yield f"{blocks} blocks along {axis}, 1 to {most} are launched"
    if not 1 <= min(kernel.tile) <= max(kernel.tile) < 2**31:
        yield f"a tile of {list(kernel.tile)}"
    largest = math.prod(kernel.attributes.preferred_cluster or kernel.cluster)
    if kernel.nonportable != (largest > MAX_PORTABLE_CLUSTER_SIZE):
        yield f"a cluster of {largest} is {'not ' if kernel.nonportable else ''}of a non-portable size"


def _constant(value: str | int) -> int | None:
    """The value of an expression that no argument decides."""
    if isinstance(value, int):
        return value
    return None if names_in(value) or queries_in(value) or is_condition(value) else evaluate(value, {})


def _preferred_faults(kernel: Kernel) -> Iterator[str]:
    """The driver's rules for a preferred cluster: a multiple in x and y, equal in z, beside a regular one."""
    preferred = kernel.attributes.preferred_cluster
    if preferred is None:
        return
    if min(preferred) < 1 or math.prod(preferred) > MAX_CLUSTER_SIZE:
        yield f"a preferred cluster of {list(preferred)}, at most {MAX_CLUSTER_SIZE} CTAs share one"
        return
    parts = zip(preferred, kernel.cluster, strict=True)
    if min(kernel.cluster) < 1 or any(larger % part for larger, part in parts) or preferred[2] != kernel.cluster[2]:
        yield (
            f"a preferred cluster of {list(preferred)} beside one of {list(kernel.cluster)}: it is a multiple in x "
            "and y, and equal in z"
        )


def _param_faults(launch: Launch, param: Param, numbers: set[str]) -> Iterator[str]:
    if (
        isinstance(param, (TensorMapParam, PtrParam))
        and param.buffer is not None
        and param.buffer not in launch.buffers
    ):
        yield f"there is no buffer {param.buffer!r}"
    if isinstance(param, TensorMapParam):
        yield from _map_faults(param)
        yield from _value_faults([*param.global_dim, *param.global_stride_bytes], numbers)
    elif isinstance(param, PtrParam):
        yield from _value_faults([param.offset_bytes], numbers)
    elif isinstance(param, ScratchParam):
        yield from _alignment_faults(param.align)
        yield from _value_faults([param.bytes], numbers)
    elif isinstance(param, ScalarParam) and param.kind in FLOAT_TYPES:
        if isinstance(param.value, str) and param.value not in {each.name for each in launch.arguments}:
            yield f"{param.value!r} is not an argument"
    elif isinstance(param.value, float):
        yield f"{param.value} is not an integer expression"
    else:
        yield from _value_faults([param.value], numbers)


def _map_faults(param: TensorMapParam) -> Iterator[str]:
    rank = param.rank
    if not 1 <= rank <= MAX_RANK:
        yield f"a tensor map of rank {rank}, 1 to {MAX_RANK} are encoded"
    extents = (param.global_dim, param.box_dim, param.element_strides)
    if any(len(each) != rank for each in extents) or len(param.global_stride_bytes) != rank - 1:
        yield f"extents, box and strides are not those of rank {rank}"
    for what, values, most in (("box", param.box_dim, MAX_BOX), ("step", param.element_strides, MAX_ELEMENT_STRIDE)):
        if values and not 1 <= min(values) <= max(values) <= most:
            yield f"a {what} of {values}, 1 to {most} each"


def _rung_faults(launch: Launch, rung: Rung, ids: list[str]) -> Iterator[str]:
    when = rung.when
    if rung.run not in ids and rung.run not in launch.sequences:
        yield "there is no such kernel or sequence"
    if not is_condition(when):
        yield f"{when!r} is not a condition"
    arguments = {each.name for each in launch.arguments if each.type == "i64"}
    for name in sorted(names_in(when) - arguments - {"num_sms", "sm_budget"}):
        yield f"its condition uses {name!r}, which has no value"
    for query, name in sorted(queries_in(when)):
        if name not in (launch.buffers if query == "aligned" else ids):
            yield f"its condition asks {query}({name!r}), and there is none"


def _value_faults(values: Iterable[str | int], numbers: set[str]) -> Iterator[str]:
    """Of expressions that give a number."""
    for value in values:
        if isinstance(value, int):
            if not 0 <= value < 2**63:
                yield f"{value} is no number of a launch: 0 to 2**63 - 1"
        elif is_condition(value):
            yield f"{value!r} is a condition where a number belongs"
        elif queries_in(value):
            yield f"{value!r} asks what only a rung's condition may ask"
        elif unknown := sorted(names_in(value) - numbers):
            yield f"{value!r} uses {unknown[0]!r}, which has no value"
