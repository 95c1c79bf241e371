"""`folder:PATH`: what another program has left, as a backend that reads nothing anew."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsocr_core.backends.backend import Backend, OnWait
from dsocr_core.backends.left_behind import read_left_behind, text_result
from dsocr_core.base.errors import Cancelled
from dsocr_core.base.sanitise import name_text
from dsocr_core.base.specs.kinds import FolderSpec
from dsocr_core.page.documents import load_image
from dsocr_core.reading.fingerprints import file_of
from dsocr_core.reading.records import CancelToken, Observer, OcrRequest, OcrResult
from dsocr_core.runs.texts import FolderContents, TextMatcher, UnmatchedTexts
from dsocr_core.settings import Settings

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage


class FolderBackend(Backend):
    """The texts of a folder, given to pages by name. Thread-safe.

    It tells the text and nothing else: no tokens, no inputs, no times, not how the page ended.
    """

    def __init__(self, spec: FolderSpec, settings: Settings) -> None:
        super().__init__(spec, settings)
        self._target = spec.target
        self._lock = threading.Lock()
        self._texts: TextMatcher | None = None
        self._hash = ""

    def check(self) -> None:
        self._opened()

    def key(self, request: OcrRequest) -> str:
        self._opened()
        file = file_of(request)
        return hashlib.sha256(
            f"folder {self._hash} {request.name} {file and file.sha256}".encode()
        ).hexdigest()

    def read(
        self,
        request: OcrRequest,
        observer: Observer | None = None,
        cancel: CancelToken | None = None,
        on_wait: OnWait | None = None,
        prepared: PreparedPage | None = None,
    ) -> OcrResult:
        """The text that the folder has for a page. Raises DsocrError where there is none, Cancelled."""
        if cancel is not None and cancel.is_set():
            raise Cancelled
        max_pixels = self.settings.max_pixels
        picture = prepared.picture if prepared else load_image(request.image, max_pixels)
        found = self._opened().text_of(request.name)
        if observer is not None:
            observer.text(found.text)
        return text_result(self.name, request, picture.size, found, {"folder": name_text(found.file)})

    def close(self) -> None:
        with self._lock:
            self._texts = None

    def expect(self, pages: Sequence[str]) -> None:
        self._opened().expect(pages)

    def left_over(self) -> UnmatchedTexts:
        """List what of the folder no page has asked for."""
        return self._opened().unmatched()

    def _opened(self) -> TextMatcher:
        with self._lock:
            if self._texts is None:
                found = read_left_behind(self._target)
                self._texts, self._hash = TextMatcher(found), _hash(found)
            return self._texts


def _hash(found: FolderContents) -> str:
    """Hash everything that a page's text may be taken from."""
    whole = hashlib.sha256()
    for each in found.predictions:
        whole.update(f"{each.name}\0{len(each.text)}\0".encode("utf-8", "surrogateescape"))
        whole.update(each.text.encode("utf-8", "surrogateescape"))
    return whole.hexdigest()
