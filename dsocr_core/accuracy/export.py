"""Texts written as the benchmarks' own evaluators read them: a Markdown file an image."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath

from dsocr_core.accuracy import Layout
from dsocr_core.accuracy.markdown import benchmark_text
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.visible import name_text
from dsocr_core.page.documents import IMAGE_SUFFIXES, PDF_SUFFIX
from dsocr_core.runs.texts.prediction import Found, Prediction


class ExportError(DsocrError):
    """A folder that the texts cannot be written to; names it and the cause."""


def export(found: Found, directory: Path, layout: Layout) -> int:
    """Write the texts of pages whose names are known; returns how many. Raises ExportError.

    `omnidocbench` has `NAME.md` for the image `NAME.jpg`. `olmocr` has `NAME_pg1_repeat1.md` for the first
    page of `NAME.pdf`, and is one candidate's folder: put it beside the benchmark's `pdfs`.
    """
    files = _files(found.predictions, layout)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ExportError(f"{name_text(directory)}: is not empty; give a new folder")
        for name, prediction in files.items():
            text = benchmark_text(prediction)
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExportError(f"{name_text(directory)}: cannot be written ({error.strerror})") from error
    return len(files)


def _files(predictions: Iterable[Prediction], layout: Layout) -> dict[str, Prediction]:
    """Texts by the name of their file. Raises ExportError where two would have one."""
    files: dict[str, Prediction] = {}
    for prediction in predictions:
        if prediction.piece is not None:
            raise ExportError(
                f"{name_text(prediction.file.name)}: does not say which page each text is of; compare the "
                "PDF with the folder, and export that run"
            )
        page = PurePath(prediction.name)
        name = _name(page.name, layout)
        if layout == "olmocr" and not {"..", "/"} & set(page.parts):  # its PDFs lie in folders
            name = str(page.with_name(name))
        if name in files:
            raise ExportError(f"two texts would be called {name_text(name)}; export them apart")
        files[name] = prediction
    return files


def _name(page: str, layout: Layout) -> str:
    document, hash_mark, number = page.rpartition("#")
    if not (hash_mark and number.isdecimal()):
        document, number = page, ""
    has_suffix = PurePath(document).suffix.lower() in IMAGE_SUFFIXES | {PDF_SUFFIX}
    stem = PurePath(document).stem if has_suffix else document
    if layout == "olmocr":
        return stem + ".md" if "_pg" in stem and "_repeat" in stem else f"{stem}_pg{number or 1}_repeat1.md"
    return f"{stem}_{number}.md" if number else f"{stem}.md"
