"""Files and modules that docstrings and documents name are there."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path

from tests.support.paths import ROOT


@cache
def docstrings(file: Path) -> list[str]:
    """Every docstring of a file, those of fields and constants too."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(ast.get_docstring(node) or "")
        body = getattr(node, "body", None)
        for first, second in pairwise(body) if isinstance(body, list) else ():
            match first, second:
                case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                    found.append(text.strip())
    return found


FILE = re.compile(r"(?<![\w/.])((?:\w+/)*\w+\.py)\b")
MODULE = re.compile(r"\b((?:dsocr_core|analytic_model|tests)(?:\.\w+)+)\b")
PLACES = ("", "dsocr_core", "dsocr_core/engine", "pages/widgets")
EXAMPLES = {
    "run_dpsk_ocr_eval_batch.py",
    "models/NAME.py",
    "dsocr_core/models/NAME.py",
    "pages/NAME.py",
    "sitecustomize.py",
}
GONE = ("data/mini/README.md", "CHANGELOG.md")
"""Documents that name files of other commits."""


def test_files_and_modules_that_are_named_exist() -> None:
    """In docstrings and in documents; a name without a folder may lie anywhere."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.split("\n") if (ROOT / name).is_file()]
    names = {Path(name).name for name in files}
    missing = []
    for name in files:
        if name.endswith(".py"):
            texts = docstrings(ROOT / name)
        elif name.endswith(".md") and name not in GONE:
            texts = [(ROOT / name).read_text(encoding="utf-8")]
        else:
            continue
        for text in texts:
            for file in set(FILE.findall(text)) - EXAMPLES:
                places = [ROOT / name, *(ROOT / place / "file" for place in PLACES)]
                there = file in names or any((place.parent / file).is_file() for place in places)
                missing += [] if there else [(name, file)]
            for module in MODULE.findall(text):
                path = ROOT / module.replace(".", "/")
                # The last part may be a name in the module.
                there = any(
                    each.is_dir() or each.with_suffix(".py").is_file() for each in (path, path.parent)
                )
                missing += [] if there else [(name, module)]
    assert not missing
