"""Parity of the fast engine with the eager one, measured in four questions:

    python -m tests.perf.parity IMAGE --preset gundam --tokens 400 --batch 8

1. Fed the eager engine's tokens, does each way of decoding choose the same next one? Of every miss the margin
   between the eager engine's two best logits: a miss at a margin of rounding is a tie.
2. How far are the logits from a float32 oracle of the same weights, and how far are the eager engine's?
3. Running freely, how many edits lie between the texts? The control is the eager engine against itself with
   the other order of attention's operations.
4. Does a second run, and in a batch another order of the pages, give the same tokens?

Without images the pages are the samples under the embedded checkpoint, drawn ones under random weights. On a
CPU the batch runs on the plain form of its kernels, and there is no fast engine of single pages.
The last line is one JSON document. The exit code is 1 where an error is larger than the eager engine's, or a
second run gives other tokens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser
from rapidfuzz.distance import Levenshtein
from torch import Tensor

from dsocr_core.backends.backend import Opening
from dsocr_core.backends.on_device import engine_backend
from dsocr_core.base.paths import PROJECT_ROOT, Temporary
from dsocr_core.cli.options import add_settings, settings_of
from dsocr_core.engine.base import EagerEngine, Engine
from dsocr_core.engine.fast.batch import BatchReader
from dsocr_core.engine.fast.engine import FastEngine
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.kernels.launch import PLAIN, TRITON
from dsocr_core.measure.synthetic_page import draw_page
from dsocr_core.page.documents import expand
from dsocr_core.reading.differences import character_error_rate
from dsocr_core.reading.records import OcrResult
from dsocr_core.settings import Settings
from tests.perf.teacher_forcing import (
    oracle_of,
    teacher_forced_batch,
    teacher_forced_eager,
    teacher_forced_fast,
    teacher_forced_oracle,
)

ERROR_ALLOWANCE = 1.1
"""Most that the mean error may be over the eager engine's: two roundings of one sum differ."""
LISTED = 20
DRAWN = 3


def measure(settings: Settings, images: Sequence[Path], tokens: int, slots: int) -> dict[str, Any]:
    """Compare on these pages, `tokens` new ones each; returns the document. Raises DsocrError."""
    settings = replace(settings, infer=replace(settings.infer, max_new_tokens=tokens), engine="eager")
    with closing(engine_backend(settings, Opening(ignore_eos=True))) as backend, backend.lock.hold("parity"):
        eager = backend.engine
        # Whole texts end where the model ends them; only teacher forcing goes on.
        options = replace(eager.options, ignore_eos=False)
        free = EagerEngine(eager.checkpoint, options)
        other = "eager" if settings.own_attention != "eager" else "sdpa"
        control = EagerEngine(eager.checkpoint, replace(options, attention=other))
        forced, alone, reader_forced, reader = _fast_ways(eager, free, slots)
        requests = [settings.request(image) for image in images]

        baseline = [free.recognize(request) for request in requests]
        together, again = reader.read_all(requests), reader.read_all(requests)
        backwards = reader.read_all(requests[::-1])[::-1]
        repeats = {"batch": _equal(together, again), "batch, other order": _equal(together, backwards)}
        distances = [_distance("batch", together, baseline)]
        if alone is not None:
            single, second = ([alone.recognize(request) for request in requests] for _ in range(2))
            repeats["fast"] = _equal(single, second)
            distances.append(_distance("fast", single, baseline))
        other_order = [control.recognize(request) for request in requests]
        distances.append(_distance("eager, other attention", other_order, baseline))
        agreements = _agreements(eager, forced, reader_forced, baseline)
    held = all(each["holds"] for each in agreements) and all(n == len(images) for n in repeats.values())
    return {
        "device": str(backend.device), "dtype": str(backend.dtype), "tokens": tokens, "pages": len(images),
        "agreements": agreements,
        "distances": distances,
        "repeats": repeats, "passes": held,
    }  # fmt: skip


def _fast_ways(
    eager: Engine, free: Engine, slots: int
) -> tuple[Engine | None, Engine | None, BatchReader, BatchReader]:
    """Teacher-forced and running freely: the fast engine of single pages where it runs, and the batch."""
    if eager.checkpoint.model.device.type != "cuda":
        return None, None, BatchReader(eager, 1, True, kernels=PLAIN), BatchReader(free, slots, kernels=PLAIN)
    forced, alone = (
        FastEngine(eager.checkpoint, replace(eager.options, ignore_eos=ignore)) for ignore in (True, False)
    )
    readers = BatchReader(forced, slots, True, kernels=TRITON), BatchReader(alone, slots, kernels=TRITON)
    return forced, alone, *readers


