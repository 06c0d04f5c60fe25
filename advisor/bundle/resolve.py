"""launch.json with numbers in place of expressions, and the choice of a rung.

`resolve` answers "how exactly is this kernel launched for these arguments on this device", `pick_rung` "which entry
of the ladder runs". The C++ launcher and the Python binding do the same from the same text. The tensor map encoder's
rules are checked here, with the operand and the bytes named, because the driver itself says only "invalid value".
Imports `machine`, `records` and `errors`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.bundle.expressions import Functions, evaluate
from advisor.errors import BundleError, InputError, RefusedError
from advisor.records.launch import (
    TORCH_TYPE_BYTES,
    Argument,
    BufferInit,
    Kernel,
    Launch,
    Param,
    PtrParam,
    ResolvedLaunch,
    ScalarParam,
    ScratchParam,
    TensorMapParam,
)

BUFFER_ALIGN_BYTES = 256  # what an allocation of ours has; an address of the caller's may have less
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_TMA_EXTENT = 2**32
MAX_TMA_STRIDE_BYTES = 2**40
SWIZZLE_BYTES = {"none": 0, "32B": 32, "64B": 64, "128B": 128, "128B_ATOM_32B": 128}
INTEGER_RANGES = {
    "u8": (0, 2**8 - 1),
    "s8": (-(2**7), 2**7 - 1),
    "u16": (0, 2**16 - 1),
    "s16": (-(2**15), 2**15 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "u32": (0, 2**32 - 1),
    "i64": (-(2**63), 2**63 - 1),
    "u64": (0, 2**64 - 1),
}

Arguments = Mapping[str, int | float]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a device answers: everything that an expression of launch.json may ask beside the arguments."""

    num_sms: int
    sm_budget: int  # SMs that the launch may fill; num_sms where nothing limits it
    max_active_clusters: Mapping[str, int]  # kernel id -> co-resident clusters; 0: it cannot be launched
    loadable: frozenset[str]  # kernel ids with an image that this device loads
    alignments: Mapping[str, int] = field(default_factory=dict)  # buffer -> bytes its address is a multiple of
    clc: bool = True  # False: runtime.json switches Cluster Launch Control off


def complete_arguments(launch: Launch, given: Arguments) -> dict[str, int | float]:
    """`given` with the problem's own value for every argument that is left out, in the order of launch.json.

    Raises InputError: ARGUMENT_UNKNOWN, ARGUMENT_MISSING, ARGUMENT_RANGE.
    """
    known = {each.name for each in launch.arguments}
    for name in given:
        if name not in known:
            raise InputError(
                "ARGUMENT_UNKNOWN",
                f"{launch.name} has no argument {name!r}",
                fix=f"it takes {', '.join(sorted(known))}",
                numbers={"argument": name},
            )
    return {each.name: _argument(launch.name, each, given) for each in launch.arguments}


def resolve(
    launch: Launch, kernel_id: str, arguments: Arguments, facts: Facts, target: str | None = None
) -> ResolvedLaunch:
    """The launch of one kernel in numbers. `target` names the image (default: the kernel's first).

    A grid dimension of 0 means that there is nothing to launch. Buffers that are read start as random normals,
    those that are written as poison. Raises BundleError (KERNEL_UNKNOWN, an expression without a value, the TMA_
    rules), InputError (arguments), RefusedError (ZERO_ACTIVE_CLUSTERS, GRID_DIM_LIMIT, GRID_CLUSTER_MULTIPLE).
    """
    kernel = _kernel(launch, kernel_id)
    values = complete_arguments(launch, arguments)
    names = _names(launch, values, facts)
    residency = facts.max_active_clusters.get(kernel_id, 0)
    names["max_active_clusters"] = residency
    if residency == 0:
        raise RefusedError(
            "ZERO_ACTIVE_CLUSTERS",
            f"{kernel_id}: no cluster of {_product(kernel.cluster)} CTAs fits on this device",
            fix="run a lower rung of the ladder; pick_rung steps down by itself",
            numbers={"kernel": kernel_id, "cluster": list(kernel.cluster), "max_active_clusters": 0},
        )
    grid = _grid(kernel, names)
    return ResolvedLaunch(
        entry=kernel.entry,
        target=target or next(iter(kernel.images), ""),
        grid_blocks=grid,
        block=kernel.block,
        cluster=kernel.cluster,
        nonportable=kernel.nonportable,
        carveout=kernel.carveout,
        dynamic_smem_bytes=evaluate(kernel.dynamic_smem_bytes, names),
        attributes=kernel.attributes,
        params=[_param(launch, each, names, values, facts) for each in kernel.params],
        buffers={
            name: BufferInit(
                shape=[evaluate(each, names) for each in buffer.shape],
                dtype=buffer.dtype,
                init="poison" if buffer.role == "out" else "normal",
                seed=index,
            )
            for index, (name, buffer) in enumerate(launch.buffers.items())
        },
    )


