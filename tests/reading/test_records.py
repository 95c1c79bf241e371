"""Records: what is derived, and the way to JSON and back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.family import all_stages
from dsocr_core.models.stages import Stage
from dsocr_core.reading.jsonable import to_jsonable
from dsocr_core.reading.records import (
    UNLIMITED,
    ModelInputs,
    OcrRequest,
    OcrResult,
    StageTiming,
    result_from_jsonable,
)
from tests.support.results import make_result

counts = st.integers(0, 10**9)
names = st.text(max_size=20)
shapes = st.lists(counts, max_size=4).map(tuple)

requests = st.builds(
    OcrRequest,
    image=st.sampled_from([Path("a.png"), Path("/b/ä ö.jpg")]),
    max_new_tokens=st.none() | counts,
    no_repeat_ngram_size=counts,
    **dict.fromkeys(("preset", "prompt", "source"), names),
)
model_inputs = st.builds(
    ModelInputs,
    image_mask=st.lists(st.tuples(counts, counts), max_size=3).map(tuple),
    grid=st.tuples(counts, counts),
    **dict.fromkeys(("no_repeat_ngram_size", "max_new_tokens"), counts),
    **dict.fromkeys(("prompt_ids", "global_shape", "tiles_shape"), shapes),
    **dict.fromkeys(("global_sha256", "tiles_sha256", "attention", "dtype", "rotary_dtype"), names),
)
stages = st.sampled_from(list(all_stages()))
timings = st.builds(StageTiming, stage=stages, milliseconds=st.floats(0, 1e9), calls=st.integers(0, 100))
results = st.builds(
    OcrResult,
    backend=st.sampled_from(["eager", "vendor"]),
    request=requests,
    image_size=st.tuples(counts, counts),
    text_raw=st.text(),
    token_ids=st.none() | shapes,
    token_texts=st.lists(names, max_size=4).map(tuple),
    finish_reason=st.sampled_from(["eos", "length", None]),
    inputs=st.none() | model_inputs,
    timings=st.lists(timings, max_size=9).map(tuple),
    environment=st.dictionaries(names, names, max_size=3),
)


@given(results)
def test_json_and_back(result: OcrResult) -> None:
    assert result_from_jsonable(json.loads(json.dumps(to_jsonable(result)))) == result


def damage(path: str, value: object) -> dict:
    """The JSON of a result with one field changed; a missing value removes it."""
    data = json.loads(json.dumps(to_jsonable(make_result())))
    *parents, last = path.split(".")
    parent = data
    for key in parents:
        parent = parent[key]
    if value is None:
        del parent[last]
    else:
        parent[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("request", None),
        ("request.image", 5),
        ("request.unknown", 1),
        ("image_size", [1]),
        ("image_size", ["a", "b"]),
        ("token_ids", ["a"]),
        ("token_ids", 5),
        ("inputs.image_mask", [[1]]),
        ("inputs.grid", "xy"),
        ("inputs.dtype", None),
        ("timings", [{"stage": "nap", "milliseconds": 1, "calls": 1}]),
        ("timings", [{"stage": "sam"}]),
        ("text_raw", None),
        ("finish_reason", "tired"),
    ],
)
def test_foreign_data_is_refused(path: str, value: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
        result_from_jsonable(damage(path, value))


def test_total_counts_vision_once() -> None:
    result = make_result()
    assert result.total_ms == pytest.approx(1 + 2 + 50 + 100 + 5)
    assert result.milliseconds(Stage.SAM) == 10
    assert replace(result, timings=()).milliseconds(Stage.SAM) is None


def test_a_result_that_tells_little_says_so_to_what_needs_more() -> None:
    silent = replace(make_result(), token_ids=None, inputs=None)
    assert silent.new_tokens is None
    for name in ("required_tokens", "required_inputs"):
        with pytest.raises(
            DsocrError, match=f"page.png: eager does not tell its {name.removeprefix('required_')}"
        ):
            getattr(silent, name)
    assert make_result().required_tokens == make_result().token_ids
    assert make_result().required_inputs == make_result().inputs


def test_a_request_of_another_program_says_which_fields_are_not_known() -> None:
    request = OcrRequest.imported(Path("page.png"), source="page", preset="small")
    assert (request.preset, request.prompt, request.max_new_tokens) == ("small", None, None)
    with pytest.raises(DsocrError, match="page: with which preset, prompt and limits it was read"):
        _ = request.required
    assert OcrRequest(Path("page.png"), max_new_tokens=UNLIMITED).required.max_new_tokens == UNLIMITED


def test_a_record_of_earlier_form_lists_what_is_unknown_and_has_no_limit_as_null() -> None:
    data = to_jsonable(make_result())
    data["request"] |= {"unknown": ["prompt"], "prompt": "", "max_new_tokens": None}
    data["environment"]["boxes_not_known"] = "the text has none"
    found = result_from_jsonable(json.loads(json.dumps(data)))
    assert (found.request.prompt, found.request.max_new_tokens) == (None, UNLIMITED)
    assert not found.boxes_known and "boxes_not_known" not in found.environment
    data["request"]["unknown"] = ["max_new_tokens"]
    assert result_from_jsonable(json.loads(json.dumps(data))).request.max_new_tokens is None
