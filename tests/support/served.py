"""`dsocr serve` in this process: the real application on a free port, over a reader of the test's own."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from dsocr_core.backends.on_device import engine_backend
from dsocr_core.reading.markup import END_MARKER
from dsocr_core.reading.records import OcrResult
from dsocr_core.serve.readers import Job, PageReader
from dsocr_core.serve.server import Place, Server, address_of, listen
from dsocr_core.serve.service import Service
from dsocr_core.settings import Settings
from tests.support.results import make_result


class HeldReader:
    """Keeps what is asked for until the test lets it end."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.came = threading.Semaphore(0)

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self.came.release()

    def next(self) -> Job:
        """The next job, once it is there."""
        assert self.came.acquire(timeout=30)
        return self.jobs[-1]

    def close(self) -> None:
        pass


TEXT = "<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\n# Hello"


def result_of(job: Job, text: str = TEXT) -> OcrResult:
    return replace(make_result(text + END_MARKER, token_ids=(5, 6, 1)), request=job.request)


class Answering(HeldReader):
    """Answers every job at once, its text in pieces."""

    def submit(self, job: Job) -> None:
        super().submit(job)
        job.on_begin()
        for piece in ("<|ref|>title<|/ref|>", "<|det|>[[1, 2, 3, 4]]<|/det|>", "\n# Hello", END_MARKER):
            job.observer.text(piece)
        job.on_end(result_of(job))


@dataclass
class Served:
    address: str
    service: Service
    client: httpx.Client

    def post(self, body: Any, **more: Any) -> httpx.Response:
        return self.client.post("/chat/completions", json=body, **more)

    def get(self, path: str) -> httpx.Response:
        return self.client.get(self.address.removesuffix("/v1") + path)


@contextmanager
def served(settings: Settings, reader: PageReader | None = None, name: str = "mini") -> Iterator[Served]:
    """The server until the block ends; with a `reader` no model is loaded."""
    local = engine_backend(settings)
    service = Service(local, name, reader)
    listening = listen("127.0.0.1", 0)
    server = Server(service, Place("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    address = address_of(listening)
    client = httpx.Client(base_url=address, trust_env=False, timeout=60)
    try:
        yield Served(address, service, client)
    finally:
        server.should_exit = True
        thread.join(30)
        client.close()
        service.clear()
        local.close()
        listening.close()


def body_for(image: Path | bytes, text: str = "Free OCR.", **more: Any) -> dict[str, Any]:
    """A chat completion about an image."""
    content = image if isinstance(image, bytes) else image.read_bytes()
    url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
    return {"model": "mini", "messages": [{"role": "user", "content": parts}], **more}
