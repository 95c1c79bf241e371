"""The training run: curriculum, fading dense supervision, checkpoints by the clock."""

import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from data.mini.training.data import (
    BASE_PX,
    SMALL,
    Chunk,
    ChunkFeed,
    Mode,
    PagePool,
    normalised,
    prompt_ids,
    token_id,
)
from data.mini.training.evaluate import evaluate, load_for_evaluation, mode_named
from data.mini.training.export import load_checkpoint, load_readers, save_checkpoint, save_readers
from data.mini.training.model import Losses, build_model
from data.mini.training.tokenizer import PAD

CONFIG = Path(__file__).parents[1] / "config.json"
# Larger views than Small, mixed in by `mixed_every`, with their batch sizes. A4 paper gets 2x3 and 3x2.
MIXED_MODES = (
    (Mode(BASE_PX), 24),
    (Mode(BASE_PX, 2, 3), 16),
    (Mode(BASE_PX, 1, 2), 24),
    (Mode(BASE_PX, 3, 2), 16),
    (Mode(BASE_PX, 2, 2), 20),
)


@dataclass(frozen=True)
class TrainSettings:
    """A run ends `seconds` after its start, compilation included, or after `steps` if that comes first.

    The schedule follows the clock from the first step on, so a run of any length cools down fully.
    """

    out: Path
    seconds: float
    steps: int = 10**9
    start_from: Path | None = None
    seed: int = 1
    batch: int = 128
    learning_rate: float = 8e-4
    final_rate: float = 0.02  # as a share of the peak
    warm_up_steps: int = 400
    weight_decay: float = 0.05
    balance_weight: float = 0.01
    reading_weight: float = 1.0  # of the dense supervision at the start; it fades to the floor
    reading_floor: float = 0.15
    first_difficulty: float = 0.25
    full_difficulty_at: float = 0.35
    mixed_every: int = 0  # every so many steps one of larger views; 0: Small only
    pool_pages: int = 6144
    workers: int = 15
    checkpoint_seconds: float = 150.0
    evaluation_pages: int = 64
    device: str = "cuda"
    compiled: bool = True


@dataclass(frozen=True)
class Schedule:
    """Learning rate, difficulty and dense supervision as functions of progress 0..1."""

    settings: TrainSettings

    def rate(self, progress: float, step: int) -> float:
        s = self.settings
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        warm = min(1.0, (step + 1) / max(1, s.warm_up_steps))
        return s.learning_rate * warm * (s.final_rate + (1 - s.final_rate) * cosine)

    def difficulty(self, progress: float) -> float:
        s = self.settings
        return min(1.0, s.first_difficulty + (1 - s.first_difficulty) * progress / s.full_difficulty_at)

    def reading_weight(self, progress: float) -> float:
        return max(self.settings.reading_floor, self.settings.reading_weight - 1.2 * progress)


