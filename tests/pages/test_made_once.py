"""What pages make of all runs is made once for all browser tabs, until a run comes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.runs.history import History
from tests.support.made_up_runs import timing, write_run
from tests.support.opened_page import opened


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
