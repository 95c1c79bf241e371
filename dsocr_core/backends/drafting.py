"""Sources of drafts by the setting `draft` (`drafts.kinds`).

A source that has nothing for a page, or cannot read what it has, drafts nothing: the page is read as without.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from dsocr_core.backends.left_behind import read_left_behind
from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.drafts.text_layer import drafted
from dsocr_core.page.decode_pool import page_text
from dsocr_core.page.documents import pdf_page_of
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.runs.texts import TextMatcher
from dsocr_core.settings import Settings

MOST_CHARACTERS, MOST_TOKENS = 100_000, 16_384
"""Limits of a drafted text: more than a context holds."""

Encode = Callable[[str], list[int]]
log = logging.getLogger(__name__)


class Source:
    """Base of the sources."""

    own_text = False
    """True where the draft is what the page itself has said so far."""
    known_early = True
    """True where the draft is there before the page's turn."""

    def __init__(self, settings: Settings) -> None:
        self.name, self.settings = settings.draft, settings

    def tokens(self, request: OcrRequest, encode: Encode) -> tuple[int, ...]:
        """The tokens that the page may have; empty without a draft."""
        try:
            return self._tokens(request, encode)[:MOST_TOKENS]
        except (DsocrError, OSError) as error:
            log.warning("no draft for %s: %s", request.name, error)
            return ()

    def told(self, request: OcrRequest, other: OcrResult) -> None:
        """Hear what the other side of a comparison read on a page, before it is read."""

    def _tokens(self, request: OcrRequest, encode: Encode) -> tuple[int, ...]:
        return tuple(encode(self._text(request)[:MOST_CHARACTERS]))

    def _text(self, request: OcrRequest) -> str:
        raise NotImplementedError


class TextLayer(Source):
    """The text layer of the PDF that a page is of."""

    def _text(self, request: OcrRequest) -> str:
        page = pdf_page_of(request.image)
        return drafted(page_text(*page), "<|grounding|>" in request.required.prompt) if page else ""


class Lookup(Source):
    """The page's own text so far."""

    own_text, known_early = True, False

    def _tokens(self, request: OcrRequest, encode: Encode) -> tuple[int, ...]:
        return ()


class OtherSide(Source):
    """Draft of what A of a comparison read on the page."""

    known_early = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._read: dict[str, OcrResult] = {}

    def told(self, request: OcrRequest, other: OcrResult) -> None:
        self._read[request.name] = other

    def _tokens(self, request: OcrRequest, encode: Encode) -> tuple[int, ...]:
        other = self._read.pop(request.name, None)
        return () if other is None else _tokens_of(other, encode)


class Folder(Source):
    """Texts in a folder, or of a run directory, by the page's name."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._lock = threading.Lock()
        self._texts: TextMatcher | None = None

    def _text(self, request: OcrRequest) -> str:
        with self._lock:
            if self._texts is None:
                self._texts = TextMatcher(read_left_behind(self.name.partition(":")[2]))
        if not self._texts.has(request.name):
            return ""
        return self._texts.text_of(request.name).text


class RecordedRun(Source):
    """A run of the history: the tokens where its backend told them, else the text."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._lock = threading.Lock()
        self._read: dict[str, OcrResult] | None = None

    def _tokens(self, request: OcrRequest, encode: Encode) -> tuple[int, ...]:
        with self._lock:
            if self._read is None:
                self._read = self._results()
        result = self._read.get(request.name)
        return () if result is None else _tokens_of(result, encode)

    def _results(self) -> dict[str, OcrResult]:
        # DuckDB and pandas are loaded where they are needed.
        from dsocr_core.runs.history import SEED_LOCATION, History
        from dsocr_core.runs.results import readings

        with History(self.settings.history or SEED_LOCATION, SEED_LOCATION) as history:
            found = readings(history, self.name.partition(":")[2]).results
        # Our engine's reading before another's.
        order = sorted(found.items(), key=lambda item: item[0][1] in ("fast", "eager"))
        return {page: result for (page, _), result in order}


def _tokens_of(result: OcrResult, encode: Encode) -> tuple[int, ...]:
    """Its tokens where an engine of ours wrote them, else its text's."""
    if result.token_ids is not None and result.backend in ("eager", "fast"):
        return result.token_ids
    return tuple(encode(result.text_raw[:MOST_CHARACTERS]))


_SOURCES: dict[str, type[Source]] = {
    "text-layer": TextLayer, "run": RecordedRun, "folder": Folder, "a": OtherSide, "lookup": Lookup,
}  # fmt: skip


def drafts_of(settings: Settings) -> Source | None:
    """The source that the setting names; None without one."""
    return _SOURCES[settings.draft.partition(":")[0]](settings) if settings.draft else None
