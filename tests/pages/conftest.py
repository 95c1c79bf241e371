"""Pages run as the main module: what comes after them gets its own back; and the history that they show."""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import local_script_runner

from dsocr_core.runs.history import History
from pages.widgets.shared import resources


@pytest.fixture(scope="session", autouse=True)
def packages_are_searched_once() -> Iterator[None]:
    """AppTest reads the metadata of every installed package, in search of components, for each page anew."""
    with pytest.MonkeyPatch.context() as patch:
        search = cache(manifest_scanner.scan_component_manifests)
        patch.setattr(manifest_scanner, "scan_component_manifests", search)
        yield


@pytest.fixture(scope="session", autouse=True)
def runs_are_waited_for_without_polling() -> Iterator[None]:
    """AppTest asks a thousand times a second whether the page's thread is done; here it waits for its end."""
    check = local_script_runner.require_widgets_deltas

    def wait(runner: local_script_runner.LocalScriptRunner, timeout: float = 3) -> None:
        assert runner._script_thread is not None
        runner._script_thread.join(timeout)
        check(runner, 0 if runner._script_thread.is_alive() else timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_script_runner, "require_widgets_deltas", wait)
        yield


@pytest.fixture(autouse=True)
def main_module_stays() -> Iterator[None]:
    """AppTest leaves the page as `__main__`, which every process started later would run again."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="module")
def shared(made_once: Path) -> Iterator[History]:
    """The history that a file's own `made_once` made, opened once."""
    with History(made_once) as made:
        yield made


@pytest.fixture
def history(shared: History, monkeypatch: pytest.MonkeyPatch) -> History:
    """For tests that write nothing into it."""
    monkeypatch.setattr(resources, "history", lambda: shared)
    return shared
