"""Only pages of this app may talk to it: scheme-less origin and host are compared, the port with them.

Streamlit compares names of hosts alone, so that a page served from another port of this machine could open a
session. Programs that are no browser send no origin: what keeps those out is a login before the app.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config

_READING = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing; their answers are not readable from another origin."""
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "content-security-policy": "frame-ancestors 'self'",
}
"""Of every answer: types are not guessed, addresses stay here, no other site shows the app in a frame."""


class OwnOrigin:
    """ASGI middleware that answers 403 to another origin's WebSockets and changing requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and _is_foreign(Headers(scope=scope)):
            await send({"type": "websocket.close", "code": 1008, "reason": "another origin"})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] not in _READING and _is_foreign(Headers(scope=scope)):
            answer = PlainTextResponse("This request comes from a page of another origin.", 403)
            await answer(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _is_foreign(headers: Headers) -> bool:
    """Whether a browser sent this for a page that is neither this app's nor one that the settings allow."""
    origin = headers.get("origin")
    if origin is None or origin in config.get_option("server.corsAllowedOrigins"):
        return False
    try:
        asked = urlsplit(origin).netloc
    except ValueError:  # like http://[
        return True
    return not asked or asked.lower() != headers.get("host", "").lower()