def pick_rung(launch: Launch, arguments: Arguments, facts: Facts) -> str:
    """`run` of the first rung that is not switched off and whose `when` holds.

    Raises RefusedError NO_RUNG where there is none.
    """
    names = _names(launch, complete_arguments(launch, arguments), facts)
    functions: Functions = {
        "loadable": lambda kernel_id: kernel_id in facts.loadable,
        "max_active_clusters": lambda kernel_id: facts.max_active_clusters.get(kernel_id, 0),
        "aligned": lambda buffer, multiple: _aligned(launch, facts, buffer, multiple),
    }
    for rung in launch.ladder:
        if not facts.clc and launch.uses_clc(rung.run):
            continue
        if evaluate(rung.when, names, functions):
            return rung.run
    raise RefusedError(
        "NO_RUNG",
        f"no rung of {launch.name} runs here: {len(launch.ladder)} conditions, none holds",
        fix="build an image for this device, or pass arguments that a rung accepts",
        numbers={"rungs": [each.run for each in launch.ladder]},
    )


def is_empty(resolved: ResolvedLaunch) -> bool:
    """True where there is nothing to launch: an extent of 0 makes a grid dimension 0."""
    return 0 in resolved.grid_blocks


# --- arguments and grid ------------------------------------------------------------------------------------------


def _argument(bundle: str, argument: Argument, given: Arguments) -> int | float:
    value = given.get(argument.name, argument.default)
    if value is None:
        raise InputError(
            "ARGUMENT_MISSING",
            f"{bundle}: the argument {argument.name!r} is not given and has no default",
            fix=f"pass {argument.name}",
            numbers={"argument": argument.name},
        )
    if argument.type == "f32":
        return float(value)
    low = argument.min if argument.min is not None else 0
    high = argument.max if argument.max is not None else 2**63 - 1
    if isinstance(value, bool) or not math.isfinite(value) or int(value) != value or not low <= value <= high:
        most = "" if argument.max is None else f" and at most {high}"
        raise InputError(
            "ARGUMENT_RANGE",
            f"{bundle}: {argument.name} = {value} is not an integer of at least {low}{most}",
            fix=f"pass an integer {argument.name} from {low} to {high}",
            numbers={"argument": argument.name, "value": value, "min": low, "max": high},
        )
    return int(value)


def _names(launch: Launch, values: Arguments, facts: Facts) -> dict[str, int]:
    integers = {each.name: int(values[each.name]) for each in launch.arguments if each.type == "i64"}
    return {**integers, "num_sms": facts.num_sms, "sm_budget": facts.sm_budget}


def _kernel(launch: Launch, kernel_id: str) -> Kernel:
    try:
        return launch.kernel(kernel_id)
    except KeyError as error:
        raise BundleError(
            "KERNEL_UNKNOWN",
            f"{launch.name} has no kernel {kernel_id!r}",
            fix=f"its kernels: {', '.join(each.id for each in launch.kernels)}",
            numbers={"kernel": kernel_id},
        ) from error


def _aligned(launch: Launch, facts: Facts, buffer: str, multiple: int) -> bool:
    if buffer not in launch.buffers:
        raise BundleError(
            "BUFFER_UNKNOWN",
            f"{launch.name} has no buffer {buffer!r}",
            fix=f"its buffers: {', '.join(launch.buffers)}",
            numbers={"buffer": buffer},
        )
    return facts.alignments.get(buffer, BUFFER_ALIGN_BYTES) % multiple == 0


