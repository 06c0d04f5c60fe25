"""What a user installs: the wheel carries code, templates, profiles and pages; the files that a newcomer types work."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    result = subprocess.run(
        [*pip, "-w", str(folder), str(ROOT)], capture_output=True, text=True, timeout=280, cwd=folder
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_carries_every_file_that_the_code_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "advisor").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    templates = {
        f"advisor/_templates/{path.relative_to(ROOT / 'templates')}"
        for path in (ROOT / "templates").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in package if name.endswith((".toml", ".py", ".typed", ".csv"))} <= names
    assert templates
    assert templates <= names
    assert not [name for name in names if name.startswith(("tests/", "generated/"))]


@pytest.mark.slow
def test_the_installed_wheel_plans_and_renders_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tiny.yaml").write_text("kind: gemm\nm: 64\nn: 64\nk: 64\ntarget: h200\n")
    code = (
        "import advisor, sys; assert 'site' in advisor.__file__, advisor.__file__; from advisor.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "generate", "tiny.yaml"]
    environment = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    result = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    assert (elsewhere / "generated" / "tiny" / "manifest.json").is_file()


def test_every_dependency_has_a_pinned_version() -> None:
    pinned = {
        re.split(r"==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    names = {re.split(r"[<>=\[ ]", each)[0].lower().replace("_", "-") for each in wanted}
    assert names - pinned == set()


def test_constraints_name_versions_and_no_host() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9A-Za-z.]+", each) for each in lines if not each.startswith("#"))


def test_version_is_the_same_everywhere() -> None:
    from advisor import __version__

    assert __version__ == PROJECT["version"]
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs/architecture.md"])
def test_the_files_that_a_newcomer_looks_for_are_there(name: str) -> None:
    assert len((ROOT / name).read_text()) > 200


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
            if not target.startswith("http") and not (path.parent / target).exists():
                broken.append(f"{path.name}: {target}")
    assert broken == []


def test_the_readme_names_every_example_and_every_command() -> None:
    text = (ROOT / "README.md").read_text()
    assert [path.name for path in (ROOT / "examples").glob("*.yaml") if f"(examples/{path.name})" not in text] == []
    source = "".join(path.read_text() for path in sorted((ROOT / "advisor" / "cli").glob("*.py")))
    commands = re.findall(r'^@command\("([a-z]+)"\)', source, re.MULTILINE)
    assert len(commands) >= 11
    assert [name for name in commands if f"`advisor {name}" not in text] == []


def test_every_make_target_of_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()))
    assert named
    assert named - targets == set()


def test_the_ci_script_runs_the_three_shares() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "check test slow" in script
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_python_dash_m_is_the_command(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-m", "advisor", "--version"], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, f"advisor {PROJECT['version']}\n")
