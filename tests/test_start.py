"""The start of a command: what is begun early, left out or refused, and how threads wait meanwhile."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli import ahead
from dsocr_core.engine.fast import prepare_device
from dsocr_core.engine.threads import SWITCH_S, quick_switches
from dsocr_core.page import decode_pool


def test_the_process_that_opens_pages_may_be_started_before_the_first(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), "white").save(tmp_path / "page.png")
    decode_pool.start_one(600)
    [*_, started] = decode_pool._workers.idle
    assert decode_pool.open_image(tmp_path / "page.png", 600).image.size == (30, 20)
    assert decode_pool._workers.idle[-1] is started


def test_gpus_are_prepared_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []
    monkeypatch.setattr("dsocr_core.engine.fast.prepare_device", prepared.append)
    ahead._prepare({"cuda:1"})
    assert prepared == ["cuda:1"]


def test_what_a_device_lacks_is_not_said_ahead_but_by_its_engine() -> None:
    with pytest.raises(DsocrError, match="runs on a CUDA device"):
        prepare_device("cpu")
    ahead._prepare({"cpu", "cuda:77"})


def test_switches_are_as_slow_as_before_once_all_are_through() -> None:
    usual, one, other = sys.getswitchinterval(), ExitStack(), ExitStack()
    one.enter_context(quick_switches())
    assert sys.getswitchinterval() == SWITCH_S < usual
    other.enter_context(quick_switches())
    one.close()
    other.close()
    assert sys.getswitchinterval() == usual


def test_rows_are_made_without_pandas_and_data_frames_with_it() -> None:
    """In a process of its own: others may have imported pandas already."""
    script = """
import sys
from dsocr_core.cli.ahead import rows_without_pandas
rows_without_pandas()
import pyarrow as pa
table = pa.table({"page": ["a", None], "boxes": [[1, 2], []]})
print("pandas" in sys.modules, table.to_pandas().boxes[0].tolist(), "pandas" in sys.modules)
import pandas
print(pa.Table.from_pandas(pandas.DataFrame({"x": [1.5, None]})).to_pydict())
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["False [1, 2] True", "{'x': [1.5, None]}"]


def test_what_is_no_page_is_refused_before_torch_is_imported() -> None:
    script = "import sys; sys.modules['torch'] = None; from dsocr_core.__main__ import main; sys.exit(main())"
    for command in ("run", "compare"):
        words = [sys.executable, "-c", script, command, "/nowhere/page.png", "--history", ""]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stdout.splitlines()[-1] == "error: /nowhere/page.png: no such file; check the path"


def test_an_interrupt_while_the_command_line_is_imported_is_one_line() -> None:
    script = """
import sys
from types import SimpleNamespace
def find_spec(name, *_):
    if name == "jsonargparse":
        raise KeyboardInterrupt
sys.meta_path.insert(0, SimpleNamespace(find_spec=find_spec))
from dsocr_core.__main__ import main
sys.exit(main())
"""
    for words, out, error in (([], "error: cancelled\n", ""), (["run", "--json"], "", "error: cancelled\n")):
        command = [sys.executable, "-c", script, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (1, out, error)
