"""Device profiles as TOML files: read, checked, written. Imports `errors`, `machine.profile` and `machine.features`.

A shipped profile is `machine/profiles/<name>.toml`; a user's own has any path that ends in `.toml`. A profile is one
flat table of fields, two tables of tensor rates, and `sources`: for each field (or `table.key`) where the number
comes from. `docs/machine.md` describes every field.
"""

from __future__ import annotations

import dataclasses
import difflib
import errno
import os
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, get_args

from advisor.errors import ProfileError, Where
from advisor.machine.features import loadable, targets
from advisor.machine.profile import DeviceProfile, EvidenceKind, Source

PROFILE_FOLDER = Path(__file__).parent / "profiles"
MAX_FILE_BYTES = 1 << 20
MAX_COUNT = 2**40  # beyond every count of a GPU, and far from overflowing 64 bits in a product of two
# Every rate and time of a GPU lies between, in the units of its field.
MIN_RATE, MAX_RATE = 1e-6, 1e18
EVIDENCE_KINDS: tuple[str, ...] = get_args(EvidenceKind)

_TEXTS = ("name", "title", "arch")
_POSITIVE_COUNTS = (
    "sms",
    "smem_per_sm_bytes",
    "smem_per_block_bytes",
    "registers_per_sm",
    "max_threads_per_sm",
    "max_blocks_per_sm",
    "max_cluster_size",
    "max_portable_cluster_size",
    "l2_bytes",
)
_COUNTS = ("smem_reserved_bytes", "tmem_columns")
_POSITIVE_RATES = (
    "dram_bytes_per_s",
    "l2_bytes_per_clk_per_sm",
    "smem_bytes_per_clk",
    "clock_hz",
    "max_clock_hz",
    "launch_us",
    "atomic_round_trip_cycles",
)
_RATES = ("cluster_barrier_cycles", "dsmem_bytes_per_clk_per_sm", "clc_round_trip_cycles")  # 0: it has none
_LISTS = ("compute_capability", "sm_groups")
_TABLES = ("tensor_flop_per_clk_per_sm", "mma_sync_flop_per_clk_per_sm")
_TABLE_KEYS = ("bf16", "fp16", "tf32", "fp8")
_REQUIRED_TABLE_KEYS = ("bf16", "fp16", "tf32")  # fp8 is absent where the tensor cores have none

FIELDS = tuple(field.name for field in dataclasses.fields(DeviceProfile))
NUMERIC_FIELDS = _LISTS + _POSITIVE_COUNTS + _COUNTS + _POSITIVE_RATES + _RATES


def profile_names() -> list[str]:
    """Names of the shipped profiles, sorted: what `--target` takes beside `auto` and a file."""
    return sorted(path.stem for path in PROFILE_FOLDER.glob("*.toml"))


def load_profile(name_or_path: str) -> DeviceProfile:
    """The profile of a shipped name, or of a file when the value ends in `.toml` or contains a path separator.

    Raises ProfileError: UNKNOWN_TARGET, PROFILE_UNREADABLE, PROFILE_SYNTAX, PROFILE_UNKNOWN_KEY, PROFILE_MISSING_KEY
    or PROFILE_VALUE, with the file, the line where it can be told, and the field.
    """
    if is_path(name_or_path):
        return read_profile(Path(name_or_path))
    name = re.sub(r"[\s-]+", "_", name_or_path.strip().lower())
    names = profile_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ProfileError(
            "UNKNOWN_TARGET",
            f"unknown target {name_or_path!r}{hint}",
            fix=f"known targets: {', '.join(names)}, auto, or the path of a profile ending in .toml",
            numbers={"target": name_or_path, "known": names},
        )
    return _shipped(name)


def is_path(name_or_path: str) -> bool:
    """Whether a `--target` value names a file rather than a shipped profile."""
    separators = {"/", os.sep, os.altsep}
    return name_or_path.endswith(".toml") or any(each in name_or_path for each in separators if each)


def profile_for_cc(major: int, minor: int, name: str) -> DeviceProfile | None:
    """The shipped profile of the GPU that the driver calls `name` ("NVIDIA H200"), or None.

    None when no profile of that compute capability names the product: an H20 or a GH200 is no H200, and its SM count
    is not guessed.
    """
    words = _words(name)
    best: DeviceProfile | None = None
    for each in profile_names():
        profile = _shipped(each)
        model = _words(each)
        is_same = profile.compute_capability == (major, minor) and set(model) <= set(words)
        if is_same and (best is None or len(model) > len(_words(best.name))):
            best = profile
    return best


def nearest_for_cc(major: int, minor: int) -> DeviceProfile | None:
    """Any shipped profile of that compute capability: rates to start from for a product that has none of its own.

    The caller replaces every limit that it can query and marks what it takes over as assumed.
    """
    fitting = [each for each in map(_shipped, profile_names()) if each.compute_capability == (major, minor)]
    return fitting[0] if fitting else None


