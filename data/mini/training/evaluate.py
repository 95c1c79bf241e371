"""Evaluation on the whole path: preprocessing, greedy decoding with the n-gram rule, parsing.

Letters: B pages, V vision tokens, T positions, C hidden size, H heads, D head width, P pixels of a side,
Q vision tokens of a side.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from data.mini.training.data import NO_REPEAT_NGRAM, normalised, prompt_ids, token_id, tokenizer
from data.mini.training.decoder import LayerCache
from data.mini.training.export import load_checkpoint
from data.mini.training.held_out import Shown, batches, held_out_mode, held_out_shown, in_processes, shown
from data.mini.training.markup import Prompt, answer
from data.mini.training.model import TrainingModel, build_model, cut_tiles
from data.mini.training.page import Block, Glyphs, Page
from data.mini.training.scores import Score, Scores, score_page
from data.mini.training.tokenizer import EOS, IMAGE
from data.mini.training.views import BASE, GUNDAM, PRESETS, Bytes, Mode
from dsocr_core.inputs.tiling import NO_TILES, crop_grid

PAGES_SEEN_AT_ONCE = 4  # by the vision towers: 36 tiles of the largest grid
SPARE_TOKENS = 64  # beyond a mode's longest target, for pages that end late


class NgramRule:
    """transformers' no-repeat rule for one sequence, kept up to date token by token."""

    def __init__(self, ids: list[int], size: int) -> None:
        self.size = size
        self.ids: list[int] = []
        self.followers: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for token in ids:
            self.push(token)

    def push(self, token: int) -> None:
        self.ids.append(token)
        if len(self.ids) >= self.size:
            self.followers[tuple(self.ids[-self.size : -1])].add(token)

    def banned(self) -> set[int]:
        return self.followers.get(tuple(self.ids[len(self.ids) - self.size + 1 :]), set())


