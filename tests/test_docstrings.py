"""Files and modules that docstrings, comments and documents name are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.paths import ROOT

FILE = re.compile(r"(?<![\w/.*{}\"'-])((?:\w+/)*\w+\.py)\b(?![\"'])")
MODULE = re.compile(r"\b((?:dsocr_core|analytic_model|tests)(?:\.\w+)+)\b")
PLACES = ("", "dsocr_core", "dsocr_core/engine", "pages/widgets")
EXAMPLES = {"run_dpsk_ocr_eval_batch.py", "models/NAME.py", "dsocr_core/models/NAME.py", "pages/NAME.py"}
OTHERS = ("data/mini/README.md", "CHANGELOG.md")
"""Documents that name files of other commits."""


def test_files_and_modules_that_are_named_exist() -> None:
    """A name without a folder may lie anywhere; the last part of a module's may be a name in it."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.split("\n") if (ROOT / name).is_file()]
    names = {Path(name).name for name in files}
    missing = []
    for name in files:
        if name in OTHERS or not name.endswith((".md", ".py")):
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".py"):
            text = " ".join(re.findall(r'"""(.*?)"""', text, re.DOTALL))
        places = [(ROOT / name).parent, *(ROOT / place for place in PLACES)]
        for file in set(FILE.findall(text)) - EXAMPLES:
            if file not in names and not any((place / file).is_file() for place in places):
                missing.append((name, file))
        for module in MODULE.findall(text):
            path = ROOT / module.replace(".", "/")
            if not any(each.is_dir() or each.with_suffix(".py").is_file() for each in (path, path.parent)):
                missing.append((name, module))
    assert not missing
