"""What the setting `draft` drafts of a page."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.backends.drafting import MOST_CHARACTERS, MOST_TOKENS, drafts_of
from dsocr_core.reading.records import OcrRequest
from dsocr_core.settings import Settings


def tokens(draft: str, request: OcrRequest) -> str:
    source = drafts_of(Settings(device="cpu", draft=draft))
    assert source is not None and source.name == draft
    return "".join(map(chr, source.tokens(request, lambda text: list(map(ord, text)))))


@pytest.fixture
def page(tmp_path: Path) -> OcrRequest:
    Image.new("RGB", (40, 30), "white").save(tmp_path / "page.png")
    return OcrRequest(tmp_path / "page.png")


def test_a_folder_drafts_what_is_called_like_the_page(tmp_path: Path, page: OcrRequest) -> None:
    (texts := tmp_path / "texts").mkdir()
    (texts / "page.md").write_text("# As it was read")
    assert tokens(f"folder:{texts}", page) == "# As it was read"
    assert tokens(f"folder:{texts}", replace(page, source="other.png")) == ""
    (texts / "page.md").write_text("x" * 2 * MOST_CHARACTERS)
    assert len(tokens(f"folder:{texts}", page)) == MOST_TOKENS


def test_a_source_that_cannot_be_read_drafts_nothing(
    tmp_path: Path, page: OcrRequest, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert tokens(f"folder:{tmp_path / 'nowhere'}", page) == ""
    assert [record.message.startswith("no draft for page.png: ") for record in caplog.records] == [True]
    assert tokens("lookup", page) == ""
