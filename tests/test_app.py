"""The server that `streamlit run app.py` starts."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from tests.support.paths import ROOT

RUN_A_SCRIPT = """
import runpy, sys
from streamlit.runtime.scriptrunner.exec_code import modified_sys_path
app = runpy.run_path("app.py")["app"]
before = list(sys.path)
with modified_sys_path(str(app._resolved_script_path)):
    print(sys.path == before and app.script_path.is_file())
"""


def test_jobs_import_beside_a_script_and_its_errors_show_their_type_alone() -> None:
    """An import misses what is on a path that another thread changes; a message may hold a model's text."""
    command = [sys.executable, "-c", RUN_A_SCRIPT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True"], done.stderr
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))
    assert (config["client"]["showErrorDetails"], config["client"]["showErrorLinks"]) == ("type", False)
