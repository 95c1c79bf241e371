"""DeepSeek-OCR on transformers, as the reference that the dashboard's own engine is compared with.

The published behaviour (weights, order of operations, autocast, generation policy, files) written
anew, with the sizes taken from config.json and running on any device. Entry points: `generate`, and
`infer` with the published signature.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel, PreTrainedTokenizerBase, TextStreamer
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_attn_mask_utils import _prepare_4d_causal_attention_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

from .clip_encoder import ClipEncoder
from .configuration_deepseekocr import DeepseekOCRConfig
from .decoder import DecoderLayer
from .image_inputs import load_page, prepare_inputs, valid_image_tokens
from .results import clean_output, save_result_files
from .sam_encoder import SamEncoder

MAX_NEW_TOKENS = 8192
NGRAM_SIZE = 20
NGRAM_SIZE_EVAL = 35

Pages = list[tuple[Tensor, Tensor]]
"""For each sequence its tiles (n, 3, 640, 640), all zero when there are none, and its global view."""


class Projector(nn.Module):
    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__()
        self.layers = nn.Linear(input_dim, output_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class DeepseekOCRPreTrainedModel(PreTrainedModel):
    config_class = DeepseekOCRConfig
    base_model_prefix = "model"
    _supports_cache_class = True
    _supports_flash_attn_2 = True
    _supports_sdpa = False


class DeepseekOCRModel(DeepseekOCRPreTrainedModel):
    """Vision towers, fusion and decoder, without the head."""

    def __init__(self, config: DeepseekOCRConfig) -> None:
        super().__init__(config)
        embedding = config.projector_config["n_embed"]
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = LlamaRotaryEmbedding(config=config)
        self.sam_model = SamEncoder(config.sam, config.vision_config["image_size"])
        self.vision_model = ClipEncoder(config.clip)
        self.projector = Projector(config.projector_config["input_dim"], embedding)
        self.image_newline = nn.Parameter(torch.zeros(embedding))
        # Published under this spelling.
        self.view_seperator = nn.Parameter(torch.zeros(embedding))
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def forward(
        self,
        input_ids: Tensor | None = None,  # (batch, length)
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        images: Pages | None = None,
        images_seq_mask: Tensor | None = None,  # (batch, length) bool
        images_spatial_crop: Tensor | None = None,  # (batch, 2) columns, rows
    ) -> BaseModelOutputWithPast:
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        batch, length, _ = inputs_embeds.shape
        if images is not None and length > 1:
            self.place_images(inputs_embeds, images, images_seq_mask, images_spatial_crop)

        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        if position_ids is None:
            position_ids = torch.arange(past, past + length, device=inputs_embeds.device).unsqueeze(0)
        if self.config._attn_implementation == "flash_attention_2":
            mask = attention_mask if attention_mask is not None and (attention_mask == 0).any() else None
        else:
            mask = _prepare_4d_causal_attention_mask(attention_mask, (batch, length), inputs_embeds, past)

        x = inputs_embeds
        rotation = self.rotary_emb(x, position_ids)
        for layer in self.layers:
            x = layer(x, mask, position_ids, rotation, past_key_values)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x), past_key_values=past_key_values)

    def place_images(self, embeds: Tensor, images: Pages, image_mask: Tensor, grids: Tensor) -> None:
        """Overwrite, in place, the embeddings of the image positions with the vision sequence."""
        if torch.sum(images[0][1]).item() == 0:  # an all-zero view is the published sign for "no image"
            return
        for row, ((tiles, view), grid) in enumerate(zip(images, grids.tolist(), strict=True)):
            features = self.vision_sequence(tiles, view, (grid[0], grid[1])).to(embeds.dtype)
            mask = image_mask[row].unsqueeze(-1).to(embeds.device)
            embeds[row].masked_scatter_(mask, features)

    def vision_sequence(self, tiles: Tensor, view: Tensor, grid: tuple[int, int]) -> Tensor:
        """Local rows, global rows, separator: (tokens, embedding). `grid` is (columns, rows)."""
        parts = [self.view_seperator[None, :]]
        if torch.sum(tiles).item() != 0:  # the published sign for "there are tiles"
            local = self.encode(tiles)  # (rows * columns, side * side, embedding)
            columns, rows = grid
            side = int(local.shape[1] ** 0.5)
            local = local.view(rows, columns, side, side, -1).transpose(1, 2)
            local = self.end_rows(local.reshape(rows * side, columns * side, -1))
            parts = [local, self.end_rows(self.encode_square(view)), *parts]
        else:
            parts = [self.end_rows(self.encode_square(view)), *parts]
        return torch.cat(parts)

    def encode(self, pixels: Tensor) -> Tensor:
        """(images, 3, S, S) to (images, tokens, embedding)."""
        pixels = pixels.to(self.image_newline.dtype)
        sam = self.sam_model(pixels)  # (images, C, side, side)
        clip = self.vision_model(pixels, sam)  # (images, 1 + side * side, C), class token first
        return self.projector(torch.cat((clip[:, 1:], sam.flatten(2).permute(0, 2, 1)), dim=-1))

    def encode_square(self, view: Tensor) -> Tensor:
        features = self.encode(view)
        side = int(features.shape[1] ** 0.5)
        return features.view(side, side, -1)

    def end_rows(self, features: Tensor) -> Tensor:
        """(rows, columns, embedding) with the newline after each row, flattened to tokens."""
        newline = self.image_newline.expand(features.shape[0], 1, -1)
        return torch.cat([features, newline], dim=1).flatten(0, 1)


class StdoutStreamer(TextStreamer):
    """Prints text as it comes; the end token becomes a newline."""

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        print(text.replace(self.tokenizer.eos_token, "\n"), flush=True, end="")


class DeepseekOCRForCausalLM(DeepseekOCRPreTrainedModel, GenerationMixin):
    supports_float32 = True
    """`infer` also runs with float32 weights; the published code is written for bfloat16."""

    def __init__(self, config: DeepseekOCRConfig) -> None:
        super().__init__(config)
        self.model = DeepseekOCRModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        images: Pages | None = None,
        images_seq_mask: Tensor | None = None,
        images_spatial_crop: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast:
        outputs = self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
            past_key_values=past_key_values, inputs_embeds=inputs_embeds, use_cache=use_cache,
            images=images, images_seq_mask=images_seq_mask, images_spatial_crop=images_spatial_crop,
        )  # fmt: skip
        # The head runs on every position at prefill, as published, although only the last is used.
        logits = self.lm_head(outputs.last_hidden_state).float()
        return CausalLMOutputWithPast(logits=logits, past_key_values=outputs.past_key_values)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: Cache | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        position_ids = (attention_mask.long().cumsum(-1) - 1).masked_fill(attention_mask == 0, 1)
        names = ("images", "images_seq_mask", "images_spatial_crop", "use_cache")
        return {
            "input_ids": input_ids[:, past:],
            "position_ids": position_ids[:, past:],
            "attention_mask": attention_mask,
            "past_key_values": past_key_values,
            **{name: kwargs.get(name) for name in names},
        }

    def infer(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompt: str = "",
        image_file: str = "",
        output_path: str = "",
        base_size: int = 1024,
        image_size: int = 640,
        crop_mode: bool = True,
        test_compress: bool = False,
        save_results: bool = False,
        eval_mode: bool = False,
    ) -> str | None:
        """Read one page. Returns the text in eval mode; else streams it to stdout and returns None.

        With `save_results`, writes `result.mmd`, `result_with_boxes.jpg` and `images/N.jpg` under
        `output_path`. `test_compress` prints how many tokens the page took.
        """
        if not prompt or not image_file:
            raise ValueError("infer needs a prompt and an image_file")
        directory = Path(output_path)
        (directory / "images").mkdir(parents=True, exist_ok=True)

        page = load_page(image_file)
        inputs = prepare_inputs(tokenizer, prompt, page, base_size, image_size, crop_mode)
        new_ids = self.read(tokenizer, inputs, eval_mode)
        text = tokenizer.decode(new_ids)

        if eval_mode:
            return clean_output(text, tokenizer.eos_token)
        if test_compress:
            valid = valid_image_tokens(page.size, inputs.tile_count, base_size, image_size, crop_mode)
            print_compression(page.size, valid, len(tokenizer.encode(text, add_special_tokens=False)))
        if save_results:
            print("\n" + "=" * 15 + "save results:" + "=" * 15)
            save_result_files(clean_output(text, tokenizer.eos_token), page, directory)
        return None

    def read(self, tokenizer: PreTrainedTokenizerBase, inputs: Any, eval_mode: bool) -> Tensor:
        """The new token ids of one `generate` call, end token included."""
        device = self.device
        streamer = (
            None if eval_mode else StdoutStreamer(tokenizer, skip_prompt=True, skip_special_tokens=False)
        )
        # The published model is bfloat16 and runs under autocast. In float32 there is nothing to cast.
        autocast = torch.autocast(device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16)
        with autocast, torch.no_grad():
            output_ids = self.generate(
                inputs.input_ids.unsqueeze(0).to(device),
                images=[(inputs.images_crop.to(device), inputs.images_ori.to(device))],
                images_seq_mask=inputs.images_seq_mask.unsqueeze(0).to(device),
                images_spatial_crop=inputs.images_spatial_crop,
                temperature=0.0,
                eos_token_id=tokenizer.eos_token_id,
                streamer=streamer,
                max_new_tokens=MAX_NEW_TOKENS,
                no_repeat_ngram_size=NGRAM_SIZE_EVAL if eval_mode else NGRAM_SIZE,
                use_cache=True,
            )
        return output_ids[0, inputs.input_ids.shape[0] :]


def print_compression(size: tuple[int, int], valid_tokens: int, text_tokens: int) -> None:
    print("=" * 50)
    print("image size: ", size)
    print("valid image tokens: ", valid_tokens)
    print("output texts tokens (valid): ", text_tokens)
    print("compression ratio: ", round(text_tokens / valid_tokens, 2) if valid_tokens else "n/a")
    print("=" * 50)
