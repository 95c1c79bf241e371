"""B as a backend that reads the pages now, under any specification of the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dsocr_core.backend_specs.kinds import EngineSpec, VendorSpec
from dsocr_core.backends.registry import open_backend
from dsocr_core.records import CancelToken
from dsocr_core.settings import Settings
from dsocr_core.why.match import Other
from dsocr_core.why.reference import of_result


@contextmanager
def asked(
    settings: Settings, cancel: CancelToken | None = None, on_wait: Callable[[str], None] | None = None
) -> Iterator[Callable[[Path, str], Other]]:
    """B of the settings, opened once for all pages: gives it on a page of that file and name.

    Raises DsocrError, also for what is wrong for every page, and Cancelled.
    """
    spec = settings.spec("b")
    backend = open_backend(spec, settings)
    try:
        backend.check()

        def other_of(path: Path, name: str) -> Other:
            result = backend.read(backend.settings.request(path, name), cancel=cancel, on_wait=on_wait)
            # A result is called as a person likes; what has the checkpoint's own weights is told by its kind.
            own = "none" if isinstance(spec, EngineSpec | VendorSpec) else None
            return replace(of_result(result), quantisation=result.environment.get("quantisation") or own)

        yield other_of
    finally:
        backend.close()
