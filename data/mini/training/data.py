"""Training data: workers render pages, a pool on the device holds them, batches are drawn from the pool.

Rendering is slower than training, so a page is drawn from the pool more than once, each time with other
noise; the pool is a ring, so the oldest pages leave as new ones come.
"""

import itertools
import multiprocessing
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.sharedctypes import Synchronized

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from data.mini.training.markup import PROMPT, page_markup
from data.mini.training.page import Page
from data.mini.training.render import random_page
from data.mini.training.tokenizer import BOS, EOS, IMAGE, PAD, build_tokenizer
from data.mini.training.views import PageViews, cropped, padded, squeezed

SMALL_PX = 640
BASE_PX = 1024
LONGEST_TARGET = 380
NO_REPEAT_NGRAM = 20
CHUNK_PAGES = 32


@cache
def tokenizer() -> Tokenizer:
    return build_tokenizer()


@cache
def token_id(token: str) -> int:
    index = tokenizer().token_to_id(token)
    assert index is not None, token
    return index


@cache
def prompt_ids() -> tuple[list[int], list[int]]:
    """Ids before and after the image span."""
    before, after = PROMPT.split(IMAGE)
    encode = tokenizer().encode
    return [token_id(BOS), *encode(before).ids], encode(after).ids


def repeats_ngram(ids: list[int], size: int = NO_REPEAT_NGRAM) -> bool:
    """Whether some `size` successive ids occur twice: greedy decoding would forbid such a page."""
    seen: set[tuple[int, ...]] = set()
    for start in range(len(ids) - size + 1):
        gram = tuple(ids[start : start + size])
        if gram in seen:
            return True
        seen.add(gram)
    return False


def target_ids(page: Page) -> list[int]:
    """The tokens the model is to write for a page, the end token included."""
    return [*tokenizer().encode(page_markup(page.blocks, *page.image.size)).ids, token_id(EOS)]


@dataclass(frozen=True)
class Mode:
    """How pages are shown: `columns` x `rows` crops, or none when both are 0 (then Small or Base)."""

    side: int = SMALL_PX
    columns: int = 0
    rows: int = 0

    @property
    def aspect(self) -> float | None:
        """Width over height that makes the dynamic grid choose this one; None: any."""
        return self.columns / self.rows if self.columns else None

    def views(self, page: Page) -> PageViews:
        if self.columns:
            return cropped(page, self.side, self.columns, self.rows)
        return squeezed(page, self.side) if self.side <= SMALL_PX else padded(page, self.side)


SMALL = Mode()


def pages(seed: str, mode: Mode = SMALL, difficulty: "Synchronized[float] | None" = None) -> Iterator[Page]:
    """Pages without end whose targets fit and can be decoded greedily; the same seed, the same pages."""
    for index in itertools.count():
        page = random_page(f"{seed}/{index}", difficulty.value if difficulty else 1.0, aspect=mode.aspect)
        ids = target_ids(page)
        if len(ids) <= LONGEST_TARGET and not repeats_ngram(ids):
            yield page


@dataclass(frozen=True)
class Chunk:
    """Pages as tensors: pixels (B, P, P, 3), character cells, padded targets (B, L); tiles where cropped."""

    pixels: Tensor
    characters: Tensor
    targets: Tensor
    tile_pixels: Tensor | None = None
    tile_characters: Tensor | None = None

    def pin_memory(self) -> "Chunk":
        tiles = (self.tile_pixels, self.tile_characters)
        pinned = [each if each is None else each.pin_memory() for each in tiles]
        return Chunk(
            self.pixels.pin_memory(), self.characters.pin_memory(), self.targets.pin_memory(), *pinned
        )


