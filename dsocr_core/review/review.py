"""A review: opened on recorded runs, its pages worst first."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import pandas as pd

from dsocr_core.page.documents import natural_key
from dsocr_core.reading.parity import Comparison, first_difference, with_page_size
from dsocr_core.reading.parity_records import Tolerance
from dsocr_core.reading.records import SIDES, VENDOR, OcrRequest
from dsocr_core.reading.writing import StorageError
from dsocr_core.review.keys import ReviewError, review_key
from dsocr_core.review.page import Names, PageReview, page_review
from dsocr_core.review.pictures import PagePicture, find_picture
from dsocr_core.review.verdicts import Verdicts
from dsocr_core.runs.history import History
from dsocr_core.runs.record import RunRecord, described_backend, flattened, tolerance_of
from dsocr_core.runs.results import Readings, RunSide, readings
from dsocr_core.runs.settings_diff import differ
from dsocr_core.runs.speed import compare_speed

_CAUSE = "cause"
"""Kind of annotation: the cause that was reproduced of a page, under the key of its review."""
_MOST_WORDS, _CACHED = 500, 32
_AT_ONCE = 64
"""Diverging pages whose steps are in memory at a time."""


@dataclass(frozen=True)
class Side:
    """One side: a backend of a recorded run."""

    record: RunRecord
    backend: str | None
    name: str  # for people: the backend where both sides are of one run, else the run's id (and its backend)
    used: Mapping[str, str] = field(default_factory=dict)
    """Number type, attention and preset with which all of its pages were read, as far as they tell."""

    @property
    def run(self) -> RunSide:
        return self.record.id, self.backend


class Review:
    """Opened by `open_review`. Immutable but for the verdicts; any thread may read it."""

    def __init__(
        self, history: History, a: Side, b: Side, key: str, pages: Iterable[PageReview], tolerance: Tolerance
    ) -> None:
        """`key` names the review in addresses and in the rows of verdicts, see `review_key`."""
        self.history, self.a, self.b, self.key, self.tolerance = history, a, b, key, tolerance
        worst_first = sorted(pages, key=lambda page: (-page.score, natural_key(page.name)))
        self.pages: tuple[PageReview, ...] = tuple(worst_first)
        self.verdicts = Verdicts(history, key, a.record.id)
        self._pages = {page.name: page for page in self.pages}
        self.detail: Callable[[str], Comparison] = functools.lru_cache(_CACHED)(self._detail)
        """A page's comparison with times and the tokens one by one; a few ms, cached for the last pages."""
        self.picture: Callable[..., PagePicture | None] = functools.lru_cache(_CACHED)(self._picture)
        """A page's picture: its source file where that is still the recorded one, else the run's own.

        `sheet` numbers the pages of one prompt. None where there is neither. Hashes the file, reads no more.
        """

    def page(self, name: str) -> PageReview:
        """Raises ReviewError when there is no such page."""
        if name not in self._pages:
            raise ReviewError(f"the review {self.key} has no page '{name[:100]}'")
        return self._pages[name]

    def explained(self, causes: Mapping[str, str]) -> Review:
        """This review with causes that were reproduced, by page, the words of each. The history has them for
        later reviews, where it can be written.
        """
        rows = [(page, self.key, words) for page, words in causes.items()]
        with contextlib.suppress(StorageError):
            self.history.annotate(self.a.record.id, _CAUSE, rows)
        pages = [page.explained(causes[page.name]) if page.name in causes else page for page in self.pages]
        return Review(self.history, self.a, self.b, self.key, pages, self.tolerance)

    @functools.cached_property
    def stages(self) -> pd.DataFrame:
        """`runs.speed.compare_speed` of both sides, the row "total" last.

        Empty when the sides have no page's times in common.
        """
        return compare_speed(self.history, self.a.run, self.b.run)

    def settings(self) -> pd.DataFrame:
        """Settings, environment and versions of both sides: section, name, a, b, equal."""
        a, b = (dict(_facts(side)) for side in (self.a, self.b))
        keys = sorted({*a, *b}, key=lambda key: (_SECTIONS.index(key[0]), key[1]))
        rows = [
            {"section": section, "name": name, "a": a.get((section, name)), "b": b.get((section, name))}
            for section, name in keys
        ]
        frame = pd.DataFrame(rows, columns=["section", "name", "a", "b"], dtype=object)
        return frame.assign(equal=[not differ(*key, (a.get(key), b.get(key))) for key in keys])

    def _detail(self, name: str) -> Comparison:
        page = self.page(name)
        sides, names = (self.a.run, self.b.run), [each for each in page.names if each is not None]
        read = {run: readings(self.history, run, names) for run, _ in sides}
        comparison = _compared(read, sides, page.names, self.tolerance)
        a, b = comparison.a, comparison.b
        return replace(comparison, a=a and with_page_size(a, b), b=b and with_page_size(b, a))

    def _picture(self, name: str, sheet: int = 0) -> PagePicture | None:
        return find_picture(self.history, self.page(name), (self.a.run, self.b.run), sheet)


