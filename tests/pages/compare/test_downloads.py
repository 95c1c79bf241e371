"""Everything about a comparison in one archive."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrRequest
from pages.widgets.compare import downloads
from pages.widgets.pair.shown import pairings
from tests.support import fabricated_results as fabricated


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    blocks = fabricated.draw_page(tmp_path / "page.png", 600, 800)
    blocks[1] = ("image", *blocks[1][1:])
    request = OcrRequest(tmp_path / "page.png", "small")
    a, b = (
        fabricated.result_of(backend, request, read, (600, 800))
        for backend, read in (("eager", blocks), ("vendor", fabricated.disturbed(blocks)))
    )
    return Comparison(request, a, b)


def test_the_archive_holds_both_sides_files_with_the_crops(comparison: Comparison) -> None:
    content = downloads.archive(comparison, pairings(comparison.report.pairs))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
        for side in ("a-eager", "b-vendor"):
            assert {f"{side}/images/0.jpg", f"{side}/info.json"} <= names
        assert json.loads(archive.read("parity.json"))["verdict"] == "differs"
        with Image.open(io.BytesIO(archive.read("a-eager/result_with_boxes.jpg"))) as picture:
            assert picture.size == (600, 800)
        assert archive.read("boxes.csv").decode().startswith("#,state,label,")
        assert archive.read("timings.csv").decode().startswith("side,backend,stage,start_ms,ms,inside")


def test_one_side_has_no_parity(comparison: Comparison) -> None:
    alone = Comparison(comparison.request, comparison.a)
    with zipfile.ZipFile(io.BytesIO(downloads.archive(alone, []))) as archive:
        assert "parity.json" not in archive.namelist()
        assert not any(name.startswith("b-") for name in archive.namelist())


def test_a_page_that_is_gone_is_one_line(comparison: Comparison) -> None:
    comparison.request.image.unlink()
    with pytest.raises(DsocrError, match=r"page\.png: no such file"):
        downloads.archive(comparison, [])
