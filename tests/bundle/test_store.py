"""A bundle on disk: whole or not at all, read only as it was written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from advisor.bundle import (
    RenderedBundle,
    read_build,
    read_bundle,
    store,
    units,
    write_build,
    write_bundle,
    write_derived,
)
from advisor.errors import AdvisorError, BundleError


def _code(error: pytest.ExceptionInfo[AdvisorError]) -> tuple[str, int]:
    return error.value.code, error.value.exit_status


@dataclass(frozen=True)
class FakeImage:
    """What a compiler hands over, without a compiler."""

    ptx: str = ".version 8.0"
    cubin: bytes = b"\x7fELF"
    registers: int = 168
    static_smem_bytes: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    ptx_sha256: str = store._sha256(b".version 8.0")
    cubin_sha256: str = store._sha256(b"\x7fELF")
    kernel_hash: str = "k"
    compiler: str = "fake 1.0"
    sass: Mapping[str, int] = field(default_factory=lambda: {"main_loop_instructions": 50})


def _images(rendered: RenderedBundle) -> dict[tuple[str, str], FakeImage]:
    return {(kernel.id, target): FakeImage() for kernel in rendered.launch.kernels for target in kernel.images}


def test_what_is_read_is_what_was_written(tmp_path: Path, rendered: RenderedBundle) -> None:
    bundle = read_bundle(write_bundle(tmp_path / "out" / "sample", rendered))
    assert bundle.files == rendered.files
    assert bundle.launch == rendered.launch
    assert bundle.plan == rendered.plan
    assert bundle.manifest_hash == store._sha256(rendered.files["manifest.json"].encode())
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["sample"]


def test_the_manifest_depends_on_content_alone(rendered: RenderedBundle) -> None:
    files = dict(reversed([*rendered.files.items()]))
    assert store.manifest_text("sample", files) == rendered.files["manifest.json"]
    assert set(json.loads(rendered.files["manifest.json"])["files"]) == set(rendered.files) - {"manifest.json"}


def test_the_same_content_again_keeps_what_was_built(tmp_path: Path, rendered: RenderedBundle) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    write_build(read_bundle(folder), _images(rendered))
    (folder / "validation.json").write_text("{}")
    write_bundle(folder, rendered)
    assert (folder / "validation.json").exists()
    assert read_build(read_bundle(folder)) is not None


def test_new_content_drops_what_was_built(
    tmp_path: Path, rendered: RenderedBundle, other_rendered: RenderedBundle
) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    write_build(read_bundle(folder), _images(rendered))
    (folder / "validation.json").write_text("{}")
    write_bundle(folder, other_rendered)
    assert read_bundle(folder).files == other_rendered.files
    assert not (folder / "build").exists()
    assert not (folder / "validation.json").exists()


def test_an_edited_file_is_named(tmp_path: Path, rendered: RenderedBundle) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    (folder / "kernel_sm90.cu").write_text("// mine\n")
    with pytest.raises(AdvisorError, match=r"kernel_sm90\.cu") as error:
        read_bundle(folder)
    assert _code(error) == ("BUNDLE_EDITED", 2)


def test_an_edited_bundle_is_not_overwritten_unless_asked(
    tmp_path: Path, rendered: RenderedBundle, other_rendered: RenderedBundle
) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    (folder / "kernel_sm90.cu").write_text("// mine\n")
    with pytest.raises(AdvisorError) as error:
        write_bundle(folder, other_rendered)
    assert _code(error) == ("OUTPUT_EDITED", 2)
    assert (folder / "kernel_sm90.cu").read_text() == "// mine\n"
    write_bundle(folder, other_rendered, replace_edited=True)
    assert read_bundle(folder).files == other_rendered.files


@pytest.mark.parametrize("path", ["kernel_sm90.cu", "launch.json", "include/types.cuh"])
def test_a_missing_file_is_named(tmp_path: Path, rendered: RenderedBundle, path: str) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    (folder / path).unlink()
    with pytest.raises(AdvisorError, match=path) as error:
        read_bundle(folder)
    assert _code(error) == ("BUNDLE_INCOMPLETE", 2)


def test_a_folder_that_is_no_bundle_is_said_to_be_none(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(AdvisorError) as error:
            read_bundle(folder)
        assert _code(error) == ("BUNDLE_MISSING", 2)


@pytest.mark.parametrize(
    ("manifest", "code"),
    [
        ("{", "BUNDLE_EDITED"),
        ("[]", "BUNDLE_EDITED"),
        ('{"schema_version": 1, "name": "x"}', "BUNDLE_EDITED"),
        ('{"schema_version": 1, "name": "x", "files": {"a": 3}}', "BUNDLE_EDITED"),
        ('{"schema_version": 2, "name": "x", "files": {}}', "BUNDLE_SCHEMA"),
        ('{"schema_version": 1, "name": "x", "files": {}}', "BUNDLE_INCOMPLETE"),
        ('{"schema_version": 1, "name": "x", "files": {"../secret": "0"}}', "BUNDLE_PATH"),
        ('{"schema_version": 1, "name": "x", "files": {"/etc/hostname": "0"}}', "BUNDLE_PATH"),
        ('{"schema_version": 1, "name": "x", "files": {"a//b": "0"}}', "BUNDLE_PATH"),
        ('{"schema_version": 1, "name": "x", "files": {"": "0"}}', "BUNDLE_PATH"),
        ('{"schema_version": 1, "name": "x", "files": {"include/./x": "0"}}', "BUNDLE_PATH"),
        ('{"schema_version": 1, "name": "x", "files": {"' + "x" * 5000 + '": "0"}}', "BUNDLE_UNREADABLE"),
        ('{"schema_version": 1, "name": "../x", "files": {}}', "BUNDLE_EDITED"),
        ('{"schema_version": ' + "9" * 5000 + "}", "BUNDLE_EDITED"),
        ("[" * 100_000, "BUNDLE_EDITED"),
    ],
)
def test_a_manifest_that_cannot_be_trusted_is_refused(
    tmp_path: Path, rendered: RenderedBundle, manifest: str, code: str
) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    (folder / "manifest.json").write_text(manifest)
    with pytest.raises(AdvisorError) as error:
        read_bundle(folder)
    assert _code(error) == (code, 2)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("kernels", 0, "block", 0), True, "kernels.0.block.0: true is not a whole number"),
        (("kernels", 0, "block", 0), "256", 'kernels.0.block.0: "256" is not a whole number'),
        (("kernels", 0, "block", 0), 256.0, "kernels.0.block.0: 256.0 is not a whole number"),
        (("kernels", 0, "block", 0), 1.5, "kernels.0.block.0"),
        (("kernels", 0, "nonportable"), 0, "kernels.0.nonportable: 0 is not true or false"),
        (("kernels", 0, "registers"), "64", 'kernels.0.registers: "64" is not a whole number'),
        (("kernels", 0, "dynamic_smem_bytes"), False, "kernels.0.dynamic_smem_bytes: false is not a whole number"),
        (("buffers", "A", "align_bytes"), True, "buffers.A.align_bytes: true is not a whole number"),
        (("kernels", 0, "split_k"), -2, "kernels.0.split_k: "),
        (("schema_version",), True, "schema_version: true is not a whole number"),
        (("name",), 7, "name: "),
    ],
)
def test_a_launch_file_of_other_types_is_refused_with_the_place(
    tmp_path: Path, rendered: RenderedBundle, place: tuple[int | str, ...], value: object, words: str
) -> None:
    document = json.loads(rendered.files["launch.json"])
    inside: Any = document
    for each in place[:-1]:
        inside = inside[each]
    inside[place[-1]] = value
    files = {name: text for name, text in rendered.files.items() if name != "manifest.json"}
    files["launch.json"] = json.dumps(document)
    files["manifest.json"] = store.manifest_text(rendered.name, files)
    folder = write_bundle(tmp_path / "sample", replace(rendered, files=files))
    with pytest.raises(AdvisorError) as error:
        read_bundle(folder)
    assert _code(error) == ("BUNDLE_SCHEMA", 2)
    assert words in error.value.message


def test_a_symbolic_link_never_leads_out_of_the_folder(tmp_path: Path, rendered: RenderedBundle) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    outside = tmp_path / "types.cuh"
    outside.write_text(rendered.files["include/types.cuh"])
    (folder / "include" / "types.cuh").unlink()
    (folder / "include" / "types.cuh").symlink_to(outside)
    with pytest.raises(AdvisorError) as error:
        read_bundle(folder)
    assert _code(error) == ("BUNDLE_PATH", 2)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, rendered: RenderedBundle) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    (folder / "plan.json").unlink()
    os.mkfifo(folder / "plan.json")
    with pytest.raises(AdvisorError, match="not a plain file") as error:
        read_bundle(folder)
    assert _code(error) == ("BUNDLE_PATH", 2)


def test_a_rendered_path_cannot_leave_the_folder(tmp_path: Path, rendered: RenderedBundle) -> None:
    bad = RenderedBundle("sample", {**rendered.files, "../evil": ""}, rendered.launch, rendered.plan)
    with pytest.raises(AdvisorError) as error:
        write_bundle(tmp_path / "sample", bad)
    assert _code(error) == ("BUNDLE_PATH", 2)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_file_is_refused(tmp_path: Path, rendered: RenderedBundle) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    for place in (tmp_path / "file", tmp_path / "file" / "sample", tmp_path / "loop" / "sample"):
        with pytest.raises(AdvisorError) as error:
            write_bundle(place, rendered)
        assert _code(error) == ("OUTPUT_NOT_A_FOLDER", 2)
    assert (tmp_path / "file").read_text() == "mine"


def test_foreign_files_are_never_overwritten(tmp_path: Path, rendered: RenderedBundle) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(AdvisorError) as error:
        write_bundle(tmp_path, rendered)
    assert _code(error) == ("OUTPUT_NOT_A_BUNDLE", 2)
    folder = write_bundle(tmp_path / "sample", rendered)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(AdvisorError, match=r"notes\.txt") as error:
        write_bundle(folder, rendered)
    assert _code(error) == ("OUTPUT_FOREIGN_FILES", 2)
    assert (folder / "notes.txt").read_text() == "mine"


_AS_NOBODY = """
import os, sys
from advisor.bundle import write_bundle, read_bundle, RenderedBundle
from advisor.errors import AdvisorError
bundle = read_bundle(sys.argv[1])
rendered = RenderedBundle(bundle.name, bundle.files, bundle.launch, bundle.plan)
if os.geteuid() == 0:
    os.setuid(65534)