# --- facts of the sides ---------------------------------------------------------------------------

_SECTIONS = ("run", "settings", "environment", "versions")
RUN_FACTS = ("id", "created", "source", "engine", "device", "gpu", "host", "dtype", "attention", "preset",
              "git_commit", "git_dirty", "profiled")  # fmt: skip


def run_fact(side: Side, name: str) -> str | bool | None:
    """A fact of the side's run. What a record says of one backend does not hold for the run's other one."""
    record = side.record
    if name in side.used:
        return side.used[name]
    described = side.backend in (None, described_backend(record.backends))
    if name in ("engine", "dtype", "attention") and not described:
        own = record.environment.get(side.backend or "")
        value = own.get(name) if isinstance(own, dict) else None
        return value if isinstance(value, str) else None
    fact: str | bool | None = getattr(record, name)
    return fact


def _facts(side: Side) -> Iterator[tuple[tuple[str, str], str | None]]:
    """List what a side's run recorded; of the environment what concerns its backend."""
    record = side.record
    for name in RUN_FACTS:
        value = run_fact(side, name)
        yield ("run", name), None if value is None else str(value)
    own = record.environment.get(side.backend or "")
    environment = {name: value for name, value in record.environment.items() if name not in record.backends}
    environment |= own if isinstance(own, dict) else {}
    parts = {"settings": record.settings, "environment": environment, "versions": record.versions}
    for section, values in parts.items():
        for name, text in flattened(values):
            yield (section, name), text or None


def _used(read: Readings, backend: str | None) -> dict[str, str]:
    results = [result for (_, name), result in read.results.items() if name == backend]
    values: dict[str, set[str | None]] = {"preset": {result.request.preset for result in results}}
    for name in ("dtype", "attention"):
        values[name] = {getattr(result.inputs, name, None) for result in results}
    return {name: value for name, found in values.items() for value in found if value and len(found) == 1}


# --- opening --------------------------------------------------------------------------------------


def open_review(
    history: History,
    run_a: str,
    run_b: str | None = None,
    backend_a: str | None = None,
    backend_b: str | None = None,
    tolerance: Tolerance | None = None,
) -> Review:
    """Open a review on a run that has two backends (our engine is A, the vendor B), or on two runs.

    Of two runs our engine is taken where the run has one, else its only backend, unless named. B is the
    reference. Pages are paired by name, then by content of the image, then by name without suffix. Without a
    `tolerance` that of A's run counts. Every page is judged anew, by what was recorded of it. Raises
    ReviewError or HistoryError.
    """
    run_b = run_b or run_a
    records = history.record(run_a), history.record(run_b)
    read = {run: readings(history, run, with_steps=False) for run in dict.fromkeys((run_a, run_b))}
    found = [_backends_of(record, read[record.id]) for record in records]
    one_run = run_a == run_b
    second = found[1][1:] if one_run and len(found[1]) > 1 else found[1]
    first_ones = next(iter(found[0]), None), next(iter(second), None)
    named = [backend_a, backend_b]
    for record, there, backend in zip(records, found, named, strict=True):
        if not there:
            raise ReviewError(f"run {record.id} has no recorded page: there is nothing to review")
        if backend is not None and backend not in there:
            listed = ", ".join(each or "(unnamed)" for each in there)
            raise ReviewError(f"run {record.id} has no backend '{backend[:40]}'; it has {listed}")
    backends = [first if name is None else name for name, first in zip(named, first_ones, strict=True)]
    if one_run and backends[0] == backends[1]:
        raise ReviewError(
            f"run {run_a} has only the backend {found[0][0] or '(unnamed)'}: give a second run to compare it "
            "with, or record two backends (compare --save)"
        )
    sides = []
    for record, backend in zip(records, backends, strict=True):
        alone = backends[0] == backends[1] or not backend
        name = (backend or "") if one_run else record.id if alone else f"{record.id} {backend}"
        sides.append(Side(record, backend, name, _used(read[record.id], backend)))
    names = _pairs(sides, read)
    tolerance = tolerance or tolerance_of(records[0])
    pages = list(_pages(history, sides, names, read, tolerance))
    shown = [None if each == first else each for each, first in zip(backends, first_ones, strict=True)]
    key = review_key(run_a, run_b, *shown)
    rows = history.query("annotations", run_id=run_a, kind=_CAUSE)[0].to_dict("records")
    causes = {row["page"]: str(row["value"])[:_MOST_WORDS] for row in rows if row["name"] == key}
    explained = [
        page.explained(causes[page.name]) if page.report and page.name in causes else page for page in pages
    ]
    return Review(history, sides[0], sides[1], key, explained, tolerance)


