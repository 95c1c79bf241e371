"""CLIP's quick GELU under autocast: float32, rounded once, in every engine and in the reference."""

import torch

from dsocr_core.kernels.prefill.activations import quick_gelu_reference
from dsocr_core.models.blocks.clip import quick_gelu
from tests.published.remote_code import remote_module


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
