"""OmniDocBench's file: read within bounds, its release stamped, blocks that the layout cut joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.accuracy.ground_truth import TruthError, read_ground_truth


def page(image: str, *blocks: dict[str, Any], relation: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "layout_dets": list(blocks),
        "extra": {"relation": relation or []},
        "page_info": {"image_path": image, "width": 100, "height": 100, "page_attribute": {}},
    }


def block(number: int, text: str, category: str = "text_block", order: int | None = None) -> dict[str, Any]:
    return {"category_type": category, "anno_id": number, "order": order or number, "text": text, "poly": []}


def written(folder: Path, data: object) -> Path:
    file = folder / "OmniDocBench.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (981, "OmniDocBench 1.0, 981 pages"),
        (1355, "OmniDocBench 1.5, 1,355 pages"),
        (1651, "OmniDocBench 1.6, 1,651 pages; measured by the rules of 1.5: 1.6 matches otherwise"),
        (18, "18 pages: no whole release (1.0 has 981 pages, 1.5 has 1,355, 1.6 has 1,651)"),
    ],
)
def test_the_release_follows_from_the_number_of_pages(tmp_path: Path, count: int, words: str) -> None:
    truth = read_ground_truth(written(tmp_path, [page(f"{number}.jpg") for number in range(count)]))
    assert truth.release == words


def test_blocks_come_in_reading_order_and_cut_ones_are_joined(tmp_path: Path) -> None:
    cut = {"relation_type": "truncated", "source_anno_id": 4, "target_anno_id": 2}
    other = {"relation_type": "parent_son", "source_anno_id": 1, "target_anno_id": 3}
    blocks = (block(4, "end"), block(2, "begin "), block(3, "last", order=9), block(1, "first"))
    table = {"category_type": "table", "anno_id": 7, "order": 3, "html": "<table></table>", "latex": "x"}
    hidden = block(8, "a mask", "text_mask")
    truth = read_ground_truth(
        written(tmp_path, [page("a/b.jpg", *blocks, table, hidden, relation=[cut, other])])
    )
    (only,) = truth.pages
    assert only.image == "b.jpg"
    assert [each.content for each in only.blocks] == ["first", "begin end", "last"]
    assert [each.content for each in only.tables] == ["<table></table>"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{}", "not a list of pages"),
        ("[", "not valid JSON"),
        ("[]", "not a list of pages"),
        ('[{"page_info": {}}]', "page 1: not as OmniDocBench writes it"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ('"},{"', "not a list of pages"),
        ("[], []", "not valid JSON"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "truth.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(TruthError, match=reason) as caught:
        read_ground_truth(file)
    assert str(caught.value).startswith(f"{file}: ") and "\n" not in str(caught.value)


def test_an_image_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TruthError, match=r'the image "a.jpg" is there twice'):
        read_ground_truth(written(tmp_path, [page("a.jpg"), page("x/a.jpg")]))
