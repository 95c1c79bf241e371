"""The vendor's process: loads a checkpoint the published way and runs its `infer`.

Started as `python -m dsocr_core.vendor.worker DIRECTORY` (its own place for temporary files, which it
removes when its caller is gone) by an interpreter that needs torch, transformers, Pillow and what the
checkpoint's code imports, nothing of this project but `vendor/`, `reading/`, `models/` and `base/`. Messages
come on what was stdin and leave on what was stdout; the vendor's code sees neither: whatever it prints,
Python or C, goes to stderr.
"""

from __future__ import annotations

import os
import platform
import queue
import re
import shutil
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.family import FIRST, ModelSpec, family_of, read_config
from dsocr_core.reading.records import POSTPROCESS_ERROR
from dsocr_core.vendor.errors import StoppedByCaller, VendorFailed
from dsocr_core.vendor.protocol import (
    FILES,
    MAX_LINE_BYTES,
    Cancel,
    Failure,
    Load,
    Loaded,
    Message,
    ProtocolError,
    Recognize,
    Result,
    Trace,
    decode,
    encode,
)
from dsocr_core.vendor.remote_code import check_modules, copy_for_import

ORIENTATION_TAG = 0x0112
SIDEWAYS = (5, 6, 7, 8)
"""EXIF orientations that swap width and height."""


def main() -> int:
    commands, answers = take_channels()
    worker = Worker(answers, Path(sys.argv[1]))
    threading.Thread(target=worker.listen, args=(commands,), daemon=True).start()
    worker.serve()
    return 0


def take_channels() -> tuple[BinaryIO, BinaryIO]:
    """Private copies of stdin and stdout; 0 becomes empty and 1 becomes stderr for everything else."""
    channels = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return channels


