"""Vision captured: an image's three stages as a CUDA graph each, by the sizes of its views.

A shape's graphs are captured at its first page; the most recently used ones are cached. All share one memory
pool: a graph may overwrite another's memory between nodes, as only one runs at a time; inputs and outputs are
not shared.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dsocr_core.engine.fast.cuda_graph import Recorder, recorder_for
from dsocr_core.engine.fast.view_groups import Groups
from dsocr_core.engine.fast.vision import VisionTowers
from dsocr_core.models.resolution import DOWNSAMPLE_RATIO, PATCH_SIZE

MOST_SHAPES = 12
"""Gundam has nine: no tiles, and two to nine of them."""

_FEATURE_PIXELS = PATCH_SIZE * DOWNSAMPLE_RATIO


class VisionPass:
    """The row's stages of one shape, to be run in their order after `load`.

    Each only queues work. The tokens last until those of the next pass of any shape.
    """

    def __init__(
        self, towers: VisionTowers, shapes: Sequence[tuple[int, ...]], recorder: Recorder | None
    ) -> None:
        self._towers = towers
        self._groups: Groups = [(shape[0], shape[2] // _FEATURE_PIXELS) for shape in shapes]
        self._pixels = [torch.zeros(shape, dtype=towers.dtype, device=towers.device) for shape in shapes]
        self.features = self.patches = torch.empty(0)
        """(M, C) after the towers, of all views; they last as long as the tokens."""
        self.tokens: tuple[Tensor, ...] = ()
        """Vision tokens of each view size, (B, F F, C)."""
        stages: tuple[Callable[[], None], ...] = (self._sam, self._behind, self._project)
        self.stages = stages if recorder is None else tuple(recorder.recorded(stage) for stage in stages)

    def load(self, views: Sequence[Tensor]) -> None:
        """Normalised pixels (B, 3, S, S) of each view size."""
        for held, view in zip(self._pixels, views, strict=True):
            held.copy_(view)

    def _sam(self) -> None:
        self.features = self._towers.sam(self._pixels)

    def _behind(self) -> None:
        self.patches = self._towers.behind(self.features, self._groups)

    def _project(self) -> None:
        self.tokens = self._towers.project(self.patches, self.features, self._groups)


class FastVision:
    """Vision of pages of any shape; captured where there is CUDA, unless `graphs` is False.

    Not safe for concurrent use: hold the device's lock.
    """

    def __init__(self, towers: VisionTowers, graphs: bool = True) -> None:
        self._towers = towers
        self._recorder = recorder_for(towers.device) if graphs else None
        self._passes: OrderedDict[tuple[tuple[int, ...], ...], VisionPass] = OrderedDict()

    def start(self, views: Sequence[Tensor]) -> VisionPass:
        """The stages over these pixels, (B, 3, S, S) of each view size: tiles before the global view."""
        shapes = tuple(tuple(view.shape) for view in views)
        if shapes not in self._passes:
            if len(self._passes) == MOST_SHAPES:
                self._passes.popitem(last=False)
            self._passes[shapes] = VisionPass(self._towers, shapes, self._recorder)
        self._passes.move_to_end(shapes)
        found = self._passes[shapes]
        found.load(views)
        return found
