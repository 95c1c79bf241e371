"""The large kernels of vision and prefill at other block sizes, each by itself on random inputs.

Letters: k experts a token, E experts, C hidden size, I width of an expert.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor

from dsocr_core.kernels.prefill.expert_order import order_by_expert
from dsocr_core.kernels.prefill.grouped_experts import (
    GroupedLaunch,
    grouped_down,
    grouped_gate_up,
    grouped_launches,
)
from dsocr_core.kernels.prefill.window_attention import WindowLaunch, window_attention, window_launch
from dsocr_core.measure.device import milliseconds
from dsocr_core.measure.prefill_variants import Page
from dsocr_core.models.config import ModelConfig

REPEAT, IN_A_ROW = 5, 4

WINDOWS = (
    WindowLaunch(64, 32, 4, 3),
    WindowLaunch(64, 64, 4, 2),
    WindowLaunch(64, 64, 4, 3),
    WindowLaunch(64, 64, 4, 3, 128),
    WindowLaunch(128, 64, 4, 3),
    WindowLaunch(128, 64, 8, 2),
    WindowLaunch(128, 64, 8, 3, 128),
    WindowLaunch(128, 64, 8, 3),
    WindowLaunch(64, 128, 4, 2),
    WindowLaunch(128, 128, 8, 2),
    WindowLaunch(128, 128, 8, 3),
)
GATE_UP = (
    GroupedLaunch(64, 64, 64, 4, 3),
    GroupedLaunch(64, 64, 64, 4, 4),
    GroupedLaunch(64, 128, 64, 8, 3),
    GroupedLaunch(128, 64, 64, 4, 3),
    GroupedLaunch(128, 64, 64, 8, 3),
    GroupedLaunch(128, 64, 64, 8, 4),
    GroupedLaunch(128, 128, 64, 8, 3),
)
DOWN = (
    GroupedLaunch(64, 64, 64, 4, 4),
    GroupedLaunch(64, 128, 64, 4, 4),
    GroupedLaunch(64, 256, 64, 8, 3),
    GroupedLaunch(128, 64, 64, 4, 4),
    GroupedLaunch(128, 128, 64, 8, 3),
    GroupedLaunch(128, 128, 64, 8, 4),
    GroupedLaunch(128, 256, 64, 8, 3),
)


def sweep(config: ModelConfig, page: Page, attempt: Callable[[str], AbstractContextManager[None]]) -> None:
    """Print the microseconds of each."""
    _sweep_windows(config, page, attempt)
    _sweep_experts(config, len(page.prompt.ids), page.views[0].device, attempt)


def _sweep_windows(
    config: ModelConfig, page: Page, attempt: Callable[[str], AbstractContextManager[None]]
) -> None:
    sam, device = config.sam, page.views[0].device
    random = _random(device)
    for view, whole in itertools.product(page.views, (False, True)):
        side = view.shape[2] // sam.patch_size
        window, patches = side if whole else sam.window, len(view) * side**2
        qkv = random(patches, 3, sam.heads, sam.head_dim)
        bias, terms = random(3 * sam.width), random(sam.heads, patches, 4 * window)
        out = qkv.new_empty(patches, sam.width)
        print(f"\nwindows of {window}, {len(view)} grids of {side}: us; now {window_launch(window)}")
        for launch in WINDOWS:
            with attempt(str(launch)):
                run = partial(window_attention, qkv, bias, terms, out, side, window, launch)
                print(f"{_microseconds(run, device):9.1f}  {launch}", flush=True)


def _sweep_experts(
    config: ModelConfig,
    tokens: int,
    device: torch.device,
    attempt: Callable[[str], AbstractContextManager[None]],
) -> None:
    decoder, random = config.decoder, _random(device)
    each, experts = decoder.experts_per_token, decoder.routed_experts
    width, inner = decoder.hidden_size, decoder.moe_intermediate_size
    x, gate, up = random(tokens, width), random(experts, inner, width), random(experts, inner, width)
    down = random(experts, width, inner)
    chosen = random(tokens, experts).float().topk(each).indices.to(torch.int32)
    slots, starts = chosen.new_empty(tokens * each), chosen.new_empty(experts + 1)
    order_by_expert(chosen, slots, starts)
    gated, routed = x.new_empty(tokens * each, inner), x.new_empty(tokens, each, width)
    now = grouped_launches(tokens * each, experts)
    print(f"\n{tokens} tokens, gate and up: us; now {now[0]}")
    for launch in GATE_UP:
        with attempt(str(launch)):
            run = partial(grouped_gate_up, x, slots, starts, gate, up, gated, launch)
            print(f"{_microseconds(run, device):9.1f}  {launch}", flush=True)
    print(f"\n{tokens} tokens, down: us; now {now[1]}")
    for launch in DOWN:
        with attempt(str(launch)):
            run = partial(grouped_down, gated, slots, starts, down, routed, launch)
            print(f"{_microseconds(run, device):9.1f}  {launch}", flush=True)


def _random(device: torch.device) -> Callable[..., Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    return lambda *shape: torch.randn(shape, generator=generator, device=device).to(torch.bfloat16)


def _microseconds(run: Callable[[], None], device: torch.device) -> float:
    """Median of a few in a row, which is long enough for the launches not to count."""

    def several() -> None:
        for _ in range(IN_A_ROW):
            run()

    several()
    return statistics.median(milliseconds(several, device) for _ in range(REPEAT)) * 1e3 / IN_A_ROW
