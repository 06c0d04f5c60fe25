"""The walk in docs/emulator.md: compile a Triton kernel with no GPU, emulate it, break it, see it named."""

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
