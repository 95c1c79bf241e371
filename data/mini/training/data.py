"""Training data: workers render pages, a pool on the device holds them, batches are drawn from the pool.

Rendering is slower than training, so a page may be drawn from the pool more than once, each time with other
noise; the pool is a ring, so the oldest pages leave as new ones come.
"""

import itertools
import multiprocessing
import os
import queue
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from multiprocessing.sharedctypes import Synchronized

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from data.mini.training.markup import Prompt, answer
from data.mini.training.page import Page
from data.mini.training.render import random_page
from data.mini.training.tokenizer import BOS, EOS, IMAGE, PAD, build_tokenizer
from data.mini.training.views import Mode

NO_REPEAT_NGRAM = 20
CHUNK_BYTES = 40 * 2**20  # of pixels: what a worker hands over at once
# Sequences of a step are padded to a multiple of this: the same alignment in memory, for which a step is
# compiled.
SEQUENCE_STEP = 128


@cache
def tokenizer() -> Tokenizer:
    return build_tokenizer()


@cache
def token_id(token: str) -> int:
    index = tokenizer().token_to_id(token)
    assert index is not None, token
    return index


@cache
def prompt_ids(prompt: Prompt) -> tuple[list[int], list[int]]:
    """Ids before and after the image span."""
    before, after = prompt.split(IMAGE)
    encode = tokenizer().encode
    return [token_id(BOS), *encode(before).ids], encode(after).ids


def repeats_ngram(ids: list[int], size: int = NO_REPEAT_NGRAM) -> bool:
    """Tell whether some `size` successive ids occur twice: greedy decoding would forbid such a page."""
    packed = np.asarray(ids, np.uint16).tobytes()
    grams = [packed[2 * start : 2 * (start + size)] for start in range(len(ids) - size + 1)]
    return len(set(grams)) < len(grams)


def target_ids(page: Page, prompt: Prompt) -> list[int]:
    """The tokens the model is to write for a page, the end token included."""
    return [*tokenizer().encode(answer(prompt, page.blocks, *page.image.size)).ids, token_id(EOS)]


@dataclass(frozen=True)
class Example:
    """A page with its targets, the end token included."""

    page: Page
    grounding: list[int]
    free_ocr: list[int]


def examples(
    seed: str, mode: Mode, difficulty: "Synchronized[float] | None" = None, fine_print: float = 0.0
) -> Iterator[Example]:
    """Pages without end whose targets fit and can be decoded greedily; the same seed, the same pages.

    A share of them, `fine_print`, has the smallest type: that is where characters are lost.
    """
    for index in itertools.count():
        fine = random.Random(f"{seed}/{index}/type").random() < fine_print
        page = random_page(f"{seed}/{index}", mode, difficulty.value if difficulty else 1.0, fine)
        grounding, free_ocr = target_ids(page, Prompt.GROUNDING), target_ids(page, Prompt.FREE_OCR)
        fits = len(grounding) <= mode.longest_target and len(free_ocr) > 1
        if fits and not repeats_ngram(grounding) and not repeats_ngram(free_ocr):
            yield Example(page, grounding, free_ocr)


def pages(seed: str, mode: Mode) -> Iterator[Page]:
    """The pages of `examples` at full difficulty."""
    return (example.page for example in examples(seed, mode))


@dataclass(frozen=True)
class Chunk:
    """Pages of one mode as tensors, B pages, targets padded to L.

    `pixels` (B, P, P, 3) and `places` (B, 4, P / 64, P / 64) of the global view; `local_pixels` (B, H, W, 3)
    of the stretched page in a mode with crops; `characters` (B, H / 16, W / 8) of the finer of the two;
    `grounding` and `free_ocr` (B, L).
    """

    pixels: Tensor
    characters: Tensor
    places: Tensor
    grounding: Tensor
    free_ocr: Tensor
    local_pixels: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def pin_memory(self) -> "Chunk":
        return Chunk(**{name: tensor.pin_memory() for name, tensor in self.tensors().items()})

    def __len__(self) -> int:
        return self.pixels.shape[0]


def _padded(targets: list[list[int]], length: int) -> Tensor:
    rows = torch.full((len(targets), length), token_id(PAD), dtype=torch.int16)
    for row, ids in zip(rows, targets, strict=True):
        row[: len(ids)] = torch.tensor(ids, dtype=torch.int16)
    return rows


