"""The precision ladder: what fewer bits cost in text, rung by rung, beside a control.

    dsocr measure ladder PAGES --rungs fp8-v fp8-kv int8 int4 --truth ground_truth.json

Every rung reads the pages freely and, fed the tokens that the base wrote, is asked for its own choice. The
base is the model in its own type; the control is the base again with other orders of sums, by which two right
readings differ. A rung whose weights are rounded has its values and not its speed, and says so. A server is a
rung as `endpoint:URL`: what cannot be known of it is null. The last line is one JSON document.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from rich.console import Console
from torch import Tensor

from dsocr_core.backends.on_device import engine_backend, shared_checkpoint
from dsocr_core.backends.registry import open_backend
from dsocr_core.base.console import OK, print_json, titled_table
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs.kinds import PRECISIONS, Precision
from dsocr_core.base.specs.parsing import parse_backend
from dsocr_core.base.temporary import Temporary
from dsocr_core.base.untrusted import Refused, parse_json, read_bytes
from dsocr_core.engine.base import Engine
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.measure.bench_batch import full_groups
from dsocr_core.measure.fast_parity import Watch
from dsocr_core.measure.teacher_forcing import teacher_forced_batch
from dsocr_core.models.precision import CACHES, decoder_bytes, position_bytes
from dsocr_core.page.documents import expand
from dsocr_core.reading.parity import character_error_rate, end_of, parity, words_of
from dsocr_core.reading.records import CancelToken, OcrRequest, OcrResult
from dsocr_core.reading.text_diff import text_changes
from dsocr_core.review.repetition import find_loop
from dsocr_core.settings import Settings, history_location

if TYPE_CHECKING:
    from dsocr_core.engine.fast.batch_reader import BatchReader

BASE, CONTROL = "base", "control"
FILE = "ladder.json"
_TRUTH_LIMIT = 64 * 1024 * 1024
"""Bytes."""


@dataclass(frozen=True)
class Rung:
    """One row of the ladder; None is not known, or not measured."""

    name: str
    values_only: bool
    bytes_a_token: int | None = None
    """Weights and cache that a token reads by itself, at the pages' mean context."""
    memory_bytes: int | None = None
    """The decoder's weights, and the caches of all slots."""
    tokens_per_s: float | None = None
    pages_per_s: float | None = None
    positions: int = 0
    agreement: float | None = None
    """Share of positions at which it chooses the base's token, fed the base's tokens."""
    divergence: float | None = None
    """Mean KL divergence of its distribution from the base's, in nats."""
    identical: int = 0
    within: int = 0
    differing: int = 0
    values_changed: int = 0
    boxes_moved: int = 0
    loops: int = 0
    at_limit: int = 0
    error: float | None = None
    """Mean CER against the truth; without it against the base."""
    error_clean: float | None = None
    """The same without pages that loop or ran to the limit."""

    @property
    def title(self) -> str:
        return f"{self.name} (values only)" if self.values_only else self.name


@dataclass
class _Read:
    """Pages that a rung read, and its choices on the forced ones."""

    results: list[OcrResult]
    logits: list[Tensor]


