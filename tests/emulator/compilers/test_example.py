"""The walks in docs/emulator.md: compile a kernel of Triton or Gluon without a GPU, emulate it, break it, read why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.emulator.compilers.harness import needs_triton

ROOT = Path(__file__).parents[3]

pytestmark = needs_triton


def test_the_documented_walk(tmp_path: Path) -> None:
    def do(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)

    emulate = ("-m", "advisor", "emulate", "matmul.ptx", "--launch", "matmul.json")
    compiled = do(str(ROOT / "examples" / "emulate" / "triton_matmul.py"))
    assert compiled.returncode == 0, compiled.stderr
    right = do(*emulate)
    assert right.returncode == 0, right.stderr
    assert "ok: d = a @ b.T: 16384 elements" in right.stdout
    ptx = tmp_path / "matmul.ptx"
    assert ptx.read_text().count("fence.proxy.async.shared::cta;") == 1
    ptx.write_text(ptx.read_text().replace("fence.proxy.async.shared::cta;", ""))
    wrong = do(*emulate)
    assert wrong.returncode == 1
    assert "EMU_DATA_RACE" in wrong.stdout + wrong.stderr
    assert "triton_matmul.py:" in wrong.stdout + wrong.stderr


def test_the_documented_walk_of_a_kernel_that_claims_its_work(tmp_path: Path) -> None:
    def do(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)

    example = str(ROOT / "examples" / "emulate" / "gluon_clc.py")
    emulate = ("-m", "advisor", "emulate", "scaled.ptx", "--launch", "scaled.json", "--busy-sms", "144")
    compiled = do(example)
    assert compiled.returncode == 0, compiled.stderr
    right = do(*emulate)
    assert right.returncode == 0, right.stderr
    assert "requests: 32 granted, 8 declined" in right.stdout
    declined = do(*emulate, "--clc", "decline:2")
    assert declined.returncode == 0, declined.stderr
    assert "2 with 1, 19 with 2; 8 clusters started at the launch" in declined.stdout
    assert do(example, "--sentinel").returncode == 0
    wrong = do(*emulate)
    assert wrong.returncode == 1
    assert "EMU_CLC_FAILED_COORDINATE" in wrong.stdout
    assert "gluon_clc.py:33, `bra`" in wrong.stdout
    assert "gluon_clc.py:40, `clusterlaunchcontrol.query_cancel.get_first_ctaid::x" in wrong.stdout
