"""The bench: each engine and the published code on the same page, with the same number of tokens.

Every time is a result's own stage time (CUDA events, or the clock on a CPU), or the clock's around whole
pages. FLOPs and bytes are the analytic model's for the same page.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from analytic_model.counted import published_rows, run_rows
from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.workload import Workload
from dsocr_core.backends.backend import Opening
from dsocr_core.backends.on_device import (
    EngineBackend,
    OnDevice,
    PublishedBackend,
    engine_backend,
    published_backend,
)
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import Temporary
from dsocr_core.engine.checkpoint import RANDOM_PREFIX
from dsocr_core.engine.device import current
from dsocr_core.engine.stage_timer import Marks
from dsocr_core.measure.bench_report import Bench, DeviceFigures, EngineFigures, Spread, StageFigures
from dsocr_core.measure.device import copy_bandwidth, matmul_rate
from dsocr_core.measure.synthetic_page import draw_page
from dsocr_core.models.devices import device_name
from dsocr_core.models.family import load_config
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import VENDOR, CancelToken, Observer, OcrRequest, OcrResult
from dsocr_core.runs.record import record_run
from dsocr_core.runs.results import PageResults, Row
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.shapes import Shape
from dsocr_core.settings import EngineName, Settings, SettingsError

log = logging.getLogger(__name__)

DEFAULT_SIZE = (1280, 1280)
"""Size of the page: four tiles under Gundam."""
DRAWN = 32
"""Most pages that are drawn for a pass; a longer pass repeats them."""
WARM_UP = 2
"""Passes before the measured ones: the first compiles and captures, the second runs with all of it."""
WARM_UP_TOKENS = 50
"""New tokens of these passes at most where no step is recorded, as one is like the next. A recorded step's
cache is made for all the tokens."""
WARM_UP_PAGES = 8
"""Pages of a warm-up pass in a batch: two passes of prefill, the first with plain launches."""
COUNTED_TOKENS = 4
"""New tokens of the page on which the published modules are counted: three steps show equal growth."""


@dataclass(frozen=True)
class BenchPlan:
    """Plan of a bench. Raises SettingsError for what cannot be measured."""

    settings: Settings
    engines: tuple[EngineName, ...] = ("eager",)
    vendor_checkpoint: str | None = None
    size: tuple[int, int] = DEFAULT_SIZE
    """Size of the page, (width, height) in pixels."""
    tokens: int = 100
    """New tokens of every page, past the end token; published code may end earlier."""
    batch: int = 1
    """Pages that the fast engine reads together; others read them one after another."""
    repeat: int = 5
    nvtx_only: bool = False
    pages: int | None = None
    """Pages of one pass, None for `batch`. With more than `batch` slots are used again."""
    images: int = 1
    """Images of each page's prompt."""
    profile: Path | None = None
    """File for torch's trace of one more page, after the measured passes."""
    count: bool = False
    """True counts FLOPs of the pages, and of the published modules on a page of a few tokens."""

    def __post_init__(self) -> None:
        if min(self.size) < 1 or self.size[0] * self.size[1] > self.settings.max_pixels:
            raise SettingsError(f"size is {self.size[0]}x{self.size[1]}: give WIDTHxHEIGHT in pixels")
        if self.nvtx_only and self.vendor_checkpoint is not None:
            raise SettingsError("nvtx-only marks our stages: leave --vendor-checkpoint out")
        if len(set(self.engines)) != len(self.engines):
            raise SettingsError(f"engine is {' '.join(self.engines)}: give each engine once")
        if self.profile is not None and (len(self.engines) > 1 or self.nvtx_only):
            raise SettingsError("--profile is of one engine's timed page: give one --engine, no --nvtx-only")

    @property
    def pages_a_pass(self) -> int:
        return self.batch if self.pages is None else self.pages

    def for_engine(self, engine: EngineName) -> Settings:
        infer = replace(self.settings.infer, max_new_tokens=self.tokens)
        return replace(self.settings, engine=engine, infer=infer)


# --- measuring ------------------------------------------------------------------------------------


