"""Times the two ways of attention over a grid on a GPU.

python -m data.mini.training.measure_grid_attention
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from data.mini.training.grid_agreement import random_case, works
from data.mini.training.grid_attention import Attention, grid_attention, plain_grid_attention
from dsocr_core.measure.device import milliseconds

CASES = ((24, 40), (8, 64), (24, 64))  # views, patches of a side; six heads of 32
WARM_UP, REPEAT = 5, 20


def _median_ms(run: Callable[[], object], device: torch.device) -> float:
    return statistics.median([milliseconds(run, device) for _ in range(WARM_UP + REPEAT)][WARM_UP:])


def _times_ms(attention: Attention, inputs: list[Tensor], d_out: Tensor) -> tuple[float, float, float]:
    """Forward, backward and both, compiled as in training."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    run = torch.compile(attention, fullgraph=True, dynamic=False)
    forward = _median_ms(lambda: run(*leaves), d_out.device)
    both = _median_ms(lambda: torch.autograd.grad(run(*leaves), leaves, d_out), d_out.device)
    return forward, both - forward, both


def main() -> None:
    """Prints the times of both ways for all cases."""
    if not torch.cuda.is_available():
        raise SystemExit("error: this times a GPU, and torch finds none here")
    device = torch.device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; the kernels work: {works(device)}")
    print("views  side  pass      plain ms  kernels ms  ratio")
    for views, side in CASES:
        inputs, d_out = random_case(views, 6, side, 32, torch.bfloat16, device)
        plain, ours = (_times_ms(each, inputs, d_out) for each in (plain_grid_attention, grid_attention))
        for name, one, other in zip(("forward", "backward", "both"), plain, ours, strict=True):
            print(f"{views:5d} {side:5d}  {name:8s} {one:9.3f} {other:11.3f} {one / other:6.2f}", flush=True)


if __name__ == "__main__":
    main()
