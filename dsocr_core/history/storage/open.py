"""A storage by its path or URL."""

from __future__ import annotations

from pathlib import Path

from dsocr_core.history.storage.base import Place
from dsocr_core.history.storage.local import LocalPlace


def open_place(location: str | Path) -> Place:
    """A place by path or URL (`s3://bucket/history`). Raises PlaceError when its scheme is not known."""
    text = str(location)
    if "://" not in text:
        return LocalPlace(Path(text))
    if text.startswith("file://"):
        return LocalPlace(Path(text.removeprefix("file://")))
    from dsocr_core.history.storage.remote import RemotePlace

    return RemotePlace(text)
