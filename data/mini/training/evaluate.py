"""Held-out evaluation on the whole path: preprocessing, greedy decoding with the n-gram rule, parsing.

Box F1 counts a box as found when an unmatched reference box of the same label overlaps it with IoU >= 0.75.
The character error rate is edit distance over reference length, summed over pages, markup of blocks left out.
"""

import itertools
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image, ImageOps
from torch import Tensor

from data.mini.training.data import (
    BASE_PX,
    NO_REPEAT_NGRAM,
    SMALL,
    Mode,
    normalised,
    pages,
    prompt_ids,
    token_id,
    tokenizer,
)
from data.mini.training.decoder import LayerCache
from data.mini.training.export import load_checkpoint
from data.mini.training.markup import page_markup, parse_markup
from data.mini.training.model import TrainingModel, build_model
from data.mini.training.page import Block, Page
from data.mini.training.tokenizer import EOS, IMAGE
from data.mini.training.views import image_tokens

HELD_OUT_SEED = "held-out"
MATCH_IOU = 0.75


def mode_named(name: str) -> Mode:
    """`small`, `base`, or `gundam-CxR` with the grid's columns and rows. Raises ValueError otherwise."""
    if name in ("small", "base"):
        return SMALL if name == "small" else Mode(BASE_PX)
    kind, _, grid = name.partition("-")
    columns, _, rows = grid.partition("x")
    if kind != "gundam" or not (columns.isdigit() and rows.isdigit()):
        raise ValueError(f"{name}: no such mode; small, base, or gundam-2x3 with any grid")
    return Mode(BASE_PX, int(columns), int(rows))


@dataclass(frozen=True)
class Score:
    """Over all pages: box F1, character error rate, share of pages that ended with the end token."""

    box_f1: float
    character_error_rate: float
    ended: float
    pages: int

    def __str__(self) -> str:
        return (
            f"pages {self.pages}  box F1 {self.box_f1:.4f}  CER {self.character_error_rate:.4f}"
            f"  ended {self.ended:.3f}"
        )


class NgramRule:
    """transformers' no-repeat rule for one sequence, kept up to date token by token."""

    def __init__(self, ids: list[int], size: int) -> None:
        self.size = size
        self.ids: list[int] = []
        self.followers: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for token in ids:
            self.push(token)

    def push(self, token: int) -> None:
        self.ids.append(token)
        if len(self.ids) >= self.size:
            self.followers[tuple(self.ids[-self.size : -1])].append(token)

    def banned(self) -> list[int]:
        return self.followers.get(tuple(self.ids[len(self.ids) - self.size + 1 :]), [])


@torch.no_grad()
def greedy(model: TrainingModel, shown: list[Page], mode: Mode, new_tokens: int) -> list[list[int]]:
    """Token ids the model writes for pages of one mode, the end token included when it came."""
    device = model.lm_head.weight.device
    dtype = model.lm_head.weight.dtype
    views = [mode.views(page) for page in shown]

    def pixels(arrays: list[object]) -> Tensor:
        return normalised(torch.stack([torch.tensor(each) for each in arrays]).to(device), False).to(dtype)

    before, after = prompt_ids()
    with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        tokens, _ = model.view(pixels([each.whole.pixels for each in views]))
        tiles = None
        if mode.columns:
            tiles, _ = model.view(pixels([tile.pixels for each in views for tile in each.tiles]))
            tiles = tiles.unflatten(0, (len(shown), mode.rows, mode.columns))
        ids = torch.tensor([before], device=device).expand(len(shown), -1)
        rest = torch.tensor([after], device=device).expand(len(shown), -1)
        x = model.embed(model.fuse(tokens, tiles), ids, rest)
        prompt = [*before, *[token_id(IMAGE)] * image_tokens(views[0]), *after]
        rules = [NgramRule(prompt, NO_REPEAT_NGRAM) for _ in shown]
        written: list[list[int]] = [[] for _ in shown]
        done = [False] * len(shown)
        caches = [LayerCache() for _ in model.model.layers]
        position = 0
        for _ in range(new_tokens):
            hidden, _ = model.decode(x, position, caches)
            position += x.shape[1]
            logits = model.lm_head(hidden[:, -1]).float()
            for row, rule in enumerate(rules):
                if banned := rule.banned():
                    logits[row, banned] = -torch.inf
            best = logits.argmax(-1)
            for row, token in enumerate(best.tolist()):
                if not done[row]:
                    written[row].append(token)
                    done[row] = token == token_id(EOS)
                rules[row].push(token)
            if all(done):
                break
            x = model.model.embed_tokens(best)[:, None].to(x.dtype)
    return written


