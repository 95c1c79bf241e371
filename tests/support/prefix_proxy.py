"""A proxy that serves an app under a prefix, as nginx, jupyter-server-proxy and code-server do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PREFIX = "/tools/dash"


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket whose port is known before what stands behind it is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def forward(server: socket.socket, port: int, strips: bool, keeps_host: bool) -> None:
    """Pass on what comes in to the app at `port` until the socket is closed; `strips`: no prefix."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=pass_on, args=(client,), daemon=True).start()

    def pass_on(client: socket.socket) -> None:
        with client, suppress(OSError, ValueError), socket.create_connection(("127.0.0.1", port)) as app:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (part := client.recv(65536)):
                    return
                head += part
            head, _, rest = head.partition(b"\r\n\r\n")
            app.sendall(_rewritten(head, port, strips, keeps_host) + b"\r\n\r\n" + rest)
            back = threading.Thread(target=_copy, args=(app, client), daemon=True)
            back.start()
            _copy(client, app)
            back.join()

    threading.Thread(target=accept, daemon=True).start()


def _rewritten(head: bytes, port: int, strips: bool, keeps_host: bool) -> bytes:
    """The head of a request as the app gets it; of a plain one the connection ends with its answer."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, version = first.split(" ")
    if not path.startswith(PREFIX):
        path = "/outside-of-the-prefix"
    elif strips:
        path = path.removeprefix(PREFIX) or "/"
    if not keeps_host:
        lines = [f"Host: 127.0.0.1:{port}" if line.lower().startswith("host:") else line for line in lines]
    if not any(line.lower().startswith("upgrade:") for line in lines):
        lines = [line for line in lines if not line.lower().startswith("connection:")] + ["Connection: close"]
    return "\r\n".join([f"{method} {path} {version}", *lines]).encode("latin-1")


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
