"""A review: opened on recorded runs, its pages worst first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pandas as pd

from dsocr_core.history.index import flattened
from dsocr_core.history.record import RunRecord, described_backend, tolerance_of
from dsocr_core.history.sameness import differ
from dsocr_core.history.statistics import Ratio, compare_stages, ratio_of_medians
from dsocr_core.history.store import History
from dsocr_core.inputs.documents import natural_key
from dsocr_core.parity_records import Tolerance
from dsocr_core.records import OcrResult, StageTiming
from dsocr_core.review.comparing import compare_page, page_size, result_of
from dsocr_core.review.divergence import divergence, with_top_two
from dsocr_core.review.inputs import SideInputs
from dsocr_core.review.keys import ReviewError, parse_key, review_key
from dsocr_core.review.page import Letter, PageDetail, PageReview
from dsocr_core.review.pairing import pair_pages
from dsocr_core.review.pictures import PagePicture, find_picture, page_image
from dsocr_core.review.recorded import (
    Key,
    Recorded,
    Steps,
    load,
    page_side,
    side_inputs,
    steps,
    timings,
)
from dsocr_core.review.verdicts import Verdicts
from dsocr_core.stages import INSIDE_PREFILL

__all__ = [
    "PagePicture", "Review", "ReviewError", "Side", "open_review", "page_image", "parse_key", "review_key",
]  # fmt: skip

_CACHED = 32
Timings = dict[Key, tuple[StageTiming, ...]]
TOTAL = "total"


@dataclass(frozen=True)
class Side:
    """One side: a backend of a recorded run."""

    letter: Letter
    record: RunRecord
    backend: str | None
    name: str
    """For people: the backend where both sides are of one run, else the run's id (and its backend)."""


class Review:
    """Opened by `open_review`. Immutable but for the verdicts; any thread may read it."""

    def __init__(
        self,
        history: History,
        a: Side,
        b: Side,
        key: str,
        pages: list[tuple[PageReview, SideInputs | None, SideInputs | None]],
    ) -> None:
        self.history, self.a, self.b = history, a, b
        self.key = key
        """Names the review in addresses and in the rows of verdicts, see `review_key`."""
        order = sorted((page for page, _, _ in pages), key=lambda page: (-page.score, natural_key(page.name)))
        self.pages: tuple[PageReview, ...] = tuple(order)
        """Worst first."""
        self.verdicts = Verdicts(history, key, a.record.id)
        self._pages = {page.name: page for page in order}
        self._inputs = {page.name: (of_a, of_b) for page, of_a, of_b in pages}
        self._cached_detail: Callable[[str], PageDetail] = functools.lru_cache(_CACHED)(self._detail)
        self._cached_picture: Callable[[str], PagePicture | None]
        self._cached_picture = functools.lru_cache(_CACHED)(self._picture)

    def page(self, name: str) -> PageReview:
        """Raises ReviewError when there is no such page."""
        if name not in self._pages:
            raise ReviewError(f"the review {self.key} has no page '{name[:100]}'")
        return self._pages[name]

    def detail(self, name: str) -> PageDetail:
        """All that the viewer and the tabs show of one page; a few ms, cached for the last pages."""
        return self._cached_detail(name)

    def picture(self, name: str) -> PagePicture | None:
        """The page's picture: its source file where that is still the recorded one, else the run's artifact.

        None when there is neither. Hashes the file, reads nothing else.
        """
        return self._cached_picture(name)

    def stages(self) -> pd.DataFrame:
        """`history.statistics.compare_stages` of both sides' times, plus the row "total".

        Columns stage, n, median_a, median_b, ratio (B over A), low, high, verdict (of B against A).
        Empty when the sides have no page's times in common.
        """
        return self._stages.copy()

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

    # --- made on demand -------------------------------------------------------------------------

    def _detail(self, name: str) -> PageDetail:
        page = self.page(name)
        a, b = self._inputs[name]
        runs = list(dict.fromkeys((self.a.record.id, self.b.record.id)))
        recorded: dict[Key, Steps] = {}
        timed: Timings = {}
        # Mostly one name on both sides: then one query a table.
        for of_page in dict.fromkeys(side.page for side in (page.a, page.b) if side):
            recorded |= steps(self.history, runs, of_page)
            timed |= timings(self.history, runs, of_page)

        def result(side: SideInputs | None, size: tuple[int, int]) -> OcrResult | None:
            if side is None or side.page.text_raw is None:
                return None
            key = (side.page.run_id, side.page.backend, side.page.page)
            return result_of(side, size, recorded.get(key), timed.get(key, ()))

        result_a = result(a, page_size(page.a, page.b))
        result_b = result(b, page_size(page.b, page.a))
        return PageDetail(
            page=page,
            result_a=result_a,
            result_b=result_b,
            divergence=divergence(result_a, result_b) if result_a and result_b else None,
        )

    @functools.cached_property
    def _stages(self) -> pd.DataFrame:
        sides = {
            "a": self.a.record.id,
            "b": self.b.record.id,
            "backend_a": self.a.backend,
            "backend_b": self.b.backend,
        }
        pairs = self.history.query("pairs", **sides)[0]
        stages = compare_stages(pairs)
        timed = timings(self.history, [*{self.a.record.id: None, self.b.record.id: None}])
        total = self._total(timed, set(pairs["page"]))
        if total is None:
            return stages
        return pd.concat([stages, pd.DataFrame([{"stage": TOTAL, **vars(total)}])], ignore_index=True)

    def _total(self, timed: Timings, pages: set[str]) -> Ratio | None:
        """Whole pages, where both sides measured the same stages."""
        both = []
        for page in sorted(pages):
            keys = ((side.record.id, side.backend, page) for side in (self.a, self.b))
            a, b = (
                {timing.stage: timing.milliseconds for timing in timed.get(key, ()) if _follows(timing)}
                for key in keys
            )
            if a and a.keys() == b.keys():
                both.append((sum(a.values()), sum(b.values())))
        return ratio_of_medians(*zip(*both, strict=True)) if both else None

    def _picture(self, name: str) -> PagePicture | None:
        return find_picture(self.history, self.page(name))