def collate(drawn: list[Example], mode: Mode) -> Chunk:
    """Pages to one chunk."""
    shown = [mode.views(each.page) for each in drawn]
    tensors = {
        "pixels": torch.from_numpy(np.stack([each.whole.pixels for each in shown])),
        "characters": torch.from_numpy(np.stack([(each.local or each.whole).characters for each in shown])),
        "places": torch.from_numpy(np.stack([each.places for each in shown])),
        "grounding": _padded([each.grounding for each in drawn], mode.longest_target),
        "free_ocr": _padded([each.free_ocr for each in drawn], mode.longest_target),
    }
    local = [each.local for each in shown if each.local is not None]
    if local:
        tensors["local_pixels"] = torch.from_numpy(np.stack([each.pixels for each in local]))
    return Chunk(**tensors)


def chunk_pages(mode: Mode) -> int:
    """Pages a worker renders before it hands them over; a power of two."""
    width, height = mode.finest
    page_bytes = 3 * (mode.side**2 + (width * height if mode.cropped else 0))
    return 1 << max(0, int(CHUNK_BYTES / page_bytes).bit_length() - 1)


@dataclass(frozen=True)
class Portion:
    """One mode of a process's training: pages a step, and how often it comes up against the others."""

    mode: Mode
    batch: int
    share: float


class RenderedPages(IterableDataset[tuple[int, Chunk]]):
    """(index of the portion, chunk) without end; every worker draws its own seeds."""

    def __init__(
        self, seed: str, portions: tuple[Portion, ...], difficulty: "Synchronized[float]", fine_print: float
    ) -> None:
        self.seed, self.portions = seed, portions
        self.difficulty, self.fine_print = difficulty, fine_print

    def __iter__(self) -> Iterator[tuple[int, Chunk]]:
        info = get_worker_info()
        worker = info.id if info else 0
        modes = [portion.mode for portion in self.portions]
        sources = [
            examples(f"train-{self.seed}-{worker}-{mode.name}", mode, self.difficulty, self.fine_print)
            for mode in modes
        ]
        counts = [chunk_pages(mode) for mode in modes]
        # As many pages of each mode as its steps take; every worker starts elsewhere.
        needs = [p.share * p.batch / count for p, count in zip(self.portions, counts, strict=True)]
        rng = random.Random(f"order-{self.seed}-{worker}")
        for turn in itertools.count(worker):
            # Each mode comes early once, so that the first step does not wait for luck.
            early = turn - worker < len(modes)
            index = turn % len(modes) if early else rng.choices(range(len(modes)), needs)[0]
            drawn = list(itertools.islice(sources[index], counts[index]))
            yield index, collate(drawn, modes[index])


def _give_way(_worker: int) -> None:
    """Rendering waits where the training step wants a core: it has pages in store, the GPU has none."""
    os.nice(10)


class ChunkFeed:
    """Renders in worker processes and hands chunks over without making the training step wait."""

    def __init__(
        self,
        seed: str,
        portions: tuple[Portion, ...],
        workers: int,
        difficulty: float = 0.0,
        fine_print: float = 0.0,
    ) -> None:
        self.difficulty: Synchronized[float] = multiprocessing.Value("d", difficulty)
        self._ready: queue.Queue[tuple[int, Chunk]] = queue.Queue(maxsize=8)
        self._stop = threading.Event()
        self._loader = DataLoader(
            RenderedPages(seed, portions, self.difficulty, fine_print),
            batch_size=None,
            num_workers=workers,
            prefetch_factor=2 if workers else None,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=_give_way,
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

    def get(self) -> tuple[int, Chunk]:
        """The next chunk with its portion's index; waits for it. RuntimeError when rendering has stopped."""
        while True:
            try:
                return self._ready.get(timeout=1)
            except queue.Empty:
                self._check()

    def take(self) -> tuple[int, Chunk] | None:
        """A chunk if one is there already. Raises RuntimeError when rendering has stopped."""
        try:
            return self._ready.get_nowait()
        except queue.Empty:
            self._check()
            return None

    def ready(self) -> list[tuple[int, Chunk]]:
        """All chunks that are there already."""
        return list(iter(self.take, None))

    def _check(self) -> None:
        if not self._thread.is_alive():
            raise RuntimeError("the page renderer stopped: see its workers' errors above")

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)


@dataclass(frozen=True)
class Batch:
    """Batch of a step: bytes (B, P, P, 3), cells, tokens, and the local view where cropped.

    `read` (B, T): what follows the image, the rest of the prompt and the answer but for its last token.
    `targets` (B, T): the token after each of them; padding where that is the prompt's.
    """

    pixels: Tensor
    characters: Tensor
    places: Tensor
    read: Tensor
    targets: Tensor
    local_pixels: Tensor | None = None


