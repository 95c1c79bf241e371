"""Runs that hold the page with its boxes drawn on it, as earlier versions wrote them."""

from __future__ import annotations

from PIL import Image

from dsocr_core.reading.artifacts import Export
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.results import PageResults
from dsocr_core.runs.run_directory import RunDirectory


def add_with_boxes(run: RunDirectory, page: str, result: OcrResult, picture: Image.Image) -> None:
    """A result, and its page's folder under `viz/`."""
    run.add(PageResults(page, results=[result]))
    Export(run.directory, "eager").add(result, [picture])
