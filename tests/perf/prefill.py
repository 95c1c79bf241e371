"""Times vision and prefill on a GPU: no page file, random weights and pixels.

    python -m tests.perf.prefill --config CONFIG --grid 2 2

Prints a page's milliseconds on the eager engine and on the fast one, with and without graphs and with several
pages a pass; `dsocr bench` has those of each stage.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from dsocr_core.engine.fast.engine import PAGES_A_PASS
from dsocr_core.engine.fast.ops import Ops
from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.engine.fast.vision import VisionTowers
from dsocr_core.models.blocks.attention import sdpa_core
from dsocr_core.models.family import load_config, preset_named
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from dsocr_core.page.tiling import NO_TILES
from tests.perf.prefill_variants import EagerVariant, FastVariant, Page, Variant
from tests.perf.rows import Rows, say

WARM_UP, REPEAT, TEXT_TOKENS = 2, 10, 35


def measure(rows: Rows, model: OcrModel, page: Page) -> None:
    """Time all variants: vision, fusion and prefill in a row."""
    prefill, towers = FastPrefill(model, Ops(kernels=True)), partial(VisionTowers, model, Ops(kernels=True))
    fast = partial(FastVariant, model, page, sdpa_core)
    makers: dict[str, tuple[int, Callable[[], Variant]]] = {
        "eager": (1, lambda: EagerVariant(model, page, sdpa_core)),
        "fast": (1, lambda: fast(towers(), prefill)),
        "fast, no graph": (1, lambda: fast(towers(), prefill, graphs=False)),
        f"fast, {PAGES_A_PASS} pages": (PAGES_A_PASS, lambda: fast(towers(), prefill, pages=PAGES_A_PASS)),
    }
    rows.table("vision and prefill")
    for name, (pages, make) in makers.items():
        variant = make()
        for _ in range(WARM_UP):
            variant.run()
        rows.row(name, variant.run, repeat=REPEAT, per=pages)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = argparse.ArgumentParser(description="Time vision and prefill, on a GPU.")
    parser.add_argument("--config", type=Path, required=True, help="config.json of the sizes to run")
    parser.add_argument("--preset", help="of the model (default: its usual one)")
    parser.add_argument("--grid", type=int, nargs=2, default=(2, 2), help="columns and rows of tiles")
    return parser


@torch.inference_mode()
def main() -> None:
    """Time them."""
    chosen = build_parser().parse_args()
    rows = Rows()
    model = random_model(load_config(chosen.config), rows.device, torch.bfloat16)
    preset = preset_named(chosen.preset or model.family.preset, model.family)
    grid = tuple(chosen.grid) if preset.crop_mode else NO_TILES
    page = Page.random(model.config, preset, grid, TEXT_TOKENS, rows.device)
    shapes = ", ".join("x".join(map(str, view.shape)) for view in page.views)
    say(f"views {shapes}; prompt {len(page.prompt.ids)} tokens")
    with torch.autocast("cuda", torch.bfloat16):
        measure(rows, model, page)


if __name__ == "__main__":
    main()
