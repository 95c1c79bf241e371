"""Sizes of a DeepSeek-OCR checkpoint, all of them read from its config.json."""

from typing import Any

from transformers import PretrainedConfig

DECODER_DEFAULTS: dict[str, Any] = {
    "vocab_size": 129280,
    "hidden_size": 1280,
    "intermediate_size": 6848,
    "moe_intermediate_size": 896,
    "num_hidden_layers": 12,
    "num_attention_heads": 10,
    "num_key_value_heads": 10,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "routed_scaling_factor": 1.0,
    "use_mla": False,
}
"""The published values; what config.json does not say."""

DEFAULT_VISION: dict[str, Any] = {
    "image_size": 1024,
    "width": {
        "clip-l-14-224": {"heads": 16, "image_size": 224, "layers": 24, "patch_size": 14, "width": 1024},
        "sam_vit_b": {
            "downsample_channels": [512, 1024],
            "global_attn_indexes": [2, 5, 8, 11],
            "heads": 12,
            "layers": 12,
            "width": 768,
        },
    },
}
DEFAULT_PROJECTOR: dict[str, Any] = {"input_dim": 2048, "n_embed": 1280, "projector_type": "linear"}


class DeepseekOCRConfig(PretrainedConfig):
    """config.json holds the decoder's fields at the top level and again in `language_config`;
    the top level wins, as in the published code."""

    model_type = "deepseek_vl_v2"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 - transformers wants a list

    def __init__(
        self,
        language_config: dict[str, Any] | None = None,
        vision_config: dict[str, Any] | None = None,
        projector_config: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.language_config = language_config or {}
        self.vision_config = vision_config or DEFAULT_VISION
        self.projector_config = projector_config or DEFAULT_PROJECTOR
        for name, default in DECODER_DEFAULTS.items():
            setattr(self, name, kwargs.pop(name, self.language_config.get(name, default)))
        if self.use_mla:
            raise ValueError("config.json asks for use_mla; only plain multi-head attention is written here")
        if self.projector_config.get("projector_type", "linear") != "linear":
            raise ValueError("config.json: projector_config.projector_type must be linear")

        # What transformers' Llama attention asks of a config.
        self.head_dim = self.hidden_size // self.num_attention_heads
        self.attention_bias = False
        self.attention_dropout = 0.0
        self.pretraining_tp = 1
        self.rope_scaling = None
        for token in ("bos_token_id", "eos_token_id"):
            kwargs.setdefault(token, self.language_config.get(token))
        super().__init__(tie_word_embeddings=kwargs.pop("tie_word_embeddings", False), **kwargs)

    @property
    def sam(self) -> dict[str, Any]:
        return self.vision_config["width"]["sam_vit_b"]

    @property
    def clip(self) -> dict[str, Any]:
        return self.vision_config["width"]["clip-l-14-224"]
