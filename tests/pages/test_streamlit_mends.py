"""What Streamlit lacks: errors, reruns of fragments, numbers, origins and addresses as the app needs them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from streamlit import config
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.scriptrunner import script_runner
from streamlit.testing.v1 import AppTest

from dsocr_core.base import errors
from pages.widgets.shared.messages import show_script_error
from pages.widgets.streamlit_mends import (
    STYLE,
    OwnOrigin,
    finish_callbacks,
    ignore_pages_left,
    page_addresses,
)

# --- errors and reruns ----------------------------------------------------------------------------


def script() -> None:
    import streamlit as st

    from pages.widgets.streamlit_mends import rerun_fragment

    def fail() -> None:
        raise KeyError("/secret/path")

    @st.fragment
    def part() -> None:
        if st.button("in a fragment"):
            fail()
        if st.button("again"):
            st.session_state["pressed"] = st.session_state.get("pressed", 0) + 1
            rerun_fragment()

    st.button("in a callback", on_click=fail)
    part()
    if st.button("in the script"):
        fail()
    st.write("the end")


@pytest.fixture
def pressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], AppTest]:
    """The script after a press, its errors shown as the server shows them."""
    made = script_runner.ScriptRunner.__init__
    monkeypatch.setattr(
        script_runner.ScriptRunner, "__init__",
        lambda self, *given, **named: made(self, *given, **named, on_script_error=show_script_error),
    )  # fmt: skip
    monkeypatch.setattr(errors, "LOG_FILE", tmp_path / "errors.log")

    def press(label: str) -> AppTest:
        test = AppTest.from_function(script).run()
        return next(button for button in test.button if button.label == label).click().run()

    return press


def interrupted() -> None:
    """A button whose callback is under way when the next event comes."""
    import streamlit as st
    from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx

    def note() -> None:
        context = get_script_run_ctx()
        assert context is not None
        assert context.script_requests is not None
        context.script_requests.request_rerun(RerunData(page_script_hash=context.page_script_hash))
        st.session_state["noted"] = True  # a look into the session: Streamlit's place to stop

    st.button("note", on_click=note)


def test_a_callback_runs_to_its_end_when_the_next_event_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = script_runner.ScriptRunner
    monkeypatch.setattr(
        ours, "_maybe_handle_execution_control_request", ours._maybe_handle_execution_control_request
    )
    finish_callbacks()
    test = AppTest.from_function(interrupted).run().button[0].click().run()
    assert "noted" in test.session_state


def test_a_fragments_clock_on_a_page_that_was_left_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ClientState | None] = []
    monkeypatch.setattr(AppSession, "request_rerun", lambda _, state: asked.append(state))
    ignore_pages_left()
    session = SimpleNamespace(page_script_hash="review")
    late = ClientState(page_script_hash="compare", fragment_id="panel", is_auto_rerun=True)
    of_this_page = ClientState(page_script_hash="review", fragment_id="news", is_auto_rerun=True)
    click = ClientState(page_script_hash="compare")
    for state in (late, of_this_page, click, None):
        AppSession.request_rerun(cast(AppSession, session), state)
    assert asked == [of_this_page, click, None]


@pytest.mark.parametrize("where", ["in the script", "in a callback", "in a fragment"])
def test_what_nobody_foresaw_is_a_sentence_and_the_log_has_the_rest(
    where: str, pressed: Callable[[str], AppTest]
) -> None:
    test = pressed(where)
    [shown] = test.error
    [number] = re.findall(r"unforeseen KeyError, number ([0-9a-f]{8})", shown.value.replace("\\", ""))
    assert "secret" not in shown.value and not test.exception
    log = errors.LOG_FILE.read_text()
    assert number in log and "/secret/path" in log


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


def test_a_page_that_runs_again_by_itself_loses_no_click_and_repeats_none() -> None:
    test = AppTest.from_function(looking).run()
    test.button[1].click().run()
    test.button[0].click().run()
    assert test.session_state["counts"] == {"before": 1, "after": 1, "called": 1, "runs": 5}
    assert test.run().session_state["counts"] == {"before": 1, "after": 1, "called": 1, "runs": 6}


# --- who may connect: held to the rule of browsers, an origin is scheme, host and port -------------

FOREIGN = [
    "http://127.0.0.1:9999", "http://127.0.0.1", "http://localhost:8501", "https://evil.example", "null",
    "http://127.0.0.1:8501.evil.example", "http://evil.example/127.0.0.1:8501", "",
    "http://[", "http://127.0.0.1:8501@evil.example", "http://[::1]:8501", "127.0.0.1:8501",
]  # fmt: skip


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
    assert client.put("/upload", headers=headers).text == "done"
    answer = client.get("/upload").headers
    assert answer["x-content-type-options"] == "nosniff"
    assert answer["content-security-policy"] == "frame-ancestors 'self'"


@pytest.mark.parametrize("origin", FOREIGN)
def test_another_origin_gets_no_session_and_changes_nothing(client: TestClient, origin: str) -> None:
    headers = {"origin": origin}
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/stream", headers=headers):
        pytest.fail("a session was opened")
    for method in ("PUT", "GET"):
        refused = client.request(method, "/upload", headers=headers)
        assert refused.status_code == 403 and "--server.corsAllowedOrigins" in refused.text


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil@127.0.0.1", "127.0.0.1:x", "[", "127.0.0.1/x"]
)
def test_another_name_is_not_answered_whatever_the_method(client: TestClient, host: str) -> None:
    for method in ("PUT", "GET"):
        refused = client.request(method, "/upload", headers={"host": host})
        assert refused.status_code == 400 and "--server.allowedHosts" in refused.text


# --- addresses of pages ---------------------------------------------------------------------------


def test_a_page_says_where_the_server_is_and_has_its_style_from_the_first_frame() -> None:
    html = TestClient(Starlette(routes=[*page_addresses()])).get("/review").text
    # Before the client's own scripts, which read it when they are loaded; after the client's own styles.
    assert html.index("window.__streamlit = {BACKEND_BASE_URL") < html.index('<script type="module"')
    assert html.index("</head>") < html.index(STYLE.read_text("utf-8")) < html.index('id="root"')


@pytest.mark.parametrize("query", ["", "?page=01-letter&text=caf%C3%A9"])
def test_the_first_page_is_found_by_its_name(query: str) -> None:
    answer = TestClient(Starlette(routes=[*page_addresses()])).get(f"/compare{query}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, f"./{query}")