def read_profile(path: Path) -> DeviceProfile:
    """The profile in a TOML file. Raises ProfileError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode("utf-8-sig")
        if len(content) > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_FILE_BYTES} bytes")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ProfileError(
            "PROFILE_UNREADABLE",
            f"the device profile cannot be read: {reason}",
            fix="give the path of a readable TOML file, or one of: " + ", ".join(profile_names()),
            where=Where(str(path)),
        ) from error
    return parse_profile(text, str(path))


def parse_profile(text: str, path: str) -> DeviceProfile:
    """The profile in `text`; `path` is for messages only. Raises ProfileError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise ProfileError(
            "PROFILE_SYNTAX",
            f"not valid TOML: {error}",
            fix="correct the line; strings are quoted, tables are in [brackets]",
            where=Where(path, int(line[1]) if line else None),
        ) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets within brackets
        raise ProfileError(
            "PROFILE_SYNTAX",
            "a value is nested too deeply, or a number has thousands of digits",
            fix="a profile is a flat table of fields; advisor probe --output writes one",
            where=Where(path),
        ) from error
    return _Reader(document, text, path).profile()


def write_profile(profile: DeviceProfile) -> str:
    """The TOML text of a profile; reading it again gives an equal profile."""
    lines = ["# A device profile. docs/machine.md describes the fields.", ""]
    for name in FIELDS:
        if name not in _TABLES and name != "sources":
            lines.append(f"{name} = {_toml(getattr(profile, name))}")
    for table in _TABLES:
        lines += ["", f"[{table}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in getattr(profile, table).items()]
    lines += ["", "[sources]"]
    for name, source in profile.sources.items():
        key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)
        lines.append(f"{key} = {{ kind = {_toml(source.kind)}, text = {_toml(source.text)} }}")
    return "\n".join(lines) + "\n"


def numeric_keys(profile: DeviceProfile) -> list[str]:
    """Every number of a profile as `sources` names it: fields, and `table.key` for the tensor rates."""
    return [*NUMERIC_FIELDS, *(f"{table}.{key}" for table in _TABLES for key in getattr(profile, table))]


@lru_cache(maxsize=32)
def _shipped(name: str) -> DeviceProfile:
    return read_profile(PROFILE_FOLDER / f"{name}.toml")


