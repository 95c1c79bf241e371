"""Unlimited-OCR on transformers, as the reference that the dashboard's own engine is compared with.

The modules and weights are the embedded DeepSeek-OCR's. Written anew is what the published code does
otherwise: a ring of the last generated tokens in the decoder, up to 32 tiles, several pages in one prompt,
`max_length` and an n-gram rule with a window.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicCache

# transformers imports what this file names and no more: the encoders and the decoder for the other's sake.
from . import image_inputs
from .clip_encoder import ClipEncoder as ClipEncoder
from .configuration_deepseekocr import DeepseekOCRConfig
from .decoder import DecoderLayer as DecoderLayer
from .image_inputs import PageInputs, load_page, prepare_inputs
from .modeling_deepseekocr import (
    DeepseekOCRForCausalLM,
    DeepseekOCRModel,
    Pages,
    StdoutStreamer,
)
from .results import clean_output
from .sam_encoder import SamEncoder as SamEncoder

MAX_LENGTH = 32768
_COUNTS = range(2, 33)
# Of equal numbers of tiles the order is that of a CPython set.
image_inputs.GRIDS = tuple(sorted(
    {(i, j) for n in _COUNTS for i in range(1, n + 1) for j in range(1, n + 1) if i * j in _COUNTS},
    key=lambda grid: grid[0] * grid[1],
))  # fmt: skip


class UnlimitedOCRConfig(DeepseekOCRConfig):
    model_type = "unlimited-ocr"


class RingCache(DynamicCache):
    """The prompt's keys, then a ring of `window` generated ones, laid out in ring order."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window
        self.prompt: int | None = None

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        """Tokens seen, which give the next position; the ring holds fewer."""
        return self._seen_tokens

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        cache_kwargs: dict[str, Any] | None = None,
    ) -> tuple[Tensor, Tensor]:
        seen = self._seen_tokens + (key_states.shape[-2] if layer_idx == 0 else 0)
        if self.prompt is None:
            self.prompt = key_states.shape[-2]
        number = seen - self.prompt  # of the generated token, from 1; 0 at prefill
        if number <= self.window:
            return super().update(key_states, value_states, layer_idx, cache_kwargs)
        slot = self.prompt + (number - 1) % self.window
        self._seen_tokens = seen
        self.key_cache[layer_idx][:, :, slot] = key_states[:, :, 0]
        self.value_cache[layer_idx][:, :, slot] = value_states[:, :, 0]
        return self.key_cache[layer_idx], self.value_cache[layer_idx]


class WindowRule(LogitsProcessor):
    """Forbids a token that would repeat an n-gram of the last `window` tokens, prompt included."""

    def __init__(self, size: int, window: int) -> None:
        self.size, self.window = size, window

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        for ids, row in zip(input_ids.tolist(), scores, strict=True):
            last = ids[len(ids) - self.size + 1 :]
            for start in range(max(0, len(ids) - self.window), len(ids) - self.size + 1):
                if ids[start : start + self.size - 1] == last:
                    row[ids[start + self.size - 1]] = -float("inf")
        return scores


class UnlimitedOCRModel(DeepseekOCRModel):
    config_class = UnlimitedOCRConfig

    def place_images(self, embeds: Tensor, images: Pages, image_mask: Tensor, grids: Tensor) -> None:
        """Pages one after another, each as a view without tiles; one alone as it was."""
        [(tiles, views)] = images
        if len(views) == 1:
            return super().place_images(embeds, images, image_mask, grids)
        if torch.sum(views).item() != 0:
            pages = [self.vision_sequence(tiles, view[None], (1, 1)) for view in views]
            mask = image_mask[0].unsqueeze(-1).to(embeds.device)
            embeds[0].masked_scatter_(mask, torch.cat(pages).to(embeds.dtype))
        return None


class UnlimitedOCRForCausalLM(DeepseekOCRForCausalLM):
    config_class = UnlimitedOCRConfig

    def __init__(self, config: UnlimitedOCRConfig) -> None:
        super().__init__(config)
        self.model = UnlimitedOCRModel(config)
        self.post_init()

    def infer(
        self, tokenizer: PreTrainedTokenizerBase, prompt: str = "", image_file: str = "",
        base_size: int = 1024, image_size: int = 640, crop_mode: bool = True, max_length: int = MAX_LENGTH,
        no_repeat_ngram_size: int = 0, ngram_window: int = 0, **_: Any,
    ) -> None:  # fmt: skip
        """Read one page; streams its text to stdout. What the published code writes is not made."""
        inputs = prepare_inputs(tokenizer, prompt, load_page(image_file), base_size, image_size, crop_mode)
        self.text_of(tokenizer, inputs, max_length, (no_repeat_ngram_size, ngram_window))

    def infer_multi(
        self, tokenizer: PreTrainedTokenizerBase, prompt: str = "", image_files: Sequence[str] = (),
        image_size: int = 640, max_length: int = MAX_LENGTH, no_repeat_ngram_size: int = 0,
        ngram_window: int = 0, **_: Any,
    ) -> tuple[str, int]:  # fmt: skip
        """Read several pages in one prompt. Returns the text and its number of tokens."""
        sizes = (image_size, image_size, False)
        pages = [prepare_inputs(tokenizer, prompt, load_page(file), *sizes) for file in image_files]
        text = self.text_of(tokenizer, together(pages), max_length, (no_repeat_ngram_size, ngram_window))
        text = clean_output(text, tokenizer.eos_token)
        return text, len(tokenizer.encode(text, add_special_tokens=False))

    def text_of(
        self, tokenizer: PreTrainedTokenizerBase, inputs: PageInputs, max_length: int, rule: tuple[int, int]
    ) -> str:
        """Text of one `generate` call, end token included; `rule` is an n-gram's size and the window."""
        device, (size, window) = self.device, rule
        ring = getattr(self.config, "sliding_window_size", None) or self.config.sliding_window
        # A windowed rule is a processor; without a window it is transformers' own.
        limits: dict[str, Any] = {}
        if size and window:
            limits["logits_processor"] = LogitsProcessorList([WindowRule(size, window)])
        elif size:
            limits["no_repeat_ngram_size"] = size
        streamer = StdoutStreamer(tokenizer, skip_prompt=True, skip_special_tokens=False)
        with (
            torch.autocast(device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16),
            torch.no_grad(),
        ):
            output_ids = self.generate(
                inputs.input_ids.unsqueeze(0).to(device),
                images=[(inputs.images_crop.to(device), inputs.images_ori.to(device))],
                images_seq_mask=inputs.images_seq_mask.unsqueeze(0).to(device),
                images_spatial_crop=inputs.images_spatial_crop,
                past_key_values=RingCache(ring),
                do_sample=False,
                eos_token_id=tokenizer.eos_token_id,
                streamer=streamer,
                max_length=max_length,
                use_cache=True,
                **limits,
            )
        return tokenizer.decode(output_ids[0, inputs.input_ids.shape[0] :])


def together(pages: list[PageInputs]) -> PageInputs:
    """Several pages that are not cut: all their tokens stand at the one marker."""
    first, mask = pages[0], pages[0].images_seq_mask
    start, more = int(mask.nonzero()[0]), int(mask.sum()) * (len(pages) - 1)

    def widened(row: Tensor) -> Tensor:
        return torch.cat([row[:start], row[start].repeat(more), row[start:]])

    return replace(
        first,
        input_ids=widened(first.input_ids),
        images_seq_mask=widened(mask),
        images_ori=torch.cat([page.images_ori for page in pages]),
        images_spatial_crop=torch.cat([page.images_spatial_crop for page in pages]),
    )
