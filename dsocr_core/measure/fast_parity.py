"""Parity of the fast engine with the eager one, as far as bf16 lets there be one: measured, not promised.

    dsocr measure fast-parity IMAGE --preset gundam --tokens 400 --batch 8

Four questions, each beside what the eager engine does itself:
1. Fed the eager engine's tokens, does each way of decoding choose the same next one? Of every miss the
   margin between the eager engine's two best logits: a miss at a margin of rounding is a tie.
2. How far are the logits from a float32 oracle of the same weights, and how far are the eager engine's?
3. Running freely, how many edits lie between the texts, with and without coordinates? Beside it the control:
   the eager engine against itself with the other order of attention's operations.
4. Does a second run, and in a batch another order of the pages, give the same tokens?

Without images the pages are the samples under the embedded checkpoint, drawn ones under random weights.
On a CPU the batch runs on the plain form of its kernels, after the eager engine's vision and prefill, and
there is no fast engine of single pages. The last line is one JSON document. Progress goes to stderr.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import torch
from rapidfuzz.distance import Levenshtein
from rich.console import Console
from torch import Tensor

from dsocr_core.backends.backend import Opening
from dsocr_core.backends.on_device import engine_backend
from dsocr_core.base.console import FAILED, OK, print_json
from dsocr_core.base.errors import Cancelled
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.temporary import Temporary
from dsocr_core.engine.base import Engine
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.measure.fast_parity_report import LISTED, Agreement, Distance, FastParity, Repeat
from dsocr_core.measure.synthetic_page import draw_page, parse_size
from dsocr_core.measure.teacher_forcing import (
    TeacherForced,
    oracle_of,
    teacher_forced_batch,
    teacher_forced_eager,
    teacher_forced_fast,
    teacher_forced_oracle,
)
from dsocr_core.page.documents import expand
from dsocr_core.reading.parity import character_error_rate, parity
from dsocr_core.reading.parity_records import passes
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.reading.records import CancelToken, OcrRequest, OcrResult
from dsocr_core.settings import Settings

if TYPE_CHECKING:
    from dsocr_core.engine.fast.batch_reader import BatchReader

log = logging.getLogger(__name__)
T = TypeVar("T")

DRAWN = 3


@dataclass(frozen=True)
class Watch:
    """Logs how far each phase is, and ends it when `cancel` is set."""

    cancel: CancelToken | None = None
    say: Callable[[str], None] = log.info

    def begin(self, phase: str, pages: int) -> Callable[[], None]:
        """Logs that the phase begins; to be called after each of its pages. Raises Cancelled."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled
        began, done = time.perf_counter(), count()

        def page_done() -> None:
            self.say(f"{phase} {next(done)}/{pages} pages, {time.perf_counter() - began:.0f} s")

        page_done()
        return page_done

    def pages(self, phase: str, pages: Sequence[T]) -> Iterator[T]:
        """The pages of a phase that takes them one by one. Raises Cancelled as it begins."""
        page_done = self.begin(phase, len(pages))
        for page in pages:
            yield page
            page_done()


