"""A link, or a jump from another page, to what is not there: it is named, and nothing else is shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from streamlit.testing.v1 import AppTest

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.settings import Settings
from pages.widgets.shared import resources
from pages.widgets.timing import address as timing
from tests.support.opened_page import address_of, bodies, checked, opened, words

LINKS = [
    ("compare", {"page": "nope"}),
    ("compare", {"a": "nope"}),
    ("review", {"review": "nope"}),
    ("review", {"page": "nope"}),
    ("timing", {"commits": "nope"}),
    ("timing", {"series": "nope"}),
    ("timing", {"view": "A against B", "a": "nope"}),
    ("timing", {"view": "A against B", "b": "nope"}),
    ("timing", {"view": "A against B", "backend_a": "nope"}),
    ("timing", {"view": "Kernels", "run": "nope"}),
    ("runs", {"runs": "nope"}),
    ("runs", {"baseline": "nope"}),
    ("flops", {"run": "nope"}),
    ("flops", {"view": "nope"}),  # of the other pages a list of strange addresses holds it
    ("flops", {"hardware": "nope"}),
]


@pytest.fixture(scope="module")
def only_seeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """The runs that come with the project, in a history that has no others."""
    with History(str(tmp_path_factory.mktemp("history")), SEED_LOCATION) as found:
        yield found


@pytest.fixture(autouse=True)
def seeds(monkeypatch: pytest.MonkeyPatch, only_seeds: History) -> History:
    monkeypatch.setattr(resources, "history", lambda: only_seeds)
    monkeypatch.setattr(resources, "base_settings", lambda: Settings(history=only_seeds.storage.location))
    return only_seeds


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_a_link_to_what_is_not_there_says_so_and_shows_nothing_else(page: str, link: dict[str, str]) -> None:
    test = opened(page, **link)
    said = [element.value for kind in ("error", "warning", "info") for element in test.get(kind)]
    assert any("nope" in one for one in said), said
    assert not [body for body in bodies(test) if "dsocr-word" in body]
    assert not test.dataframe and not test.get("plotly_chart")


def test_the_page_opens_without_it() -> None:
    test = opened("timing", view="Kernels", run="nope")
    checked(test.button(key="open without").click().run())
    assert not test.error and "nope" not in str(address_of(test))
    assert test.dataframe


@pytest.mark.parametrize("view", timing.VIEWS)
def test_the_address_that_a_view_writes_is_one_that_it_reads(view: str) -> None:
    address = address_of(opened("timing", view=view))
    again = opened("timing", **address)
    assert not again.error and address_of(again) == address


def test_jumps_from_runs_to_a_run_without_pages_say_so(seeds: History) -> None:
    """A profile has kernels and no page."""
    run_id = next(run_id for run_id in seeds.run_ids() if run_id.endswith("ncu-fast"))
    for page, asked in (
        ("review", {"review": run_id}), ("flops", {"run": run_id}), ("timing", {"runs": [run_id]}),
    ):  # fmt: skip
        test = opened_by_jump(page, asked)
        said = [element.value for kind in ("error", "warning", "info") for element in test.get(kind)]
        assert said, page
        assert not [body for body in bodies(test) if "dsocr-word" in body]
    runs = opened("runs", runs=run_id)
    checked(runs.button(key="runs compare").click().run())
    assert "has no page on record" in words(runs).replace("\\", "")


def opened_by_jump(page: str, asked: dict[str, object]) -> AppTest:
    test = AppTest.from_file(str(PROJECT_ROOT / "pages" / f"{page}.py"), default_timeout=120)
    test.session_state[f"{page} request"] = asked
    return checked(test.run())


def test_a_runs_page_opens_on_compare_under_the_runs_settings_in_a_new_session() -> None:
    settings = {"preset": "base", "dtype": "bfloat16", "attention": "eager", "dtype_b": "float32"}
    test = AppTest.from_file(str(PROJECT_ROOT / "pages" / "dashboard.py"), default_timeout=120)
    test.session_state["compare request"] = {"page": "01-letter", "path": "", "settings": settings}
    checked(test.run())
    assert {name: test.session_state[f"compare {name}"] for name in settings} == settings
    assert test.session_state["compare values"]["page"] == "01-letter"
