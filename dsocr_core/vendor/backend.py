"""The published code as a backend: the checkpoint's own `infer` in a worker process."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dsocr_core.base.child import Child, ChildGone, module_environment
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, Temporary
from dsocr_core.models.family import ModelSpec, family_of, read_config
from dsocr_core.models.stages import Stage
from dsocr_core.reading.jsonable import to_jsonable
from dsocr_core.reading.records import (
    POSTPROCESS_ERROR,
    UNLIMITED,
    VENDOR,
    CancelToken,
    Observer,
    OcrRequest,
    OcrResult,
    result_from_jsonable,
)
from dsocr_core.vendor import protocol
from dsocr_core.vendor.errors import VendorError, VendorFailed
from dsocr_core.vendor.remote_code import RemoteCode, remote_code, require_allowed

log = logging.getLogger(__name__)

POLL_S = 0.05
CANCEL_GRACE_S = 1.0
"""Seconds that a cancelled worker may take to end by itself before it is killed."""
Progress = Callable[[protocol.Message], None]
Answer = TypeVar("Answer", protocol.Loaded, protocol.Result, protocol.Traced)


class VendorBackend:
    """Backend that starts its worker at the first page, reuses it, and replaces it after a crash.

    One page at a time; further callers wait. `timeout_s` is the limit of loading, and of each page.
    `trusted_directories` are checkpoint directories whose remote code may run, besides the embedded one's;
    `remote_code.require_allowed` takes them with `code_record`. `top_two` records each step's two best
    logits.
    """

    def __init__(
        self, checkpoint: Path, device: str = "cpu", dtype: str = "bfloat16", attention: str = "eager",
        interpreter: str | Path | None = None, timeout_s: float = 600.0,
        trusted_directories: tuple[Path | str, ...] = (), code_record: Path | None = None,
        top_two: bool = True,
    ) -> None:  # fmt: skip
        self.checkpoint, self.interpreter = checkpoint.resolve(), str(interpreter or sys.executable)
        self.device, self.dtype, self.attention, self.timeout_s = device, dtype, attention, timeout_s
        self.trusted_directories, self.code_record = trusted_directories, code_record
        self._top_two, self._turns = top_two, threading.Lock()
        self._worker: WorkerProcess | None = None
        self._number, self._usable = 0, False

    def recognize(
        self, request: OcrRequest, observer: Observer | None = None, cancel: CancelToken | None = None
    ) -> OcrResult:
        """Read one page. Raises Cancelled, RemoteCodeNotAllowed or another VendorError."""
        return self._read(request, observer or Observer(), cancel)[0]

    def count_flops(self, request: OcrRequest, cancel: CancelToken | None = None) -> dict[str, list[int]]:
        """FLOPs of the published modules by torch's counter, like `Result.flops`. Raises as `recognize`."""
        return self._read(request, Observer(), cancel, count=True)[1]

    def _read(
        self, request: OcrRequest, observer: Observer, cancel: CancelToken | None, count: bool = False
    ) -> tuple[OcrResult, dict[str, list[int]]]:
        def progress(sent: protocol.Message) -> None:
            if isinstance(sent, protocol.Text):
                observer.text(sent.delta)
            elif isinstance(sent, protocol.StageProgress) and sent.stage in [*Stage]:
                if sent.milliseconds is None:
                    observer.stage_started(Stage(sent.stage))
                else:
                    observer.stage_ended(Stage(sent.stage), sent.milliseconds)

        most = request.max_new_tokens
        streams = type(observer).text is not Observer.text
        with self._at_work(request, "reading", cancel) as exchange:
            sent = protocol.Recognize(
                self._number, **self._call(request), max_new_tokens=None if most == UNLIMITED else most,
                stream_text=streams, top_two=self._top_two, count_flops=count,
            )  # fmt: skip
            answer = exchange(sent, protocol.Result, progress)
            try:
                result = self._result(request, answer.result)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                tail = self._worker.stderr_tail if self._worker else ""
                words = f"reading {request.name}: the worker's result makes no sense ({error})"
                raise VendorFailed(words, tail) from error
            return result, {name: list(calls) for name, calls in answer.flops.items()}

    def trace(
        self, request: OcrRequest, on_call: Callable[[int], None], cancel: CancelToken | None = None,
        **fields_of_trace: Any,
    ) -> tuple[int, ...]:  # fmt: skip
        """Record a page's tensors. Returns its new tokens. Raises as `recognize`."""

        def progress(sent: protocol.Message) -> None:
            if isinstance(sent, protocol.TraceStep):
                on_call(sent.call)

        with self._at_work(request, "tracing", cancel) as exchange:
            sent = protocol.Trace(self._number, **self._call(request), **fields_of_trace)
            return exchange(sent, protocol.Traced, progress).token_ids

    def close(self) -> None:
        """End the worker. A page being read fails; another page starts a new worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    # --- what it can do -------------------------------------------------------------------------

    @functools.cached_property
    def family(self) -> ModelSpec:
        """Spec of the checkpoint's model. Raises DsocrError."""
        return family_of(*read_config(self.checkpoint))

    def check(self) -> None:
        """Raise a VendorError for what the directory's code cannot do, before anything is loaded."""
        self._allowed_code()
        code = b"".join(file.read_bytes() for file in self.checkpoint.glob("*.py"))
        there, problem = self.checkpoint.is_dir(), None
        if not self.device.startswith("cuda") and b".cuda(" in code:
            problem = (
                f"its remote code moves everything to a GPU and cannot run on '{self.device}'; choose a CUDA "
                "device, or the embedded checkpoint"
            )
        elif there and self.dtype != "bfloat16" and b"supports_float32" not in code:
            problem = (
                f"its remote code is written for bfloat16 and cannot run in {self.dtype}, which dtype auto "
                "is on a CPU; give --dtype bfloat16"
            )
        elif there and self.attention not in (known := self.family.published_attentions):
            problem = f"its decoder has no attention '{self.attention}'; give --attention {known[0]}"
        if problem is not None:
            raise VendorError(f"{self.checkpoint}: {problem}")

    def _allowed_code(self) -> RemoteCode:
        """Code that may run. Raises RemoteCodeNotAllowed."""
        if self.checkpoint == EMBEDDED_CHECKPOINT:
            return remote_code(self.checkpoint)
        return require_allowed(self.checkpoint, self.trusted_directories, self.code_record)

    def _call(self, request: OcrRequest) -> dict[str, Any]:
        """Arguments of `infer` for a request. Raises DsocrError where it cannot or reads otherwise."""
        spec, preset, problem = self.family, request.resolution, None
        others = [name for name in request.unpublished if name not in spec.published_arguments]
        if request.model != spec.name or request.required.preset.lower() not in spec.presets:
            problem = (
                f"the published {spec.title} ({self.checkpoint}) has no preset '{request.preset}' of "
                f"{request.family.title}; choose one of {', '.join(spec.presets)}"
            )
        elif others:
            problem = f"the published code has no infer.{others[0]}; leave it out, or read with eager or fast"
        elif len(request.images) > spec.decoding.images:
            problem = f"{len(request.images)} images, and a prompt takes {spec.decoding.images}"
        elif request.more and preset.crop_mode:
            whole = ", ".join(name for name, each in spec.presets.items() if not each.crop_mode)
            problem = f"several images of one prompt are not cut into tiles; choose {whole}"
        if problem is not None:
            raise DsocrError(f"{request.name}: {problem}")
        arguments: dict[str, Any] = {name: getattr(request, name) for name in spec.published_arguments}
        arguments |= {"prompt": request.required.prompt, "image_size": preset.image_size}
        arguments |= {"save_results": not request.eval_mode}
        if not request.more:
            arguments |= {"base_size": preset.base_size, "crop_mode": preset.crop_mode}
            arguments |= {"eval_mode": request.eval_mode, "test_compress": request.test_compress}
        ngram = request.required.no_repeat_ngram_size
        usual = spec.decoding.ngram_size_eval if request.eval_mode else spec.decoding.ngram_size
        as_published = ngram == usual and "no_repeat_ngram_size" not in arguments
        return {
            "images": tuple(str(image.resolve()) for image in request.images),
            "arguments": arguments,
            "ngram_size": None if as_published or request.ngram_window else ngram,
        }

    # --- the worker -----------------------------------------------------------------------------

    @contextmanager
    def _at_work(
        self, request: OcrRequest, verb: str, cancel: CancelToken | None
    ) -> Iterator[Callable[[protocol.Message, type[Answer], Progress], Answer]]:
        """Take a turn with the loaded worker. Yields the function that sends a message and awaits its answer.

        After an error, an interrupted wait included, the worker is ended, unless it says that it is usable.
        """
        cancel = cancel or CancelToken()
        while cancel.is_set() or not self._turns.acquire(timeout=POLL_S):
            if cancel.is_set():
                raise Cancelled
        try:
            self.check()
            self._call(request)  # refuses bad requests before anything is loaded
            self._usable = False
            try:
                worker = self._ready_worker(cancel)
                shutil.rmtree(worker.files, ignore_errors=True)  # files of the page before
                self._number += 1
                what = f"{verb} {request.name}"
                yield functools.partial(self._exchange, worker, self._number, what, cancel)
            except BaseException:
                if not self._usable:
                    self.close()
                raise
        finally:
            self._turns.release()

    def _ready_worker(self, cancel: CancelToken) -> WorkerProcess:
        """Warm worker, or a new one that has loaded the checkpoint."""
        if self._worker is not None and self._worker.alive:
            return self._worker
        self.close()
        try:
            worker = self._worker = WorkerProcess(self.interpreter)
        except OSError as error:
            raise VendorFailed(f"{self.interpreter}: cannot be started ({error.strerror})") from error
        code = self._allowed_code().files
        load = protocol.Load(str(self.checkpoint), self.device, self.dtype, self.attention, code)
        self._exchange(
            worker, 0, f"loading {self.checkpoint}", cancel, load, protocol.Loaded, lambda message: None
        )
        return worker

    def _exchange(
        self, worker: WorkerProcess, number: int, what: str, cancel: CancelToken,
        message: protocol.Message, kind: type[Answer], progress: Progress,
    ) -> Answer:  # fmt: skip
        """Send a message and wait for its answer. Progress messages are passed on."""
        deadline, leave_by = time.monotonic() + self.timeout_s, float("inf")
        try:
            worker.tell(message)
            while True:
                if cancel.is_set() and leave_by == float("inf"):
                    worker.tell(protocol.Cancel(number))
                    leave_by = time.monotonic() + (CANCEL_GRACE_S if number else 0.0)
                now = time.monotonic()
                if now >= leave_by:
                    raise Cancelled
                if now >= deadline:
                    late = f"{what}: no result within {self.timeout_s:g} s; the worker was ended"
                    raise VendorFailed(late, worker.stderr_tail)
                answer = worker.hear(min(POLL_S, deadline - now))
                if answer is None or getattr(answer, "number", 0) not in (0, number):
                    continue
                if isinstance(answer, protocol.Failure):
                    self._usable = answer.usable
                    raise _error_of(answer, what, worker.stderr_tail)
                if isinstance(answer, kind):
                    return answer
                if not isinstance(answer, (protocol.StageProgress, protocol.Text, protocol.TraceStep)):
                    raise protocol.ProtocolError(f"a {type(answer).__name__} message")
                if leave_by == float("inf"):
                    progress(answer)
        except ChildGone as end:
            words = f"{what}: the vendor worker {end}; run again, a new one starts"
            raise VendorFailed(words, worker.stderr_tail) from end
        except protocol.ProtocolError as error:
            words = f"{what}: the worker was not understood ({error})"
            raise VendorFailed(words, worker.stderr_tail) from error

    def _result(self, request: OcrRequest, seen: dict[str, Any]) -> OcrResult:
        """Result in a worker's message. Raises TypeError or ValueError where it is malformed."""
        result = result_from_jsonable({**seen, "backend": VENDOR, "request": to_jsonable(request)})
        tokens = result.token_ids
        if tokens is None or result.inputs is None or result.finish_reason is None:
            raise ValueError("no tokens, inputs or finish reason")
        if [step.ids[0] for step in result.top_two] != list(tokens[: len(result.top_two)]):
            raise ValueError("a best token that was not chosen")
        if len(result.more_sizes) != len(request.more):
            raise ValueError(f"{1 + len(result.more_sizes)} sizes of {len(request.images)} images")
        if problem := result.environment.get(POSTPROCESS_ERROR):
            words = "%s: the vendor's code failed after its text was there (%s); its tokens are kept"
            log.warning(words, request.name, problem)
        own = {"engine": "vendor infer", "checkpoint": str(self.checkpoint)}
        return replace(result, request=request, environment=own | result.environment | own)


