"""`compare A_OUT B_OUT`: pages read by real workers, compared, recorded for Review."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.cli import over_cluster
from dsocr_core.cli.main import main
from dsocr_core.review.review import open_review
from dsocr_core.runs.history import History
from tests.cluster.cluster_runs import STAND_IN, make_pages

PAGES = 10
SPECIAL = {3: "infer max_new_tokens", 7: "fail"}


def test_two_outputs_are_compared_and_the_worst_pages_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(over_cluster, "READER_MODULE", STAND_IN)
    make_pages(tmp_path / "pages", PAGES, SPECIAL)
    out, history = tmp_path / "out", tmp_path / "history"
    shared = ["--preset", "tiny", "--cluster", "local", "--workers", "1", "--shard-pages", "4"]
    for side, tokens in (("a", "55"), ("b", "77")):
        read = ["run", str(tmp_path / "pages"), "--infer.max-new-tokens", tokens, "--out", str(out / side)]
        assert main([*read, *shared]) == 1  # a page fails
    capsys.readouterr()
    command = ["compare", str(out / "a"), str(out / "b"), "--history", str(history), "--json"]
    assert main([*command, "--save"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["a"], document["b"], document["pages"]) == (str(out / "a"), str(out / "b"), PAGES)
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

    junit = tmp_path / "worst.xml"
    assert main([*command, "--junit", str(junit)]) == 1
    assert json.loads(capsys.readouterr().out) == document | {"run_id": None}
    assert 'tests="2" failures="1" errors="1"' in junit.read_text()  # of the worst pages; nothing is recorded
    assert main(["compare", str(out / "a"), str(out / "a")]) == 1  # the page that failed fails again
    said = " ".join(capsys.readouterr().out.split())
    assert "10 pages: 9 identical, 0 within tolerance, 0 differs, 1 not comparable" in said


def test_an_output_and_something_else_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out" / "done").mkdir(parents=True)
    (tmp_path / "out" / "run.json").write_text("{}")
    assert main(["compare", str(tmp_path / "out"), str(tmp_path)]) == 2
    assert "give two of them, one and a run, or pages" in " ".join("".join(capsys.readouterr()).split())
