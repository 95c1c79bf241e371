"""Attention over a square grid of patches with a decomposed relative position bias, with gradients.

Letters: B views, H heads, S patches of a grid side, N = S * S patches, D head width.

`grid_attention` runs Triton kernels of its own, `plain_grid_attention` torch's attention; `works` says
whether a device has the first. `python -m data.mini.training.grid_attention` times both on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

HEAD_WIDTHS = (16, 32, 64)  # what the kernels take
HEAD_WIDTH_MULTIPLE = 8  # what flash attention asks of the head width
SIDES = (32, 40, 64, 80)  # of the views that the towers see
# Rounding in bf16 differs between two right ways; a wrong one is off by much more.
ERROR_ALLOWANCE = 2.0
NAMES = ("output", "gradient of q", "of k", "of v", "of rows", "of columns")

Attention = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def plain_grid_attention(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """What `grid_attention` is, (B, H, N, D), by `scaled_dot_product_attention`.

    Instead of a (N, N) mask the bias rides along as extra head channels against one-hot keys, so that flash
    attention can be used.
    """
    views, heads, n, width = q.shape
    side = rows.shape[-1]
    one_hot = torch.eye(side, dtype=q.dtype, device=q.device)
    key_rows = one_hot.repeat_interleave(side, 0).expand(views, heads, n, side)
    key_columns = one_hot.repeat(side, 1).expand(views, heads, n, side)
    pad = -(width + 2 * side) % HEAD_WIDTH_MULTIPLE
    zeros = q.new_zeros(()).expand(views, heads, n, pad)
    query = torch.cat([q * width**-0.5, rows, columns, zeros], -1)
    key = torch.cat([k, key_rows, key_columns, zeros], -1)
    value = F.pad(v, (0, 2 * side + pad))
    return F.scaled_dot_product_attention(query, key, value, scale=1.0)[..., :width]


def grid_attention(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D) + bias) v, (B, H, N, D), by Triton kernels, differentiable in all five.

    q, k, v are (B, H, N, D); rows and columns (B, H, N, S), finite: the bias of query n is rows[..., n, y]
    for every key of grid row y, plus columns[..., n, x] for every key of column x. Weights and sums are
    float32. Raises ValueError when sizes or dtypes do not fit each other or the kernels.
    """
    views, heads, tokens, width = q.shape
    side = rows.shape[-1]
    if width not in HEAD_WIDTHS:
        raise ValueError(f"head width {width}: the kernels take {HEAD_WIDTHS}")
    if q.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(f"{q.dtype}: the kernels take bfloat16 and float32")
    named = {"k": (k, width), "v": (v, width), "rows": (rows, side), "columns": (columns, side)}
    for name, (tensor, last) in named.items():
        if tensor.shape != (views, heads, side * side, last) or tensor.dtype != q.dtype:
            raise ValueError(
                f"{name} is {tensor.dtype} {list(tensor.shape)}, "
                f"expected {q.dtype} {[views, heads, tokens, last]} for {side} x {side} patches"
            )
    out, _ = _grid_attention(q, k, v, rows, columns)
    return out


def _by_token(x: Tensor) -> Tensor:
    """Room for (B, H, N, D) that lies in memory as (B, N, H, D), so that joining the heads copies nothing."""
    views, heads, n, width = x.shape
    return x.new_empty(views, n, heads, width).transpose(1, 2)


def _outputs(q: Tensor) -> tuple[Tensor, Tensor]:
    return _by_token(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _gradients(q: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _by_token(q), _by_token(q), _by_token(q), rows.new_empty(rows.shape), rows.new_empty(rows.shape)


@torch.library.custom_op("dsocr_mini::grid_attention", mutates_args=())
def _grid_attention(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """The output and, for the way back, the base 2 logarithm of each query's sum of weights."""
    from data.mini.training.grid_kernels import run_forward

    out, lse = _outputs(q)
    run_forward(q, k, v, rows, columns, out, lse)
    return out, lse


@torch.library.custom_op("dsocr_mini::grid_attention_backward", mutates_args=())
def _grid_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, d_out: Tensor, lse: Tensor, delta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of the five; `delta` is what the output and its gradient have in common, (B, H, N)."""
    from data.mini.training.grid_kernels import run_backward

    gradients = _gradients(q, rows)
    run_backward(q, k, v, rows, columns, d_out, lse, delta, *gradients)
    return gradients


@_grid_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    return _outputs(q)


@_grid_attention_backward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, d_out: Tensor, lse: Tensor, delta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _gradients(q, rows)


def _keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs, *output)


def _backward(ctx, d_out: Tensor, d_lse: Tensor) -> tuple[Tensor, ...]:
    q, k, v, rows, columns, out, lse = ctx.saved_tensors
    delta = (out.float() * d_out.float()).sum(-1)  # outside the operator, where the compiler fuses it
    return _grid_attention_backward(q, k, v, rows, columns, d_out, lse, delta)


_grid_attention.register_autograd(_backward, setup_context=_keep)


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


def _time_ms(run: Callable[[], object], repetitions: int = 20) -> float:
    """The median of `repetitions`, after some that do not count."""
    times = []
    for index in range(5 + repetitions):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        if index >= 5:
            times.append(begin.elapsed_time(end))
    return sorted(times)[repetitions // 2]


def _times_ms(attention: Attention, inputs: list[Tensor], d_out: Tensor) -> tuple[float, float, float]:
    """Forward, backward and both, compiled as in training."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    run = torch.compile(attention, fullgraph=True, dynamic=False)
    forward = _time_ms(lambda: run(*leaves))
    both = _time_ms(lambda: torch.autograd.grad(run(*leaves), leaves, d_out))
    return forward, both - forward, both


def measure(cases: tuple[tuple[int, int], ...] = ((24, 40), (8, 64), (24, 64))) -> None:
    """Prints the times of both ways for cases of views and side, six heads of 32."""
    device = torch.device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; the kernels work: {works(device)}")
    print("views  side  pass      plain ms  kernels ms  ratio")
    for views, side in cases:
        inputs, d_out = random_case(views, 6, side, 32, torch.bfloat16, device)
        plain, ours = (_times_ms(each, inputs, d_out) for each in (plain_grid_attention, grid_attention))
        for name, one, other in zip(("forward", "backward", "both"), plain, ours, strict=True):
            print(f"{views:5d} {side:5d}  {name:8s} {one:9.3f} {other:11.3f} {one / other:6.2f}", flush=True)


if __name__ == "__main__":
    measure()
