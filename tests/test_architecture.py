"""The shape of the house: which way imports run, and what only one room may do."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "advisor"
TEMPLATES = ROOT / "templates"
GENERATED = ROOT / "generated"

# Top to bottom: a room imports from rows below its own. Rooms of one row do not know each other.
ROWS = (
    ("__main__",),
    ("cli",),
    ("measure", "accept"),
    ("workflow", "doctor"),
    ("report",),
    ("bench",),
    ("validation",),
    ("runtime", "toolchain", "emulator"),
    ("codegen",),
    ("bundle",),
    ("planner",),
    ("kinds",),
    ("simulation",),
    ("records",),
    ("machine",),
    ("problem",),
    ("errors",),
    ("__init__",),
)
RANK = {room: rank for rank, row in enumerate(ROWS) for room in row}
SOURCES = sorted(PACKAGE.rglob("*.py"))
A_KIND = re.compile(r"gemm|row_?reduce|softmax|layernorm|rmsnorm|mma_ctas|split_k|swap_ab|row_threads", re.IGNORECASE)


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported_modules(path: Path) -> Iterator[tuple[str, int]]:
    """Absolute names of everything a file imports, lazily too; `from advisor import x` counts as advisor.x."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide the direction"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "advisor" else [module]
            yield from ((name, node.lineno) for name in names)


def imported_rooms(path: Path) -> Iterator[tuple[str, int]]:
    for name, line in imported_modules(path):
        parts = name.split(".")
        if parts[0] == "advisor":
            room = parts[1] if len(parts) > 1 and parts[1] in RANK else "__init__"
            yield room, line


def test_every_room_has_its_place() -> None:
    assert {room_of(path) for path in SOURCES} == set(RANK)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way_only(path: Path) -> None:
    own = room_of(path)
    against = [
        f"{path.relative_to(ROOT)}:{line} imports {room}"
        for room, line in imported_rooms(path)
        if room != own and RANK[room] <= RANK[own]
    ]
    assert against == []


def test_the_import_walk_sees_lazy_and_typing_imports(tmp_path: Path) -> None:
    text = "def f():\n    from advisor.runtime import x\n    import advisor.cli\n    from advisor import workflow\n"
    (tmp_path / "sample.py").write_text(text)
    assert {room for room, _ in imported_rooms(tmp_path / "sample.py")} == {"runtime", "cli", "workflow"}


def test_the_planner_touches_no_gpu_no_file_and_no_clock() -> None:
    forbidden = {
        "cuda",
        "os",
        "io",
        "pathlib",
        "shutil",
        "tempfile",
        "subprocess",
        "time",
        "datetime",
        "random",
        "socket",
    }
    offences = []
    for path in sorted((PACKAGE / "planner").rglob("*.py")):
        offences += [f"{path.name}:{n} {name}" for name, n in imported_modules(path) if name.split(".")[0] in forbidden]
        calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        offences += [
            f"{path.name}:{c.lineno} open()" for c in calls if isinstance(c.func, ast.Name) and c.func.id == "open"
        ]
    assert offences == []


def test_only_the_runtime_and_the_compiler_know_cuda() -> None:
    rooms = {room_of(path) for path in SOURCES for name, _ in imported_modules(path) if name.split(".")[0] == "cuda"}
    assert rooms <= {"runtime", "toolchain"}
    drivers = [path for path in SOURCES for name, _ in imported_modules(path) if "driver" in name and "cuda" in name]
    assert {room_of(path) for path in drivers} <= {"runtime"}


# Where a concrete kind is named outside `kinds` and `problem`, and why that is right.
NAMES_A_KIND = {
    "planner/agreement.py": "compares the planner with a published table of GEMMs that were tuned on a B200",
    "records/launch.py": "launch.json has the split and the swap of a kernel since its first version",
}