def collate(drawn: list[Page], mode: Mode) -> Chunk:
    """Pages to one chunk; tiles are (B, rows, columns, ...) where the mode has crops."""
    shown = [mode.views(page) for page in drawn]
    targets = torch.full((len(drawn), LONGEST_TARGET), token_id(PAD), dtype=torch.int32)
    for row, page in enumerate(drawn):
        ids = target_ids(page)
        targets[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
    pixels = torch.from_numpy(np.stack([each.whole.pixels for each in shown]))
    characters = torch.from_numpy(np.stack([each.whole.characters for each in shown]))
    if not mode.columns:
        return Chunk(pixels, characters, targets)
    grid = (len(drawn), mode.rows, mode.columns)
    tile_pixels = np.stack([tile.pixels for each in shown for tile in each.tiles])
    tile_characters = np.stack([tile.characters for each in shown for tile in each.tiles])
    return Chunk(
        pixels,
        characters,
        targets,
        torch.from_numpy(tile_pixels).unflatten(0, grid),
        torch.from_numpy(tile_characters).unflatten(0, grid),
    )


class RenderedPages(IterableDataset[Chunk]):
    """Chunks of rendered pages; every worker draws its own seeds."""

    def __init__(self, seed: int, mode: Mode, difficulty: "Synchronized[float]", chunk_pages: int) -> None:
        self.seed, self.mode, self.difficulty, self.chunk_pages = seed, mode, difficulty, chunk_pages

    def __iter__(self) -> Iterator[Chunk]:
        info = get_worker_info()
        worker = info.id if info else 0
        source = pages(f"train-{self.seed}-{worker}", self.mode, self.difficulty)
        while True:
            yield collate(list(itertools.islice(source, self.chunk_pages)), self.mode)


class ChunkFeed:
    """Renders in worker processes and hands chunks over without making the training step wait."""

    def __init__(self, seed: int, mode: Mode, workers: int, chunk_pages: int = CHUNK_PAGES) -> None:
        self.difficulty: Synchronized[float] = multiprocessing.Value("d", 0.0)
        self._ready: queue.Queue[Chunk] = queue.Queue(maxsize=8)
        self._stop = threading.Event()
        self._loader = DataLoader(
            RenderedPages(seed, mode, self.difficulty, chunk_pages),
            batch_size=None,
            num_workers=workers,
            prefetch_factor=2 if workers else None,
            pin_memory=torch.cuda.is_available(),
        )
        # The workers are forked here, on the caller's thread: forks of several feeds at once would race.
        self._chunks = iter(self._loader)
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def _pump(self) -> None:
        for chunk in self._chunks:
            while not self._stop.is_set():
                try:
                    self._ready.put(chunk, timeout=0.5)
                    break
                except queue.Full:
                    continue
            if self._stop.is_set():
                return

    def get(self) -> Chunk:
        """The next chunk; waits for it. Raises RuntimeError when rendering has stopped."""
        while True:
            try:
                return self._ready.get(timeout=1)
            except queue.Empty:
                self._check()

    def take(self) -> Chunk | None:
        """A chunk if one is there already. Raises RuntimeError when rendering has stopped."""
        try:
            return self._ready.get_nowait()
        except queue.Empty:
            self._check()
            return None

    def ready(self) -> list[Chunk]:
        """All chunks that are there already."""
        return list(iter(self.take, None))

    def _check(self) -> None:
        if not self._thread.is_alive():
            raise RuntimeError("the page renderer stopped: see its workers' errors above")

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)


class PagePool:
    """A ring of pages on the device, drawn from at random."""

    def __init__(self, capacity: int, example: Chunk, device: torch.device) -> None:
        def ring(like: Tensor) -> Tensor:
            return torch.empty((capacity, *like.shape[1:]), dtype=like.dtype, device=device)

        self.pixels, self.characters = ring(example.pixels), ring(example.characters)
        self.targets = ring(example.targets)
        self.capacity, self.added, self.device = capacity, 0, device

    def add(self, chunk: Chunk) -> None:
        """Overwrites the oldest pages. A chunk must divide the capacity."""
        count = chunk.targets.shape[0]
        start = self.added % self.capacity
        for ring, new in (
            (self.pixels, chunk.pixels),
            (self.characters, chunk.characters),
            (self.targets, chunk.targets),
        ):
            ring[start : start + count].copy_(new, non_blocking=True)
        self.added += count

    def draw(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Pixels, character cells and targets of `count` pages, each held page as likely as any."""
        held = min(self.added, self.capacity)
        index = torch.randint(held, (count,), device=self.device)
        return self.pixels[index], self.characters[index], self.targets[index].long()


def normalised(pixels: Tensor, noisy: bool) -> Tensor:
    """Bytes (..., P, P, 3) to (..., 3, P, P) in -1..1; `noisy` tints and speckles half of the pages."""
    x = pixels.movedim(-1, -3).float() / 127.5 - 1
    if not noisy:
        return x
    per_page = (x.shape[0], *(1,) * (x.dim() - 1))
    per_channel = (x.shape[0], *(1,) * (x.dim() - 4), 3, 1, 1)
    chosen = (torch.rand(per_page, device=x.device) < 0.5).float()
    tint = torch.rand(per_channel, device=x.device) * 0.12 * chosen
    speckle = torch.rand(per_page, device=x.device) * 0.06 * chosen
    return (x - (x + 1) * tint + torch.randn_like(x) * speckle).clamp(-1, 1)