def bench(plan: BenchPlan, cancel: CancelToken | None = None) -> Bench:
    """Measure. Raises DsocrError for what cannot run on this machine, Cancelled when `cancel` is set."""
    with ExitStack() as stack:
        meters = [_Meter(name, backend, plan, cancel) for name, backend in _subjects(plan)]
        for meter in meters:  # refuse what cannot run before anything is measured
            stack.enter_context(closing(meter.backend)).load()
        folder = Path(stack.enter_context(Temporary("bench")))
        drawn = min(plan.pages_a_pass * plan.images, DRAWN)
        drawings = [draw_page(folder / f"page-{n}.png", plan.size, n) for n in range(drawn)]
        each = range(plan.images)
        images = [[drawings[(n * plan.images + m) % drawn] for m in each] for n in range(plan.pages_a_pass)]
        device = _device(meters[-1].backend, plan)
        for meter in meters:
            log.info("%s: warm-up", meter.name)
            meter.warm_up(images)
        # In turn, so that other load affects all alike.
        for number in range(plan.repeat):
            for meter in meters:
                log.info("%s: pass %s of %s", meter.name, number + 1, plan.repeat)
                meter.run_pass()
        engines = tuple(meter.figures(device) for meter in meters)
        if plan.profile is not None:
            _profile_page(meters[-1].backend, meters[-1].requests[0], plan.profile, cancel)
        published, of = {}, meters[0].backend
        if plan.count and isinstance(of, PublishedBackend):
            few = replace(meters[0].requests[0], max_new_tokens=COUNTED_TOKENS)
            published = of.count_flops(few, cancel)
    first = meters[0].results[0]
    return Bench(
        preset=first.request.required.preset, size=plan.size, grid=first.required_inputs.grid,
        tokens=plan.tokens, batch=plan.batch, pages=plan.pages_a_pass, repeat=plan.repeat,
        nvtx_only=plan.nvtx_only, device=device, engines=engines,
        results={meter.name: tuple(meter.results) for meter in meters}, published_flops=published,
    )  # fmt: skip


def _subjects(plan: BenchPlan) -> Iterator[tuple[str, OnDevice]]:
    """Backends to measure, the published code first."""
    if plan.vendor_checkpoint is not None:
        settings = replace(plan.for_engine("eager"), checkpoint=plan.vendor_checkpoint)
        # `auto` is resolved for the checkpoint under test.
        settings = replace(settings, preset=plan.settings.preset_name)
        yield VENDOR, published_backend(settings, Opening(ignore_eos=True))
    for engine in plan.engines:
        opening = Opening(marks=Marks.RANGES if plan.nvtx_only else Marks.TIMED, ignore_eos=True)
        yield engine, engine_backend(plan.for_engine(engine), opening)


def _device(backend: OnDevice, plan: BenchPlan) -> DeviceFigures:
    device, dtype = backend.device, backend.dtype
    copy, matmul = None, None
    if not plan.nvtx_only:
        with current(device):
            copy, matmul = copy_bandwidth(device), matmul_rate(device, dtype)
        torch.cuda.empty_cache()  # no effect without a GPU
    named = str(dtype).removeprefix("torch.")
    return DeviceFigures(device_name(device), torch.__version__, copy, matmul, named)


