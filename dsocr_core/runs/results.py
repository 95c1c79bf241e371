"""Results of recorded runs, read back as they were: a page's facts are its own, nothing is merged per run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.parity_records import Tolerance
from dsocr_core.reading.records import SIDES, OcrRequest, OcrResult, Side
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.imported import RunFiles
from dsocr_core.runs.importers.own_run import read_own_run
from dsocr_core.runs.record import RunRecord, tolerance_of
from dsocr_core.runs.rows import request_of, result_of
from dsocr_core.runs.schema import TABLES

Key = tuple[str, str | None]
"""(page, backend)"""
RunSide = tuple[str, str | None]
"""(run id, backend)"""
Row = dict[str, Any]

_STEPS = {"token_texts": 1, "top_ids": 2, "top_logits": 2}
"""Columns of the new tokens one by one, and how many values they have of each."""
_WITH_STEPS = [name for name in TABLES["readings"].names if name != "boxes"]  # the text has them
_WITHOUT_STEPS = [name for name in _WITH_STEPS if name not in _STEPS]

NO_TEXT = "no text is recorded"
"""The failure of a page that was read, and whose text nobody wrote down."""


@dataclass
class Readings:
    """Pages of a run: results, and for the others why there is none."""

    results: dict[Key, OcrResult] = field(default_factory=dict)
    failures: dict[Key, str] = field(default_factory=dict)
    requests: dict[Key, OcrRequest] = field(default_factory=dict)
    """Requests of every page, read or not."""


def results(history: History, run_id: str, pages: Sequence[str] | None = None) -> dict[Key, OcrResult]:
    """Every result of a run, or of those pages of it. Raises HistoryError where there is no such run."""
    return readings(history, run_id, pages).results


def readings(
    history: History, run_id: str, pages: Sequence[str] | None = None, with_steps: bool = True
) -> Readings:
    """Results and failures of a run, or of those pages of it, in the order of the pages.

    Steps, the new tokens one by one, are most of a run's bytes. Raises HistoryError where there is no such
    run.
    """
    record = history.record(run_id)
    columns = _WITH_STEPS if with_steps else _WITHOUT_STEPS
    rows = history.readings(run_id, pages, columns).to_pylist()
    return _collected(record, rows, with_steps)


class Stored:
    """The rows of some pages of a run, read once; results are made of a few at a time.

    The steps of a run take a tenth of the memory as they are stored. Raises HistoryError where there is no
    such run.
    """

    def __init__(self, history: History, run_id: str, pages: Sequence[str]) -> None:
        self._history, self._record = history, history.record(run_id)
        self._rows = history.readings(run_id, pages, _WITH_STEPS)
        self._places: dict[str, list[int]] = {}
        for place, page in enumerate(self._rows["page"].to_pylist()):
            self._places.setdefault(page, []).append(place)

    def readings(self, last_steps: Mapping[str, int]) -> Readings:
        """Readings of these pages, with the steps up to the last one that is wanted of each."""
        places = [place for page in last_steps for place in self._places.get(page, ())]
        rows = self._rows.take(places).to_pylist()
        return _collected(self._record, rows, last_steps)


def readings_in(directory: Path) -> Readings:
    """Results and failures of a run by its directory, which may be anybody's. Raises InvalidFile."""
    [run] = read_own_run(RunFiles(directory))
    table = run.tables.get("readings")
    rows = table.to_pylist() if isinstance(table, pa.Table) else []
    return _collected(run.record, rows)


def _collected(
    record: RunRecord,
    rows: Iterable[Row],
    with_steps: bool | Mapping[str, int] = True,
) -> Readings:
    found = Readings()
    for row in rows:
        key = (row["page"], row["backend"])
        if not with_steps:
            row |= dict.fromkeys(_STEPS)
        elif isinstance(with_steps, Mapping):
            last = with_steps[row["page"]] + 1
            row |= {name: row[name] and row[name][: last * count] for name, count in _STEPS.items()}
        made = result_of(row)
        found.requests[key] = request_of(row) if made is None else made.request
        if made is None or row["error"] is not None:
            found.failures[key] = NO_TEXT if row["error"] is None else row["error"]
        else:
            made = made if with_steps else replace(made, token_texts=(), top_two=())
            found.results[key] = replace(made, backend=made.backend or record.engine or record.source)
    return found


def pair(
    history: History,
    side_a: RunSide,
    side_b: RunSide,
    page: str | tuple[str | None, str | None],
    tolerance: Tolerance | None = None,
) -> Comparison:
    """A and B of a page; two names where the sides call it differently, None for a side that lacks it.

    Without a `tolerance` that of A's run counts. Raises HistoryError, DsocrError where no side has the page.
    """
    names = page if isinstance(page, tuple) else (page, page)
    wanted: dict[str, list[str]] = {}
    for (run, _), name in zip((side_a, side_b), names, strict=True):
        wanted.setdefault(run, []).extend([name] if name is not None else [])
    found = {run: readings(history, run, list(dict.fromkeys(of))) for run, of in wanted.items()}
    (run_a, backend_a), (run_b, backend_b) = side_a, side_b
    a, b = names
    return compared(
        (found[run_a], None if a is None else (a, backend_a)),
        (found[run_b], None if b is None else (b, backend_b)),
        tolerance or tolerance_of(history.record(run_a)),
    )


def compared(
    a: tuple[Readings, Key | None], b: tuple[Readings, Key | None], tolerance: Tolerance
) -> Comparison:
    """The comparison of two readings; a key that is None, or that is not there, is a side without the page.

    Raises DsocrError where no side has it.
    """
    found: dict[Side, tuple[Readings, Key]] = {
        side: (of, key)
        for side, (of, key) in zip(SIDES, (a, b), strict=True)
        if key is not None and key in of.requests
    }
    if not found:
        raise DsocrError(f"no side has the page '{str((a[1] or b[1] or '?')[0])[:100]}'")
    of, key = next(iter(found.values()))
    results = {side: of.results.get(key) for side, (of, key) in found.items()}
    errors = {side: of.failures[key] for side, (of, key) in found.items() if key in of.failures}
    return Comparison(of.requests[key], results.get("a"), results.get("b"), errors, tolerance=tolerance)