class Trainer:
    """Holds model, optimizer and data of one run."""

    def __init__(self, settings: TrainSettings) -> None:
        self.settings = settings
        self.schedule = Schedule(settings)
        self.started = time.monotonic()
        self.device = torch.device(settings.device)
        torch.manual_seed(settings.seed)
        self.model = build_model(CONFIG)
        if settings.start_from is not None:
            load_checkpoint(self.model, settings.start_from)
            self.model.readers_settling = not load_readers(self.model, settings.start_from)
        self.model.to(self.device)
        self.model.model.sam_model.neck.to(memory_format=torch.channels_last)
        if settings.compiled:
            torch._dynamo.config.recompile_limit = 64
            self.model.compile_blocks()
        decayed = [p for p in self.model.parameters() if p.requires_grad and p.dim() > 1]
        others = [p for p in self.model.parameters() if p.requires_grad and p.dim() <= 1]
        groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(
            groups,
            lr=settings.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=settings.weight_decay,
            fused=self.device.type == "cuda",
        )
        mixed = MIXED_MODES if settings.mixed_every else ()
        spare = len(mixed)
        self.feed = ChunkFeed(settings.seed, SMALL, max(1, settings.workers - spare))
        self.mixed_feeds = [ChunkFeed(settings.seed + 1000, mode, 1, batch) for mode, batch in mixed]
        before, after = prompt_ids()
        self.before = torch.tensor([before], device=self.device)
        self.after = torch.tensor([after], device=self.device)

    def losses(
        self, pixels: Tensor, characters: Tensor, targets: Tensor, tiles: tuple[Tensor, Tensor] | None = None
    ) -> Losses:
        count = targets.shape[0]
        if tiles is not None:
            tiles = (normalised(tiles[0], noisy=True), tiles[1])
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.model(
                normalised(pixels, noisy=True),
                characters,
                self.before.expand(count, -1),
                self.after.expand(count, -1),
                targets,
                token_id(PAD),
                tiles,
            )

    def mixed_losses(self, turn: int) -> Losses | None:
        """Losses of a batch of larger views, from whichever feed has one ready; None while none has."""
        for shift in range(len(self.mixed_feeds)):
            chunk = self.mixed_feeds[(turn + shift) % len(self.mixed_feeds)].take()
            if chunk is not None:
                return self.losses(*self._on_device(chunk))
        return None

    def _on_device(self, chunk: Chunk) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor] | None]:
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(self.device, non_blocking=True)

        tiles = None
        if chunk.tile_pixels is not None and chunk.tile_characters is not None:
            tiles = (move(chunk.tile_pixels), move(chunk.tile_characters))
        return move(chunk.pixels), move(chunk.characters), move(chunk.targets).long(), tiles

    def combined(self, losses: Losses, progress: float) -> Tensor:
        reading = self.schedule.reading_weight(progress) * losses.reading
        return losses.text + reading + self.settings.balance_weight * losses.balance

    def checkpoint(self, modes: tuple[str, ...], count: int) -> None:
        """Writes the weights, reads them back as a user would, and prints their scores."""
        save_checkpoint(self.model, self.settings.out)
        save_readers(self.model, self.settings.out)
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        copy = load_for_evaluation(self.settings.out, CONFIG, str(self.device), dtype)
        for mode in modes:
            small = mode == "small"
            pages = count if small else max(1, count // 4)
            print(f"  {mode}: {evaluate(copy, mode_named(mode), pages, 100 if small else 25)}", flush=True)

    def run(self) -> None:
        s = self.settings
        schedule = self.schedule
        for feed in (self.feed, *self.mixed_feeds):
            feed.difficulty.value = s.first_difficulty
        first = self.feed.get()
        pool = PagePool(s.pool_pages, first, self.device)
        pool.add(first)
        while pool.added < 2 * s.batch:
            pool.add(self.feed.get())
        # Compilation happens here, so that the schedule's clock does not count it.
        began = time.monotonic()
        self.combined(self.losses(*pool.draw(s.batch)), 0.0).backward()
        self.optimizer.zero_grad(set_to_none=True)
        began_training = time.monotonic()
        print(f"compiled in {began_training - began:.0f} s, pool {pool.added}", flush=True)
        if s.compiled:
            # Larger views run uncompiled: each shape would cost more to compile than it gives back.
            torch.compiler.set_stance("eager_on_recompile")
        modes = ("small", "base", "gundam-2x3", "gundam-2x2") if s.mixed_every else ("small",)
        seconds = s.seconds - (began_training - self.started)
        last_checkpoint = last_report = time.monotonic()
        step = reported = 0
        while True:
            progress = max((time.monotonic() - began_training) / seconds, step / s.steps)
            if progress >= 1:
                break
            for feed in (self.feed, *self.mixed_feeds):
                feed.difficulty.value = schedule.difficulty(progress)
            if step == s.warm_up_steps:
                self.model.readers_settling = False
            for chunk in self.feed.ready():
                pool.add(chunk)
            # Three of four steps with the rounded frequencies of published loading, one with exact ones.
            self.model.set_rotary(rounded=step % 4 != 0)
            losses = self.mixed_losses(step // s.mixed_every) if self._mixed(step) else None
            losses = losses or self.losses(*pool.draw(s.batch))
            self.combined(losses, progress).backward()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            for group in self.optimizer.param_groups:
                group["lr"] = schedule.rate(progress, step)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % 100 == 0 or step == 1:
                values = [each.item() for each in (losses.text, losses.reading, losses.balance, norm)]
                now = time.monotonic()
                rate = (step - reported) * s.batch / (now - last_report)
                text = "text {:.3f} reading {:.3f} balance {:.2f} norm {:.2f}".format(*values)
                print(f"step {step} {progress:.3f} {text} pages/s {rate:.0f} drawn {pool.added}", flush=True)
                last_report, reported = now, step
            if time.monotonic() - last_checkpoint > s.checkpoint_seconds:
                self.checkpoint(("small",), s.evaluation_pages)
                last_checkpoint = last_report = time.monotonic()
                reported = step
        for feed in (self.feed, *self.mixed_feeds):
            feed.close()
        trained = time.monotonic() - began_training
        print(f"trained {step} steps in {trained:.0f} s, {pool.added} pages drawn", flush=True)
        self.checkpoint(modes, max(s.evaluation_pages, 200) if s.steps > 100 else s.evaluation_pages)

    def _mixed(self, step: int) -> bool:
        every = self.settings.mixed_every
        return every > 0 and step % every == 0
