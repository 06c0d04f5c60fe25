"""The host side of a bundle: C++ launcher, test program, Python binding, README. Each is rendered from launch.json.

The templates get flat dictionaries of ready C++ text; every decision (which names an expression needs, how a type is
spelled) is made here. Imports `bundle`, `kinds`, `machine` and `records`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

from advisor.bundle.expressions import evaluate, names_in, queries_in, to_cpp, to_cpp_terms
from advisor.codegen import templates
from advisor.kinds.workload import Interface
from advisor.machine.features import compute_capability
from advisor.records.launch import (
    TORCH_TYPE_BYTES,
    Argument,
    Kernel,
    Launch,
    Param,
    PtrParam,
    ScratchParam,
    TensorMapParam,
    Value,
)
from advisor.records.plan import Plan

Context = dict[str, Any]

# Names that mean something to C++, to the launcher or to the binding, so that no argument or buffer may have them.
_CPP_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr const_cast
    continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
    public register reinterpret_cast return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
    wchar_t while xor xor_eq
"""
_PYTHON_WORDS = """
    False None True as async await def del elif except finally from global import in is lambda nonlocal pass raise
    with yield
"""
_OUR_WORDS = """
    num_sms sm_budget max_active_clusters loadable aligned min max ceil_div align_up
    Arithmetic Number arithmetic arguments buffers call grid info kernel launcher spans status stream workspace
"""
RESERVED = frozenset((_CPP_WORDS + _PYTHON_WORDS + _OUR_WORDS).split())

