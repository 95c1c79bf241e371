"""Our road: one page down the stages, NVTX-marked and timed. It never calls the vendor's `infer`.

Both engines share everything but the way they decode, which is the engine's `Decoder`.
"""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dsocr_core.engine.checkpoint import Checkpoint
from dsocr_core.engine.device import decode_threads
from dsocr_core.engine.generate import NO_TOKEN, Sequence, decode, token_limit
from dsocr_core.engine.sampling import BestTwo
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.errors import Cancelled
from dsocr_core.inputs.documents import DEFAULT_MAX_PIXELS, load_image
from dsocr_core.inputs.preprocess import NORMALISED, PreparedImage, prepare, tensor_sha256
from dsocr_core.inputs.prompt import PromptIds, build_prompt, prompt_layout
from dsocr_core.inputs.tiling import image_token_count
from dsocr_core.inputs.tokenizer import StreamDecoder
from dsocr_core.model.attention import AttentionCore, attention_core
from dsocr_core.model.ocr_model import OcrModel
from dsocr_core.outputs.markup import parse
from dsocr_core.records import (
    CancelToken,
    FinishReason,
    ModelInputs,
    Observer,
    OcrRequest,
    OcrResult,
    SilentObserver,
)
from dsocr_core.resolution import preset_named
from dsocr_core.stages import Stage

log = logging.getLogger(__name__)
_announced = threading.Event()


class Decoder(Protocol):
    """How an engine goes on after the prefill."""

    def start(
        self, prompt_ids: tuple[int, ...], limit: int, ngram_size: int, core: AttentionCore
    ) -> Sequence:
        """An empty sequence for the prefill of that prompt."""
        ...

    def decode(
        self,
        sequence: Sequence,
        prompt_ids: tuple[int, ...],
        logits: Tensor,
        limit: int,
        on_token: Callable[[int], None],
        cancel: CancelToken | None,
    ) -> tuple[list[int], FinishReason]:
        """The new tokens after the prefill's `logits` (V,), and why they end. Raises Cancelled."""
        ...


class EagerDecoder:
    """A forward pass and a look at its logits a token; with `top_two` the two best are kept."""

    def __init__(
        self, model: OcrModel, eos_token_id: int, rotary_dtype: torch.dtype, top_two: bool = True
    ) -> None:
        self._model, self._eos, self._rotary_dtype = model, eos_token_id, rotary_dtype
        self._top_two = top_two

    def start(
        self, prompt_ids: tuple[int, ...], limit: int, ngram_size: int, core: AttentionCore
    ) -> Sequence:
        sequence = Sequence.start(self._model, prompt_ids, limit, ngram_size, core, self._rotary_dtype)
        sequence.best = BestTwo() if self._top_two else None
        return sequence

    def decode(
        self,
        sequence: Sequence,
        prompt_ids: tuple[int, ...],
        logits: Tensor,
        limit: int,
        on_token: Callable[[int], None],
        cancel: CancelToken | None,
    ) -> tuple[list[int], FinishReason]:
        return decode(self._model, sequence, logits, limit, self._eos, on_token, cancel)


@dataclass(frozen=True)
class PreparedPage:
    """A page opened and preprocessed ahead of its turn; `milliseconds` None when it was not timed."""

    picture: Image.Image
    """The page in RGB."""
    image: PreparedImage
    hashes: tuple[str, str]
    """Of the global view and of the tiles, as ModelInputs has them."""
    milliseconds: float | None


@dataclass(frozen=True)
class PageInputs:
    """What is known of a page before it is read."""

    request: OcrRequest
    image_size: tuple[int, int]
    prompt: PromptIds
    limit: int
    """New tokens that it may take."""
    recorded: ModelInputs
    overlapped: bool
    """Whether it was prepared ahead of its turn."""


@dataclass(frozen=True)
class Pixels:
    """A page's views on the device, normalised."""

    tiles: Tensor | None
    """(T, 3, 640, 640); None when the page is not cut."""
    grid: tuple[int, int]
    global_view: Tensor
    """(1, 3, S, S)"""


def announce() -> None:
    """Say once that the vendor's `infer` has no part in this."""
    if not _announced.is_set():
        _announced.set()
        log.info("DeepSeek-OCR: vendor-parity decode engaged (no vendor infer)")