class _Meter:
    """Reads pages on one backend and keeps times and results."""

    def __init__(self, name: str, backend: OnDevice, plan: BenchPlan, cancel: CancelToken | None) -> None:
        self.name, self.backend = name, backend
        self.ours = backend if isinstance(backend, EngineBackend) else None
        """Our engine; None for the published code."""
        self.requests: list[OcrRequest] = []
        self.results: list[OcrResult] = []
        self._plan, self._cancel = plan, cancel
        self._slots = plan.batch if self.ours is not None and backend.reads_many else 1
        self._pages_per_s: list[float] = []
        self._peaks: list[int] = []

    def _read_all(self, requests: Sequence[OcrRequest]) -> list[OcrResult]:
        if self._slots == 1 or self.ours is None:
            return [self.backend.read(request, None, self._cancel) for request in requests]
        # The batch needs triton: imported only where an engine reads one.
        from dsocr_core.measure.bench_batch import read_pass

        return read_pass(self.ours, requests, self._slots, self._cancel)

    def warm_up(self, images: Iterable[Sequence[Path]]) -> None:
        """Warm up; without marks where nothing is timed, so that a profiler does not take it for the work."""
        request = self.backend.settings.request
        self.requests = [request(first, more=tuple(more) or None) for first, *more in images]
        first = self.requests[:1]
        if not self.backend.reads_many:
            first = [replace(first[0], max_new_tokens=min(self._plan.tokens, WARM_UP_TOKENS))]
        elif self._slots > 1:  # pages that are prefilled together have launches of their own
            first = self.requests[: min(self._slots, WARM_UP_PAGES)]
        unmarked = self.ours.engine.unmarked() if self.ours and self._plan.nvtx_only else nullcontext()
        with unmarked:
            for _ in range(WARM_UP):
                self._read_all(first)

    def run_pass(self) -> None:
        """Read every page once."""
        device = self.backend.device
        # The vendor's memory is in another process, and a CPU's is not counted.
        counts_memory = device.type == "cuda" and self.ours is not None
        if counts_memory:
            torch.cuda.reset_peak_memory_stats(device)
        started = time.perf_counter()
        self.results += self._read_all(self.requests)
        # A result's times are read from the device after all its work, so this is whole pages' time.
        self._pages_per_s.append(len(self.requests) / (time.perf_counter() - started))
        if counts_memory:
            self._peaks.append(torch.cuda.max_memory_allocated(device))

    def figures(self, device: DeviceFigures) -> EngineFigures:
        timed, checkpoint = not self._plan.nvtx_only, self.backend.settings.checkpoint
        costs, rates = _costs(checkpoint, self._plan, self.results[0]), self._pages_per_s if timed else ()
        figures = figures_of(self.name, checkpoint, self.results, rates, device, costs)
        if not timed or self.ours is None:
            return figures
        if self._slots > 1:
            from dsocr_core.measure.bench_batch import with_batch

            figures = with_batch(figures, self.ours, self._slots, device.copy_bytes_per_s)
        return replace(figures, peak_memory_bytes=max(self._peaks, default=None))


class _Ranges(Observer):
    """Observer that makes each stage a range of the profiler."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def stage_started(self, stage: Stage) -> None:
        self._open.append(record_function(stage.value))
        self._open[-1].__enter__()

    def stage_ended(self, stage: Stage, milliseconds: float) -> None:
        self._open.pop().__exit__(None, None, None)


def _profile_page(backend: OnDevice, request: OcrRequest, file: Path, cancel: CancelToken | None) -> None:
    """Read a page under torch's profiler and write its trace. Raises DsocrError."""
    on_gpu = [ProfilerActivity.CUDA] if backend.device.type == "cuda" else []
    with profile(activities=[ProfilerActivity.CPU, *on_gpu]) as profiler:
        backend.read(request, _Ranges(), cancel)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(file))
    except (OSError, RuntimeError) as error:
        raise DsocrError(f"{file}: the trace cannot be written ({error}); name another file") from error


# --- figures --------------------------------------------------------------------------------------


Costs = tuple[dict[Stage, int], float | None]
"""By arithmetic: FLOPs of each stage (prefill with vision), and bytes of a decode step."""


def _costs(checkpoint: str, plan: BenchPlan, result: OcrResult) -> Costs:
    inputs = result.required_inputs
    text_tokens = len(inputs.prompt_ids) - inputs.image_token_count
    new_tokens = len(result.required_tokens)
    workload = Workload.from_image(
        *plan.size, result.request.required.preset, text_tokens, new_tokens, family=result.request.family
    )
    # Each image but one has a separator that the work of one page does not count.
    several = workload.views * plan.images, workload.prompt_tokens + plan.images - 1
    workload = replace(workload, views=several[0], prompt_tokens=several[1])
    policy = Policy(
        ignore_torch_unsupported_flops=False, dtype="float32" if inputs.dtype == "float32" else "bfloat16",
        attention="eager" if inputs.attention == "eager" else "sdpa",
        head_in_8_bits=result.environment.get("engine") == "fast",
    )  # fmt: skip
    config = load_config(Path(checkpoint.removeprefix(RANDOM_PREFIX)))
    prediction = predict(config, workload, policy)
    steps, decode = workload.decode_steps, prediction.stages[Stage.DECODE]
    flops = {stage: prediction.with_nested(stage).cost.flops for stage in prediction.stages}
    return flops, decode.compulsory_bytes / steps if steps else None


