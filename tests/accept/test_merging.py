"""What was accepted elsewhere counts for exactly the kernels that ran, and for no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.accept import report_accepted
from advisor.bundle import read_build
from advisor.errors import InputError
from advisor.records.acceptance import Acceptance, AcceptedKernel, AcceptedStep, launch_hash
from advisor.records.base import canonical_json
from advisor.records.evidence import Chip, Evidence
from advisor.report import accepted_blocks, reached, render_report
from advisor.report.markdown import to_markdown
from advisor.validation.accepted import read_accepted, with_accepted
from advisor.workflow import report_bundle

B200 = Chip(name="NVIDIA B200", compute_capability=(10, 0), uuid_hash="b" * 16, driver="580.00")
RAN = "sm100_clc_2x1x1"


@pytest.fixture(scope="module")
def site(make_site: Any) -> Any:
    return make_site("b200")


def accepted(site: Any, *, chip: Chip = B200, results: dict[str, str] | None = None, **changes: Any) -> Acceptance:
    """A result in which the images for 10.0 of some kernels ran; `changes` are made to every kernel."""
    ran = {RAN: "pass"} if results is None else results
    kernels = [
        AcceptedKernel(
            **{
                "kernel_id": row["kernel_id"],
                "image": row["target"],
                "kernel_hash": row["kernel_hash"],
                "cubin_sha256": row["cubin_sha256"],
                "launch_sha256": launch_hash(site.bundle.launch.kernel(row["kernel_id"])),
                "schedule": "clc",
                "cluster": (2, 1, 1),
                "in_bundle": True,
                "result": ran.get(row["kernel_id"], "not_run") if row["target"] == "sm_100a" else "not_run",
                "launches": 1266,
                **changes,
            }
        )
        for row in read_build(site.bundle) or []
    ]
    return Acceptance(
        generator="cluster-advisor",
        bundle="small",
        manifest_hash=site.bundle.manifest_hash,
        chip=chip,
        sms=148,
        cuda="13.0",
        steps=[
            AcceptedStep(name="capability", title="what it is", verdict="pass"),
            AcceptedStep(name="clc_one_wave", title="CLC", verdict="not_applicable", reason="needs Blackwell"),
        ],
        kernels=kernels,
        verdict="pass",
    ).sealed()


def write(path: Path, found: Acceptance) -> Path:
    path.write_text(canonical_json(found))
    return path


def merged(site: Any, *files: Acceptance, evidence: Evidence | None = None) -> Evidence:
    return with_accepted(site.bundle, read_build(site.bundle) or [], evidence, files)


def ran(evidence: Evidence, kernel_id: str, image: str) -> tuple[str, dict[str, Any]]:
    row = next(each for each in evidence.gates if (each.kernel_id, each.image) == (kernel_id, image))
    gate = next(each for each in row.gates if each.gate == "ran")
    return gate.result, gate.facts


def test_exactly_the_kernels_that_ran_are_raised(site: Any) -> None:
    evidence = merged(site, accepted(site))
    result, facts = ran(evidence, RAN, "sm_100a")
    assert result == "pass"
    assert (facts["chip"], facts["driver"]) == ("NVIDIA B200", "580.00")
    assert ran(evidence, RAN, "sm_100f")[0] == "not_run"
    assert ran(evidence, "sm100_static_2x1x1", "sm_100a")[0] == "not_run"
    assert reached(RAN, evidence) == "ran"
    assert reached("sm100_static_2x1x1", evidence) == "compiled"
    assert reached("portable_one_tile", evidence) == "compiled"
    assert evidence.verdict == "pass"


def test_a_kernel_that_failed_there_failed(site: Any) -> None:
    evidence = merged(site, accepted(site, results={RAN: "fail"}))
    assert ran(evidence, RAN, "sm_100a")[0] == "fail"
    assert reached(RAN, evidence) == "compiled"
    assert evidence.verdict == "fail"


def test_a_failure_of_this_machine_stays(site: Any) -> None:
    failed = merged(site, accepted(site, results={RAN: "fail"}))
    evidence = merged(site, accepted(site), evidence=failed)
    assert ran(evidence, RAN, "sm_100a")[0] == "fail"


def test_the_report_names_the_chip_and_shows_the_steps(site: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", accepted(site))
    plan, evidence, files = report_accepted(site.bundle.folder, [path])
    text = render_report(plan, evidence, files)
    assert "ran on NVIDIA B200, driver 580.00" in text
    assert "| clc_one_wave | not applicable |" in text
    assert "clc_one_wave: needs Blackwell" in text
    bare = render_report(*report_bundle(site.bundle.folder))
    assert "B200, driver" not in bare
    assert "NVIDIA B200" in to_markdown(accepted_blocks(files[0]))


def test_a_file_of_another_bundle_is_refused_though_its_kernels_are_the_same(site: Any, tmp_path: Path) -> None:
    """One kernel serves every size: the times of another problem's bundle are not this one's."""
    other = accepted(site).model_copy(update={"bundle": "other", "manifest_hash": "0" * 64}).sealed()
    with pytest.raises(InputError, match="the bundle other with manifest 000000000000; this is small") as caught:
        report_accepted(site.bundle.folder, [write(tmp_path / "r.json", other)])
    assert caught.value.code == "ACCEPTED_OTHER_BUNDLE"


def test_a_file_that_names_no_kernel_is_refused(site: Any, tmp_path: Path) -> None:
    empty = accepted(site).model_copy(update={"kernels": []}).sealed()
    with pytest.raises(InputError, match="names no kernel") as caught:
        report_accepted(site.bundle.folder, [write(tmp_path / "r.json", empty)])
    assert caught.value.code == "ACCEPTED_EMPTY"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"kernel_hash": "0" * 64}, "kernel hash 000000000000"),
        ({"cubin_sha256": "1" * 64}, "cubin 111111111111"),
        ({"launch_sha256": "2" * 64}, "launch 222222222222"),
    ],
)
def test_a_kernel_of_another_hash_is_refused_by_name(site: Any, changes: dict[str, str], what: str) -> None:
    with pytest.raises(InputError, match=f"{RAN} for sm_100a .{what}") as caught:
        merged(site, accepted(site, **changes))
    assert caught.value.code == "ACCEPTED_OTHER_KERNEL"
    assert "NVIDIA B200" in caught.value.message


def test_a_kernel_that_the_bundle_has_not_is_refused_by_name(site: Any) -> None:
    with pytest.raises(InputError, match=r"sm200_clc for .* .not in this bundle"):
        merged(site, accepted(site, kernel_id="sm200_clc"))


def test_what_was_built_for_the_acceptance_alone_is_none_of_the_bundles(site: Any) -> None:
    evidence = merged(site, accepted(site, in_bundle=False, kernel_hash="0" * 64))
    assert ran(evidence, RAN, "sm_100a")[0] == "not_run"
    assert evidence.verdict == "not_run"


def test_the_same_gpu_twice_is_refused_and_another_one_is_not(site: Any) -> None:
    with pytest.raises(InputError, match=f"two files have {RAN} for sm_100a on the same NVIDIA B200") as caught:
        merged(site, accepted(site), accepted(site))
    assert caught.value.code == "ACCEPTED_DUPLICATE"
    other = B200.model_copy(update={"uuid_hash": "c" * 16})
    evidence = merged(site, accepted(site), accepted(site, chip=other, results={RAN: "fail"}))
    assert ran(evidence, RAN, "sm_100a")[0] == "fail"


def test_an_edited_file_is_refused(site: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", accepted(site))
    assert read_accepted(path) == accepted(site)
    document = json.loads(path.read_text())
    next(k for k in document["kernels"] if k["kernel_id"] == "sm100_static_2x1x1")["result"] = "pass"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="not what advisor accept wrote") as caught:
        read_accepted(path)
    assert caught.value.code == "ACCEPTED_EDITED"


def test_another_layout_of_the_same_content_is_no_edit(site: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", accepted(site))
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert read_accepted(path) == accepted(site)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"schema_version": 2}', b"null"])
def test_what_is_no_result_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_accepted(path)
    assert (caught.value.code, caught.value.exit_status) == ("ACCEPTED_UNREADABLE", 2)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError) as caught:
            read_accepted(path)
        assert caught.value.code == "ACCEPTED_UNREADABLE"


def test_another_launch_of_the_same_code_has_another_hash(site: Any) -> None:
    kernel = site.bundle.launch.kernel(RAN)
    changed = kernel.model_copy(update={"grid_blocks": ("1", *kernel.grid_blocks[1:])})
    assert launch_hash(changed) != launch_hash(kernel)