def _backends_of(record: RunRecord, read: Readings) -> list[str | None]:
    """Backends of a run, A first: as named, else our engine."""
    found = dict.fromkeys(backend for _, backend in read.requests)
    named = record.backends if any(record.settings.get(side) is not None for side in SIDES) else ()

    def place(backend: str | None) -> tuple[int, bool, bool, str]:
        order = named.index(backend) if backend in named else len(named)
        return order, backend == VENDOR, backend is None, backend or ""

    return sorted(found, key=place)


def _pairs(sides: Sequence[Side], read: Mapping[str, Readings]) -> list[Names]:
    """Pages of both sides as pairs, by a name that one page of each has; those of only one side last."""
    requests = [
        {page: of for (page, name), of in read[side.record.id].requests.items() if name == side.backend}
        for side in sides
    ]
    pairs = list[Names]()

    def content(page: str, request: OcrRequest) -> str | None:
        return None if request.file is None else request.file.sha256

    for name_of in (lambda page, _: page, content, lambda page, _: PurePath(page).stem):
        by_name: list[dict[str, list[str]]] = [{}, {}]
        for pages, found in zip(requests, by_name, strict=True):
            for page, request in pages.items():
                if (name := name_of(page, request)) is not None:
                    found.setdefault(name, []).append(page)
        for name, of_a in by_name[0].items():
            if len(of_a) == len(of_b := by_name[1].get(name, [])) == 1:
                pairs.append((of_a[0], of_b[0]))
                del requests[0][of_a[0]], requests[1][of_b[0]]
    # A page of B under the name of an unmatched page of A cannot be: equal names were matched first.
    return [*pairs, *((page, None) for page in requests[0]), *((None, page) for page in requests[1])]


def _pages(
    history: History,
    sides: Sequence[Side],
    named: Sequence[Names],
    read: Mapping[str, Readings],
    tolerance: Tolerance,
) -> Iterator[PageReview]:
    """Every page judged; the steps of those whose tokens diverge are read first, some pages at a time."""

    runs = [side.run for side in sides]
    diverging: list[tuple[Names, int]] = []
    for names in named:
        light = _compared(read, runs, names, tolerance)
        tokens = [of.token_ids if of else None for of in (light.a, light.b)]
        step = first_difference(*tokens)
        if step is None:
            yield page_review(names, light)
        else:
            diverging.append((names, step))
    for first in range(0, len(diverging), _AT_ONCE):
        some = diverging[first : first + _AT_ONCE]
        wanted: dict[str, dict[str, int]] = {}
        for both, step in some:
            for side, name in zip(sides, both, strict=True):
                of_run = wanted.setdefault(side.record.id, {})
                of_run[str(name)] = max(step, of_run.get(str(name), 0))
        whole = {run: readings(history, run, [*of], of) for run, of in wanted.items()}
        for names, _ in some:
            yield page_review(names, _compared(whole, runs, names, tolerance))


def _compared(
    read: Mapping[str, Readings], sides: Sequence[RunSide], names: Sequence[str | None], tolerance: Tolerance
) -> Comparison:
    """The comparison of a page of runs that were `read`. Raises ReviewError where no side has the page."""
    found = {
        side: (read[run], (name, backend))
        for side, (run, backend), name in zip(SIDES, sides, names, strict=True)
        if name is not None and (name, backend) in read[run].requests
    }
    if not found:
        raise ReviewError(f"no side has the page '{str(names[0] or names[1])[:100]}'")
    of, key = next(iter(found.values()))
    results = {side: of.results.get(key) for side, (of, key) in found.items()}
    errors = {side: of.failures[key] for side, (of, key) in found.items() if key in of.failures}
    return Comparison(of.requests[key], results.get("a"), results.get("b"), errors, tolerance=tolerance)
