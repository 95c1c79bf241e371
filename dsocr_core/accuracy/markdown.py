"""The Markdown that a benchmark is given of a page, made of the model's raw text."""

from __future__ import annotations

import re

from dsocr_core.reading.markup import parse
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.runs.texts.prediction import Prediction

_DISPLAYED = re.compile(r"\\\[(.*?)\\\]")
_NUMBER = re.compile(r"\\quad\s*\([^)]*\)")
_CENTRE = re.compile(r"</?center>")
_GAP = re.compile(r"\n{3,}")


def benchmark_markdown(text_raw: str) -> str:
    """A raw text as the vendor's evaluation script hands it in, so that figures are like the published ones.

    The markup of every block goes, images' too, and `<center>`; numbers leave displayed formulas of a line.
    """
    text = clean_text(text_raw)
    text = _DISPLAYED.sub(lambda found: rf"\[{_NUMBER.sub('', found[1]).strip()}\]", text)
    parts, position = [], 0
    for span in parse(text):
        if span.closed:
            parts.append(text[position : span.start])
            position = span.end
    return _GAP.sub("\n\n", _CENTRE.sub("", "".join((*parts, text[position:]))))


def benchmark_text(prediction: Prediction) -> str:
    """A prediction as a benchmark is given it; a text without markup is somebody's Markdown already."""
    return benchmark_markdown(prediction.text) if prediction.has_markup else prediction.text