_TENSOR_MAP_TYPES = {
    "bfloat16": "BFLOAT16",
    "float16": "FLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "float8_e4m3fn": "UINT8",
    "float8_e5m2": "UINT8",
    "float8_e8m0fnu": "UINT8",
    "float4_e2m1fn_x2": "UINT8",
    "int8": "UINT8",
    "uint8": "UINT8",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
}
_PROMOTIONS = {"none": "NONE", "64B": "L2_64B", "128B": "L2_128B", "256B": "L2_256B"}
_FILLS = {"zero": "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}
_INTEGERS = {
    "u8": "std::uint8_t",
    "s8": "std::int8_t",
    "u16": "std::uint16_t",
    "s16": "std::int16_t",
    "i32": "std::int32_t",
    "u32": "std::uint32_t",
    "i64": "std::int64_t",
    "u64": "std::uint64_t",
}
_RESIDENCY = "number(kernel.max_active_clusters)"
_ROLES = {"in": "read", "out": "written", "inout": "read and written"}


def files(name: str, plan: Plan, launch: Launch, interface: Interface) -> dict[str, str]:
    """Every file of the host side, path in the bundle -> text. Raises ToolError."""
    kind = templates.identifier(plan.problem["kind"])
    budget = plan.problem.get("constraints", {}).get("sm_budget")
    context = launcher_context(name, launch, budget)
    call = _python_call(launch, interface)
    problem = {"name": name, "upper": name.upper(), "problem": plan.problem, **interface.context}
    binding = {
        "name": name,
        "problem": plan.problem,
        "sm_budget": budget,
        "launching": templates.load("binding/launching.py").rstrip(),
        "types": {key.lower() if len(key) == 1 else key: buffer.dtype for key, buffer in launch.buffers.items()},
        "call": call,
        **interface.context,
    }
    return {
        f"{name}.h": templates.render("launcher/launcher.h.j2", **context),
        f"{name}.cpp": templates.render("launcher/launcher.cpp.j2", **context),
        f"{name}.py": templates.render(f"binding/{kind}.py.j2", **binding),
        "launcher/arithmetic.h": templates.load("launcher/arithmetic.h"),
        "launcher/driver.h": templates.load("launcher/driver.h"),
        "launcher/runtime_file.h": templates.load("launcher/runtime_file.h"),
        "test/CMakeLists.txt": templates.render("launcher/CMakeLists.txt.j2", name=name, images=_images(launch)),
        f"test/{name}_test.cpp": templates.render(f"launcher/{kind}_test.cpp.j2", **problem),
        "README.md": templates.render("launcher/README.md.j2", **_readme(name, plan, launch, call, interface)),
    }


def _images(launch: Launch) -> list[Context]:
    """One row for each cubin: what nvcc needs to build it."""
    return [
        {
            "kernel": kernel.id,
            "source": kernel.source,
            "target": target,
            "defines": [f"-D{macro}={value}" for macro, value in kernel.defines.items()],
        }
        for kernel in launch.kernels
        for target in kernel.images
    ]


def _python_call(launch: Launch, interface: Interface) -> str:
    """The arguments of the binding's `run` for this bundle: its operands and results, then what else is read, by
    keyword."""
    given = [key.lower() for key in interface.operands]
    extra = (key.lower() for key in launch.buffers if key.lower() not in given)
    return ", ".join([*given, *(f"{each}={each}" for each in extra)])


def _readme(name: str, plan: Plan, launch: Launch, call: str, interface: Interface) -> Context:
    return {
        "name": name,
        "conclusion": plan.conclusion,
        "sources": list(dict.fromkeys(kernel.source for kernel in launch.kernels)),
        "rungs": [
            {
                "run": step.run,
                "kernels": ", ".join(f"`{kernel.id}`" for kernel in launch.kernels_of(step.run)),
                "when": step.when,
            }
            for step in launch.ladder
        ],
        "python_arguments": call,
        "python_result": interface.result.lower(),
    }


# --- C++ ---------------------------------------------------------------------------------------------------------


def launcher_context(name: str, launch: Launch, sm_budget: int | None) -> Context:
    """What launcher.h.j2 and launcher.cpp.j2 are rendered over."""
    kernels = [kernel for kernel in launch.kernels if kernel.id in _reachable(launch)]
    spans = _span_names(kernels)
    return {
        "name": name,
        "upper": name.upper(),
        "default_sm_budget": sm_budget,
        "guard": f"{name.upper()}_H",
        "arguments": [_argument(each) for each in launch.arguments],
        "buffers": [
            {"name": key, "dtype": buffer.dtype, "written": buffer.role != "in", "role": _ROLES[buffer.role]}
            for key, buffer in launch.buffers.items()
        ],
        "kernels": [_kernel(launch, kernel, spans) for kernel in kernels],
        "runs": [_run(launch, step.run, step.when, spans, [each.id for each in kernels]) for step in launch.ladder],
        "max_spans": max(1, len(spans)),
    }


def _reachable(launch: Launch) -> set[str]:
    """Ids of the kernels that some rung launches."""
    return {kernel.id for step in launch.ladder for kernel in launch.kernels_of(step.run)}


def _span_names(kernels: Iterable[Kernel]) -> list[str]:
    """Scratch memory by name; a name has the same number in every kernel, so that a sequence shares it."""
    return list(dict.fromkeys(p.name for kernel in kernels for p in kernel.params if p.kind == "scratch"))


def _argument(argument: Argument) -> Context:
    is_integer = argument.type == "i64"
    default = argument.default
    return {
        "name": argument.name,
        "c_type": "int64_t" if is_integer else "float",
        "minimum": argument.min if is_integer else None,
        "maximum": argument.max if is_integer else None,
        "default": None if default is None else str(int(default)) if is_integer else _float(float(default)),
    }


def _float(value: float) -> str:
    """A C++ float literal that reads back as the same float32."""
    text = repr(value)
    return f"{text}f" if any(mark in text for mark in ".e") else f"{text}.0f"


def _kernel(launch: Launch, kernel: Kernel, spans: list[str]) -> Context:
    expressions = _kernel_expressions(kernel)
    names = _names(launch, expressions)
    if any("max_active_clusters" in names_in(each) for each in expressions):
        names.append({"name": "max_active_clusters", "value": _RESIDENCY})
    params = [{**_param(param, spans), "variable": variable(param)} for param in kernel.params]
    grid = ["\n          ".join(textwrap.wrap(_cpp(each), 108, break_long_words=False)) for each in kernel.grid_blocks]
    x, y, z = kernel.block
    return {
        "id": kernel.id,
        "entry": kernel.entry,
        "images": [_image(path, target) for target, path in sorted(kernel.images.items(), key=_best_first)],
        "block": _braces(kernel.block),
        "threads": x * y * z,
        "cluster": _braces(kernel.cluster),
        "cluster_text": " x ".join(str(each) for each in kernel.cluster),
        "schedule": kernel.schedule.replace("_", " "),
        "smem": evaluate(kernel.dynamic_smem_bytes, {}),
        "nonportable": _bool(kernel.nonportable),
        "max_carveout": _bool(kernel.carveout == "max"),
        "programmatic": _bool(kernel.attributes.programmatic_stream_serialization),
        "preferred": _braces(kernel.attributes.preferred_cluster or (0, 0, 0)),
        "grid": grid,
        "long_grid": len(", ".join(grid)) > 84,
        "names": names,
        "params": params,
        "parameters": _lines([f"&{variable(param)}" for param in kernel.params]),
        "reads": [
            {"name": name, "element_bytes": TORCH_TYPE_BYTES[launch.buffers[name].dtype]}
            for name in _buffers_of(kernel)
        ],
        "has_scratch": any(param["kind"] == "scratch" for param in params),
    }


def _kernel_expressions(kernel: Kernel) -> list[Value]:
    return [*kernel.grid_blocks, *(each for param in kernel.params for each in _launch_values(param))]


def _launch_values(param: Param) -> list[Value]:
    """The expressions that a launch evaluates for a parameter; the size of scratch memory is the layout's."""
    if isinstance(param, TensorMapParam):
        return [*param.global_dim, *param.global_stride_bytes]
    if isinstance(param, PtrParam):
        return [] if param.buffer is None else [param.offset_bytes]
    if isinstance(param, ScratchParam) or param.kind == "f32" or isinstance(param.value, float):
        return []
    return [param.value]


def _buffers_of(kernel: Kernel) -> list[str]:
    """The buffers that a kernel takes, each once."""
    found = [p.buffer for p in kernel.params if p.kind in ("ptr", "tensormap") and p.buffer is not None]
    return list(dict.fromkeys(found))


def _names(launch: Launch, expressions: Iterable[Value]) -> list[Context]:
    """The names that the expressions use, in the order of the launch file, each with its value in C++."""
    used = {name for each in expressions for name in names_in(each)}
    found = [{"name": each.name, "value": f"call.values.{each.name}"} for each in launch.arguments if each.name in used]
    return found + [{"name": each, "value": f"call.values.{each}"} for each in ("num_sms", "sm_budget") if each in used]


def _cpp(expression: Value) -> str:
    """An expression in C++ where a Number is expected, so that a literal stays a literal."""
    text = to_cpp(expression)
    plain = re.fullmatch(r"Number\((\w+)\)", text)
    return plain[1] if plain else text


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _lines(items: list[str], width: int = 100) -> list[str]:
    """The items with commas after them, as lines of at most `width` characters."""
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) + 2 > width:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{item},"
    return lines