try:
    write_bundle(sys.argv[2], rendered)
except AdvisorError as error:
    sys.stdout.write(f"{error.code} {error.exit_status}")
"""


def test_a_read_only_output_is_refused_and_nothing_is_left_behind(rendered: RenderedBundle) -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path: another user must be able to reach it
        root = Path(name)
        root.chmod(0o755)
        source = write_bundle(root / "sample", rendered)
        closed = root / "closed"
        closed.mkdir()
        closed.chmod(0o555)
        child = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, source, closed / "sample"], capture_output=True, text=True, check=True
        )
        assert child.stdout == "OUTPUT_NOT_WRITABLE 2"
        assert list(closed.iterdir()) == []


_WRITE_FOREVER = """
import sys
from advisor.bundle import write_bundle, read_bundle, RenderedBundle
pair = []
for path in sys.argv[1:3]:
    bundle = read_bundle(path)
    pair.append(RenderedBundle(bundle.name, bundle.files, bundle.launch, bundle.plan))
print("ready", flush=True)
while True:
    for rendered in pair:
        write_bundle(sys.argv[3], rendered)
"""


@pytest.mark.parametrize("atomic", [True, False], ids=["exchange", "two_renames"])
def test_a_writer_killed_at_any_moment_leaves_a_whole_bundle(
    tmp_path: Path, rendered: RenderedBundle, other_rendered: RenderedBundle, atomic: bool
) -> None:
    sources = [write_bundle(tmp_path / "a", rendered), write_bundle(tmp_path / "b", other_rendered)]
    target = tmp_path / "out" / "sample"
    program = _WRITE_FOREVER
    if not atomic:  # a file system that cannot exchange two folders
        program = "from advisor.bundle import store\nstore._exchange = lambda first, second: False\n" + program
    for attempt in range(6):
        child = subprocess.Popen([sys.executable, "-c", program, *sources, target], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.02 + 0.013 * attempt)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        if target.exists() or store._aside(target).exists():
            assert read_bundle(target).files in (rendered.files, other_rendered.files)
    write_bundle(target, rendered)
    assert [each.name for each in target.parent.iterdir()] == ["sample"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["_staging", "_write", "_swap", "_clear_stale"])
def test_ctrl_c_waits_until_the_folder_is_whole_and_nothing_is_beside_it(
    tmp_path: Path,
    rendered: RenderedBundle,
    other_rendered: RenderedBundle,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    number: signal.Signals,
) -> None:
    class Terminated(BaseException):
        pass

    def terminate(*_: object) -> None:
        raise Terminated

    folder = write_bundle(tmp_path / "sample", rendered)
    original = getattr(store, moment)

    def struck(*args: Any) -> Any:
        result = original(*args)
        signal.raise_signal(number)
        return result

    monkeypatch.setattr(store, moment, struck)
    before = signal.signal(signal.SIGTERM, terminate)
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else Terminated):
            write_bundle(folder, other_rendered)
        assert signal.getsignal(signal.SIGTERM) is terminate
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupted)
    assert read_bundle(folder).files == other_rendered.files
    assert [each.name for each in tmp_path.iterdir()] == ["sample"]


def test_writers_at_the_same_time_leave_one_of_their_bundles(
    tmp_path: Path, rendered: RenderedBundle, other_rendered: RenderedBundle
) -> None:
    sources = [write_bundle(tmp_path / "a", rendered), write_bundle(tmp_path / "b", other_rendered)]
    target = tmp_path / "out" / "sample"
    program = _WRITE_FOREVER.replace("while True", "for _ in range(15)")
    children = [
        subprocess.Popen([sys.executable, "-c", program, *order, target], stdout=subprocess.DEVNULL)
        for order in (sources, sources[::-1])
    ]
    reads = 0
    while any(child.poll() is None for child in children):
        if target.exists():
            # A listing that was begun before an exchange is of the folder that is being removed: the name has moved on.
            before, names, after = target.stat().st_ino, os.listdir(target), target.stat().st_ino
            assert "manifest.json" in names or before != after
            reads += 1
    assert [child.wait() for child in children] == [0, 0]
    assert reads > 0
    assert read_bundle(target).files in (rendered.files, other_rendered.files)
    assert [each.name for each in target.parent.iterdir()] == ["sample"]


def test_a_bundle_is_not_written_into_another_one(tmp_path: Path, rendered: RenderedBundle) -> None:
    """It would be foreign to the outer one, and in build/ it would be gone with the next build."""
    folder = write_bundle(tmp_path / "sample", rendered)
    (tmp_path / "link").symlink_to(folder)
    for place in (folder / "sample", folder / "build" / "deep" / "sample", tmp_path / "link" / "sample"):
        with pytest.raises(AdvisorError) as error:
            write_bundle(place, rendered)
        assert _code(error) == ("OUTPUT_IN_BUNDLE", 2)
    assert write_bundle(folder, rendered) == folder


def test_a_source_that_is_no_text_is_an_edited_one(tmp_path: Path, rendered: RenderedBundle) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    (folder / "kernel_sm90.cu").write_bytes(b"\xff")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["kernel_sm90.cu"] = store._sha256(b"\xff")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="UTF-8") as error:
        read_bundle(folder)
    assert _code(error) == ("BUNDLE_EDITED", 2)


def test_a_bundle_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, rendered: RenderedBundle, other_rendered: RenderedBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    read, calls = store._read_inside, []

    def replaced_after_two_files(place: Path, path: str) -> bytes:
        calls.append(path)
        if len(calls) == 3:
            write_bundle(folder, other_rendered)
        return read(place, path)

    monkeypatch.setattr(store, "_read_inside", replaced_after_two_files)
    assert read_bundle(folder).files == other_rendered.files


# --- what later steps write ----------------------------------------------------------------------------------------


def test_a_derived_file_is_replaced_whole_and_leaves_nothing_beside_it(
    tmp_path: Path, rendered: RenderedBundle
) -> None:
    bundle = read_bundle(write_bundle(tmp_path / "sample", rendered))
    before = {each.name for each in bundle.folder.iterdir()}
    for text in ("first", "second"):
        assert write_derived(bundle, "report.validated.md", text).read_text() == text
    assert {each.name for each in bundle.folder.iterdir()} == before | {"report.validated.md"}


_DERIVE_FOREVER = """
import sys
from advisor.bundle import read_bundle, write_derived
bundle = read_bundle(sys.argv[1])
for _ in range(60):
    write_derived(bundle, "validation.json", sys.argv[2] * 200_000)
