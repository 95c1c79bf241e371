"""An error that nobody foresaw is one sentence with a number on the page, whatever raised it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamlit import error_util
from streamlit.testing.v1 import AppTest

from dsocr_core import error_log


def script() -> None:
    import streamlit as st

    from dsocr_core.errors import DsocrError
    from pages.widgets.shared.unforeseen import catch_all

    catch_all()

    def fail() -> None:
        raise KeyError("/secret/path")

    @st.fragment
    def part() -> None:
        if st.button("in a fragment"):
            fail()

    st.button("in a callback", on_click=fail)
    part()
    if st.button("in the script"):
        fail()
    if st.button("foreseen"):
        raise DsocrError("page.png: [a link](http://elsewhere)")


@pytest.mark.parametrize("where", ["in the script", "in a callback", "in a fragment"])
def test_what_nobody_foresaw_is_a_sentence_and_the_log_has_the_rest(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_util, "show_uncaught_app_exception", error_util.show_uncaught_app_exception)
    monkeypatch.setattr(error_log, "LOG_FILE", tmp_path / "errors.log")
    test = AppTest.from_function(script).run()
    next(button for button in test.button if button.label == where).click().run()
    [shown] = test.error
    [number] = re.findall(r"unforeseen KeyError, number ([0-9a-f]{8})", shown.value.replace("\\", ""))
    assert "secret" not in shown.value and not test.exception
    log = (tmp_path / "errors.log").read_text()
    assert number in log and "/secret/path" in log


def test_a_foreseen_error_is_its_own_sentence_without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_util, "show_uncaught_app_exception", error_util.show_uncaught_app_exception)
    test = AppTest.from_function(script).run()
    next(button for button in test.button if button.label == "foreseen").click().run()
    assert test.error[0].value.startswith(r"page\.png\: \[a link\]\(http")
