"""A page on its way through an engine: prepared, taken in, its views on the device."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dsocr_core.inputs.preprocess import PreparedImage
from dsocr_core.inputs.prompt import PromptIds
from dsocr_core.records import (
    ModelInputs,
    OcrRequest,
)


@dataclass(frozen=True)
class PreparedPage:
    """A page opened and preprocessed before its turn; `milliseconds` None when it was not timed."""

    picture: Image.Image
    """The page in RGB."""
    image: PreparedImage
    hashes: tuple[str, str]
    """Of the global view and of the tiles, as ModelInputs has them."""
    milliseconds: float | None


@dataclass(frozen=True)
class PageInputs:
    """A page before it is read: prompt, limit, recorded inputs."""

    request: OcrRequest
    image_size: tuple[int, int]
    prompt: PromptIds
    limit: int
    """Limit of its new tokens."""
    recorded: ModelInputs
    overlapped: bool
    """Whether it was prefetched."""


@dataclass(frozen=True)
class Pixels:
    """A page's views on the device, normalised."""

    tiles: Tensor | None
    """(T, 3, 640, 640); None when the page is not cut."""
    grid: tuple[int, int]
    global_view: Tensor
    """(1, 3, S, S)"""
