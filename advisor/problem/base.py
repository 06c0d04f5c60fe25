"""What the models of all kinds share: plain types, the parts that every problem has, and what is asked of any problem.

A kind's model is the *resolved* problem: defaults are filled while it is read, so that dumping it and reading it again
gives the same model. Extents and strides count elements. Imports nothing of this project.
"""

from __future__ import annotations

import keyword
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "fp32": 4}
TORCH_NAME = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "tf32": "float32",
    "fp32": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}
MAX_EXTENT = 2**31 - 1  # TMA coordinates are signed 32-bit
MAX_FLOAT32 = 3.4028234663852886e38  # kernels take their factors as float32: beyond it they would be infinite
MAX_SPAN_BYTES = 2**47  # one operand: beyond any GPU's memory, and far from overflowing a 64-bit offset
MAX_NAME_LENGTH = 64
NAME_PATTERN = r"^[a-z][a-z0-9_]*$"

# The name becomes a C++ namespace and a Python module: words of either language would not compile.
_CPP_WORDS = """alignas alignof asm auto bitand bitor bool catch char compl concept const constexpr consteval constinit
    decltype default delete do double dynamic_cast enum explicit export extern float friend goto inline int long main
    mutable namespace new noexcept not_eq nullptr operator or_eq private protected public register requires short signed
    sizeof static static_assert static_cast std struct switch template this throw true false typedef typeid typename
    union unsigned using virtual void volatile wchar_t xor and_eq xor_eq cuda advisor"""
# It becomes the files <name>.h and <name>.py too: beside these, `#include <string.h>` or `import json` would find the
# bundle's, in the launcher and the binding as in the code of whoever uses them.
_HEADERS = """aio alloca assert byteswap complex ctype dirent dlfcn elf endian err errno error fcntl features fenv float
    glob iconv inttypes iso646 langinfo libgen limits link locale malloc math memory monetary mqueue netdb poll pthread
    pwd regex sched search semaphore setjmp signal spawn stab stdalign stdarg stdatomic stdbool stddef stdint stdio
    stdlib stdnoreturn string strings syscall syslog tar termios tgmath threads time uchar ucontext unistd utime values
    wait wchar wctype wordexp builtin_types device_types driver_types host_config host_defines math_constants mma
    surface_types texture_types vector_functions vector_types nvrtc"""
_MODULES = "cupy numpy torch jax tensorflow"
# And a target of CMake.
_TARGETS = "all clean edit_cache help images install list_install_components package package_source preinstall test"
RESERVED_NAMES = frozenset(
    [
        *keyword.kwlist,
        *keyword.softkwlist,
        *sys.stdlib_module_names,
        *f"{_CPP_WORDS} {_HEADERS} {_MODULES} {_TARGETS}".split(),
    ]
)


Extent = Annotated[int, Field(ge=0, le=MAX_EXTENT)]
Positive = Annotated[int, Field(ge=1, le=2**40)]
AtLeastOne = Annotated[int, Field(ge=1, le=MAX_EXTENT)]
Factor = Annotated[float, Field(ge=-MAX_FLOAT32, le=MAX_FLOAT32, allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=MAX_NAME_LENGTH)]
Target = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]*$")]
Triple = Annotated[tuple[AtLeastOne, AtLeastOne, AtLeastOne], Field(strict=False)]  # JSON and YAML bring lists