def _error_of(failure: protocol.Failure, what: str, stderr_tail: str) -> Exception:
    if failure.kind == "cancelled":
        return Cancelled()
    said = {
        "out_of_memory": f"the vendor's code ran out of memory ({failure.message})",
        "refused": failure.message,
    }.get(failure.kind, f"the vendor's code failed ({failure.message})")
    return VendorFailed(f"{what}: {said}", stderr_tail)


class WorkerProcess(Child):
    """A worker, which ends when its caller's pipe closes. Raises OSError when it cannot be started."""

    def __init__(self, interpreter: str) -> None:
        self._directory = Temporary("vendor")
        self.files = Path(self._directory.name) / protocol.FILES
        """Directory for the files that `infer` writes; removed with the worker."""
        command = [interpreter, "-m", "dsocr_core.vendor.worker", self._directory.name]
        super().__init__(command, _environment(Path(self._directory.name)), talks=True)

    def tell(self, message: protocol.Message) -> None:
        """Send a message. Raises ChildGone."""
        self.send(protocol.encode(message))

    def hear(self, timeout_s: float) -> protocol.Message | None:
        """Next message; None when none came in time. Raises ChildGone or ProtocolError."""
        line = self.receive(timeout_s)
        return None if line is None else protocol.decode(line)

    def close(self) -> None:
        super().close()
        self._directory.cleanup()


def _environment(directory: Path) -> dict[str, str]:
    return {
        # Threads that spin while waiting make a page 10 to 30 times slower on a busy machine.
        "OMP_WAIT_POLICY": "PASSIVE",
        "MKL_DYNAMIC": "FALSE",
        **module_environment(os.environ),
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",
        # Where transformers copies the checkpoint's code.
        "HF_MODULES_CACHE": str(directory / "modules"),
        # A config may name code in somebody's repository: only the allowed directory's code runs.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
