"""Sources of drafts by the setting `draft` (`drafts.kinds`)."""

from __future__ import annotations

import functools
import logging

from dsocr_core.backends.folder import read_texts
from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.drafts.text_layer import drafted
from dsocr_core.page.decode_pool import page_text
from dsocr_core.page.documents import pdf_page_of
from dsocr_core.page.inputs import Encode
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.runs.texts import TextMatcher
from dsocr_core.settings import Settings

MOST_CHARACTERS, MOST_TOKENS = 100_000, 16_384
"""Limits of a drafted text: more than a context holds."""

log = logging.getLogger(__name__)


class DraftSource:
    """Drafts of pages by one setting.

    Where it has nothing for a page, or cannot read what it has, it drafts nothing: the page is read as
    without.
    """

    def __init__(self, settings: Settings) -> None:
        self.name, self.settings = settings.draft, settings
        self.kind, _, self._target = self.name.partition(":")
        self.own_text = self.kind == "lookup"
        """Flag: the draft is what the page itself has said so far."""
        self.known_early = self.kind not in ("lookup", "a")
        """Flag: the draft is there before the page's turn."""
        self._read_as_a: dict[str, OcrResult] = {}

    def told(self, request: OcrRequest, other: OcrResult) -> None:
        """Hear what A of a comparison read on a page, before it is read."""
        if self.kind == "a":
            self._read_as_a[request.name] = other

    def tokens(self, request: OcrRequest, encode: Encode) -> tuple[int, ...]:
        """The tokens that the page may have; empty without a draft."""
        try:
            found = self._draft(request)
        except (DsocrError, OSError) as error:
            log.warning("no draft for %s: %s", request.name, error)
            return ()
        if isinstance(found, OcrResult):
            # The tokens where an engine of ours wrote them, else the text's.
            if found.token_ids is not None and found.backend in ("eager", "fast"):
                return found.token_ids[:MOST_TOKENS]
            found = found.text_raw
        return tuple(encode(found[:MOST_CHARACTERS]))[:MOST_TOKENS] if found else ()

    def _draft(self, request: OcrRequest) -> OcrResult | str | None:
        if self.kind == "text-layer":
            page = pdf_page_of(request.image)
            return drafted(page_text(*page), "<|grounding|>" in request.required.prompt) if page else None
        if self.kind == "folder":
            return self._folder.text_of(request.name).text if self._folder.has(request.name) else None
        if self.kind == "run":
            return self._run.get(request.name)
        return self._read_as_a.pop(request.name, None)

    @functools.cached_property
    def _folder(self) -> TextMatcher:
        return TextMatcher(read_texts(self._target))

    @functools.cached_property
    def _run(self) -> dict[str, OcrResult]:
        # DuckDB and pandas are loaded where they are needed.
        from dsocr_core.runs.history import SEED_LOCATION, History
        from dsocr_core.runs.results import readings

        with History(self.settings.history or SEED_LOCATION, SEED_LOCATION) as history:
            found = readings(history, self._target).results
        # Our engine's reading before another's.
        order = sorted(found.items(), key=lambda item: item[0][1] in ("fast", "eager"))
        return {page: result for (page, _), result in order}


def drafts_of(settings: Settings) -> DraftSource | None:
    """The source that the setting names; None without one."""
    return DraftSource(settings) if settings.draft else None
