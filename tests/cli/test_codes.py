"""One registry of codes: every code that the source uses has a page, and every page is of a code in use."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from advisor.errors import EXIT_INPUT, SEVERITIES, AdvisorError, InputError, Where, explain, registry

ROOT = Path(__file__).parent.parent.parent
CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
CARRIERS = {"Violation", "Finding", "Rejected"}


def literals_in_code_position() -> dict[str, set[str]]:
    """Codes passed to an exception, a violation or a finding: first argument or `code=`; with where they stand."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "advisor").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            values = [each.value for each in node.keywords if each.arg == "code"]
            if name.endswith("Error") or name in CARRIERS:
                values += node.args[:1]
            for value in values:
                for each in ast.walk(value):
                    if isinstance(each, ast.Constant) and isinstance(each.value, str) and CODE.fullmatch(each.value):
                        found.setdefault(each.value, set()).add(f"{path.relative_to(ROOT)}:{each.lineno}")
    return found


def all_literals() -> set[str]:
    found: set[str] = set()
    for path in sorted((ROOT / "advisor").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(CODE.findall(node.value))
    return found


def test_every_code_in_use_has_a_page() -> None:
    missing = {code: sorted(places) for code, places in literals_in_code_position().items() if code not in registry()}
    assert missing == {}


def test_every_page_is_of_a_code_in_use() -> None:
    assert set(registry()) - all_literals() == set()


def test_the_search_for_codes_finds_some() -> None:
    found = literals_in_code_position()
    assert len(found) > 50
    assert {"PROBLEM_SYNTAX", "COMPILE_FAILED", "CACHE_UNWRITABLE"} <= set(found)


@pytest.mark.parametrize("code", list(registry()))
def test_a_page_says_what_it_means_and_what_to_do(code: str) -> None:
    page = explain(code)
    assert page.severity in SEVERITIES
    assert page.title
    assert not page.title.endswith(".")
    assert page.meaning.endswith((".", "?", ")"))
    assert page.fix
    assert "\t" not in page.meaning + page.fix


@pytest.mark.parametrize("spelling", ["bundle_edited", "Bundle-Edited", " BUNDLE_EDITED "])
def test_the_spelling_of_a_code_is_forgiven(spelling: str) -> None:
    assert explain(spelling).code == "BUNDLE_EDITED"


def test_an_unknown_code_suggests_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        explain("BUNDLE_EDITTED")
    assert caught.value.code == "UNKNOWN_CODE"
    assert "BUNDLE_EDITED" in caught.value.fix


def test_an_error_reads_as_place_message_code_and_fix() -> None:
    error = InputError("SOME_CODE", "m is wrong", fix="write 1", where=Where("p.yaml", 3, "m"), numbers={"m": -1})
    assert str(error) == "p.yaml:3: m: m is wrong [SOME_CODE]\n  fix: write 1"
    document = error.as_document()["error"]
    assert isinstance(document, dict)
    assert (document["line"], document["numbers"]) == (3, {"m": -1})


def test_every_error_class_has_an_exit_status_that_the_command_line_knows() -> None:
    classes = [AdvisorError]
    for each in classes:
        classes += each.__subclasses__()
    assert {each.exit_status for each in classes} == {1, 2, 3}
    assert InputError.exit_status == EXIT_INPUT
