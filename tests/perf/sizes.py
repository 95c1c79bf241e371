"""Times the first readings of pages of new sizes in a warm process, beyond that of a known size.

    python -m tests.perf.sizes --infer.max-new-tokens 20 --engine fast --checkpoint random:CONFIG

Prints for each size the fastest of its later readings, and what the first three take beyond it: in all, and
as preprocessing and prefill are timed.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path

from jsonargparse import ArgumentParser

from dsocr_core.base.paths import Temporary
from dsocr_core.cli.options import add_settings, settings_of
from dsocr_core.measure.synthetic_page import draw_page
from dsocr_core.models.stages import Stage
from dsocr_core.read.session import Session
from dsocr_core.reading.records import OcrRequest

KNOWN = (1240, 1754)
SIZES = (
    (1000, 1400), (1300, 700), (900, 900), (640, 1900), (2100, 900), (1500, 2100), (1900, 1900), (1240, 1000),
)  # fmt: skip
FIRST, READINGS = 3, 8
Times = tuple[float, float, float]  # milliseconds in all, of preprocessing, of prefill


def read(session: Session, request: OcrRequest) -> Times:
    """Read a page once."""
    began = time.perf_counter()
    result = session.side("a").read(request)
    whole = 1e3 * (time.perf_counter() - began)
    preprocess, prefill = (result.milliseconds(stage) or 0.0 for stage in (Stage.PREPROCESS, Stage.PREFILL))
    return whole, preprocess, prefill


def build_parser() -> ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(description="Time the first readings of pages of new sizes.")
    add_settings(parser)
    return parser


def main() -> int:
    """Time them."""
    parser = build_parser()
    settings = settings_of(parser.instantiate(parser.parse_args()))
    with Temporary("sizes") as folder, closing(Session(settings)) as session:
        for number, size in enumerate((KNOWN, *SIZES)):
            page = draw_page(Path(folder) / f"page{number}.png", size, number)
            request = settings.request(page, page.name)
            times = [read(session, request) for _ in range(READINGS)]
            steady = min(times[FIRST:])
            extra = (
                f"{whole - steady[0]:7.1f} ({preprocess - steady[1]:.1f}, {prefill - steady[2]:.1f})"
                for whole, preprocess, prefill in times[:FIRST]
            )
            print(f"{size[0]:5} x {size[1]:4} {steady[0]:8.1f} ms, and" + ",".join(extra), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