def _agreements(
    eager: Engine, fast: Engine | None, reader: BatchReader, baseline: Sequence[OcrResult]
) -> list[dict[str, Any]]:
    oracle = oracle_of(eager)
    found: dict[str, list[tuple[Tensor, ...]]] = {}
    for result in baseline:
        tokens = list(result.required_tokens)
        timer = StageTimer(eager.checkpoint.model.device, marks=Marks.NONE)
        with eager.modes():
            page, pixels = eager.take_in(result.request, None, timer)
        own = teacher_forced_eager(eager, page, pixels, tokens)
        exact = teacher_forced_oracle(oracle, eager, page, pixels, tokens)
        ways = {"batch": teacher_forced_batch(reader, page, pixels, tokens)}
        if fast is not None:
            ways["fast"] = teacher_forced_fast(fast, page, pixels, tokens)
        best = own.logits.topk(2, dim=1).values
        for name, way in ways.items():
            rows = (
                way.chosen != own.chosen, best[:, 0] - best[:, 1],
                _errors(way.logits, exact), _errors(own.logits, exact),
            )  # fmt: skip
            found.setdefault(name, []).append(tuple(row.cpu() for row in rows))
    return [_agreement(name, pages) for name, pages in found.items()]


def _errors(logits: Tensor, exact: Tensor) -> Tensor:
    """Distance of each row from the exact one, by its length: (T,)"""
    return (logits - exact).norm(dim=1) / exact.norm(dim=1)


def _agreement(name: str, pages: Sequence[tuple[Tensor, ...]]) -> dict[str, Any]:
    """One way of decoding, fed the eager engine's tokens; it holds where its error is no larger than eager's.

    Errors are means over positions of the logits' distance from the oracle's, by the oracle's length.
    """
    missed, margins, errors, eager = (torch.cat(parts) for parts in zip(*pages, strict=True))
    error, eager_error = float(errors.mean()), float(eager.mean())
    return {
        "name": name, "positions": len(missed), "misses": int(missed.sum()),
        "margins": sorted(margins[missed].tolist(), reverse=True)[:LISTED], "error": error,
        "eager_error": eager_error, "holds": error <= eager_error * ERROR_ALLOWANCE or error < 1e-5,
    }  # fmt: skip


def _distance(name: str, results: Sequence[OcrResult], baseline: Sequence[OcrResult]) -> dict[str, Any]:
    """Two ways running freely: pages with equal tokens, and mean edits a token and a character."""
    pairs, count = list(zip(results, baseline, strict=True)), len(baseline)
    edits = sum(Levenshtein.normalized_distance(a.required_tokens, b.required_tokens) for a, b in pairs)
    text = sum(character_error_rate(a.text_raw, b.text_raw) for a, b in pairs)
    equal = _equal(results, baseline)
    return {"name": name, "pages": count, "equal": equal, "tokens": edits / count, "text": text / count}


def _equal(first: Sequence[OcrResult], second: Sequence[OcrResult]) -> int:
    """Number of pages with the same tokens."""
    return sum(a.token_ids == b.token_ids for a, b in zip(first, second, strict=True))


def build_parser() -> ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(description="Compare the fast engine with the eager one.")
    parser.add_argument("images", nargs="*", type=Path, help="images, folders or PDF files")
    parser.add_argument("--tokens", type=int, default=400, help="new tokens of a page at most")
    parser.add_argument("--batch", type=int, default=8, help="slots of the batch")
    add_settings(parser, skip=("engine",))
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Measure; 1 where it does not pass."""
    parser = build_parser()
    chosen = parser.instantiate(parser.parse_args(words))
    settings = settings_of(chosen, skip=("engine",))
    with Temporary("parity") as name:
        folder = Path(name)
        paths = list(chosen.images)
        if not paths and settings.is_embedded:
            paths = [PROJECT_ROOT / "data" / "samples"]
        if not paths:
            paths = [draw_page(folder / f"page-{n}.png", (1280, 1280), n) for n in range(DRAWN)]
        pages = expand(paths, None, folder / "pages", settings.pdf_dpi, settings.max_pixels)
        found = measure(settings, [page.path for page in pages], chosen.tokens, chosen.batch)
    for row in (*found["agreements"], *found["distances"]):
        print(", ".join(f"{key} {value}" for key, value in row.items()))
    print(json.dumps(found))
    return int(not found["passes"])


if __name__ == "__main__":
    sys.exit(main())
