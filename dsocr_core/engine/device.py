"""Device and dtype of a run, and the lock of a device."""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.records import CancelToken

_POLL_S = 0.1

log = logging.getLogger(__name__)


def current(device: torch.device) -> AbstractContextManager[object]:
    """Make a device torch's current one within the block: events, streams, graphs and Triton use that."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@functools.cache
def no_gpu() -> str:
    """Why torch finds no GPU, in one line."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError, OSError) as error:
        return " ".join(str(error).split(". ")[0].split()).rstrip(".")
    return "the driver shows none"


def resolve_device(name: str) -> torch.device:
    """Device of a setting: `auto` is the first GPU, or the CPU without one. Raises DsocrError."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        if "too old" in no_gpu():
            log.warning("%s: pages are read on the CPU", no_gpu())
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DsocrError(f"device '{name}' is not known: give auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise DsocrError(f"device '{name}' is not supported: give auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        cause = f"{count} GPUs are" if count else no_gpu()
        raise DsocrError(f"device '{name}' is not here ({cause}): use cpu")
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Dtype of a setting: `auto` is bfloat16 on a GPU and float32 on the CPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    types = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    if name not in types:
        raise DsocrError(f"dtype '{name}' is not known: give auto, {', '.join(types)}")
    return types[name]


_NARROW = 512
"""Largest hidden size with which a decode step is faster on one CPU thread than on several."""


@contextmanager
def decode_threads(model: OcrModel) -> Iterator[None]:
    """Use one CPU thread while a narrow decoder decodes: waking a second one costs more than it saves."""
    before = torch.get_num_threads()
    if model.device.type == "cpu" and model.config.decoder.hidden_size <= _NARROW:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def full_float32() -> Iterator[None]:
    """Run convolutions in full float32; by default cuDNN rounds their inputs to TF32's 10 bits."""
    before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


class DeviceLock:
    """Lock that serves in order of arrival, and knows the names of the work that holds it and that waits."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._queue: deque[tuple[object, str]] = deque()

    @contextmanager
    def hold(
        self, work: str, cancel: CancelToken | None = None, on_wait: Callable[[str], None] | None = None
    ) -> Iterator[None]:
        """Wait for the device, then hold it. `on_wait` gets the name of the work before. Raises Cancelled."""
        ticket = object()
        with self._turn:
            self._queue.append((ticket, work))
            told = None
            try:
                while self._queue[0][0] is not ticket:
                    if cancel is not None and cancel.is_set():
                        raise Cancelled
                    if on_wait and self._queue[0][1] != told:
                        told = self._queue[0][1]
                        on_wait(told)
                    self._turn.wait(_POLL_S)
            except BaseException:
                self._leave(ticket)
                raise
        try:
            yield
        finally:
            with self._turn:
                self._leave(ticket)

    def _leave(self, ticket: object) -> None:
        self._queue = deque(entry for entry in self._queue if entry[0] is not ticket)
        self._turn.notify_all()


_locks: dict[str, DeviceLock] = {}
_locks_guard = threading.Lock()


def device_lock(device: torch.device) -> DeviceLock:
    """The lock of a device, one in this process."""
    key = f"{device.type}:{device.index or 0}"
    with _locks_guard:
        return _locks.setdefault(key, DeviceLock())
