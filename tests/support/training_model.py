"""The size of a training model that a test can run many times."""

from dsocr_core.models.config import ClipConfig, DecoderConfig, ModelConfig, ProjectorConfig, SamConfig
from dsocr_core.models.deepseek_ocr import DeepseekOcrConfig


def tiny_size(layers: int, vocabulary: int) -> ModelConfig:
    """Two SAM layers, one of CLIP and a decoder of `layers`, all narrow."""
    return DeepseekOcrConfig(
        sam=SamConfig(
            width=24, layers=2, heads=2, global_attn_indexes=(1,), downsample_channels=(16, 32),
            image_size=256,
        ),
        clip=ClipConfig(width=32, layers=1, heads=2, image_size=56, patch_size=14),
        projector=ProjectorConfig(input_dim=64, output_dim=32),
        decoder=DecoderConfig(
            vocab_size=vocabulary, hidden_size=32, layers=layers, heads=2, intermediate_size=48,
            moe_intermediate_size=16, routed_experts=4, experts_per_token=2, shared_experts=2,
            first_dense_layers=1, max_positions=None, bos_token_id=0, eos_token_id=1,
        ),
    )  # fmt: skip
