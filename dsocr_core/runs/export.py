"""`history export`: chosen runs as a zip that `history import` takes elsewhere, or the texts of one run."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePath

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import name_text
from dsocr_core.reading.markup import parse
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.reading.writing import writing
from dsocr_core.runs.history import History
from dsocr_core.runs.results import readings

_DISPLAYED = re.compile(r"\\\[(.*?)\\\]")
_NUMBER = re.compile(r"\\quad\s*\([^)]*\)")
_CENTRE, _GAP = re.compile(r"</?center>"), re.compile(r"\n{3,}")


def export_runs(history: History, run_ids: Iterable[str], target: Path) -> int:
    """Write runs of a history, every file as it is, to a new zip, which appears when it is whole; how many.

    Raises HistoryError for a run there is not, DsocrError or StorageError.
    """
    folders = {run_id: history.directory(run_id) for run_id in run_ids}
    if not folders:
        raise DsocrError("no runs to export; name one or more")
    if os.path.lexists(target):
        raise DsocrError(f"{target}: is there already; give another name")
    temporary = target.with_name(f".part-{secrets.token_hex(8)}")
    with contextlib.ExitStack() as stack, writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        stack.callback(temporary.unlink, missing_ok=True)
        with zipfile.ZipFile(temporary, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for run_id, folder in folders.items():
                for file in sorted(each for each in folder.rglob("*") if each.is_file()):
                    archive.write(file, f"{run_id}/{file.relative_to(folder).as_posix()}")
        temporary.rename(target)
    return len(folders)


def export_texts(history: History, run_id: str, backend: str | None, directory: Path) -> int:
    """Write each page's text for OmniDocBench's evaluator, `NAME.md` for NAME.jpg. Returns their number.

    Raises HistoryError, DsocrError, StorageError.
    """
    found = readings(history, run_id, with_steps=False).results
    backends = sorted({key[1] or "" for key in found})
    if backend is None and len(backends) > 1:
        raise DsocrError(f"{run_id} has results of {' and '.join(backends)}; name one with --backend")
    texts: dict[str, str] = {}
    for (page, reader), result in found.items():
        if backend in (None, reader):
            document, _, number = PurePath(page).name.partition("#")
            name = f"{PurePath(document).stem}{f'_{number}' if number else ''}.md"
            if name in texts:
                which = name_text(name)
                raise DsocrError(f"two pages of {run_id} would be called {which}: the benchmark's differ")
            texts[name] = benchmark_markdown(result.text_raw)
    if not texts:
        raise DsocrError(f"{run_id} has no text{f' of {backend}' if backend else ''}")
    with writing(name_text(directory)):
        directory.mkdir(parents=True)
        for name, text in texts.items():
            (directory / name).write_text(text, encoding="utf-8", errors="replace")
    return len(texts)


def benchmark_markdown(text_raw: str) -> str:
    """A text as the vendor's evaluation hands it in: no markup, no `<center>`, no numbers of formulas."""
    text = clean_text(text_raw)
    text = _DISPLAYED.sub(lambda found: rf"\[{_NUMBER.sub('', found[1]).strip()}\]", text)
    for span in reversed(parse(text)):
        text = text[: span.start] + text[span.end :]
    return _GAP.sub("\n\n", _CENTRE.sub("", text))
