"""How a backend of a recorded run read, its own settings over those of the run."""

from dataclasses import asdict
from typing import Any

import pytest

from dsocr_core.history.record import RunRecord
from dsocr_core.outputs.input_parity import LIMIT
from dsocr_core.review.comparing import result_of
from dsocr_core.review.inputs import SideInputs, input_lines
from dsocr_core.review.page import PageSide
from dsocr_core.review.read_with import infer_of, policy_of
from dsocr_core.settings import InferSettings, Settings

OTHER = InferSettings(ngram_window=90, ngram_whitelist=["<td>"], max_tiles=6, template="roles", exif=False)


def record(settings: Settings | dict[str, Any]) -> RunRecord:
    values = settings if isinstance(settings, dict) else asdict(settings)
    return RunRecord(id="a", created="2026-11-01T00:00:00", source="dsocr", settings=values)


def side(run: RunRecord, backend: str, letter: str = "a") -> SideInputs:
    page = PageSide(
        letter=letter, page="p", run_id="a", backend=backend, error=None, text_raw="text", token_ids=None,
        finish_reason=None, new_tokens=None, width=8, height=8, path="p.png", sha256=None, source=None,
        preset="tiny",
    )  # type: ignore[arg-type]  # fmt: skip
    return SideInputs(page, run)


def test_the_run_s_policies_are_in_the_requests_that_review_makes_again() -> None:
    run = record(Settings(infer=OTHER))
    request = result_of(side(run, "eager"), (8, 8)).request
    assert request.unpublished == {
        "ngram_window": 90, "ngram_whitelist": ("<td>",), "max_tiles": 6, "template": "roles", "exif": False,
    }  # fmt: skip
    assert result_of(side(run, "vendor"), (8, 8)).request.unpublished == {}


def test_a_side_s_own_settings_win_and_the_other_has_none_of_them() -> None:
    b = {"spec": "eager", "infer.ngram_window": "90", "infer.no_repeat_ngram_size": "30"}
    run = record(Settings(a="eager", b=b))
    assert policy_of(run, "eager") == {} and policy_of(run, "eager-2") == {"ngram_window": 90}
    assert infer_of(run, "eager-2")["no_repeat_ngram_size"] == 30
    assert result_of(side(run, "eager-2"), (8, 8)).request.no_repeat_ngram_size == 30


@pytest.mark.parametrize(
    ("b", "limit", "state"),
    [
        ({"spec": "eager", "infer.max_new_tokens": "9"}, "9", "differs"),
        ({"spec": "vendor", "name": "published", "infer.max_new_tokens": "9"}, "9", "differs"),
        ("folder:out", None, "not known"),
    ],
)
def test_limits_of_both_sides_are_known_where_they_were_told(b: Any, limit: str | None, state: str) -> None:
    run = record(Settings(a="eager", b=b, infer=InferSettings(max_new_tokens=6)))
    names = [spec.name for spec in Settings(a="eager", b=b).specs]
    lines = {line.name: line for line in input_lines(side(run, names[0]), side(run, names[1], "b"))}
    assert (lines[LIMIT].a, lines[LIMIT].b, lines[LIMIT].state) == ("6", limit, state)


@pytest.mark.parametrize(
    ("b", "policy"),
    [
        ({"spec": "endpoint:http://h/v1", "flavour": "vllm"}, {}),
        ({"spec": "endpoint:http://h/v1", "flavour": "dsocr"}, {"max_tiles": 6}),
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
