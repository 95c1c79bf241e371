"""Sources of drafts by the setting `draft`."""

from __future__ import annotations

import functools
import logging
import threading

from dsocr_core.backends.folder import read_texts
from dsocr_core.base.errors import DsocrError
from dsocr_core.page.prompt import Encode
from dsocr_core.reading.records import OcrRequest
from dsocr_core.runs.texts import TextMatcher
from dsocr_core.settings import Settings

MOST_CHARACTERS, MOST_TOKENS = 100_000, 16_384
"""Limits of a drafted text: more than a context holds."""

log = logging.getLogger(__name__)


class DraftSource:
    """Source of drafts that one setting names. A page whose draft cannot be read has none."""

    def __init__(self, name: str) -> None:
        self.name, self.own_text, self._opening = name, name == "lookup", threading.Lock()

    def tokens(self, request: OcrRequest, encode: Encode) -> tuple[int, ...]:
        """Tokens that the page's text probably has; empty without a draft."""
        text: str | None = None
        try:
            with self._opening:  # from Python 3.12 on each thread that prepares pages would read it
                folder = None if self.own_text else self._folder
            if folder is not None and folder.has(request.name):
                text = folder.text_of(request.name).text
        except (DsocrError, OSError) as error:
            log.warning("no draft for %s: %s", request.name, error)
        return tuple(encode(text[:MOST_CHARACTERS]))[:MOST_TOKENS] if text else ()

    @functools.cached_property
    def _folder(self) -> TextMatcher:
        return read_texts(self.name.removeprefix("folder:"))


def drafts_of(settings: Settings) -> DraftSource | None:
    """The source that the setting `draft` names; None where it names none."""
    return DraftSource(settings.draft) if settings.draft else None
