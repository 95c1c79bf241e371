"""Runs that hold the page with its boxes drawn on it, as earlier versions wrote them."""

from __future__ import annotations

from PIL import Image

from dsocr_core.reading.artifacts import backend_folder, page_key, write_page
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.results import PageResults
from dsocr_core.runs.run_directory import RunDirectory


def add_with_boxes(run: RunDirectory, page: str, result: OcrResult, picture: Image.Image) -> None:
    """A result, and its page's folder under `viz/`."""
    run.add(PageResults(page, results=[result]))
    folder = run.directory / backend_folder(result.backend) / "viz" / page_key(result.request.image)
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_page(result, [picture], folder)
