"""Mends of what Streamlit 1.67 lacks for this app, each mend with the upstream issue that it waits for."""

from __future__ import annotations

from asyncio import BaseTransport, Protocol
from contextlib import suppress
from fnmatch import fnmatchcase
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import NoReturn
from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose
from streamlit import config
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.scriptrunner import RerunData, ScriptRunner, get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_run_context import RunLocation, ThreadState
from uvicorn.protocols.http.auto import AutoHTTPProtocol


def rerun_page() -> NoReturn:
    """Run the whole page again out of a fragment that looks by itself, with what was clicked meanwhile.

    A click in another fragment may wait in the same run, which ends here, before that fragment has seen it:
    Streamlit forgets it then (no issue for it yet; streamlit/streamlit#9062 kept it up to this run).
    """
    context = get_script_run_ctx()
    if context is not None and context.script_requests is not None:
        given = context.session_state._state._new_widget_state
        clicks = [
            WidgetState(id=name, trigger_value=value)
            for name, known in given.widget_metadata.items()
            if known.value_type == "trigger_value" and name not in context.shared.widget_ids_this_run
            and (value := given.get(name))
        ]  # fmt: skip
        # One run with the next request, which says of which page.
        context.script_requests.request_rerun(RerunData(replay_trigger_states=WidgetStates(widgets=clicks)))
    st.rerun()


# --- what a person does while the script runs -------------------------------------------------------


def finish_callbacks() -> None:
    """Let every callback of this server run to its end, whatever comes in meanwhile.

    Streamlit stops a script at its next look into the session once another event waits, in the middle of a
    callback too, and does not call that again: a click or a word is lost (no issue for it yet).
    """
    yields = ScriptRunner._maybe_handle_execution_control_request
    if yields.__module__ == __name__:  # mended already
        return

    def outside_callbacks(self: ScriptRunner) -> None:
        if not self._is_in_script_thread() or ThreadState.get().run_location is not RunLocation.CALLBACK:
            yields(self)

    ScriptRunner._maybe_handle_execution_control_request = outside_callbacks  # type: ignore[method-assign]


def ignore_pages_left() -> None:
    """Let every session ignore the timer of a fragment on a page that was left.

    The browser's last request of it may come when the session is on another page already. It would make the
    session forget that page's widgets, and what is typed there next (streamlit/streamlit#9921 is the like).
    """
    known = AppSession.request_rerun
    if known.__module__ == __name__:  # mended already
        return

    def of_this_page(self: AppSession, state: ClientState | None) -> None:
        if state is None or not state.is_auto_rerun or state.page_script_hash == self.page_script_hash:
            known(self, state)

    AppSession.request_rerun = of_this_page  # type: ignore[method-assign,assignment]


# --- how the server sends -----------------------------------------------------------------------------


def send_at_once() -> None:
    """Have the server send what it writes to a connection without waiting for the browser.

    Streamlit's socket does not say that it is of TCP, so that asyncio leaves Nagle's algorithm on: an answer,
    or a message, waits until the browser acknowledges the one before, 44 ms a file (Kludex/uvicorn#3149).
    """
    known = AutoHTTPProtocol.connection_made
    if known.__module__ == __name__:  # mended already
        return

    def without_delay(self: Protocol, transport: BaseTransport) -> None:
        with suppress(OSError):  # no socket of TCP
            transport.get_extra_info("socket").setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        known(self, transport)

    AutoHTTPProtocol.connection_made = without_delay  # type: ignore[method-assign,assignment]


# --- who may connect ------------------------------------------------------------------------------

_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "content-security-policy": "frame-ancestors 'self'",
}
"""Headers: types are not guessed, addresses stay here, no other site shows the app in a frame."""


_NOT_ITS_NAME = (
    "This server is not asked by a name of its own. To serve it under another name, start it with "
    "--server.allowedHosts NAME, the name that browsers or the proxy before it send as Host."
)
_NOT_ITS_ORIGIN = (
    "This request comes from a page of another origin. Behind a proxy that changes the Host, start the "
    "server with --server.corsAllowedOrigins ORIGIN, like https://ocr.example.org, as browsers see it."
)


class OwnOrigin:
    """ASGI middleware: Streamlit's allowed hosts for every request, its own pages' origin, and `_HEADERS`.

    Streamlit asks for the name only of WebSockets, and compares names of hosts alone, so that a page served
    from another port of this machine could open a session (streamlit/streamlit#16448). Programs that are no
    browser send no origin.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = _refusal(Headers(scope=scope)) if scope["type"] in ("http", "websocket") else None
        if refused is None:
            await self._app(scope, receive, send_with_headers)
        elif scope["type"] == "websocket":
            await WebSocketClose(1008, refused[1])(scope, receive, send)
        else:
            await PlainTextResponse(refused[1], refused[0])(scope, receive, send)


def _refusal(headers: Headers) -> tuple[int, str] | None:
    """Status and reason with which a request is refused."""
    host, origin = headers.get("host", ""), headers.get("origin")
    try:
        parts = urlsplit(f"//{host}")
        name = (parts.hostname or "") if parts.netloc == host and "@" not in host and parts.port != 0 else ""
    except ValueError:  # like [, or a port of letters
        name = ""
    names = config.get_option("server.allowedHosts") or ["*"]
    if not name or not any(fnmatchcase(name, each.lower().strip("[]")) for each in names):
        return 400, _NOT_ITS_NAME
    own = origin is None or origin.partition("://")[2].lower() == host.lower()
    return None if own or origin in config.get_option("server.corsAllowedOrigins") else (403, _NOT_ITS_ORIGIN)
