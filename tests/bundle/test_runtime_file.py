"""runtime.json: what is switched off on one machine. The launcher and the binding have the same table of refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.bundle import Bundle, RenderedBundle, read_bundle, read_runtime_file, write_bundle, write_runtime_file
from advisor.errors import BundleError
from advisor.records.runtime_file import RuntimeFile


@pytest.fixture
def bundle(tmp_path: Path, rendered: RenderedBundle) -> Bundle:
    return read_bundle(write_bundle(tmp_path / "sample", rendered))


def test_without_the_file_nothing_is_off(bundle: Bundle) -> None:
    assert read_runtime_file(bundle) == RuntimeFile(clc="on")


def test_what_is_written_is_read_and_leaves_the_bundle_as_it_was(bundle: Bundle) -> None:
    file = RuntimeFile(clc="off", reason="clc_one_wave: no answer within 20 s")
    path = write_runtime_file(bundle, file)
    assert path == bundle.folder / "runtime.json"
    assert read_runtime_file(bundle) == file
    assert read_bundle(bundle.folder).manifest_hash == bundle.manifest_hash


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"clc": "off"}',
        '{"schema_version": 1}',
        '{"schema_version": 2, "clc": "off"}',
        '{"schema_version": 1.0, "clc": "off"}',
        '{"schema_version": true, "clc": "off"}',
        '{"schema_version": 1, "clc": "no"}',
        '{"schema_version": 1, "clc": false}',
        '{"schema_version": 1, "clc": "off", "clc": "on"}',
        '{"schema_version": 1, "clc": "off", "pairs": "off"}',
        '{"schema_version": 1, "clc": "off", "reason": 1}',
        '{"schema_version": 1, "clc": "off"} {}',
        '{"schema_version": 1, "clc": "of',
        " " * 70000,
    ],
)
def test_a_file_that_says_something_else_is_refused(bundle: Bundle, text: str) -> None:
    (bundle.folder / "runtime.json").write_text(text)
    with pytest.raises(BundleError, match="does not say what is switched off") as caught:
        read_runtime_file(bundle)
    assert (caught.value.code, caught.value.exit_status) == ("RUNTIME_FILE", 2)


def test_a_folder_or_bytes_that_are_no_text_are_refused(bundle: Bundle) -> None:
    path = bundle.folder / "runtime.json"
    path.write_bytes(b'{"schema_version": 1, "clc": "off", "reason": "\xff"}')
    with pytest.raises(BundleError):
        read_runtime_file(bundle)
    path.unlink()
    path.mkdir()
    with pytest.raises(BundleError):
        read_runtime_file(bundle)
