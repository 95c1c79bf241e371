"""`folder:PATH`: texts of other programs, or of a run of ours, as a backend without a model."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from dsocr_core.backends.backend import Backend, PageRead
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import name_text
from dsocr_core.base.specs import BackendSpec
from dsocr_core.reading.fingerprints import result_key
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.runs.texts import Prediction, TextMatcher, read_folder
from dsocr_core.settings import Settings


class OpenedTexts:
    """Texts of a folder or run, read once, by the first thread that asks for them."""

    def __init__(self, target: str) -> None:
        self._target, self._lock = target, threading.Lock()
        self._texts: TextMatcher | None = None

    def opened(self) -> TextMatcher:
        """The texts. Raises DsocrError where they cannot be read."""
        with self._lock:
            self._texts = self._texts or read_texts(self._target)
            return self._texts

    def close(self) -> None:
        """Forget them; they are read anew when somebody asks."""
        with self._lock:
            self._texts = None


class FolderBackend(Backend):
    """Texts of a folder, found for pages by name. Thread-safe."""

    def __init__(self, spec: BackendSpec, settings: Settings) -> None:
        super().__init__(spec, settings)
        self._texts = OpenedTexts(spec.target)

    def check(self, together: bool = False) -> None:
        super().check(together)
        self._texts.opened()

    def cache_key(self, request: OcrRequest) -> str:
        texts = self._texts.opened()
        text = texts.text_of(request.name).text if texts.has(request.name) else None
        return result_key({"text": text, "of": super().cache_key(request)})

    def read_page(self, page: PageRead) -> OcrResult:
        """The text that the folder has for a page. Raises DsocrError where there is none."""
        size = page.size(self.settings.max_pixels)
        found = self._texts.opened().text_of(page.request.name)
        page.say(found.text)
        return text_result(self.name, page.request, size, found, {"folder": name_text(found.file)})

    def close(self) -> None:
        self._texts.close()

    def expect(self, pages: Sequence[str]) -> None:
        self._texts.opened().expect(pages)

    def left_over(self) -> Mapping[str, Sequence[str]]:
        """List the texts of the folder that no page has asked for."""
        return self._texts.opened().left_over()


def text_result(
    backend: str, request: OcrRequest, size: tuple[int, int], found: Prediction, source: Mapping[str, str]
) -> OcrResult:
    """Make a text the result of a page of `size` (width, height). `source` says where it was found."""
    return OcrResult(
        backend=backend, request=request, image_size=size, text_raw=found.text, token_ids=None,
        token_texts=(), finish_reason=None, inputs=None, timings=(),
        environment=dict(source), boxes_known=found.has_markup,
    )  # fmt: skip


def read_texts(target: str) -> TextMatcher:
    """Read the texts of a folder or of a run (`RUN#BACKEND` where it has several). Raises DsocrError."""
    # Imported here: only a folder that is a run needs DuckDB.
    from dsocr_core.runs.importers.own_run import is_own_run
    from dsocr_core.runs.results import readings_in

    path, backend = Path(target).expanduser(), ""
    if not path.exists() and "#" in target:
        name, _, backend = target.rpartition("#")
        path = Path(name).expanduser()
    shown = name_text(path)
    if not path.is_dir() or not is_own_run(path):
        if backend:
            raise DsocrError(f"{shown}: is no run of ours; leave out what follows the '#'")
        return read_folder(path)
    try:
        run = readings_in(path)
    except DsocrError as error:
        raise DsocrError(f"{shown}: {error}") from error
    texts: dict[str, list[Prediction]] = {}
    for (page, named), result in run.results.items():
        texts.setdefault(named or result.backend, []).append(Prediction(page, result.text_raw, path))
    if not texts:
        raise DsocrError(f"{shown}: the run has no text of a page")
    writers = sorted(texts)
    if backend not in texts and (backend or len(writers) > 1):
        words = f"has results of {' and '.join(writers)}; name one, like {shown}#{writers[0]}"
        raise DsocrError(f"{shown}: {words}")
    skipped = [f"{name_text(page)}: no text of {writer or 'any backend'}" for page, writer in run.failures]
    return TextMatcher(path, texts[backend or writers[0]], skipped)
