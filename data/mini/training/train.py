"""The training run: curriculum, fading dense supervision, checkpoints by the clock."""

import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from data.mini.training.data import Batch, ChunkFeed, PagePool, Portion, chunk_pages, normalised, prompt_ids
from data.mini.training.export import load_checkpoint, load_readers, save_checkpoint, save_readers
from data.mini.training.markup import Prompt
from data.mini.training.model import Cells, Losses, build_model
from data.mini.training.ranks import FlatGradients, join_ranks
from data.mini.training.views import BASE, GUNDAM, LARGE, SMALL, TINY, Mode

CONFIG = Path(__file__).parents[1] / "config.json"
AGREE_EVERY = 10  # steps between two looks at the first process's clock
REPORT_EVERY = 200
PROMPT = 64  # tokens around an image and its answer, at most


# Between them these bring up everything that is compiled: both sides of a view, with crops and without.
COMPILED = (SMALL, BASE, next(mode for mode in GUNDAM if mode.name == "gundam-2x2"))


def pages_of_a_grid(mode: Mode) -> int:
    """Count the pages with crops of a step: 48 to 96 tiles, tiles and pages as `views_at_once` has them."""
    return {6: 16, 9: 8}.get(mode.columns * mode.rows, 24)


PAGES: dict[Mode, int] = {
    TINY: 240,
    SMALL: 120,
    BASE: 24,
    LARGE: 8,
    **{mode: pages_of_a_grid(mode) for mode in GUNDAM},
}
# The largest grid has the fewest pages a step and the most to learn.
_GRID_SHARES = {mode: 2 if mode.columns * mode.rows == 9 else 1 for mode in GUNDAM}
# Every process trains the same mode at the same time, so that none waits for another. Small is read by most
# users and had most of the first runs; the larger views have most to learn.
SHARES: dict[Mode, float] = {
    SMALL: 0.2,
    TINY: 0.01,
    BASE: 0.27,
    LARGE: 0.02,
    **{mode: 0.5 * share / sum(_GRID_SHARES.values()) for mode, share in _GRID_SHARES.items()},
}


