"""Evaluation on the whole path: preprocessing, greedy decoding with the n-gram rule, parsing.

Letters: B pages, V vision tokens, T positions, C hidden size, Q vision tokens of a side.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from data.mini.training.data import NO_REPEAT_NGRAM, normalised, prompt_ids, token_id, tokenizer
from data.mini.training.held_out import Shown, batches, held_out_mode, held_out_shown, in_processes, shown
from data.mini.training.markup import Prompt, answer
from data.mini.training.model import cut_tiles, use_whole_batches
from data.mini.training.page import Block, Glyphs, Page
from data.mini.training.scores import Score, Scores, score_page
from data.mini.training.tokenizer import EOS, IMAGE
from data.mini.training.views import BASE, GUNDAM, PRESETS, Bytes, Mode
from dsocr_core.models.blocks.attention import Rotary, sdpa_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.blocks.vision_tokens import fuse_views
from dsocr_core.models.family import load_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import load_model
from dsocr_core.page.tiling import NO_TILES, crop_grid
from dsocr_core.reading.ngram_rule import NgramRule

MINI = Path(__file__).parents[1]
PAGES_SEEN_AT_ONCE = 4  # by the vision towers: 36 tiles of the largest grid
SPARE_TOKENS = 64  # beyond a mode's longest target, for pages that end late


def _mixed_precision(model: OcrModel) -> torch.autocast:
    return torch.autocast(model.device.type, torch.bfloat16, enabled=model.dtype == torch.bfloat16)


@torch.inference_mode()
def look(model: OcrModel, pages: list[Shown]) -> Tensor:
    """The vision sequences (B, V, C) of pages of one mode."""

    def pixels(views: list[Bytes]) -> Tensor:
        stacked = torch.from_numpy(np.stack(views)).to(model.device)
        return normalised(stacked, noisy=False).to(model.dtype)  # (B, 3, H, W)

    sequences = []
    with _mixed_precision(model):
        for start in range(0, len(pages), PAGES_SEEN_AT_ONCE):
            some = pages[start : start + PAGES_SEEN_AT_ONCE]
            whole = model.encode(pixels([page.whole for page in some]))
            tiles, grid = [None] * len(some), NO_TILES
            local = [page.local for page in some if page.local is not None]
            if local:
                cut = cut_tiles(pixels(local))  # (B, rows, columns, 3, 640, 640)
                grid = cut.shape[2], cut.shape[1]
                tiles = model.encode(cut.flatten(0, 2)).unflatten(0, (len(some), -1))
            ends = model.image_newline, model.view_seperator
            sequences += [
                fuse_views(crops, grid, one[None], *ends) for crops, one in zip(tiles, whole, strict=True)
            ]
    return torch.stack(sequences)


@torch.inference_mode()
def greedy(model: OcrModel, vision: Tensor, prompt: Prompt, new_tokens: int) -> list[list[int]]:
    """Token ids the model writes after vision sequences (B, V, C), the end token included when it came."""
    device, dtype, sizes = model.device, model.dtype, model.config.decoder
    count, image_tokens, _ = vision.shape
    before, after = prompt_ids(prompt)
    read = [*before, *[token_id(IMAGE)] * image_tokens, *after]
    rules = [NgramRule(NO_REPEAT_NGRAM, read) for _ in range(count)]
    written: list[list[int]] = [[] for _ in range(count)]
    positions = len(read) + new_tokens
    cache = KvCache(sizes, positions, dtype, device, count)
    rotary = Rotary(sizes, positions, dtype, dtype, device)
    end = token_id(EOS)
    rows: list[int] = list(range(count))  # the page in each row of the batch
    writing = set(rows)
    with _mixed_precision(model):
        around = [model.embed(torch.tensor([ids], device=device)) for ids in (before, after)]
        first, last = (x.expand(count, -1, -1) for x in around)
        x = torch.cat([first, vision.to(first.dtype), last], 1)  # (B, T, C)
        for _ in range(new_tokens):
            logits = model.forward_text(x, cache, rotary, sdpa_core)
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
                best, cache = best[kept], _of_rows(cache, kept)
            x = model.embed(best[:, None])
    return written


def _of_rows(cache: KvCache, rows: Tensor) -> KvCache:
    """The cache of those sequences alone: the others have ended."""
    kept = KvCache.over(cache.keys[:, rows], cache.values[:, rows])
    kept.advance(cache.length)
    return kept


def read_and_score(
    model: OcrModel, pages: list[Shown], prompts: tuple[Prompt, ...]
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


def load_for_evaluation(checkpoint: Path, device: str, dtype: torch.dtype) -> OcrModel:
    """The shipped weights in `dtype`."""
    model = load_model(load_config(MINI / "config.json"), checkpoint, torch.device(device), dtype)
    use_whole_batches(model)
    return model


def say_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def evaluate(
    model: OcrModel,
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
    """Choose the mode in which the app shows a page of that size in px; gundam has more grids than are
    trained for.
    """
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
    model: OcrModel,
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
