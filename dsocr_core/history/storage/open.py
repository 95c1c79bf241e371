"""A storage by its path or URL."""

from __future__ import annotations

from pathlib import Path

from dsocr_core.history.storage.base import Storage
from dsocr_core.history.storage.local import LocalStorage


def open_storage(location: str | Path) -> Storage:
    """A storage by path or URL (`s3://bucket/history`). Raises StorageError for another scheme."""
    text = str(location)
    if "://" not in text:
        return LocalStorage(Path(text))
    if text.startswith("file://"):
        return LocalStorage(Path(text.removeprefix("file://")))
    from dsocr_core.history.storage.remote import RemoteStorage

    return RemoteStorage(text)