"""


def test_writers_of_one_derived_file_never_mix(tmp_path: Path, rendered: RenderedBundle) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    children = [subprocess.Popen([sys.executable, "-c", _DERIVE_FOREVER, folder, letter]) for letter in "ab"]
    seen: set[str] = set()
    while any(child.poll() is None for child in children):
        if (folder / "validation.json").exists():
            seen.add((folder / "validation.json").read_text())
    assert [child.wait() for child in children] == [0, 0]
    assert seen <= {"a" * 200_000, "b" * 200_000}
    assert seen


def test_evidence_is_not_put_beside_another_bundle(
    tmp_path: Path, rendered: RenderedBundle, other_rendered: RenderedBundle
) -> None:
    bundle = read_bundle(write_bundle(tmp_path / "sample", rendered))
    write_bundle(bundle.folder, other_rendered)
    for write in (lambda: write_derived(bundle, "report.md", "x"), lambda: write_build(bundle, _images(rendered))):
        with pytest.raises(AdvisorError) as error:
            write()
        assert _code(error) == ("OUTPUT_CHANGED", 2)
    assert not (bundle.folder / "report.md").exists()
    assert not (bundle.folder / "build").exists()


def test_what_a_killed_writer_left_is_not_the_users(
    tmp_path: Path, rendered: RenderedBundle, other_rendered: RenderedBundle
) -> None:
    folder = write_bundle(tmp_path / "sample", rendered)
    (folder / ".validation.json.new").write_text("half")
    write_bundle(folder, other_rendered)
    assert read_bundle(folder).files == other_rendered.files
    assert not (folder / ".validation.json.new").exists()


# --- building ----------------------------------------------------------------------------------------------------


def test_a_unit_holds_the_headers_its_source_reaches_and_no_others(rendered: RenderedBundle) -> None:
    rows = units(rendered)
    assert [(row.kernel_id, row.target, row.name) for row in rows] == [
        ("sm90_static_2x1x1", "sm_90a", "kernel_sm90.cu"),
        ("portable_one_tile", "sm_80", "kernel_portable.cu"),
        ("portable_one_tile", "sm_90", "kernel_portable.cu"),
    ]
    assert sorted(rows[0].headers) == ["pipeline.cuh", "types.cuh"]
    assert sorted(rows[1].headers) == ["types.cuh"]
    assert rows[0].defines == {"ADVISOR_CLUSTER_X": 2}


def test_a_build_is_read_back_for_the_manifest_it_was_made_from(
    tmp_path: Path, rendered: RenderedBundle, other_rendered: RenderedBundle
) -> None:
    bundle = read_bundle(write_bundle(tmp_path / "sample", rendered))
    assert read_build(bundle) is None
    write_build(bundle, _images(rendered))
    rows = read_build(bundle)
    assert rows is not None
    assert rows[0]["image"] == "build/sm90_static_2x1x1.sm_90a.cubin"
    assert bundle.image("sm90_static_2x1x1", "sm_90a").read_bytes() == b"\x7fELF"
    assert bundle.image("sm90_static_2x1x1", "sm_90a").with_suffix(".ptx").read_text() == ".version 8.0"
    other = read_bundle(write_bundle(tmp_path / "other", other_rendered))
    (bundle.folder / "build").rename(other.folder / "build")
    assert read_build(other) is None


def test_a_changed_image_is_named(tmp_path: Path, rendered: RenderedBundle) -> None:
    bundle = read_bundle(write_bundle(tmp_path / "sample", rendered))
    write_build(bundle, _images(rendered))
    bundle.image("portable_one_tile", "sm_80").write_bytes(b"other")
    with pytest.raises(AdvisorError, match="sm_80") as error:
        read_build(bundle)
    assert _code(error) == ("BUILD_EDITED", 2)


@pytest.mark.parametrize("harm", ["changed", "removed"])
def test_the_ptx_is_checked_as_the_cubin_is(tmp_path: Path, rendered: RenderedBundle, harm: str) -> None:
    bundle = read_bundle(write_bundle(tmp_path / "sample", rendered))
    write_build(bundle, _images(rendered))
    ptx = bundle.image("portable_one_tile", "sm_80").with_suffix(".ptx")
    ptx.unlink() if harm == "removed" else ptx.write_text("other")
    with pytest.raises(AdvisorError, match=r"sm_80\.ptx") as error:
        read_build(bundle)
    assert _code(error) == ("BUNDLE_INCOMPLETE" if harm == "removed" else "BUILD_EDITED", 2)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.clear(),
        lambda rows: rows.pop(),
        lambda rows: rows.reverse(),
        lambda rows: rows.append(rows[0]),
        lambda rows: rows.append(3),
        lambda rows: rows[0].pop("image"),
        lambda rows: rows[0].update(image="../../etc/passwd"),
        lambda rows: rows[0].update(image=None),
        lambda rows: rows[0].update(registers="many"),
        lambda rows: rows[0].update(kernel_id="nobody"),
        lambda rows: rows[0].update(note="mine"),
    ],
)
def test_a_list_of_images_that_is_not_the_bundles_is_refused(
    tmp_path: Path, rendered: RenderedBundle, change: Callable[[list[Any]], object]
) -> None:
    bundle = read_bundle(write_bundle(tmp_path / "sample", rendered))
    place = write_build(bundle, _images(rendered)) / "build.json"
    document = json.loads(place.read_text())
    change(document["images"])
    place.write_text(json.dumps(document))
    with pytest.raises(AdvisorError) as error:
        read_build(bundle)
    assert _code(error) == ("BUILD_EDITED", 2)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_a_list_of_images_that_is_no_json_is_refused(tmp_path: Path, rendered: RenderedBundle, text: str) -> None:
    bundle = read_bundle(write_bundle(tmp_path / "sample", rendered))
    (write_build(bundle, _images(rendered)) / "build.json").write_text(text)
    with pytest.raises(AdvisorError) as error:
        read_build(bundle)
    assert _code(error) == ("BUILD_EDITED", 2)


def test_a_build_without_an_image_is_not_written(tmp_path: Path, rendered: RenderedBundle) -> None:
    bundle = read_bundle(write_bundle(tmp_path / "sample", rendered))
    images = _images(rendered)
    del images["portable_one_tile", "sm_90"]
    with pytest.raises(AdvisorError) as error:
        write_build(bundle, images)
    assert error.value.code == "BUILD_INCOMPLETE"
    assert not (bundle.folder / "build").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["sample"]
