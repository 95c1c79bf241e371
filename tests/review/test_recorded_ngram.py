"""The n-gram size of a recorded run whose settings left it to the published code."""

import pytest

from dsocr_core.history.record import RunRecord
from dsocr_core.review.inputs import _ngram_size
from dsocr_core.review.read_with import infer_of


@pytest.mark.parametrize(
    ("infer", "size"),
    [
        ({"no_repeat_ngram_size": None}, 20),
        ({"no_repeat_ngram_size": None, "eval_mode": True}, 35),
        ({"no_repeat_ngram_size": 0, "eval_mode": True}, 0),
        ({"no_repeat_ngram_size": 20}, 20),
        ({}, None),
        (None, None),
    ],
)
def test_it_is_the_published_modes_own(infer: object, size: int | None) -> None:
    settings = {} if infer is None else {"infer": infer}
    record = RunRecord(id="a", created="2026-11-01T00:00:00", source="dsocr", settings=settings)
    assert _ngram_size(infer_of(record, "eager")) == size
