"""Pages of runs that were recorded before their facts were: what settings and record say of them."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.reading.input_parity import LIMIT, input_lines
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.older_runs import infer_of, ngram_size_of, policy_of
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.results import results
from dsocr_core.runs.store import History
from dsocr_core.settings import InferSettings, Settings

OTHER = InferSettings(ngram_window=90, ngram_whitelist=["<td>"], max_tiles=6, template="roles", exif=False)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path) as opened:
        yield opened


def record(settings: Settings | dict[str, Any]) -> RunRecord:
    values = settings if isinstance(settings, dict) else asdict(settings)
    return RunRecord(id="a", created="2026-11-01T00:00:00", source="dsocr", settings=values)


def read(history: History, run: RunRecord, *backends: str) -> list[OcrResult]:
    """A page of a run as it was written before its facts were recorded page by page."""
    with history.writer(run) as writer:
        for backend in backends:
            image = {"page": "p", "path": "p.png", "width": 8, "height": 8, "preset": "tiny"}
            writer.add("images", [image | {"backend": backend, "text_raw": "text"}])
    history.refresh()
    found = results(history, run.id)
    return [found["p", backend] for backend in backends]


def test_the_run_s_policies_are_in_the_requests_that_are_made_again(history: History) -> None:
    ours, vendor = read(history, record(Settings(infer=OTHER)), "eager", "vendor")
    assert ours.request.unpublished == {
        "ngram_window": 90, "ngram_whitelist": ("<td>",), "max_tiles": 6, "template": "roles", "exif": False,
    }  # fmt: skip
    assert vendor.request.unpublished == {}


def test_a_side_s_own_settings_win_and_the_other_has_none_of_them(history: History) -> None:
    b = {"spec": "eager", "infer.ngram_window": "90", "infer.no_repeat_ngram_size": "30"}
    run = record(Settings(a="eager", b=b))
    assert policy_of(run, "eager") == {} and policy_of(run, "eager-2") == {"ngram_window": 90}
    assert infer_of(run, "eager-2")["no_repeat_ngram_size"] == 30
    (result,) = read(history, run, "eager-2")
    assert result.request.no_repeat_ngram_size == 30


@pytest.mark.parametrize(
    ("b", "limit", "state"),
    [
        ({"spec": "eager", "infer.max_new_tokens": "9"}, "9", "differs"),
        ({"spec": "vendor", "name": "published", "infer.max_new_tokens": "9"}, "9", "differs"),
        ("folder:out", None, "not known"),
    ],
)
def test_limits_of_both_sides_are_known_where_they_were_told(
    history: History, b: Any, limit: str | None, state: str
) -> None:
    run = record(Settings(a="eager", b=b, infer=InferSettings(max_new_tokens=6)))
    names = [spec.name for spec in Settings(a="eager", b=b).specs]
    lines = {line.name: line for line in input_lines(*read(history, run, *names))}
    assert (lines[LIMIT].a, lines[LIMIT].b, lines[LIMIT].state) == ("6", limit, state)


def test_a_fact_of_one_page_is_not_every_page_s(history: History) -> None:
    """A record merges what its pages have: an older run's page has what holds for all of them."""
    own = {"engine": "folder", "boxes_not_known": "the text has none", "postprocess_error": "NameError"}
    run = RunRecord(id="a", created="2026-11-01T00:00:00", source="dsocr", environment={"folder": own})
    texts = {"boxed": "<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>x", "blank": ""}
    with history.writer(run) as writer:
        for page, text in texts.items():
            writer.add("images", [{"page": page, "backend": "folder", "text_raw": text}])
    history.refresh()
    found = {page: result.environment for (page, _), result in results(history, "a").items()}
    assert found == {
        "boxed": {"engine": "folder"},
        "blank": {"engine": "folder", "boxes_not_known": "the text has none"},
    }


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
def test_the_published_modes_have_an_ngram_size_of_their_own(infer: object, size: int | None) -> None:
    assert ngram_size_of(record({} if infer is None else {"infer": infer}), "eager") == size


@pytest.mark.parametrize(
    ("b", "policy"),
    [
        ({"spec": "endpoint:http://h/v1", "flavour": "vllm"}, {}),
        ("folder:out", {}),
    ],
)
def test_what_is_never_told_a_policy_has_none(b: Any, policy: dict[str, Any]) -> None:
    run = record(Settings(a="eager", b=b, infer=InferSettings(max_tiles=6)))
    assert policy_of(run, "folder" if isinstance(b, str) else "endpoint") == policy


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"infer": 3}, {"infer": {}}, {"infer": {"max_tiles": 10**9}}, {"infer": {"template": [1]}},
        {"infer": {"ngram_window": "many"}}, {"a": 5, "b": [], "infer": {"exif": True}},
        {"a": "nothing", "infer": {}}, {"a": "eager", "backends": 7, "infer": {"exif": None}},
    ],
)  # fmt: skip
def test_a_record_of_any_form_says_nothing(settings: dict[str, Any]) -> None:
    assert policy_of(record(settings), "eager") == {}
    foreign = RunRecord(
        id="a", created="2026-11-01T00:00:00", source="vendor", settings={"infer": asdict(OTHER)}
    )
    assert policy_of(foreign, "eager") == {} and infer_of(foreign, "eager") == {}
