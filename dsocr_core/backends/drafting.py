"""Sources of drafts by the setting `draft`."""

from __future__ import annotations

import logging

from dsocr_core.backends.folder import OpenedTexts
from dsocr_core.base.errors import DsocrError
from dsocr_core.page.prompt import Encode
from dsocr_core.reading.records import OcrRequest
from dsocr_core.settings import Settings

MOST_CHARACTERS, MOST_TOKENS = 100_000, 16_384
"""Limits of a drafted text: more than a context holds."""

log = logging.getLogger(__name__)


class DraftSource:
    """Source of drafts that one setting names. A page whose draft cannot be read has none."""

    def __init__(self, name: str) -> None:
        self.name, self.own_text = name, name == "lookup"
        self._texts = OpenedTexts(name.removeprefix("folder:"))

    def tokens(self, request: OcrRequest, encode: Encode) -> tuple[int, ...]:
        """Tokens that the page's text probably has; empty without a draft."""
        text: str | None = None
        try:
            if not self.own_text and (texts := self._texts.opened()).has(request.name):
                text = texts.text_of(request.name).text
        except (DsocrError, OSError) as error:
            log.warning("no draft for %s: %s", request.name, error)
        return tuple(encode(text[:MOST_CHARACTERS]))[:MOST_TOKENS] if text else ()


def drafts_of(settings: Settings) -> DraftSource | None:
    """The source that the setting `draft` names; None where it names none."""
    return DraftSource(settings.draft) if settings.draft else None
