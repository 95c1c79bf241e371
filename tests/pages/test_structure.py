"""What import contracts cannot say of the pages: who may cache, and which folder a page script draws from."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = ROOT / "pages"
SCRIPTS = sorted(path for path in PAGES.glob("*.py") if path.stem not in ("__init__", "dashboard"))
MODULES = sorted(PAGES.rglob("*.py"))
RESOURCES = PAGES / "widgets" / "shared" / "resources.py"


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def cache_uses(tree: ast.AST) -> Iterator[str]:
    """Names of Streamlit's caches that a module uses, by whatever way it came to them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("cache_"):
            yield node.attr
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamlit"):
            yield from (name.name for name in node.names if name.name.startswith("cache_"))


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("path", [*MODULES, ROOT / "app.py"], ids=lambda path: str(path.relative_to(ROOT)))
def test_only_resources_caches(path: Path) -> None:
    uses = [*cache_uses(parsed(path))]
    assert bool(uses) == (path == RESOURCES), f"{path.relative_to(ROOT)} uses st.{', st.'.join(uses)}"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_page_script_draws_from_its_own_folder_components_and_shared(path: Path) -> None:
    folders = {
        name.split(".")[2] for name in imported(parsed(path)) if name.startswith("pages.widgets.")
    }  # fmt: skip
    assert path.stem in folders
    assert folders <= {path.stem, "pair", "components", "shared"}


def test_every_page_script_has_a_folder_and_only_the_mends_lie_beside_them() -> None:
    widgets = PAGES / "widgets"
    folders = {path.name for path in widgets.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {*(script.stem for script in SCRIPTS), "pair", "components", "shared"}
    assert {path.name for path in widgets.iterdir() if path.is_file()} == {
        "__init__.py",
        "streamlit_mends.py",
    }


def test_an_unforeseen_error_is_offered_to_nobody_outside() -> None:
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert config["client"]["showErrorLinks"] is False
    assert config["client"]["showErrorDetails"] == "type"
