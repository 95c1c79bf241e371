"""Our road: one page down the stages, NVTX-marked and timed. It never calls the vendor's `infer`."""

from __future__ import annotations

import logging
import platform
import threading

import numpy as np
import torch
from torch import Tensor

from dsocr_core.engine.checkpoint import Checkpoint
from dsocr_core.engine.device import decode_threads
from dsocr_core.engine.generate import Sequence, decode, token_limit
from dsocr_core.engine.stage_timer import StageTimer
from dsocr_core.errors import Cancelled
from dsocr_core.inputs.documents import DEFAULT_MAX_PIXELS, load_image
from dsocr_core.inputs.preprocess import NORMALISED, PreparedImage, prepare, tensor_sha256
from dsocr_core.inputs.prompt import PromptIds, build_prompt, prompt_layout
from dsocr_core.inputs.tiling import image_token_count
from dsocr_core.inputs.tokenizer import StreamDecoder
from dsocr_core.model.attention import attention_core
from dsocr_core.outputs.markup import parse
from dsocr_core.records import (
    CancelToken,
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


class EagerEngine:
    """The vendor-order engine: same operations, same autocast, explicit prefill and decode.

    `rotary_dtype` is what the rotary inverse frequencies are rounded to; None rounds them as the
    published loading does, to the weights' dtype. Not safe for concurrent use: hold the device's lock.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        attention: str = "sdpa",
        rotary_dtype: torch.dtype | None = None,
        max_pixels: int = DEFAULT_MAX_PIXELS,
    ) -> None:
        self.checkpoint = checkpoint
        self.attention = attention
        model = checkpoint.model
        self._core = attention_core(attention, model.device, model.dtype)
        self._rotary_dtype = rotary_dtype or model.dtype
        self._max_pixels = max_pixels
        # Bytes become normalised bf16 by a table: 256 values, made once.
        self._normalised = torch.from_numpy(NORMALISED).to(model.device, torch.bfloat16).to(model.dtype)

    def recognize(
        self, request: OcrRequest, observer: Observer | None = None, cancel: CancelToken | None = None
    ) -> OcrResult:
        """Read one page. Raises DsocrError for bad input and Cancelled when `cancel` is set."""
        if not _announced.is_set():
            _announced.set()
            log.info("DeepSeek-OCR: vendor-parity decode engaged (no vendor infer)")
        observer = observer or SilentObserver()
        model, tokenizer = self.checkpoint.model, self.checkpoint.tokenizer
        preset = preset_named(request.preset)
        timer = StageTimer(model.device, observer)
        bf16 = model.dtype == torch.bfloat16

        with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
            with timer.stage(Stage.PREPROCESS):
                prepared = prepare(load_image(request.image, self._max_pixels), preset)
                tiles = self._pixels(prepared.tiles) if len(prepared.tiles) else None  # (T, 3, 640, 640)
                global_view = self._pixels(prepared.global_view[None])  # (1, 3, S, S)
            with timer.stage(Stage.TOKENIZER):
                prompt = prompt_layout(
                    tokenizer.encode,
                    build_prompt(request.prompt),
                    tokenizer.image_token_id,
                    tokenizer.bos_token_id,
                    image_token_count(preset, prepared.grid),
                )
                limit = token_limit(request.max_new_tokens, len(prompt.ids), model.config.decoder)
            with timer.stage(Stage.PREFILL):
                sequence = Sequence.start(
                    model, prompt.ids, limit, request.no_repeat_ngram_size, self._core, self._rotary_dtype
                )
                embeddings = self._embed(prompt, tiles, prepared.grid, global_view, timer, cancel)
                logits = sequence.forward(model, embeddings)  # (V,)
            stream = StreamDecoder(tokenizer)
            with timer.stage(Stage.DECODE), decode_threads(model):
                tokens, finish_reason = decode(
                    model,
                    sequence,
                    logits,
                    limit,
                    tokenizer.eos_token_id,
                    lambda token: observer.text(stream.push(token)),
                    cancel,
                )
            timer.count(Stage.DECODE, len(tokens) - 1)  # the first token comes from prefill
            with timer.stage(Stage.POSTPROCESS):
                text = tokenizer.decode(tokens)
                parse(text)

        return OcrResult(
            road="ours",
            request=request,
            image_size=prepared.image_size,
            text_raw=text,
            token_ids=tuple(tokens),
            token_texts=tuple(tokenizer.decode([token]) for token in tokens),
            finish_reason=finish_reason,
            inputs=self._record_inputs(prompt, prepared, preset.base_size, request, limit),
            timings=timer.timings(),
            environment=self._environment(),
        )

    def _pixels(self, views: np.ndarray) -> Tensor:
        """uint8 (V, S, S, 3) -> normalised (V, 3, S, S) on the device, through bf16 like the vendor's."""
        values = torch.from_numpy(np.require(views, requirements="W")).to(self.checkpoint.model.device)
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

    def _record_inputs(
        self, prompt: PromptIds, prepared: PreparedImage, base_size: int, request: OcrRequest, limit: int
    ) -> ModelInputs:
        side = prepared.global_view.shape[0]
        count = len(prepared.tiles)
        tiles_shape = (count, 3, *prepared.tiles.shape[1:3]) if count else (1, 3, base_size, base_size)
        return ModelInputs(
            prompt_ids=prompt.ids,
            image_mask=prompt.mask,
            grid=prepared.grid,
            global_shape=(1, 3, side, side),
            global_sha256=tensor_sha256(prepared.global_view[None]),
            tiles_shape=tiles_shape,
            tiles_sha256=tensor_sha256(prepared.tiles if count else None, tiles_shape),
            no_repeat_ngram_size=request.no_repeat_ngram_size,
            max_new_tokens=limit,
            attention=self.attention,
            dtype=_dtype_name(self.checkpoint.model.dtype),
            rotary_dtype=_dtype_name(self._rotary_dtype),
        )

    def _environment(self) -> dict[str, str]:
        device = self.checkpoint.model.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
        return {
            "engine": "eager",
            "checkpoint": self.checkpoint.source,
            "device": str(device),
            "device_name": name,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
