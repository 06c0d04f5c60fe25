"""A bundle on disk: written whole or not at all, read only as it was written.

    <name>/                     committed, listed with hashes in manifest.json
      problem.yaml plan.json launch.json manifest.json
      kernel_<family>.cu include/... <name>.h <name>.cpp <name>.py README.md test/...
      build/                    not committed: <id>.<target>.cubin, .ptx and build.json
      validation.json runtime.json report*.md report*.html    written by later steps, not in the manifest

Imports `kinds`, `machine`, `records` and `errors`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol

from pydantic import ConfigDict, ValidationError

import advisor.kinds  # noqa: F401  # what the record of a plan is read with
from advisor import __version__
from advisor.bundle.coherence import check_launch
from advisor.bundle.headers import headers_of, include_closure
from advisor.errors import BundleError, OutputError
from advisor.records.base import Record, canonical_json, converted
from advisor.records.launch import Launch
from advisor.records.plan import Plan

MANIFEST = "manifest.json"
MANIFEST_SCHEMA = 1
BUILD = "build"
# What later steps put beside the rendered files. It belongs to one manifest: a bundle with new content drops it.
_DERIVED_FILE = r"(validation\.json|runtime\.json|report(\.[a-z]+)*\.(md|html))"
_DERIVED = re.compile(rf"build|{_DERIVED_FILE}|\.{_DERIVED_FILE}\.new")  # .new: a writer of it was killed
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_DISPOSABLE = ("__pycache__",)
_READ_ATTEMPTS = 5  # of a bundle that is replaced while it is read
_ENDING = (signal.SIGINT, signal.SIGTERM)
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@dataclass(frozen=True, slots=True)
class RenderedBundle:
    """A bundle in memory: `files` maps each path inside the bundle to its text, manifest.json included."""

    name: str
    files: Mapping[str, str]
    launch: Launch
    plan: Plan


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was read, with every file checked against the manifest."""

    folder: Path
    name: str
    problem_text: str
    plan: Plan
    launch: Launch
    files: Mapping[str, str]
    manifest_hash: str  # sha256 of manifest.json: it names the bundle's whole content

    def image(self, kernel_id: str, target: str) -> Path:
        """Where the cubin of a kernel lies, built or not. Raises KeyError for an image that launch.json lacks."""
        return self.folder / self.launch.kernel(kernel_id).images[target]


@dataclass(frozen=True, slots=True)
class BuildUnit:
    """One translation unit to compile: everything that its kernel hash covers."""

    kernel_id: str
    target: str  # sm_90a
    name: str  # the source's file name, as the compiler's messages show it
    source: str
    headers: Mapping[str, str]  # name as written in #include "..." -> text
    defines: Mapping[str, int | str]
    flags: tuple[str, ...] = ()


class CompiledImage(Protocol):
    """What a compiler gave for one unit; `toolchain.Compiled` is one."""

    @property
    def ptx(self) -> str: ...
    @property
    def cubin(self) -> bytes: ...
    @property
    def registers(self) -> int: ...
    @property
    def static_smem_bytes(self) -> int: ...
    @property
    def spill_bytes(self) -> int: ...
    @property
    def stack_bytes(self) -> int: ...
    @property
    def ptx_sha256(self) -> str: ...
    @property
    def cubin_sha256(self) -> str: ...
    @property
    def kernel_hash(self) -> str: ...
    @property
    def compiler(self) -> str: ...
    @property
    def sass(self) -> Mapping[str, int]: ...


class BuildRow(Record):
    """What is known of one image: a row of build.json."""

    model_config = ConfigDict(strict=True)

    kernel_id: str
    target: str
    image: str
    kernel_hash: str
    compiler: str
    registers: int
    static_smem_bytes: int
    spill_bytes: int
    stack_bytes: int
    ptx_sha256: str
    cubin_sha256: str
    sass: dict[str, int]  # counts of the machine code: MMAs, copies, requests, the main loop; empty: not disassembled


class BuildFile(Record):
    """build.json: `manifest_hash` says of which content of the bundle the images are."""

    schema_version: Literal[1]
    manifest_hash: str
    images: list[BuildRow]


