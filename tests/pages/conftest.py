"""Pages run as the main module: what comes after them gets its own back; and the history that they show."""

import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner

from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.settings import Settings
from pages.widgets.shared import resources


@pytest.fixture(scope="session", autouse=True)
def packages_are_searched_once() -> Iterator[None]:
    """AppTest reads the metadata of every installed package, in search of components, for each page anew."""
    with pytest.MonkeyPatch.context() as patch:
        search = cache(manifest_scanner.scan_component_manifests)
        patch.setattr(manifest_scanner, "scan_component_manifests", search)
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
        prepared()


@pytest.fixture
def history(shared: History, monkeypatch: pytest.MonkeyPatch) -> History:
    """For tests that write nothing into it."""
    monkeypatch.setattr(resources, "history", lambda: shared)
    return shared


@pytest.fixture
def own(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    """A copy of it, to write into."""
    shutil.copytree(made_once, tmp_path / "history")
    with History(tmp_path / "history") as made:
        monkeypatch.setattr(resources, "history", lambda: made)
        yield made
        prepared()


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    with History(tmp_path / "none") as made:
        monkeypatch.setattr(resources, "history", lambda: made)
        yield made
        prepared()


@pytest.fixture(scope="module")
def only_seeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with History(tmp_path_factory.mktemp("history"), SEED_LOCATION) as made:
        yield made
        prepared()


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch, only_seeds: History) -> History:
    """The runs that come with the project, in a history that has no others."""
    monkeypatch.setattr(resources, "history", lambda: only_seeds)
    monkeypatch.setattr(resources, "base_settings", lambda: Settings(history=only_seeds.storage.location))
    return only_seeds


def prepared() -> None:
    """When what is prepared beside the pages is done, and no review holds its history any longer."""
    resources.prefetcher().submit(int).result()
    st.cache_resource.clear()
