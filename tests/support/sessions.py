"""Sessions over stand-ins for our engine and for the published code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dsocr_core.backends.backend import Opening
from dsocr_core.engine.page import PreparedPage
from dsocr_core.models.family import FIRST
from dsocr_core.page.preprocess import PreparedImage
from dsocr_core.read.session import Session
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.settings import Settings
from tests.support.results import make_result


class StandIn:
    """Reads a text that names the page, after what `act` does with its request."""

    options = SimpleNamespace(drafts=None)
    checkpoint = SimpleNamespace(model=SimpleNamespace(family=FIRST))

    def __init__(self, backend: str = "eager", act: Callable[[OcrRequest], None] = lambda _: None) -> None:
        self.backend, self.act = backend, act
        self.read: list[str] = []

    def prepare(self, _: OcrRequest, opened: PreparedPage) -> PreparedPage:
        image = PreparedImage(None, None, (1, 1), opened.picture.size)  # type: ignore[arg-type]
        return replace(opened, image=image, hashes=("", ""))

    def recognize(self, request: OcrRequest, *_: Any, **__: Any) -> OcrResult:
        self.act(request)
        self.read.append(request.name)
        text = f"<|ref|>title<|/ref|><|det|>[[100, 100, 500, 200]]<|/det|>\n# {request.name}\n"
        return replace(make_result(text, self.backend), request=request)

    def check(self) -> None: ...

    def close(self) -> None: ...


def session_of(
    settings: Settings, results: Path, engine: Any = None, vendor: Any = None, **more: Any
) -> Session:
    """With the stand-ins in the place of what would be loaded; `more` are fields of `Opening`."""
    session = Session(settings, Opening(results, **more))
    if engine is not None:
        session.side("a")._engine = engine  # type: ignore[attr-defined]
    if vendor is not None:
        session.side("b")._vendor = vendor  # type: ignore[attr-defined]
    return session
