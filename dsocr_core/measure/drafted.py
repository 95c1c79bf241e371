"""Times decoding with drafts, one page and a batch, on a GPU: random weights, drafts of the true tokens.

    dsocr measure drafted --config PATH
    dsocr measure drafted --read drafted.json --svg docs/drafts.svg

Every drafted row is held against decoding without a draft: tokens, and of one page the logits of the chosen
tokens and all keys and values, bit for bit. The last line is the JSON document that `--read` draws.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from dsocr_core.base.console import print_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.untrusted import parse_json, read_bytes
from dsocr_core.engine.drafts.pace import COSTS
from dsocr_core.engine.fast.batch_decode import BatchDecoder
from dsocr_core.engine.fast.batch_step import BatchStep
from dsocr_core.engine.fast.batch_weights import BatchWeights
from dsocr_core.engine.fast.decode import FastDecoder
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.kernels.state import POSITION
from dsocr_core.measure.device import milliseconds, require_fast_engine_for
from dsocr_core.measure.drafted_pages import FEWEST, PagesGain, pages_gains, settings_for
from dsocr_core.measure.drafted_picture import draw
from dsocr_core.measure.rows import Rows
from dsocr_core.models.blocks.attention import sdpa_core
from dsocr_core.models.family import load_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from dsocr_core.settings import SettingsError

SHARES = (1.0, 0.98, 0.95, 0.9, 0.8, 0.6, 0.0)
TOGETHER = (1.0, 0.98, 0.9, 0.6, 0.0)
WHOLE = (1.0, 0.9, 0.0)
SHORT = 10
"""A short page has that part of the tokens and half of the prompt."""
_FILE_LIMIT = 2**20
_NGRAM = 20


@dataclass(frozen=True)
class Gain:
    """One draft: its share of right tokens, None without a draft, and what came of it."""

    right: float | None
    tokens: int
    tokens_per_s: float
    times: float
    """Times as fast as without a draft."""
    equal: bool | None = None
    facts: Mapping[str, str] | None = None

    @property
    def words(self) -> str:
        """A line for people."""
        name = "no draft" if self.right is None else f"{self.right:.0%} right"
        facts = " ".join(f"{key} {value}" for key, value in (self.facts or {}).items())
        equal = "" if self.equal is None else "equal" if self.equal else "NOT EQUAL"
        speed = f"{self.tokens:6} tokens {self.tokens_per_s:9,.0f}/s {self.times:6.3f}x"
        return f"{name:12} {speed} {equal:9} {facts}"


def planted(true: Sequence[int], right: float, vocabulary: int, seed: int = 0) -> tuple[int, ...]:
    """The true tokens, but for the share that is not right another one in their place."""
    chance = random.Random(seed)
    wrong = (chance.random() >= right for _ in true)
    return tuple(
        (token + chance.randrange(1, vocabulary)) % vocabulary if other else token
        for token, other in zip(true, wrong, strict=True)
    )


class OnePage:
    """A page whose prompt and cache are random, decoded again and again."""

    def __init__(self, model: OcrModel, decoder: FastDecoder, context: int, limit: int, ngram: int) -> None:
        self._model, self._decoder, self._limit, self._ngram = model, decoder, limit, ngram
        self._vocabulary = model.config.decoder.vocab_size
        draw = random.Random(context)
        self.prompt = tuple(draw.randrange(self._vocabulary) for _ in range(context))
        generator = torch.Generator(model.device).manual_seed(context)
        self._logits = torch.randn(self._vocabulary, generator=generator, device=model.device)

    def decode(self, draft: tuple[int, ...] | None = ()) -> tuple[list[int], float, dict[str, str] | None]:
        """New tokens, seconds, and what the draft gave; None drafts what the page itself said."""
        sequence = self._decoder.start(self.prompt, self._limit, self._ngram, sdpa_core)
        generator = torch.Generator(self._model.device).manual_seed(1)
        for half in (sequence.cache.keys, sequence.cache.values):
            half[:, :, :, : len(self.prompt)].normal_(generator=generator)
        sequence.draft, sequence.drafts_itself = draft or (), draft is None
        self._wait()
        started = time.perf_counter()
        tokens, _ = self._decoder.decode(
            sequence, self.prompt, self._logits, self._limit, lambda token: None, None
        )
        self._wait()
        return tokens, time.perf_counter() - started, sequence.drafted

    def left(self) -> list[Tensor]:
        """Give what the last decoding left on the device: tokens, their logits, keys and values."""
        graph = self._decoder._graph
        assert graph is not None
        step, first = graph.step, len(self.prompt)
        end = int(step.state[POSITION]) + 1
        # The first token is the prefill's, and so is its logit.
        held = [step.tokens[first : end + 1], step.logits[first + 1 : end + 1]]
        places = step.places(first, end)
        return [
            *(t.clone() for t in held),
            *(h[:, :, :, places] for h in (step.cache.keys, step.cache.values)),
        ]

    def gains(self, shares: Sequence[float], repeat: int) -> Iterator[Gain]:
        """No draft first, then each share of right tokens; medians of `repeat`."""
        self.decode()
        tokens, off, _ = self._median((), repeat)
        wanted = self.left()
        yield Gain(None, len(tokens), len(tokens) / off, 1.0)
        for right in shares:
            draft = planted(tokens, right, self._vocabulary)
            self.decode(draft)
            _, seconds, facts = self._median(draft, repeat)
            equal = all(torch.equal(a, b) for a, b in zip(self.left(), wanted, strict=True))
            yield Gain(right, len(tokens), len(tokens) / seconds, off / seconds, equal, facts)

    def _median(self, draft: tuple[int, ...], repeat: int) -> tuple[list[int], float, dict[str, str] | None]:
        found = sorted((self.decode(draft) for _ in range(repeat)), key=lambda each: each[1])
        return found[len(found) // 2]

    def costs_ms(self, tokens: tuple[int, ...]) -> dict[int, float]:
        """Time of a step and of passes by their rows, with a draft that is right, in the middle of a page."""
        self.decode(tokens)
        graph, passes = self._decoder._graph, self._decoder._passes
        assert graph is not None and passes is not None

        def timed(rows: int) -> float:
            count = max(1, (len(tokens) - 2) // rows // 2)
            graph.step.begin((*self.prompt, tokens[0]), len(tokens), self._ngram)
            passes.draft.begin(tokens, len(self.prompt))
            run = (lambda: graph.replay(count)) if rows == 1 else (lambda: passes.replay(rows, count))
            return milliseconds(run, self._model.device) / count

        return {rows: statistics.median(timed(rows) for _ in range(3)) for rows in COSTS}

    def _wait(self) -> None:
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)


class Together:
    """Pages in a batch's slots, each from its own random prompt, decoded again and again."""

    def __init__(
        self, weights: BatchWeights, model: OcrModel, streams: int, context: int, limit: int
    ) -> None:
        self._weights, self._config, self._streams = weights, model.config.decoder, streams
        self._context, self._limit = context, limit

    @contextmanager
    def decoder(self, drafted: bool, **parts: Any) -> Iterator[BatchDecoder]:
        """Slots of their own, their caches filled alike; the memory is given back at the end."""
        positions = self._context + self._limit
        step = BatchStep(
            self._weights, self._config, self._streams, positions, torch.bfloat16, NO_TOKEN,
            drafted=drafted, **parts,
        )  # fmt: skip
        generator = torch.Generator(step.device).manual_seed(0)
        for half in (step.keys, step.values):
            for layer in half:  # a layer at a time: less at once than the whole
                layer[:, :, : self._context].normal_(generator=generator)
        yield BatchDecoder(step, timed=False)
        del step
        if self._weights.embedding.is_cuda:
            torch.cuda.empty_cache()

    def decode(
        self, decoder: BatchDecoder, drafts: Mapping[object, Sequence[int]]
    ) -> tuple[dict[object, tuple[int, ...]], float, dict[str, str] | None]:
        """Tokens of every page, seconds, and what the drafts gave all."""
        vocabulary, draw = self._config.vocab_size, random.Random(2)
        generator = torch.Generator(decoder.step.device).manual_seed(3)
        decoder.reset()  # a page is its slot's cache: each in the same one again
        device, sums = decoder.step.device, dict.fromkeys(("passes", "drafted", "accepted"), 0)
        pages = [
            (tuple(draw.randrange(vocabulary) for _ in range(self._context)),
             torch.randn(vocabulary, generator=generator, device=device))
            for _ in range(self._streams)
        ]  # fmt: skip
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        started, found = time.perf_counter(), {}
        for key, (prompt, logits) in enumerate(pages):
            slot, _ = decoder.take()
            decoder.begin(slot, key, prompt, self._limit, _NGRAM, logits, drafts.get(key, ()))
        while decoder.busy:
            for one in decoder.advance():
                found[one.key] = one.tokens
                for name in sums if one.draft else ():
                    sums[name] += int((one.draft or {})[name])
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        facts = {name: str(value) for name, value in sums.items()} if drafts else None
        return found, time.perf_counter() - started, facts

    def gains(self, shares: Sequence[float], **parts: Any) -> Iterator[Gain]:
        """No drafts first, then each share of right tokens, every page its own errors."""
        with self.decoder(False, **parts) as decoder:
            self.decode(decoder, {})
            true, off, _ = self.decode(decoder, {})
        count = sum(map(len, true.values()))
        yield Gain(None, count, count / off, 1.0)
        with self.decoder(True, **parts) as decoder:
            self.decode(decoder, true)
            for right in shares:
                drafts = {
                    key: planted(tokens, right, self._config.vocab_size, seed)
                    for seed, (key, tokens) in enumerate(true.items())
                }
                found, seconds, facts = self.decode(decoder, drafts)
                yield Gain(right, count, count / seconds, off / seconds, found == true, facts)

    def costs_ms(self, decoder: BatchDecoder) -> dict[int, float]:
        """Time of a step by its rows a slot, every slot in the middle of its page."""
        step = decoder.step
        for slot in range(step.slots):
            step.begin(slot, tuple(range(2, self._context + 2)), self._limit, _NGRAM)
        step.states[:, POSITION] += self._limit // 2
        found = {}
        for rows in step.rows:
            decoder.replay(rows)
            found[rows] = statistics.median(
                milliseconds(partial(decoder.replay, rows), step.device) for _ in range(9)
            )
        decoder.reset()
        return found


