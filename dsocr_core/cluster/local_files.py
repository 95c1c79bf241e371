"""Pages as files of this machine: URLs are downloaded, pages of a PDF are rendered."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from pathlib import Path

from dsocr_core.base.errors import one_line
from dsocr_core.base.sanitise import text_name
from dsocr_core.page.decode_pool import render_page
from dsocr_core.page.decoding import Unreadable
from dsocr_core.page.documents import DocumentError, pdf_page_count

MOST_BYTES = 2**30
"""Most bytes of a downloaded file."""
MOST_DOCUMENTS = 8
"""Most downloaded PDFs that are kept: pages of one PDF are read one after another."""


class LocalFiles:
    """Temporary folder of this process for downloads and rendered pages. Thread-safe."""

    def __init__(self, folder: Path, dpi: int, max_pixels: int) -> None:
        self._folder, self._dpi, self._max_pixels = folder, dpi, max_pixels
        self._documents: OrderedDict[str, Path] = OrderedDict()
        self._lock = threading.Lock()

    def image(self, path: str, page: int | None) -> Path:
        """File with the page's image, to be given to `forget` later. Raises DocumentError."""
        if page is None:
            return self._download(path) if "://" in path else Path(text_name(path))
        target = self._folder / f"{secrets.token_hex(8)}.ppm"  # without compression: it is read once
        try:
            render_page(self._document(path), page, self._dpi, self._max_pixels).save(target, format="PPM")
        except Unreadable as error:
            raise DocumentError(f"{path}: {error}") from error
        except OSError as error:
            target.unlink(missing_ok=True)
            raise DocumentError(f"{target}: the page cannot be written ({error.strerror})") from error
        return target

    def forget(self, image: Path) -> None:
        """Delete an image that `image` made."""
        if image.parent == self._folder:
            image.unlink(missing_ok=True)

    def pages_of(self, path: str) -> int:
        """Number of pages of a PDF. Raises DocumentError."""
        return pdf_page_count(self._document(path))

    def _document(self, path: str) -> Path:
        if "://" not in path:
            return Path(text_name(path))
        with self._lock:  # a document is downloaded once
            if path not in self._documents:
                self._documents[path] = self._download(path)
                if len(self._documents) > MOST_DOCUMENTS:
                    self._documents.popitem(last=False)[1].unlink(missing_ok=True)
            self._documents.move_to_end(path)
            return self._documents[path]

    def _download(self, url: str) -> Path:
        import fsspec

        suffix = Path(url.partition("?")[0]).suffix.lower()[:8]
        target = self._folder / f"{secrets.token_hex(8)}{suffix}"
        try:
            with fsspec.open(url, "rb") as source, target.open("wb") as handle:
                while block := source.read(2**20):
                    if handle.tell() + len(block) > MOST_BYTES:
                        raise ValueError(f"has more than {MOST_BYTES:,} bytes; split it")
                    handle.write(block)
        except Exception as error:
            target.unlink(missing_ok=True)
            raise DocumentError(f"{url}: cannot be fetched ({one_line(error, 120)})") from error
        return target
