"""Causes of the further models, planted on small random checkpoints and found from the text alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from dsocr_core.models.blocks.attention import eager_core
from dsocr_core.models.family import MODELS
from dsocr_core.page.documents import Page
from dsocr_core.reading.records import OcrRequest
from dsocr_core.settings import InferSettings, Settings
from dsocr_core.trace.why.attempt import _Spanned
from dsocr_core.trace.why.exclude import Page as Facts
from dsocr_core.trace.why.exclude import page_of
from dsocr_core.trace.why.match import Other
from dsocr_core.trace.why.run import why
from dsocr_core.trace.why.search import Budget
from tests.support.both_backends import noise_page
from tests.support.planted_causes import MemoReader
from tests.support.seeded_weights import tiny_ocr2_config, tiny_unlimited_config, write_seeded_checkpoint

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
    hypotheses = {each.name: each for each in reader.settings.family.hypotheses}
    usual = reader.read(reader.attempt(page))
    planted = reader.read(reader.attempt(page).changed(hypotheses[name].change))
    assert planted.text != usual.text, "it changes nothing here"
    answer = why(reader.settings, [page], lambda _: Other("b", planted.text), Budget(60, 1e6), reader=reader)
    cause = answer.pages[0].finding.cause
    return () if cause is None else cause.names


@pytest.mark.parametrize(
    ("model", "preset", "name"),
    [
        ("unlimited_ocr", "base", "full-attention"),
        ("unlimited_ocr", "base", "window-over-prompt"),
        ("unlimited_ocr", "base", "newline"),
        ("deepseek_ocr2", "768", "causal-encoder"),
    ],
)
def test_a_cause_is_found_from_the_text_alone(reads: Reads, model: str, preset: str, name: str) -> None:
    assert found(*reads(model, preset), name) == (name,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "preset", "name"),
    [
        *(
            ("unlimited_ocr", "gundam", name)
            for name in (
                "full-attention", "window-1", "window+1", "window-half", "window-double",
                "window-over-prompt", "newline", "grounding", "newline-grounding", "roles", "tiles-6",
                "no-tiles", "rotary-bf16",
            )
        ),
        *(("unlimited_ocr", "base", name) for name in ("ngram-off", "ngram-20", "tiles-9", "tiles-32")),
        *(
            ("deepseek_ocr2", "default", name)
            for name in ("ngram-30-90", "no-newline", "roles", "causal-encoder", "tiles-640", "one-768")
        ),
    ],
)  # fmt: skip
def test_each_cause_that_changes_the_text_is_found(reads: Reads, model: str, preset: str, name: str) -> None:
    assert found(*reads(model, preset), name) == (name,)


@pytest.mark.parametrize("name", ["window-over-prompt", pytest.param("page-order", marks=pytest.mark.slow)])
def test_a_cause_of_pages_in_one_prompt_is_found(reads: Reads, tmp_path: Path, name: str) -> None:
    reader, first = reads("unlimited_ocr", "base")
    document = replace(first, more=(noise_page(tmp_path, 700, 300),))
    assert found(reader, document, name) == (name,)


def test_pages_are_turned_if_one_of_them_is(tmp_path: Path) -> None:
    upright, turned = noise_page(tmp_path, 700, 300), tmp_path / "turned.png"
    with Image.open(upright) as image:
        exif = image.getexif()
        exif[ExifTags.Base.Orientation] = 6
        image.save(turned, exif=exif)
    assert page_of([upright, turned]) == Facts(700, 300, turned=True, swapped=False)
    assert page_of([turned]) == Facts(700, 300, turned=True, swapped=True)


def test_a_span_is_cut_out_of_all_keys() -> None:
    """Against attention over the keys that it is to see, laid out by hand."""
    draw = np.random.default_rng(0)
    keys, values, query = (
        torch.from_numpy(draw.standard_normal((1, 2, count, 4))).float() for count in (9, 9, 1)
    )
    for keeps_prompt, places in ((True, [0, 1, 2, 6, 7, 8]), (False, [6, 7, 8])):
        core = _Spanned(eager_core, 3, keeps_prompt)
        core(keys[:, :, :3], keys[:, :, :3], values[:, :, :3])  # the prompt
        expected = eager_core(query, keys[:, :, places], values[:, :, places])
        assert torch.equal(core(query, keys, values), expected)


def test_other_engines_presets_are_read_and_not_offered() -> None:
    request = OcrRequest(Path("p"), "gundam-9", model="unlimited_ocr")
    assert request.resolution.max_tiles == 9 and request.resolution.tile_size == 640
    row = MODELS["deepseek_ocr2"]
    assert "default-640" not in row.presets and row.others["default-640"].image_size == 640
