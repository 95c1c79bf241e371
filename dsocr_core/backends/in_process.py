"""Our engines and the vendor behind the protocol."""

from __future__ import annotations

from dataclasses import replace

from dsocr_core.backends.local import LocalBackends
from dsocr_core.backends.protocol import OnWait
from dsocr_core.engine.page import PreparedPage
from dsocr_core.records import VENDOR, BackendName, CancelToken, Observer, OcrRequest, OcrResult


class InProcess:
    """The engine of some settings, or the vendor under them. The device is held while a page is read."""

    concurrency = 1

    def __init__(self, local: LocalBackends, reads: BackendName, name: BackendName | None = None) -> None:
        """`reads` is the engine's name or the vendor's; its results are called `name`."""
        self.local, self.settings = local, local.settings
        self.reads, self.name = reads, name or reads

    def check(self) -> None:
        if self.reads == VENDOR:
            self.local.check_vendor()

    def load(self) -> None:
        self.local.backend(self.reads)

    def key(self, request: OcrRequest) -> str:
        return self.local.results.key(self.reads, request)

    def recognize(
        self,
        request: OcrRequest,
        observer: Observer | None = None,
        cancel: CancelToken | None = None,
        on_wait: OnWait | None = None,
        prepared: PreparedPage | None = None,
    ) -> OcrResult:
        """With `prepared` our engine does not open the page's file."""
        result = self.local.recognize(self.reads, request, observer, cancel, on_wait, prepared)
        return result if result.backend == self.name else replace(result, backend=self.name)

    def close(self) -> None:
        self.local.close()