def _grid(kernel: Kernel, names: Mapping[str, int]) -> tuple[int, int, int]:
    x, y, z = (evaluate(each, names) for each in kernel.grid_blocks)
    largest = kernel.attributes.preferred_cluster or kernel.cluster
    for axis, blocks, limit, cluster in zip("xyz", (x, y, z), MAX_GRID, largest, strict=True):
        if blocks > limit:
            raise RefusedError(
                "GRID_DIM_LIMIT",
                f"{kernel.id}: {blocks} blocks along {axis}, a launch takes {limit}",
                fix="split the work over several launches",
                numbers={"kernel": kernel.id, "axis": axis, "blocks": blocks, "limit": limit},
            )
        if blocks % cluster:
            raise RefusedError(
                "GRID_CLUSTER_MULTIPLE",
                f"{kernel.id}: {blocks} blocks along {axis} are not whole clusters of {cluster}",
                fix="the grid of launch.json must count whole clusters",
                numbers={"kernel": kernel.id, "axis": axis, "blocks": blocks, "cluster": cluster},
            )
    return x, y, z


def _product(triple: tuple[int, int, int]) -> int:
    x, y, z = triple
    return x * y * z


# --- parameters --------------------------------------------------------------------------------------------------


def _param(launch: Launch, param: Param, names: Mapping[str, int], values: Arguments, facts: Facts) -> Param:
    if isinstance(param, TensorMapParam):
        return _tensor_map(launch, param, names, facts)
    if isinstance(param, PtrParam):
        return param.model_copy(update={"offset_bytes": evaluate(param.offset_bytes, names)})
    if isinstance(param, ScratchParam):
        return param.model_copy(update={"bytes": evaluate(param.bytes, names)})
    return param.model_copy(update={"value": _scalar(param, names, values)})


def _scalar(param: ScalarParam, names: Mapping[str, int], values: Arguments) -> int | float:
    if param.kind in ("f16", "bf16", "f32", "f64"):
        if not isinstance(param.value, str):
            return float(param.value)
        if param.value not in values:
            raise BundleError(
                "EXPRESSION_NAME",
                f"the float parameter {param.name!r} names {param.value!r}, which is not an argument",
                fix="a float parameter names one argument",
                numbers={"parameter": param.name, "name": param.value},
            )
        return float(values[param.value])
    if isinstance(param.value, float):
        raise BundleError(
            "EXPRESSION_INVALID",
            f"the integer parameter {param.name!r} has the value {param.value}",
            fix="an integer parameter is an integer expression",
            numbers={"parameter": param.name},
        )
    value = evaluate(param.value, names)
    low, high = INTEGER_RANGES[param.kind]
    if not low <= value <= high:
        raise InputError(
            "ARGUMENT_RANGE",
            f"the parameter {param.name} = {value} does not fit its type {param.kind}",
            fix=f"keep {param.value} at most {high}",
            numbers={"parameter": param.name, "value": value, "max": high},
        )
    return value


def _tensor_map(launch: Launch, param: TensorMapParam, names: Mapping[str, int], facts: Facts) -> TensorMapParam:
    """The encoder's arguments in numbers; a zero extent is encoded as 1, since the encoder has no empty tensor."""
    extents = [max(1, evaluate(each, names)) for each in param.global_dim]
    strides = [evaluate(each, names) for each in param.global_stride_bytes]
    resolved = param.model_copy(update={"global_dim": extents, "global_stride_bytes": strides})
    check_tensor_map(resolved, extents, strides)
    align = 32 if param.interleave == "32B" else 16
    if not _aligned(launch, facts, param.buffer, align):
        raise _tma_error(
            "TMA_ADDRESS_16B",
            param,
            f"the address is a multiple of {facts.alignments[param.buffer]} bytes, TMA needs {align}",
            f"align {param.buffer} to {align} bytes",
            {"align_bytes": facts.alignments[param.buffer], "needed_bytes": align},
        )
    return resolved


def check_tensor_map(param: TensorMapParam, extents: list[int], strides: list[int]) -> None:
    """The rules of cuTensorMapEncodeTiled (cuda.h) for numbers. Raises BundleError with a TMA_ code."""
    _check_rank(param, extents, strides)
    _check_strides(param, extents, strides)
    _check_box(param)


