"""Only programs and a server's own pages may talk to it: its name and the whole origin are checked.

A foreign page whose name leads to this machine (DNS rebinding) sends its own name; a page of another port
sends another origin. Programs that are no browser send no origin: a login before the server keeps those out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse

log = logging.getLogger(__name__)
Scope = MutableMapping[str, Any]
_NOT_ITS_NAME = (
    "This server is not asked by a name of its own. To serve it under another name, start it with "
    "--server.allowedHosts NAME, the name that browsers or the proxy before it send as Host."
)
_NOT_ITS_ORIGIN = (
    "This request comes from a page of another origin. Behind a proxy that changes the Host, start the "
    "server with --server.corsAllowedOrigins ORIGIN, like https://ocr.example.org, as browsers see it."
)


def refusal(scope: Scope, hosts: Collection[str], origins: Collection[str]) -> tuple[int, str] | None:
    """Give status and reason with which a request is refused; None where it is answered.

    `hosts` are names without ports, `*.NAME` and `*` among them; `origins` are let in whatever the host.
    """
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    asked, origin = headers.get(b"host", ""), headers.get(b"origin")
    try:
        parts = urlsplit(f"//{asked}")
        name = (parts.hostname or "").rstrip(".")
        known = parts.port != 0 and parts.netloc == asked and "@" not in asked
    except ValueError:  # like [ or a port of letters
        known = False
    if not known or not any(_is(name, host) for host in hosts):
        return 400, _NOT_ITS_NAME
    try:
        own = origin is None or urlsplit(origin).netloc.lower() == asked.lower() != ""
    except ValueError:  # like http://[
        own = False
    return None if own or origin in origins else (403, _NOT_ITS_ORIGIN)


def _is(name: str, host: str) -> bool:
    host = host.strip().lower().rstrip(".").strip("[]")
    return host in ("*", name) or (host.startswith("*.") and name.endswith(host[1:]))


class OwnAddress:
    """ASGI middleware that refuses what `refusal` refuses. `hosts` and `origins` are asked anew each time."""

    def __init__(
        self, app: Any, hosts: Callable[[], Collection[str]], origins: Callable[[], Collection[str]]
    ) -> None:
        self._app, self._hosts, self._origins = app, hosts, origins

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        asked = scope["type"] in ("http", "websocket")
        refused = refusal(scope, self._hosts(), self._origins()) if asked else None
        if refused is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            log.warning("%s", refused[1])  # a browser shows no reason of a refused connection
            await send({"type": "websocket.close", "code": 1008, "reason": refused[1]})
        else:
            await PlainTextResponse(refused[1], refused[0])(scope, receive, send)
