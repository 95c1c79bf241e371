"""A page, and its reading by a scripted server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dsocr_core.backends.endpoint import Endpoint
from dsocr_core.reading.records import OcrResult
from dsocr_core.settings import Settings
from tests.backends.endpoint.scripted_server import Script, ScriptedServer, scripted_server

Ask = Callable[..., tuple[OcrResult, ScriptedServer]]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.new("RGB", (40, 30), "white").save(path)
    return path


def endpoint_of(server: ScriptedServer, run: Any = None, **given: Any) -> Endpoint:
    """The backend of a server with a side's settings; `run` are those of the run."""
    settings = Settings(device="cpu", b={"spec": f"endpoint:{server.address}", **given}, **(run or {}))
    return Endpoint(settings.spec("b"), settings.of_side("b"))


@pytest.fixture
def ask(page: Path) -> Ask:
    """The result of a page and the server, which answers by scripts."""

    def asked(
        *scripts: Script, image: Path = page, models: Any = None, heard: Any = None, **given: Any
    ) -> tuple[OcrResult, ScriptedServer]:
        with scripted_server(*scripts, models=models) as server:
            backend = endpoint_of(server, **({"model": "m"} | given))
            backend.check()
            return backend.read(backend.settings.request(image), heard), server

    return asked
