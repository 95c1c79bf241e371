"""Causes planted on the embedded checkpoint, and found again; the acceptance is the slow test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.engine.again import decode_again, prefill
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.page.documents import Page
from dsocr_core.reading.records import NgramPolicy
from dsocr_core.trace.why.match import Other
from dsocr_core.trace.why.reader import Reader
from dsocr_core.trace.why.run import why
from dsocr_core.trace.why.search import Budget
from tests.support.planted_causes import BY_NAME, MadePage, MemoReader, made_pages, settings_of

TOKENS = 64


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six times the same line: the published n-gram rule changes what is written."""
    return made_pages(tmp_path_factory.mktemp("pages"))[0].path


def test_a_rule_is_found_from_the_text_alone(page: Path) -> None:
    settings = settings_of(MadePage(page), TOKENS)
    reader = Reader(settings)
    text = reader.read(BY_NAME["ngram-30-90"].applied(reader.attempt(Page(page, page.name)))).text
    answer = why(settings, [Page(page, page.name)], lambda _: Other("b", text), reader=reader)
    assert answer.sentence == "B is reproduced exactly with n-gram 30, window 90"
    assert reader.prefills == 1 and answer.explained
    document = answer.document()["pages"][0]
    assert document["causes"] == ["ngram-30-90"] and document["trials"][0]["prefill_shared"] is True


def test_prefill_once_and_decode_again_is_what_the_engine_reads(page: Path) -> None:
    """Three rules from one prefill, in any order, give the tokens of three recognitions."""
    engine = EagerEngine(load_checkpoint(str(EMBEDDED_CHECKPOINT), torch.device("cpu"), torch.float32))
    request = settings_of(MadePage(page), TOKENS).request(page)
    wanted = {}
    requests = [request, replace(request, no_repeat_ngram_size=0), replace(request, ngram_window=50)]
    for each in requests:
        result = engine.recognize(each)
        wanted[each] = result.token_ids
        assert result.inputs is not None and result.inputs.ngram_window == each.ngram_window
    assert len(set(wanted.values())) == 2  # a window that is as long as the repetition changes nothing here
    held = prefill(engine, request)
    for each in reversed(requests):
        tokens, _ = decode_again(engine, held, each, TOKENS, lambda token: None)
        assert tuple(tokens) == wanted[each]
    assert engine.ngram_policy(replace(request, ngram_whitelist=("<td>",))) == NgramPolicy(20, 0, (9,))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_each_planted_cause_is_found(tmp_path: Path) -> None:
    """Each cause on each page, from B's text alone, on the pages where it changes the text at all.

    An earlier hypothesis that writes the very same text is as right: no text tells the two apart.
    """
    names = ("ngram-30-90", "ngram-20-50", "no-newline", "roles", "tiles-6", "tiles-640", "no-exif", "fp16")
    right, decided = set(), 0
    for page in made_pages(tmp_path):
        settings = settings_of(page)
        reader = MemoReader(settings)
        published = reader.read(reader.attempt(page.opened)).text
        for name in names:
            text = reader.read(BY_NAME[name].applied(reader.attempt(page.opened))).text
            if text == published:
                continue
            other = Other("b", text)
            answer = why(
                settings, [page.opened], lambda _, other=other: other, Budget(60, 1e6), reader=reader
            )
            cause = answer.pages[0].finding.cause
            decided += 1
            assert cause is not None, (page.path.name, name)
            found = reader.read(BY_NAME[cause.names[0]].applied(reader.attempt(page.opened))).text
            assert len(cause.names) == 1 and found == text, (page.path.name, name, cause.names)
            right.add(name)
    print(f"{decided} planted on pages that they change: all reproduced")
    assert right == set(names)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_corrupted_weight_is_not_explained(tmp_path: Path) -> None:
    """B has one matrix of one layer with its sign turned: everything is tried, and nothing reproduces it.

    Few tokens, so that the budget is large enough to come to the end.
    """
    page = made_pages(tmp_path)[0]
    settings = settings_of(page, 24)
    broken = Reader(settings)
    weight = broken._engine("float32").checkpoint.model.decoder.layers[3].mlp.shared_experts.down_proj.weight
    with torch.no_grad():
        weight.neg_()
        text = broken.read(broken.attempt(page.opened)).text
        weight.neg_()
    answer = why(settings, [page.opened], lambda _: Other("b", text), Budget(runs=500, seconds=1e6))
    finding = answer.pages[0].finding
    print(f"{finding.runs} runs, {len(finding.exclusions)} excluded: {finding.sentence}")
    assert finding.match.agreed < finding.match.of and finding.stopped is None
    assert finding.cause is None and finding.sentence.startswith("not explained") and not answer.explained
