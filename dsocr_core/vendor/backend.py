"""The vendor backend: `recognize` by the checkpoint's own `infer`, in a worker process."""

from __future__ import annotations

import functools
import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dsocr_core.base.child import ChildGone
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.models.family import all_stages, family_of, read_config
from dsocr_core.models.spec import ModelSpec
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import (
    POSTPROCESS_ERROR,
    UNLIMITED,
    CancelToken,
    ModelInputs,
    Observer,
    OcrRequest,
    OcrResult,
    SilentObserver,
    StageTiming,
    top_two_steps,
)
from dsocr_core.vendor.errors import (
    VendorCrashed,
    VendorError,
    VendorFailed,
    VendorNeedsBfloat16,
    VendorNeedsCuda,
    VendorOutOfMemory,
    VendorTimeout,
)
from dsocr_core.vendor.process import WorkerProcess
from dsocr_core.vendor.protocol import (
    Cancel,
    Failure,
    Load,
    Loaded,
    Message,
    Page,
    ProtocolError,
    Recognize,
    Result,
    StageEnded,
    StageStarted,
    Text,
    Trace,
    Traced,
    TraceStep,
)
from dsocr_core.vendor.remote_code import RemoteCode, remote_code, require_allowed

log = logging.getLogger(__name__)

POLL_S = 0.05
CANCEL_GRACE_S = 1.0
"""Seconds that a cancelled worker may take to end by itself before it is killed."""


