"""Inline assembly lives under templates/include/, one wrapper per instruction, and nowhere else that ships."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ASSEMBLY = re.compile(r"\b(?:asm|__asm__|__asm)\b\s*(?:volatile|__volatile__|goto)?\s*\(")


def test_no_shipped_file_outside_the_device_headers_holds_inline_assembly():
    headers = ROOT / "templates" / "include"
    texts = {path for room in ("advisor", "templates") for path in (ROOT / room).rglob("*") if path.is_file()}
    texts = {path for path in texts if "__pycache__" not in path.parts and headers not in path.parents}
    assert texts
    guilty = [
        str(path.relative_to(ROOT)) for path in sorted(texts) if ASSEMBLY.search(path.read_text(errors="replace"))
    ]
    assert guilty == []


def test_the_search_would_find_what_it_looks_for():
    for text in ('asm volatile("bar.sync 0;");', 'asm("exit;");', "__asm__ __volatile__ (", "asm  volatile\n("):
        assert ASSEMBLY.search(text)
    assert not ASSEMBLY.search("the asm of (a kernel)")
