"""The process that listens."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dsocr_core.backends.on_device import engine_backend
from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.checkpoint import RANDOM_PREFIX
from dsocr_core.serve.app import LOOPBACK, build_app
from dsocr_core.serve.service import Service
from dsocr_core.settings import Settings

MOST_CONNECTIONS = 256
REQUEST_S = 20
"""In which a connection must have sent the head of a request."""


@dataclass(frozen=True)
class Place:
    """Address to listen at, and the names by which clients may ask for it besides those of this machine."""

    host: str
    port: int
    names: Sequence[str] = ()


class Patience(H11Protocol):
    """A connection that is closed when it asks for nothing: uvicorn waits for a first request for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_with: object = None
        self.loop.call_later(REQUEST_S, self._look)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._idle_with is self.cycle:
            self.transport.close()
            return
        self._idle_with = self.cycle if idle else self
        self.loop.call_later(REQUEST_S, self._look)


class Server(uvicorn.Server):
    """Ends what is read, and tells those who wait, before it waits for connections to end."""

    def __init__(self, service: Service, place: Place) -> None:
        self._service = service
        app = build_app(service, place.names, place.host not in LOOPBACK)
        super().__init__(
            uvicorn.Config(
                app,
                http=Patience,
                log_level="warning",
                access_log=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=2,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._service.close)
        await super().shutdown(sockets)


def serve(settings: Settings, place: Place, name: str, slots: int, on_ready: Callable[[str], None]) -> None:
    """Load the engine and answer until the process is told to end.

    `on_ready` gets the base address once connections are taken. Raises DsocrError.
    """
    listening = listen(place.host, place.port)
    with listening:
        backend = engine_backend(settings)
        service = Service(backend, name or model_name(settings), slots=slots)
        try:
            on_ready(address_of(listening))
            Server(service, place).run([listening])
        finally:
            service.close()
            service.clear()
            backend.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; 0 is any free port. Raises DsocrError."""
    try:
        return socket.create_server((host, port), backlog=128)
    except (OSError, OverflowError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise DsocrError(f"{host}:{port}: cannot listen there ({cause}); give another --port") from error


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{host}:{port}/v1"


def model_name(settings: Settings) -> str:
    """Give the name by which clients call the model: the checkpoint's folder."""
    return Path(settings.checkpoint.removeprefix(RANDOM_PREFIX)).resolve().name or "deepseek-ocr"
