"""The vendor's process: loads a checkpoint the published way and runs its `infer`.

Started as `python -m dsocr_core.vendor.worker DIRECTORY` (for temporary files, removed when its caller
is gone) by an interpreter that needs torch, transformers, Pillow and what the checkpoint's code imports.
Messages come on what was stdin and leave on what was stdout; the vendor's code sees neither: whatever it
prints, Python or C, goes to stderr.
"""

from __future__ import annotations

import os
import platform
import queue
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from dsocr_core.base.child import MOST_LINE_BYTES
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.family import FIRST, ModelSpec, family_of, read_config
from dsocr_core.reading.records import POSTPROCESS_ERROR
from dsocr_core.vendor import protocol
from dsocr_core.vendor.errors import StoppedByCaller, VendorFailed
from dsocr_core.vendor.remote_code import check_modules, copy_for_import

UNMASKED_FROM = (4, 53)  # transformers that ignores the mask of DeepSeek-OCR-2's encoder
"""First version of transformers that ignores an encoder's own mask."""


def main() -> int:
    commands, answers = take_channels()
    worker = Worker(answers, Path(sys.argv[1]))
    threading.Thread(target=worker.listen, args=(commands,), daemon=True).start()
    worker.serve()
    return 0


def take_channels() -> tuple[BinaryIO, BinaryIO]:
    """Private copies of stdin and stdout. Other code then reads nothing and prints to stderr."""
    channels = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return channels