class Worker:
    """One model, one request at a time on the main thread; the listening thread only queues commands."""

    def __init__(self, answers: BinaryIO, directory: Path) -> None:
        self._answers, self._directory = answers, directory
        self._sending = threading.Lock()
        self._requests: queue.SimpleQueue[Load | Recognize | Trace] = queue.SimpleQueue()
        self._cancelled = 0
        self._model: Any = None
        self._tokenizer: Any = None
        self._environment: dict[str, str] = {}
        self._row = FIRST

    def listen(self, commands: BinaryIO) -> None:
        """Read commands until the caller is gone, then end the process, whatever it is doing."""
        while line := commands.readline(MAX_LINE_BYTES + 1):
            try:
                message = decode(line)
            except ProtocolError as error:
                self.send(Failure(0, "failed", f"the worker did not understand the caller: {error}", False))
                break
            if isinstance(message, Cancel):
                self._cancelled = message.number
            elif isinstance(message, (Load, Recognize, Trace)):
                self._requests.put(message)
        self._leave()

    def serve(self) -> None:
        while True:
            request = self._requests.get()
            try:
                if isinstance(request, Load):
                    answer = self.load(request)
                elif self._model is None:
                    raise RuntimeError("no checkpoint is loaded")
                else:
                    answer = self.trace(request) if isinstance(request, Trace) else self.recognize(request)
            except BaseException as error:  # noqa: BLE001 - whatever foreign code raises must be told
                traceback.print_exc()
                answer = failure(getattr(request, "number", 0), error, self._model)
            self.send(answer)

    def send(self, message: Message) -> None:
        line = encode(message)
        try:
            with self._sending:
                self._answers.write(line)
                self._answers.flush()
        except OSError:  # nobody listens any more
            self._leave()

    def _leave(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(0)

    def load(self, request: Load) -> Message:
        import torch
        import transformers

        from dsocr_core.models.devices import device_name
        from dsocr_core.vendor.encoder_mask import mask_problem

        directory = self.importable(Path(request.checkpoint), request.code)
        row = self._row = family_of(*read_config(Path(directory)))
        before = set(sys.modules)
        dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[request.dtype]
        # Without a dtype transformers makes a float32 model first: twice the checkpoint in host memory. With
        # that of the last cast the weights are the shards' own, mapped from the files, and the same bits.
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(directory, trust_remote_code=True)
            model = transformers.AutoModel.from_pretrained(
                directory, torch_dtype=dtype, _attn_implementation=request.attention,
                trust_remote_code=True, use_safetensors=True,
            )  # fmt: skip
        except Exception as error:
            lacks = isinstance(error, ImportError) and (error.name or "").startswith("transformers.")
            too_new = int(transformers.__version__.partition(".")[0]) >= 5  # than any published code
            if lacks or (too_new and not is_out_of_memory(error)):
                raise unsuited(row, described(error)) from error
            raise
        new = [
            name for name in sys.modules if name.startswith("transformers_modules.") and name not in before
        ]
        check_modules([sys.modules[name] for name in new], request.code)
        if dtype != torch.bfloat16 and not getattr(model, "supports_float32", False):
            raise ValueError("the checkpoint's code is written for bfloat16: choose that dtype")
        asked = torch.device(request.device)
        if asked.type == "cuda" and asked.index is not None:
            torch.cuda.set_device(request.device)  # where published code's `.cuda()` goes
        model = model.eval().to(request.device)
        if not row.exact_rotary:
            # As published, after that: this cast also rounds the rotary frequencies.
            model = model.to(dtype)
        if row.published.masks_encoder and (problem := mask_problem(model)) is not None:
            raise unsuited(row, problem)
        self._model, device = model, model.device
        versions = {"torch": str(torch.__version__), "transformers": str(transformers.__version__)}
        of_device = {"device": str(device), "device_name": device_name(device)}
        self._environment = {**of_device, "python": platform.python_version(), **versions}
        return Loaded()

    def importable(self, checkpoint: Path, code: dict[str, str]) -> str:
        """The directory with the code that was allowed, copied; transformers makes a Python module of it."""
        name = checkpoint.name if re.fullmatch(r"[A-Za-z_][\w-]*", checkpoint.name) else "checkpoint"
        target = self._directory / "loaded" / name
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir()
        copy_for_import(checkpoint, code, target)
        return str(target)

    def recognize(self, request: Recognize) -> Message:
        from dsocr_core.models.flop_counter import counting
        from dsocr_core.vendor.observe import Observation, UnlikeInfer

        observation = Observation(request, self.send, lambda: self._cancelled == request.number)
        more = dict(self._environment)
        # On a CPU torch's fused attention has no formula; on a GPU its kernels have one.
        fused = self._model.device.type == "cuda"
        counter = counting(fused=fused) if request.count_flops else nullcontext()
        attached = observation.attached(self._model, self._tokenizer)
        with attached, self._config_kept(), counter as observation.counter:
            try:
                self._infer(request)
            except Exception as error:
                unlike = not observation.generated or isinstance(error, UnlikeInfer)
                if unlike or is_fatal(error, self._model):
                    raise
                traceback.print_exc()
                more[POSTPROCESS_ERROR] = described(error)
        size, *sizes = map(upright_size, request.images)
        seen = observation.result(self._model, self._tokenizer)
        environment = {**more, "overridden": ", ".join(observation.overridden)}
        whole = {**seen, "image_size": size, "more_sizes": sizes, "environment": environment}
        flops = {name: tuple(calls) for name, calls in observation.flops.items()}
        return Result(request.number, whole, flops)

    def _infer(self, request: Recognize | Trace) -> None:
        """Call the published entry."""
        arguments = {**request.arguments, "output_path": str(self._directory / FILES)}
        if self._row.published.arguments:
            arguments["max_length"] = self._model.config.max_position_embeddings
        if len(request.images) > 1:
            self._model.infer_multi(self._tokenizer, image_files=list(request.images), **arguments)
        else:
            self._model.infer(self._tokenizer, image_file=request.images[0], **arguments)

    @contextmanager
    def _config_kept(self) -> Iterator[None]:
        """Put the config's values back at the end: `infer` changes some, and may be left early."""
        values = vars(self._model.config)
        before = dict(values)
        try:
            yield
        finally:
            values.update(before)

    def trace(self, request: Trace) -> Message:
        from dsocr_core.vendor.taps import TracedInfer

        known = dict(self._environment)
        about = {**request.about, "device": known.pop("device"), "device_name": known.pop("device_name")}
        traced = TracedInfer(request, self.send, lambda: self._cancelled == request.number)
        with traced.attached(self._model, {**about, "versions": known}), self._config_kept():
            self._infer(request)
        return traced.result(self._model)


def failure(number: int, error: BaseException, model: Any) -> Failure:
    """The message of an exception. After a CUDA error the process is not to be trusted any more."""
    if isinstance(error, StoppedByCaller):
        return Failure(number, "cancelled", "cancelled", True)
    if isinstance(error, DsocrError):
        return Failure(number, "refused", str(error), model is not None)
    kind = "out_of_memory" if is_out_of_memory(error) else "failed"
    return Failure(number, kind, described(error), model is not None and not is_fatal(error, model))


def unsuited(row: ModelSpec, problem: str) -> VendorFailed:
    """Make the error of libraries under which the code is not the published model."""
    import transformers

    return VendorFailed(
        f"{problem} (transformers {transformers.__version__}); give --vendor.interpreter an environment with "
        f"transformers {row.published.transformers}"
    )


def described(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:2000] or 'no message'}"


def is_out_of_memory(error: BaseException) -> bool:
    import torch

    out_of_memory = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    return isinstance(error, (MemoryError, out_of_memory)) or "can't allocate memory" in str(error)


def is_fatal(error: BaseException, model: Any) -> bool:
    """Tell whether the process is not to be trusted after it: no memory, or what may be a CUDA error."""
    return is_out_of_memory(error) or (model.device.type == "cuda" and isinstance(error, RuntimeError))


def upright_size(path: str) -> tuple[int, int]:
    """(width, height) of an image after its EXIF orientation."""
    from PIL import Image

    with Image.open(path) as image:
        width, height = image.size
        return (height, width) if image.getexif().get(ORIENTATION_TAG) in SIDEWAYS else (width, height)


if __name__ == "__main__":
    sys.exit(main())
