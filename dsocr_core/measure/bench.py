"""Cost of a page, measured: each engine and the vendor on the same page, with the same number of tokens.

Every time comes from the results' own stage times (events on a GPU, the clock on a CPU) or from the clock
around whole pages. FLOPs and bytes are the analytic model's for the same page.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

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
from dsocr_core.base.temporary import Temporary
from dsocr_core.engine.checkpoint import RANDOM_PREFIX
from dsocr_core.engine.stage_timer import Marks
from dsocr_core.measure.bench_profile import profile_page
from dsocr_core.measure.bench_report import Bench, DeviceFigures, EngineFigures, Spread, StageFigures
from dsocr_core.measure.device import (
    copy_bandwidth,
    launches_a_token,
    matmul_rate,
    peak_memory,
    reset_peak_memory,
)
from dsocr_core.measure.synthetic_page import draw_page
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.devices import current, device_name
from dsocr_core.models.family import all_stages, load_config
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import VENDOR, CancelToken, OcrRequest, OcrResult
from dsocr_core.settings import EngineName, Settings, SettingsError

log = logging.getLogger(__name__)

DEFAULT_SIZE = (1280, 1280)
"""Four tiles under Gundam."""
DRAWN = 32
"""Pages that are drawn for a pass; a longer one takes them again and again."""
WARM_UP = 2
"""Passes before the measured ones: the first compiles and records, the second finds all of it there."""
WARM_UP_TOKENS = 50
"""New tokens of these passes at most where no step is recorded, as one is like the next. A recorded step's
cache is made for all the tokens."""
WARM_UP_PAGES = 8
"""Pages of such a pass in a batch: two passes of prefill, the first by plain launches."""


@dataclass(frozen=True)
class BenchPlan:
    """Plan of a bench. Raises SettingsError for what cannot be measured."""

    settings: Settings
    engines: tuple[EngineName, ...] = ("eager",)
    vendor_checkpoint: str | None = None
    size: tuple[int, int] = DEFAULT_SIZE
    """Size of the page, (width, height) in pixels."""
    tokens: int = 100
    """New tokens of every page, the end token ignored; the vendor's code may end earlier."""
    batch: int = 1
    """Pages that the fast engine reads together; the others read them one after another."""
    repeat: int = 5
    nvtx_only: bool = False
    pages: int | None = None
    """Pages of one pass; None is as many as `batch`. More of them show a batch that is refilled."""
    images: int = 1
    """Images of each page's prompt."""
    profile: Path | None = None
    """File for torch's trace of one more page, read after the measured passes."""
    count: bool = False
    """Count FLOPs of the pages, and of the published modules on one more page, a few tokens long."""

    def __post_init__(self) -> None:
        for name in ("tokens", "batch", "repeat", "pages", "images"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise SettingsError(f"{name} is {getattr(self, name)}: give a positive integer")
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


@dataclass(frozen=True)
class _Subject:
    """Subject of a bench: a backend under its own settings."""

    name: str
    backend: OnDevice
    marks: Marks = Marks.TIMED

    @property
    def ours(self) -> EngineBackend | None:
        """Our engine; None where it is the published code."""
        return self.backend if isinstance(self.backend, EngineBackend) else None


def bench(plan: BenchPlan, cancel: CancelToken | None = None, say: Callable[[str], None] = log.info) -> Bench:
    """Measure. Raises DsocrError for what cannot run here, Cancelled when `cancel` is set."""
    with ExitStack() as stack:
        subjects = list(_subjects(plan))
        for subject in subjects:  # what cannot run is named before anything is measured
            stack.enter_context(closing(subject.backend)).load()
        folder = Path(stack.enter_context(Temporary("bench")))
        drawn = min(plan.pages_a_pass * plan.images, DRAWN)
        drawings = [draw_page(folder / f"page-{n}.png", plan.size, n) for n in range(drawn)]
        each = range(plan.images)
        images = [[drawings[(n * plan.images + m) % drawn] for m in each] for n in range(plan.pages_a_pass)]
        device = _device(subjects[-1].backend, plan)
        meters = [_Meter(subject, images, cancel, plan.batch) for subject in subjects]
        for meter in meters:
            say(f"{meter.subject.name}: warm-up")
            meter.warm_up()
        # In turn: what the machine does meanwhile hits all of them alike.
        for number in range(plan.repeat):
            for meter in meters:
                say(f"{meter.subject.name}: pass {number + 1} of {plan.repeat}")
                meter.run_pass()
        engines = tuple(
            meter.figures(device, _costs(meter.subject, plan, meter.results[0])) for meter in meters
        )
        if plan.profile is not None:
            meters[-1].profile(plan.profile)
        published = _published_flops(subjects[0], meters[0], cancel) if plan.count else {}
    first = meters[0].results[0]
    return Bench(
        preset=first.request.required.preset,
        size=plan.size,
        grid=first.required_inputs.grid,
        tokens=plan.tokens,
        batch=plan.batch,
        pages=plan.pages_a_pass,
        repeat=plan.repeat,
        warm_up=WARM_UP,
        nvtx_only=plan.nvtx_only,
        device=device,
        engines=engines,
        results={meter.subject.name: tuple(meter.results) for meter in meters},
        published_flops=published,
    )


COUNTED_TOKENS = 4
"""New tokens of the page on which the published modules are counted: three steps show an even growth."""


def _published_flops(subject: _Subject, meter: _Meter, cancel: CancelToken | None) -> dict[str, list[int]]:
    if not isinstance(subject.backend, PublishedBackend):
        return {}
    return subject.backend.count_flops(replace(meter.first, max_new_tokens=COUNTED_TOKENS), cancel)


def _subjects(plan: BenchPlan) -> Iterable[_Subject]:
    """The vendor first: what others are compared with."""
    if plan.vendor_checkpoint is not None:
        settings = replace(plan.for_engine("eager"), checkpoint=plan.vendor_checkpoint)
        # The preset that `auto` means is that of the checkpoint under test.
        settings = replace(settings, preset=plan.settings.preset_name)
        yield _Subject(VENDOR, published_backend(settings, Opening(ignore_eos=True)))
    marks = Marks.RANGES if plan.nvtx_only else Marks.TIMED
    for engine in plan.engines:
        opening = Opening(marks=marks, ignore_eos=True)
        yield _Subject(engine, engine_backend(plan.for_engine(engine), opening), marks)


def _device(backend: OnDevice, plan: BenchPlan) -> DeviceFigures:
    device, dtype = backend.device, backend.dtype
    copy, matmul = None, None
    if not plan.nvtx_only:
        with current(device):
            copy, matmul = copy_bandwidth(device), matmul_rate(device, dtype)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return DeviceFigures(
        device_name(device), torch.__version__, copy, matmul, str(dtype).removeprefix("torch.")
    )


class _Meter:
    """Reads pages on one subject and keeps what it saw."""

    def __init__(
        self, subject: _Subject, images: Sequence[Sequence[Path]], cancel: CancelToken | None, batch: int = 1
    ) -> None:
        self.subject, self._cancel = subject, cancel
        self._slots = batch if subject.backend.reads_many else 1
        self.results: list[OcrResult] = []
        settings = subject.backend.settings
        self._requests = [settings.request(first, more=tuple(more) or None) for first, *more in images]
        self._pages_per_s: list[float] = []
        self._peaks: list[int] = []

    @property
    def first(self) -> OcrRequest:
        """Request of the first page."""
        return self._requests[0]

    def _read_all(self, requests: Sequence[OcrRequest]) -> list[OcrResult]:
        if self._slots == 1 or self.subject.ours is None:
            return list(map(self._read, requests))
        # The batch's kernels need triton: only where an engine reads so.
        from dsocr_core.measure.bench_batch import read_pass

        return read_pass(self.subject.ours, requests, self._slots, self._cancel)

    def _read(self, request: OcrRequest) -> OcrResult:
        return self.subject.backend.read(request, None, self._cancel)

    def warm_up(self) -> None:
        """Without marks where nothing is timed: a profiler takes the first range for the work itself."""
        marked_only = self.subject.marks is Marks.RANGES
        first = self._requests[:1]
        if not self.subject.backend.reads_many:
            asked = first[0].max_new_tokens
            limit = min(asked, WARM_UP_TOKENS) if isinstance(asked, int) else WARM_UP_TOKENS
            first = [replace(first[0], max_new_tokens=limit)]
        elif self._slots > 1:  # pages that are prefilled together have launches of their own
            first = self._requests[: min(self._slots, WARM_UP_PAGES)]
        ours = self.subject.ours
        with ours.engine.unmarked() if ours is not None and marked_only else nullcontext():
            for _ in range(WARM_UP):
                self._read_all(first)

    def run_pass(self) -> None:
        """Every page once."""
        device = self.subject.backend.device
        reset_peak_memory(device)
        started = time.perf_counter()
        self.results += self._read_all(self._requests)
        # A result's times are read from the device after all its work, so this is whole pages' time.
        self._pages_per_s.append(len(self._requests) / (time.perf_counter() - started))
        peak = peak_memory(device)
        if peak is not None and self.subject.ours is not None:  # the vendor's is in another process
            self._peaks.append(peak)

    def profile(self, file: Path) -> None:
        """Write torch's trace of one page."""
        profile_page(self.subject.backend, self._requests[0], file, self._cancel)

    def figures(self, device: DeviceFigures, costs: _Costs) -> EngineFigures:
        timed, ours = self.subject.marks is Marks.TIMED, self.subject.ours
        launches = None
        if timed and ours is not None:
            launches = launches_a_token(
                lambda tokens: self._read(replace(self._requests[0], max_new_tokens=tokens)), ours.device
            )
        kernels, launched = launches or (None, None)
        figures = _figures(self.subject, self.results, self._pages_per_s if timed else (), device, costs)
        if timed and self._slots > 1 and ours is not None:
            from dsocr_core.measure.bench_batch import with_batch

            figures = with_batch(figures, ours, self._slots, device.copy_bytes_per_s)
        return replace(
            figures,
            peak_memory_bytes=max(self._peaks) if timed and self._peaks else None,
            kernels_per_token=kernels,
            launches_per_token=launched,
        )


@dataclass(frozen=True)
class _Costs:
    """By arithmetic: FLOPs of each stage as a clock sees it, and bytes of a decode step."""

    flops: dict[Stage, int]
    bytes_per_token: float | None


def _costs(subject: _Subject, plan: BenchPlan, result: OcrResult) -> _Costs:
    inputs = result.required_inputs
    text_tokens = len(inputs.prompt_ids) - inputs.image_token_count
    new_tokens = len(result.required_tokens)
    workload = Workload.from_image(
        *plan.size, result.request.required.preset, text_tokens, new_tokens, family=result.request.family
    )
    # Each image but one has a separator that the work of one page does not count.
    several = workload.views * plan.images, workload.prompt_tokens + plan.images - 1
    workload = replace(workload, views=several[0], prompt_tokens=several[1])
    attention: Literal["eager", "sdpa"] = "eager" if inputs.attention == "eager" else "sdpa"
    dtype: Literal["bfloat16", "float32"] = "float32" if inputs.dtype == "float32" else "bfloat16"
    policy = Policy(ignore_torch_unsupported_flops=False, attention=attention, dtype=dtype)
    prediction = predict(_config(subject), workload, policy)
    steps, decode = workload.decode_steps, prediction.stages[Stage.DECODE]
    flops = {stage: prediction.with_nested(stage).cost.flops for stage in prediction.stages}
    return _Costs(flops, decode.compulsory_bytes / steps if steps else None)


def _config(subject: _Subject) -> ModelConfig:
    return load_config(Path(subject.backend.settings.checkpoint.removeprefix(RANDOM_PREFIX)))


def _figures(
    subject: _Subject,
    results: Sequence[OcrResult],
    pages_per_s: Sequence[float],
    device: DeviceFigures,
    costs: _Costs,
) -> EngineFigures:
    first = results[0]
    stages = {
        stage.value: figures
        for stage in all_stages()
        if (figures := _stage_figures(stage, results, device.matmul_flops_per_s, costs)) is not None
    }
    steps = [
        timing.milliseconds / timing.calls
        for result in results
        for timing in result.timings
        if timing.stage == Stage.DECODE and timing.calls and timing.milliseconds
    ]
    ms_per_token = Spread.of(steps)
    moved = costs.bytes_per_token
    bytes_per_s = 1e3 * moved / ms_per_token.median if moved and ms_per_token else None
    copy = device.copy_bytes_per_s
    return EngineFigures(
        name=subject.name,
        checkpoint=subject.backend.settings.checkpoint,
        dtype=first.required_inputs.dtype,
        attention=first.required_inputs.attention,
        prompt_tokens=len(first.required_inputs.prompt_ids),
        new_tokens=len(first.required_tokens),
        stages=stages,
        ms_per_token=ms_per_token,
        tokens_per_s=Spread.of([1e3 / ms for ms in steps]),
        pages_per_s=Spread.of(pages_per_s),
        bytes_per_token=moved,
        bytes_per_s=bytes_per_s,
        copy_share=bytes_per_s / copy if bytes_per_s and copy else None,
        peak_memory_bytes=None,
        kernels_per_token=None,
        launches_per_token=None,
        environment=first.environment,
    )


def _stage_figures(
    stage: Stage, results: Sequence[OcrResult], matmul: float | None, costs: _Costs
) -> StageFigures | None:
    timings = [timing for result in results for timing in result.timings if timing.stage is stage]
    spread = Spread.of([timing.milliseconds for timing in timings])
    if spread is None:
        return None
    flops = costs.flops.get(stage)
    rate = 1e3 * flops / spread.median if flops and spread.median else None
    share = rate / matmul if rate and matmul else None
    return StageFigures(spread, timings[0].calls, flops, rate, share)
