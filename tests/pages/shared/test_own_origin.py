"""Who may connect to the app: held to the rule of browsers, an origin is scheme, host and port."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect
from streamlit import config

from pages.widgets.shared.own_origin import OwnOrigin

FOREIGN = [
    "http://127.0.0.1:9999", "http://127.0.0.1", "http://localhost:8501", "https://evil.example", "null",
    "http://127.0.0.1:8501.evil.example", "http://evil.example/127.0.0.1:8501", "",
    "http://[", "http://127.0.0.1:8501@evil.example", "http://[::1]:8501", "127.0.0.1:8501",
]  # fmt: skip


async def _answer(_: Request) -> PlainTextResponse:
    return PlainTextResponse("done")


async def _session(socket: WebSocket) -> None:
    await socket.accept()
    await socket.close()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    options = {"server.allowedHosts": ["127.0.0.1"], "server.corsAllowedOrigins": ["https://ocr.example.org"]}
    monkeypatch.setattr(config, "get_option", options.__getitem__)
    routes = [Route("/upload", _answer, methods=["GET", "PUT"]), WebSocketRoute("/stream", _session)]
    app = Starlette(routes=routes, middleware=[Middleware(OwnOrigin)])
    return TestClient(app, base_url="http://127.0.0.1:8501")


def _headers(origin: str | None) -> dict[str, str]:
    return {} if origin is None else {"origin": origin}


@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:8501"])
def test_the_apps_own_pages_and_programs_connect(client: TestClient, origin: str | None) -> None:
    with client.websocket_connect("ws://127.0.0.1:8501/stream", headers=_headers(origin)):
        pass
    assert client.put("/upload", headers=_headers(origin)).text == "done"


@pytest.mark.parametrize("origin", FOREIGN)
def test_another_origin_gets_no_session_and_changes_nothing(client: TestClient, origin: str) -> None:
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect("ws://127.0.0.1:8501/stream", headers=_headers(origin)),
    ):
        pytest.fail("a session was opened")
    for method in ("PUT", "GET"):
        assert client.request(method, "/upload", headers=_headers(origin)).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil@127.0.0.1", "127.0.0.1:x", "[", "127.0.0.1/x"]
)
def test_another_name_is_not_answered_whatever_the_method(client: TestClient, host: str) -> None:
    for method in ("PUT", "GET"):
        assert client.request(method, "/upload", headers={"host": host}).status_code == 400


@pytest.mark.parametrize("origin", ["null", "", "file://"])
def test_without_a_host_no_origin_is_the_apps_own(client: TestClient, origin: str) -> None:
    assert client.put("/upload", headers={"origin": origin, "host": ""}).status_code == 400


def test_an_origin_of_the_settings_is_let_in(client: TestClient) -> None:
    assert client.put("/upload", headers=_headers("https://ocr.example.org")).text == "done"


def test_every_answer_forbids_frames_and_guessed_types(client: TestClient) -> None:
    headers = client.get("/upload").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "frame-ancestors 'self'"
