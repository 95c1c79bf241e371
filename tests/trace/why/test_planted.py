"""Causes planted on the embedded checkpoint, and found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.engine.base import EagerEngine
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.models.hypotheses import CELLS, ngram_hypothesis
from dsocr_core.page.documents import Page
from dsocr_core.reading.records import NgramPolicy
from dsocr_core.settings import InferSettings, Settings
from dsocr_core.trace.why.match import SideB
from dsocr_core.trace.why.reader import Reader
from dsocr_core.trace.why.run import why
from tests.trace.why.planted_causes import page_of_lines

TOKENS = 64
SETTINGS = Settings(
    preset="tiny",
    prompt="free_ocr",
    device="cpu",
    dtype="float32",
    infer=InferSettings(max_new_tokens=TOKENS),
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six times the same line: the published n-gram rule changes what is written."""
    return page_of_lines(tmp_path_factory.mktemp("pages") / "lines.png")


def test_a_rule_is_found_from_the_text_alone(page: Path) -> None:
    reader = Reader(SETTINGS)
    text = reader.read(
        reader.attempt(Page(page, page.name)).changed(ngram_hypothesis(30, 90, CELLS).change)
    ).text
    answer = why(SETTINGS, [Page(page, page.name)], lambda _: SideB("b", text), reader=reader)
    assert answer.sentence == "B is reproduced exactly with n-gram 30, window 90"
    document = answer.document()
    assert document["explained"] and document["pages"][0]["causes"] == ["ngram-30-90"]


def test_prefill_once_and_decode_again_is_what_the_engine_reads(page: Path) -> None:
    """Three rules from one prefill, in any order, give the tokens of three recognitions."""
    engine = EagerEngine(load_checkpoint(str(EMBEDDED_CHECKPOINT), torch.device("cpu"), torch.float32))
    request = SETTINGS.request(page)
    wanted = {}
    requests = [request, replace(request, no_repeat_ngram_size=0), replace(request, ngram_window=50)]
    for each in requests:
        result = engine.recognize(each)
        wanted[each] = result.token_ids
        assert result.inputs is not None and result.inputs.ngram_window == each.ngram_window
    assert len(set(wanted.values())) == 2  # a window that is as long as the repetition changes nothing here
    held = engine.prefilled(request)
    for each in reversed(requests):
        with engine.decoding_again(held, each, TOKENS) as new:
            tokens = list(new)
        assert tuple(tokens) == wanted[each]
    assert engine.ngram_policy(replace(request, ngram_whitelist=("<td>",))) == NgramPolicy(20, 0, (9,))
