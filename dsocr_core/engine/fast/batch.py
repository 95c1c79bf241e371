"""Many pages read in a batch: each is prefetched, prefilled while others decode, and decoded in a slot.

    source -> take_in, prefill (a stream of their own) -> Slots -> result, on_result (a thread)

Results are returned as pages end, in any order. Memory does not grow with their number.

The host queues a group of steps and reads the states a group behind, so the device never waits for it. A page
that ended in a group frees its slot when that group is read, which is while the next group runs.

Vision and prefill of a page are timed on the device while decode steps run beside them. Decode is the time
from the page's first token to its last, with all other pages' share of every step in it.

The first page sizes the slots. A page that needs more is read by itself while the others wait.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import cast

import torch
from torch import Tensor

from dsocr_core.base.errors import Cancelled, DsocrError, page_error
from dsocr_core.engine.base import Engine, ToPrefill
from dsocr_core.engine.fast.batch_step import (
    BatchLaunches,
    BatchStep,
    position_bytes,
    ring_slack,
    slot_bytes,
    slot_positions,
)
from dsocr_core.engine.fast.decode import Copies, GroupPipeline, QueuedGroup, Timestamp
from dsocr_core.engine.fast.drafts import SlotDraft, best_rows
from dsocr_core.engine.fast.graphs import record
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import NO_TOKEN, Sequence, finish_reason
from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.engine.page import PageInputs, Pixels, PreparedPage, most_tokens
from dsocr_core.engine.source import MOST_TOGETHER, OnResult, Source, Work
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.engine.threads import quick_switches
from dsocr_core.kernels.launch import TRITON, Kernels
from dsocr_core.kernels.state import DONE, POSITION
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import CancelToken, NgramPolicy, OcrRequest, OcrResult

log = logging.getLogger(__name__)

GROUP, PASSES_A_GROUP = 8, 4
"""Steps, or passes over drafts, that are queued between two reads by the host."""

MOST_TIMES = 4096
"""Most groups whose times are stored."""

MEMORY_SHARE = 0.85
SPARED_BYTES, SPARED_FOR_ONE_BYTES = 4 * 2**30, 3 * 2**29
"""Free device memory that slots leave to vision and prefill: of pages together, or of one."""

ROUND = 8
ADMITTED_A_GROUP = 16
"""Pages that are prefilled between two groups of steps, so that pages in slots keep decoding."""

SLOTS_A_PAGE = 4
"""Slots per page of a pass from which on pages are prefilled together."""
MOST_WAITING, SLOTS_A_GROUP = 64, 32
"""Most loaded pages that wait for others of their shape; slots that one group of waiting stands for."""

FINISHING = 64
"""Most pages whose results are being made; beyond that decoding waits."""

POLL_S = 0.1


@dataclass(frozen=True)
class Decoded:
    """A sequence that has ended. `milliseconds` is None where it was not timed."""

    key: object
    tokens: tuple[int, ...]
    milliseconds: float | None
    draft: dict[str, str] | None = None


@dataclass(frozen=True)
class GroupTime:
    """Work of a group of steps, and its time on the device."""

    steps: int
    tokens: int
    positions: int
    """Cached positions of all its sequences in the middle of the group."""
    milliseconds: float


@dataclass
class _Running:
    """A sequence in a slot."""

    key: object
    slot: int
    prompt_tokens: int
    limit: int
    began: Timestamp
    draft: SlotDraft
    tokens: int = 1
    """New tokens known so far, the prefill's included."""
    queued: int = 0
    """Steps queued since then. Each appends one token or more."""


@dataclass(frozen=True)
class _Group:
    """A group of queued steps with `rows` rows a slot, and the sequences in it."""

    running: tuple[_Running, ...]
    rows: int
    steps: int


@dataclass(frozen=True)
class _Ended:
    """A sequence whose tokens are being copied to the host."""

    running: _Running
    milliseconds: float | None
    tokens: Copies

    def decoded(self) -> Decoded:
        tokens = tuple(self.tokens.read()[0])
        return Decoded(self.running.key, tokens, self.milliseconds, self.running.draft.facts())