def _words(name: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[a-z0-9]+", name.lower()))


def _toml(value: object) -> str:
    if isinstance(value, str):
        return '"' + "".join(_escaped(character) for character in value) + '"'
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return repr(value)  # an int or a finite float: Python's shortest form is valid TOML, and exact


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if ord(character) >= 32 and ord(character) != 127 else f"\\u{ord(character):04x}"


class _Reader:
    """One pass over a parsed document; every complaint names the file, the line and the field."""

    def __init__(self, document: dict[str, Any], text: str, path: str) -> None:
        self.document = document
        self.lines = text.splitlines()
        self.path = path

    def profile(self) -> DeviceProfile:
        self._check_keys(self.document, FIELDS, "")
        for name in FIELDS:
            if name not in self.document and name != "sources":
                self._fail(
                    "PROFILE_MISSING_KEY", name, f"missing key {name!r}", "add it; docs/machine.md says what it is"
                )
        values: dict[str, Any] = {name: self._text(name) for name in _TEXTS}
        values |= {name: self._list(name) for name in _LISTS}
        values |= {name: self._count(name, at_least=1) for name in _POSITIVE_COUNTS}
        values |= {name: self._count(name, at_least=0) for name in _COUNTS}
        values |= {name: self._rate(name, self.document[name], positive=True) for name in _POSITIVE_RATES}
        values |= {name: self._rate(name, self.document[name], positive=False) for name in _RATES}
        values |= {name: self._table(name) for name in _TABLES}
        profile = DeviceProfile(**values)
        self._check_consistent(profile)
        return dataclasses.replace(profile, sources=self._sources(profile))

    def _check_consistent(self, p: DeviceProfile) -> None:
        if len(p.compute_capability) != 2:
            self._value("compute_capability", "must be two integers, major and minor", list(p.compute_capability))
        if p.arch not in targets() or not loadable(p.arch, p.compute_capability):
            known = ", ".join(each for each in targets() if loadable(each, p.compute_capability))
            rule = f"must be a target whose cubins load on compute capability {p.cc_text} ({known or 'none known'})"
            self._value("arch", rule, p.arch)
        if sum(p.sm_groups) != p.sms:
            self._value(
                "sm_groups", f"must add up to sms = {p.sms}; they add up to {sum(p.sm_groups)}", list(p.sm_groups)
            )
        if any(group < 1 for group in p.sm_groups) or list(p.sm_groups) != sorted(p.sm_groups, reverse=True):
            self._value("sm_groups", "must be positive, largest first", list(p.sm_groups))
        if p.smem_per_block_bytes + p.smem_reserved_bytes > p.smem_per_sm_bytes:
            rule = (
                f"plus smem_reserved_bytes = {p.smem_reserved_bytes} must fit smem_per_sm_bytes = {p.smem_per_sm_bytes}"
            )
            self._value("smem_per_block_bytes", rule, p.smem_per_block_bytes)
        if p.max_portable_cluster_size > p.max_cluster_size:
            rule = f"must not exceed max_cluster_size = {p.max_cluster_size}"
            self._value("max_portable_cluster_size", rule, p.max_portable_cluster_size)
        if p.clock_hz > p.max_clock_hz:
            self._value("clock_hz", f"must not exceed max_clock_hz = {p.max_clock_hz:g}", p.clock_hz)

    def _text(self, name: str) -> str:
        value = self.document[name]
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            self._value(name, "must be a non-empty string on one line", value)
        if name == "name" and not re.fullmatch(r"[a-z][a-z0-9_]*", value):
            self._value(name, "must be lower-case letters, digits and _, starting with a letter", value)
        return str(value)

    def _list(self, name: str) -> tuple[int, ...]:
        value = self.document[name]
        if not isinstance(value, list) or not value or not all(_is_int(e) and 0 <= e <= MAX_COUNT for e in value):
            self._value(name, f"must be a list of non-negative integers of at most {MAX_COUNT}", value)
        return tuple(value)

    def _count(self, name: str, *, at_least: int) -> int:
        value = self.document[name]
        if not _is_int(value) or not at_least <= value <= MAX_COUNT:
            self._value(name, f"must be an integer of at least {at_least} and at most {MAX_COUNT}", value)
        return int(value)

    def _rate(self, name: str, value: object, *, positive: bool) -> float:
        span = f"from {MIN_RATE:g} to {MAX_RATE:g}"
        rule = f"must be a positive number {span}" if positive else f"must be a non-negative number: 0, or {span}"
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            self._value(name, rule, value)
        if not MIN_RATE <= value <= MAX_RATE and (positive or value != 0):
            self._value(name, rule, value)
        return float(value)

    def _table(self, name: str) -> Mapping[str, float]:
        table = self.document[name]
        if not isinstance(table, dict):
            self._value(name, "must be a table of operand type to rate", table)
        self._check_keys(table, _TABLE_KEYS, f"{name}.")
        for key in _REQUIRED_TABLE_KEYS:
            if key not in table:
                self._fail(
                    "PROFILE_MISSING_KEY", f"{name}.{key}", f"missing key {key!r} in [{name}]", "add the dense rate"
                )
        return {key: self._rate(f"{name}.{key}", table[key], positive=True) for key in _TABLE_KEYS if key in table}

    def _sources(self, profile: DeviceProfile) -> dict[str, Source]:
        given = self.document.get("sources", {})
        if not isinstance(given, dict):
            self._value("sources", "must be a table of field to { kind, text }", given)
        known = numeric_keys(profile)
        self._check_keys(given, (*known, *_TABLES), "sources.")
        sources = {name: self._source(name, entry) for name, entry in given.items()}
        stated_by_nobody = Source("user", f"{Path(self.path).name}, which names no source for it")
        for name in known:
            table = name.partition(".")[0]
            sources.setdefault(name, sources.get(table, stated_by_nobody))
        return {name: sources[name] for name in known}

    def _source(self, name: str, entry: object) -> Source:
        field = f"sources.{name}"
        if not isinstance(entry, dict) or set(entry) != {"kind", "text"}:
            self._value(field, 'must be { kind = "...", text = "..." }', entry)
        if entry["kind"] not in EVIDENCE_KINDS:
            self._value(field, f"kind must be one of {', '.join(EVIDENCE_KINDS)}", entry["kind"])
        if not isinstance(entry["text"], str) or not entry["text"].strip():
            self._value(field, "text must say where the number comes from", entry["text"])
        return Source(entry["kind"], entry["text"])

    def _check_keys(self, table: Mapping[str, object], known: tuple[str, ...], prefix: str) -> None:
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                fix = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
                self._fail("PROFILE_UNKNOWN_KEY", f"{prefix}{key}", f"unknown key {key!r}", fix)

    def _value(self, name: str, rule: str, value: object) -> NoReturn:
        self._fail("PROFILE_VALUE", name, f"{name} {rule}, not {value!r}", "correct the value", value=value)

    def _fail(self, code: str, field: str, message: str, fix: str, **numbers: object) -> NoReturn:
        raise ProfileError(
            code,
            message,
            fix=fix,
            where=Where(self.path, self._line_of(field), field),
            numbers={"field": field, **numbers},
        )

    def _line_of(self, field: str) -> int | None:
        """The line that sets `field`, or None for one that is not there."""
        table, _, key = field.partition(".") if field.partition(".")[0] in (*_TABLES, "sources") else ("", "", field)
        current = ""
        for number, line in enumerate(self.lines, start=1):
            if header := re.match(r"\s*\[([^\]]+)\]", line):
                current = header[1].strip()
                if not key and current == table:
                    return number
            elif current == table and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
                return number
        return None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
