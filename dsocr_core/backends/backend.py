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
from dsocr_core.reading.fingerprints import file_of, result_key
from dsocr_core.reading.records import CancelToken, Observer, OcrRequest, OcrResult
from dsocr_core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage
    from dsocr_core.engine.stage_timer import Marks

OnWait = Callable[[str], None]
"""Called with what a backend waits for, in words."""


@dataclass(frozen=True)
class Opening:
    """Options of opening a backend, beside its specification and its settings.

    `results` is the directory of the result cache, None the usual one; without `stores` nothing is put there,
    and without `caches` a result lacks what only the cache needs, the two best logits of each step. For
    measuring our engines leave other `marks` than times, and with `ignore_eos` decode on to the token limit.
    """

    results: Path | None = None
    marks: Marks | None = None
    ignore_eos: bool = False
    caches: bool = True
    stores: bool = True

    @property
    def cached(self) -> bool:
        """True for results of the usual reading: with their times, and up to the end token."""
        timed = self.marks is None or self.marks.name == "TIMED"
        return self.caches and timed and not self.ignore_eos


@dataclass(frozen=True)
class PageRead:
    """One page to read, and who watches, cancels and prepared it."""

    request: OcrRequest
    observer: Observer | None = None
    cancel: CancelToken | None = None
    on_wait: OnWait | None = None
    prepared: PreparedPage | None = None

    def size(self, max_pixels: int) -> tuple[int, int]:
        """Its (width, height), upright; opened here where it was not prepared. Raises DsocrError."""
        return (self.prepared.picture if self.prepared else load_image(self.request.image, max_pixels)).size

    def say(self, text: str) -> None:
        if self.observer is not None:
            self.observer.text(text)


class Backend:
    """Reads pages; made by `open_backend`. Thread-safe. Models load on first use and stay.

    What it cannot tell of a page is None in its result (docs/decisions.md, 1). It stops within a second of
    `cancel`.
    """

    concurrency = 1
    """Pages that it takes at the same time, each on a thread of its caller."""
    reads_together = False
    """True where it reads several pages in one prompt where its model does."""
    reads_many = False
    """True where it has `read_many`."""

    def __init__(self, spec: BackendSpec, settings: Settings) -> None:
        """`settings` are those that it reads under; no other backend of the run has its results' name."""
        self.name, self.spec, self.settings = spec.name, spec, settings

    def check(self, together: bool = False) -> None:
        """Raise DsocrError for what is wrong for every page, or for pages `together` in one prompt."""
        if together:
            if not self.reads_together:
                raise SettingsError(f"{self.name} reads one page a prompt: leave --pages-together out")
            self.settings.request(Path(), more=())

    def load(self) -> None:
        """Prepare for the first page: load a model, ask a server for its own. Raises DsocrError."""
        self.check()

    def key(self, request: OcrRequest) -> str:
        """A name for all that decides its result on a page, as far as it is known. Raises DsocrError."""
        file = file_of(request)
        facts = {"backend": self.spec.kind, "target": self.spec.target, "page": request.name}
        return result_key(facts | {"image": file and file.sha256})

    def prepare(self, request: OcrRequest, opened: PreparedPage | None = None) -> PreparedPage | None:
        """Preprocess a page before its turn, on any thread, where it can be. Raises DsocrError."""
        return opened

    def read(
        self, request: OcrRequest, observer: Observer | None = None, cancel: CancelToken | None = None,
        on_wait: OnWait | None = None, prepared: PreparedPage | None = None,
    ) -> OcrResult:  # fmt: skip
        """Read one page. `prepared` is its picture, or what `prepare` gave for it.

        Raises DsocrError for what is wrong with it, Cancelled when `cancel` is set.
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
        """Hear the names of all pages that will be read, before the first one. Raises DsocrError."""

    def left_over(self) -> Mapping[str, Sequence[str]]:
        """List what it has of pages that nobody has asked for, by kind."""
        return {}

    def close(self) -> None:
        """End processes and connections, give memory back; the next page may start them again."""


BACKENDS: dict[Kind, tuple[str, str]] = {
    "eager": ("on_device", "EngineBackend"),
    "fast": ("on_device", "EngineBackend"),
    "vendor": ("on_device", "PublishedBackend"),
    "endpoint": ("endpoint", "Endpoint"),
    "command": ("command", "CommandBackend"),
    "folder": ("folder", "FolderBackend"),
}
"""Modules and classes by kind; imported when one is opened, as torch comes with some."""


def open_backend(spec: BackendSpec, settings: Settings, opening: Opening | None = None) -> Backend:
    """The backend of a specification under a run's settings. Nothing is loaded yet. Raises DsocrError."""
    module, name = BACKENDS[spec.kind]
    more = (opening or Opening(),) if module == "on_device" else ()
    kind = getattr(import_module(f"dsocr_core.backends.{module}"), name)
    backend: Backend = kind(spec, settings.of_spec(spec), *more)
    return backend
