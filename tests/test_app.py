"""The server that `streamlit run app.py` starts."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from dsocr_core.base.paths import PROJECT_ROOT

RUN_A_SCRIPT = """
import runpy, sys
from streamlit.runtime.scriptrunner.exec_code import modified_sys_path
app = runpy.run_path("app.py")["app"]
before = list(sys.path)
with modified_sys_path(str(app._resolved_script_path)):
    print(sys.path == before and app.script_path.is_file())
"""


def test_a_run_of_the_script_leaves_the_path_of_imports_as_it_is() -> None:
    """Jobs import beside it, and an import misses what is on a path that another thread changes."""
    command = [sys.executable, "-c", RUN_A_SCRIPT]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True"], done.stderr


def test_an_unforeseen_error_shows_its_type_alone_and_no_link() -> None:
    """A message may hold paths or text of the model; the links would send it to a search engine."""
    config = tomllib.loads((PROJECT_ROOT / ".streamlit" / "config.toml").read_text("utf-8"))
    assert config["client"]["showErrorDetails"] == "type" and config["client"]["showErrorLinks"] is False