# --- manifest ----------------------------------------------------------------------------------------------------


def manifest_text(name: str, files: Mapping[str, str]) -> str:
    """manifest.json for `files` (manifest.json itself left out): sha256 of each, sorted by path."""
    hashes = {path: _sha256(text.encode()) for path, text in sorted(files.items()) if path != MANIFEST}
    return canonical_json(
        {
            "schema_version": MANIFEST_SCHEMA,
            "name": name,
            "generator": f"cluster-advisor {__version__}",
            "files": hashes,
        }
    )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check_path(path: str) -> PurePosixPath:
    """`path` as a relative path that stays inside the bundle. Raises BundleError BUNDLE_PATH."""
    pure = PurePosixPath(path)
    plain = path and not pure.is_absolute() and str(pure) == path and "\\" not in path and path.isprintable()
    if not plain or any(part in (".", "..") for part in pure.parts):
        raise BundleError(
            "BUNDLE_PATH",
            f"the bundle names the file {path!r}, which is not a plain path inside it",
            fix="generate the bundle again",
            numbers={"path": path},
        )
    return pure


# --- reading -----------------------------------------------------------------------------------------------------


def read_bundle(folder: str | Path) -> Bundle:
    """The bundle in `folder`, every file of its manifest checked.

    Raises BundleError: BUNDLE_MISSING, BUNDLE_INCOMPLETE, BUNDLE_EDITED, BUNDLE_PATH, BUNDLE_SCHEMA, BUNDLE_LAUNCH,
    EXPRESSION_INVALID.
    """
    folder = Path(folder)
    for _ in range(_READ_ATTEMPTS - 1):
        before = _identity(folder)
        try:
            return _read_once(folder)
        except BundleError:
            if _identity(folder) == before:
                raise
    return _read_once(folder)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Which folder stands under this name: a writer puts another one there."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _read_once(folder: Path) -> Bundle:
    if not _is_there(folder) and _is_there(_aside(folder)):
        with _output_errors(folder), _locked(folder.parent):
            _recover(folder)
    manifest, manifest_text = _read_manifest(folder)
    files: dict[str, str] = {}
    for path, expected in manifest["files"].items():
        content = _read_inside(folder, path)
        if _sha256(content) != expected:
            raise BundleError(
                "BUNDLE_EDITED",
                f"{folder / path} is not the file that was generated: its hash differs from manifest.json",
                fix="generate the bundle again, or copy your changes to a folder of your own",
                numbers={"file": path, "expected_sha256": expected, "found_sha256": _sha256(content)},
            )
        files[path] = _text(folder, path, content)
    for path in ("problem.yaml", "plan.json", "launch.json"):
        if path not in files:
            raise _incomplete(folder, path)
    files[MANIFEST] = manifest_text
    try:
        plan = Plan.model_validate_json(files["plan.json"])
        launch = Launch.model_validate_json(files["launch.json"])
    except ValidationError as error:
        first = error.errors()[0]
        raise _off_schema(folder, error.title, first["loc"], first["msg"], error.error_count()) from error
    found = converted(json.loads(files["launch.json"]), launch.model_dump())
    if found is not None:
        place, value, meant = found
        raise _off_schema(folder, "Launch", (place,), f"{json.dumps(value)} is not {meant}")
    check_launch(launch, files, folder)
    name = str(manifest["name"])
    return Bundle(folder, name, files["problem.yaml"], plan, launch, files, _sha256(manifest_text.encode()))


def _off_schema(folder: Path, record: str, place: Sequence[int | str], fault: str, count: int = 1) -> BundleError:
    where = ".".join(map(str, place))
    return BundleError(
        "BUNDLE_SCHEMA",
        f"{folder}: {record} does not follow this version's schema: {f'{where}: ' if where else ''}{fault}",
        fix="generate the bundle again with this version",
        numbers={"errors": count, "place": where},
    )


def _is_there(folder: Path) -> bool:
    return _identity(folder) is not None


