"""The reduced published code of Unlimited-OCR: its ring, its rule, and three pages of one prompt."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from dsocr_core.reading.parity import compare_results
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


def test_three_pages_in_one_prompt_are_read_alike_past_the_rings_turn(
    tmp_path: Path, interpreter: Path
) -> None:
    directory = write_seeded_checkpoint(tiny_unlimited_config(WINDOW), tmp_path / "unlimited")
    pages = [noise_page(tmp_path, 300 + 50 * number, 400) for number in range(3)]
    request = Settings(checkpoint=str(directory)).request(pages[0], more=tuple(pages[1:]))
    request = replace(request, max_new_tokens=3 * WINDOW)
    with open_backends(directory, "cpu", "float32", interpreter) as (ours, vendor):
        a, b = ours.recognize(request), vendor.recognize(request)
    report = compare_results(a, b)
    assert len(a.required_inputs.prompt_ids) > 3 * 273 and len(a.required_tokens) > 2 * WINDOW
    assert (report.verdict, report.tokens_equal, report.input_parity) == ("identical", True, True), (
        report.reasons
    )
    assert a.sizes == b.sizes == ((300, 400), (350, 400), (400, 400))
