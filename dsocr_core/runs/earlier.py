"""Times of the page in earlier runs on this machine: how long a run will take, and what is left of it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import duckdb

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.words import duration
from dsocr_core.reading.records import OcrRequest
from dsocr_core.runs.record import checkpoint_in_any_clone
from dsocr_core.runs.store import History
from dsocr_core.settings import Settings


@dataclass(frozen=True)
class Earlier:
    """Readings of one page by one backend: how many, and their times in milliseconds."""

    n: int
    median_ms: float
    low_ms: float
    high_ms: float


def readings(history: Callable[[], History], settings: Settings, request: OcrRequest) -> dict[str, Earlier]:
    """By backend, under the same preset and checkpoint, and number type where one is chosen.

    A history that does not answer tells nothing here: the pages that are about it say why.
    """
    try:
        rows, _ = history().query(
            "earlier_readings", page=request.name, host=platform.node(), preset=request.preset,
            checkpoint=checkpoint_in_any_clone(settings.checkpoint),
            dtype=None if settings.dtype == "auto" else settings.dtype,
        )  # fmt: skip
    except (DsocrError, duckdb.Error):
        return {}
    return {
        str(row["backend"]): Earlier(int(row["n"]), row["page_ms"], row["low_ms"], row["high_ms"])
        for row in rows.to_dict("records")
    }


def words(found: Mapping[str, Earlier]) -> str:
    """ "Here this page took: eager 2.61 s (2.58 – 2.90, n = 3), vendor 5.20 s (n = 1)"; "" without any."""
    parts = [f"{backend} {duration(one.median_ms)} ({_spread(one)})" for backend, one in found.items()]
    return f"Here this page took: {', '.join(parts)}." if parts else ""


def _spread(one: Earlier) -> str:
    if one.n == 1:
        return "n = 1"
    return f"{duration(one.low_ms)} – {duration(one.high_ms)}, n = {one.n}"


def left_words(one: Earlier | None, seconds: float) -> str:
    """Say how much of a run is left when it takes as long as earlier ones; "" where these tell nothing."""
    if one is None or 1000 * seconds >= one.median_ms:
        return ""
    return f"about {duration(one.median_ms - 1000 * seconds)} left, by earlier runs"
