"""A long run over pages of mixed sizes: does memory stay flat, and how many pages a second are read?

    python -m tests.perf.soak --pages 2000 --infer.max-new-tokens 200 --engine fast --checkpoint random:CONFIG

Draws pages from thin to wide and from small to large, links each under many names, and reads them as `run`
does, into a run directory that is thrown away. The last line is one JSON document; the exit code is 1 when a
page failed or memory grew.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import torch
from jsonargparse import ArgumentParser

from dsocr_core.backends.backend import Opening
from dsocr_core.base.paths import Temporary
from dsocr_core.cli.options import add_settings, settings_of
from dsocr_core.measure.synthetic_page import draw_page
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.progress import Progress
from dsocr_core.read.run import read_run
from dsocr_core.read.session import Session

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


class Watch(Progress):
    """Counts pages; `samples` are (pages, bytes of the process, bytes that torch reserves of the device)."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.samples: list[tuple[int, int, int]] = []
        self._every, self._pages, self._began = every, 0, time.perf_counter()

    def advance(self) -> None:
        super().advance()
        self._pages += 1
        if self._pages % self._every == 0:
            host = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            device = torch.cuda.memory_reserved() if torch.cuda.is_available() else 0
            self.samples.append((self._pages, host, device))
            rate, memory = self._pages / (time.perf_counter() - self._began), (host + device) / 1e9
            print(f"{self._pages:6} pages, {rate:6.2f} a second, {memory:.2f} GB", flush=True)


def is_flat(samples: Sequence[tuple[int, int, int]], pages: int) -> bool:
    """Tell whether neither memory grew after all sizes had come up."""
    settled = [sample for sample in samples if sample[0] >= SETTLED * pages] or samples[-1:]
    grown = [last - first for first, last in zip(settled[0][1:], settled[-1][1:], strict=True)]
    return grown[0] <= HOST_GROWTH and grown[1] <= DEVICE_GROWTH


def linked_pages(folder: Path, count: int) -> list[Path]:
    """Write that many page files of SIZES in turn, each drawn once."""
    folder.mkdir()
    drawn = [draw_page(folder / f"drawn-{n}.png", size, n) for n, size in enumerate(SIZES[:count])]
    paths = [folder / f"page-{number:05}.png" for number in range(count)]
    for number, path in enumerate(paths):
        os.link(drawn[number % len(drawn)], path)
    return paths


def build_parser() -> ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(description="Read many pages and watch whether memory stays flat.")
    parser.add_argument("--pages", type=int, default=2000, help="how many pages to read")
    add_settings(parser)
    return parser


def main() -> int:
    """Read the pages; 1 when one failed or memory grew."""
    parser = build_parser()
    chosen = parser.instantiate(parser.parse_args())
    watch = Watch(max(1, chosen.pages // SAMPLES))
    with Temporary("soak") as name:
        folder = Path(name)
        images = linked_pages(folder / "pages", chosen.pages)
        with closing(Session(settings_of(chosen), Opening(folder / "results"))) as session:
            session.load(("a",))
            began = time.perf_counter()
            report = read_run([session], RunPlan(tuple(images), folder / "run"), watch)
            seconds = time.perf_counter() - began
    flat = is_flat(watch.samples, chosen.pages)
    print(json.dumps({
        "pages": chosen.pages, "failed": report.failed, "pages_per_s": round(chosen.pages / seconds, 3),
        "flat": flat, "samples": watch.samples,
        "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))  # fmt: skip
    return int(bool(report.failed) or not flat)


if __name__ == "__main__":
    sys.exit(main())
