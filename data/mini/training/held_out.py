"""Held-out pages: of a seed that training never uses, the same however many processes draw them."""

import itertools
import json
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from data.mini.training.data import pages
from data.mini.training.page import Block, Page
from data.mini.training.views import PRESETS, Bytes, Mode

SEED = "held-out"
MOST_WORKERS = 16
Result = TypeVar("Result")
Task = tuple[str, int]  # preset and the page's number in it


@dataclass(frozen=True)
class Shown:
    """A page as the model is shown it, with its truth.

    `whole` is the global view (P, P, 3), `local` the stretched page (640 rows, 640 columns, 3) where there
    are crops; `size` is the page's width and height in px. `part` names what is scored apart in a preset.
    """

    mode: Mode
    part: str
    blocks: tuple[Block, ...]
    size: tuple[int, int]
    whole: Bytes
    local: Bytes | None


def shown(page: Page, mode: Mode, part: str) -> Shown:
    views = mode.views(page)
    local = views.local.pixels if views.local is not None else None
    return Shown(mode, part, page.blocks, page.image.size, views.whole.pixels, local)


def held_out_mode(preset: str, index: int) -> Mode:
    """The pages of a preset go round its modes."""
    modes = PRESETS[preset]
    return modes[index % len(modes)]


def held_out_page(preset: str, index: int) -> Page:
    """Every page has a seed of its own, so that any process can draw any page."""
    return next(iter(pages(f"{SEED}-{index}", held_out_mode(preset, index))))


def held_out_shown(task: Task) -> Shown:
    preset, index = task
    mode = held_out_mode(preset, index)
    grid = f"{mode.columns}x{mode.rows}" if mode.cropped else ""
    return shown(held_out_page(preset, index), mode, grid)


def batches(preset: str, count: int, batch: int) -> list[list[Task]]:
    """The first `count` pages of a preset in batches of one mode each."""
    modes = len(PRESETS[preset])
    parted = []
    for first in range(modes):
        indices = range(first, count, modes)
        parted += [list(indices[at : at + batch]) for at in range(0, len(indices), batch)]
    return [[(preset, index) for index in indices] for indices in parted]


def default_workers() -> int:
    return min(MOST_WORKERS, os.cpu_count() or 1)


def in_processes(
    work: Callable[[Task], Result], tasks: Iterable[list[Task]], workers: int
) -> Iterator[list[Result]]:
    """The results of each batch of tasks in order; the next batch is worked on while one is used.

    With one worker nothing runs beside the caller.
    """
    if workers <= 1:
        for batch in tasks:
            yield [work(task) for task in batch]
        return
    # A fork of this process would take along the threads' locks of torch and CUDA.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(workers, context) as executor:
        waiting = deque[Iterator[Result]]()
        for batch in tasks:
            waiting.append(executor.map(work, batch))
            if len(waiting) > 1:
                yield list(waiting.popleft())
        while waiting:
            yield list(waiting.popleft())


def _name(task: Task) -> str:
    preset, index = task
    return f"{SEED}-{preset}-{index:04}.png"


@dataclass(frozen=True)
class _Writer:
    """Draws a page, saves it, and returns its entry of the truth."""

    directory: Path

    def __call__(self, task: Task) -> dict[str, object]:
        page = held_out_page(*task)
        page.image.save(self.directory / _name(task))
        width, height = page.image.size
        blocks = [{"label": each.label, "box": list(each.box), "text": each.text} for each in page.blocks]
        return {"width": width, "height": height, "blocks": blocks}


def write_held_out(preset: str, count: int, directory: Path, workers: int = 1) -> None:
    """Writes pages as PNG and `ground_truth.json` in the format of the sample pages; boxes in px."""
    directory.mkdir(parents=True, exist_ok=True)
    tasks = [(preset, index) for index in range(count)]
    entries = itertools.chain.from_iterable(in_processes(_Writer(directory), [tasks], workers))
    truth = {_name(task): entry for task, entry in zip(tasks, entries, strict=True)}
    text = json.dumps(truth, indent=1, ensure_ascii=False) + "\n"
    (directory / "ground_truth.json").write_text(text, encoding="utf-8")
