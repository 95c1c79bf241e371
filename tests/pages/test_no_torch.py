"""A page is there before a model is: nothing that the pages are made of loads torch."""

from __future__ import annotations

import subprocess
import sys

from dsocr_core.base.paths import PROJECT_ROOT

CHECK = """
import importlib, pkgutil, sys
import pages.widgets
names = [module.name for module in pkgutil.walk_packages(pages.widgets.__path__, "pages.widgets.")]
assert len(names) > 30
for name in names:
    importlib.import_module(name)
assert "torch" not in sys.modules
"""


def test_the_pages_need_no_torch() -> None:
    subprocess.run([sys.executable, "-c", CHECK], cwd=PROJECT_ROOT, check=True)