class VendorBackend:
    """Starts its worker at the first page, reuses it, replaces it after a crash.

    One page at a time; further callers wait for their turn. Loading and each page may take `timeout_s`.
    `trusted_directories` are the checkpoint directories whose remote code may run, beside the embedded one's,
    as `remote_code.require_allowed` takes them with `code_record`. The files that
    `infer(save_results=True)` writes go to `output_directory`, by default a temporary one. `top_two` records
    each step's two best logits.
    """

    def __init__(
        self,
        checkpoint: Path,
        device: str = "cpu",
        dtype: str = "bfloat16",
        attention: str = "eager",
        interpreter: str | Path | None = None,
        timeout_s: float = 600.0,
        trusted_directories: tuple[Path | str, ...] = (),
        code_record: Path | None = None,
        output_directory: Path | None = None,
        top_two: bool = True,
    ) -> None:
        self.checkpoint = checkpoint.resolve()
        self.device, self.dtype, self.attention = device, dtype, attention
        self.interpreter = str(interpreter or sys.executable)
        self.timeout_s = timeout_s
        self.trusted_directories, self.code_record = trusted_directories, code_record
        self.output_directory = output_directory
        self._top_two = top_two
        self._turns = threading.Lock()
        self._worker: WorkerProcess | None = None
        self._environment: dict[str, str] = {}
        self._number = 0

    def recognize(
        self, request: OcrRequest, observer: Observer | None = None, cancel: CancelToken | None = None
    ) -> OcrResult:
        """Read one page. Raises Cancelled, RemoteCodeNotAllowed or another VendorError."""
        return self._read(request, observer or SilentObserver(), cancel)[0]

    def count_flops(self, request: OcrRequest, cancel: CancelToken | None = None) -> dict[str, list[int]]:
        """FLOPs of the published modules by torch's counter, while they read one page, as `Result.flops`.

        Raises as `recognize`.
        """
        return self._read(request, SilentObserver(), cancel, count=True)[1]

    def _read(
        self, request: OcrRequest, observer: Observer, cancel: CancelToken | None, count: bool = False
    ) -> tuple[OcrResult, dict[str, list[int]]]:
        with self._turn(cancel or CancelToken()) as stop:
            self.check()
            page = self.page(request)
            try:
                worker = self._ready_worker(stop)
                return self._run(worker, request, page, observer, stop, count)
            except _Unharmed as outcome:
                raise outcome.error from None
            except BaseException:
                # Whatever it was, an interrupted wait included: the worker's state is unknown.
                self.close()
                raise

    def trace(
        self, message: Trace, what: str, on_call: Callable[[int], None], cancel: CancelToken | None = None
    ) -> list[int]:
        """Read a page with the modules tapped; the new tokens. Number and output path are filled in here.

        Raises Cancelled, RemoteCodeNotAllowed or another VendorError.
        """

        def passed_on(progress: Message) -> None:
            if isinstance(progress, TraceStep):
                on_call(progress.call)

        with self._turn(cancel or CancelToken()) as stop:
            self.check()
            try:
                worker = self._ready_worker(stop)
                self._number += 1
                message = replace(message, number=self._number, output_path=str(worker.files))
                self._send(worker, message, what)
                answer = self._wait(worker, what, self._number, self.timeout_s, stop, passed_on)
                if not isinstance(answer, Traced):
                    raise VendorFailed(f"{what}: the worker answered out of turn", worker.stderr_tail)
                return answer.token_ids
            except _Unharmed as outcome:
                raise outcome.error from None
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End the worker. A page being read fails; the next one starts a new worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    # --- permission -----------------------------------------------------------------------------

    def check(self) -> None:
        """Say before anything is loaded what the directory's code cannot do. Raises a VendorError."""
        self._allowed_code()
        if not self.device.startswith("cuda") and _code_contains(self.checkpoint, b".cuda("):
            raise VendorNeedsCuda(
                f"{self.checkpoint}: its remote code moves everything to a GPU and cannot run on "
                f"'{self.device}'; choose a CUDA device, or the embedded checkpoint"
            )
        no_float32 = self.checkpoint.is_dir() and not _code_contains(self.checkpoint, b"supports_float32")
        if self.dtype != "bfloat16" and no_float32:
            raise VendorNeedsBfloat16(
                f"{self.checkpoint}: its remote code is written for bfloat16 and cannot run in {self.dtype}, "
                "which dtype auto is on a CPU; give --dtype bfloat16"
            )
        if self.checkpoint.is_dir() and self.attention not in (known := self.family.published.attentions):
            raise VendorError(
                f"{self.checkpoint}: the published decoder of {self.family.title} has no attention "
                f"'{self.attention}'; give --attention {known[0]}"
            )

    def _allowed_code(self) -> RemoteCode:
        """Raises RemoteCodeNotAllowed."""
        if self.checkpoint == EMBEDDED_CHECKPOINT:
            return remote_code(self.checkpoint)
        return require_allowed(self.checkpoint, self.trusted_directories, self.code_record)

    # --- one page -------------------------------------------------------------------------------

    @functools.cached_property
    def family(self) -> ModelSpec:
        """Row of the checkpoint's model. Raises DsocrError."""
        return family_of(*read_config(self.checkpoint))

    def page(self, request: OcrRequest) -> Page:
        """A request as `infer` takes it. Raises DsocrError for what it cannot do, or would do otherwise."""
        row = self.family
        if request.model != row.name or request.required.preset.lower() not in row.presets:
            raise DsocrError(
                f"{request.name}: the published {row.title} ({self.checkpoint}) has no preset "
                f"'{request.preset}' of {request.family.title}; choose one of {', '.join(row.presets)}"
            )
        if others := [name for name in request.unpublished if name not in row.published.arguments]:
            raise DsocrError(
                f"{request.name}: the published code has no infer.{others[0]}; leave it out, or "
                "read with eager or fast"
            )
        if len(request.images) > row.decoding.images:
            raise DsocrError(
                f"{request.name}: {len(request.images)} images, and a prompt takes {row.decoding.images}"
            )
        preset = request.resolution
        if request.more and preset.crop_mode:
            whole = ", ".join(name for name, each in row.presets.items() if not each.crop_mode)
            raise DsocrError(
                f"{request.name}: several images of one prompt are not cut into tiles; choose {whole}"
            )
        ngram = request.required.no_repeat_ngram_size
        usual = row.decoding.ngram_size_eval if request.eval_mode else row.decoding.ngram_size
        left = ngram == usual and "no_repeat_ngram_size" not in row.published.arguments
        return Page(
            images=[str(image.resolve()) for image in request.images],
            prompt=request.required.prompt,
            base_size=preset.base_size,
            image_size=preset.image_size,
            crop_mode=preset.crop_mode,
            no_repeat_ngram_size=None if left else ngram,
            ngram_window=request.ngram_window,
        )

    @contextmanager
    def _turn(self, cancel: CancelToken) -> Iterator[CancelToken]:
        while not self._turns.acquire(timeout=POLL_S):
            if cancel.is_set():
                raise Cancelled
        try:
            if cancel.is_set():
                raise Cancelled
            yield cancel
        finally:
            self._turns.release()

    def _ready_worker(self, cancel: CancelToken) -> WorkerProcess:
        """The warm worker, or a new one with the checkpoint loaded."""
        if self._worker is not None and self._worker.alive:
            return self._worker
        self.close()
        try:
            worker = self._worker = WorkerProcess(self.interpreter)
        except OSError as error:
            raise VendorFailed(f"{self.interpreter}: cannot be started ({error.strerror})") from error
        what = f"loading {self.checkpoint}"
        code = self._allowed_code().files
        self._send(worker, Load(str(self.checkpoint), self.device, self.dtype, self.attention, code), what)
        answer = self._wait(worker, what, 0, self.timeout_s, cancel, lambda message: None)
        if not isinstance(answer, Loaded):
            raise VendorFailed(f"{what}: the worker answered out of turn", worker.stderr_tail)
        self._environment = answer.environment
        return worker

    def _run(
        self,
        worker: WorkerProcess,
        request: OcrRequest,
        page: Page,
        observer: Observer,
        cancel: CancelToken,
        count: bool,
    ) -> tuple[OcrResult, dict[str, list[int]]]:
        shutil.rmtree(worker.files, ignore_errors=True)  # the page before this one's
        self._number += 1
        message = Recognize(
            number=self._number,
            page=page,
            max_new_tokens=None if request.max_new_tokens == UNLIMITED else request.max_new_tokens,
            output_path=str(self.output_directory or worker.files),
            stream_text=not isinstance(observer, SilentObserver),
            top_two=self._top_two,
            eval_mode=request.eval_mode,
            test_compress=request.test_compress,
            count_flops=count,
        )
        what = f"reading {request.name}"
        self._send(worker, message, what)
        answer = self._wait(worker, what, self._number, self.timeout_s, cancel, lambda m: _tell(observer, m))
        if not isinstance(answer, Result):
            raise VendorFailed(f"{what}: the worker answered out of turn", worker.stderr_tail)
        try:
            return self._to_result(request, answer), answer.flops
        except (ValueError, TypeError) as error:
            raise VendorFailed(
                f"{what}: the worker's result makes no sense ({error})", worker.stderr_tail
            ) from error

    def _send(self, worker: WorkerProcess, message: Message, what: str) -> None:
        try:
            worker.tell(message)
        except ChildGone as end:
            raise _crashed(what, worker, end) from end

    def _wait(
        self,
        worker: WorkerProcess,
        what: str,
        number: int,
        timeout_s: float,
        cancel: CancelToken,
        progress: Callable[[Message], None],
    ) -> Message:
        """The answer to what was sent; progress messages are passed on."""
        deadline = time.monotonic() + timeout_s
        leave_by: float | None = None
        while True:
            if cancel.is_set() and leave_by is None:
                self._send(worker, Cancel(number), what)
                leave_by = time.monotonic() + (CANCEL_GRACE_S if number else 0.0)
            now = time.monotonic()
            if leave_by is not None and now >= leave_by:
                raise Cancelled
            if now >= deadline:
                raise VendorTimeout(
                    f"{what}: no result within {timeout_s:g} s; the worker was ended", worker.stderr_tail
                )
            try:
                message = worker.hear(min(POLL_S, deadline - now))
            except ChildGone as end:
                raise _crashed(what, worker, end) from end
            except ProtocolError as error:
                raise VendorFailed(
                    f"{what}: the worker was not understood ({error})", worker.stderr_tail
                ) from error
            if message is None or getattr(message, "number", 0) not in (0, number):
                continue
            if isinstance(message, Failure):
                raise _to_error(message, what, worker.stderr_tail)
            if isinstance(message, (Loaded, Result, Traced)):
                return message
            if leave_by is None:
                progress(message)

    def _to_result(self, request: OcrRequest, seen: Result) -> OcrResult:
        if seen.finish_reason not in ("eos", "length"):
            raise ValueError(f"finish reason '{seen.finish_reason}'")
        top_two = top_two_steps(seen.top_ids, seen.top_logits)
        if any(step.ids[0] != token for step, token in zip(top_two, seen.token_ids, strict=False)):
            raise ValueError("a best token that was not chosen")
        if seen.postprocess_error:
            log.warning(
                "%s: the vendor's code failed after its text was there (%s); its tokens are kept",
                request.name,
                seen.postprocess_error,
            )
        if len(seen.image_sizes) != len(request.images):
            raise ValueError(f"{len(seen.image_sizes)} sizes of {len(request.images)} images")
        if len(top_two) > len(seen.token_ids):
            raise ValueError(f"{len(top_two)} steps for {len(seen.token_ids)} tokens")
        inputs = ModelInputs(
            prompt_ids=tuple(seen.prompt_ids),
            image_mask=tuple((start, length) for start, length in seen.image_mask),
            grid=_pair(seen.grid),
            global_shape=tuple(seen.global_shape),
            global_sha256=seen.global_sha256,
            tiles_shape=tuple(seen.tiles_shape),
            tiles_sha256=seen.tiles_sha256,
            no_repeat_ngram_size=seen.no_repeat_ngram_size,
            ngram_window=seen.ngram_window,
            max_new_tokens=seen.max_new_tokens,
            attention=seen.attention,
            dtype=seen.dtype,
            rotary_dtype=seen.rotary_dtype,
        )
        return OcrResult(
            backend="vendor",
            request=request,
            image_size=_pair(seen.image_sizes[0]),
            more_sizes=tuple(map(_pair, seen.image_sizes[1:])),
            text_raw=seen.text_raw,
            token_ids=tuple(seen.token_ids),
            token_texts=tuple(seen.token_texts),
            finish_reason="eos" if seen.finish_reason == "eos" else "length",
            inputs=inputs,
            timings=tuple(
                StageTiming(stage, row.milliseconds, row.calls)
                for stage in all_stages()
                for row in seen.timings
                if row.stage == stage
            ),
            environment={
                "engine": "vendor infer",
                "checkpoint": str(self.checkpoint),
                **self._environment,
                "overridden": ", ".join(seen.overridden),
                **({POSTPROCESS_ERROR: seen.postprocess_error} if seen.postprocess_error else {}),
            },
            top_two=top_two,
            text_tokens=seen.text_tokens,
        )