class Engine:
    """One page through the stages.

    `rotary_dtype` is what the rotary inverse frequencies are rounded to; None rounds them as the published
    loading does, to the weights' dtype. `ignore_eos` decodes on to the token limit. `top_two` records each
    step's two best logits where the engine looks at logits one step at a time. Not safe for concurrent use:
    hold the device's lock.
    """

    name: ClassVar[str]

    def __init__(
        self,
        checkpoint: Checkpoint,
        attention: str = "sdpa",
        rotary_dtype: torch.dtype | None = None,
        max_pixels: int = DEFAULT_MAX_PIXELS,
        ignore_eos: bool = False,
        marks: Marks = Marks.TIMED,
        top_two: bool = True,
    ) -> None:
        self.checkpoint = checkpoint
        self.marks = marks
        """What the stages of the next recognition leave behind."""
        self.attention = attention
        model = checkpoint.model
        self.core = attention_core(attention, model.device, model.dtype)
        self.rotary_dtype = rotary_dtype or model.dtype
        self._max_pixels, self._top_two = max_pixels, top_two
        # Bytes become normalised bf16 by a table: 256 values, made once.
        self._normalised = torch.from_numpy(NORMALISED).to(model.device, torch.bfloat16).to(model.dtype)
        self._decoder = self._make_decoder(NO_TOKEN if ignore_eos else checkpoint.tokenizer.eos_token_id)

    def _make_decoder(self, eos_token_id: int) -> Decoder:
        raise NotImplementedError

    def prepare(self, request: OcrRequest) -> PreparedPage:
        """Open and preprocess a page ahead of its turn. May run on any thread. Raises DsocrError."""
        preset = preset_named(request.preset)
        timer = StageTimer(torch.device("cpu"), marks=self.marks)
        with timer.stage(Stage.PREPROCESS):
            picture = load_image(request.image, self._max_pixels)
            image = prepare(picture, preset)
        times = [timing.milliseconds for timing in timer.timings()]
        hashes = _view_hashes(image, preset.base_size)
        return PreparedPage(picture, image, hashes, times[0] if times else None)

    def recognize(
        self,
        request: OcrRequest,
        observer: Observer | None = None,
        cancel: CancelToken | None = None,
        prepared: PreparedPage | None = None,
    ) -> OcrResult:
        """Read one page. Raises DsocrError for bad input and Cancelled when `cancel` is set.

        With `prepared` the page's file is not opened; the time its preprocessing took is in the result all
        the same, though other work went on meanwhile.
        """
        announce()
        observer = observer or SilentObserver()
        model, tokenizer = self.checkpoint.model, self.checkpoint.tokenizer
        timer = StageTimer(model.device, observer, self.marks)

        with self.modes():
            page, pixels = self.take_in(request, prepared, timer)
            with timer.stage(Stage.PREFILL):
                sequence = self._decoder.start(
                    page.prompt.ids, page.limit, request.no_repeat_ngram_size, self.core
                )
                logits = self.prefill(page.prompt, pixels, sequence, timer, cancel)  # (V,)
            stream = StreamDecoder(tokenizer)
            with timer.stage(Stage.DECODE), decode_threads(model):
                tokens, finish_reason = self._decoder.decode(
                    sequence,
                    page.prompt.ids,
                    logits,
                    page.limit,
                    lambda token: observer.text(stream.push(token)),
                    cancel,
                )
            timer.count(Stage.DECODE, len(tokens) - 1)  # the first token comes from prefill
        return self.result(page, tokens, finish_reason, timer, sequence.best)

    @contextmanager
    def modes(self) -> Iterator[None]:
        """What torch runs in while a page is read: no gradients, and the vendor's autocast in bf16."""
        model = self.checkpoint.model
        bf16 = model.dtype == torch.bfloat16
        with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
            yield

    def take_in(
        self, request: OcrRequest, prepared: PreparedPage | None, timer: StageTimer
    ) -> tuple[PageInputs, Pixels]:
        """The page's prompt and limit, and its views on the device. Raises DsocrError."""
        tokenizer, preset = self.checkpoint.tokenizer, preset_named(request.preset)
        with timer.stage(Stage.PREPROCESS):
            if prepared is None:
                image = prepare(load_image(request.image, self._max_pixels), preset)
            else:
                image = prepared.image
                timer.add(Stage.PREPROCESS, prepared.milliseconds or 0.0)
            tiles = self._pixels(image.tiles) if len(image.tiles) else None
            pixels = Pixels(tiles, image.grid, self._pixels(image.global_view[None]))
        with timer.stage(Stage.TOKENIZER, on_host=True):
            prompt = prompt_layout(
                tokenizer.encode,
                build_prompt(request.prompt),
                tokenizer.image_token_id,
                tokenizer.bos_token_id,
                image_token_count(preset, image.grid),
            )
            limit = token_limit(request.max_new_tokens, len(prompt.ids), self.checkpoint.model.config.decoder)
        hashes = prepared.hashes if prepared else _view_hashes(image, preset.base_size)
        recorded = self._record_inputs(prompt, image, hashes, preset.base_size, request, limit)
        return PageInputs(request, image.image_size, prompt, limit, recorded, prepared is not None), pixels

    def prefill(
        self,
        prompt: PromptIds,
        pixels: Pixels,
        sequence: Sequence,
        timer: StageTimer,
        cancel: CancelToken | None,
    ) -> Tensor:
        """Vision and prompt into the empty `sequence`'s cache; the logits after it, (V,) float32."""
        embeddings = self._embed(prompt, pixels.tiles, pixels.grid, pixels.global_view, timer, cancel)
        return self._prefill(sequence, embeddings)

    def result(
        self,
        page: PageInputs,
        tokens: list[int],
        finish_reason: FinishReason,
        timer: StageTimer,
        best: BestTwo | None = None,
    ) -> OcrResult:
        """What the page's new tokens say. May run on any thread."""
        tokenizer = self.checkpoint.tokenizer
        with timer.stage(Stage.POSTPROCESS, on_host=True):
            text = tokenizer.decode(tokens)
            parse(text)
        return OcrResult(
            road="ours",
            request=page.request,
            image_size=page.image_size,
            text_raw=text,
            token_ids=tuple(tokens),
            token_texts=tuple(tokenizer.decode([token]) for token in tokens),
            finish_reason=finish_reason,
            inputs=page.recorded,
            timings=timer.timings(),
            environment=self._environment() | ({"overlapped": "preprocess"} if page.overlapped else {}),
            top_two=best.steps() if best else (),
            text_tokens=len(tokenizer.encode(text)) if page.request.test_compress else None,
        )

    def _pixels(self, views: np.ndarray) -> Tensor:
        """uint8 (V, S, S, 3) -> normalised (V, 3, S, S) on the device, through bf16 like the vendor's."""
        values, device = torch.from_numpy(np.require(views, requirements="W")), self.checkpoint.model.device
        if device.type == "cuda":
            values = values.pin_memory()  # from pageable memory the copy would wait for the device
        values = values.to(device, non_blocking=True)
        return self._normalised[values.int()].permute(0, 3, 1, 2).contiguous()

    def _embed(
        self,
        prompt: PromptIds,
        tiles: Tensor | None,
        grid: tuple[int, int],
        global_view: Tensor,
        timer: StageTimer,
        cancel: CancelToken | None,
    ) -> Tensor:
        """Vision on every view, fused into the prompt's embeddings: (1, N, C)"""
        model = self.checkpoint.model
        features: list[Tensor] = []
        for pixels in [global_view] if tiles is None else [tiles, global_view]:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            with timer.stage(Stage.SAM):
                sam = model.encode_sam(pixels)  # (T, C_sam, G, G)
            with timer.stage(Stage.CLIP):
                clip = model.encode_clip(sam)  # (T, 1 + G*G, C_clip)
            with timer.stage(Stage.PROJECTOR):
                features.append(model.project(clip, sam))  # (T, G*G, C)
        with timer.stage(Stage.VISION_FUSION):
            ids = torch.tensor([prompt.ids], device=model.device)  # (1, N)
            mask = torch.zeros(ids.shape, dtype=torch.bool, device=model.device)
            for start, length in prompt.mask:
                mask[:, start : start + length] = True
            return model.fuse(ids, mask, None if tiles is None else features[0], grid, features[-1])

    def _prefill(self, sequence: Sequence, embeddings: Tensor) -> Tensor:
        """Logits after the prompt, (V,); its (1, N, C) embeddings go through the language model."""
        return sequence.forward(self.checkpoint.model, embeddings)

    def _record_inputs(
        self,
        prompt: PromptIds,
        image: PreparedImage,
        hashes: tuple[str, str],
        base_size: int,
        request: OcrRequest,
        limit: int,
    ) -> ModelInputs:
        side = image.global_view.shape[0]
        return ModelInputs(
            prompt_ids=prompt.ids,
            image_mask=prompt.mask,
            grid=image.grid,
            global_shape=(1, 3, side, side),
            global_sha256=hashes[0],
            tiles_shape=_tiles_shape(image, base_size),
            tiles_sha256=hashes[1],
            no_repeat_ngram_size=request.no_repeat_ngram_size,
            max_new_tokens=limit,
            attention=self.attention,
            dtype=_dtype_name(self.checkpoint.model.dtype),
            rotary_dtype=_dtype_name(self.rotary_dtype),
        )

    def _environment(self) -> dict[str, str]:
        device = self.checkpoint.model.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
        return {
            "engine": self.name,
            "checkpoint": self.checkpoint.source,
            "device": str(device),
            "device_name": name,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }


