"""Sessions over stand-ins for our engine and for the published code."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dsocr_core.backends.backend import Opening
from dsocr_core.models.family import FIRST
from dsocr_core.read.session import Session
from dsocr_core.settings import Settings


def session_of(
    settings: Settings, results: Path, engine: Any = None, vendor: Any = None, **more: Any
) -> Session:
    """With the stand-ins in the place of what would be loaded; `more` are fields of `Opening`."""
    session = Session(settings, Opening(results, **more))
    if engine is not None:
        engine.options = SimpleNamespace(drafts=None)
        engine.checkpoint = SimpleNamespace(model=SimpleNamespace(family=FIRST))
        session.side("a")._engine = engine  # type: ignore[attr-defined]
    if vendor is not None:
        session.side("b")._vendor = vendor  # type: ignore[attr-defined]
    return session
