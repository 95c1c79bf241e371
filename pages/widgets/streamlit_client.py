"""Streamlit's client as it is served: the pages' addresses, its files, and what is asked for ahead."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config

STYLE = Path(__file__).parent / "shared" / "style.css"
"""In the page from its first frame: a style that came with the first words would move them."""
_HOME = Path(st.__file__).parent / "static"
_PAGES = ("review", "timing", "runs", "flops")
_PARTS = (
    "BidiComponent", "Html", "Selectbox", "ButtonGroup", "Multiselect", "Autocomplete", "TextInput", "Button",
)  # fmt: skip
"""Parts of the client that the pages begin with. It asks for a part once something of it is drawn."""
_OF_TABLES = ("DataFrame", "Checkbox", "NumberInput")
_IMPORTS = re.compile(r'(?:from|import)"\./([^"]+\.js)"')


# --- the pages ------------------------------------------------------------------------------------


def page_addresses() -> list[Route]:
    """A route for each page of the navigation, which tells Streamlit's client where the server is.

    Else a page that is opened by its link asks `/review/_stcore/health` first: two requests that fail, two
    errors in the browser's console, and a wait before the first content (streamlit/streamlit#7074).
    """
    return [Route("/compare", _first), *(Route(f"/{page}", _client) for page in ("", *_PAGES))]


def _first(asked: Request) -> RedirectResponse:
    """The first page's address is the folder itself: by its name Streamlit does not find it."""
    return RedirectResponse(f"./?{asked.url.query}".removesuffix("?"))


def _client(asked: Request) -> HTMLResponse:
    # What /_stcore/host-config answers: with it the client connects without asking first.
    origins = {"allowedOrigins": config.get_option("client.allowedOrigins"), "useExternalAuthToken": False}
    base = f"{{BACKEND_BASE_URL: new URL('.', location.href).href, HOST_CONFIG: {json.dumps(origins)}}}"
    html = (_HOME / "index.html").read_text("utf-8")
    html = html.replace("<head>", f"<head><script>window.__streamlit = {base}</script>", 1)
    tables = asked.url.path.rpartition("/")[2] in ("timing", "runs", "flops")
    # After the head, where the client's own styles are.
    style = f"<style>{STYLE.read_text('utf-8')}</style>"
    html = html.replace("</head>", f"{_ahead(tables)}</head>", 1).replace("<body>", f"<body>{style}", 1)
    return HTMLResponse(html, headers={"cache-control": "no-cache"})


@cache
def _ahead(tables: bool) -> str:
    """Links to what a page will draw, with all its imports: it comes while the client's own scripts run."""
    parts = [*_PARTS, *(_OF_TABLES if tables else ())]
    found = [file.name for part in parts for file in _HOME.glob(f"static/js/{part}.*.js")]
    for name in found:  # which grows
        imported = _IMPORTS.findall((_HOME / "static" / "js" / name).read_text("utf-8"))
        found += [each for each in dict.fromkeys(imported) if each not in found]
    styles = [file.name for part in parts for file in _HOME.glob(f"static/css/{part}.*.css")]
    links = [f'<link rel="modulepreload" crossorigin href="./static/js/{name}">' for name in found]
    links += [f'<link rel="stylesheet" crossorigin href="./static/css/{name}">' for name in styles]
    return "".join(links)


# --- the client's files -----------------------------------------------------------------------------

_TYPES = {".js": "text/javascript", ".css": "text/css", ".woff2": "font/woff2"}
_FILES = {
    f"/{file.relative_to(_HOME).as_posix()}": file
    for file in _HOME.glob("static/*/*") if file.suffix in _TYPES
}  # fmt: skip
_HEADERS = {"cache-control": "public, immutable, max-age=31536000"}
"""As Streamlit sends them: a file's name has a hash of what is in it."""


class ClientFiles:
    """ASGI middleware: scripts, styles and fonts of Streamlit's client, out of memory.

    A page asks for more than a hundred, each of which Streamlit opens on a thread.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        file = _FILES.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        await (_served(file) if file else self._app)(scope, receive, send)


@cache
def _served(file: Path) -> Response:
    return Response(file.read_bytes(), headers=_HEADERS, media_type=_TYPES[file.suffix])
