"""Names of sides and backends on every page, and cells in words, never markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dsocr_core.reading.records import SIDES, VENDOR, BackendName, Side
from dsocr_core.runs.labels import short
from dsocr_core.settings import Settings

# --- sides and backends ---------------------------------------------------------------------------

_BACKENDS = {"eager": "eager, ours", "fast": "fast, ours", VENDOR: "vendor, published code"}


def backend_words(backend: BackendName) -> str:
    """A backend by its name and whose it is: "eager, ours"; another's by its name alone."""
    return _BACKENDS.get(backend) or short(backend, 40)


def first_of_ours(backends: Sequence[BackendName]) -> BackendName:
    """Choose what a page begins with: one of our engines where there is one, else the first."""
    return next((backend for backend in backends if backend != VENDOR), backends[0])


def side_letter(side: Side) -> str:
    """Name a side as tables and states do: A or B."""
    return side.upper()


def side_label(side: Side, backend: BackendName) -> str:
    """Name a side as over a pane: "A: eager, ours", "B: vendor, published code"."""
    return f"{side_letter(side)}: {backend_words(backend)}"


def side_labels(settings: Settings) -> dict[Side, str]:
    """The labels of both sides of a comparison under these settings."""
    return {side: side_label(side, settings.backend(side)) for side in SIDES}


# --- cells ----------------------------------------------------------------------------------------


def mark(text: str, most: int = 60) -> str:
    """Text for a chart, which reads HTML: shortened and escaped."""
    return escape(short(text, most))
