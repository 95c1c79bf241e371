"""`compare --cluster`: pages through A and B by real workers, compared, resumed, recorded for Review."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.cli import over_cluster
from dsocr_core.cli.main import main
from dsocr_core.review.review import open_review
from dsocr_core.runs.store import History
from tests.support.cluster_runs import STAND_IN, make_pages

PAGES = 10
SPECIAL = {3: "infer max_new_tokens", 7: "fail"}


def test_pages_are_read_by_both_sides_compared_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(over_cluster, "READER_MODULE", STAND_IN)
    make_pages(tmp_path / "pages", PAGES, SPECIAL)
    out, history = tmp_path / "out", tmp_path / "history"
    command = [
        "compare", str(tmp_path / "pages"), "--a", "eager", "--b", "eager", "--b.infer.max-new-tokens", "77",
        "--infer.max-new-tokens", "55", "--preset", "tiny", "--cluster", "local", "--workers", "1",
        "--shard-pages", "4", "--out", str(out), "--history", str(history), "--save", "--json",
    ]  # fmt: skip
    assert main(command) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["a"], document["b"], document["pages"]) == ("eager", "eager-2", PAGES)
    assert document["verdicts"] == {"identical": 8, "within_tolerance": 0, "differs": 1, "not_comparable": 1}
    assert document["settings_that_differ"] == ["infer.max_new_tokens: 55 and 77"]
    assert [row["number"] for row in document["worst"]] == [7, 3]
    assert "planted failure" in document["worst"][0]["reasons"][0]
    with History(str(history)) as opened:
        review = open_review(opened, document["run_id"])
        assert [Path(page.name).name for page in review.pages] == ["00007.png", "00003.png"]
        page = review.detail(review.pages[1].name)
    assert page.a is not None and page.b is not None
    assert (page.a.text_raw, page.b.text_raw) == ("55", "77")

    # The same command goes on with what is there; the outputs alone give the same, without a cluster.
    assert main([word for word in command if word != "--save"]) == 1
    assert json.loads(capsys.readouterr().out)["verdicts"] == document["verdicts"]
    junit = tmp_path / "worst.xml"
    assert main(["compare", str(out / "a"), str(out / "b"), "--json", "--junit", str(junit)]) == 1
    again = json.loads(capsys.readouterr().out)
    assert (
        'tests="2" failures="1" errors="1"' in junit.read_text()
    )  # of the worst pages, and nothing is recorded
    assert {**again, "a": "eager", "b": "eager-2", "run_id": document["run_id"]} == document
    assert main(["compare", str(out / "a"), str(out / "a")]) == 1  # the page that failed fails again
    said = " ".join(capsys.readouterr().out.split())
    assert "10 pages: 9 identical, 0 within tolerance, 0 differs, 1 not comparable" in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--b", "fast", "--b", "vendor", "--cluster", "local", "--out", "x"], "give --b once"),
        (["--cluster", "local"], "--cluster needs --out"),
        (["--cluster", "nowhere", "--out", "x"], "give local, or an address"),
        (["--b", "command:my-ocr {image}", "--cluster", "local", "--out", "x"], "has no {out}"),
        (["--cluster", "local", "--out", "x", "--redo", "failed"], "no run is there whose failed pages"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    make_pages(tmp_path / "pages", 1)
    assert main(["compare", "pages", "--preset", "tiny", *options]) == 2
    said = " ".join("".join(capsys.readouterr()).split())
    assert says in said and "Traceback" not in said


def test_an_output_and_something_else_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out" / "plan").mkdir(parents=True)
    (tmp_path / "out" / "run.json").write_text("{}")
    assert main(["compare", str(tmp_path / "out"), str(tmp_path)]) == 2
    assert "give two of them, one and a run, or pages" in " ".join("".join(capsys.readouterr()).split())
