"""Whether a device computes `grid_attention` right: against the plain way, forward and gradients."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from data.mini.training.grid_attention import Attention, grid_attention, plain_grid_attention

SIDES = (32, 40, 64, 80)  # in patches, of the views that the towers see
# Rounding in bf16 differs between two right ways; a wrong one is off by much more.
ERROR_ALLOWANCE = 2.0
NAMES = ("output", "gradient of q", "of k", "of v", "of rows", "of columns")


def random_case(
    views: int, heads: int, side: int, width: int, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> tuple[list[Tensor], Tensor]:
    """The five inputs, q, k and v parts of one projection as in the tower, and a gradient of the output."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    n = side * side
    q, k, v = random(views, n, 3, heads, width).permute(2, 0, 3, 1, 4)  # (B, H, N, D)
    rows, columns = random(2, views, heads, n, side)
    return [q, k, v, rows, columns], random(views, n, heads, width).transpose(1, 2)


def with_gradients(attention: Attention, inputs: list[Tensor], d_out: Tensor) -> list[Tensor]:
    """The output and the gradients of the five inputs, detached."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = attention(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def disagreement(side: int, device: torch.device, views: int = 1, heads: int = 2, width: int = 32) -> str:
    """What of `grid_attention` in bf16 rounding does not explain, judged by the plain way's error; or ""."""
    inputs, d_out = random_case(views, heads, side, width, torch.bfloat16, device)
    wide = with_gradients(plain_grid_attention, [x.float() for x in inputs], d_out.float())
    plain = with_gradients(plain_grid_attention, inputs, d_out)
    ours = with_gradients(grid_attention, inputs, d_out)
    for name, exact, one, other in zip(NAMES, wide, plain, ours, strict=True):
        error, allowed = ((x.float() - exact).norm().item() for x in (other, one))
        if not error <= ERROR_ALLOWANCE * allowed:  # so that what is not a number disagrees too
            return f"{name} at {side} x {side} is off by {error:.3g}, the plain way by {allowed:.3g}"
    return ""


@cache
def works(device: torch.device) -> bool:
    """Whether `grid_attention` runs on that device and agrees with the plain way; says so where it should."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    try:
        reason = next(filter(None, (disagreement(side, device) for side in SIDES)), "")
    except Exception as error:  # noqa: BLE001 - a compiler, a driver: whatever it is, there is another way
        reason = (str(error) or repr(error)).splitlines()[0]
    if reason:
        print(f"global attention is torch's own: {reason}", flush=True)
    return not reason