def iou(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return width * height / (areas - width * height)


def matches(reference: list[tuple[str, tuple[int, ...]]], found: list[tuple[str, tuple[int, ...]]]) -> int:
    """Reference boxes that have an unshared partner, greedily in reading order."""
    free = list(found)
    count = 0
    for label, box in reference:
        best = max(
            (each for each in free if each[0] == label), key=lambda each: iou(box, each[1]), default=None
        )
        if best is not None and iou(box, best[1]) >= MATCH_IOU:
            free.remove(best)
            count += 1
    return count


def edit_distance(a: str, b: str) -> int:
    previous = list(range(len(b) + 1))
    for row, x in enumerate(a, 1):
        current = [row]
        for column, y in enumerate(b, 1):
            current.append(min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (x != y)))
        previous = current
    return previous[-1]


def score(references: list[str], written: list[list[int]]) -> Score:
    """Scores token ids against reference markup, page by page."""
    matched = boxes = errors = characters = ended = 0
    for reference, ids in zip(references, written, strict=True):
        ended += ids[-1:] == [token_id(EOS)]
        ids = [each for each in ids if each != token_id(EOS)]
        markup = tokenizer().decode(ids, skip_special_tokens=False)
        true_boxes, true_text = parse_markup(reference)
        found_boxes, found_text = parse_markup(markup)
        matched += matches(true_boxes, found_boxes)
        boxes += len(true_boxes) + len(found_boxes)
        errors += edit_distance(true_text, found_text)
        characters += len(true_text)
    return Score(2 * matched / max(1, boxes), errors / max(1, characters), ended / len(written), len(written))


def load_for_evaluation(checkpoint: Path, config: Path, device: str, dtype: torch.dtype) -> TrainingModel:
    """The shipped weights in `dtype`; bf16 rounds the rotary frequencies too, as published loading does."""
    model = build_model(config)
    load_checkpoint(model, checkpoint)
    model = model.eval().to(device=device, dtype=dtype)
    model.set_rotary(rounded=dtype == torch.bfloat16)
    return model


def evaluate(model: TrainingModel, mode: Mode, count: int, batch: int, new_tokens: int = 448) -> Score:
    """Scores held-out pages; training never draws from their seed."""
    drawn = list(itertools.islice(pages(HELD_OUT_SEED, mode), count))
    written: list[list[int]] = []
    for start in range(0, count, batch):
        written += greedy(model, drawn[start : start + batch], mode, new_tokens)
    return score([page_markup(page.blocks, *page.image.size) for page in drawn], written)


def read_samples(directory: Path) -> dict[str, Page]:
    """The sample pages with their truth, as the app would open them."""
    truth = json.loads((directory / "ground_truth.json").read_text(encoding="utf-8"))
    drawn = {}
    for name, entry in truth.items():
        with Image.open(directory / name) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
        blocks = tuple(Block(each["label"], tuple(each["box"]), each["text"]) for each in entry["blocks"])
        drawn[name] = Page(image, blocks, ())
    return drawn


def evaluate_samples(model: TrainingModel, directory: Path, new_tokens: int = 448) -> dict[str, Score]:
    """Scores every sample page in Small mode."""
    scores = {}
    for name, page in read_samples(directory).items():
        markup = page_markup(page.blocks, *page.image.size)
        scores[name] = score([markup], greedy(model, [page], SMALL, new_tokens))
    return scores
