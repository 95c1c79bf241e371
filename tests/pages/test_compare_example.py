"""What Compare opens on: the recorded example with a difference, and the way out of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dsocr_core.backends.backend import Opening
from dsocr_core.read.session import Session
from dsocr_core.runs import result_cache
from dsocr_core.runs.result_cache import ResultCache, save_results
from dsocr_core.settings import Settings
from pages.widgets.compare import example
from pages.widgets.compare.backends import with_dtype_of_b
from pages.widgets.shared import resources
from tests.support.opened_page import address_of, checked, mounted, words
from tests.support.opened_page import opened as opened_page
from tests.support.results import make_result

opened = partial(opened_page, "dashboard")
CAUSE = "Cause: dtype"


@pytest.fixture(autouse=True)
def usual_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "base_settings", lambda: Settings(history=str(tmp_path), device="cpu"))


def test_the_first_view_is_a_difference_and_other_pages_have_the_usual_settings() -> None:
    test = opened()
    said = words(test)
    assert "DIFFERS" in said
    assert "A reads 21-30, B 21:30. The page says 21:30: B is right. Cause: dtype" in said
    assert mounted(test, "viewer")["selected"] == int(example.BOX) - 1
    assert address_of(test) == {}
    other = opened()
    other.session_state["compare values"]["page"] = "01-letter"
    test.button(key="example clean").click()
    for left, page in ((test, example.PAGE), (other, "01-letter")):
        checked(left.run())
        assert "IDENTICAL" in words(left) and CAUSE not in words(left)
        values = left.session_state["compare values"], left.session_state["compare dtype"]
        assert (values[0]["page"], values[1]) == (page, "auto")


def test_the_cause_of_the_example_is_reproduced(tmp_path: Path) -> None:
    """A in float32 reads what B reads: some seconds of a CPU, for a sentence that every newcomer reads."""
    found = example.results()
    assert found is not None and found.comparison is not None and found.comparison.b is not None
    settings = replace(example.settings(), dtype="float32", history="")
    with closing(Session(settings, Opening(tmp_path))) as session:
        read = session.compare(found.comparison.request, ("a",)).a
    assert read is not None and read.token_ids == found.comparison.b.token_ids


def test_what_somebody_reads_of_the_example_takes_nobody_elses_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*Run again* gives other bits on another machine: its reader sees them, later visitors the example."""
    page = example.sources.samples().take(2)
    settings = replace(Settings(device="cpu"), **{name: example.OWN[name] for name in ("preset", "dtype")})
    settings = with_dtype_of_b(replace(settings, attention="eager"), "float32")
    monkeypatch.setattr(result_cache, "RUNS_DIRECTORY", tmp_path)
    request = settings.request(page.path, page.name)
    for side, backend in (("a", "eager"), ("b", "vendor")):
        cache = ResultCache(settings.of_side(side), tmp_path / "cache")
        other = replace(make_result(f"read by {side}", backend), request=request)
        key = cache.keys(backend, cache.settings.request(page.path, page.name)).own
        save_results(tmp_path / "cache", key, {key: other})
    test = opened()
    assert CAUSE in words(test) and "21-30" in str(mounted(test, "viewer")["pairs"])
    linked = opened(page=example.PAGE, **example.OWN)  # like any other page: what was read last
    assert CAUSE not in words(linked) and "21-30" not in str(mounted(linked, "viewer")["pairs"])
