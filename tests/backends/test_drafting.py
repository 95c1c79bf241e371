"""What the setting `draft` drafts of a page."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.backends.backend import Opening
from dsocr_core.backends.drafting import MOST_CHARACTERS, MOST_TOKENS, drafts_of
from dsocr_core.read.session import Session
from dsocr_core.reading.records import SIDES, OcrRequest
from dsocr_core.settings import Settings, SettingsError
from tests.support.results import make_result


def encode(text: str) -> list[int]:
    return [ord(character) for character in text]


def tokens(draft: str, request: OcrRequest) -> str:
    source = drafts_of(Settings(device="cpu", draft=draft))
    assert source is not None and source.name == draft
    return "".join(map(chr, source.tokens(request, encode)))


@pytest.fixture
def page(tmp_path: Path) -> OcrRequest:
    Image.new("RGB", (40, 30), "white").save(tmp_path / "page.png")
    return OcrRequest(tmp_path / "page.png")


def test_a_folder_drafts_what_is_called_like_the_page(tmp_path: Path, page: OcrRequest) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
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
        assert tokens("run:none-such", page) == ""
    assert [record.message.startswith("no draft for page.png: ") for record in caplog.records] == [True, True]
    assert tokens("text-layer", page) == ""


def test_b_is_told_what_a_read(page: OcrRequest) -> None:
    source = drafts_of(Settings(device="cpu", draft="a"))
    assert source is not None and source.tokens(page, encode) == ()
    read = make_result("What A read")
    source.told(page, replace(read, backend="eager", token_ids=(3, 1, 4)))
    assert source.tokens(page, encode) == (3, 1, 4)
    assert source.tokens(page, encode) == ()  # a page's draft is asked for once
    source.told(page, replace(read, backend="folder", token_ids=None))
    assert "".join(map(chr, source.tokens(page, encode))) == read.text_raw


def test_in_a_comparison_a_is_read_first_and_without_a_draft(tmp_path: Path, page: OcrRequest) -> None:
    settings = Settings(device="cpu", draft="a", b="fast")
    session = Session(settings, Opening(tmp_path))
    heard: list[tuple[str, object]] = []
    for side in SIDES:
        backend = session.side(side)
        heard.append((side, backend.settings.draft))
        backend.read = lambda *_, side=side: heard.append((side, "read")) or make_result(side)  # type: ignore[method-assign]
        backend.told = lambda _, other, side=side: heard.append((side, other.text_raw))  # type: ignore[method-assign]
    session.compare(page)
    assert heard == [("a", ""), ("b", "a"), ("a", "read"), ("b", make_result("a").text_raw), ("b", "read")]
    session.compare(page, ("b",), a=make_result("of another B"))  # as B2 to Bn
    assert heard[5:] == [("b", make_result("of another B").text_raw), ("b", "read")]
    for wrong in (Settings(draft="a"), Settings(draft="a", b="eager")):
        with pytest.raises(SettingsError, match="give --b fast"):
            Session(wrong, Opening(tmp_path)).check()
    with pytest.raises(SettingsError, match="give --b fast"):
        Session(settings, Opening(tmp_path)).check(("a",))


@pytest.mark.parametrize("draft", ["text", "run:", "folder", "command:x", "text-layer:x", "b"])
def test_an_unknown_source_is_refused(draft: str) -> None:
    with pytest.raises(SettingsError, match="give text-layer, run:ID, folder:PATH"):
        Settings(device="cpu", draft=draft)
