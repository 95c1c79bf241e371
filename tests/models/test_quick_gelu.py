"""CLIP's quick GELU under autocast: float32, rounded once, in every engine and in the reference."""

import pytest
import torch

from dsocr_core.kernels.prefill.activations import quick_gelu_reference
from dsocr_core.models.blocks.clip import Clip, quick_gelu
from dsocr_core.models.family import parse_config
from tests.support.remote_code import remote_module
from tests.support.seeded_weights import tiny_config


def test_it_is_rounded_once_as_in_the_reference_and_in_the_fast_engine() -> None:
    x = (3 * torch.randn(4096, generator=torch.Generator().manual_seed(3))).to(torch.bfloat16)
    exact = (x.double() / (1 + torch.exp(-1.702 * x.double()))).to(torch.bfloat16)
    assert torch.equal(quick_gelu(x).to(torch.bfloat16), exact)
    assert (x * torch.sigmoid(1.702 * x) != exact).float().mean() > 0.3  # the other order of rounding
    scripted = remote_module("clip_encoder").quick_gelu
    for _ in range(4):  # TorchScript compiles again after its first runs
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            theirs = scripted(x)
            assert theirs.dtype == torch.float32 and torch.equal(theirs, quick_gelu(x))
    quick_gelu_reference(x)
    assert torch.equal(x, exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_of_clip_is_the_references_bit_for_bit(dtype: torch.dtype) -> None:
    config = tiny_config()
    ours = Clip(parse_config(config).clip)
    torch.manual_seed(0)
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = ours.to(dtype).requires_grad_(False)
    theirs = remote_module("clip_encoder").ClipEncoder(config["vision_config"]["width"]["clip-l-14-224"])
    theirs.load_state_dict(ours.state_dict())
    theirs = theirs.to(dtype)
    features = torch.randn(2, ours.embeddings.class_embedding.shape[0], 3, 3).to(dtype)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        assert torch.equal(ours(features), theirs(features, features))