def _text(folder: Path, path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BundleError(
            "BUNDLE_EDITED",
            f"{folder / path} is not the file that was generated: it is not UTF-8 text",
            fix="generate the bundle again",
            numbers={"file": path},
        ) from error


def _read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """(the manifest, its text)."""
    try:
        content = _read_inside(folder, MANIFEST)
    except BundleError as error:
        if error.code == "BUNDLE_INCOMPLETE":
            raise BundleError(
                "BUNDLE_MISSING",
                f"{folder} is not a bundle: it has no {MANIFEST}",
                fix="pass the folder that `advisor generate` wrote",
                numbers={"folder": str(folder)},
            ) from error
        raise
    text = _text(folder, MANIFEST, content)
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad_manifest(folder, "it is not JSON") from error
    if not isinstance(manifest, dict):
        raise _bad_manifest(folder, "it is not an object")
    if manifest.get("schema_version") != MANIFEST_SCHEMA:
        raise BundleError(
            "BUNDLE_SCHEMA",
            f"{folder}: the manifest has schema version {manifest.get('schema_version')}, this version reads"
            f" {MANIFEST_SCHEMA}",
            fix="generate the bundle again with this version",
            numbers={"found": manifest.get("schema_version"), "reads": MANIFEST_SCHEMA},
        )
    files = manifest.get("files")
    name = manifest.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(files, dict):
        raise _bad_manifest(folder, "it lacks `name` or `files`, or the name is none")
    if not all(isinstance(each, str) for each in files.values()):
        raise _bad_manifest(folder, "a hash is not text")
    return manifest, text


def _bad_manifest(folder: Path, why: str) -> BundleError:
    return BundleError(
        "BUNDLE_EDITED",
        f"{folder / MANIFEST} cannot be read: {why}",
        fix="generate the bundle again",
        numbers={"file": MANIFEST},
    )


def _read_inside(folder: Path, path: str) -> bytes:
    """The bytes of a file of the bundle. A symbolic link on the way is refused: it could lead out of the folder."""
    parts = check_path(path).parts
    place = folder
    try:
        for part in parts:
            place = place / part
            if place.is_symlink():
                raise BundleError(
                    "BUNDLE_PATH",
                    f"{place} is a symbolic link; a bundle holds plain files",
                    fix="replace the link by the file, or generate the bundle again",
                    numbers={"path": path},
                )
        if place.exists() and not place.is_file() and not place.is_dir():  # a pipe would be waited for
            raise BundleError(
                "BUNDLE_PATH",
                f"{place} is not a plain file",
                fix="generate the bundle again",
                numbers={"path": path},
            )
        return place.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise _incomplete(folder, path) from error
    except OSError as error:
        raise BundleError(
            "BUNDLE_UNREADABLE",
            f"{place} cannot be read: {error.strerror}",
            fix="check the permissions",
            numbers={"path": path},
        ) from error


def _incomplete(folder: Path, path: str) -> BundleError:
    return BundleError(
        "BUNDLE_INCOMPLETE",
        f"{folder} lacks {path}",
        fix="generate the bundle again",
        numbers={"path": path},
    )


# --- writing -----------------------------------------------------------------------------------------------------


def write_bundle(folder: str | Path, rendered: RenderedBundle, *, replace_edited: bool = False) -> Path:
    """Write `rendered` to `folder` and return the folder.

    The files are staged beside the target and exchanged for it in one step, so that a crash at any moment leaves the
    old bundle or the new one. The same content again changes nothing: what was built and validated stays. New content
    drops it. Files that were edited by hand, or that no bundle has, are never overwritten.

    Raises OutputError: OUTPUT_NOT_A_FOLDER, OUTPUT_NOT_WRITABLE, OUTPUT_NOT_A_BUNDLE, OUTPUT_IN_BUNDLE,
    OUTPUT_FOREIGN_FILES, OUTPUT_EDITED (unless `replace_edited`); BundleError BUNDLE_PATH.
    """
    folder = Path(folder).absolute()
    paths = {path: check_path(path) for path in rendered.files}
    if MANIFEST not in paths:
        raise ValueError("a rendered bundle holds its manifest")
    with _output_errors(folder):
        _check_outside_of_bundles(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent), _to_the_end():
            _recover(folder)
            _clear_stale(folder.parent, folder.name)
            if not _may_replace(folder, rendered, replace_edited):
                return folder
            staged = _staging(folder.parent, folder.name)
            try:
                for path, text in rendered.files.items():
                    _write(staged / paths[path], text.encode())
                _swap(staged, folder)
            finally:
                shutil.rmtree(staged, ignore_errors=True)
    return folder


def _check_outside_of_bundles(folder: Path) -> None:
    """A bundle inside another's folder would be foreign to it, and go with it when it is replaced."""
    inner = Path(os.path.realpath(folder.parent))  # Path.resolve raises for a loop of links
    for parent in (inner, *inner.parents):
        if (parent / MANIFEST).is_file() and (parent / "launch.json").is_file():
            raise OutputError(
                "OUTPUT_IN_BUNDLE",
                f"{folder} lies inside the bundle {parent}, which is replaced as a whole",
                fix="pass an --output outside of it",
                numbers={"path": str(folder), "bundle": str(parent)},
            )


def _may_replace(folder: Path, rendered: RenderedBundle, replace_edited: bool) -> bool:
    """False where the folder already holds exactly this bundle; raises where replacing it would lose something."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise OutputError(
            "OUTPUT_NOT_A_FOLDER",
            f"{folder} exists and is not a folder",
            fix="pass another --output, or move the file away",
            numbers={"path": str(folder)},
        )
    if not folder.exists():
        return True
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    present = _present(folder)
    if not present:
        return True
    if MANIFEST not in present:
        raise OutputError(
            "OUTPUT_NOT_A_BUNDLE",
            f"{folder} holds files and is not a bundle",
            fix="pass another --output",
            numbers={"path": str(folder), "files": sorted(present)[:8]},
        )
    try:
        old = read_bundle(folder).files
    except BundleError as error:
        if not replace_edited:
            raise OutputError(
                "OUTPUT_EDITED",
                f"{folder} would be overwritten, but it is not as it was generated: {error.message}",
                fix="move your copy away, or pass another --output",
                numbers=error.numbers,
            ) from error
        old = {}
    foreign = sorted(present - set(old) - set(rendered.files))
    if foreign and not (replace_edited and not old):
        raise OutputError(
            "OUTPUT_FOREIGN_FILES",
            f"{folder} holds files that are not of the bundle: {', '.join(foreign[:4])}",
            fix="move them away, or pass another --output",
            numbers={"path": str(folder), "files": foreign[:8]},
        )
    return dict(old) != dict(rendered.files)


def _present(folder: Path) -> set[str]:
    """Paths of the files in a bundle's folder, without what later steps derived."""
    found = set()
    for place in folder.rglob("*"):
        parts = place.relative_to(folder).parts
        if _DERIVED.fullmatch(parts[0]) or any(part in _DISPOSABLE for part in parts):
            continue
        if place.is_symlink() or not place.is_dir():
            found.add("/".join(parts))
    return found


def _staging(parent: Path, name: str) -> Path:
    """A fresh folder beside the target, for a caller that holds the lock."""
    staged = Path(tempfile.mkdtemp(prefix=f".{name}.new-", dir=parent))
    staged.chmod(0o755)
    return staged


def _clear_stale(parent: Path, name: str) -> None:
    """Remove staging folders of writers that died: the caller holds the lock, so none of them is alive."""
    for entry in list(os.scandir(parent)):
        if entry.name.startswith(f".{name}.new-"):
            shutil.rmtree(entry.path, ignore_errors=True)


def _write(path: Path, content: bytes) -> None:
    """A file whose bytes are on disk before anything is renamed to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _swap(staged: Path, target: Path) -> None:
    """Put `staged` in the place of `target`; the old content, if any, ends up at `staged` or is gone."""
    if not target.exists():
        staged.rename(target)
    elif not _exchange(staged, target):
        # No atomic exchange on this file system: between the two renames the old content waits under a name that
        # `_recover` knows, so that a crash there is undone by the next reader or writer.
        aside = _aside(target)
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)
        staged.rename(target)
        shutil.rmtree(aside, ignore_errors=True)
    _sync_folder(target.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders atomically (renameat2). False where the kernel or the file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    result = renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    if result == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV):
        return False
    raise OSError(code, os.strerror(code), str(second))


def _aside(target: Path) -> Path:
    return target.parent / f".{target.name}.old"


def _recover(folder: Path) -> None:
    """Undo a write that died between its two renames, and clear what one left that died after them. The caller holds
    the lock, so that no live write is between its renames."""
    aside = _aside(folder)
    if aside.is_dir():
        if folder.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time among the bundles of a folder. The lock is on the folder itself: it leaves no file, and it
    ends with its process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _to_the_end() -> Iterator[None]:
    """Ctrl-C and a request to end wait until what is inside has been done: they would leave a staging folder when they
    strike while one is made or removed. It takes a fraction of a second."""
    if threading.current_thread() is not threading.main_thread():  # signals strike the main thread alone
        yield
        return
    came: list[int] = []
    handlers = {each: signal.signal(each, lambda number, _: came.append(number)) for each in _ENDING}
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _output_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(
            "OUTPUT_NOT_A_FOLDER",
            f"{folder} cannot be a folder: {error.filename or folder} is a file",
            fix="pass another --output",
            numbers={"path": str(folder)},
        ) from error
    except OSError as error:
        raise OutputError(
            "OUTPUT_NOT_WRITABLE",
            f"{folder} cannot be written: {error.strerror or error}",
            fix="check the permissions and the free space, or pass another --output",
            numbers={"path": str(folder), "errno": error.errno},
        ) from error


# --- what later steps put beside the files ------------------------------------------------------------------------


def write_derived(bundle: Bundle, name: str, text: str) -> Path:
    """Write `text` to the derived file `name` of the bundle (validation.json, report.md), whole or not at all.

    Raises OutputError: OUTPUT_NOT_WRITABLE, OUTPUT_CHANGED where the folder no longer holds this bundle.
    """
    if not re.fullmatch(_DERIVED_FILE, name):
        raise ValueError(f"{name} is not a derived file")
    path = bundle.folder / name
    with _output_errors(path), _locked(bundle.folder.parent), _to_the_end():
        _check_still_there(bundle)
        staged = bundle.folder / f".{name}.new"
        try:
            _write(staged, text.encode())
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)
    return path


def _check_still_there(bundle: Bundle) -> None:
    """For a caller that holds the lock: what is known of a bundle must not be put beside another one."""
    try:
        found = _sha256((bundle.folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        found = ""
    if found != bundle.manifest_hash:
        raise changed_meanwhile(bundle.folder)


def changed_meanwhile(folder: Path) -> OutputError:
    """The error for a folder that another process has put its own bundle into."""
    return OutputError(
        "OUTPUT_CHANGED",
        f"{folder} was replaced meanwhile: it holds another bundle than this command's",
        fix="let one process at a time generate this bundle, or pass another --output, and run the command again",
        numbers={"path": str(folder)},
    )


# --- building ----------------------------------------------------------------------------------------------------


def units(bundle: Bundle | RenderedBundle) -> list[BuildUnit]:
    """Every (kernel, target) of the launch file as a translation unit, in the order of launch.json."""
    return units_of(bundle.files, bundle.launch)


def units_of(files: Mapping[str, str], launch: Launch) -> list[BuildUnit]:
    """The same of device files that are in no bundle."""
    headers = headers_of(files)
    included = {
        source: include_closure(files[source], headers.__getitem__)
        for source in {kernel.source for kernel in launch.kernels}
    }
    return [
        BuildUnit(
            kernel_id=kernel.id,
            target=target,
            name=kernel.source,
            source=files[kernel.source],
            headers=included[kernel.source],
            defines=kernel.defines,
        )
        for kernel in launch.kernels
        for target in kernel.images
    ]


def write_build(bundle: Bundle, compiled: Mapping[tuple[str, str], CompiledImage]) -> Path:
    """Write `build/`: the cubin and the PTX of every (kernel id, target), and build.json. Replaced as a whole.

    Raises BundleError BUILD_INCOMPLETE where an image of launch.json is not among `compiled`; OutputError, also
    OUTPUT_CHANGED where the folder no longer holds this bundle.
    """
    rows: list[BuildRow] = []
    folder = bundle.folder / BUILD
    with _output_errors(folder), _locked(bundle.folder.parent), _to_the_end():
        _check_still_there(bundle)
        _clear_stale(bundle.folder.parent, BUILD)
        staged = _staging(bundle.folder.parent, BUILD)
        try:
            for kernel in bundle.launch.kernels:
                for target, path in kernel.images.items():
                    image = compiled.get((kernel.id, target))
                    if image is None:
                        raise BundleError(
                            "BUILD_INCOMPLETE",
                            f"{bundle.name}: the image {path} was not compiled",
                            fix="build the bundle again",
                            numbers={"kernel": kernel.id, "target": target},
                        )
                    cubin = staged / check_path(path).relative_to(BUILD)
                    _write(cubin, image.cubin)
                    _write(cubin.with_suffix(".ptx"), image.ptx.encode())
                    rows.append(_build_row(kernel.id, target, path, image))
            document = BuildFile(schema_version=1, manifest_hash=bundle.manifest_hash, images=rows)
            _write(staged / "build.json", canonical_json(document).encode())
            _swap(staged, folder)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    return folder


def _build_row(kernel_id: str, target: str, path: str, image: CompiledImage) -> BuildRow:
    return BuildRow(
        kernel_id=kernel_id,
        target=target,
        image=path,
        kernel_hash=image.kernel_hash,
        compiler=image.compiler,
        registers=image.registers,
        static_smem_bytes=image.static_smem_bytes,
        spill_bytes=image.spill_bytes,
        stack_bytes=image.stack_bytes,
        ptx_sha256=image.ptx_sha256,
        cubin_sha256=image.cubin_sha256,
        sass=dict(image.sass),
    )


def read_build(bundle: Bundle) -> list[dict[str, Any]] | None:
    """The rows of build.json, or None where the bundle is not built, or was built from another manifest.

    There is one row for each image of launch.json, and its cubin and its PTX are there with the hashes that it gives,
    else BundleError BUILD_EDITED or BUNDLE_INCOMPLETE.
    """
    try:
        document = json.loads(_read_inside(bundle.folder, f"{BUILD}/build.json"))
    except BundleError as error:
        if error.code == "BUNDLE_INCOMPLETE":
            return None
        raise
    except (ValueError, RecursionError) as error:
        raise bad_build(bundle, "build.json") from error
    if not isinstance(document, dict) or document.get("manifest_hash") != bundle.manifest_hash:
        return None
    try:
        rows = BuildFile.model_validate(document).images
    except ValidationError as error:
        raise bad_build(bundle, "build.json") from error
    wanted = [(kernel.id, target, path) for kernel in bundle.launch.kernels for target, path in kernel.images.items()]
    if [(row.kernel_id, row.target, row.image) for row in rows] != wanted:
        raise bad_build(bundle, "build.json")
    for row in rows:
        for path, expected in ((row.image, row.cubin_sha256), (_ptx_of(row.image), row.ptx_sha256)):
            if _sha256(_read_inside(bundle.folder, path)) != expected:
                raise bad_build(bundle, path)
    return [row.model_dump() for row in rows]


def _ptx_of(image: str) -> str:
    return image.removesuffix(".cubin") + ".ptx"


def bad_build(bundle: Bundle, path: str) -> BundleError:
    """The error for a file of build/ that is not what the bundle's sources give."""
    return BundleError(
        "BUILD_EDITED",
        f"{bundle.folder / BUILD}: {path} is not what was built",
        fix=f"delete {bundle.folder / BUILD}: advisor validate builds it again",
        numbers={"file": path},
    )
