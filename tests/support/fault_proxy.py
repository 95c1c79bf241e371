"""An object store that fails as a script says: a proxy before a test S3 server."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["refuse", "cut upload", "lose answer", "slow"] | None
_DROPPED = {"connection", "transfer-encoding", "keep-alive", "content-length", "expect"}


@dataclass
class FaultProxy:
    """`decide(method, path, number)` says what becomes of a request, by its number among all."""

    address: str
    decide: Callable[[str, str, int], Fault]
    faults: dict[str, int] = field(default_factory=dict)
    requests: int = 0


def _passed(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _DROPPED]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client has gone
            self.close_connection = True

    def _pass_on(self) -> None:
        proxy = self.server.proxy
        with self.server.lock:
            proxy.requests += 1
            fault = proxy.decide(self.command, self.path, proxy.requests)
            if fault is not None:
                proxy.faults[fault] = proxy.faults.get(fault, 0) + 1
        length = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if fault == "cut upload" and length:
            self.rfile.read(length // 2)
            self._cut()
            return
        body = self.rfile.read(length)
        if fault in ("refuse", "cut upload"):
            self._answer(503, [], b"<Error><Code>SlowDown</Code><Message>refused</Message></Error>")
            return
        if fault == "slow":
            threading.Event().wait(0.3)
        behind = http.client.HTTPConnection(*self.server.behind, timeout=60)
        headers = dict(_passed(self.headers.items())) | {"Content-Length": str(len(body))}
        behind.request(self.command, self.path, body, headers)
        answer = behind.getresponse()
        content = answer.read()
        behind.close()
        if fault == "lose answer":
            self._cut()
            return
        sent = _passed(answer.getheaders())
        if self.command == "HEAD":
            sent.append(("Content-Length", answer.getheader("Content-Length") or "0"))
        self._answer(answer.status, sent, content)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind, self.lock = (host, port), threading.Lock()
        address = f"http://127.0.0.1:{self.server_address[1]}"
        self.proxy = FaultProxy(address, lambda method, path, number: None)


@contextmanager
def fault_proxy(host: str, port: int) -> Iterator[FaultProxy]:
    """Listens on a free port until the block ends; faultless until `decide` is set."""
    server = _Server(host, port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