class Slots:
    """Slots of one `BatchStep` with the sequences in them. A sequence that ends frees its slot."""

    def __init__(self, step: BatchStep, group: int = GROUP, timed: bool = True) -> None:
        if group < 1:
            raise ValueError(f"group of {group} steps")
        self.step, self._size, self._timed = step, group, timed
        runs: dict[int, Callable[[], None]] = {rows: partial(step.run, rows) for rows in step.rows}
        if step.device.type == "cuda":
            # Compile the kernels of a first token, in a slot whose page ends with it.
            step.begin(0, (0, 0), 1, 1)
            step.first(0, torch.zeros(step.config.vocab_size, device=step.device))
            runs = {rows: record(run, step.device).replay for rows, run in runs.items()}
        self._runs = runs
        self._free = list(range(step.slots))
        self._running: dict[int, _Running] = {}
        self._pipeline = GroupPipeline[_Group](step.device, timed)
        self._ended: list[_Ended] = []
        self.times: deque[GroupTime] = deque(maxlen=MOST_TIMES)
        """Times of the newest groups; empty where groups are not timed."""

    @property
    def free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    @property
    def busy(self) -> bool:
        """Tell whether `advance` has anything to do."""
        return bool(self._running or self._ended or self._pipeline.running)

    def replay(self, rows: int = 1) -> None:
        """Queue one step of all slots with that many rows a slot."""
        self._runs[rows]()

    def reset(self) -> None:
        """Drop all sequences."""
        self.step.states[:, DONE] = 1
        self._free = list(range(self.step.slots))
        self._running, self._ended = {}, []
        self._pipeline.last()

    def take(self) -> tuple[int, KvCache]:
        """Take a free slot, and its cache for a prefill. Raises IndexError when there is none."""
        slot = self._free.pop(0)
        return slot, self.step.cache_of(slot)

    def give_back(self, slot: int) -> None:
        """Free a taken slot whose page could not be prefilled."""
        self.step.states[slot, DONE] = 1
        self._free.append(slot)

    def begin(
        self,
        slot: int,
        key: object,
        prompt_ids: tuple[int, ...],
        limit: int,
        ngram: NgramPolicy | int,
        logits: Tensor,
        draft: Seq[int] = (),
    ) -> None:
        """Decode a taken slot from the prefill's `logits` (V,). Raises ValueError where it does not fit."""
        self.step.begin(slot, prompt_ids, limit, ngram, draft)
        self.step.first(slot, logits)
        began, own = Timestamp(self.step.device, self._timed), self.step.own_text
        follows = SlotDraft(drafted=own or bool(draft), trusted=not own)
        self._running[slot] = _Running(key, slot, len(prompt_ids), limit, began, follows)

    def advance(self) -> list[Decoded]:
        """Queue a group of steps, then read the group before. Returns the sequences that ended in it."""
        group = self._queue()
        ended, self._ended = self._ended, []
        if group is not None:
            self._read(group)
        return [each.decoded() for each in ended]

    def _queue(self) -> QueuedGroup[_Group] | None:
        # Never more steps than the limit leaves, whatever the device writes.
        running = tuple(self._running.values())
        wanted = max((one.limit - one.tokens - one.queued for one in running), default=-1)
        if wanted < 0:
            return self._pipeline.last()
        drafts = self.step.drafts
        rows = 1 if drafts is None else best_rows([one.draft for one in running])
        steps = min(self._size if rows == 1 else PASSES_A_GROUP, wanted)

        def run() -> None:
            for _ in range(steps):
                self.replay(rows)

        for one in running:
            one.queued += steps
        outputs = [self.step.states] + ([] if drafts is None else [drafts[1]])
        return self._pipeline.queue(_Group(running, rows, steps), run, *outputs)

    def _read(self, queued: QueuedGroup[_Group]) -> None:
        group, (states, *drafts) = queued.about, queued.copies.read()
        tokens = positions = 0
        for running in group.running:
            if self._running.get(running.slot) is not running:
                continue
            state, before = states[running.slot], running.tokens
            # The last token is never fed back: it is one past the position.
            running.tokens = state[POSITION] + 1 + state[DONE] - running.prompt_tokens
            running.queued -= group.steps
            steps = taken = running.tokens - before
            if drafts:
                passes = running.draft.take(drafts[0][running.slot], group.rows)
                steps = taken if group.rows == 1 else passes
            tokens += taken
            middle = before - 1 + taken // 2
            cached = KvCache.positions(self.step.config, running.prompt_tokens, middle)
            positions += cached if taken else 0
            if state[DONE]:
                del self._running[running.slot]
                self._free.append(running.slot)
                written = self.step.tokens[running.slot, running.prompt_tokens :][: running.tokens]
                self._ended.append(_Ended(running, self._time(running, queued, steps), Copies(written)))
        whole = queued.milliseconds()
        if whole is not None and group.steps:
            self.times.append(GroupTime(group.steps, tokens, positions, whole))

    def _time(self, running: _Running, queued: QueuedGroup[_Group], steps: int) -> float | None:
        """Milliseconds from the sequence's first token to `steps` steps into the group."""
        whole = queued.milliseconds()
        if whole is None or queued.began is None:
            return None
        if steps <= 0:
            return 0.0
        return running.began.milliseconds_to(queued.began) + whole * steps / queued.about.steps