class _Unharmed(Exception):
    """Wraps an error after which the worker can continue."""

    def __init__(self, error: VendorError | Cancelled) -> None:
        self.error = error


def _crashed(what: str, worker: WorkerProcess, end: ChildGone) -> VendorCrashed:
    return VendorCrashed(f"{what}: the vendor worker {end}; run again, a new one starts", worker.stderr_tail)


def _to_error(failure: Failure, what: str, stderr_tail: str) -> Exception:
    error: VendorError | Cancelled
    if failure.kind == "cancelled":
        error = Cancelled()
    elif failure.kind == "out_of_memory":
        error = VendorOutOfMemory(
            f"{what}: the vendor's code ran out of memory ({failure.message})", stderr_tail
        )
    elif failure.kind == "refused":
        error = VendorFailed(f"{what}: {failure.message}", stderr_tail)
    else:
        error = VendorFailed(f"{what}: the vendor's code failed ({failure.message})", stderr_tail)
    return _Unharmed(error) if failure.usable else error


def _tell(observer: Observer, message: Message) -> None:
    """Pass progress on, without stages that this project does not have."""
    if isinstance(message, StageStarted) and message.stage in set(all_stages()):
        observer.stage_started(Stage(message.stage))
    elif isinstance(message, StageEnded) and message.stage in set(all_stages()):
        observer.stage_ended(Stage(message.stage), message.milliseconds)
    elif isinstance(message, Text):
        observer.text(message.delta)


def _pair(values: list[int]) -> tuple[int, int]:
    first, second = values
    return first, second


def _code_contains(checkpoint: Path, words: bytes) -> bool:
    """Tell whether the directory's code has these words in it: the published one has `.cuda(`."""
    return any(words in file.read_bytes() for file in checkpoint.glob("*.py"))
