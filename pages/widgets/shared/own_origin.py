"""Which requests the app answers, by Streamlit's settings, and the headers of every answer.

Streamlit asks for the name only of WebSockets, and compares names of hosts alone, so that a page served from
another port of this machine could open a session.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config

from dsocr_core.outside.own_address import OwnAddress

_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "content-security-policy": "frame-ancestors 'self'",
}
"""Of every answer: types are not guessed, addresses stay here, no other site shows the app in a frame."""


class OwnOrigin:
    """ASGI middleware: `OwnAddress` by Streamlit's allowed hosts and origins, and `_HEADERS`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = OwnAddress(
            app,
            lambda _: config.get_option("server.allowedHosts") or ["*"],
            lambda: config.get_option("server.corsAllowedOrigins"),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)
