"""Predictions in a folder, other programs' or our runs', as results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.errors import DsocrError
from dsocr_core.inputs.documents import load_image
from dsocr_core.outside.visible import name_text
from dsocr_core.predictions.folders import read_folder
from dsocr_core.predictions.prediction import Found, Left, Prediction, PredictionError
from dsocr_core.records import BOXES_NOT_KNOWN, OcrRequest, OcrResult
from dsocr_core.settings import Settings

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage

_MARK = "<|det|>"


def read_left_behind(target: str) -> Found:
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
    return Found(path, chosen, tuple(left))


def size_of(request: OcrRequest, settings: Settings, prepared: PreparedPage | None) -> tuple[int, int]:
    """A page's (width, height), upright; opened here where nobody has. Raises DsocrError."""
    return (prepared.picture if prepared else load_image(request.image, settings.max_pixels)).size


def text_result(
    backend: str, request: OcrRequest, size: tuple[int, int], found: Prediction, source: Mapping[str, str]
) -> OcrResult:
    """A text as the result for a page of `size` (width, height); `source` says where it was found."""
    environment = {**source, "writer": found.writer}
    if not found.has_markup:
        environment[BOXES_NOT_KNOWN] = "the text has none"
    return OcrResult(
        backend=backend, request=request, image_size=size, text_raw=found.text, token_ids=None,
        token_texts=(), finish_reason=None, inputs=None, timings=(), environment=environment,
    )  # fmt: skip


def _own_run(path: Path) -> tuple[list[Prediction], list[Left]] | None:
    """The texts of a run of ours, `writer` is the backend; None when it is none. Raises PredictionError."""
    # DuckDB's neighbours are imported where a folder may be a run.
    from dsocr_core.history.importers.own_run import is_own_run, read_own_run
    from dsocr_core.history.importers.run_directory import is_run_directory
    from dsocr_core.history.importers.run_lines import Files, lines_of

    if not path.is_dir():
        return None
    found: list[Prediction] = []
    left: list[Left] = []
    if is_own_run(path):
        try:
            rows = read_own_run(path).tables.get("readings")
        except DsocrError as error:
            raise PredictionError(f"{name_text(path)}: {error}") from error
        for row in rows.to_pylist() if rows is not None and hasattr(rows, "to_pylist") else ():
            _add(found, left, path, row["page"], row["backend"], row["text_raw"])
    elif is_run_directory(path):
        files = Files(path)
        for line in lines_of(files):
            _add(found, left, path, line.source, line.backend, line.data.get("text_raw"))
        left += [Left(item.path, item.reason) for item in files.skipped]
    else:
        return None
    if not found:
        raise PredictionError(f"{name_text(path)}: the run has no text of a page")
    return found, left


def _add(
    found: list[Prediction],
    left: list[Left],
    path: Path,
    page: str | None,
    backend: str | None,
    text: str | None,
) -> None:
    if page and backend and text is not None:
        found.append(Prediction(page, text, _MARK in text, path, backend))
    else:
        left.append(Left(path, f"{page or 'a page'} has no text of {backend or 'any backend'}"))
