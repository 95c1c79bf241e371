"""Each known difference of docs/parity.md: what the reference does as published, and what ours does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageChops

from dsocr_core.engine.base import EagerEngine, EngineOptions
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.models.stages import Stage
from dsocr_core.reading.markup import page_boxes, parse
from dsocr_core.reading.postprocess import crops, result_mmd
from dsocr_core.reading.records import OcrRequest
from dsocr_core.vendor.backend import VendorBackend
from dsocr_core.vendor.errors import VendorFailed
from tests.published.remote_code import remote_module
from tests.support.seeded_weights import byte_tokenizer, tiny_config, write_seeded_checkpoint

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, interpreter: Path
) -> Iterator[tuple[EagerEngine, VendorBackend]]:
    """Ours and the reference in its worker, float32, on one seeded checkpoint."""
    directory = write_seeded_checkpoint(tiny_config(), tmp_path_factory.mktemp("known") / "tiny")
    vendor = VendorBackend(
        directory, dtype="float32", interpreter=interpreter, trusted_directories=(directory,)
    )
    yield EagerEngine(load_checkpoint(str(directory), CPU, torch.float32), EngineOptions("eager")), vendor
    vendor.close()


def halves(size: tuple[int, int], path: Path) -> Path:
    """A page of that size, black on the left and white on the right: its normalised pixels sum to zero."""
    page = Image.new("RGB", size, "black")
    page.paste("white", (size[0] // 2, 0, *size))
    page.save(path)
    return path


def test_a_global_view_that_sums_to_zero_is_not_seen_by_the_published_code(
    sides: tuple[EagerEngine, VendorBackend], tmp_path: Path
) -> None:
    request = OcrRequest(halves((512, 512), tmp_path / "halves.png"), "tiny", max_new_tokens=8)
    ours, theirs = (side.recognize(request) for side in sides)
    assert ours.inputs.global_sha256 == theirs.inputs.global_sha256
    assert theirs.milliseconds(Stage.SAM) is None and theirs.milliseconds(Stage.PROJECTOR) is None
    assert ours.milliseconds(Stage.SAM) is not None
    other = OcrRequest(halves((510, 512), tmp_path / "other.png"), "gundam", max_new_tokens=8)
    ours, theirs = (side.recognize(other) for side in sides)  # padded with grey: a sum that is not zero
    assert theirs.milliseconds(Stage.SAM) is not None and ours.token_ids == theirs.token_ids


def test_tiles_that_sum_to_zero_are_no_tiles_to_the_published_code_which_then_fails(
    sides: tuple[EagerEngine, VendorBackend], tmp_path: Path
) -> None:
    request = OcrRequest(halves((1280, 640), tmp_path / "halves.png"), "gundam", max_new_tokens=4)
    ours, vendor = sides
    assert ours.recognize(request).inputs.grid == (2, 1)
    with pytest.raises(VendorFailed, match=r"halves\.png"):
        vendor.recognize(request)


def test_reversed_corners_are_put_in_order_here_and_not_drawn_by_the_published_code(tmp_path: Path) -> None:
    text = "<|ref|>image<|/ref|><|det|>[[600, 500, 300, 200], [10, 10, 20, 20]]<|/det|>"
    page = Image.new("RGB", (999, 999), "white")
    (tmp_path / "images").mkdir()
    drawn = remote_module("results").draw_boxes(page, [("image", [(600, 500, 300, 200)])], tmp_path)
    assert ImageChops.difference(drawn, page).getbbox() is None
    assert list((tmp_path / "images").iterdir()) == []
    spans = parse(text)
    first = page_boxes(spans, (999, 999))[0]
    assert (first.x1, first.y1, first.x2, first.y2) == (300, 200, 600, 500)
    assert first.coordinates == (600, 500, 300, 200)
    assert list(crops(spans, 999, 999)) == [1], "no crop, but its number is taken, as published"


def test_a_label_that_holds_another_ref_is_kept_and_said(tmp_path: Path) -> None:
    """The published pattern starts at the first `<|ref|>`; the inner one belongs to the label."""
    text = "<|ref|>a <|ref|>image<|/ref|><|det|>[[1, 2, 300, 400]]<|/det|>end"
    [span] = parse(text)
    [match] = remote_module("results").SPAN.finditer(text)
    assert span.label == match[1] == "a <|ref|>image"
    assert span.boxes == ((1, 2, 300, 400),)
    assert span.malformed == "<|ref|> inside a label"
    assert result_mmd(text) == remote_module("results").to_markdown(text, [match[0]])
    assert crops([span], 999, 999) == {}, "its link has no picture, as published"


@pytest.mark.parametrize(
    ("prompt", "text"), [("Free OCR.", "Free OCR.|Free OCR."), ("a<image>b<image>c", "a|c")]
)
def test_prompts_that_are_refused_here_mean_something_else_to_the_published_code(
    prompt: str, text: str
) -> None:
    tokenizer = byte_tokenizer()
    inputs = remote_module("image_inputs").prepare_inputs(
        tokenizer, prompt, Image.new("RGB", (50, 50)), 512, 512, False
    )
    runs = "".join("|" if image else chr(0) for image in inputs.images_seq_mask.tolist()[1:])
    words = tokenizer.decode(inputs.input_ids[1:][~inputs.images_seq_mask[1:]])
    assert words == text.replace("|", "") and "|" in runs
    assert runs.index("|") == text.index("|")
