"""Texts of a run as OmniDocBench's own evaluator reads them: `NAME.md` for the page `NAME.jpg`."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from dsocr_core.base.sanitise import name_text
from dsocr_core.reading.markup import parse
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.runs.exporters import ExportError
from dsocr_core.runs.history import History
from dsocr_core.runs.results import readings

_DISPLAYED = re.compile(r"\\\[(.*?)\\\]")
_NUMBER = re.compile(r"\\quad\s*\([^)]*\)")
_CENTRE, _GAP = re.compile(r"</?center>"), re.compile(r"\n{3,}")


def export_texts(history: History, run_id: str, backend: str | None, directory: Path) -> int:
    """Write the text of every page that was read, and say how many. Raises HistoryError, ExportError."""
    found = readings(history, run_id, with_steps=False).results
    backends = sorted({key[1] or "" for key in found})
    if backend is None and len(backends) > 1:
        raise ExportError(f"{run_id} has results of {' and '.join(backends)}; name one with --backend")
    texts: dict[str, str] = {}
    for (page, reader), result in found.items():
        if backend is not None and reader != backend:
            continue
        document, _, number = PurePath(page).name.partition("#")
        name = f"{PurePath(document).stem}{f'_{number}' if number else ''}.md"
        if name in texts:
            raise ExportError(
                f"two pages of {run_id} would be called {name_text(name)}: the benchmark's names differ"
            )
        texts[name] = benchmark_markdown(result.text_raw)
    if not texts:
        raise ExportError(f"{run_id} has no text{f' of {backend}' if backend else ''}")
    try:
        directory.mkdir(parents=True)
        for name, text in texts.items():
            (directory / name).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ExportError(f"{name_text(directory)}: cannot be written ({error.strerror})") from error
    return len(texts)


def benchmark_markdown(text_raw: str) -> str:
    """A text as the vendor's evaluation hands it in: no markup, no `<center>`, no numbers of formulas."""
    text = clean_text(text_raw)
    text = _DISPLAYED.sub(lambda found: rf"\[{_NUMBER.sub('', found[1]).strip()}\]", text)
    for span in reversed(parse(text)):
        if span.closed:
            text = text[: span.start] + text[span.end :]
    return _GAP.sub("\n\n", _CENTRE.sub("", text))