def names_of_kinds(path: Path) -> Iterator[tuple[int, str]]:
    """Names, attributes, imports and strings (no docstrings) in which a concrete kind is named."""
    root = tree(path)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(root)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(root):
        texts: list[object] = []
        if isinstance(node, ast.Name):
            texts = [node.id]
        elif isinstance(node, ast.Attribute):
            texts = [node.attr]
        elif isinstance(node, ast.Constant) and id(node) not in docstrings:
            texts = [node.value]
        elif isinstance(node, ast.ImportFrom):
            texts = [node.module, *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            texts = [alias.name for alias in node.names]
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.arg)):
            texts = [node.arg if isinstance(node, ast.arg) else node.name]
        for text in texts:
            if isinstance(text, str) and (found := A_KIND.search(text)):
                yield getattr(node, "lineno", 0), found.group()


def test_no_room_but_kinds_and_problem_names_a_kind() -> None:
    found: dict[str, list[tuple[int, str]]] = {}
    for path in SOURCES:
        if room_of(path) not in ("kinds", "problem") and (names := list(names_of_kinds(path))):
            found[str(path.relative_to(PACKAGE))] = names
    assert {name: lines for name, lines in found.items() if name not in NAMES_A_KIND} == {}
    assert set(NAMES_A_KIND) - set(found) == set(), "an exception that is none any more"


def test_the_search_for_kinds_sees_code_and_strings_and_skips_prose(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(
        '"""gemm"""\n# gemm\nfrom advisor.problem.gemm import P\nx = f"kind {GemmWork}"\nif k == "row_reduce": ...\n'
    )
    assert list(names_of_kinds(sample)) == [(3, "gemm"), (5, "row_reduce"), (4, "Gemm")]


INLINE_ASSEMBLY = re.compile(r"\b(__asm__|__asm|asm)\b\s*(volatile|__volatile__)?\s*\(")


def test_inline_assembly_lives_only_in_the_wrappers() -> None:
    files = [*SOURCES, *(path for path in TEMPLATES.rglob("*") if path.is_file())]
    outside = [path for path in files if not path.is_relative_to(TEMPLATES / "include")]
    assert outside
    assert [str(p.relative_to(ROOT)) for p in outside if INLINE_ASSEMBLY.search(p.read_text(encoding="utf-8"))] == []


def test_generated_sources_hold_no_inline_assembly_of_their_own() -> None:
    sources = [path for path in GENERATED.glob("*/*") if path.suffix in (".cu", ".cpp", ".h", ".py")]
    assert [str(path) for path in sources if INLINE_ASSEMBLY.search(path.read_text(encoding="utf-8"))] == []


def test_only_the_command_line_prints() -> None:
    offences = []
    for path in SOURCES:
        if room_of(path) == "cli":
            continue
        for node in ast.walk(tree(path)):
            is_print = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            is_stream = (
                isinstance(node, ast.Attribute)
                and node.attr in ("stdout", "stderr")
                and (isinstance(node.value, ast.Name) and node.value.id == "sys")
            )
            if is_print or is_stream:
                offences.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert offences == []


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path.relative_to(ROOT)) for path in SOURCES if not ast.get_docstring(tree(path))] == []


def test_the_planning_path_loads_no_heavy_module() -> None:
    """What `advisor plan` imports decides its cold start."""
    import subprocess

    code = (
        "import sys, advisor.workflow; print([m for m in ('cuda', 'jinja2', 'ml_dtypes', 'rich') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"


LEAKS = re.compile(
    r"(?<![\w.])/(home|root|tmp|work|usr|opt|var)/\w|\b20[2-9]\d-[01]\d-[0-3]\d\b|\b(localhost|\.local)\b|C:\\\\",
)


def committed_bundle_files() -> list[Path]:
    derived = {"build", "__pycache__"}
    names = {"validation.json", "runtime.json", "report.html", "report.validated.md"}
    return [
        path
        for path in sorted(GENERATED.rglob("*"))
        if path.is_file() and not derived & set(path.relative_to(GENERATED).parts) and path.name not in names
    ]


def test_generated_files_name_no_path_host_or_date() -> None:
    offences = []
    for path in committed_bundle_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if found := LEAKS.search(line):
                offences.append(f"{path.relative_to(ROOT)}:{number}: {found.group()}")
    assert offences == []


def test_the_leak_check_sees_a_leak() -> None:
    samples = ["/home/me/x.cu", "written 2031-01-02", "http://localhost"]
    assert all(LEAKS.search(each) for each in samples)
    assert not LEAKS.search("lda * 2 / 16 == 0, include/ptx/mma.cuh")
