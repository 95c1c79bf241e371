"""Pages run as the main module: what comes after them gets its own back."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def main_module_stays() -> Iterator[None]:
    """AppTest leaves the page as `__main__`, which every process started later would run again."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main
