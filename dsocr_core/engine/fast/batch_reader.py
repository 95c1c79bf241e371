"""Many pages read in a batch: each is prefetched, prefilled while others decode, and decoded in a slot.

    source -> take_in, prefill (a stream of their own) -> slots (BatchDecoder) -> result, on_result (a thread)

Results are returned as pages end, in any order. Memory does not grow with their number: it holds the slots,
what the source has prefetched, and a bounded number of pages being finished.

Times of a page in a batch. Preprocessing is timed on its thread. Vision and prefill are timed on the device
while decode steps run beside them. Decode is the time from the page's first token to its last, with all other
pages' share of every step in it. So a page's tokens a second are those of one stream; those of the batch are
all tokens over the time of the whole run, not the sum over pages.

The first page sizes the slots; one that needs more is read by itself while the others wait.

Needs triton, like all that decodes in slots.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from dsocr_core.base.error_log import page_error
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine.base import Engine, ToPrefill
from dsocr_core.engine.fast.batch_cache import position_bytes
from dsocr_core.engine.fast.batch_decode import GROUP, BatchDecoder, Decoded, GroupTime
from dsocr_core.engine.fast.batch_step import (
    BatchLaunches,
    BatchStep,
    positions_of,
    slot_bytes,
    spare_places,
)
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import NO_TOKEN, Sequence, finish_reason
from dsocr_core.engine.page import PageInputs, Pixels, PreparedPage
from dsocr_core.engine.sampling import NgramRule
from dsocr_core.engine.source import OnResult, Source, Work
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.kernels.launch import TRITON, Kernels
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.resolution import Preset
from dsocr_core.models.stages import Stage
from dsocr_core.page.tiling import NO_TILES, image_token_count
from dsocr_core.reading.records import (
    UNLIMITED,
    CancelToken,
    NgramPolicy,
    OcrRequest,
    OcrResult,
)

log = logging.getLogger(__name__)

MOST_SLOTS = 256
MEMORY_SHARE = 0.85
SPARED_BYTES, SPARED_FOR_ONE_BYTES = 4 * 2**30, 3 * 2**29
"""Parts of the free device memory that slots may use and must leave: vision and prefill work in the rest, of
pages together or of one page at a time.
"""

ROUND = 8
ADMITTED_A_GROUP = 4
"""Pages prefilled between two groups of steps, about: while slots fill, live ones keep decoding."""

SLOTS_A_PAGE = 4
"""Pages are prefilled together where there are so many slots for each of them: few others wait for that."""
MOST_WAITING = 16
SLOTS_A_GROUP = 32
"""Taken pages that may wait for others of their shape, for a group of steps for so many slots and two at
least: the more there are, the less an idle one costs.
"""

FINISHING = 64
"""Pages that may wait to be finished before decoding waits for them."""

POLL_S = 0.1


@dataclass(eq=False)
class _Taken:
    """A page whose views are on the device: it waits for its prefill."""

    work: Work
    page: PageInputs
    pixels: Pixels
    timer: StageTimer
    ngram: NgramPolicy
    draft: tuple[int, ...]
    together: int
    """Pages that are prefilled with it, it included."""
    waited: int = 0
    """Groups of steps since it could have been prefilled."""

    @property
    def shape(self) -> tuple[object, ...]:
        """Number of tokens and the views: pages that are prefilled together have the same."""
        return len(self.page.prompt.ids), *(view.shape for view in self.pixels.passes)


@dataclass(frozen=True)
class _Entry:
    """A page in a slot: small, as there are many."""

    key: object
    page: PageInputs
    timer: StageTimer
    shared: tuple[StageTimer, int]
    """Timer of its prefill, and the pages it was of."""


class BatchReader:
    """Reads pages with an engine's model in at most `slots` slots; reuses them for the next pages.

    Not safe for concurrent use: hold the device's lock.
    """

    def __init__(
        self,
        engine: Engine,
        slots: int = MOST_SLOTS,
        ignore_eos: bool = False,
        group: int = GROUP,
        kernels: Kernels = TRITON,
        launches: BatchLaunches | None = None,
    ) -> None:
        if slots < 1:
            raise ValueError(f"{slots} slots")
        self.wanted, self.engine, self._group, self._kernels = slots, engine, group, kernels
        self._launches = launches
        tokenizer, drafts = engine.checkpoint.tokenizer, engine.options.drafts
        self.drafted, self._own_text = drafts is not None, drafts is not None and drafts.own_text
        self._eos = NO_TOKEN if ignore_eos else tokenizer.eos_token_id
        self._decoder: BatchDecoder | None = None
        device = engine.checkpoint.model.device
        self._beside = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @property
    def slots(self) -> int:
        """Give the number of pages that are decoded together; available once the first page was read."""
        return 0 if self._decoder is None else self._decoder.step.slots

    @property
    def held(self) -> int:
        """Give the positions of a slot's cache; available once the first page was read."""
        return 0 if self._decoder is None else self._decoder.step.held

    @property
    def times(self) -> tuple[GroupTime, ...]:
        """List the times of the newest groups of steps, the newest last."""
        return () if self._decoder is None else tuple(self._decoder.times)

    def bytes_of(self, positions: int) -> int:
        """Count the bytes that a step reads over caches of so many positions: all weights once, and the
        caches.
        """
        config, model = self.engine.checkpoint.model.config.decoder, self.engine.checkpoint.model
        position = position_bytes(config, model.dtype, self.engine.options.precision)
        return pack(model.decoder).bytes_a_step() + position * positions

    def read(self, source: Source, on_result: OnResult, cancel: CancelToken | None = None) -> None:
        """Read every page of the source. A page that cannot be read is reported with its error.

        Raises Cancelled when `cancel` is set, after the pages that ended have been reported.
        """
        run = _Run(self, source, on_result, cancel)
        try:
            with self.engine.modes():
                run.go()
        except BaseException:
            if self._decoder is not None:
                with self.engine.modes():
                    self._decoder.reset()
            raise
        finally:
            run.close()

    def read_all(
        self,
        requests: Seq[OcrRequest],
        cancel: CancelToken | None = None,
        page_done: Callable[[], None] = lambda: None,
        prepared: Seq[PreparedPage | None] | None = None,
    ) -> list[OcrResult]:
        """Read these, opened here unless `prepared`; results in their order.

        Raises DsocrError of the first at fault.
        """
        found: dict[object, OcrResult | DsocrError] = {}

        def on_result(key: object, outcome: OcrResult | DsocrError) -> None:
            found[key] = outcome
            page_done()

        pages = zip(requests, prepared or [None] * len(requests), strict=True)
        self.read(_Requests(self.engine, pages), on_result, cancel)
        results = []
        for number in range(len(requests)):
            outcome = found[number]
            if isinstance(outcome, DsocrError):
                raise outcome
            results.append(outcome)
        return results

    # --- slots and streams ----------------------------------------------------------------------

    def decoder_for(self, page: PageInputs, spare: int = 0) -> BatchDecoder | None:
        """The present slots, or new ones when those are too small for such pages.

        `spare` more positions than they need. None where the device has no memory for any slot.
        """
        config, model = self.engine.checkpoint.model.config.decoder, self.engine.checkpoint.model
        prompt, limit = most_tokens(page, config.max_positions)
        if self._decoder is None or not self._decoder.step.fits(prompt, limit + spare):
            self._decoder = None  # gives the memory back first
            places = spare_places(config, self.drafted)
            held = positions_of(KvCache.positions(config, prompt, limit + spare) + places, 0)
            positions = positions_of(prompt, limit + spare)
            precision = self.engine.options.precision
            size = slot_bytes(config, positions, held, model.dtype, self.drafted, precision)
            if not (slots := self._slots_that_fit(size, self.engine.pages_a_pass(page))):
                return None
            step = BatchStep(
                pack(model.decoder), config, slots, positions, self.engine.rotary_dtype, self._eos,
                self._launches, kernels=self._kernels, held=held, drafted=self.drafted, precision=precision,
                own_text=self._own_text,
            )  # fmt: skip
            self._decoder = BatchDecoder(step, self._group, self.engine.marks is Marks.TIMED)
        return self._decoder

    def _slots_that_fit(self, size: int, pages_a_pass: int) -> int:
        """Number of slots of that many bytes beside what vision and prefill work in; 0 for none."""
        device = self.engine.checkpoint.model.device
        if device.type != "cuda":
            return self.wanted
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(device)
        return min(self.wanted, slots_in(free, size, SLOTS_A_PAGE * pages_a_pass))

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Work that runs on the device while steps do; what comes after the block waits for it."""
        if self._beside is None:
            yield
            return
        with torch.cuda.stream(self._beside):
            yield
        torch.cuda.current_stream(self._beside.device).wait_stream(self._beside)

    def after_all(self) -> None:
        """Make the prefill stream wait for all that is queued: new slots, weights, an aborted run."""
        if self._beside is not None:
            self._beside.wait_stream(torch.cuda.current_stream(self._beside.device))


class _Requests:
    """A source that prepares each page as it is taken."""

    def __init__(self, engine: Engine, pages: Iterable[tuple[OcrRequest, PreparedPage | None]]) -> None:
        self._engine, self._left = engine, list(enumerate(pages))

    @property
    def exhausted(self) -> bool:
        return not self._left

    def take(self, timeout_s: float) -> Work | None:
        if not self._left:
            return None
        number, (request, prepared) = self._left.pop(0)
        return Work(number, request, prepared or self._engine.prepare(request))


class _Run:
    """One call of `read`."""

    def __init__(
        self, reader: BatchReader, source: Source, on_result: OnResult, cancel: CancelToken | None
    ) -> None:
        self._reader, self._source, self._on_result, self._cancel = reader, source, on_result, cancel
        self._engine = reader.engine
        self._decoder: BatchDecoder | None = None
        self._alone = False
        """True where no slot fits the device's memory."""
        self._waiting: list[_Taken] = []
        self._inside: dict[int, _Entry] = {}
        """Pages in slots, by their entry's id."""
        self._finishers = ThreadPoolExecutor(1, "finish")
        self._finishing: deque[Future[None]] = deque()
        marks = Marks.NONE if self._engine.marks is Marks.NONE else Marks.RANGES
        self._ranges = StageTimer(torch.device("cpu"), marks=marks)

    def go(self) -> None:
        self._reader.after_all()  # weights may still be in flight
        while True:
            if self._cancel is not None and self._cancel.is_set():
                raise Cancelled
            admitted = 0
            while admitted < ADMITTED_A_GROUP and self._room() and (more := self._admit()):
                admitted += more
            self._gather()
            if self._decoder is not None and self._decoder.busy:
                try:
                    self._advance(self._decoder)
                except Exception as error:  # noqa: BLE001 - one page's fault costs no other page
                    self._require_device(error)
                    self._read_apart(self._decoder, error)
            elif self._source.exhausted and not self._waiting:
                break
        self._collect(0)

    def _advance(self, decoder: BatchDecoder) -> None:
        with self._ranges.stage(Stage.DECODE):
            ended = decoder.advance()
        for one in ended:
            self._finish(one)

    def close(self) -> None:
        """Wait for the pages that are being finished."""
        self._finishers.shutdown(wait=True)

    def _room(self) -> bool:
        return self._decoder is None or self._decoder.free > 0

    def _gather(self) -> None:
        """Take pages in before there are slots for them: the device does not wait for that then."""
        busy = self._decoder is not None and self._decoder.busy
        while len(self._waiting) < MOST_WAITING:
            if len(self._waiting) >= ADMITTED_A_GROUP and self._whole() is not None:
                break
            work = self._source.take(0.0 if busy or self._waiting else POLL_S)
            if work is None:
                break
            if (taken := self._take_in(work)) is not None:
                self._waiting.append(taken)

    def _admit(self) -> int:
        """Bring the pages of a pass of prefill into slots; returns how many, 0 when none is ready."""
        if not self._waiting or self._decoder is None:
            return 0
        free, first = self._decoder.free, self._waiting[0]
        first.waited += 1
        patience = max(2, self._reader.slots // SLOTS_A_GROUP)
        late = first.waited > patience or not self._decoder.busy or self._source.exhausted
        # Whole passes of other shapes do not keep a page waiting for ever.
        group = None if first.waited > patience else self._whole()
        if group is None or free < len(group):
            if not late:
                return 0
            group = [one for one in self._waiting if one.shape == first.shape][: first.together]
        group = group[:free]
        self._waiting = [one for one in self._waiting if one not in group]
        self._start(group)
        return len(group)

    def _whole(self) -> list[_Taken] | None:
        """Waiting pages that fill a pass."""
        for first in self._waiting:
            group = [one for one in self._waiting if one.shape == first.shape][: first.together]
            if len(group) == first.together:
                return group
        return None

    def _take_in(self, work: Work) -> _Taken | None:
        """A page with its views on the device; None for one that is told of instead, read or at fault."""
        engine, reader = self._engine, self._reader
        try:
            timer = StageTimer(engine.checkpoint.model.device, marks=engine.marks)
            with reader.beside():
                page, pixels = engine.take_in(work.request, work.prepared, timer)
            if self._decoder is None and not self._alone:
                self._decoder = reader.decoder_for(page)
                reader.after_all()
                if self._decoder is not None:
                    self._decoder.reset()
                else:
                    self._alone = True
                    log.warning("the GPU has no memory for a slot of the batch: pages are read one by one")
            if self._decoder is None:
                self._read_alone(work)
                return None
            step = self._decoder.step
            if step.fits(prompt := len(page.prompt.ids), page.limit):
                together = engine.pages_a_pass(page)
                few = reader.slots < SLOTS_A_PAGE * together
                ngram = engine.ngram_policy(work.request)
                draft = engine.draft_of(work.request, work.prepared) if reader.drafted else ()
                return _Taken(work, page, pixels, timer, ngram, draft, 1 if few else together)
            needs = (
                f"{page.request.name}: needs {prompt} + {page.limit} positions and the batch's slots hold "
                f"{step.positions}, {step.held} of them cached; read "
            )
            if engine.options.precision != "off":  # the batch alone has such a cache
                raise DsocrError(f"{needs}it by itself")
            log.warning("%sby itself", needs)
            self._read_alone(work)
        except Cancelled:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            self._require_device(error)
            self._tell(work.key, _error_of(work.request, error))
        return None

    def _read_alone(self, work: Work) -> None:
        if self._engine.options.precision != "off":  # the batch alone has such a cache
            raise DsocrError(f"{work.request.name}: the GPU has no memory for a slot with an 8-bit cache")
        result = self._engine.recognize(work.request, cancel=self._cancel, prepared=work.prepared)
        self._tell(work.key, result)

    def _start(self, group: list[_Taken]) -> None:
        """Bring pages into slots; those of a pass that fails one by one: what fails again is at fault."""
        try:
            self._begin(group)
        except Cancelled:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            self._require_device(error)
            if len(group) == 1:
                self._tell(group[0].work.key, _error_of(group[0].work.request, error))
                return
            for one in group:
                self._start([one])

    def _begin(self, group: list[_Taken]) -> None:
        engine, reader, decoder = self._engine, self._reader, self._decoder
        assert decoder is not None
        together = group[0].together
        timer = StageTimer(engine.checkpoint.model.device, marks=engine.marks)
        slots: list[int] = []
        try:
            pages: list[ToPrefill] = []
            for one in group:
                slot, cache = decoder.take()
                slots.append(slot)
                sequence = Sequence(cache, decoder.step.rotary, engine.core, NgramRule(0))
                pages.append((one.page.prompt, one.pixels, sequence))
            with reader.beside(), timer.stage(Stage.PREFILL):
                logits = engine.prefill_pages(pages, together, timer, self._cancel)
        except BaseException:
            for slot in slots:
                decoder.give_back(slot)
            raise
        for one, slot, first in zip(group, slots, logits, strict=True):
            if first.device.type == "cuda":
                first.record_stream(torch.cuda.current_stream(first.device))
            entry = _Entry(one.work.key, one.page, one.timer, (timer, len(group)))
            decoder.begin(slot, entry, one.page.prompt.ids, one.page.limit, one.ngram, first, one.draft)
            self._inside[id(entry)] = entry

    def _read_apart(self, decoder: BatchDecoder, error: Exception) -> None:
        """Read each page of a group that failed again and by itself: one that fails again is at fault."""
        entries = list(self._inside.values())
        self._clear(decoder)
        if len(entries) == 1:
            self._tell(entries[0].key, _error_of(entries[0].page.request, error))
            return
        for entry in entries:
            request = entry.page.request
            try:
                taken = self._take_in(Work(entry.key, request, self._engine.prepare(request)))
                if taken is not None:
                    self._start([taken])
                while decoder.busy:
                    if self._cancel is not None and self._cancel.is_set():
                        raise Cancelled
                    self._advance(decoder)
            except Cancelled:
                raise
            except Exception as fault:  # noqa: BLE001 - whatever a page does to us, the others are read
                self._require_device(fault)
                self._clear(decoder)
                self._tell(entry.key, _error_of(request, fault))

    def _clear(self, decoder: BatchDecoder) -> None:
        """Empty the slots."""
        self._inside.clear()
        decoder.reset()
        self._reader.after_all()

    def _require_device(self, error: Exception) -> None:
        """Raises the error where the device is lost with it: then no page can be read any more."""
        device = self._engine.checkpoint.model.device
        if device.type != "cuda" or isinstance(error, DsocrError):
            return
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            raise error from None

    # --- a page that ended ----------------------------------------------------------------------

    def _finish(self, ended: Decoded) -> None:
        del self._inside[id(ended.key)]
        self._collect(FINISHING - 1)
        self._finishing.append(self._finishers.submit(self._make_result, ended))

    def _tell(self, key: object, outcome: OcrResult | DsocrError) -> None:
        self._collect(FINISHING - 1)
        self._finishing.append(self._finishers.submit(self._on_result, key, outcome))

    def _collect(self, most: int) -> None:
        """Wait until no more than `most` pages are being finished; an error of theirs is raised here."""
        while self._finishing and (len(self._finishing) > most or self._finishing[0].done()):
            self._finishing.popleft().result()

    def _make_result(self, ended: Decoded) -> None:
        entry = ended.key
        assert isinstance(entry, _Entry)
        try:
            outcome: OcrResult | DsocrError = self._result(entry, ended)
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            outcome = _error_of(entry.page.request, error)
        self._on_result(entry.key, outcome)

    def _result(self, entry: _Entry, ended: Decoded) -> OcrResult:
        tokens = list(ended.tokens)
        reason = finish_reason(tokens, self._reader._eos)
        entry.timer.take_share(*entry.shared)
        if ended.milliseconds is not None:
            entry.timer.add(Stage.DECODE, ended.milliseconds)
        entry.timer.count(Stage.DECODE, len(tokens) - 1)
        batch = {"batch": str(self._reader.slots)} | self._engine.draft_environment(ended.draft)
        return self._engine.result(entry.page, tokens, reason, entry.timer, environment=batch)


def slots_in(free: int, size: int, enough: int) -> int:
    """Number of slots of `size` bytes that fit that free memory.

    With `enough` slots pages are prefilled together, which takes more memory than one page at a time.
    """
    most = int(free * MEMORY_SHARE)
    fit = min(most, free - SPARED_BYTES) // size
    if fit < enough:
        fit = max(fit, min(min(most, free - SPARED_FOR_ONE_BYTES) // size, enough - 1), 0)
    # The library's matrix products are fast at a round number of rows.
    return fit if fit < ROUND else fit // ROUND * ROUND


def _error_of(request: OcrRequest, error: Exception) -> DsocrError:
    """Give what the page failed with."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return DsocrError(f"{request.name}: the GPU is out of memory; choose a smaller preset")
    return page_error(error, request.name)


def most_tokens(page: PageInputs, context: int | None) -> tuple[int, int]:
    """Count the prompt's and the new tokens of any page read like this one, however it is cut."""
    request, ids = page.request, len(page.prompt.ids)
    most = len(request.images) * most_image_tokens(request.resolution, request.family.newline)
    prompt = ids - page.unhashed.image_token_count + most
    if request.max_new_tokens == UNLIMITED and context is not None:
        return prompt, max(context, ids + page.limit) - prompt
    return prompt, page.limit


def most_image_tokens(preset: Preset, newline: bool) -> int:
    """Count those of the grid that takes the most."""
    if not preset.crop_mode:
        return image_token_count(preset, NO_TILES, newline)
    most = preset.max_tiles
    sides = range(1, most + 1)
    grids = [(columns, rows) for columns in sides for rows in sides if columns * rows <= most]
    return max(image_token_count(preset, grid, newline) for grid in grids)
