"""Times whole pages in a batch with drafts: opened, resized, read and decoded, on random weights."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dsocr_core.backends.backend import Opening
from dsocr_core.backends.on_device import EngineBackend, engine_backend
from dsocr_core.engine.checkpoint import RANDOM_PREFIX
from dsocr_core.measure.bench_batch import read_pass
from dsocr_core.measure.synthetic_page import draw_page
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.settings import InferSettings, Settings

SIZE, DRAWN, FEWEST = (1280, 1280), 32, 4
"""Pixels of a page; how many pages there are to see, each for many; the fewest that have a middle half."""

Tokens = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class PagesGain:
    """Reading of all pages: the share of right tokens in their drafts, None without, and what came of it."""

    right: float | None
    pages: int
    pages_per_s: float
    """From the first page's file to the last page's result."""
    between: float
    """The same of the middle half of the results: slots neither fill nor drain."""
    times: float
    times_between: float
    equal: bool | None = None

    @property
    def words(self) -> str:
        """A line for people."""
        name = "no draft" if self.right is None else f"{self.right:.0%} right"
        equal = "" if self.equal is None else "equal" if self.equal else "NOT EQUAL"
        whole = f"{self.pages:5} pages {self.pages_per_s:6.2f}/s {self.times:.3f}x"
        return f"{name:12} {whole}, middle half {self.between:6.2f}/s {self.times_between:.3f}x {equal}"


class KnownDrafts:
    """Drafts that are given by the page's name."""

    name, own_text, known_early = "planted", False, True

    def __init__(self) -> None:
        self.of: Tokens = {}

    def told(self, request: OcrRequest, other: OcrResult) -> None:
        """Hear nothing: drafts are known before."""

    def tokens(self, request: OcrRequest, encode: Callable[[str], list[int]]) -> tuple[int, ...]:
        return self.of.get(request.name, ())


def pages_gains(
    settings: Settings,
    pages: int,
    slots: int,
    shares: Sequence[float],
    plant: Callable[[tuple[int, ...], float, int], tuple[int, ...]],
) -> Iterator[PagesGain]:
    """No draft first, then each share of right tokens; every page has its own errors.

    `plant` makes a page's draft of its tokens, the share and a number. Takes `FEWEST` pages at least.
    """
    with tempfile.TemporaryDirectory() as folder:
        drawn = [draw_page(Path(folder) / f"{n}.png", SIZE, n) for n in range(min(DRAWN, pages))]
        requests = [settings.request(drawn[n % len(drawn)], f"page {n}") for n in range(pages)]
        backend = _warm(settings, Opening(ignore_eos=True), requests, slots)
        true, off, between = _read(backend, requests, slots)
        backend.close()  # two readers' slots may not fit
        yield PagesGain(None, pages, off, between, 1.0, 1.0)
        drafts = KnownDrafts()
        backend = _warm(settings, Opening(ignore_eos=True, drafts=drafts), requests, slots)
        for right in shares:
            drafts.of = {name: plant(tokens, right, n) for n, (name, tokens) in enumerate(true.items())}
            found, rate, middle = _read(backend, requests, slots)
            yield PagesGain(right, pages, rate, middle, rate / off, middle / between, found == true)
        backend.close()


def _warm(settings: Settings, opening: Opening, requests: Sequence[OcrRequest], slots: int) -> EngineBackend:
    """A backend whose kernels are compiled."""
    backend = engine_backend(settings, opening)
    read_pass(backend, [replace(request, source="warm") for request in requests[:2]], slots)
    return backend


def _read(backend: EngineBackend, requests: Sequence[OcrRequest], slots: int) -> tuple[Tokens, float, float]:
    """Tokens by page, pages a second of all, and of the middle half."""
    ended: list[float] = []
    started = time.perf_counter()
    results = read_pass(backend, requests, slots, page_done=lambda: ended.append(time.perf_counter()))
    quarter = len(ended) // 4
    middle = ended[quarter : len(ended) - quarter]
    found = {result.request.name: result.token_ids or () for result in results}
    tokens = {request.name: found[request.name] for request in requests}
    return tokens, len(ended) / (ended[-1] - started), (len(middle) - 1) / (middle[-1] - middle[0])


def settings_for(config: Path, tokens: int) -> Settings:
    """Random weights of the sizes in a `config.json`, on a GPU, nothing recorded."""
    infer = InferSettings(max_new_tokens=tokens)
    return Settings(
        checkpoint=f"{RANDOM_PREFIX}{config}", preset="gundam", engine="fast", infer=infer, history=""
    )