@dataclass
class FixedCache(LayerCache):
    """Room for `length` positions from the start: growing token by token would copy everything each time."""

    length: int = 0
    used: int = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is None or self.values is None:
            shape = (*k.shape[:2], self.length, k.shape[3])
            self.keys, self.values = k.new_empty(shape), v.new_empty(shape)  # (B, H, length, D)
        end = self.used + k.shape[2]
        self.keys[:, :, self.used : end] = k
        self.values[:, :, self.used : end] = v
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def keep(self, rows: Tensor) -> None:
        """Only these sequences go on."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


def _mixed_precision(model: TrainingModel) -> torch.autocast:
    weight = model.lm_head.weight
    return torch.autocast(weight.device.type, torch.bfloat16, enabled=weight.dtype == torch.bfloat16)


@torch.no_grad()
def look(model: TrainingModel, pages: list[Shown]) -> Tensor:
    """The vision sequences (B, V, C) of pages of one mode."""
    weight = model.lm_head.weight

    def pixels(views: list[Bytes]) -> Tensor:
        stacked = torch.from_numpy(np.stack(views)).to(weight.device)
        return normalised(stacked, noisy=False).to(weight.dtype)  # (B, 3, P, P)

    parts = []
    with _mixed_precision(model):
        for start in range(0, len(pages), PAGES_SEEN_AT_ONCE):
            some = pages[start : start + PAGES_SEEN_AT_ONCE]
            tokens, _ = model.view(pixels([page.whole for page in some]))  # (B, Q, Q, C)
            local = [page.local for page in some if page.local is not None]
            tiles = None
            if local:
                cut = cut_tiles(pixels(local))  # (B, rows, columns, 3, 640, 640)
                tiles, _ = model.view(cut.flatten(0, 2))
                tiles = tiles.view(*cut.shape[:3], *tiles.shape[1:])  # (B, rows, columns, Q, Q, C)
            parts.append(model.fuse(tokens, tiles))
    return torch.cat(parts)


@torch.no_grad()
def greedy(model: TrainingModel, vision: Tensor, prompt: Prompt, new_tokens: int) -> list[list[int]]:
    """Token ids the model writes after vision sequences (B, V, C), the end token included when it came."""
    device = vision.device
    count, image_tokens, _ = vision.shape
    before, after = prompt_ids(prompt)
    read = [*before, *[token_id(IMAGE)] * image_tokens, *after]
    rules = [NgramRule(read, NO_REPEAT_NGRAM) for _ in range(count)]
    written: list[list[int]] = [[] for _ in range(count)]
    caches = [FixedCache(length=len(read) + new_tokens) for _ in model.model.layers]
    end = token_id(EOS)
    rows: list[int] = list(range(count))  # the page in each row of the batch
    writing = set(rows)
    with _mixed_precision(model):
        ids = torch.tensor([before], device=device).expand(count, -1)
        rest = torch.tensor([after], device=device).expand(count, -1)
        x = model.embed(vision, ids, rest)  # (B, T, C)
        position = 0
        for _ in range(new_tokens):
            hidden, _ = model.decode(x, position, list[LayerCache](caches))
            position += x.shape[1]
            logits = model.lm_head(hidden[:, -1]).float()
            bans = [(row, token) for row, page in enumerate(rows) for token in rules[page].banned()]
            if bans:
                at_rows, tokens = torch.tensor(bans, device=device).T
                logits[at_rows, tokens] = -torch.inf
            best = logits.argmax(-1)
            for page, token in zip(rows, best.tolist(), strict=True):
                if page in writing:
                    written[page].append(token)
                    rules[page].push(token)
                    if token == end:
                        writing.discard(page)
            if not writing:
                break
            if 2 * len(writing) <= len(rows):
                going_on = [row for row, page in enumerate(rows) if page in writing]
                rows = [rows[row] for row in going_on]
                kept = torch.tensor(going_on, device=device)
                best = best[kept]
                for cache in caches:
                    cache.keep(kept)
            x = model.model.embed_tokens(best)[:, None].to(x.dtype)
    return written


def read_and_score(
    model: TrainingModel, pages: list[Shown], prompts: tuple[Prompt, ...]
) -> Iterator[tuple[str, Prompt, Score]]:
    """(part, prompt, score) of pages of one mode, each page under each prompt."""
    vision = look(model, pages)
    end = token_id(EOS)
    for prompt in prompts:
        written = greedy(model, vision, prompt, pages[0].mode.longest_target + SPARE_TOKENS)
        for page, ids in zip(pages, written, strict=True):
            text = tokenizer().decode([each for each in ids if each != end], skip_special_tokens=False)
            truth = answer(prompt, page.blocks, *page.size)
            yield page.part, prompt, score_page(prompt, truth, text, ended=ids[-1:] == [end])


def load_for_evaluation(checkpoint: Path, config: Path, device: str, dtype: torch.dtype) -> TrainingModel:
    """The shipped weights in `dtype`; bf16 rounds the rotary frequencies too, as published loading does."""
    model = build_model(config)
    load_checkpoint(model, checkpoint)
    model = model.eval().to(device=device, dtype=dtype)
    model.set_rotary(rounded=dtype == torch.bfloat16)
    return model


def say_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def evaluate(
    model: TrainingModel,
    presets: tuple[str, ...],
    prompts: tuple[Prompt, ...] = tuple(Prompt),
    count: int = 200,
    batch: int = 100,
    workers: int = 1,
    say: Callable[[str], None] | None = None,
) -> Scores:
    """Scores `count` held-out pages of each preset; training never draws from their seed.

    Pages of one mode are decoded `batch` at a time and drawn by `workers` processes. `say` takes a line of
    progress after every batch.
    """
    tasks = [each for preset in presets for each in batches(preset, count, batch)]
    # A batch takes about as long as its sequences are.
    modes = [held_out_mode(*each[0]) for each in tasks]
    lengths = [mode.image_tokens + mode.longest_target for mode in modes]
    scores = Scores()
    began = time.monotonic()
    pages_done = 0
    for number, pages in enumerate(in_processes(held_out_shown, tasks, workers), 1):
        preset = tasks[number - 1][0][0]
        for part, prompt, score in read_and_score(model, pages, prompts):
            scores.add(preset, part, prompt, score)
        pages_done += len(pages)
        if say is not None:
            left = (time.monotonic() - began) * sum(lengths[number:]) / sum(lengths[:number])
            say(f"{pages_done}/{count * len(presets)} pages  {', '.join(presets)}  {left:.0f} s left")
    return scores


def sample_mode(preset: str, width: int, height: int) -> Mode:
    """How the app shows a page of that size in px; gundam has more grids than are trained for."""
    if preset != "gundam":
        return PRESETS[preset][0]
    grid = crop_grid(width, height)
    if grid == NO_TILES:
        return BASE
    columns, rows = grid
    return replace(GUNDAM[0], name=f"gundam-{columns}x{rows}", columns=columns, rows=rows)


def read_samples(directory: Path) -> dict[str, Page]:
    """The sample pages with their truth, as the app would open them."""
    truth = json.loads((directory / "ground_truth.json").read_text(encoding="utf-8"))
    none = np.zeros(0)
    glyphs = Glyphs(codes=none.astype(np.uint8), x=none.astype(np.float32), y=none.astype(np.float32))
    drawn = {}
    for name, entry in truth.items():
        with Image.open(directory / name) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
        blocks = tuple(Block(each["label"], tuple(each["box"]), each["text"]) for each in entry["blocks"])
        drawn[name] = Page(image, blocks, glyphs)
    return drawn


def evaluate_samples(
    model: TrainingModel,
    directory: Path,
    presets: tuple[str, ...],
    prompts: tuple[Prompt, ...] = tuple(Prompt),
    say: Callable[[str], None] | None = None,
) -> Scores:
    """Scores every page of a directory that has a `ground_truth.json`; the parts are the pages."""
    pages = read_samples(directory)
    scores = Scores()
    for preset in presets:
        by_mode: dict[Mode, list[Shown]] = defaultdict(list)
        for name, page in pages.items():
            mode = sample_mode(preset, *page.image.size)
            by_mode[mode].append(shown(page, mode, name))
        for mode, some in by_mode.items():
            for part, prompt, score in read_and_score(model, some, prompts):
                scores.add(preset, part, prompt, score)
            if say is not None:
                say(f"{preset}: {len(some)} pages as {mode.name}")
    return scores
