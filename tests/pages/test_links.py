"""Links: what a view writes opens that view again; what a link or a jump names and is not there is said."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.runs.history import History
from tests.support.made_up_runs import timing, write_run
from tests.support.opened_page import address_of, bodies, checked, errors, opened, words

LINKS = [
    ("compare", {"page": "nope"}), ("compare", {"a": "nope"}), ("timing", {"commits": "nope"}),
    ("timing", {"a": "nope"}), ("timing", {"view": "Kernels", "run": "nope"}), ("runs", {"runs": "nope"}),
    ("flops", {"run": "nope"}), ("flops", {"width": "nope"}),
]  # fmt: skip
EMPTY = {
    "review": "Nothing to review yet", "timing": "no runs yet",
    "flops": "No run has FLOPs that were counted.", "runs": "No runs yet. Read a page on Compare, or import",
}  # fmt: skip


@pytest.mark.parametrize("page", EMPTY)
def test_an_empty_history_says_what_to_do(empty: History, page: str) -> None:
    test = opened(page)
    assert EMPTY[page] in words(test) and not test.error
    assert page == "flops" or "Go to Compare" in {button.label for button in test.button}


@pytest.mark.usefixtures("seeds")
@pytest.mark.parametrize(("page", "link"), LINKS)
def test_what_a_link_names_and_is_not_there_is_said_and_left_out(page: str, link: dict[str, str]) -> None:
    test = opened(page, **link)
    *_, name = link
    assert errors(test) == [f"Not there, or not readable, so left out of the link: {name} nope."]
    assert "nope" not in str(address_of(test))
    places = [*test.main.children]
    checked(test.button(key=f"{page} dismiss").click().run())
    assert not test.error and (test.dataframe or bodies(test))
    assert [*test.main.children] == places  # the browser draws none of them anew


@pytest.mark.usefixtures("seeds")
@pytest.mark.parametrize(("link", "said"), [("review", "nope"), ("page", "this review has no page nope")])
def test_a_review_or_a_page_of_it_that_is_not_there_is_said(link: str, said: str) -> None:
    test = opened("review", **{link: "nope"})
    assert said in errors(test)[0] and not [body for body in bodies(test) if "dsocr-word" in body]


@pytest.mark.usefixtures("seeds")
@pytest.mark.parametrize("page", ["compare", "review", "timing", "runs", "flops"])
def test_a_bare_address_stays_bare_and_a_link_is_whole(page: str) -> None:
    test = opened(page)
    assert address_of(test) == {} and not test.error
    changed = {"timing": "Kernels", "runs": "Compared", "flops": "What if"}
    link = {"view": changed[page]} if page in changed else {"tab": "Details"}
    address = address_of(opened(page, **link))
    again = opened(page, **address)
    assert not again.error and address_of(again) == address
    ids = {"compare": "preset", "review": "review", "timing": "run"}
    assert ids.get(page, "view") in address  # what the page chose by itself goes with the link


def test_jumps_from_runs_to_a_run_without_pages_say_so(seeds: History) -> None:
    """A profile has kernels and no page."""
    run_id = next(run_id for run_id in seeds.run_ids() if run_id.endswith("ncu-fast"))
    for page, asked in (("review", "review"), ("flops", "run"), ("timing", "b")):
        test = AppTest.from_file(str(PROJECT_ROOT / "pages" / f"{page}.py"), default_timeout=120)
        test.session_state[f"{page} request"] = {asked: run_id}
        checked(test.run())
        assert any(run_id in said.replace("\\", "") for said in errors(test)), page


# --- what is made of all runs is made once --------------------------------------------------------


@pytest.mark.parametrize("page", ["flops", "runs", "timing"])
def test_another_tab_has_what_the_first_one_made(
    empty: History, tmp_path: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, query = Counter[str](), History.query

    def counted(self: History, name: str, **given: Any) -> Any:
        asked[name] += 1
        return query(self, name, **given)

    monkeypatch.setattr(History, "query", counted)
    for number in range(3):
        write_run(tmp_path / "none", f"run-{number}", [timing("page.png", "decode", 1.0)])
        before = asked.copy()
        opened(page)
        of_new_run = asked - before
        opened(page).run()
        assert of_new_run and asked == before + of_new_run
