"""What a reader of many pages takes and calls back: no torch, no triton."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dsocr_core.errors import DsocrError
from dsocr_core.records import OcrRequest, OcrResult

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage


@dataclass(frozen=True)
class Work:
    """A prepared page, and what its result is returned with."""

    key: object
    request: OcrRequest
    prepared: PreparedPage


class Source(Protocol):
    """Where prepared pages come from."""

    def take(self, timeout_s: float) -> Work | None:
        """The next page; None when none is ready within that time, or there are no more."""
        ...

    @property
    def exhausted(self) -> bool:
        """There are no more pages."""
        ...


OnResult = Callable[[object, OcrResult | DsocrError], None]
"""Called with a page's key and its result or error, on a thread of the reader, one page at a time."""