def run(
    *,
    config: Path | None = None,
    tokens: int = 1000,
    context: int = 741,
    streams: Annotated[int, 0] = 256,
    pages: int = 0,
    repeat: int = 3,
    read: Path | None = None,
    svg: Path | None = None,
) -> None:
    """Time decoding with drafts of a set share of errors, one page and a batch, on a GPU; or draw what was
    timed.

    Args:
        config: config.json of the sizes to run
        tokens: new tokens of a page
        context: prompt tokens
        streams: pages of the batch; 0 leaves it out
        pages: whole pages that the batch reads, opened and prefilled too
        repeat: measured passes of one page
        read: instead of measuring, the JSON document of an earlier run
        svg: where the picture goes: tokens a second over the share of right tokens
    """
    if read is not None:
        document = _read(read)
    elif pages and (pages < FEWEST or not streams):
        raise SettingsError(
            f"measure drafted: --pages takes {FEWEST} or more, and --streams of them together"
        )
    elif config is not None:
        require_fast_engine_for("measure drafted")
        document = measured(config, tokens, context, streams, pages, repeat)
        print_json(document)
    else:
        raise SettingsError("measure drafted: give --config to measure, or --read of an earlier run to draw")
    if svg is not None:
        svg.write_text(draw(document))


def measured(
    config: Path, tokens: int, context: int, streams: int, pages: int, repeat: int
) -> dict[str, Any]:
    """All rows, printed as they come, and the document."""
    device = torch.device("cuda")
    model, rows = random_model(load_config(config), device, torch.bfloat16), Rows(device)
    with torch.inference_mode():
        decoder = FastDecoder(model, NO_TOKEN, torch.bfloat16, drafts=True)
        page = OnePage(model, decoder, context, tokens, _NGRAM)
        single = _said(rows, f"one page, {tokens} tokens after {context}", page.gains(SHARES, repeat))
        costs = page.costs_ms(tuple(page.decode()[0]))
        rows.say(f"ms a pass by rows: {costs}")
        brief = OnePage(model, decoder, context // 2, tokens // SHORT, _NGRAM)
        title = f"one page, {tokens // SHORT} tokens after {context // 2}"
        short = _said(rows, title, brief.gains((1.0, 0.9, 0.0), repeat))
        batch, batch_costs = [], {}
        if streams:
            del decoder, page, brief
            together = Together(
                BatchWeights.of(PackedDecoder.of(model.decoder)), model, streams, context, tokens
            )
            batch = _said(rows, f"{streams} pages together", together.gains(TOGETHER))
            with together.decoder(True) as slots:
                batch_costs = together.costs_ms(slots)
            rows.say(f"ms a step of {streams} slots by rows: {batch_costs}")
            del together, slots
    del model
    whole = list(_whole(rows, config, tokens, pages, streams)) if pages else []
    return rows.document(
        tokens=tokens, context=context, streams=streams, costs_ms=costs, batch_costs_ms=batch_costs,
        single=[asdict(each) for each in single], short=[asdict(each) for each in short],
        batch=[asdict(each) for each in batch], pages=[asdict(each) for each in whole],
    )  # fmt: skip


def _whole(rows: Rows, config: Path, tokens: int, pages: int, streams: int) -> Iterator[PagesGain]:
    settings = settings_for(config, tokens)
    vocabulary = load_config(config).decoder.vocab_size

    def plant(true: tuple[int, ...], right: float, seed: int) -> tuple[int, ...]:
        return planted(true, right, vocabulary, seed)

    rows.say(f"\n{pages} whole pages, {streams} together")
    for gain in pages_gains(settings, pages, streams, WHOLE, plant):
        rows.say(gain.words)
        yield gain


def _said(rows: Rows, title: str, gains: Iterator[Gain]) -> list[Gain]:
    rows.say(f"\n{title}")
    found = []
    for gain in gains:
        rows.say(gain.words)
        found.append(replace(gain, facts=dict(gain.facts or {})))
    return found


def _read(file: Path) -> dict[str, Any]:
    document = parse_json(read_bytes(file, _FILE_LIMIT))
    if not isinstance(document.get("single"), list):
        raise DsocrError(f"{file}: not a document of measure drafted; give the last line that it printed")
    return document
