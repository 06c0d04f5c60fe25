"""Reads a problem file: YAML 1.2 with line numbers, limits against hostile input, and errors that name the fix.

Every error is a ProblemError with the file, the line, the field, the value, the rule and the fix.
Imports the models of this room and `errors`; ruamel.yaml is loaded when a file is read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from advisor.errors import ProblemError, Where
from advisor.problem.base import MAX_NAME_LENGTH, NAME_PATTERN, RESERVED_NAMES, Problem
from advisor.problem.registry import kinds, model_of

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 20_000  # after aliases are expanded: a "billion laughs" file stops here
SHOWN_VALUE_CHARACTERS = 60

Path_ = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed mapping with the line of every key and item. `lines` maps a path into the document to its line."""

    values: dict[str, Any]
    lines: dict[Path_, int]
    path: str

    def line_of(self, place: Path_) -> int:
        """The line of the deepest part of `place` that the file has."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]


def load_problem(path: str | Path) -> Problem:
    """The problem in a file. Raises ProblemError: missing, unreadable, not YAML, or against a rule."""
    path = Path(path)
    return parse_problem(_read(path), path)


def read_document(path: str | Path) -> Document:
    """Any file of ours that is a YAML mapping, under the same limits and with the same errors as a problem file."""
    path = Path(path)
    return _parse_yaml(_read(path), str(path))


def place_of(path: str | Path, key: str) -> Where:
    """Where a problem file has a key of its own, for a complaint that comes up after it was read."""
    path = Path(path)
    document = _parse_yaml(_read(path), str(path))
    return Where(document.path, document.line_of((key,)), key)


def parse_problem(text: str, path: str | Path) -> Problem:
    """The problem in `text`. `path` names it in errors, and its stem is the default name."""
    document = _parse_yaml(text, str(path))
    values = dict(document.values)
    model = model_of(_kind(document))
    if "name" not in values:
        values["name"] = _default_name(Path(path), document)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        _raise_first(error, document, model)


def resolved(document: Mapping[str, Any]) -> Problem:
    """The problem of a resolved document, as a plan holds it."""
    return model_of(document["kind"]).model_validate(dict(document))


def _read(path: Path) -> str:
    def refuse(message: str, fix: str) -> ProblemError:
        return ProblemError("PROBLEM_UNREADABLE", message, fix=fix, where=Where(str(path)))

    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        near = _near_files(path)
        fix = f"did you mean {near[0]}?" if near else "check the path; examples/ holds problem files that run"
        raise refuse("there is no such file", fix) from None
    except IsADirectoryError:
        raise refuse("this is a folder, not a problem file", "name a YAML file in it") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise refuse(f"the file cannot be read: {reason}", "check its permissions and its path") from None
    if len(data) > MAX_FILE_BYTES:
        raise ProblemError(
            "PROBLEM_LIMIT",
            f"the file is larger than {MAX_FILE_BYTES} bytes",
            fix="a problem file has a few lines; check the path",
            where=Where(str(path)),
            numbers={"limit_bytes": MAX_FILE_BYTES},
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ProblemError(
            "PROBLEM_UNREADABLE",
            f"byte {error.start} is not UTF-8 text",
            fix="save the file as UTF-8; a problem file is plain YAML",
            where=Where(str(path), line),
        ) from None
    return text


def _near_files(path: Path) -> list[str]:
    try:
        names = sorted(each.name for each in path.parent.iterdir() if each.suffix in (".yaml", ".yml"))
    except OSError:
        return []
    return [str(path.parent / each) for each in difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)]


# --- YAML -------------------------------------------------------------------------------------------------------


def _parse_yaml(text: str, path: str) -> Document:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        _check_shape(text, path)
        yaml = YAML(typ="safe", pure=True)
        root = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        raise ProblemError(
            "PROBLEM_SYNTAX",
            f"this is not YAML: {error.problem or error.context or 'syntax error'}",
            fix="check indentation, brackets and quotes on this line and the one before",
            where=Where(path, line),
        ) from None
    except YAMLError as error:  # the reader's complaint about a character has no mark
        position = getattr(error, "position", 0) or 0
        raise ProblemError(
            "PROBLEM_SYNTAX",
            f"this is not YAML: {getattr(error, 'reason', None) or str(error).splitlines()[0]}",
            fix="remove control characters; a problem file is plain text",
            where=Where(path, text.count("\n", 0, position) + 1),
        ) from None
    if root is None:
        raise ProblemError(
            "PROBLEM_EMPTY",
            "the file holds no values",
            fix=f"start with {model_of(kinds()[0]).begins}",
            where=Where(path, 1),
        )
    builder = _Builder(yaml, path)
    values = builder.build(root, (), 0)
    if not isinstance(values, dict):
        raise ProblemError(
            "PROBLEM_SYNTAX",
            f"a problem file is a mapping of keys to values, this is {_shown_type(values)}",
            fix=f"start with kind: {kinds()[0]}",
            where=Where(path, 1),
        )
    return Document(values, builder.lines, path)


def _check_shape(text: str, path: str) -> None:
    """Depth, number of documents and YAML version, from the event stream: nothing recursive runs before this."""
    from ruamel.yaml import YAML
    from ruamel.yaml.events import (
        DocumentStartEvent,
        MappingEndEvent,
        MappingStartEvent,
        SequenceEndEvent,
        SequenceStartEvent,
    )

    depth = documents = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        line = event.start_mark.line + 1
        if isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                raise _limit(f"nesting is deeper than {MAX_DEPTH} levels", path, line, {"limit": MAX_DEPTH})
        elif isinstance(event, (MappingEndEvent, SequenceEndEvent)):
            depth -= 1
        elif isinstance(event, DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise ProblemError(
                    "PROBLEM_SYNTAX",
                    "a problem file holds one document, a second one starts here",
                    fix="split it into one file per problem",
                    where=Where(path, line),
                )
            if event.version not in (None, (1, 2)):
                raise ProblemError(
                    "PROBLEM_SYNTAX",
                    "a problem file is YAML 1.2; an older version reads 010 as 8 and no as false",
                    fix="remove the %YAML directive",
                    where=Where(path, line),
                )


def _limit(message: str, path: str, line: int, numbers: dict[str, object]) -> ProblemError:
    fix = "a problem file has a few dozen values; write them out without aliases"
    return ProblemError("PROBLEM_LIMIT", message, fix=fix, where=Where(path, line), numbers=numbers)


class _Builder:
    """Nodes to plain values, recording lines. Counts nodes after alias expansion, refuses duplicate keys."""

    def __init__(self, yaml: Any, path: str) -> None:
        self._constructor = yaml.constructor
        self._path = path
        self._nodes = 0
        self.lines: dict[Path_, int] = {(): 1}

    def build(self, node: Any, place: Path_, depth: int) -> Any:
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        line = node.start_mark.line + 1
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _limit(f"more than {MAX_NODES} values after aliases are expanded", self._path, line, {})
        if depth > MAX_DEPTH:
            raise _limit(f"nesting is deeper than {MAX_DEPTH} levels", self._path, line, {"limit": MAX_DEPTH})
        if isinstance(node, MappingNode):
            return self._mapping(node, place, depth)
        if isinstance(node, SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines.setdefault((*place, index), item.start_mark.line + 1)
                items.append(self.build(item, (*place, index), depth + 1))
            return items
        return self._scalar(node, line)

    def _mapping(self, node: Any, place: Path_, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = getattr(key_node, "value", None)
            if not isinstance(key, str):
                raise ProblemError(
                    "PROBLEM_SYNTAX",
                    "a key is a plain word, this is a list or a mapping",
                    fix="write key: value",
                    where=Where(self._path, line, _dotted(place)),
                )
            if key in values:
                raise ProblemError(
                    "PROBLEM_DUPLICATE_KEY",
                    f"{key!r} is given twice, first on line {first[key]}",
                    fix="keep one of them",
                    where=Where(self._path, line, _dotted((*place, key))),
                    numbers={"first_line": first[key]},
                )
            first[key] = line
            self.lines.setdefault((*place, key), line)
            values[key] = self.build(value_node, (*place, key), depth + 1)
        return values

    def _scalar(self, node: Any, line: int) -> Any:
        from ruamel.yaml.error import YAMLError

        try:
            return self._constructor.construct_object(node, deep=True)
        except (YAMLError, ValueError) as error:  # an unknown tag; a number with thousands of digits
            reason = getattr(error, "problem", None) or "this value cannot be read"
            raise ProblemError(
                "PROBLEM_SYNTAX",
                f"{reason}: {_shown(node.value)}",
                fix="write a plain number or word, without a tag",
                where=Where(self._path, line),
            ) from None


# --- kind and name ----------------------------------------------------------------------------------------------


def _kind(document: Document) -> str:
    names = kinds()
    known = ", ".join(names)
    if "kind" not in document.values:
        raise ProblemError(
            "PROBLEM_MISSING_KEY",
            "kind is missing: it says what the problem is",
            fix=f"add kind: {names[0]} (known kinds: {known})",
            where=Where(document.path, 1, "kind"),
        )
    kind = document.values["kind"]
    if not isinstance(kind, str) or kind not in names:
        near = difflib.get_close_matches(str(kind), names, n=1, cutoff=0.5)
        raise ProblemError(
            "PROBLEM_UNKNOWN_KIND",
            f"{_shown(kind)} is not a kind that this version knows; it knows {known}",
            fix=f"write kind: {near[0]}" if near else f"write kind: {names[0]}",
            where=Where(document.path, document.line_of(("kind",)), "kind"),
        )
    return kind


def _default_name(path: Path, document: Document) -> str:
    """The file's stem in lower case with `-`, `.` and blanks as `_`, and the kind behind it where that is a word with
    a meaning of its own (test.yaml: test_gemm). What that does not make a name is refused."""
    stem = re.sub(r"[-. ]", "_", path.stem.lower())
    if stem in RESERVED_NAMES:
        stem = f"{stem}_{document.values['kind']}"
    if not re.fullmatch(NAME_PATTERN, stem) or len(stem) > MAX_NAME_LENGTH:
        letters = re.sub(r"[^a-z0-9_]", "", stem).lstrip("0123456789_")[:MAX_NAME_LENGTH]
        raise ProblemError(
            "PROBLEM_NAME",
            f"the file's stem {_shown(path.stem)} is the default name, and it does not make one: a name has at most "
            f"{MAX_NAME_LENGTH} of a-z, 0-9 and _, and starts with a letter",
            fix=f"add name: {letters or document.values['kind']} to the file",
            where=Where(document.path, 1, "name"),
        )
    return stem


# --- model errors -----------------------------------------------------------------------------------------------


def _raise_first(error: ValidationError, document: Document, model: type[Problem]) -> NoReturn:
    """The first error in file order; the others follow in `numbers["others"]`."""
    details = [each for each in error.errors() if _is_in_file(each, document, model)] or error.errors()
    problems = sorted(
        (_problem_error(each, document, model) for each in details),
        key=lambda each: (each.where.line or 0) if each.where else 0,
    )
    first, others = problems[0], problems[1:]
    if others:
        first.numbers["others"] = [f"{each.where}: {each.message}" for each in others]
    raise first from None


def _is_in_file(detail: ErrorDetails, document: Document, model: type[Problem]) -> bool:
    """Whether the complaint is about something the user wrote or must write, not about a derived default."""
    loc = _clean(detail["loc"])
    if detail["type"] == "missing" and loc[-1] not in model.derived:
        return True
    return detail["type"] == "rule" or loc in document.lines


def _problem_error(detail: ErrorDetails, document: Document, model: type[Problem]) -> ProblemError:
    loc = _clean(detail["loc"])
    context: dict[str, Any] = detail.get("ctx", {})
    if detail["type"] == "rule":
        place: Path_ = tuple(str(context["field"]).split("."))
        return ProblemError(
            str(context["code"]),
            f"{_shown(context['value'])} breaks a rule: {context['rule']}",
            fix=str(context["fix"]),
            where=Where(document.path, document.line_of(place), _dotted(place)),
            numbers={"value": context["value"], **context["numbers"]},
        )
    where = Where(document.path, document.line_of(loc), _dotted(loc))
    code, message, fix = _explain(detail["type"], loc, detail["input"], context, model)
    return ProblemError(code, message, fix=fix, where=where, numbers={"value": _plain(detail["input"])})


def _explain(
    kind: str, loc: Path_, value: object, context: dict[str, Any], model: type[Problem]
) -> tuple[str, str, str]:
    """(code, message, fix) of one complaint of the model."""
    field = str(loc[-1]) if loc and isinstance(loc[-1], str) else (_dotted(loc) or "problem").rsplit(".", 1)[-1]
    shown = _shown(value)
    if kind == "extra_forbidden":
        where = _dotted(loc[:-1]) or "a problem"
        return "PROBLEM_UNKNOWN_KEY", f"{_shown(field)} is not a key of {where}", _known_key(field, loc[:-1], model)
    if kind == "missing":
        if isinstance(loc[-1], int):
            return "PROBLEM_TYPE", f"{loc[-2]} takes three integers", f"write {loc[-2]}: [x, y, z]"
        return "PROBLEM_MISSING_KEY", f"{field} is missing", f"add {field}: to the file"
    if kind == "too_long":
        return "PROBLEM_TYPE", f"{field} takes three integers, {shown} has more", f"write {field}: [x, y, z]"
    if kind in ("greater_than_equal", "less_than_equal"):
        word, bound = ("at least", context["ge"]) if kind == "greater_than_equal" else ("at most", context["le"])
        zero = " (0 is valid: nothing to launch)" if bound == 0 and field in model.extents else ""
        message = f"{shown} is out of range: {field} is {word} {bound}{zero}"
        return "PROBLEM_RANGE", message, f"write a value of {word} {bound}"
    if kind == "literal_error":
        options = [each.strip(" '") for each in re.split(r",| or ", str(context["expected"]))]
        spelled = str(value).lower()
        meant = [each for each in model.other_values.get(spelled, _TYPES_MEANT.get(spelled, ())) if each in options]
        near = meant or difflib.get_close_matches(str(value), options, n=1, cutoff=0.5)
        fix = f"did you mean {' or '.join(near)}?" if near else f"write one of {', '.join(options)}"
        return "PROBLEM_CHOICE", f"{shown} is not one of {', '.join(options)}", fix
    if field == "name" and kind in ("string_pattern_mismatch", "string_too_long"):
        safe = re.sub(r"[^a-z0-9_]", "_", str(value).lower()).lstrip("0123456789_")[:MAX_NAME_LENGTH]
        rule = (
            f"at most {MAX_NAME_LENGTH} of a-z, 0-9 and _, starting with a letter, because it is written into sources"
        )
        return (
            "PROBLEM_NAME",
            f"{shown} is not a name: {rule}",
            f"write name: {safe or model.model_fields['name'].default}",
        )
    if kind == "string_too_long":
        return "PROBLEM_RANGE", f"{shown} has more than {context['max_length']} characters", "shorten it"
    expected = _EXPECTED.get(kind, "another value")
    return (
        "PROBLEM_TYPE",
        f"{_shown_type(value)} where {expected} belongs: {shown}",
        _type_fix(kind, field, value, expected),
    )


def _known_key(key: str, place: Path_, model: type[Problem]) -> str:
    """The key nearest to an unknown one: a key of this mapping, or of another where that fits better."""
    known = _keys_at(model, place)
    elsewhere = {} if not place else {name: f"{name}, a key of the problem itself" for name in model.model_fields}
    if not place:
        for name in reversed(known):
            elsewhere |= {each: f"{name}: {{{each}: ...}}" for each in _keys_at(model, (name,))}
    if key.lower() in model.other_names and not place:
        return model.other_names[key.lower()]
    near = difflib.get_close_matches(key, [*known, *elsewhere], n=1, cutoff=0.55)
    if not near:
        return f"known keys here: {', '.join(known)}"
    return f"did you mean {near[0] if near[0] in known else elsewhere[near[0]]}?"


# What other tools call a type.
_TYPES_MEANT = {
    **dict.fromkeys(("fp8", "f8", "float8"), ("e4m3", "e5m2")),
    **dict.fromkeys(("fp8_e4m3", "float8_e4m3fn", "e4m3fn"), ("e4m3",)),
    **dict.fromkeys(("fp8_e5m2", "float8_e5m2"), ("e5m2",)),
    **dict.fromkeys(("bfloat16", "bf"), ("bf16",)),
    **dict.fromkeys(("float16", "f16", "half"), ("fp16",)),
    **dict.fromkeys(("fp32", "float32", "f32", "float"), ("fp32", "tf32")),
    **dict.fromkeys(("fp64", "float64", "f64", "double"), ("fp32",)),  # what fp16 is near in letters alone
}

_EXPECTED = {
    "int_type": "an integer",
    "int_parsing_size": "a smaller integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_unicode": "text without halves of surrogate pairs",
    "tuple_type": "a list of three integers",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "string_pattern_mismatch": "text without control characters",
    "string_too_short": "text that is not empty",
}


def _type_fix(kind: str, field: str, value: object, expected: str) -> str:
    if kind == "int_type":
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
            return f"write {field}: {int(value)}"
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value.strip()):
            return f"write {field}: {value.strip()} without quotes"
    if value is None:
        return f"give {field} a value, or remove the line"
    return f"give {field} {expected}"


def _clean(loc: tuple[int | str, ...]) -> Path_:
    """pydantic adds the name of a union's branch or of a wrapper to a location; the file has no such key."""
    return tuple(each for each in loc if isinstance(each, int) or not re.search(r"[\[\](]|^(tuple|function-)", each))


def _keys_at(model: type[BaseModel], place: Path_) -> list[str]:
    for part in place:
        field = model.model_fields.get(str(part))
        annotation = None if field is None else field.annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def _dotted(place: Path_) -> str | None:
    if not place:
        return None
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in place).lstrip(".")


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else "nothing" if value is None else str(value)
    if isinstance(value, bool):
        text = str(value).lower()
    return text if len(text) <= SHOWN_VALUE_CHARACTERS else text[: SHOWN_VALUE_CHARACTERS - 3] + "..."


def _shown_type(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", int: "an integer", float: "a number"}
    return "nothing" if value is None else names.get(type(value), f"a {type(value).__name__}")


def _plain(value: object) -> object:
    return value if isinstance(value, (int, float, str, bool, type(None))) else _shown(value)