def measure(
    settings: Settings, images: Sequence[Path], tokens: int, slots: int, watch: Watch | None = None
) -> FastParity:
    """Compare on these pages, `tokens` new ones each. Raises DsocrError; Cancelled when the watch ends it."""
    watch = watch or Watch()
    infer = replace(settings.infer, max_new_tokens=tokens)
    settings = replace(settings, infer=infer, engine="eager")
    with closing(engine_backend(settings, Opening(ignore_eos=True))) as backend:
        eager = backend.engine
        options = replace(eager.options, ignore_eos=False)
        other = "eager" if settings.own_attention != "eager" else "sdpa"
        control = EagerEngine(eager.checkpoint, replace(options, attention=other))
        # Whole texts end where the model ends them; only teacher forcing goes on.
        free_eager = EagerEngine(eager.checkpoint, options)
        fast, fast_free, reader, reader_free = _fast_ways(eager, free_eager, slots)
        requests = [settings.request(image) for image in images]
        with backend.lock.hold("parity of the fast engine", watch.cancel):
            baseline = _read_each(free_eager, requests, "eager", watch)
            distances, repeats = [], []

            def compare(name: str, results: Sequence[OcrResult]) -> None:
                distances.append(_distance(f"{name} / eager", results, baseline))
                watch.say(f"{name}: {distances[-1].equal} of {len(baseline)} pages have eager's tokens")

            if fast_free is not None:
                alone = _read_each(fast_free, requests, "fast", watch)
                compare("fast", alone)
                repeats.append(_repeat("fast", alone, _read_each(fast_free, requests, "fast again", watch)))
            together = _read_all(reader_free, requests, "batch", watch)
            compare("batch", together)
            again = _read_all(reader_free, requests, "batch again", watch)
            repeats.append(_repeat("batch", together, again))
            backwards = _read_all(reader_free, requests[::-1], "batch, other order", watch)[::-1]
            repeats.append(_repeat("batch, other order", together, backwards))
            compare("eager, other attention", _read_each(control, requests, "eager, other attention", watch))
            agreements = _agreements(eager, fast, reader, baseline, watch)  # the longest comes last
    return FastParity(
        device=str(backend.device),
        checkpoint=settings.checkpoint,
        dtype=str(backend.dtype).removeprefix("torch."),
        tokens=tokens,
        agreements=tuple(agreements),
        distances=tuple(distances),
        repeats=tuple(repeats),
    )


def _fast_ways(
    eager: Engine, free: Engine, slots: int
) -> tuple[Engine | None, Engine | None, BatchReader, BatchReader]:
    """Teacher-forced and running freely: the fast engine of single pages where it runs, and the batch."""
    from dsocr_core.engine.fast.batch_kernels import PLAIN, TRITON
    from dsocr_core.engine.fast.batch_reader import BatchReader
    from dsocr_core.engine.fast.engine import FastEngine

    device = eager.checkpoint.model.device
    if device.type != "cuda":
        return None, None, BatchReader(eager, 1, True, kernels=PLAIN), BatchReader(free, slots, kernels=PLAIN)
    ignoring_eos, running = (
        FastEngine(eager.checkpoint, replace(eager.options, ignore_eos=ignore)) for ignore in (True, False)
    )
    return (
        ignoring_eos, running,
        BatchReader(ignoring_eos, slots, True, kernels=TRITON), BatchReader(running, slots, kernels=TRITON),
    )  # fmt: skip


def _agreements(
    eager: Engine, fast: Engine | None, reader: BatchReader, baseline: Sequence[OcrResult], watch: Watch
) -> list[Agreement]:
    oracle = oracle_of(eager)
    found: dict[str, list[tuple[Tensor, Tensor, Tensor, Tensor]]] = {}
    for result in watch.pages("teacher-forced", baseline):
        tokens = list(result.required_tokens)
        timer = StageTimer(eager.checkpoint.model.device, marks=Marks.NONE)
        with eager.modes():
            page, pixels = eager.take_in(result.request, None, timer)
        own = teacher_forced_eager(eager, page, pixels, tokens, watch.cancel)
        exact = teacher_forced_oracle(oracle, eager, page, pixels, tokens)
        ways: dict[str, TeacherForced] = {}
        if fast is not None:
            ways["fast"] = teacher_forced_fast(fast, page, pixels, tokens, watch.cancel)
        ways["batch"] = teacher_forced_batch(reader, page, pixels, tokens, watch.cancel)
        best = own.logits.topk(2, dim=1).values
        for name, way in ways.items():
            found.setdefault(name, []).append(
                (
                    (way.chosen != own.chosen).cpu(),
                    (best[:, 0] - best[:, 1]).cpu(),
                    _errors(way.logits, exact).cpu(),
                    _errors(own.logits, exact).cpu(),
                )
            )
    return [_agreement(name, pages) for name, pages in found.items()]


