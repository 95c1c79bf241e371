"""The pages' own addresses tell Streamlit's client where the server is; else it tries each of their folders.

Without it a page that is opened by its link asks `/review/_stcore/health` first: two requests that fail, two
errors in the browser's console, and a wait before the first content.
"""

from __future__ import annotations

from pathlib import Path

import streamlit
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route

_CLIENT = Path(streamlit.__file__).parent / "static" / "index.html"
_PAGES = ("review", "timing", "runs", "flops")
_TOLD = "<script>window.__streamlit = {BACKEND_BASE_URL: new URL('.', location.href).href}</script>"


def page_addresses() -> list[Route]:
    """A route for each page of the navigation."""
    return [Route("/compare", _first), *(Route(f"/{page}", _client) for page in _PAGES)]


def _first(asked: Request) -> RedirectResponse:
    """The first page's address is the folder itself: by its name Streamlit does not find it."""
    return RedirectResponse(f"./?{asked.url.query}".removesuffix("?"))


def _client(_: Request) -> HTMLResponse:
    html = _CLIENT.read_text("utf-8").replace("<head>", f"<head>{_TOLD}", 1)
    return HTMLResponse(html, headers={"cache-control": "no-cache"})
