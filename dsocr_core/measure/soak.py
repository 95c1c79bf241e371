"""A long run over pages of mixed sizes, watched: does what it holds stay flat, and how fast is the backend?

    dsocr measure soak --pages 2000 --tokens 200 --engine fast --checkpoint random:CONFIG

Draws a few pages from thin to wide and from small to large, links each under many names, and runs them as
`run` does, into a run directory that is thrown away. Prints pages, pages a second and memory as it goes on.
The last line is one JSON document; the exit code is 1 when a page failed or memory grew.
"""

from __future__ import annotations

import os
import resource
import time
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from dsocr_core.backends.backend import Opening
from dsocr_core.base.console import FAILED, OK, print_json
from dsocr_core.base.temporary import Temporary
from dsocr_core.measure.synthetic_page import draw_page
from dsocr_core.read.pages import read_pages
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.progress import Progress
from dsocr_core.read.session import Session
from dsocr_core.reading.records import CancelToken
from dsocr_core.settings import Settings

SIZES = (
    (1280, 1280), (1240, 1754), (1654, 2339), (600, 500), (640, 640), (320, 900), (2000, 700), (900, 2400),
    (1700, 1100), (480, 640), (1024, 1400), (2480, 3508), (1500, 1500), (700, 1300), (3000, 1000),
    (1100, 800),
)  # fmt: skip
SAMPLES = 20
"""Number of times that memory is read."""

SETTLED = 0.3
"""Part of the pages after which nothing new is needed: every size has come up, every slot been used."""

HOST_GROWTH, DEVICE_GROWTH = 512 * 2**20, 256 * 2**20
"""Bytes that may come on top after that: what allocators keep varies by this."""


@dataclass(frozen=True)
class Sample:
    """Memory after so many pages: the process's, and what torch holds and reserves of the device."""

    pages: int
    seconds: float
    host_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class LongRun:
    pages: int
    passed: int
    failed: int
    seconds: float
    host_peak_bytes: int
    samples: tuple[Sample, ...]

    @property
    def flat(self) -> bool:
        settled = [sample for sample in self.samples if sample.pages >= SETTLED * self.pages]
        if len(settled) < 2:
            return True
        first, last = settled[0], settled[-1]
        return (
            last.host_bytes - first.host_bytes <= HOST_GROWTH
            and last.reserved_bytes - first.reserved_bytes <= DEVICE_GROWTH
        )


class _Watch(Progress):
    """Counts pages and reads the memory in use now and then."""

    def __init__(self, console: Console, every: int) -> None:
        super().__init__(Console(quiet=True))
        self.samples: list[Sample] = []
        self._console, self._every, self._pages, self._started = console, every, 0, time.perf_counter()

    def advance(self) -> None:
        super().advance()
        self._pages += 1
        if self._pages % self._every == 0:
            self.sample()

    def sample(self) -> None:
        cuda = torch.cuda.is_available()
        sample = Sample(
            self._pages,
            time.perf_counter() - self._started,
            _host_bytes(),
            torch.cuda.memory_allocated() if cuda else 0,
            torch.cuda.memory_reserved() if cuda else 0,
        )
        self.samples.append(sample)
        self._console.print(
            f"{sample.pages:6} pages, {sample.seconds:7.1f} s, {sample.pages / sample.seconds:6.2f} pages/s, "
            f"host {sample.host_bytes / 1e9:6.2f} GB, device {sample.allocated_bytes / 1e9:6.2f} GB held, "
            f"{sample.reserved_bytes / 1e9:6.2f} GB reserved",
            highlight=False,
        )


def long_run(
    settings: Settings, pages: int, batch: int | None, console: Console, cancel: CancelToken | None = None
) -> LongRun:
    """Run so many pages. Raises DsocrError; Cancelled when `cancel` is set."""
    with Temporary("many") as folder:
        images = linked_pages(Path(folder) / "pages", pages)
        watch = _Watch(console, max(1, pages // SAMPLES))
        with closing(Session(settings, Opening(Path(folder) / "results"))) as session:
            session.load(("a",))
            started = time.perf_counter()
            report = read_pages(
                session, RunPlan(tuple(images), Path(folder) / "run", batch=batch), watch, cancel=cancel
            )
            seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return LongRun(pages, report.passed + report.stopped, report.failed, seconds, peak, tuple(watch.samples))


def linked_pages(folder: Path, count: int) -> list[Path]:
    """So many page files of SIZES in turn, each drawn once."""
    folder.mkdir()
    drawn = [draw_page(folder / f"drawn-{n}.png", size, n) for n, size in enumerate(SIZES[:count])]
    paths = [folder / f"page-{number:05}.png" for number in range(count)]
    for number, path in enumerate(paths):
        os.link(drawn[number % len(drawn)], path)
    return paths


def _host_bytes() -> int:
    """Memory of this process now; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


def run(
    settings: Settings,
    *,
    pages: int = 2000,
    tokens: int = 200,
    batch: int | None = None,
    json: bool = False,
    console: Console,
    cancel: CancelToken,
) -> int:
    """Read many pages and watch whether memory stays flat. Ends with one line of JSON.

    Args:
        pages: how many pages to read
        tokens: new tokens of a page at most
        batch: pages that the fast engine reads together (default: all, up to 256)
    """
    infer = replace(settings.infer, max_new_tokens=tokens)
    found = long_run(replace(settings, infer=infer), pages, batch, console, cancel)
    console.print(
        f"{found.passed} passed, {found.failed} failed, {found.pages / found.seconds:.2f} pages/s, memory "
        f"{'flat' if found.flat else 'grew'}, host's peak {found.host_peak_bytes / 1e9:.2f} GB",
        highlight=False,
    )
    print_json(asdict(found) | {"flat": found.flat})
    return OK if found.flat and not found.failed else FAILED
