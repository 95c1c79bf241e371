"""The process that listens."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from dsocr_core.backends.on_device import engine_backend
from dsocr_core.engine.checkpoint import RANDOM_PREFIX
from dsocr_core.errors import DsocrError
from dsocr_core.serve.app import build_app
from dsocr_core.serve.service import Service
from dsocr_core.settings import Settings

LOOPBACK = ("127.0.0.1", "localhost")


def serve(
    settings: Settings, host: str, port: int, name: str, slots: int, on_ready: Callable[[str], None]
) -> None:
    """Load the engine and answer until the process is told to end.

    `on_ready` gets the base address once connections are taken. Raises DsocrError.
    """
    listening = listen(host, port)
    with listening:
        backend = engine_backend(settings)
        service = Service(backend, name or model_name(settings), slots=slots)
        try:
            hosts = LOOPBACK if host in LOOPBACK else ("*",)
            config = uvicorn.Config(
                build_app(service, hosts), log_level="warning", access_log=False, timeout_graceful_shutdown=2
            )
            on_ready(address_of(listening))
            uvicorn.Server(config).run([listening])
        finally:
            service.close()
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
    """What clients call the model: the checkpoint's folder."""
    return Path(settings.checkpoint.removeprefix(RANDOM_PREFIX)).resolve().name or "deepseek-ocr"