class Worker:
    """One model, and one request at a time on the main thread. Another thread queues commands."""

    def __init__(self, answers: BinaryIO, directory: Path) -> None:
        self._answers, self._directory, self._sending = answers, directory, threading.Lock()
        self._requests: queue.SimpleQueue[protocol.Message] = queue.SimpleQueue()
        self._cancelled, self._row = 0, FIRST
        self._model: Any = None
        self._tokenizer: Any = None
        self._environment: dict[str, str] = {}

    def listen(self, commands: BinaryIO) -> None:
        """Read commands. When the caller is gone, end the process at once."""
        try:
            while line := commands.readline(MOST_LINE_BYTES + 1):
                message = protocol.decode(line)
                if isinstance(message, protocol.Cancel):
                    self._cancelled = message.number
                else:
                    self._requests.put(message)
        finally:
            self._leave()

    def serve(self) -> None:
        work: dict[type, Callable[[Any], protocol.Message]] = {
            protocol.Load: self.load, protocol.Recognize: self.recognize, protocol.Trace: self.trace
        }  # fmt: skip
        while True:
            request = self._requests.get()
            try:
                answer = work[type(request)](request)
            except BaseException as error:  # noqa: BLE001 - whatever foreign code raises is an answer
                traceback.print_exc()
                answer = failure(getattr(request, "number", 0), error, self._model)
            self.send(answer)

    def send(self, message: protocol.Message) -> None:
        line = protocol.encode(message)
        try:
            with self._sending:
                self._answers.write(line)
                self._answers.flush()
        except OSError:  # nobody listens any more
            self._leave()

    def _leave(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(0)

    def load(self, request: protocol.Load) -> protocol.Message:
        import torch
        import transformers

        from dsocr_core.models.devices import device_name

        directory = self.importable(Path(request.checkpoint), request.code)
        row = self._row = family_of(*read_config(Path(directory)))
        version = tuple(int(each) for each in transformers.__version__.split(".")[:2])
        if row.masks_encoder and version >= UNMASKED_FROM:
            raise unsuited(row, "the encoder's mask is not applied: no feature of a view sees a later one")
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
            too_new = version >= (5,)  # larger than in any published code
            if lacks or (too_new and not is_out_of_memory(error)):
                raise unsuited(row, described(error)) from error
            raise
        new = [name for name in set(sys.modules) - before if name.startswith("transformers_modules.")]
        check_modules([sys.modules[name] for name in new], request.code)
        if dtype != torch.bfloat16 and not getattr(model, "supports_float32", False):
            raise ValueError("the checkpoint's code is written for bfloat16: choose that dtype")
        asked = torch.device(request.device)
        if asked.type == "cuda" and asked.index is not None:
            torch.cuda.set_device(request.device)  # the target of `.cuda()` in published code
        model = model.eval().to(request.device)
        if not row.exact_rotary:
            # As published, after that: this cast also rounds the rotary frequencies.
            model = model.to(dtype)
        self._model = model
        self._environment = {
            "device": str(model.device), "device_name": device_name(model.device),
            "python": platform.python_version(), "torch": str(torch.__version__),
            "transformers": str(transformers.__version__),
        }  # fmt: skip
        return protocol.Loaded()

    def importable(self, checkpoint: Path, code: dict[str, str]) -> str:
        """Directory with a copy of the allowed code, under a name that Python can import."""
        target = self._directory / "loaded" / "checkpoint"
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir()
        copy_for_import(checkpoint, code, target)
        return str(target)

    def recognize(self, request: protocol.Recognize) -> protocol.Message:
        from dsocr_core.models.flop_counter import counting
        from dsocr_core.vendor.observe import Observation, UnlikeInfer

        observation = Observation(request, self.send, lambda: self._cancelled == request.number)
        more, fused = dict(self._environment), self._model.device.type == "cuda"
        # On a CPU torch's fused attention has no formula; on a GPU its kernels have one.
        counter = counting(fused=fused) if request.count_flops else nullcontext()
        attached = observation.attached(self._model, self._tokenizer)
        with attached, self._config_restored(), counter as observation.counter:
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
        seen |= {"image_size": size, "more_sizes": sizes}
        seen["environment"] = {**more, "overridden": ", ".join(observation.overridden)}
        flops = {name: tuple(calls) for name, calls in observation.flops.items()}
        return protocol.Result(request.number, seen, flops)

    def _infer(self, request: protocol.Recognize | protocol.Trace) -> None:
        arguments = {**request.arguments, "output_path": str(self._directory / protocol.FILES)}
        if self._row.published_arguments:
            arguments["max_length"] = self._model.config.max_position_embeddings
        if len(request.images) > 1:
            self._model.infer_multi(self._tokenizer, image_files=list(request.images), **arguments)
        else:
            self._model.infer(self._tokenizer, image_file=request.images[0], **arguments)

    @contextmanager
    def _config_restored(self) -> Iterator[None]:
        """Restore the config's values after the block: `infer` changes some, and may be left early."""
        values = vars(self._model.config)
        before = dict(values)
        try:
            yield
        finally:
            values.update(before)

    def trace(self, request: protocol.Trace) -> protocol.Message:
        from dsocr_core.vendor.taps import TracedInfer

        known = dict(self._environment)
        about = {**request.about, "device": known.pop("device"), "device_name": known.pop("device_name")}
        traced = TracedInfer(request, self.send, lambda: self._cancelled == request.number)
        with traced.attached(self._model, {**about, "versions": known}), self._config_restored():
            self._infer(request)
        return traced.result(self._model)


def failure(number: int, error: BaseException, model: Any) -> protocol.Failure:
    if isinstance(error, StoppedByCaller):
        return protocol.Failure(number, "cancelled", "cancelled", True)
    if isinstance(error, DsocrError):
        return protocol.Failure(number, "refused", str(error), model is not None)
    kind = "out_of_memory" if is_out_of_memory(error) else "failed"
    return protocol.Failure(number, kind, described(error), model is not None and not is_fatal(error, model))


def unsuited(row: ModelSpec, problem: str) -> VendorFailed:
    """Error for libraries with which the code does not compute the published model."""
    import transformers

    way_out = f"give --vendor.interpreter an environment with transformers {row.published_transformers}"
    return VendorFailed(f"{problem} (transformers {transformers.__version__}); {way_out}")


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:2000] or 'no message'}"


def is_out_of_memory(error: BaseException) -> bool:
    import torch

    out_of_memory = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    return isinstance(error, (MemoryError, out_of_memory)) or "can't allocate memory" in str(error)


def is_fatal(error: BaseException, model: Any) -> bool:
    """True for lack of memory and possible CUDA errors, after which the process must not be reused."""
    return is_out_of_memory(error) or (model.device.type == "cuda" and isinstance(error, RuntimeError))


def upright_size(path: str) -> tuple[int, int]:
    """(width, height) of an image after its EXIF orientation."""
    from PIL import Image

    with Image.open(path) as image:
        width, height = image.size
        sideways = image.getexif().get(0x0112) in (5, 6, 7, 8)
        return (height, width) if sideways else (width, height)


if __name__ == "__main__":
    sys.exit(main())