def portions(only: str = "", size: float = 1.0) -> tuple[Portion, ...]:
    """Each mode's pages a step, times `size`, and its share; `only` keeps the modes whose name starts so.

    Raises ValueError when no mode is left.
    """
    kept = [mode for mode in SHARES if mode.name.startswith(only)]
    if not kept:
        raise ValueError(f"{only}: no mode of that name")
    return tuple(Portion(mode, max(1, round(PAGES[mode] * size)), SHARES[mode]) for mode in kept)


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
    only: str = ""  # the modes whose name starts so; all where empty
    size: float = 1.0  # of a step against the usual number of pages
    learning_rate: float = 8e-4
    final_rate: float = 0.02  # as a share of the peak
    warm_up_steps: int = 400
    weight_decay: float = 0.05
    balance_weight: float = 0.01
    reading_weight: float = 1.0  # of the dense supervision at the start; it fades to the floor
    reading_floor: float = 0.5
    first_difficulty: float = 0.25
    full_difficulty_at: float = 0.35
    fine_print: float = 0.35  # of the pages, beside what is small by chance
    free_ocr_share: float = 0.4
    pool_chunks: int = 96
    workers: int = 15
    checkpoint_seconds: float = 240.0
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
    """One process's model, optimizer and data."""

    def __init__(self, settings: TrainSettings) -> None:
        self.settings = settings
        self.schedule = Schedule(settings)
        self.started = time.monotonic()
        self.ranks = join_ranks(settings.device)
        self.device = self.ranks.device
        torch.manual_seed(settings.seed)  # equal weights in every process
        self.model = build_model(CONFIG)
        if settings.start_from is not None:
            load_checkpoint(self.model, settings.start_from)
            self.model.readers_settling = not load_readers(self.model, settings.start_from)
        torch.manual_seed(1000 * settings.seed + self.ranks.rank)  # other noise and pages in each
        self.order = random.Random(f"{settings.seed}")  # the same modes in each, so that none waits
        self.model.to(self.device)
        self.model.model.sam.neck.to(memory_format=torch.channels_last)
        if settings.compiled:
            torch._dynamo.config.recompile_limit = 64
            torch._dynamo.config.automatic_dynamic_shapes = False
            self.model.compile_blocks()
        trained = [p for p in self.model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in trained if p.dim() > 1]},
            {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups,
            lr=settings.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=settings.weight_decay,
            fused=self.device.type == "cuda",
        )
        self.gradients = FlatGradients(self.model)
        self.portions = portions(settings.only, settings.size)
        lengths = [each.mode.image_tokens + each.mode.longest_target for each in self.portions]
        self.model.prepare_rotary(max(lengths) + PROMPT)
        seed = f"{settings.seed}-{self.ranks.rank}"
        self.feed = ChunkFeed(
            seed, self.portions, settings.workers, settings.first_difficulty, settings.fine_print
        )
        self.pools = [
            PagePool(settings.pool_chunks * chunk_pages(each.mode), self.device) for each in self.portions
        ]
        (before,) = {tuple(prompt_ids(prompt)[0]) for prompt in Prompt}  # the image comes first in all
        self.before = torch.tensor([before], device=self.device)

    def losses(self, batch: Batch) -> Losses:
        count = batch.targets.shape[0]
        local = None if batch.local_pixels is None else normalised(batch.local_pixels, noisy=True)
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.model(
                normalised(batch.pixels, noisy=True),
                Cells(batch.characters, batch.places),
                self.before.expand(count, -1),
                batch.read,
                batch.targets,
                local,
            )

    def learn(self, batch: Batch, reading_weight: float = 1.0) -> Tensor:
        """Adds a batch's gradients; text, reading and balance loss as (3,), detached."""
        losses = self.losses(batch)
        balance = self.settings.balance_weight * losses.balance
        (losses.text + reading_weight * losses.reading + balance).backward()
        return torch.stack([losses.text, losses.reading, losses.balance]).detach()

    def draw(self, portion: Portion, longest: int | None = None) -> Batch:
        """A batch of the portion's mode under either prompt, its answers cut at `longest`."""
        free = self.order.random() < self.settings.free_ocr_share
        prompt = Prompt.FREE_OCR if free else Prompt.GROUNDING
        mode, pool = portion.mode, self.pools[self.portions.index(portion)]
        # Of the sequence, beside the answer, whose last token is written and not read.
        others = mode.image_tokens + sum(map(len, prompt_ids(prompt))) - 1
        return pool.draw(portion.batch, prompt, others, self.order, longest)

    def compile(self) -> None:
        """Runs what will be compiled, so that the schedule's clock does not count it.

        Lengths are open to the decoder, yet some are compiled apart: the shortest and longest bring them up.
        """
        began = time.monotonic()
        while any(p.added < 2 * q.batch for p, q in zip(self.pools, self.portions, strict=True)):
            index, chunk = self.feed.get()
            self.pools[index].add(chunk)
        filled = time.monotonic() - began
        compiled = [portion for portion in self.portions if portion.mode in COMPILED]
        settling = self.model.readers_settling
        for state in dict.fromkeys((False, settling)):  # it changes once on the way
            self.model.readers_settling = state
            for portion in compiled:
                for longest in (1, portion.mode.longest_target):
                    self.learn(self.draw(portion, longest))
        took = time.monotonic() - began - filled
        if self.settings.compiled:
            # A shape that comes up later runs uncompiled: its compilation would hold up every process.
            torch.compiler.set_stance("eager_on_recompile")
        self.gradients.clear()
        print(f"process {self.ranks.rank}: pools {filled:.0f} s, compiled {took:.0f} s", flush=True)

    def run(self) -> None:
        s = self.settings
        self.compile()
        self.ranks.wait()
        began = last_checkpoint = last_report = time.monotonic()
        seconds = s.seconds - (began - self.started)
        progress = 0.0
        step = seen = 0
        shares = [portion.share for portion in self.portions]
        self.order.seed(f"{s.seed}")  # whatever was drawn so far
        while True:
            if step % AGREE_EVERY == 0:
                progress = self.ranks.share(max((time.monotonic() - began) / seconds, step / s.steps))
                if progress >= 1:
                    break
                self.feed.difficulty.value = self.schedule.difficulty(progress)
                save = self.ranks.share(float(time.monotonic() - last_checkpoint > s.checkpoint_seconds))
                if save:
                    self.save()
                    last_checkpoint = time.monotonic()
            if step == s.warm_up_steps:
                self.model.readers_settling = False
            for index, chunk in self.feed.ready():
                self.pools[index].add(chunk)
            portion = self.order.choices(self.portions, shares)[0]
            # Three of four steps with the rounded frequencies of published loading, one with exact ones.
            self.model.set_rotary(rounded=step % 4 != 0)
            losses = self.learn(self.draw(portion), self.schedule.reading_weight(progress))
            self.ranks.average(self.gradients.values)
            norm = self.gradients.clip(1.0)
            for group in self.optimizer.param_groups:
                group["lr"] = self.schedule.rate(progress, step)
            self.optimizer.step()
            self.gradients.clear()
            step += 1
            seen += portion.batch
            if step % REPORT_EVERY == 0 or step in (1, 50):
                elapsed = time.monotonic() - last_report
                self.report(step, progress, losses, norm, seen / elapsed)
                last_report, seen = time.monotonic(), 0
        self.feed.close()
        trained = time.monotonic() - began
        drawn = ", ".join(
            f"{p.mode.name} {pool.added}" for p, pool in zip(self.portions, self.pools, strict=True)
        )
        done = f"{step} steps in {trained:.0f} s"
        print(f"process {self.ranks.rank}: {done}; pages drawn {drawn}", flush=True)
        self.save()
        self.ranks.wait()
        self.ranks.close()

    def save(self) -> None:
        """Writes the weights and, beside them, the readers; the first process does it for all."""
        if self.ranks.first:
            save_checkpoint(self.model, self.settings.out)
            save_readers(self.model, self.settings.out)

    def report(self, step: int, progress: float, losses: Tensor, norm: Tensor, rate: float) -> None:
        """A line of every process's losses, pages a second and pages drawn."""
        drawn = sum(pool.added for pool in self.pools)
        mine = [*losses.tolist(), rate, drawn]
        every = self.ranks.gather(torch.tensor(mine, device=self.device)).tolist()
        if self.ranks.first:
            columns = "  ".join(
                "text {:.3f} read {:.3f} bal {:.2f} {:.0f}/s of {:.0f}".format(*row) for row in every
            )
            print(f"step {step} {progress:.3f} norm {norm.item():.2f} | {columns}", flush=True)
