"""What the setting `draft` drafts of a page; which ones are refused is a matter of the settings."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dsocr_core.backends.drafting import MOST_CHARACTERS, MOST_TOKENS, drafts_of
from dsocr_core.reading.records import OcrRequest
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
