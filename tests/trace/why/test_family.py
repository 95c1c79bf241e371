"""Causes of the further models, planted on small random checkpoints and found from the text alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import ExifTags, Image

from dsocr_core.models.hypotheses import hypotheses_of
from dsocr_core.page.documents import Page
from dsocr_core.settings import InferSettings, Settings
from dsocr_core.trace.why.exclude import Page as Facts
from dsocr_core.trace.why.exclude import page_of
from dsocr_core.trace.why.match import SideB
from dsocr_core.trace.why.run import why
from dsocr_core.trace.why.search import Budget
from tests.support.seeded_weights import tiny_ocr2_config, tiny_unlimited_config, write_seeded_checkpoint
from tests.trace.why.planted_causes import MemoReader
from tests.vendor.both_backends import noise_page

CONFIGS = {"deepseek_ocr2": tiny_ocr2_config, "unlimited_ocr": tiny_unlimited_config}
Reads = Callable[[str, str], tuple[MemoReader, Page]]


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Reads:
    """A reader of a model under a preset, and a page; each setting is read once for all tests."""
    folder, made = tmp_path_factory.mktemp("family"), dict[tuple[str, str], MemoReader]()

    def reader_of(model: str, preset: str) -> tuple[MemoReader, Page]:
        size = (900, 1900) if preset in ("gundam", "default") else (500, 700)
        if (model, preset) not in made:
            checkpoint = folder / model
            if not checkpoint.exists():
                write_seeded_checkpoint(CONFIGS[model](), checkpoint, torch.float32)
            infer = InferSettings(max_new_tokens=60)
            made[model, preset] = MemoReader(
                Settings(str(checkpoint), preset, infer=infer, device="cpu", dtype="float32")
            )
        return made[model, preset], Page(noise_page(folder, *size), "page")

    return reader_of


def found(reader: MemoReader, page: Page, name: str) -> Sequence[str]:
    """Names of the causes found where one is planted."""
    hypotheses = {each.name: each for each in hypotheses_of(reader.settings.family.name)}
    usual = reader.read(reader.attempt(page))
    planted = reader.read(reader.attempt(page).changed(hypotheses[name].change))
    assert planted.text != usual.text, "it changes nothing here"
    answer = why(reader.settings, [page], lambda _: SideB("b", planted.text), Budget(60, 1e6), reader=reader)
    cause = answer.pages[0].finding.cause
    return () if cause is None else cause.names


SLOW = {
    ("unlimited_ocr", "gundam"): (
        "full-attention", "newline", "grounding", "newline-grounding", "roles", "tiles-6", "no-tiles",
        "rotary-bf16",
    ),
    ("unlimited_ocr", "base"): ("ngram-off", "ngram-20", "tiles-32"),
    ("deepseek_ocr2", "default"): ("ngram-30-90", "no-newline", "roles", "causal-encoder", "one-768"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "preset", "name"),
    [
        ("unlimited_ocr", "base", "full-attention"),
        ("unlimited_ocr", "base", "newline"),
        ("deepseek_ocr2", "768", "causal-encoder"),
        *(pytest.param(*of, name, marks=pytest.mark.slow) for of, names in SLOW.items() for name in names),
    ],
)
def test_a_cause_is_found_from_the_text_alone(reads: Reads, model: str, preset: str, name: str) -> None:
    assert found(*reads(model, preset), name) == (name,)


@pytest.mark.slow
def test_pages_in_the_opposite_order_are_found(reads: Reads, tmp_path: Path) -> None:
    reader, first = reads("unlimited_ocr", "base")
    document = replace(first, more=(noise_page(tmp_path, 700, 300),))
    assert found(reader, document, "page-order") == ("page-order",)


def test_pages_are_turned_if_one_of_them_is(tmp_path: Path) -> None:
    upright, turned = noise_page(tmp_path, 700, 300), tmp_path / "turned.png"
    with Image.open(upright) as image:
        exif = image.getexif()
        exif[ExifTags.Base.Orientation] = 6
        image.save(turned, exif=exif)
    assert page_of([upright, turned]) == Facts(700, 300, turned=True, swapped=False)
    assert page_of([turned]) == Facts(700, 300, turned=True, swapped=True)
