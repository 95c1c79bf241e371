"""CLIP's quick GELU under autocast: float32, rounded once, in every engine and in the reference."""

import pytest
import torch

from dsocr_core.models.blocks.clip import Clip, quick_gelu
from dsocr_core.models.family import parse_config
from tests.support.remote_code import remote_module
from tests.support.seeded_weights import tiny_config


def values() -> torch.Tensor:
    """(4096,) bf16 numbers of both signs in the range of CLIP's activations."""
    return (3 * torch.randn(4096, generator=torch.Generator().manual_seed(3))).to(torch.bfloat16)


def rounded_each_time(x: torch.Tensor) -> torch.Tensor:
    """The same line where autocast does not see it: bf16 after every operation."""
    return x * torch.sigmoid(1.702 * x)


def test_it_is_exact_up_to_one_rounding() -> None:
    x = values()
    exact = x.double() / (1 + torch.exp(-1.702 * x.double()))
    assert torch.equal(quick_gelu(x).to(torch.bfloat16), exact.to(torch.bfloat16))
    share = (rounded_each_time(x) != exact.to(torch.bfloat16)).float().mean()
    assert share > 0.3, "the test must see the other order of rounding"


def test_the_references_scripted_function_gives_the_same_bits_under_autocast() -> None:
    scripted = remote_module("clip_encoder").quick_gelu
    x = values()
    for _ in range(4):  # TorchScript compiles again after its first runs
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            theirs = scripted(x)
            assert theirs.dtype == torch.float32
            assert torch.equal(theirs, quick_gelu(x))


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


def test_the_fast_engines_reference_gives_the_same_bits() -> None:
    from dsocr_core.kernels.prefill.activations import quick_gelu_reference

    x = values()
    quick_gelu_reference(x)
    assert torch.equal(x, quick_gelu(values()).to(torch.bfloat16))
