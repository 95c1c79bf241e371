"""The training run: curriculum, fading dense supervision, checkpoints by the clock."""

import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from data.mini.training.data import (
    Batch,
    ChunkFeed,
    PagePool,
    Portion,
    chunk_pages,
    normalised,
    prompt_ids,
)
from data.mini.training.export import load_checkpoint, load_readers, save_checkpoint, save_readers
from data.mini.training.host_time import HostTime
from data.mini.training.markup import Prompt
from data.mini.training.model import Cells, Losses, build_model
from data.mini.training.portions import COMPILED, portions
from data.mini.training.ranks import FlatGradients, join_ranks
from data.mini.training.recorded import RecordedSteps
from data.mini.training.views import Mode

CONFIG = Path(__file__).parents[1] / "config.json"
AGREE_EVERY = 10  # steps between two looks at the first process's clock
REPORT_EVERY = 200
PROMPT = 64  # tokens around an image and its answer, at most


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
    recorded: bool = True
    profile: bool = False


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


@dataclass(frozen=True)
class Kind:
    """Kind of a step: two of one kind differ in the batch alone."""

    mode: Mode
    readers_settling: bool


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
        # Of text, reading and balance, where a recorded step finds them.
        self.loss_weights = torch.tensor([1.0, 1.0, settings.balance_weight], device=self.device)
        self.learn = RecordedSteps(self.launch, self.device, settings.recorded)

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

    def launch(self, batch: Batch, _: Kind) -> Tensor:
        """Adds a batch's gradients; text, reading and balance loss as (3,), detached."""
        losses = self.losses(batch)
        each = torch.stack([losses.text, losses.reading, losses.balance])
        (each * self.loss_weights).sum().backward()
        return each.detach()

    def draw(self, portion: Portion, longest: int | None = None) -> tuple[Batch, Kind]:
        """A batch of the portion's mode under either prompt, its answers cut at `longest`."""
        free = self.order.random() < self.settings.free_ocr_share
        prompt = Prompt.FREE_OCR if free else Prompt.GROUNDING
        mode, pool = portion.mode, self.pools[self.portions.index(portion)]
        # Of the sequence, beside the answer, whose last token is written and not read.
        others = mode.image_tokens + sum(map(len, prompt_ids(prompt))) - 1
        batch = pool.draw(portion.batch, prompt, others, self.order, longest)
        return batch, Kind(mode, self.model.readers_settling)

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
                    self.launch(*self.draw(portion, longest))
        took = time.monotonic() - began - filled
        if self.settings.compiled:
            self._name_recompilations()
            # A shape that comes up later runs uncompiled: its compilation would hold up every process.
            torch.compiler.set_stance("eager_on_recompile")
        speeds = []
        for portion in self.portions:
            self._wait_for_device()
            started = time.monotonic()
            self.launch(*self.draw(portion))
            self._wait_for_device()
            speeds.append(1e3 * (time.monotonic() - started))
        if self.settings.profile and self.ranks.first:
            self._profile(compiled[0])
        self.gradients.clear()
        pages = ", ".join(
            f"{p.mode.name} {p.batch} in {ms:.0f} ms" for p, ms in zip(self.portions, speeds, strict=True)
        )
        print(
            f"process {self.ranks.rank}: pools {filled:.0f} s, compiled {took:.0f} s; a step {pages}",
            flush=True,
        )

    def _name_recompilations(self) -> None:
        """Says which modes run uncompiled from here on, at half the speed, and why."""
        torch.compiler.set_stance("fail_on_recompile")
        for portion in self.portions:
            try:
                self.launch(*self.draw(portion))
            except RuntimeError as error:
                why = str(error).split("guard failure(s):")[-1].strip().splitlines()[0]
                print(f"process {self.ranks.rank}: {portion.mode.name} is not compiled: {why}", flush=True)

    def _profile(self, portion: Portion) -> None:
        """Prints what one step spends its time on."""
        with torch.profiler.profile() as profile:
            self.launch(*self.draw(portion))
            self._wait_for_device()
        order = "self_cuda_time_total" if self.device.type == "cuda" else "self_cpu_time_total"
        print(profile.key_averages().table(sort_by=order, row_limit=30, max_name_column_width=70))

    def _wait_for_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def run(self) -> None:
        s = self.settings
        self.compile()
        self.ranks.wait()
        began = last_checkpoint = last_report = time.monotonic()
        seconds = s.seconds - (began - self.started)
        progress = 0.0
        step = seen = 0
        shares = [portion.share for portion in self.portions]
        spent = {name: HostTime() for name in ("feed", "draw", "learn")}
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
            with spent["feed"]:
                for index, chunk in self.feed.ready():
                    self.pools[index].add(chunk)
            portion = self.order.choices(self.portions, shares)[0]
            # Three of four steps with the rounded frequencies of published loading, one with exact ones.
            self.model.set_rotary(rounded=step % 4 != 0)
            self.loss_weights[1].fill_(self.schedule.reading_weight(progress))
            with spent["draw"]:
                batch, kind = self.draw(portion)
            with spent["learn"]:
                losses = self.learn(batch, kind)
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
                host = ", ".join(f"{name} {each.take():.1f} s" for name, each in spent.items())
                self.report(step, progress, losses, norm, seen / elapsed, f"of {elapsed:.1f} s {host}")
                last_report, seen = time.monotonic(), 0
        self.feed.close()
        trained = time.monotonic() - began
        drawn = ", ".join(
            f"{p.mode.name} {pool.added}" for p, pool in zip(self.portions, self.pools, strict=True)
        )
        done = f"{step} steps in {trained:.0f} s, {self.learn.recorded} kinds recorded"
        print(f"process {self.ranks.rank}: {done}; pages drawn {drawn}", flush=True)
        self.save()
        self.ranks.wait()
        self.ranks.close()

    def save(self) -> None:
        """Writes the weights and, beside them, the readers; the first process does it for all."""
        if self.ranks.first:
            save_checkpoint(self.model, self.settings.out)
            save_readers(self.model, self.settings.out)

    def report(
        self, step: int, progress: float, losses: Tensor, norm: Tensor, rate: float, host: str
    ) -> None:
        """A line of every process's losses, pages a second and pages drawn; one of the first one's host."""
        drawn = sum(pool.added for pool in self.pools)
        mine = [*losses.tolist(), rate, drawn]
        every = self.ranks.gather(torch.tensor(mine, device=self.device)).tolist()
        if self.ranks.first:
            columns = "  ".join(
                "text {:.3f} read {:.3f} bal {:.2f} {:.0f}/s of {:.0f}".format(*row) for row in every
            )
            print(f"step {step} {progress:.3f} norm {norm.item():.2f} | {columns}", flush=True)
            print(f"  host: {host}; {self.learn.recorded} kinds recorded", flush=True)
