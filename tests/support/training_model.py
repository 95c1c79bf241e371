"""The size of a training model that a test can run many times."""

from data.mini.training.decoder import DecoderSize
from data.mini.training.model import ModelSize
from data.mini.training.vision import ClipSize, SamSize


def tiny_size(layers: int, vocabulary: int) -> ModelSize:
    """Two SAM layers, one of CLIP and a decoder of `layers`, all narrow."""
    return ModelSize(
        SamSize(width=24, layers=2, heads=2, global_layers=(1,), downsample_channels=(16, 32), grid=16),
        ClipSize(width=32, layers=1, heads=2, grid=4),
        DecoderSize(
            hidden=32,
            layers=layers,
            heads=2,
            dense_width=48,
            expert_width=16,
            experts=4,
            experts_per_token=2,
            shared_experts=2,
            first_dense=1,
            vocabulary=vocabulary,
        ),
        projector_inputs=64,
    )
