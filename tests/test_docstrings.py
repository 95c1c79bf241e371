"""Files and modules that docstrings and documents name are there."""

import re
import subprocess
from pathlib import PurePath

from tests.support.paths import ROOT

FILE = re.compile(r"(?<![\w/.*{}\"'-])((?:\w+/)*\w+\.py)\b(?![\"'])")
MODULE = re.compile(r"\b((?:dsocr_core|analytic_model|tests)(?:\.\w+)+)\b")
OF_OTHER_COMMITS = {"data/mini/README.md", "CHANGELOG.md"}


def test_files_and_modules_that_are_named_exist() -> None:
    """A path may begin anywhere in the tree; the last part of a module's may be a name in it."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [PurePath(name) for name in listed.stdout.split("\n") if (ROOT / name).is_file()]
    modules = {one.with_suffix("") for one in paths}
    missing = []
    for path in paths:
        if path.suffix in (".md", ".py") and str(path) not in OF_OTHER_COMMITS:
            text = (ROOT / path).read_text(encoding="utf-8")
            text = text if path.suffix == ".md" else " ".join(re.findall(r'"""(.*?)"""', text, re.DOTALL))
            files = {PurePath(f) for f in FILE.findall(text) if "NAME" not in f and "run_dpsk" not in f}
            missing += [(path, f) for f in files if not any(one.match(str(f)) for one in paths)]
            named = {PurePath(module.replace(".", "/")) for module in MODULE.findall(text)}
            missing += [(path, at) for at in named if not {at, at.parent, at / "__init__"} & modules]
    assert not missing
