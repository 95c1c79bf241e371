"""The one protocol behind which every backend reads pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dsocr_core.records import BackendName, CancelToken, Observer, OcrRequest, OcrResult
from dsocr_core.settings import Settings

OnWait = Callable[[str], None]
"""Called with what a backend waits for, in words."""


class OpenedBackend(Protocol):
    """A backend that was specified, with what it needs; made by `registry.open_backend`.

    What it cannot tell of a page is None in its result (decisions/0010). It stops within a second of
    `cancel`.
    """

    name: BackendName
    """What its results are called: no other backend of the run has it."""
    settings: Settings
    """The run's settings with what this backend has otherwise; they make its requests."""

    @property
    def concurrency(self) -> int:
        """How many pages it takes at the same time, each on a thread of its caller; 1 or more."""
        ...

    def check(self) -> None:
        """Say what is wrong for every page, before anything is loaded. Raises DsocrError."""
        ...

    def load(self) -> None:
        """Be ready for the first page: load a model, find a server's. Raises DsocrError."""
        ...

    def key(self, request: OcrRequest) -> str:
        """A name for all that decides its result on a page, as far as it is known. Raises DsocrError."""
        ...

    def recognize(
        self,
        request: OcrRequest,
        observer: Observer | None = None,
        cancel: CancelToken | None = None,
        on_wait: OnWait | None = None,
    ) -> OcrResult:
        """Read one page. Raises DsocrError for what is wrong with it, Cancelled when `cancel` is set."""
        ...

    def close(self) -> None:
        """End processes and connections; the next page may start them again."""
        ...
