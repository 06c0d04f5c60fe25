"""Where rendered text comes from, and that no text of a user becomes code."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.codegen import templates
from advisor.errors import ToolError


def _code(error: pytest.ExceptionInfo[ToolError]) -> str:
    return error.value.code


def test_headers_are_found_through_other_headers() -> None:
    found = templates.headers_for('#include "scheduler.cuh"\n')
    assert "scheduler.cuh" in found
    assert "types.cuh" in found
    assert any(name.startswith("ptx/") for name in found)
    assert list(found) == sorted(found)


def test_a_header_that_is_not_there_is_named() -> None:
    with pytest.raises(ToolError, match="cutlass") as error:
        templates.headers_for('#include "cutlass.h"\n')
    assert _code(error) == "TEMPLATE_MISSING"


@pytest.mark.parametrize("path", ["../pyproject.toml", "/etc/hostname", "nothing.j2", "include"])
def test_a_path_outside_of_the_templates_is_refused(path: str) -> None:
    for use in (lambda: templates.load(path), lambda: templates.render(path)):
        with pytest.raises(ToolError) as error:
            use()
        assert _code(error) == "TEMPLATE_MISSING"


def test_a_name_that_the_context_lacks_is_an_error() -> None:
    with pytest.raises(ToolError, match="undefined") as error:
        templates.render("launcher/launcher.h.j2", name="x")
    assert _code(error) == "TEMPLATE_FAILED"


@pytest.mark.parametrize("text", ["", "2x", "a-b", 'x"', "x; int y", "x\ny", "x/../y", "é", "a" * 65, "{{ 7 }}"])
def test_an_identifier_is_plain(text: str) -> None:
    with pytest.raises(ToolError) as error:
        templates.identifier(text)
    assert _code(error) == "TEXT_UNSAFE"


@pytest.mark.parametrize("text", ["", "../x", "a/b", "a b", ".hidden", 'x"', "x\n"])
def test_a_file_name_is_plain(text: str) -> None:
    with pytest.raises(ToolError) as error:
        templates.file_name(text)
    assert _code(error) == "TEXT_UNSAFE"


def test_prose_stays_one_line_and_marks_are_escaped() -> None:
    assert templates.prose_line("a\n# b <x> `c` | d\x00") == r"a \# b \<x\> \`c\` \| d"


def test_the_binding_is_python_as_it_lies() -> None:
    """The part that every binding embeds is a plain file: editors and linters see it as it is."""
    text = (templates.folder() / "binding" / "launching.py").read_text()
    compile(text, "launching.py", "exec")
    assert "{{" not in text


def test_every_rendered_host_file_lies_in_the_wheel() -> None:
    """The wheel carries `templates/`; a template that is looked up elsewhere would be missing there."""
    folder = templates.folder()
    assert folder.name in ("templates", "_templates")
    assert {"launcher", "binding", "include", "kernels"} <= {each.name for each in Path(folder).iterdir()}
