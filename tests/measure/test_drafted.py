"""Decoding with planted drafts, measured: what is held against what, and the picture of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image

from dsocr_core.backends.backend import Opening
from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import main
from dsocr_core.engine.fast.batch_kernels import PLAIN
from dsocr_core.engine.fast.batch_weights import BatchWeights
from dsocr_core.engine.fast.decode import FastDecoder
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.engine.page import PreparedPage
from dsocr_core.engine.source import OnResult, Source
from dsocr_core.measure import drafted_pages
from dsocr_core.measure.drafted import OnePage, Together, planted, run
from dsocr_core.measure.drafted_picture import predicted
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.records import OcrRequest
from dsocr_core.settings import Settings, SettingsError
from tests.support.results import make_result
from tests.support.small_decoder import FEW, small_model


@pytest.fixture(scope="module")
def model() -> OcrModel:
    return small_model(torch.bfloat16)


def test_errors_are_planted_by_their_share() -> None:
    true = tuple(range(1000))
    assert planted(true, 1.0, 5000) == true
    assert not set(zip(planted(true, 0.0, 5000), true, strict=True)) & set(zip(true, true, strict=True))
    right = sum(a == b for a, b in zip(planted(true, 0.9, 5000), true, strict=True))
    assert 870 < right < 930 and planted(true, 0.9, 5000) == planted(true, 0.9, 5000)


@torch.inference_mode()
def test_one_page_without_passes_is_its_own_equal(model: OcrModel) -> None:
    """Passes take minutes in the interpreter; tests/engine/fast holds them to single steps."""
    page = OnePage(model, FastDecoder(model, NO_TOKEN, torch.float32, FEW), 5, 4, 20)
    plain, right = page.gains((1.0,), 1)
    assert plain.right is None and plain.times == 1.0 and plain.tokens == right.tokens == 4
    assert right.equal and "NOT" not in right.words and "no draft" in plain.words


@torch.inference_mode()
def test_pages_together_have_the_tokens_that_they_have_without_drafts(model: OcrModel) -> None:
    weights = BatchWeights.of(PackedDecoder.of(model.decoder))
    pages = Together(weights, model, 3, 6, 12)
    plain, right, useless = pages.gains((1.0, 0.0), kernels=PLAIN)
    assert plain.tokens == 36 and right.equal and useless.equal
    assert right.facts is not None and int(right.facts["accepted"]) > 18


def document(tmp_path: Path) -> Path:
    gains = [{"right": r, "tokens_per_s": rate} for r, rate in ((None, 2000), (0.9, 3100), (1.0, 5700))]
    costs = {"1": 0.5, "4": 1.0}
    (tmp_path / "drafted.json").write_text(
        json.dumps(
            {"single": gains, "costs_ms": costs, "batch": gains, "batch_costs_ms": costs, "streams": 8}
        )
    )
    return tmp_path / "drafted.json"


def test_the_picture_has_every_measured_point(tmp_path: Path) -> None:
    run(read=document(tmp_path), svg=tmp_path / "drafts.svg")
    root = ElementTree.parse(tmp_path / "drafts.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{name}circle")) == 4
    words = [each.text for each in root.findall(f"{name}text")]
    assert "one page" in words and "8 pages together" in words and "no draft: 2,000" in words
    # By hand: 4 tokens a millisecond all right, 2 without a draft.
    assert predicted({1: 0.5, 4: 1.0}, 1.0) == 4000 and predicted({1: 0.5, 4: 1.0}, 0.0, 3) == 6000


def test_no_batch_and_no_pages_are_numbers_that_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "drafted", "--streams", "0", "--pages", "0"]) == 2
    assert "give --config to measure" in "".join(capsys.readouterr())
    for few in (["--pages", "3"], ["--pages", "9", "--streams", "0"]):
        assert main(["measure", "drafted", "--config", "c.json", *few]) == 2
        assert "--pages takes 4 or more" in "".join(capsys.readouterr())
    assert main(["measure", "drafted", "--streams", "-1"]) == 2
    assert "give 0 or more" in "".join(capsys.readouterr())


def test_what_is_neither_measured_nor_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--config"):
        run()
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(DsocrError, match="not a document of measure drafted"):
        run(read=tmp_path / "other.json")


def test_whole_pages_are_held_to_those_without_drafts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A backend that says a page's number, and on one page what its draft has: that share is not equal."""
    said: list[tuple[str, ...]] = []

    class Backend:
        def __init__(self, opening: Opening) -> None:
            self._drafts = opening.drafts

        def prepare(self, request: OcrRequest) -> PreparedPage:
            return PreparedPage(Image.new("RGB", (4, 4)))

        def read_many(self, source: Source, on_result: OnResult, slots: int, cancel: None) -> None:
            while (work := source.take(1.0)) is not None:
                tokens = (len(work.request.name), 7)
                drafted = self._drafts.tokens(work.request, lambda text: []) if self._drafts else ()
                if drafted and drafted[1] != 7 and work.request.name == "page 3":
                    tokens = drafted
                on_result(work.key, replace(make_result(), token_ids=tokens, request=work.request))
            said.append((str(slots),))

        def close(self) -> None:
            said.append(("closed",))

    monkeypatch.setattr(drafted_pages, "engine_backend", lambda settings, opening: Backend(opening))
    monkeypatch.setattr(drafted_pages, "SIZE", (40, 40))

    def plant(true: tuple[int, ...], right: float, number: int) -> tuple[int, ...]:
        return true if right == 1.0 else (true[0], 8)

    plain, same, other = drafted_pages.pages_gains(Settings(history=""), 6, 2, (1.0, 0.0), plant)
    assert (plain.right, plain.equal, same.equal, other.equal) == (None, None, True, False)
    assert plain.pages == 6 and "6 pages" in plain.words and "NOT EQUAL" in other.words
    assert said.count(("closed",)) == 2
