"""What Streamlit lacks: errors, reruns of a page, sending and origins as the app needs them."""

from __future__ import annotations

import asyncio
import re
import socket
from asyncio import BaseTransport, Protocol
from functools import partial, partialmethod
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from streamlit import config
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.scriptrunner import script_runner
from streamlit.testing.v1 import AppTest
from streamlit.web.server.starlette import starlette_server
from uvicorn import Config
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.server import ServerState

from dsocr_core.base import errors
from pages.widgets.shared.messages import show_script_error
from pages.widgets.streamlit_mends import OwnOrigin, finish_callbacks, ignore_pages_left, send_at_once


def failing() -> None:
    import streamlit as st

    def fail() -> None:
        raise KeyError("/secret/path")

    st.button("in a callback", on_click=fail)
    if st.button("in the script"):
        fail()


def interrupted() -> None:
    """A button whose callback is under way when the next event comes."""
    import streamlit as st
    from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx

    def note() -> None:
        context = get_script_run_ctx()
        assert context is not None and context.script_requests is not None
        context.script_requests.request_rerun(RerunData(page_script_hash=context.page_script_hash))
        st.session_state["noted"] = True  # a look into the session: Streamlit's place to stop

    st.button("note", on_click=note)


def looking() -> None:
    import streamlit as st

    from pages.widgets.streamlit_mends import rerun_page

    counts = st.session_state.setdefault("counts", {"before": 0, "after": 0, "called": 0, "runs": 0})
    counts["runs"] += 1

    def called() -> None:
        counts["called"] += 1

    counts["before"] += st.button("before")
    if counts["runs"] in (2, 4):  # what was waited for is there in just the run that a click began
        rerun_page()
    counts["after"] += st.button("after", on_click=called)


@pytest.mark.parametrize("number", [0, 1])
def test_an_unexpected_error_is_a_sentence_and_the_log_has_the_rest(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = script_runner.ScriptRunner
    made = partialmethod(runner.__init__, on_script_error=show_script_error)
    monkeypatch.setattr(runner, "__init__", made)
    monkeypatch.setattr(errors, "LOG_FILE", tmp_path / "errors.log")
    test = AppTest.from_function(failing).run().button[number].click().run()
    [shown] = test.error
    [logged] = re.findall(r"unforeseen KeyError, number ([0-9a-f]{8})", shown.value.replace("\\", ""))
    assert "secret" not in shown.value and not test.exception
    log = errors.LOG_FILE.read_text()
    assert logged in log and "/secret/path" in log


def test_a_callback_runs_to_its_end_when_the_next_event_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, name = script_runner.ScriptRunner, "_maybe_handle_execution_control_request"
    monkeypatch.setattr(runner, name, getattr(runner, name))
    finish_callbacks()
    test = AppTest.from_function(interrupted).run().button[0].click().run()
    assert "noted" in test.session_state


def test_a_fragments_clock_on_a_page_that_was_left_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ClientState | None] = []
    monkeypatch.setattr(AppSession, "request_rerun", lambda _, state: asked.append(state))
    ignore_pages_left()
    session = cast(AppSession, SimpleNamespace(page_script_hash="review"))
    late = ClientState(page_script_hash="compare", fragment_id="panel", is_auto_rerun=True)
    of_this_page = ClientState(page_script_hash="review", fragment_id="news", is_auto_rerun=True)
    click = ClientState(page_script_hash="compare")
    for state in (late, of_this_page, click, None):
        AppSession.request_rerun(session, state)
    assert asked == [of_this_page, click, None]


def test_a_page_that_runs_again_by_itself_loses_no_click_and_repeats_none() -> None:
    test = AppTest.from_function(looking).run()
    test.button[1].click().run()
    test.button[0].click().run()
    assert test.session_state["counts"] == {"before": 1, "after": 1, "called": 1, "runs": 5}
    assert test.run().session_state["counts"] == {"before": 1, "after": 1, "called": 1, "runs": 6}


def test_the_server_does_not_wait_for_the_browser_before_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once: list[int] = []

    def made(_: Protocol, transport: BaseTransport) -> None:
        at_once.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    async def connect() -> None:
        bound = starlette_server._bind_socket("127.0.0.1", 0, 1)
        made_for = partial(AutoHTTPProtocol, Config(answered), ServerState(), {})
        async with await asyncio.get_running_loop().create_server(made_for, sock=bound):
            with socket.create_connection(bound.getsockname()):
                while not at_once:
                    await asyncio.sleep(0)

    monkeypatch.setattr(AutoHTTPProtocol, "connection_made", made)
    send_at_once()
    asyncio.run(connect())
    assert at_once == [1]


# --- who may connect: held to the rule of browsers, an origin is scheme, host and port -------------


async def answered(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        return await PlainTextResponse("done")(scope, receive, send)
    socket = WebSocket(scope, receive, send)
    await socket.accept()
    await socket.close()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    options = {"server.allowedHosts": ["127.0.0.1"], "server.corsAllowedOrigins": ["https://ocr.example.org"]}
    monkeypatch.setattr(config, "get_option", options.__getitem__)
    return TestClient(OwnOrigin(answered), base_url="http://127.0.0.1:8501")


@pytest.mark.parametrize("origin", ["", "http://127.0.0.1:8501", "https://ocr.example.org"])
def test_own_pages_programs_and_origins_of_the_settings_connect(client: TestClient, origin: str) -> None:
    headers = {"origin": origin} if origin else {}
    with client.websocket_connect("ws://127.0.0.1:8501/stream", headers=headers):
        pass
    answer = client.put("/upload", headers=headers)
    assert answer.text == "done" and answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "frame-ancestors 'self'"


ORIGINS = (
    "http://127.0.0.1:9999", "http://127.0.0.1", "http://localhost:8501", "null", "", "127.0.0.1:8501",
    "http://127.0.0.1:8501.evil.example", "http://127.0.0.1:8501@evil.example",
)  # fmt: skip
HOSTS = ("evil.example", "127.0.0.1.evil.example", "evil@127.0.0.1", "127.0.0.1:x", "[", "127.0.0.1/x")


@pytest.mark.parametrize(("name", "value"), [*product(["origin"], ORIGINS), *product(["host"], HOSTS)])
def test_another_origin_or_name_gets_no_session_and_changes_nothing(
    client: TestClient, name: str, value: str
) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/stream", headers={name: value}):
        pytest.fail("a session was opened")
    for method in ("PUT", "GET"):
        assert (
            client.request(method, "/upload", headers={name: value}).status_code
            == {"origin": 403, "host": 400}[name]
        )