class Ladder:
    """The rungs of one checkpoint over the same pages."""

    def __init__(self, settings: Settings, slots: int, forced: int, watch: Watch) -> None:
        self.settings, self.slots, self.forced, self.watch = settings, slots, forced, watch
        self.results: list[OcrResult] = []
        """Readings of all rungs, under their names."""
        with closing(engine_backend(replace(settings, engine="eager", precision="off"))) as backend:
            self.device, self.dtype, self.options = backend.device, backend.dtype, backend.engine.options
        self.real = self.device.type == "cuda"

    def rungs(
        self, requests: Sequence[OcrRequest], names: Sequence[str], truth: Mapping[str, str]
    ) -> list[Rung]:
        """The base, the control and the named rungs. Raises DsocrError, Cancelled."""
        found: list[Rung] = []
        base: _Read | None = None
        for name in (BASE, CONTROL, *names):
            if name in (BASE, CONTROL, *PRECISIONS):
                rung, read = self._own(name, requests, base)
            else:
                rung, read = self._other(name, requests)
            base = base or read
            self.results += [replace(result, backend=rung.name) for result in read.results]
            found.append(_compared(rung, read, base, truth))
            self.watch.say(f"{name}: {found[-1].identical} of {len(requests)} pages identical")
        return found

    def _engine(self, name: str) -> Engine:
        precision: Precision = name if name in PRECISIONS else "off"
        checkpoint = shared_checkpoint(self.settings.checkpoint, self.device, self.dtype, precision)
        options = replace(self.options, precision=precision)
        if name == CONTROL:
            options = replace(options, attention="eager" if options.attention != "eager" else "sdpa")
        if not self.real:
            return EagerEngine(checkpoint, options)
        from dsocr_core.engine.fast.engine import FastEngine

        return FastEngine(checkpoint, options)

    def _reader(self, engine: Engine, name: str, slots: int, ignore_eos: bool) -> BatchReader:
        from dsocr_core.engine.fast.batch_kernels import PLAIN, TRITON
        from dsocr_core.engine.fast.batch_reader import BatchReader
        from dsocr_core.engine.fast.batch_step import BatchLaunches
        from dsocr_core.kernels.launch import Launch

        other = BatchLaunches(attention=Launch(16, 4)) if name == CONTROL else None
        kernels = TRITON if self.real else PLAIN
        return BatchReader(engine, slots, ignore_eos, kernels=kernels, launches=other)

    def _own(self, name: str, requests: Sequence[OcrRequest], base: _Read | None) -> tuple[Rung, _Read]:
        engine = self._engine(name)
        precision = engine.options.precision
        rounded = precision not in ("off", *CACHES)
        reader = self._reader(engine, name, self.slots, False)
        if self.real:
            reader.read_all(requests[:1], self.watch.cancel)  # compiles and captures
        began = time.perf_counter()
        results = reader.read_all(requests, self.watch.cancel, self.watch.begin(name, len(requests)))
        seconds = time.perf_counter() - began
        groups = full_groups(reader.times, reader.slots)
        timed = sum(group.milliseconds for group in groups) / 1e3
        fast = self.real and not rounded and timed > 0
        rung = replace(
            self._sizes(engine, reader, results),
            name=name,
            values_only=rounded or (not self.real and name not in (BASE, CONTROL)),
            tokens_per_s=sum(group.tokens for group in groups) / timed if fast else None,
            pages_per_s=len(results) / seconds if fast else None,
        )
        del reader
        fed = (base.results if base else results)[: self.forced]
        return rung, _Read(results, self._logits(engine, name, fed))

    def _sizes(self, engine: Engine, reader: BatchReader, results: Sequence[OcrResult]) -> Rung:
        """A rung with its bytes."""
        decoder, precision = engine.checkpoint.model.decoder, engine.options.precision
        config = engine.checkpoint.model.config.decoder
        position = position_bytes(config, self.dtype, precision)
        contexts = [len(r.inputs.prompt_ids) + len(r.required_tokens) // 2 for r in results if r.inputs]
        read = decoder_bytes(decoder, precision, (config.experts_per_token, config.routed_experts))
        return Rung(
            "", False, read + position * sum(contexts) // max(1, len(contexts)),
            decoder_bytes(decoder, precision) + reader.slots * reader.held * position,
        )  # fmt: skip

    def _logits(self, engine: Engine, name: str, fed: Sequence[OcrResult]) -> list[Tensor]:
        """Logits (T, V) of each page, fed the given results' tokens; on the host."""
        reader, found = self._reader(engine, name, 1, True), []
        for result in self.watch.pages(f"{name}, fed", fed):
            timer = StageTimer(self.device, marks=Marks.NONE)
            with engine.modes():
                page, pixels = engine.take_in(result.request, None, timer)
            tokens = list(result.required_tokens)
            found.append(teacher_forced_batch(reader, page, pixels, tokens, self.watch.cancel).logits.cpu())
        return found

    def _other(self, name: str, requests: Sequence[OcrRequest]) -> tuple[Rung, _Read]:
        """Any backend: its text, and the time that its pages took one after another."""
        backend = open_backend(spec := parse_backend(name), self.settings.of_spec(spec))
        with closing(backend):
            began = time.perf_counter()
            results = [
                backend.read(request, None, self.watch.cancel)
                for request in self.watch.pages(spec.name, requests)
            ]
            seconds = time.perf_counter() - began
        return Rung(spec.name, False, pages_per_s=len(results) / seconds), _Read(results, [])


def _compared(rung: Rung, read: _Read, base: _Read, truth: Mapping[str, str]) -> Rung:
    """The rung with what its pages and choices say beside the base's."""
    reports = [parity(a, b) for a, b in zip(read.results, base.results, strict=True)]
    verdicts = [report.verdict for report in reports]
    looping = [_loops(result) for result in read.results]
    limited = [end_of(result) == "length" for result in read.results]
    texts = [_words(result) for result in read.results]
    of_base = [_words(result) for result in base.results]
    names = [result.request.image.name for result in read.results]
    errors = [
        character_error_rate(_plain(text), _plain(truth.get(name, own)))
        for name, text, own in zip(names, texts, of_base, strict=True)
    ]
    clean = [
        error
        for error, loop, limit in zip(errors, looping, limited, strict=True)
        if not (loop or limit)
    ]  # fmt: skip
    forced = [_choices(a, b) for a, b in zip(read.logits, base.logits, strict=False)]
    positions = sum(count for count, *_ in forced)
    return replace(
        rung,
        positions=positions,
        agreement=sum(same for _, same, _ in forced) / positions if positions else None,
        divergence=sum(kl for *_, kl in forced) / positions if positions else None,
        identical=verdicts.count("identical"),
        within=verdicts.count("within_tolerance"),
        differing=verdicts.count("differs") + verdicts.count("not_comparable"),
        values_changed=sum(
            sum(change.has_digit for change in text_changes(a, b))
            for a, b in zip(texts, of_base, strict=True)
            if a != b
        ),
        boxes_moved=sum(
            pair.state != "matched" or bool(pair.shift_percent) for r in reports for pair in r.pairs
        ),
        loops=sum(looping),
        at_limit=sum(limited),
        error=_mean(errors),
        error_clean=_mean(clean),
    )


def _choices(own: Tensor, base: Tensor) -> tuple[int, int, float]:
    """Positions, those with the same choice, and the sum of KL(base, own), of logits (T, V) each."""
    same = int((own.argmax(dim=1) == base.argmax(dim=1)).sum())
    own, base = own.double().log_softmax(dim=1), base.double().log_softmax(dim=1)
    return len(base), same, float((base.exp() * (base - own)).sum())


def _loops(result: OcrResult) -> bool:
    return find_loop(result.text_raw) is not None


def _words(result: OcrResult) -> str:
    return words_of(result.text_raw, result.blocks)


def _plain(text: str) -> str:
    """Text without heading marks, in one line."""
    return " ".join(line.removeprefix("# ") for line in text.split("\n") if line.strip())


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def read_truth(file: Path) -> dict[str, str]:
    """Read the text of each image, by its name, from a file like the samples' own. Raises DsocrError."""
    try:
        table = parse_json(read_bytes(file, _TRUTH_LIMIT, follow_links=True))
        return {
            str(name): "\n".join(str(block["text"]) for block in page["blocks"] if block["text"])
            for name, page in table.items()
        }
    except (Refused, KeyError, TypeError, AttributeError) as error:
        raise DsocrError(f"{file}: no truth of pages ({error}); give a file like the samples' own") from error


def _shown(rungs: Sequence[Rung], console: Console) -> None:
    cost = titled_table("Cost", "Rung", "MB/token", "Memory, GB", "Tokens/s", "Pages/s")
    text = titled_table(
        "Beside the base", "Rung", "Agree", "KL", "Same", "Within", "Differ", "Values", "Boxes", "Loops",
        "Limit", "CER", "Ended",
    )  # fmt: skip
    for r in rungs:
        cost.add_row(
            r.title, _cell(r.bytes_a_token, "{:.1f}", 1e-6), _cell(r.memory_bytes, "{:.2f}", 1e-9),
            _cell(r.tokens_per_s, "{:,.0f}"), _cell(r.pages_per_s, "{:.3g}"),
        )  # fmt: skip
        counts = (r.identical, r.within, r.differing, r.values_changed, r.boxes_moved, r.loops, r.at_limit)
        text.add_row(
            r.title, _cell(r.agreement, "{:.2%}"), _cell(r.divergence, "{:.2g}"), *map(str, counts),
            _cell(r.error, "{:.2%}"), _cell(r.error_clean, "{:.2%}"),
        )  # fmt: skip
    console.print(cost)
    console.print(text)


def _cell(value: float | None, form: str, unit: float = 1.0) -> str:
    return "-" if value is None else form.format(value * unit)


def document(ladder: Ladder, rungs: Sequence[Rung], pages: int) -> dict[str, Any]:
    """All of it, for JSON."""
    return {
        "checkpoint": ladder.settings.checkpoint,
        "device": torch.cuda.get_device_name() if ladder.real else "cpu",
        "dtype": str(ladder.dtype).removeprefix("torch."),
        "pages": pages,
        "slots": ladder.slots,
        "rungs": [asdict(rung) | {"title": rung.title} for rung in rungs],
    }


def run(
    settings: Annotated[Settings, "engine", "precision"],
    images: tuple[str, ...],
    *,
    rungs: tuple[str, ...] = ("fp8-v", "fp8-kv", "fp8-experts", "fp8-linears", "int8", "int4"),
    truth: tuple[Path, ...] = (),
    slots: int = 8,
    forced: int = 16,
    save: bool = False,
    json: bool = False,
    console: Console,
    typed: str,
    cancel: CancelToken,
) -> int:
    """Compare precisions on pages. Ends with one line of JSON.

    Args:
        images: images, folders or PDF files
        rungs: precisions, or backends like endpoint:URL
        truth: files like the samples' ground_truth.json; what they lack is compared with the base
        slots: pages read together
        forced: pages on which the base's tokens are fed
        save: record it as a run of the history, which Timing draws
    """
    if save:  # a package that it lacks is named before anything is measured
        from dsocr_core.base.visible import json_bytes
        from dsocr_core.runs.record import record_run
        from dsocr_core.runs.storage.entries import open_storage
        from dsocr_core.runs.writer import RunWriter
    for name in rungs:
        if name not in PRECISIONS[1:]:
            parse_backend(name)
    known = {name: text for file in truth for name, text in read_truth(file).items()}
    with Temporary("ladder") as folder:
        pages = expand(map(Path, images), None, Path(folder), settings.pdf_dpi, settings.max_pixels)
        ladder = Ladder(settings, slots, forced, Watch(cancel))
        found = ladder.rungs([settings.request(page.path) for page in pages], rungs, known)
    _shown(found, console)
    made = document(ladder, found, len(pages))
    if save:
        record = record_run(settings, ladder.results, typed, notes=f"precision ladder of {len(pages)} pages")
        with RunWriter(open_storage(history_location(settings)), record) as written:
            for result in ladder.results:
                written.add_result(result.request.image.name, result)
            (written.directory / FILE).write_bytes(json_bytes(made, indent=1) + b"\n")
        made["saved"] = record.id
    print_json(made)
    return OK
