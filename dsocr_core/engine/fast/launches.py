"""Launches of the kernels of a decode step, of one page and of a batch: block sizes, and what overlaps.

The defaults are what was measured fastest on an H200 at the published sizes, each change timed inside the
whole token (`docs/performance.md`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dsocr_core.kernels.launch import Launch, Tile, may_overlap

PROGRAMS = 2560
"""Programs of attention, about: as many as fit at once."""
FEWEST_SPLITS, MOST_SPLITS = 4, 32


@dataclass(frozen=True)
class StepLaunches:
    """Block sizes of every kernel, by its name, which are early, and how attention is split.

    `splits` are attention's parts at most, `tiles` of `split_attention.rows` positions are read at once.
    """

    embed_token: Launch = field(default=Launch(512))
    qkv_rotary: Launch = field(default=Launch(8, early=True))
    split_attention: Launch = field(default=Launch(64, warps=8, early=True))
    attention_output: Launch = field(default=Launch(16))
    dense_gate_up: Launch = field(default=Launch(8, early=True))
    dense_down: Launch = field(default=Launch(4, early=True))
    route: Launch = field(default=Launch(1, warps=8))
    gate_up: Launch = field(default=Launch(4, programs=528))
    mixture_down: Launch = field(default=Launch(4, early=True))
    split_vector: Launch = field(default=Launch(1, early=True))
    bound_rows: Launch = field(default=Launch(32, early=True, programs=396))
    best_of_bounded: Launch = field(default=Launch(16, programs=264))
    take_best: Launch = field(default=Launch(512, early=True))
    splits: int = 8
    tiles: int = 4

    @property
    def positions_at_once(self) -> int:
        """Positions that a program of attention reads at once."""
        return self.tiles * self.split_attention.rows

    def of(self, kernel: str) -> Launch:
        """The launch of a kernel by the name that `DecodeStep.kernels` gives it."""
        return getattr(self, kernel)

    def read_before_wait(self) -> dict[str, tuple[str, ...]]:
        """Name who wrote what a kernel reads before its wait, weights aside, for `launch.unready`.

        Older rows of the cache come from the step before, so `take_best` stands for them.
        """
        return {
            "qkv_rotary": ("take_best",),
            "split_attention": ("take_best",),
            "attention_output": ("take_best",),
            "gate_up": ("attention_output",),
            "mixture_down": ("route",),
            "bound_rows": ("embed_token", "take_best"),
            "best_of_bounded": ("take_best",),
        }

    def with_dependent(self, dependent: bool) -> StepLaunches:
        """The same with programmatic dependent launch on or off everywhere."""
        changes: dict[str, Any] = {
            name: replace(value, dependent=dependent)
            for name, value in vars(self).items()
            if isinstance(value, Launch)
        }
        return replace(self, **changes)


def launches_for(device: torch.device) -> StepLaunches:
    """The defaults; dependent launch from Hopper on."""
    return StepLaunches().with_dependent(may_overlap(device))


@dataclass(frozen=True)
class BatchLaunches:
    """Block sizes of the kernels. `splits` None chooses by the number of slots, the grouped ones likewise."""

    attention: Launch = field(default=Launch(32, 1))
    """One warp: where keys are 8 bits wide, more wait for each other longer than for memory."""
    stages: int = 3
    splits: int | None = None
    rows: Launch = field(default=Launch(1024, 4))
    """Launch of kernels that read a row: routing, gating, joining, the rule."""
    small: Launch = field(default=Launch(1, 1))
    """Launch of kernels that read a few numbers a program."""
    best: Launch = field(default=Launch(2048, 4))
    accept: Launch = field(default=Launch(512, 8))
    gate_up: Tile | None = None
    down: Tile | None = None

    def splits_for(self, slots: int, heads: int) -> int:
        if self.splits is not None:
            return self.splits
        wanted = max(FEWEST_SPLITS, PROGRAMS // (slots * heads))
        return min(MOST_SPLITS, 1 << (wanted - 1).bit_length())
