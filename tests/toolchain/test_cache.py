"""The cache: equal units once, damage found, concurrent and killed writers harmless, no folder no problem."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.toolchain import Cache, Unit, build, compile_cuda, default_root
from advisor.toolchain.cache import ABANDONED_AFTER_S, DamagedEntry

REPOSITORY = Path(__file__).parents[2]
UNIT = Unit("k.cu", 'extern "C" __global__ void k(int* p) { p[0] = VALUE; }', {}, "sm_90a", {"VALUE": 1})


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "images")


def entries(cache: Cache) -> list[Path]:
    return sorted(path.parent for path in cache.root.glob("*/*/entry.json") if path.parts[-3] != "staging")


def leftovers(cache: Cache) -> list[Path]:
    return list((cache.root / "staging").iterdir())


def test_the_second_build_of_a_unit_comes_from_the_cache_and_is_equal(cache):
    first, second = compile_cuda(UNIT, cache=cache), compile_cuda(UNIT, cache=cache)
    assert (first.cached, second.cached) == (False, True)
    assert replace(second, cached=False) == first
    assert leftovers(cache) == []


def test_a_cached_build_takes_no_compilation(cache, monkeypatch):
    compile_cuda(UNIT, cache=cache)
    monkeypatch.setattr(build, "compile_image", lambda unit: pytest.fail("compiled again"))
    start = time.perf_counter()
    assert all(compile_cuda(UNIT, cache=cache).cached for _ in range(8))
    assert time.perf_counter() - start < 0.2


@pytest.mark.parametrize(
    "change",
    [
        {"source": UNIT.source + "\n"},
        {"name": "other.cu"},
        {"headers": {"unused.cuh": ""}},
        {"target": "sm_90"},
        {"defines": {"VALUE": 2}},
        {"flags": ("--fmad=false",)},
    ],
)
def test_whatever_the_compiler_sees_is_in_the_key(cache, change):
    compile_cuda(UNIT, cache=cache)
    assert not compile_cuda(replace(UNIT, **change), cache=cache).cached


def test_another_compiler_version_is_another_entry(cache, monkeypatch):
    compile_cuda(UNIT, cache=cache)
    monkeypatch.setattr(build, "compiler_version", lambda: "nvrtc 99.0.1")
    assert not compile_cuda(UNIT, cache=cache).cached


@pytest.mark.parametrize("part", ["kernel.ptx", "kernel.cubin", "entry.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_entry_is_rebuilt_and_said_so(cache, part, damage):
    first = compile_cuda(UNIT, cache=cache)
    file = entries(cache)[0] / part
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "truncate":
        file.write_bytes(data[: len(data) // 2])
    else:
        file.unlink()
    again = compile_cuda(UNIT, cache=cache)
    assert not again.cached
    assert [finding.code for finding in again.findings] == ["CACHE_ENTRY_DAMAGED"]
    assert again.cubin == first.cubin
    assert compile_cuda(UNIT, cache=cache).cached


def test_an_entry_moved_to_another_key_is_damaged(cache):
    compile_cuda(UNIT, cache=cache)
    folder = entries(cache)[0]
    other = cache.folder("ab" + folder.name[2:])
    other.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, other)
    with pytest.raises(DamagedEntry):
        cache.load(other.name)


def test_a_cache_that_cannot_be_written_is_a_warning_and_not_a_failure(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    compiled = compile_cuda(UNIT, cache=Cache(blocked / "images"))
    assert compiled.cubin.startswith(b"\x7fELF")
    assert [(finding.code, finding.severity) for finding in compiled.findings] == [("CACHE_UNWRITABLE", "warning")]
    assert str(blocked) in compiled.findings[0].message


def test_a_read_only_cache_is_a_warning(cache, monkeypatch):
    def read_only(self, *_args, **_more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", read_only)
    compiled = compile_cuda(UNIT, cache=cache)
    assert [finding.code for finding in compiled.findings] == ["CACHE_UNWRITABLE"]


def test_no_home_means_no_cache():
    assert default_root({}) is None
    assert default_root({"HOME": "/home/user"}) == Path("/home/user/.cache/cluster-advisor/images")
    assert default_root({"HOME": "/home/user", "XDG_CACHE_HOME": "/x"}) == Path("/x/cluster-advisor/images")
    assert default_root({"ADVISOR_CACHE_DIR": "/c", "XDG_CACHE_HOME": "/x"}) == Path("/c/images")


def test_an_abandoned_staging_folder_is_swept_and_a_fresh_one_is_left_alone(cache):
    old, fresh = cache.root / "staging" / "1-old", cache.root / "staging" / "2-fresh"
    for each in (old, fresh):
        each.mkdir(parents=True)
        (each / "kernel.ptx").write_text("half")
    past = time.time() - 2 * ABANDONED_AFTER_S
    os.utime(old, (past, past))
    compile_cuda(UNIT, cache=cache)
    assert leftovers(cache) == [fresh]


WRITER = """
import sys
from pathlib import Path
from advisor.toolchain import Cache, Unit, compile_cuda
import advisor.toolchain.cache as store

unit = Unit("k.cu", 'extern "C" __global__ void k(int* p) { p[0] = VALUE; }', {}, "sm_90a", {"VALUE": 1})
cache = Cache(Path(sys.argv[1]))
if sys.argv[2] == "die":  # after the PTX and half of the cubin
    import os, signal
    write = Path.write_bytes
    def write_half(self, data):
        if self.name != "kernel.cubin":
            return write(self, data)
        write(self, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    Path.write_bytes = write_half
else:
    print("ready", flush=True)
    sys.stdin.readline()  # all writers start together
print(compile_cuda(unit, cache=cache).cubin_sha256, flush=True)
"""


def writer(cache: Cache, how: str) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", WRITER, str(cache.root), how], cwd=REPOSITORY, **pipes)


def test_a_writer_killed_half_way_leaves_no_entry(cache):
    with writer(cache, "die") as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
    assert entries(cache) == []
    assert len(leftovers(cache)) == 1
    after = compile_cuda(UNIT, cache=cache)
    assert not after.cached
    assert after.findings == ()
    assert compile_cuda(UNIT, cache=cache).cached


def test_processes_that_compile_one_unit_at_once_agree_and_leave_one_entry(cache):
    processes = [writer(cache, "race") for _ in range(4)]
    for each in processes:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    hashes = {each.communicate(timeout=60)[0].strip() for each in processes}
    assert [each.returncode for each in processes] == [0, 0, 0, 0]
    assert len(hashes) == 1
    assert len(entries(cache)) == 1
    assert leftovers(cache) == []
    assert compile_cuda(UNIT, cache=cache).cubin_sha256 in hashes