@dataclass(eq=False)
class _Loaded:
    """A page whose views are on the device and which waits for its prefill."""

    work: Work
    page: PageInputs
    pixels: Pixels
    timer: StageTimer
    ngram: NgramPolicy
    draft: tuple[int, ...]
    together: int
    """Pages of its pass of prefill, itself included."""
    waited: int = 0
    """Groups of steps that it has waited for others of its shape."""

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """Key of pages that can be prefilled together: number of tokens and views."""
        return len(self.page.prompt.ids), *(view.shape for view in self.pixels.passes)


@dataclass(frozen=True, eq=False)
class _Entry:
    """What is known of a page while it is in a slot."""

    key: object
    page: PageInputs
    timer: StageTimer
    shared: tuple[StageTimer, int]
    """Timer of its pass of prefill, and the number of pages in that."""


class BatchReader:
    """Reader of many pages with an engine's model, in at most `slots` slots. Hold the device's lock."""

    def __init__(
        self,
        engine: Engine,
        slots: int = MOST_TOGETHER,
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
        self.eos = NO_TOKEN if ignore_eos else tokenizer.eos_token_id
        self._decoder: Slots | None = None
        device = engine.checkpoint.model.device
        self._prefills = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @property
    def slots(self) -> int:
        """Slots of the batch; 0 before the first page was read."""
        return 0 if self._decoder is None else self._decoder.step.slots

    @property
    def times(self) -> tuple[GroupTime, ...]:
        """Times of the newest groups of steps, the newest last."""
        return () if self._decoder is None else tuple(self._decoder.times)

    def bytes_of(self, positions: int) -> int:
        """Bytes that a step reads: all weights once, and the caches of that many positions."""
        model = self.engine.checkpoint.model
        position = position_bytes(model.config.decoder, model.dtype, self.engine.options.precision)
        return pack(model.decoder).bytes_a_step() + position * positions

    def read(self, source: Source, on_result: OnResult, cancel: CancelToken | None = None) -> None:
        """Read every page of the source and report its result or error. Raises Cancelled."""
        run = _Run(self, source, on_result, cancel)
        with self.engine.modes(), quick_switches():
            try:
                run.go()
            except BaseException:
                if self._decoder is not None:
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
        """Read pages, opened here unless `prepared`. Returns results in order; raises the first error."""
        found: dict[object, OcrResult | DsocrError] = {}

        def on_result(key: object, outcome: OcrResult | DsocrError) -> None:
            found[key] = outcome
            page_done()

        pages = zip(requests, prepared or [None] * len(requests), strict=True)
        self.read(_Requests(self.engine, pages), on_result, cancel)
        results = []
        for _, outcome in sorted(found.items(), key=lambda each: cast(int, each[0])):
            if isinstance(outcome, DsocrError):
                raise outcome
            results.append(outcome)
        return results

    def decoder_for(
        self, page: PageInputs, spare: int = 0, ready: Callable[[BatchStep], None] = lambda step: None
    ) -> Slots | None:
        """The slots for such pages with `spare` positions more, made where needed; None without memory."""
        config, model = self.engine.checkpoint.model.config.decoder, self.engine.checkpoint.model
        prompt, limit = most_tokens(page, config.max_positions)
        if self._decoder is None or not self._decoder.step.fits(prompt, limit + spare):
            self._decoder = None  # frees its memory first
            slack = ring_slack(config, self.drafted)
            cached = slot_positions(KvCache.positions(config, prompt, limit + spare) + slack, 0)
            positions = slot_positions(prompt, limit + spare)
            precision = self.engine.options.precision
            size = slot_bytes(config, positions, cached, model.dtype, self.drafted, precision)
            if not (slots := self._slots_that_fit(size, self.engine.pages_a_pass(page))):
                return None
            step = BatchStep(
                pack(model.decoder), config, slots, positions, self.engine.rotary_dtype, self.eos,
                self._launches, kernels=self._kernels, cached=cached, drafted=self.drafted,
                precision=precision, own_text=self._own_text,
            )  # fmt: skip
            ready(step)
            self._decoder = Slots(step, self._group, self.engine.marks is Marks.TIMED)
        return self._decoder

    def _slots_that_fit(self, size: int, pages_a_pass: int) -> int:
        """Number of slots of `size` bytes that fit into the device's memory; 0 for none."""
        device = self.engine.checkpoint.model.device
        if device.type != "cuda":
            return self.wanted
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(device)
        return min(self.wanted, slots_in(free, size, SLOTS_A_PAGE * pages_a_pass))

    @contextmanager
    def on_prefill_stream(self) -> Iterator[None]:
        """Run the block's device work on the prefill's stream, beside steps. Later steps wait for it."""
        if self._prefills is None:
            yield
            return
        with torch.cuda.stream(self._prefills):
            yield
        torch.cuda.current_stream(self._prefills.device).wait_stream(self._prefills)

    def after_all(self) -> None:
        """Make the prefill's stream wait for all queued work, such as new slots or an aborted run."""
        if self._prefills is not None:
            self._prefills.wait_stream(torch.cuda.current_stream(self._prefills.device))


class _Requests:
    """Source that prepares each page when it is taken."""

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


@dataclass
class _Run:
    """State of one call of `BatchReader.read`."""

    reader: BatchReader
    source: Source
    on_result: OnResult
    cancel: CancelToken | None
    slots: Slots | None = None
    alone: bool = False
    """True where the device has no memory for a slot, so that pages are read one by one."""
    waiting: list[_Loaded] = field(default_factory=list)
    inside: list[_Entry] = field(default_factory=list)
    """Pages that are in slots."""
    finishing: deque[Future[None]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.engine = self.reader.engine
        self.device = self.engine.checkpoint.model.device
        self._finishers = ThreadPoolExecutor(1, "finish")
        marks = Marks.NONE if self.engine.marks is Marks.NONE else Marks.RANGES
        self._ranges = StageTimer(torch.device("cpu"), marks=marks)

    def go(self) -> None:
        self.reader.after_all()  # copies of weights may still run
        while True:
            self._raise_if_cancelled()
            admitted = 0
            while admitted < ADMITTED_A_GROUP and (more := self._admit()):
                admitted += more
            self._prefetch()
            if self.slots is not None and self.slots.busy:
                try:
                    self._advance(self.slots)
                except Exception as error:  # noqa: BLE001 - one page's fault costs no other page
                    self._require_device(error)
                    self._retry_individually(self.slots, error)
            elif self.source.exhausted and not self.waiting:
                break
        self._collect(0)

    def close(self) -> None:
        """Wait for the pages whose results are being made."""
        self._finishers.shutdown(wait=True)

    def _raise_if_cancelled(self) -> None:
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled

    def _advance(self, slots: Slots) -> None:
        with self._ranges.stage(Stage.DECODE):
            ended = slots.advance()
        for one in ended:
            assert isinstance(one.key, _Entry)
            self.inside.remove(one.key)
            self._finish(partial(self._make_result, one.key, one))

    def _prefetch(self) -> None:
        """Load pages before slots are free for them, so that the device need not wait."""
        busy = self.slots is not None and self.slots.busy
        while len(self.waiting) < MOST_WAITING:
            enough = min(ADMITTED_A_GROUP, self.reader.slots)
            if len(self.waiting) >= enough and self._full_pass() is not None:
                break
            work = self.source.take(0.0 if busy or self.waiting else POLL_S)
            if work is None:
                break
            if (loaded := self._load(work)) is not None:
                self.waiting.append(loaded)

    def _load(self, work: Work) -> _Loaded | None:
        """Load a page's views onto the device. None for a page that was read alone or failed instead."""
        engine, reader, loaded = self.engine, self.reader, None
        with self._faults_of(work.key, work.request):
            timer = StageTimer(self.device, marks=engine.marks)
            with reader.on_prefill_stream():
                page, pixels = engine.take_in(work.request, work.prepared, timer)
            if self.slots is None and not self.alone:
                self._make_slots(page, pixels)
            if self.slots is None or not self.slots.step.fits(len(page.prompt.ids), page.limit):
                self._read_alone(work, page)
            else:
                draft = engine.draft_of(work.request, work.prepared) if reader.drafted else ()
                together = self._at_once(page, reader.slots)
                ngram = engine.ngram_policy(work.request)
                loaded = _Loaded(work, page, pixels, timer, ngram, draft, together)
        return loaded

    def _make_slots(self, page: PageInputs, pixels: Pixels) -> None:
        def ready(step: BatchStep) -> None:
            self.engine.make_ready(page, pixels, step, self._at_once(page, step.slots))

        self.slots = self.reader.decoder_for(page, ready=ready)
        self.reader.after_all()
        if self.slots is not None:
            self.slots.reset()
            return
        self.alone = True
        log.warning("the GPU has no memory for a slot of the batch: pages are read one by one")

    def _at_once(self, page: PageInputs, slots: int) -> int:
        """Pages of one pass of prefill; 1 where there are few slots."""
        together = self.engine.pages_a_pass(page)
        return 1 if slots < SLOTS_A_PAGE * together else together

    def _read_alone(self, work: Work, page: PageInputs) -> None:
        """Read a page that is too long for a slot. Raises DsocrError with settings that only a batch has."""
        eight_bits = self.engine.options.precision != "off"
        if self.slots is not None:
            step = self.slots.step
            needs = (
                f"{work.request.name}: needs {len(page.prompt.ids)} + {page.limit} positions and the batch's "
                f"slots hold {step.positions}, {step.cached} of them cached; read "
            )
            if eight_bits:
                raise DsocrError(f"{needs}it by itself")
            log.warning("%sby itself", needs)
        elif eight_bits:
            raise DsocrError(f"{work.request.name}: the GPU has no memory for a slot with an 8-bit cache")
        result = self.engine.recognize(work.request, cancel=self.cancel, prepared=work.prepared)
        self._report(work.key, result)

    def _admit(self) -> int:
        """Prefill the pages of one pass into slots. Returns how many; 0 when none is ready."""
        if not self.waiting or self.slots is None or not (free := self.slots.free):
            return 0
        first = self.waiting[0]
        first.waited += 1
        patience = max(2, self.reader.slots // SLOTS_A_GROUP)
        late = first.waited > patience or not self.slots.busy or self.source.exhausted
        # A page does not wait for ever while other shapes fill passes.
        group = None if first.waited > patience else self._full_pass()
        if group is None or free < len(group):
            if not late:
                return 0
            group = self._alike(first)
        group = group[:free]
        self.waiting = [one for one in self.waiting if one not in group]
        self._start(group)
        return len(group)

    def _full_pass(self) -> list[_Loaded] | None:
        """Waiting pages of one shape that fill a pass of prefill."""
        groups: dict[object, list[_Loaded]] = {}
        for one in self.waiting:
            group = groups.setdefault(one.shape, [])
            group.append(one)
            if len(group) == one.together:
                return group
        return None

    def _alike(self, first: _Loaded) -> list[_Loaded]:
        """Waiting pages of this page's shape, at most those of one pass."""
        return [one for one in self.waiting if one.shape == first.shape][: first.together]

    def _start(self, group: list[_Loaded]) -> None:
        """Prefill a group into slots. If that fails, its pages are tried one by one."""
        if len(group) == 1:
            with self._faults_of(group[0].work.key, group[0].work.request):
                self._prefill(group)
            return
        try:
            self._prefill(group)
            return
        except Exception as error:  # noqa: BLE001 - each page of the pass is read again
            self._require_device(error)
        for one in group:  # now that the error's frames hold nothing
            self._start([one])

    def _prefill(self, group: list[_Loaded]) -> None:
        engine, slots = self.engine, self.slots
        assert slots is not None
        timer = StageTimer(self.device, marks=engine.marks)
        taken: list[int] = []
        try:
            pages: list[ToPrefill] = []
            for one in group:
                slot, cache = slots.take()
                taken.append(slot)
                sequence = Sequence(cache, slots.step.rotary, engine.core, NgramRule(0))
                pages.append((one.page.prompt, one.pixels, sequence))
            with self.reader.on_prefill_stream(), timer.stage(Stage.PREFILL):
                logits = engine.prefill_pages(pages, group[0].together, timer, self.cancel)
        except BaseException:
            for slot in taken:
                slots.give_back(slot)
            raise
        for one, slot, first in zip(group, taken, logits, strict=True):
            if first.device.type == "cuda":
                first.record_stream(torch.cuda.current_stream(first.device))
            entry = _Entry(one.work.key, one.page, one.timer, (timer, len(group)))
            slots.begin(slot, entry, one.page.prompt.ids, one.page.limit, one.ngram, first, one.draft)
            self.inside.append(entry)

    def _retry_individually(self, slots: Slots, error: Exception) -> None:
        """Prefill the pages of a failed group one by one. A page that fails again gets the error."""
        entries = self.inside
        self._clear(slots)
        if len(entries) == 1:
            self._report(entries[0].key, _error_of(entries[0].page.request, error))
            return
        for entry in entries:
            request = entry.page.request
            with self._faults_of(entry.key, request):
                loaded = self._load(Work(entry.key, request, self.engine.prepare(request)))
                if loaded is not None:
                    self._start([loaded])
                while slots.busy:
                    self._raise_if_cancelled()
                    self._advance(slots)
            self._clear(slots)

    def _clear(self, slots: Slots) -> None:
        self.inside = []
        slots.reset()
        self.reader.after_all()

    @contextmanager
    def _faults_of(self, key: object, request: OcrRequest) -> Iterator[None]:
        """Report an error inside the block as that of one page; raise it where the device is lost."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._require_device(error)
            self._report(key, _error_of(request, error))

    def _require_device(self, error: Exception) -> None:
        """Raise the error where no page can be read any more: it says so, or the device is lost with it."""
        if isinstance(error, Cancelled):
            raise error
        if self.device.type != "cuda" or isinstance(error, DsocrError):
            return
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError:
            raise error from None

    def _report(self, key: object, outcome: OcrResult | DsocrError) -> None:
        self._finish(partial(self.on_result, key, outcome))

    def _finish(self, work: Callable[[], None]) -> None:
        self._collect(FINISHING - 1)
        self.finishing.append(self._finishers.submit(work))

    def _collect(self, most: int) -> None:
        """Wait until at most `most` results are being made. Raises an error from making them."""
        while self.finishing and (len(self.finishing) > most or self.finishing[0].done()):
            self.finishing.popleft().result()

    def _make_result(self, entry: _Entry, ended: Decoded) -> None:
        tokens, timer = list(ended.tokens), entry.timer
        outcome: OcrResult | DsocrError
        try:
            timer.take_share(*entry.shared)
            if ended.milliseconds is not None:
                timer.add(Stage.DECODE, ended.milliseconds)
            timer.count(Stage.DECODE, len(tokens) - 1)
            batch = {"batch": str(self.reader.slots)} | self.engine.draft_environment(ended.draft)
            reason = finish_reason(tokens, self.reader.eos)
            outcome = self.engine.result(entry.page, tokens, reason, timer, environment=batch)
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            outcome = _error_of(entry.page.request, error)
        self.on_result(entry.key, outcome)


def _error_of(request: OcrRequest, error: Exception) -> DsocrError:
    full = isinstance(error, torch.cuda.OutOfMemoryError)
    words = f"{request.name}: the GPU is out of memory; choose a smaller preset"
    found = DsocrError(words) if full else page_error(error, request.name)
    cause: BaseException | None = error
    while cause is not None:  # their frames hold tensors: from Python 3.12 on until a garbage collection
        cause.__traceback__, cause = None, cause.__cause__ or cause.__context__
    return found


def slots_in(free: int, size: int, enough: int) -> int:
    """Number of slots of `size` bytes that fit; from `enough` on memory to prefill together is spared."""
    most = int(free * MEMORY_SHARE)
    fit = min(most, free - SPARED_BYTES) // size
    if fit < enough:
        fit = max(fit, min(min(most, free - SPARED_FOR_ONE_BYTES) // size, enough - 1), 0)
    # cuBLAS is faster with a multiple of `ROUND` rows.
    return fit if fit < ROUND else fit // ROUND * ROUND