def _braces(values: Iterable[int]) -> str:
    return "{" + ", ".join(str(each) for each in values) + "}"


def _best_first(item: tuple[str, str]) -> tuple[int, bool, int]:
    """Sort key of images: an exact match before a family, a higher minor version before a lower one."""
    major, minor = compute_capability(item[0])
    return (major, not item[0].endswith("a"), -minor)


def _image(path: str, target: str) -> Context:
    major, minor = compute_capability(target)
    file = templates.file_name(path.removeprefix("build/"))
    return {"file": file, "major": major, "minor": minor, "exact": _bool(target.endswith("a"))}


def _run(launch: Launch, run: str, when: str, spans: list[str], kernel_ids: list[str]) -> Context:
    scratch: dict[str, tuple[Kernel, ScratchParam]] = {}
    for kernel in launch.kernels_of(run):
        for param in kernel.params:
            if isinstance(param, ScratchParam):
                scratch.setdefault(param.name, (kernel, param))
    layout_names = _names(launch, [param.bytes for _, param in scratch.values()])
    rows = [_span(kernel, param, spans) for kernel, param in scratch.values()]
    when_names = _names(launch, [when])
    queries = queries_in(when)
    return {
        "id": run,
        "kernels": [kernel.id for kernel in launch.kernels_of(run)],
        "kernel_indices": [kernel_ids.index(kernel.id) for kernel in launch.kernels_of(run)],
        "clc": _bool(launch.uses_clc(run)),
        "spans": rows,
        "names": layout_names,
        "uses_call": bool(layout_names) or any(row["uses_residency"] for row in rows),
        "when_names": when_names,
        "when_terms": to_cpp_terms(when),
        "queries": sorted({query for query, _ in queries}),
        "aligned_buffers": sorted({subject for query, subject in queries if query == "aligned"}),
    }


def _span(kernel: Kernel, param: ScratchParam, spans: list[str]) -> Context:
    return {
        "name": param.name,
        "index": spans.index(param.name),
        "kernel": kernel.id,
        "uses_residency": "max_active_clusters" in names_in(param.bytes),
        "align": param.align,
        "bytes": _cpp(param.bytes),
        "init": param.init,
    }


def variable(param: Param) -> str:
    """What the launcher calls a parameter: a tensor map and a pointer of one buffer may share a name."""
    return f"{param.name}_map" if param.kind == "tensormap" else f"{param.name}_"


def _param(param: Param, spans: list[str]) -> Context:
    if isinstance(param, TensorMapParam):
        return _tensor_map(param)
    if isinstance(param, PtrParam):
        offset = _cpp(param.offset_bytes)
        return {"kind": "pointer", "name": param.name, "buffer": param.buffer, "offset": offset}
    if isinstance(param, ScratchParam):
        return {"kind": "scratch", "name": param.name, "span": spans.index(param.name)}
    if param.kind == "f32":
        value = f"call.arguments.{param.value}" if isinstance(param.value, str) else _float(float(param.value))
        return {"kind": "float", "name": param.name, "value": value}
    assert not isinstance(param.value, float)  # checked with the launch file
    return {"kind": "integer", "name": param.name, "c_type": _INTEGERS[param.kind], "value": _cpp(param.value)}


def _tensor_map(param: TensorMapParam) -> Context:
    return {
        "kind": "tensormap",
        "name": param.name,
        "buffer": param.buffer,
        "rank": param.rank,
        "type": f"CU_TENSOR_MAP_DATA_TYPE_{_TENSOR_MAP_TYPES[param.dtype]}",
        "extents": [_cpp(each) for each in param.global_dim],
        "strides": [_cpp(each) for each in param.global_stride_bytes],
        "box": param.box_dim,
        "element_strides": param.element_strides,
        "interleave": f"CU_TENSOR_MAP_INTERLEAVE_{param.interleave.upper()}",
        "swizzle": f"CU_TENSOR_MAP_SWIZZLE_{param.swizzle.upper()}",
        "promotion": f"CU_TENSOR_MAP_L2_PROMOTION_{_PROMOTIONS[param.l2_promotion]}",
        "fill": f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{_FILLS[param.oob_fill]}",
    }
