"""Predictions in a folder, other programs' or our runs', as results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import name_text
from dsocr_core.page.documents import load_image
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.runs.texts import FolderContents, Prediction, PredictionError, SkippedFile, read_folder
from dsocr_core.settings import Settings

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage

_MARK = "<|det|>"


def read_left_behind(target: str) -> FolderContents:
    """The texts in a folder, or those of a run of ours that it is.

    Of a run with several backends one is named after a `#`: `data/runs/20261101-compare#vendor`. Raises
    PredictionError.
    """
    path, backend = Path(target).expanduser(), ""
    if not path.exists() and "#" in target:
        name, _, backend = target.rpartition("#")
        path = Path(name).expanduser()
    texts = _own_run(path)
    if texts is None:
        if backend:
            raise PredictionError(f"{name_text(path)}: is no run of ours; leave out what follows the '#'")
        return read_folder(path)
    found, left = texts
    backends = sorted({each.writer for each in found})
    if backend and backend not in backends:
        raise PredictionError(
            f"{name_text(path)}: has no results of {backend[:40]}; it has {', '.join(backends)}"
        )
    if not backend and len(backends) > 1:
        raise PredictionError(
            f"{name_text(path)}: has results of {' and '.join(backends)}; name one, "
            f"like {name_text(path)}#{backends[0]}"
        )
    chosen = tuple(each for each in found if each.writer == (backend or backends[0]))
    return FolderContents(path, chosen, tuple(left))


def size_of(request: OcrRequest, settings: Settings, prepared: PreparedPage | None) -> tuple[int, int]:
    """A page's (width, height), upright; opened here where nobody has. Raises DsocrError."""
    return (prepared.picture if prepared else load_image(request.image, settings.max_pixels)).size


def text_result(
    backend: str, request: OcrRequest, size: tuple[int, int], found: Prediction, source: Mapping[str, str]
) -> OcrResult:
    """A text as the result for a page of `size` (width, height); `source` says where it was found."""
    return OcrResult(
        backend=backend, request=request, image_size=size, text_raw=found.text, token_ids=None,
        token_texts=(), finish_reason=None, inputs=None, timings=(),
        environment={**source, "writer": found.writer}, boxes_known=found.has_markup,
    )  # fmt: skip


def _own_run(path: Path) -> tuple[list[Prediction], list[SkippedFile]] | None:
    """The texts of a run of ours, `writer` is the backend; None when it is none. Raises PredictionError."""
    # DuckDB's neighbours are imported where a folder may be a run.
    from dsocr_core.runs.importers.own_run import is_own_run
    from dsocr_core.runs.results import readings_in

    if not path.is_dir() or not is_own_run(path):
        return None
    try:
        run = readings_in(path)
    except DsocrError as error:
        raise PredictionError(f"{name_text(path)}: {error}") from error
    found = [
        Prediction(page, result.text_raw, _MARK in result.text_raw, path, backend or result.backend)
        for (page, backend), result in run.results.items()
    ]
    if not found:
        raise PredictionError(f"{name_text(path)}: the run has no text of a page")
    left = [
        SkippedFile(path, f"{page} has no text of {backend or 'any backend'}")
        for page, backend in run.failures
    ]
    return found, left