def _follows(timing: StageTiming) -> bool:
    return timing.stage not in INSIDE_PREFILL


_SECTIONS = ("run", "settings", "environment", "versions")
RUN_FACTS = ("id", "created", "source", "engine", "device", "gpu", "host", "dtype", "attention", "preset",
              "git_commit", "git_dirty", "profiled")  # fmt: skip


_OF_OUR_BACKEND = ("engine", "dtype", "attention")


def run_fact(side: Side, name: str) -> str | bool | None:
    """A fact of the side's run. What a record says of one backend does not hold for the other beside it."""
    record = side.record
    described = side.backend in (None, described_backend(record.backends))
    if name in _OF_OUR_BACKEND and not described:
        own = record.environment.get(side.backend or "")
        value = own.get(name) if isinstance(own, dict) else None
        return value if isinstance(value, str) else None
    fact: str | bool | None = getattr(record, name)
    return fact


def _facts(side: Side) -> Iterator[tuple[tuple[str, str], str | None]]:
    """What a side's run recorded; of the environment what concerns its backend."""
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
            yield (section, name), text


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
    reference. Pages are paired by name, then by content of the image, then by name without suffix; an output
    folder of the vendor, one page under another name, is paired with the only page that is left. Without a
    `tolerance` that of A's run counts. Every page is judged anew, by what was recorded of it. Raises
    ReviewError or HistoryError.
    """
    run_b = run_b or run_a
    records = history.record(run_a), history.record(run_b)
    recorded = load(history, list(dict.fromkeys((run_a, run_b))))
    backends = _backends(recorded, run_a, run_b, backend_a, backend_b)
    one_run = run_a == run_b
    same_backend = backends[0] == backends[1]
    a, b = (
        Side(
            letter,
            record,
            backend,
            (backend or "") if one_run else _name(record, None if same_backend else backend),
        )
        for letter, record, backend in zip(_LETTERS, records, backends, strict=True)
    )
    named = pair_pages(recorded, (run_a, backends[0]), (run_b, backends[1]), history)
    pairs = []
    for page_a, page_b in named:
        of_a = _side(recorded, "a", (run_a, backends[0], page_a), history) if page_a is not None else None
        of_b = _side(recorded, "b", (run_b, backends[1], page_b), history) if page_b is not None else None
        pairs.append((of_a, of_b))
    tolerance = tolerance or tolerance_of(records[0])
    pages = [
        (compare_page(page_a if page_a is not None else str(page_b), of_a, of_b, tolerance), of_a, of_b)
        for (page_a, page_b), (of_a, of_b) in zip(named, with_top_two(history, pairs), strict=True)
    ]
    usual = [_usual_backends(recorded, run_a, run_b, side) for side in (0, 1)]
    shown = [
        backend if backend != standard else None for backend, standard in zip(backends, usual, strict=True)
    ]
    return Review(history, a, b, review_key(run_a, run_b, *shown), pages)


_LETTERS: tuple[Letter, Letter] = ("a", "b")


def _side(recorded: Recorded, letter: Letter, key: Key, history: History) -> SideInputs:
    return side_inputs(recorded, key, page_side(recorded, letter, key, history), history)


def _name(record: RunRecord, backend: str | None) -> str:
    return f"{record.id} {backend}" if backend else record.id


def _usual_backends(recorded: Recorded, run_a: str, run_b: str, side: int) -> str | None:
    """The backend that is taken unless one is named."""
    found = recorded.backends((run_a, run_b)[side])
    if run_a == run_b and len(found) > 1:
        return found[side]
    return found[0] if found else None


def _backends(
    recorded: Recorded, run_a: str, run_b: str, backend_a: str | None, backend_b: str | None
) -> tuple[str | None, str | None]:
    """The backends of both sides. Raises ReviewError when there is nothing to compare."""
    chosen: list[str | None] = []
    for side, (run, backend) in enumerate(((run_a, backend_a), (run_b, backend_b))):
        found = recorded.backends(run)
        if not found:
            raise ReviewError(f"run {run} has no recorded page: there is nothing to review")
        if backend is not None and backend not in found:
            raise ReviewError(f"run {run} has no backend '{backend[:40]}'; it has {_listed(found)}")
        chosen.append(backend if backend is not None else _usual_backends(recorded, run_a, run_b, side))
    if run_a == run_b and chosen[0] == chosen[1]:
        raise ReviewError(
            f"run {run_a} has only the backend {_listed(recorded.backends(run_a))}: give a second run to "
            "compare it with, or record two backends (compare --save)"
        )
    return chosen[0], chosen[1]


def _listed(backends: list[str | None]) -> str:
    return ", ".join(backend or "(unnamed)" for backend in backends)
