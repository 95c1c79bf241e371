"""A docstring begins with a verb (functions) or a noun (classes, constants), never with a relative clause."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.support.paths import ROOT

WORDS = frozenset({"What", "Whether", "Of", "How", "Who", "Where", "When", "Which", "If", "That"})


def docstrings(file: Path) -> Iterator[str]:
    """Every docstring of a file, those of fields and constants too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
        body = getattr(node, "body", None)
        for first, second in pairwise(body) if isinstance(body, list) else ():
            match first, second:
                case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                    yield text.strip()


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    found: Counter[str] = Counter()
    for name in listed.stdout.split():
        parts = Path(name).parts
        if parts[0] != "tests" and (ROOT / name).is_file():
            room = "/".join(parts[:2]) if parts[0] == "dsocr_core" and len(parts) > 2 else parts[0]
            found[room] += sum(
                text.partition(" ")[0].rstrip(",:") in WORDS for text in docstrings(ROOT / name)
            )
    assert not +found, "begin it with a verb or a noun"
