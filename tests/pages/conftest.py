"""Pages run as the main module: what comes after them gets its own back."""

import sys
from collections.abc import Iterator
from functools import cache

import pytest
from streamlit.components.v2 import manifest_scanner


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