def _check_rank(param: TensorMapParam, extents: list[int], strides: list[int]) -> None:
    rank = param.rank
    lengths = (len(extents), len(strides) + 1, len(param.box_dim), len(param.element_strides))
    if not (3 if param.interleave != "none" else 1) <= rank <= 5 or any(each != rank for each in lengths):
        raise _tma_error(
            "TMA_RANK",
            param,
            f"rank {rank} with {lengths[0]} extents, {lengths[1] - 1} strides, {lengths[2]} box sizes and"
            f" {lengths[3]} element strides",
            "give rank (1 to 5; 3 to 5 when interleaved) extents, box sizes and element strides, and rank - 1 strides",
            {"rank": rank},
        )


def _check_strides(param: TensorMapParam, extents: list[int], strides: list[int]) -> None:
    for axis, extent in enumerate(extents):
        if not 1 <= extent <= MAX_TMA_EXTENT:
            raise _tma_error(
                "TMA_DIM_RANGE",
                param,
                f"extent {axis} is {extent}, TMA takes 1 to 2**32",
                "split the tensor",
                {"axis": axis, "extent": extent},
            )
    unit = 32 if param.interleave == "32B" else 16
    element_bytes = TORCH_TYPE_BYTES[param.dtype]
    for axis, stride in enumerate(strides, start=1):
        if stride % unit:
            padded = -(-stride // unit) * unit
            raise _tma_error(
                "TMA_STRIDE_16B",
                param,
                f"the stride of dimension {axis} is {stride} bytes, TMA needs a multiple of {unit}",
                f"pad it to {padded} bytes ({padded // element_bytes} elements), or run a rung without TMA",
                {"axis": axis, "stride_bytes": stride, "pad_to_bytes": padded},
            )
        if stride >= MAX_TMA_STRIDE_BYTES:
            raise _tma_error(
                "TMA_STRIDE_RANGE",
                param,
                f"the stride of dimension {axis} is {stride} bytes, TMA takes less than 2**40",
                "split the tensor",
                {"axis": axis, "stride_bytes": stride},
            )


def _check_box(param: TensorMapParam) -> None:
    for axis, box in enumerate(param.box_dim):
        if not 1 <= box <= 256:
            raise _tma_error(
                "TMA_BOX_256",
                param,
                f"the box is {box} elements along dimension {axis}, TMA takes 1 to 256",
                "load the tile in several copies",
                {"axis": axis, "box": box, "copies": -(-box // 256)},
            )
    for axis, stride in enumerate(param.element_strides):
        if not 1 <= stride <= 8:
            raise _tma_error(
                "TMA_ELEMENT_STRIDE",
                param,
                f"the element stride of dimension {axis} is {stride}, TMA takes 1 to 8",
                "use an element stride of 1 to 8",
                {"axis": axis, "element_stride": stride},
            )
    inner = param.box_dim[0] * TORCH_TYPE_BYTES[param.dtype]
    if inner % 16 and param.interleave == "none":
        raise _tma_error(
            "TMA_BOX_16B",
            param,
            f"the inner box is {inner} bytes, TMA needs a multiple of 16",
            "widen the box",
            {"inner_bytes": inner},
        )
    limit = SWIZZLE_BYTES[param.swizzle]
    if limit and inner > limit and param.interleave == "none":
        raise _tma_error(
            "TMA_BOX_SWIZZLE",
            param,
            f"the inner box is {inner} bytes, the {param.swizzle} swizzle takes at most {limit}",
            f"use a box of {limit // TORCH_TYPE_BYTES[param.dtype]} elements or a wider swizzle",
            {"inner_bytes": inner, "swizzle_bytes": limit},
        )
    if param.interleave == "32B" and param.swizzle != "32B":
        raise _tma_error(
            "TMA_INTERLEAVE",
            param,
            f"interleave 32B goes with swizzle 32B, not {param.swizzle}",
            "use swizzle 32B",
            {"swizzle": param.swizzle},
        )


def _tma_error(code: str, param: TensorMapParam, why: str, fix: str, numbers: dict[str, object]) -> BundleError:
    return BundleError(
        code,
        f"tensor map {param.name!r} of buffer {param.buffer!r} ({param.dtype}): {why}",
        fix=fix,
        numbers={"parameter": param.name, "buffer": param.buffer, **numbers},
    )
