"""The protocol of backends: engines, published code, servers, programs, folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.base.errors import Cancelled
from dsocr_core.base.specs import BackendSpec, Kind
from dsocr_core.engine.source import OnResult, Source
from dsocr_core.page.documents import load_image
from dsocr_core.reading.fingerprints import files_of, result_key
from dsocr_core.reading.records import CancelToken, Observer, OcrRequest, OcrResult
from dsocr_core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage
    from dsocr_core.engine.stage_timer import Marks

OnWait = Callable[[str], None]
"""Callback that is given, in words, what a backend waits for."""


@dataclass(frozen=True)
class Opening:
    """Options of opening a backend, beside its specification and its settings.

    `results` is the directory of the result cache, None the default one. `stores` false writes no result
    there. `caches` false leaves out what only the cache needs: the two best logits of each step. Benchmarks
    set `marks` (NVTX ranges alone, in place of times) and `ignore_eos` (decode to the token limit).
    """

    results: Path | None = None
    marks: Marks | None = None
    ignore_eos: bool = False
    caches: bool = True
    stores: bool = True

    @property
    def cached(self) -> bool:
        """True where results may be cached: read with times, and up to the end token."""
        timed = self.marks is None or self.marks.name == "TIMED"
        return self.caches and timed and not self.ignore_eos


@dataclass(frozen=True)
class PageRead:
    """One page to read, with its observer, cancel token and prepared pixels."""

    request: OcrRequest
    observer: Observer | None = None
    cancel: CancelToken | None = None
    on_wait: OnWait | None = None
    prepared: PreparedPage | None = None

    def size(self, max_pixels: int) -> tuple[int, int]:
        """(width, height) of the upright page, opened here if it was not prepared. Raises DsocrError."""
        return (self.prepared.picture if self.prepared else load_image(self.request.image, max_pixels)).size

    def say(self, text: str) -> None:
        if self.observer is not None:
            self.observer.text(text)


class Backend:
    """Reader of pages, made by `open_backend`. Thread-safe. A model is loaded at first use and stays.

    What a backend does not know of a page is None in its result (docs/decisions.md, 1). It stops within a
    second of `cancel`.
    """

    concurrency = 1
    """Pages that may be read at the same time, each on a thread of the caller."""
    reads_together = False
    """True where several pages may stand in one prompt, if the model takes them."""
    reads_many = False
    """True where `read_many` is implemented."""

    def __init__(self, spec: BackendSpec, settings: Settings) -> None:
        """`settings` are those of this backend. No two backends of a run have the same `spec.name`."""
        self.name, self.spec, self.settings = spec.name, spec, settings

    def check(self, together: bool = False) -> None:
        """Raise DsocrError for a fault of every page. With `together` they are read in one prompt."""
        if together:
            if not self.reads_together:
                raise SettingsError(f"{self.name} reads one page a prompt: leave --pages-together out")
            self.settings.request(Path(), more=())

    def load(self) -> None:
        """Prepare for the first page: load a model, or ask a server for its name. Raises DsocrError."""
        self.check()

    def cache_key(self, request: OcrRequest) -> str:
        """Hash of all that is known to decide the result of a page. Raises DsocrError."""
        file = files_of(request)[0]
        facts = {"backend": self.spec.kind, "target": self.spec.target, "page": request.name}
        return result_key(facts | {"image": file and file.sha256})

    def prepare(self, request: OcrRequest, opened: PreparedPage | None = None) -> PreparedPage | None:
        """Preprocess a page before its turn, on any thread, if the backend can. Raises DsocrError."""
        return opened

    def read(
        self, request: OcrRequest, observer: Observer | None = None, cancel: CancelToken | None = None,
        on_wait: OnWait | None = None, prepared: PreparedPage | None = None,
    ) -> OcrResult:  # fmt: skip
        """Read one page. `prepared` is its opened picture, or what `prepare` returned for it.

        Raises DsocrError for a page that cannot be read, Cancelled when `cancel` is set.
        """
        if cancel is not None and cancel.is_set():
            raise Cancelled
        return self.read_page(PageRead(request, observer, cancel, on_wait, prepared))

    def read_page(self, page: PageRead) -> OcrResult:
        raise NotImplementedError

    def read_many(
        self, source: Source, on_result: OnResult, slots: int, cancel: CancelToken | None = None
    ) -> None:
        """Read all pages of a source, at most `slots` at once. They end in any order.

        Raises DsocrError for what concerns all pages, Cancelled when `cancel` is set.
        """
        raise NotImplementedError

    def expect(self, pages: Sequence[str]) -> None:
        """Take the names of all pages of a run before the first is read. Raises DsocrError."""

    def left_over(self) -> Mapping[str, Sequence[str]]:
        """Texts that no page has asked for, by kind; empty for backends without texts of their own."""
        return {}

    def close(self) -> None:
        """End processes and connections and free memory. Reading another page starts them again."""


BACKENDS: dict[Kind, tuple[str, str]] = {
    "eager": ("on_device", "EngineBackend"),
    "fast": ("on_device", "EngineBackend"),
    "vendor": ("on_device", "PublishedBackend"),
    "endpoint": ("endpoint", "Endpoint"),
    "command": ("command", "CommandBackend"),
    "folder": ("folder", "FolderBackend"),
}
"""Module and class of each kind. They are imported when a backend is opened: some import torch."""


def open_backend(spec: BackendSpec, settings: Settings, opening: Opening | None = None) -> Backend:
    """Make the backend of a specification under a run's settings, without loading it. Raises DsocrError."""
    module, name = BACKENDS[spec.kind]
    more = (opening or Opening(),) if module == "on_device" else ()
    kind = getattr(import_module(f"dsocr_core.backends.{module}"), name)
    backend: Backend = kind(spec, settings.of_spec(spec), *more)
    return backend
