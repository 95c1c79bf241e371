"""The pages that have a route are those of the navigation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from pages.widgets.shared.page_addresses import page_addresses
from tests.support.paths import ROOT


def test_every_page_of_the_navigation_has_a_route() -> None:
    menu = Path(ROOT / "pages" / "dashboard.py").read_text("utf-8")
    assert [route.path for route in page_addresses()] == [
        f"/{name}" for name in re.findall(r'st\.Page\("(\w+)\.py"', menu)
    ]


def test_a_page_tells_the_client_where_the_server_is() -> None:
    html = TestClient(Starlette(routes=[*page_addresses()])).get("/review").text
    assert "window.__streamlit = {BACKEND_BASE_URL" in html
    # Before the client's own scripts, which read it when they are loaded.
    assert html.index("window.__streamlit") < html.index('<script type="module"')


@pytest.mark.parametrize("query", ["", "?page=01-letter&source=Samples"])
def test_the_first_page_is_found_by_its_name(query: str) -> None:
    answer = TestClient(Starlette(routes=[*page_addresses()])).get(f"/compare{query}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, f"./{query}")
