"""The reduced published code of Unlimited-OCR: its ring, its rule, and three pages of one prompt."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from PIL import Image

from dsocr_core.page.tiling import crop_grid
from dsocr_core.reading.parity import parity
from dsocr_core.settings import Settings
from tests.support.both_backends import noise_page, open_backends
from tests.support.paths import MINI
from tests.support.seeded_weights import tiny_unlimited_config, write_seeded_checkpoint

WINDOW = 8
PACKAGE = "reference_unlimited_code"
CODE = Path(__file__).parents[1] / "support" / "published_unlimited"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """The remote code as a plain module, with its relative imports working."""
    if PACKAGE not in sys.modules:
        package = ModuleType(PACKAGE)
        package.__path__ = [str(MINI), str(CODE)]
        sys.modules[PACKAGE] = package
    return importlib.import_module(f"{PACKAGE}.modeling_unlimitedocr")


def test_the_ring_lays_generated_keys_out_by_slot(reference: ModuleType) -> None:
    """A window of 4 behind a prompt of 3: y5 takes y1's slot, y9 y5's; the position goes on."""
    cache = reference.RingCache(4)
    keys = [torch.zeros(1, 1, 3, 1)] + [torch.full((1, 1, 1, 1), float(y)) for y in range(1, 10)]
    seen = []
    for step in keys:
        for layer in (0, 1):
            found, _ = cache.update(step, step, layer)
        seen.append(found.flatten().tolist())
    assert seen[4] == [0, 0, 0, 1, 2, 3, 4] and seen[5] == [0, 0, 0, 5, 2, 3, 4]
    assert seen[9] == [0, 0, 0, 9, 6, 7, 8] and cache.get_seq_length() == 12


@pytest.mark.parametrize(("window", "banned"), [(6, True), (5, False)])
def test_an_n_gram_is_forbidden_where_it_lies_within_the_window(
    reference: ModuleType, window: int, banned: bool
) -> None:
    """A loop of 3 ids with n-grams of 4: 3 + 4 - 1 ids must be in sight."""
    ids = torch.tensor([[9, 9, 1, 2, 3, 1, 2, 3]])
    scores = reference.WindowRule(4, window)(ids, torch.zeros(1, 10))
    assert (scores[0, 1].item() == -float("inf")) == banned
    assert torch.isinf(scores).sum() == banned


def test_grids_of_up_to_32_tiles_are_the_engines(reference: ModuleType) -> None:
    sizes = [(w, h) for w in (300, 641, 1000, 1240, 2550) for h in (400, 640, 1000, 1754, 3508)]
    assert [reference.choose_grid(*size) for size in sizes] == [crop_grid(*size, 32) for size in sizes]


def test_a_page_is_written_as_published(reference: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    text = "<|det|>image [0, 0, 500, 500]<|/det|>a<|ref|>text<|/ref|><|det|>[[0, 0, 9, 9]]<|/det|>b"
    made, boxed = reference.processed(text, Image.new("RGB", (999, 999)), tmp_path, "page_1_")
    assert made == "![](images/page_1_0.jpg)\nab" and boxed.size == (999, 999)
    assert [file.name for file in (tmp_path / "images").iterdir()] == ["page_1_0.jpg"]


@pytest.mark.slow
@pytest.mark.parametrize("window", [4, 16, 128])
def test_300_steps_are_equal_at_any_window(tmp_path: Path, interpreter: Path, window: int) -> None:
    directory = write_seeded_checkpoint(tiny_unlimited_config(window), tmp_path / "unlimited")
    request = Settings(checkpoint=str(directory), preset="base").request(noise_page(tmp_path, 500, 700))
    with open_backends(directory, "cpu", "float32", interpreter) as sides:
        a, b = (side.recognize(replace(request, max_new_tokens=300)) for side in sides)
    assert a.token_ids == b.token_ids and len(a.required_tokens) == 300
    logits = [torch.tensor([step.logits for step in each.top_two]) for each in (a, b)]
    torch.testing.assert_close(*logits, rtol=0, atol=1e-5)


def test_three_pages_in_one_prompt_are_read_alike_past_the_rings_turn(
    tmp_path: Path, interpreter: Path
) -> None:
    directory = write_seeded_checkpoint(tiny_unlimited_config(WINDOW), tmp_path / "unlimited")
    pages = [noise_page(tmp_path, 300 + 50 * number, 400) for number in range(3)]
    request = Settings(checkpoint=str(directory)).request(pages[0], more=tuple(pages[1:]))
    request = replace(request, max_new_tokens=3 * WINDOW)
    with open_backends(directory, "cpu", "float32", interpreter) as (ours, vendor):
        a, b = ours.recognize(request), vendor.recognize(request)
    report = parity(a, b)
    assert len(a.required_inputs.prompt_ids) > 3 * 273 and len(a.required_tokens) > 2 * WINDOW
    assert (report.verdict, report.tokens_equal, report.input_parity) == ("identical", True, True), (
        report.reasons
    )
    assert a.sizes == b.sizes == ((300, 400), (350, 400), (400, 400))
