"""What runtime.json switches off is not run by a validation on the GPU either, with the reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.bundle import read_build, write_runtime_file
from advisor.errors import BundleError
from advisor.records.runtime_file import RuntimeFile
from advisor.validation.assemble import bundle_rows
from advisor.validation.driver import Task
from advisor.validation.gpu import KernelFacts
from advisor.validation.on_gpu import OnGpu


def validation(site: Any, folder: Path) -> OnGpu:
    task = Task(site.bundle, read_build(site.bundle) or [], folder, lambda _: [])
    device: Any = SimpleNamespace(info=site.target.info, profile=lambda: site.target.profile)
    found = OnGpu(task, device)
    found.facts = {kernel.id: KernelFacts(True, "", 4, 32, 0) for kernel in site.bundle.launch.kernels}
    return found


def test_clc_that_is_off_is_an_obstacle_and_nothing_else_is(make_site: Any, tmp_path: Path) -> None:
    site = make_site("b200")
    rows = {row.run.id: row for row in bundle_rows(site.bundle)}
    on = validation(site, tmp_path)
    assert on.runs(rows["sm100_clc_2x1x1"])
    write_runtime_file(site.bundle, RuntimeFile(clc="off", reason="it hung"))
    off = validation(site, tmp_path)
    assert off._obstacle(rows["sm100_clc_2x1x1"]) == "switched off in runtime.json: it hung"
    assert not off.runs(rows["sm100_clc_2x1x1"])
    assert all(off.runs(row) for name, row in rows.items() if "clc" not in name)
    (site.bundle.folder / "runtime.json").write_text("{}")
    with pytest.raises(BundleError, match="does not say what is switched off"):
        validation(site, tmp_path)
