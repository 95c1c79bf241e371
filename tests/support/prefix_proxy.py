"""A proxy that serves an app under a prefix, as nginx, jupyter-server-proxy and code-server do."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

PREFIX = "/tools/dash"


def forward(server: socket.socket, port: int) -> None:
    """Pass on what comes in to the app at `port`, without the prefix, until the socket is closed."""

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
            app.sendall(_rewritten(head, port) + b"\r\n\r\n" + rest)
            back = threading.Thread(target=_copy, args=(app, client), daemon=True)
            back.start()
            _copy(client, app)
            back.join()

    threading.Thread(target=accept, daemon=True).start()


def _rewritten(head: bytes, port: int) -> bytes:
    """The head of a request as the app gets it; of a plain one the connection ends with its answer."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, version = first.split(" ")
    path = (path.removeprefix(PREFIX) or "/") if path.startswith(PREFIX) else "/outside-of-the-prefix"
    lines = [f"Host: 127.0.0.1:{port}" if line.lower().startswith("host:") else line for line in lines]
    if not any(line.lower().startswith("upgrade:") for line in lines):
        lines = [line for line in lines if not line.lower().startswith("connection:")] + ["Connection: close"]
    return "\r\n".join([f"{method} {path} {version}", *lines]).encode("latin-1")


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
