"""Temporary directories of commands."""

from __future__ import annotations

import tempfile


class Temporary(tempfile.TemporaryDirectory[str]):
    """A temporary directory whose name says for what it is."""

    def __init__(self, what: str) -> None:
        super().__init__(prefix=f"dsocr-{what}-", ignore_cleanup_errors=True)
