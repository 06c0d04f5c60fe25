"""`advisor accept` and `advisor report --accepted` as commands: exit statuses, documents, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.bundle import read_bundle
from advisor.records.acceptance import Acceptance, AcceptedKernel, launch_hash
from advisor.records.evidence import Chip
from advisor.workflow import built_rows

Advisor = Callable[..., Any]


@pytest.fixture
def bundle(advisor: Advisor, problem: Callable[[str], str]) -> str:
    """A folder that generate wrote, with its images."""
    result = advisor("generate", problem("name: small\n"), "--quiet")
    assert result.status == 0, result.stderr
    return "generated/small"


@pytest.mark.slow
def test_without_a_gpu_it_says_so_and_exits_3(advisor: Advisor, bundle: str, no_gpu: None) -> None:
    result = advisor("accept", bundle, "--json")
    assert result.status == 3
    assert result.document["error"]["code"] == "NO_DRIVER"
    assert not list(Path().glob("*.accepted.json"))
    plain = advisor("accept", bundle)
    assert plain.status == 3
    assert plain.stdout == ""
    assert "[NO_DRIVER]" in plain.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--steps", "pair"], "ACCEPT_STEP_UNKNOWN"),
        (["--device", "emulator"], "DEVICE_UNKNOWN"),
        (["--timeout", "0.5"], "COMMAND_LINE"),
    ],
)
def test_a_wrong_option_exits_2(advisor: Advisor, bundle: str, no_gpu: None, options: list[str], code: str) -> None:
    result = advisor("accept", bundle, "--json", *options)
    assert result.status == 2
    assert result.document["error"]["code"] == code


def test_a_folder_that_is_no_bundle_exits_2(advisor: Advisor, no_gpu: None) -> None:
    result = advisor("accept", "examples", "--json")
    assert (result.status, result.document["error"]["code"]) == (2, "BUNDLE_MISSING")


def _accepted(bundle: str, **changes: Any) -> Acceptance:
    """A result in which no kernel ran."""
    read = read_bundle(bundle)
    kernels = [
        AcceptedKernel(
            kernel_id=row["kernel_id"],
            image=row["target"],
            kernel_hash=row["kernel_hash"],
            cubin_sha256=row["cubin_sha256"],
            launch_sha256=launch_hash(read.launch.kernel(row["kernel_id"])),
            schedule="static",
            cluster=(1, 1, 1),
            in_bundle=True,
            result="not_run",
        )
        for row in built_rows(read)
    ]
    chip = Chip(name="NVIDIA B200", compute_capability=(10, 0), uuid_hash="0" * 16, driver="580.00")
    found = Acceptance(
        generator="x", bundle="small", manifest_hash=read.manifest_hash, chip=chip, sms=148, cuda="13.0", steps=[],
        kernels=kernels, verdict="not_run",
    )  # fmt: skip
    return found.model_copy(update=changes).sealed()


@pytest.mark.slow
def test_a_result_in_which_no_kernel_ran_raises_nothing_and_is_shown(advisor: Advisor, bundle: str) -> None:
    found = _accepted(bundle)
    Path("r.json").write_text(found.model_dump_json())
    document = advisor("report", bundle, "--accepted", "r.json", "--json").document
    assert document["evidence_rung"] == "compiled"
    assert "Accepted on NVIDIA B200" in document["markdown"]
    assert "ran on" not in document["markdown"].split("## 2.")[0]
    for kind in ("terminal", "md", "html"):
        assert "Accepted on" in advisor("report", bundle, "--accepted", "r.json", "--format", kind).stdout
    refused = {
        "ACCEPTED_EDITED": found.model_dump_json().replace("B200", "B300"),
        "ACCEPTED_EMPTY": _accepted(bundle, kernels=[]).model_dump_json(),
        "ACCEPTED_OTHER_BUNDLE": _accepted(bundle, manifest_hash="0" * 64).model_dump_json(),
    }
    for code, text in refused.items():
        Path("r.json").write_text(text)
        result = advisor("report", bundle, "--accepted", "r.json", "--json")
        assert (result.status, result.document["error"]["code"]) == (2, code)
    missing = advisor("report", bundle, "--accepted", "none.json", "--json")
    assert (missing.status, missing.document["error"]["code"]) == (2, "ACCEPTED_UNREADABLE")


@pytest.mark.parametrize("name", ["accepted", "runtime"])
def test_the_files_have_a_schema(advisor: Advisor, name: str) -> None:
    schema = json.loads(advisor("schema", name).stdout)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
