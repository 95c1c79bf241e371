"""A page on its way through an engine: prepared, taken in, its views on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import torch
from PIL import Image
from torch import Tensor

from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.engine.views import Staged
from dsocr_core.models.ocr_model import Tokens
from dsocr_core.models.resolution import Preset
from dsocr_core.models.stages import Stage
from dsocr_core.page.documents import load_image
from dsocr_core.page.preprocess import PreparedImage
from dsocr_core.page.prompt import PromptIds
from dsocr_core.page.tiling import NO_TILES, image_token_count
from dsocr_core.reading.records import UNLIMITED, ModelInputs, OcrRequest

T = TypeVar("T")


@dataclass(frozen=True)
class PreparedPage:
    """A page opened or preprocessed before its turn. `milliseconds` is None where that was not timed."""

    picture: Image.Image
    """The first image of the prompt in RGB."""
    exif: bool = True
    milliseconds: float | None = None
    image: PreparedImage | None = None
    """Preprocessed images of the prompt; None where the first is only opened."""
    staged: Staged | None = None
    """Its views in host memory, ready to be copied to the device."""
    hashes: tuple[str, str] | None = None
    """Hashes of global view and tiles."""
    draft: tuple[int, ...] | None = None
    """Tokens of its draft; None where no draft was asked for."""


def open_page(request: OcrRequest, max_pixels: int, marks: Marks = Marks.TIMED) -> PreparedPage:
    """Open a page's picture before its turn, on any thread. Raises DsocrError."""
    timer = StageTimer(torch.device("cpu"), marks=marks)
    with timer.stage(Stage.PREPROCESS):
        picture = load_image(request.image, max_pixels, request.exif)
    return PreparedPage(picture, request.exif, next((row.milliseconds for row in timer.timings()), None))


@dataclass(frozen=True)
class PageInputs:
    """Inputs of a page: prompt, limit of new tokens, recorded facts."""

    request: OcrRequest
    sizes: tuple[tuple[int, int], ...]
    """(width, height) of each image."""
    prompt: PromptIds
    limit: int
    unhashed: ModelInputs
    hashes: Background[tuple[str, str]]
    overlapped: bool
    """True where the page was prepared before its turn."""

    @cached_property
    def recorded(self) -> ModelInputs:
        """Inputs with their hashes, for which it waits."""
        of_view, of_tiles = self.hashes()
        return replace(self.unhashed, global_sha256=of_view, tiles_sha256=of_tiles)


def most_tokens(page: PageInputs, context: int | None) -> tuple[int, int]:
    """Most tokens, prompt and new, of any page with these settings, whatever its grid."""
    request, ids = page.request, len(page.prompt.ids)
    most = len(request.images) * most_image_tokens(request.resolution, request.family.newline)
    prompt = ids - page.unhashed.image_token_count + most
    if request.max_new_tokens == UNLIMITED and context is not None:
        return prompt, max(context, ids + page.limit) - prompt
    return prompt, page.limit


def most_image_tokens(preset: Preset, newline: bool) -> int:
    """Image tokens of the grid that has the most."""
    if not preset.crop_mode:
        return image_token_count(preset, NO_TILES, newline)
    most = preset.max_tiles
    sides = range(1, most + 1)
    grids = [(columns, rows) for columns in sides for rows in sides if columns * rows <= most]
    return max(image_token_count(preset, grid, newline) for grid in grids)


@dataclass(frozen=True)
class Pixels:
    """Normalised views of a page on the device."""

    tiles: Tensor | None
    """(T, 3, 640, 640); None when the page is not cut."""
    grid: tuple[int, int]
    global_view: Tensor
    """(1, 3, S, S), or (I, 3, S, S) of several images of one prompt, which are not cut"""

    @property
    def passes(self) -> tuple[Tensor, ...]:
        """Views by forward pass of vision: all tiles together, then each global view alone."""
        return (*(() if self.tiles is None else (self.tiles,)), *torch.split(self.global_view, 1))

    @property
    def images(self) -> tuple[tuple[Tensor, ...], ...]:
        """Numbers of the passes of each image."""
        return (self.passes,) if self.tiles is not None else tuple((view,) for view in self.passes)

    def fused(self, features: Sequence[Tensor]) -> list[Tokens]:
        """Tokens of the passes, image by image."""
        if self.tiles is not None:
            return [(features[0], self.grid, features[1])]
        return [(None, self.grid, view) for view in features]


class Background(Generic[T]):
    """Result of `work`, run on a thread from `start` on, or a `known` one. A call waits for it."""

    def __init__(self, work: Callable[[], T], known: T | None = None) -> None:
        self._work, self._result = work if known is None else None, known
        self._future: Future[T] | None = None

    def start(self) -> None:
        if self._work is not None:
            threads = ThreadPoolExecutor(1, thread_name_prefix="dsocr-beside")
            self._future = threads.submit(self._work)
            self._work = None  # frees the views that `work` holds on the device
            threads.shutdown(wait=False)

    def __call__(self) -> T:
        self.start()
        return self._result if self._future is None else self._future.result()  # type: ignore[return-value]
