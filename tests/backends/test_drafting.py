"""What the setting `draft` drafts of a page; which ones are refused is a matter of the settings."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsocr_core.backends import folder
from dsocr_core.backends.drafting import MOST_CHARACTERS, MOST_TOKENS, drafts_of
from dsocr_core.backends.folder import read_texts
from dsocr_core.reading.records import OcrRequest
from dsocr_core.runs.texts import TextMatcher
from dsocr_core.settings import Settings


def tokens(draft: str, page: str = "page.png") -> str:
    source = drafts_of(Settings(device="cpu", draft=draft))
    assert source is not None and source.name == draft
    return "".join(map(chr, source.tokens(OcrRequest(Path(page)), lambda text: list(map(ord, text)))))


def test_a_folder_drafts_what_is_called_like_the_page_and_one_that_cannot_be_read_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "page.md").write_text("# As it was read")
    assert tokens(f"folder:{tmp_path}") == "# As it was read"
    assert tokens(f"folder:{tmp_path}", "other.png") == tokens("lookup") == ""
    (tmp_path / "page.md").write_text("x" * 2 * MOST_CHARACTERS)
    assert len(tokens(f"folder:{tmp_path}")) == MOST_TOKENS
    with caplog.at_level(logging.WARNING):
        assert tokens(f"folder:{tmp_path / 'nowhere'}") == ""
    assert [record.message.startswith("no draft for page.png: ") for record in caplog.records] == [True]


def test_threads_that_prepare_pages_read_the_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.md").write_text("# As it was read")
    source = drafts_of(Settings(device="cpu", draft=f"folder:{tmp_path}"))
    read, meet = list[str](), threading.Barrier(4)
    assert source is not None

    def read_once(target: str) -> TextMatcher:
        assert source._texts._lock.locked()
        read.append(target)
        return read_texts(target)

    def ask(_: int) -> tuple[int, ...]:
        meet.wait(60)
        return source.tokens(OcrRequest(Path("page.png")), lambda text: [1])

    monkeypatch.setattr(folder, "read_texts", read_once)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(4))) == [(1,)] * 4
    assert read == [str(tmp_path)]