def _errors(logits: Tensor, exact: Tensor) -> Tensor:
    """(T,)"""
    distance: Tensor = torch.linalg.vector_norm(logits - exact, dim=1)
    length: Tensor = torch.linalg.vector_norm(exact, dim=1)
    return distance / length


def _agreement(name: str, pages: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]]) -> Agreement:
    missed, margins, errors, eager = (torch.cat(parts) for parts in zip(*pages, strict=True))
    largest = sorted(margins[missed].tolist(), reverse=True)
    return Agreement(
        name=name,
        positions=len(missed),
        misses=int(missed.sum()),
        margins=tuple(largest[:LISTED]),
        error=float(errors.mean()),
        error_max=float(errors.max()),
        eager_error=float(eager.mean()),
        eager_error_max=float(eager.max()),
    )


def _distance(name: str, results: Sequence[OcrResult], baseline: Sequence[OcrResult]) -> Distance:
    pairs = list(zip(results, baseline, strict=True))
    tokens = [(a.required_tokens, b.required_tokens) for a, b in pairs]
    count = len(pairs)
    return Distance(
        name=name,
        pages=count,
        equal=sum(a.token_ids == b.token_ids for a, b in pairs),
        tokens=sum(Levenshtein.normalized_distance(a, b) for a, b in tokens) / count,
        text=sum(character_error_rate(a.text_raw, b.text_raw) for a, b in pairs) / count,
        clean=sum(character_error_rate(clean_text(a.text_raw), clean_text(b.text_raw)) for a, b in pairs)
        / count,
        boxes_pass=sum(passes(parity(a, b).verdict) for a, b in pairs),
        differing=tuple(b.request.name for a, b in pairs if a.token_ids != b.token_ids)[:LISTED],
    )


def _repeat(name: str, first: Sequence[OcrResult], second: Sequence[OcrResult]) -> Repeat:
    equal = sum(a.token_ids == b.token_ids for a, b in zip(first, second, strict=True))
    return Repeat(name, len(first), equal)


def _read_each(engine: Engine, requests: Sequence[OcrRequest], phase: str, watch: Watch) -> list[OcrResult]:
    """The requests one after another. Raises DsocrError."""
    return [engine.recognize(request, None, watch.cancel) for request in watch.pages(phase, requests)]


def _read_all(
    reader: BatchReader, requests: Sequence[OcrRequest], phase: str, watch: Watch
) -> list[OcrResult]:
    """The requests through the batch, results in their order. Raises DsocrError of the first at fault."""
    return reader.read_all(requests, watch.cancel, watch.begin(phase, len(requests)))


def run(
    settings: Annotated[Settings, "engine"],
    images: tuple[str, ...] = (),
    *,
    tokens: int = 400,
    batch: int = 8,
    size: str = "1280x1280",
    json: bool = False,
    console: Console,
    cancel: CancelToken,
) -> int:
    """Compare the fast engine with the eager one, fed its tokens and free. Ends with one line of JSON.

    Args:
        images: images, folders or PDF files (default: the samples, or drawn pages under random weights)
        tokens: new tokens of a page at most
        batch: slots of the batch
        size: of drawn pages, like 1280x1280
    """
    pixels = parse_size(size)
    with Temporary("parity") as folder:
        paths = [Path(image) for image in images]
        if not paths and settings.is_embedded:
            paths = [PROJECT_ROOT / "data" / "samples"]
        if not paths:
            paths = [draw_page(Path(folder) / f"page-{n}.png", pixels, n) for n in range(DRAWN)]
        pages = expand(paths, None, Path(folder) / "pages", settings.pdf_dpi, settings.max_pixels)
        found = measure(settings, [page.path for page in pages], tokens, batch, Watch(cancel))
    found.print(console)
    print_json(found.document())
    return OK if found.passes else FAILED