class EagerEngine(Engine):
    """The vendor-order engine: same operations, same autocast, explicit prefill and decode."""

    name = "eager"

    def _make_decoder(self, eos_token_id: int) -> Decoder:
        return EagerDecoder(self.checkpoint.model, eos_token_id, self.rotary_dtype, self._top_two)


class FastEngine(Engine):
    """All views of a page at once, the prompt in few launches, one graph a decoded token."""

    name = "fast"

    def _make_decoder(self, eos_token_id: int) -> Decoder:
        # These need triton, which `require_fast_engine` asks for first.
        from dsocr_core.engine.fast.decode import FastDecoder
        from dsocr_core.engine.fast.graph import recorder_for
        from dsocr_core.engine.fast.prefill import FastPrefill
        from dsocr_core.engine.fast.prompt_graphs import PromptGraphs
        from dsocr_core.engine.fast.vision import VisionTowers
        from dsocr_core.engine.fast.vision_pass import FastVision

        model = self.checkpoint.model
        self._vision, self._prompt = FastVision(VisionTowers(model)), FastPrefill(model)
        self._prompt_pass = PromptGraphs(self._prompt, model.config.decoder, recorder_for(model.device))
        return FastDecoder(model, eos_token_id, self.rotary_dtype)

    def _embed(
        self,
        prompt: PromptIds,
        tiles: Tensor | None,
        grid: tuple[int, int],
        global_view: Tensor,
        timer: StageTimer,
        cancel: CancelToken | None,
    ) -> Tensor:
        if cancel is not None and cancel.is_set():
            raise Cancelled
        views = [global_view] if tiles is None else [tiles, global_view]
        with timer.stage(Stage.SAM, len(views)):
            vision = self._vision.start(views)
            vision.sam()
        with timer.stage(Stage.CLIP, len(views)):
            vision.clip()
        with timer.stage(Stage.PROJECTOR, len(views)):
            features = vision.project()
        with timer.stage(Stage.VISION_FUSION):
            local = None if tiles is None else features[0]
            return self._prompt.embed(prompt, local, grid, features[-1])[None]

    def _prefill(self, sequence: Sequence, embeddings: Tensor) -> Tensor:
        cache = sequence.cache
        keys, values = cache.keys[:, 0], cache.values[:, 0]  # (L, h, P, D)
        logits = self._prompt_pass.forward(embeddings[0], keys, values, sequence.rotary, sequence.core)
        cache.advance(embeddings.shape[1])
        return logits


ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (EagerEngine, FastEngine)}


def _tiles_shape(image: PreparedImage, base_size: int) -> tuple[int, ...]:
    count = len(image.tiles)
    return (count, 3, *image.tiles.shape[1:3]) if count else (1, 3, base_size, base_size)


def _view_hashes(image: PreparedImage, base_size: int) -> tuple[str, str]:
    tiles = image.tiles if len(image.tiles) else None
    return tensor_sha256(image.global_view[None]), tensor_sha256(tiles, _tiles_shape(image, base_size))


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