class Frozen(BaseModel):
    """Frozen, no unknown keys, no silent conversion: `"8192"`, `true` and `8192.0` are not integers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SharedGpu(Frozen):
    busy_sms: Extent = 0


class Assume(Frozen):
    tile_cost_cv: Annotated[float, Field(ge=0.0, le=10.0, allow_inf_nan=False)] = 0.0
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0


class Constraints(Frozen):
    sm_budget: AtLeastOne | None = None
    max_cluster_size: Annotated[int, Field(ge=1, le=16)] = 16
    fallback: Literal["preferred", "required"] = "preferred"
    deterministic: bool = True


class Problem(Frozen):
    """What every kind's model is, and what the other rooms ask of any problem.

    A kind declares the fields `kind`, `name`, `target`, `shared_gpu`, `assume`, `constraints` and `overrides` itself,
    in the order in which its files are written; `overrides` is a model of its own that has at least `kernel`.
    """

    derived: ClassVar[tuple[str, ...]] = ()
    """Fields that are filled in: where an extent is wrong they are missing, and nobody is told to write them."""
    extents: ClassVar[tuple[str, ...]] = ()
    """Fields that may be 0, which is no fault: there is nothing to launch."""
    other_names: ClassVar[Mapping[str, str]] = {}
    """Keys, in lower case, by which other tools call something that is written otherwise here, with the way out."""
    other_values: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The same for values: what the kind calls it, where that is among the values that the key takes."""
    begins: ClassVar[str] = ""
    """How a file of the kind begins, in words, for one that is empty."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...
        @property
        def name(self) -> str: ...
        @property
        def target(self) -> str: ...
        @property
        def shared_gpu(self) -> SharedGpu: ...
        @property
        def assume(self) -> Assume: ...
        @property
        def constraints(self) -> Constraints: ...
        @property
        def overrides(self) -> Any: ...

    @classmethod
    def file_schema(cls) -> dict[str, Any]:
        """The JSON schema of the kind's files, in the form that a person writes, with its shorthands."""
        required = [name for name, field in cls.model_fields.items() if field.is_required()]
        return written(cls.model_json_schema(), cls.__name__, tuple(required), {})

    @property
    def words(self) -> str:
        """The problem in a line of a report: its kind, extents and types."""
        return self.kind

    def stated(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(section, its values) of every section that has values beside its defaults."""
        for name, field in type(self).model_fields.items():
            if not isinstance(field.default, Frozen):
                continue
            defaults, given = (each.model_dump(mode="json") for each in (field.default, getattr(self, name)))
            values = {key: value for key, value in given.items() if value is not None and value != defaults[key]}
            if values:
                yield name, values


_DESCRIPTIONS = {
    "name": "Folder, namespace and module of the bundle: a-z, 0-9 and _. Default: the file's stem.",
    "target": "A profile's name, a profile file, or auto. The command line's --target wins.",
    "shared_gpu": "busy_sms: SMs that other work holds.",
    "assume": "tile_cost_cv: skew of the tiles' costs. Marked in the plan as the user's assumption.",
    "constraints": "Limits on the choice: SM budget, cluster size, fallback, determinism.",
    "overrides": "Forced choices. The plan says what each costs, or why it is refused.",
}


def written(
    schema: dict[str, Any], title: str, required: tuple[str, ...], descriptions: Mapping[str, str]
) -> dict[str, Any]:
    """A model's schema as that of its files: what must be given, and what each key is. The name comes from the file."""
    for name, description in (_DESCRIPTIONS | dict(descriptions)).items():
        schema["properties"][name]["description"] = description
    schema["properties"]["name"].pop("default", None)
    schema["required"] = list(required)
    schema["title"] = title
    return schema


def broken(code: str, field: str, value: object, rule: str, fix: str, **numbers: object) -> PydanticCustomError:
    """A rule between several fields, in the form that the loader turns into a ProblemError."""
    context = {"code": code, "field": field, "value": value, "rule": rule, "fix": fix, "numbers": numbers}
    return PydanticCustomError("rule", "{field}: {rule}", context)


def name_rule(p: Any) -> None:
    """Of any kind: a name that C++, Python or CMake would read otherwise."""
    if p.name in RESERVED_NAMES:
        raise broken(
            "PROBLEM_NAME",
            "name",
            p.name,
            f"{p.name!r} has a meaning in C++, Python or CMake, and the name becomes a header, a module and a target",
            f"write name: {p.name}_{p.kind}",
        )
