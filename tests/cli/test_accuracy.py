"""`accuracy`, and the backends `folder:` and `command:`, from the command line on."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dsocr_core.cli.main import main
from tests.support.paths import SAMPLES

RAW = "<|ref|>text<|/ref|><|det|>[[10, 10, 500, 60]]<|/det|>\n"
PAGES = ("01-letter", "02-invoice")


def truth(folder: Path) -> Path:
    """Ground truth of two pages and of one that nobody has read, its name like a formula."""
    data = [
        {
            "layout_dets": [{"category_type": "text_block", "anno_id": 1, "order": 1, "text": text}],
            "extra": {"relation": []},
            "page_info": {"image_path": f"{name}.png", "width": 1, "height": 1, "page_attribute": {}},
        }
        for name, text in ((PAGES[0], "abcde"), (PAGES[1], "fghij"), ("=cmd", "klmno"))
    ]  # fmt: skip
    file = folder / "OmniDocBench.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    return file


def texts(folder: Path, **content: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in content.items():
        (folder / f"{name.replace('_', '-')}.md").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    a = texts(tmp_path / "a", **{PAGES[0]: RAW + "abcde", PAGES[1]: RAW + "fghiX", "other": "x"})
    return a, texts(tmp_path / "b", **{PAGES[0]: "abXXX"})


def answer(capsys: pytest.CaptureFixture[str], *given: object) -> Any:
    assert main([str(each) for each in given]) == 0
    return json.loads(capsys.readouterr().out)


def test_figures_of_two_sides(
    tmp_path: Path, sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "pages.csv"
    given = ("accuracy", "--ground-truth", truth(tmp_path), *sides, "--csv", table, "--json")
    found = answer(capsys, *given)
    a, b = found["sides"]["a"], found["sides"]["b"]
    assert (a["text_edit"], b["text_edit"]) == (pytest.approx((0 + 1 / 5) / 2), pytest.approx(3 / 5))
    assert (a["order_edit"], a["table_teds"], a["pages"]) == (0.0, None, 2)
    assert list(a["pages_without_text"]) == ["=cmd.png"] and a["texts_of_no_page"] == ["other"]
    assert list(b["pages_without_text"]) == ["02-invoice.png", "=cmd.png"]
    assert found["overall"].startswith("not computed") and found["formula_cdm"].startswith("not computed")
    assert found["evaluator"].startswith("OmniDocBench 1.5")
    assert found["release"].startswith("3 pages: no whole release")
    assert found["pages"][1]["b"] is None and found["pages"][1]["a"]["text_edit"] == pytest.approx(1 / 5)
    with table.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["text_edit"] for row in rows] == ["0.0", "0.6", "0.2", "", "", ""]
    assert rows[4]["image"] == "'=cmd.png"  # no formula for a spreadsheet


def test_the_table_names_what_is_missing(
    tmp_path: Path, sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["accuracy", "--ground-truth", str(truth(tmp_path)), *map(str, sides)]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "0.000 / 0.600" in words and "0.200 / no text" in words
    assert "2 pages have no text and are left out, as the benchmark does" in words
    assert "Formula CDM and Overall are not computed" in words


def test_figures_of_the_benchmarks_own_evaluator_stand_beside(
    tmp_path: Path, sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file, result = truth(tmp_path), tmp_path / "metric_result.json"
    result.write_text(json.dumps({
        "text_block": {"all": {"Edit_dist": {"ALL_page_avg": 0.0304}}},
        "display_formula": {"all": {"Edit_dist": {"ALL_page_avg": "NaN"}}},
        "table": {"all": {"TEDS": {"all": 0.94}}, "page": {"TEDS": {"ALL": 0.91}}},
        "reading_order": {"all": {"Edit_dist": {"ALL_page_avg": 0.0}}},
    }))  # fmt: skip
    given = ("accuracy", "--ground-truth", str(file), str(sides[0]), "--official", str(result))
    assert answer(capsys, *given, "--json")["official"] == {
        "text_edit": 0.0304, "order_edit": 0.0, "formula_edit": None, "table_teds": 0.91,
        "table_structure": None,
    }  # fmt: skip
    assert main([*given]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "OmniDocBench's own – – 0.030 0.000" in words
    for content in ("{}", "[]", '{"text_block": {"all": {"Edit_dist": {"ALL_page_avg": 7}}}}', "{"):
        result.write_text(content)
        assert main([*given]) == 2
        assert "metric_result.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        ("omnidocbench", ["01-letter.md", "02-invoice.md", "other.md"]),
        ("olmocr", ["01-letter_pg1_repeat1.md", "02-invoice_pg1_repeat1.md", "other_pg1_repeat1.md"]),
    ],
)
def test_texts_are_written_as_the_benchmarks_read_them(
    tmp_path: Path,
    sides: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    layout: str,
    names: list[str],
) -> None:
    out = tmp_path / "out"
    found = answer(capsys, "accuracy", sides[0], "--export", out, "--layout", layout, "--json")
    assert found == {"exported": 3, "layout": layout, "directory": str(out)}
    assert sorted(path.name for path in out.iterdir()) == names
    assert (out / names[0]).read_text() == "\nabcde"  # without the markup
    assert main(["accuracy", str(sides[0]), "--export", str(out)]) == 2
    assert "is not empty; give a new folder" in " ".join(capsys.readouterr().out.split())


def test_texts_of_pdfs_in_folders_lie_where_the_runner_of_olmocr_bench_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pdfs = tmp_path / "bench" / "pdfs"
    for level, name in enumerate(("notes.pdf", "math/notes.pdf", "math/deep/paper_pg2.pdf")):
        (pdfs / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (40, 30), 255 - level).save(
            pdfs / name, save_all=True, append_images=[Image.new("L", (40, 30))]
        )
    run, out = tmp_path / "run", tmp_path / "bench" / "mine"
    short = ("--preset", "tiny", "--infer.max_new_tokens", "2", "--recursive", "--out", str(run))
    assert main(["run", str(pdfs), *short]) == 0 and capsys.readouterr()
    answer(capsys, "accuracy", run, "--export", out, "--layout", "olmocr", "--json")
    # The rule of olmocr/bench/benchmark.py: the way below pdfs, the page and the repetition.
    expected = {
        f"{pdf.relative_to(pdfs).with_suffix('')}_pg{page}_repeat1.md"
        for pdf in pdfs.rglob("*.pdf")
        for page in (1, 2)
    }
    assert {str(file.relative_to(out)) for file in out.rglob("*.md")} == expected and len(expected) == 6


def test_an_exported_folder_scores_as_what_it_was_made_of(
    tmp_path: Path, sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    answer(capsys, "accuracy", sides[0], "--export", tmp_path / "out", "--json")
    file = truth(tmp_path)
    found = answer(capsys, "accuracy", "--ground-truth", file, sides[0], tmp_path / "out", "--json")
    assert found["sides"]["a"]["text_edit"] == found["sides"]["b"]["text_edit"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["a"], "give --ground-truth OmniDocBench.json, or --export DIR"),
        (["a", "b", "c", "--export", "d"], "3 sides are given; give A, or A and B"),
        (["no-such-folder", "--export", "d"], "no-such-folder: there is no such folder"),
        (["a", "--export", "d", "--workers", "0"], "give a positive integer"),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    given: list[str], words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["accuracy", *given]) == 2
    assert words in " ".join(capsys.readouterr().out.split())


def test_a_folder_and_a_command_are_compared_like_any_backends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = texts(tmp_path / "left", **{PAGES[0]: RAW + "Dear", PAGES[1]: RAW + "Invoice"})
    copies = "import pathlib, shutil, sys; left, image, out = map(pathlib.Path, sys.argv[1:]);"
    copies += "shutil.copy(left / (image.stem + '.md'), out)"
    command = shlex.join([sys.executable, "-c", copies, str(folder)]) + " {image} {out}"
    images = [str(SAMPLES / f"{name}.png") for name in (*PAGES, "05-square-card")]
    given = ["compare", *images, "--a", f"folder:{folder}", "--b", f"command:{command}"]
    assert main([*given, "--out", str(tmp_path / "run"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [page.get("verdict") for page in found["pages"]][:2] == ["identical", "identical"]
    errors = json.dumps(found["pages"][2])
    assert "has no text of that name" in errors and "ended with exit code 1: FileNotFoundError" in errors


def test_without_its_packages_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "dsocr_core.cli.options.find_spec", lambda name: None if name in ("lxml", "bs4") else name
    )
    side = texts(tmp_path / "a", **{"01_letter": "abcde"})
    assert main(["accuracy", str(side), "--ground-truth", str(truth(tmp_path))]) == 2
    said = capsys.readouterr().out
    assert said == "error: accuracy needs lxml and bs4: pip install -r requirements-accuracy.txt\n"
    assert main(["accuracy", str(side), "--export", str(tmp_path / "out")]) == 0  # which scores nothing