def figures_of(
    name: str,
    checkpoint: str,
    results: Sequence[OcrResult],
    pages_per_s: Sequence[float],
    device: DeviceFigures,
    costs: Costs,
) -> EngineFigures:
    """Figures of an engine from results and costs."""
    first, stages, (flops_of, moved) = results[0], {}, costs
    for stage in Stage:
        timings = [timing for result in results for timing in result.timings if timing.stage is stage]
        if (spread := Spread.of([timing.milliseconds for timing in timings])) is not None:
            flops, matmul = flops_of.get(stage), device.matmul_flops_per_s
            rate = 1e3 * flops / spread.median if flops and spread.median else None
            share = rate / matmul if rate and matmul else None
            stages[stage.value] = StageFigures(spread, timings[0].calls, flops, rate, share)
    steps = [
        timing.milliseconds / timing.calls
        for result in results
        for timing in result.timings
        if timing.stage == Stage.DECODE and timing.calls and timing.milliseconds
    ]
    ms_per_token, copy = Spread.of(steps), device.copy_bytes_per_s
    bytes_per_s = 1e3 * moved / ms_per_token.median if moved and ms_per_token else None
    return EngineFigures(
        name=name, checkpoint=checkpoint, dtype=first.required_inputs.dtype,
        attention=first.required_inputs.attention, prompt_tokens=len(first.required_inputs.prompt_ids),
        new_tokens=len(first.required_tokens), stages=stages, ms_per_token=ms_per_token,
        tokens_per_s=Spread.of([1e3 / ms for ms in steps]), pages_per_s=Spread.of(pages_per_s),
        bytes_per_token=moved, bytes_per_s=bytes_per_s,
        copy_share=bytes_per_s / copy if bytes_per_s and copy else None, environment=first.environment,
    )  # fmt: skip


# --- runs of the history --------------------------------------------------------------------------


def record_bench(
    plan: BenchPlan,
    measured: Bench,
    command: str,
    location: str,
    machine: Mapping[str, Any] | None = None,
) -> list[str]:
    """Record each engine's passes as a run of the history. Returns the runs' ids. Raises DsocrError.

    `machine` has facts about other load (`MachineWatch.facts`), for all engines, as they read in turn.
    """
    ids = []
    for figures in measured.engines:
        results = measured.results[figures.name]
        settings = plan.for_engine("fast" if figures.name == "fast" else "eager")
        settings = replace(settings, checkpoint=figures.checkpoint)
        note = f"bench of {plan.repeat} x {plan.pages_a_pass} pages, {plan.size[0]}x{plan.size[1]}"
        record = record_run(settings, results, command, notes=note)
        environment = record.environment | ({} if machine is None else {"machine": dict(machine)})
        if figures.pages_per_s is not None:
            own = {"pages_per_s": round(figures.pages_per_s.median, 4)}
            if figures.streams > 1 and figures.tokens_per_s is not None:
                own["tokens_per_s"] = round(figures.tokens_per_s.median, 1)
            environment[figures.name] = environment.get(figures.name, {}) | own
        record = replace(record, environment=environment)
        with RunDirectory.create(location, record) as run:
            for number, result in enumerate(results):
                # A number tells copies of a repeated page apart.
                turn = number // plan.pages_a_pass if plan.pages_a_pass <= DRAWN else number
                page = f"{result.request.image.stem} #{turn + 1}"
                run.add(PageResults(page, results=[result]))
            published = measured.published_flops if figures.name == VENDOR else {}
            run.finish(count=partial(_flops, published) if plan.count else None)
        ids.append(record.id)
    return ids


def _flops(
    published: Mapping[str, Sequence[int]],
    config: dict[str, Any] | None,
    dtype: str | None,
    shapes: Mapping[str, Iterable[Shape]],
) -> list[Row]:
    """Rows of stage_flops: by arithmetic, and torch's counts of the published modules."""
    rows = run_rows(config, dtype, shapes)
    return [*rows, *published_rows(config, [*shapes[VENDOR]], published)] if published else rows
