"""DeepSeek-OCR-2 on transformers, written from the facts as a reference of tests: its encoder is Qwen2's own.

Copied into a checkpoint's directory beside the modules of data/mini, of which all but vision is taken.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2Model
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

from . import image_inputs
from .clip_encoder import ClipEncoder  # noqa: F401 - transformers copies what is imported here, no deeper
from .configuration_deepseekocr import DeepseekOCRConfig
from .decoder import DecoderLayer
from .image_inputs import GRIDS
from .modeling_deepseekocr import (
    DeepseekOCRForCausalLM,
    DeepseekOCRModel,
    DeepseekOCRPreTrainedModel,
    Projector,
)
from .results import clean_output  # noqa: F401
from .sam_encoder import SamEncoder


def image_token_count(grid: tuple[int, int], base_size: int, image_size: int, crop_mode: bool) -> int:
    """Positions of a page: 144 a tile, those of its view, the separator."""
    tiles = 0 if grid == (1, 1) else grid[0] * grid[1]
    view = base_size if crop_mode else image_size
    return 144 * tiles + (view // 64) ** 2 + 1


image_inputs.TILE = 768
image_inputs.GRIDS = tuple(grid for grid in GRIDS if grid[0] * grid[1] <= 6)
image_inputs.image_token_count = image_token_count


class MaskedQwen2(Qwen2Model):
    """Features see each other, queries see all features and the queries up to themselves."""

    def _update_causal_mask(self, attention_mask: Any, embeddings: Tensor, *_: Any) -> Tensor:
        batch, length, _ = embeddings.shape
        features = length // 2
        seen = torch.zeros(length, length, dtype=torch.bool, device=embeddings.device)
        seen[:, :features] = True
        seen[features:, features:] = torch.ones(features, features).tril().bool()
        mask = torch.zeros(length, length, dtype=embeddings.dtype, device=embeddings.device)
        mask[~seen] = torch.finfo(embeddings.dtype).min
        return mask.expand(batch, 1, -1, -1)


class Body(nn.Module):
    """The published name of Qwen2 has one `model` more."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        self.model = MaskedQwen2(
            Qwen2Config(
                vocab_size=1,
                hidden_size=sizes["dim"],
                num_hidden_layers=sizes["layers"],
                num_attention_heads=sizes["heads"],
                num_key_value_heads=sizes["kv_heads"],
                intermediate_size=sizes["mlp_width"],
                rope_theta=1e6,
                _attn_implementation="sdpa",
            )
        )
        del self.model.embed_tokens


class Encoder(nn.Module):
    """(B, C, G, G) to as many queries' answers, (B, G * G, C)."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        self.model = Body(sizes)
        self.query_768 = nn.Embedding(144, sizes["dim"])
        self.query_1024 = nn.Embedding(256, sizes["dim"])

    def forward(self, features: Tensor) -> Tensor:
        x = features.flatten(2).transpose(1, 2)
        queries = {144: self.query_768, 256: self.query_1024}[x.shape[1]].weight
        x = torch.cat([x, queries.expand(len(x), -1, -1)], dim=1)
        return self.model.model(inputs_embeds=x).last_hidden_state[:, len(queries) :]


class DeepseekOCR2Config(DeepseekOCRConfig):
    pass


class DeepseekOCR2Model(DeepseekOCRModel):
    config_class = DeepseekOCR2Config

    def __init__(self, config: DeepseekOCR2Config) -> None:
        DeepseekOCRPreTrainedModel.__init__(self, config)
        width, sam = config.vision_config["width"], dict(config.sam)
        sam["downsample_channels"] = [sam["downsample_channels"][0], width["qwen2-0-5b"]["dim"]]
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = LlamaRotaryEmbedding(config=config)
        self.sam_model = SamEncoder(sam, config.vision_config["image_size"])
        self.qwen2_model = Encoder(width["qwen2-0-5b"])
        self.projector = Projector(config.projector_config["input_dim"], config.hidden_size)
        self.view_seperator = nn.Parameter(torch.zeros(config.hidden_size))
        self.post_init()

    def vision_sequence(self, tiles: Tensor, view: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tile after tile, the global view, the separator."""
        views = [view] if torch.sum(tiles).item() == 0 else [tiles, view]
        kind = self.view_seperator.dtype
        tokens = [self.projector(self.qwen2_model(self.sam_model(each.to(kind)))) for each in views]
        return torch.cat([*(each.flatten(0, 1) for each in tokens), self.view_seperator[None]])


class DeepseekOCR2ForCausalLM(DeepseekOCRForCausalLM):
    config_class = DeepseekOCR2Config

    def __init__(self, config: DeepseekOCR2Config) -> None:
        DeepseekOCRPreTrainedModel.__init__(self, config)
        self.model = DeepseekOCR2Model(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()