def fitted(targets: Tensor, longest: int, others: int) -> Tensor:
    """(B, L) padded targets, none over `longest`, in a length that makes whole steps with `others` tokens."""
    length = longest + -(others + longest) % SEQUENCE_STEP
    return F.pad(targets.long(), (0, max(0, length - targets.shape[1])), value=token_id(PAD))[:, :length]


@cache
def _after_image(prompt: Prompt, device: torch.device) -> Tensor:
    """(1, T), made once: a copy to the device would wait for the step before."""
    return torch.tensor([prompt_ids(prompt)[1]], device=device)


def asked(targets: Tensor, prompt: Prompt) -> tuple[Tensor, Tensor]:
    """`read` and `targets` of a batch with these answers (B, L) to a prompt.

    In a sequence of some length they are as long under one prompt as under another, so that steps differ by
    their length alone.
    """
    rest = _after_image(prompt, targets.device).expand(len(targets), -1)
    read = torch.cat([rest, targets[:, :-1]], 1)  # (B, T)
    return read, F.pad(targets, (rest.shape[1] - 1, 0), value=token_id(PAD))


class PagePool:
    """A ring of pages of one mode on the device, drawn from at random."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity, self.device = capacity, device
        self.added = 0
        self._rings: dict[str, Tensor] = {}
        self._lengths: dict[str, Tensor] = {}  # kept on the CPU: a batch's length is needed there
        self._next: dict[Prompt, list[Tensor]] = {prompt: [] for prompt in Prompt}

    def add(self, chunk: Chunk) -> None:
        """Overwrites the oldest pages. A chunk must divide the capacity."""
        tensors = chunk.tensors()
        if not self._rings:
            for name, like in tensors.items():
                size = (self.capacity, *like.shape[1:])
                self._rings[name] = torch.empty(size, dtype=like.dtype, device=self.device)
            for prompt in Prompt:
                self._lengths[prompt.name.lower()] = torch.zeros(self.capacity, dtype=torch.int64)
        start = self.added % self.capacity
        place = slice(start, start + len(chunk))
        for name, tensor in tensors.items():
            self._rings[name][place].copy_(tensor, non_blocking=True)
            if name in self._lengths:
                self._lengths[name][place] = (tensor != token_id(PAD)).sum(1)
        self.added += len(chunk)

    def draw(
        self, count: int, prompt: Prompt, others: int, order: random.Random, longest: int | None = None
    ) -> Batch:
        """`count` pages, each held page as likely as any, whose answers and `others` fill whole steps.

        Answers are as long as the longest of them, or cut at `longest`. Four batches are drawn at once and
        sorted by length among themselves, so that little is padding. Where processes share an `order` they
        draw long ones at the same time.
        """
        name = prompt.name.lower()
        lengths = self._lengths[name]
        if not self._next[prompt] or self._next[prompt][-1].numel() != count:
            index = torch.randint(min(self.added, self.capacity), (4 * count,))
            batches = index[lengths[index].argsort()].split(count)
            self._next[prompt] = order.sample(batches, len(batches))
        index = self._next[prompt].pop()
        there = index.to(self.device, non_blocking=True)
        drawn = {key: self._rings[key][there] for key in self._rings if key not in self._lengths}
        longest = int(lengths[index].max()) if longest is None else longest
        read, targets = asked(fitted(self._rings[name][there], longest, others), prompt)
        return Batch(read=read, targets=targets, **drawn)


def normalised(pixels: Tensor, noisy: bool) -> Tensor:
    """Bytes (..., P, P, 3) to (..., 3, P, P) in -1..1; `noisy` tints and speckles half of them."""
    x = pixels.movedim(-1, -3).float() / 127.5 - 1
    if not noisy:
        return x
    per_page = (x.shape[0], *(1,) * (x.dim() - 1))
    per_channel = (x.shape[0], *(1,) * (x.dim() - 4), 3, 1, 1)
    chosen = (torch.rand(per_page, device=x.device) < 0.5).float()
    tint = torch.rand(per_channel, device=x.device) * 0.12 * chosen
    speckle = torch.rand(per_page, device=x.device) * 0.06 * chosen
    return (x - (x + 1) * tint + torch.randn_like(x) * speckle).clamp(-1, 1)
