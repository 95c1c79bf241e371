"""Outputs of a cluster as runs: compared with each other and with a run, and imported as they are."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.cli.main import main
from dsocr_core.cluster.compare import Compared, compare_outputs, settings_that_differ
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageRef
from dsocr_core.models.stages import Stage
from dsocr_core.reading.parity_records import Tolerance
from dsocr_core.reading.records import OcrResult
from dsocr_core.review.review import open_review
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.results import PageResults, readings
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.sharded import PageReading
from dsocr_core.settings import InferSettings, Settings
from tests.cluster import made_up_output
from tests.cluster.made_up_output import a_result, committed, planned
from tests.support.made_up_runs import record

PAGES = 10
WORDS = "The quick brown fox jumps over the lazy dog"
TEXT = f"<|ref|>text<|/ref|><|det|>[[10, 10, 500, 60]]<|/det|>\n{WORDS}"
Special = Mapping[int, OcrResult | str]
"""Pages that are read differently, or that failed with that error."""


def made(
    folder: Path, special: Special | None = None, tokens: int = 20, shards: int = 3, shard_pages: int = 4,
    root: str = "/data", first: int = 0,
) -> Output:  # fmt: skip
    """An output with as many of its shards committed."""
    output = Output(str(folder))
    settings = Settings(preset="tiny", a="eager", infer=InferSettings(max_new_tokens=tokens))
    job = Job.of(settings, (root,), shard_pages)

    def read(page: PageRef) -> PageReading:
        times = [(Stage.PREFILL, 2.0), (Stage.DECODE, 3.0)]
        found = (special or {}).get(page.number, a_result(TEXT, times, environment={"device_name": "one"}))
        return page.failed(found) if isinstance(found, str) else page.read(found)

    files = [f"{root}/{first + number:02d}.png" for number in range(PAGES)]
    for shard in planned(output, job, files)[:shards]:
        committed(output, shard, read)
    return output


def compared(a: Output, b: Output, cancel: threading.Event | None = None) -> Compared:
    with ThreadPoolExecutor(2) as executor:
        return compare_outputs(a, b, Tolerance(), executor, cancel or threading.Event())


def test_every_verdict_is_that_of_parity_and_the_worst_comes_first(tmp_path: Path) -> None:
    """A letter of 43 is above the tolerance; a text without boxes is within it."""
    special = {
        1: a_result(TEXT.replace("quick brown fox jumps over the lazy dog", "slow")),
        2: a_result(TEXT.replace("lazy", "lasy")),
        3: a_result(WORDS, token_ids=None, boxes_known=False),
        5: "planted",
    }
    found = compared(made(tmp_path / "a"), made(tmp_path / "b", special, root="/moved"))
    rows = {row["number"]: row for row in found.worst}
    assert [(number, row["verdict"]) for number, row in rows.items()] == [
        (5, "not_comparable"), (1, "differs"), (2, "differs"), (3, "within_tolerance"),
    ]  # fmt: skip
    assert rows[3]["reasons"] == ["boxes not known: of B"]
    assert rows[5]["reasons"] == ["could not be read: B: planted"]
    assert rows[2]["character_error_rate"] == pytest.approx(1 / 43)
    assert rows[2]["first_divergence"] == TEXT.index("lazy") + 2
    assert (found.passed, found.failed, found.verdicts["identical"]) == (7, 3, 6)


def test_the_command_compares_two_outputs_and_records_the_worst_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, history = str(tmp_path / "a"), str(tmp_path / "b"), tmp_path / "history"
    made(tmp_path / "a", {7: "planted"}, tokens=55)
    made(tmp_path / "b", {3: a_result("77"), 7: "planted"}, tokens=77)
    command = ["compare", a, b, "--history", str(history), "--json"]
    assert main([*command, "--save"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["a"], document["b"], document["pages"]) == (a, b, PAGES)
    assert document["verdicts"] == {"identical": 8, "within_tolerance": 0, "differs": 1, "not_comparable": 1}
    assert document["settings_that_differ"] == ["infer.max_new_tokens: 55 and 77"]
    assert [row["number"] for row in document["worst"]] == [7, 3]
    with History(str(history)) as opened:
        review = open_review(opened, document["run_id"])
        assert [Path(page.name).name for page in review.pages] == ["07.png", "03.png"]
        page = review.detail(review.pages[1].name)
    assert page.a is not None and page.b is not None
    assert (page.a.text_raw, page.b.text_raw) == (TEXT, "77")
    junit = tmp_path / "worst.xml"
    assert main([*command, "--junit", str(junit)]) == 1
    assert json.loads(capsys.readouterr().out) == document | {"run_id": None}
    assert 'tests="2" failures="1" errors="1"' in junit.read_text()  # of the worst pages; nothing is recorded
    assert main(["compare", a, a]) == 1  # the page that failed fails again
    said = " ".join(capsys.readouterr().out.split())
    assert "10 pages: 9 identical, 0 within tolerance, 0 differs, 1 not comparable" in said
    assert main(["compare", a, str(tmp_path)]) == 2
    assert "give two of them, one and a run, or pages" in " ".join("".join(capsys.readouterr()).split())


@pytest.mark.parametrize("shards_of_a", [3, 1], ids=["one side", "neither"])
def test_pages_that_a_side_has_not_read_are_counted_and_fail(tmp_path: Path, shards_of_a: int) -> None:
    found = compared(made(tmp_path / "a", shards=shards_of_a), made(tmp_path / "b", shards=1))
    assert (found.pages, found.not_compared, found.failed) == (4, 6, 6)


def test_outputs_of_other_pages_or_other_shards_are_refused(tmp_path: Path) -> None:
    a = made(tmp_path / "a")
    with pytest.raises(DsocrError, match=r"a \(4\) and .*/5 \(5\): read both with the same --shard-pages"):
        settings_that_differ(a, made(tmp_path / "5", shard_pages=5))
    with pytest.raises(DsocrError, match=r"is /data/0\d.png and /data/10\d.png: .*same inputs"):
        compared(a, made(tmp_path / "b", first=100))


def test_cancel_ends_it_between_shards(tmp_path: Path) -> None:
    (cancel := threading.Event()).set()
    with pytest.raises(Cancelled):
        compared(made(tmp_path / "a"), made(tmp_path / "b"), cancel)


def test_of_many_pages_the_worst_stay() -> None:
    whole, row = Compared(), {"verdict": "differs", "tokens_equal": False}
    for first in range(0, 2000, 10):
        rates = [(number, (number * 37 % 2000) / 2000) for number in range(first, first + 10)]
        whole.add([row | {"number": number, "character_error_rate": rate} for number, rate in rates])
    assert [row["character_error_rate"] for row in whole.worst[:2]] == [0.9995, 0.999]
    assert (len(whole.worst), whole.pages, whole.mean_error_rate) == (1000, 2000, pytest.approx(0.49975))


# --- as a run -------------------------------------------------------------------------------------


def test_a_complete_output_is_imported_as_it_is_and_another_one_refused(tmp_path: Path) -> None:
    output = made(tmp_path / "out", {3: "planted"})
    made(tmp_path / "half", shards=2)
    with History(tmp_path / "h") as history:
        report = import_paths(history, [tmp_path / "out"])
        assert ([run.run_id for run in report.imported], report.skipped) == ([output.run()["id"]], [])
        assert [run.run_id for run in import_paths(history, [tmp_path / "out"]).known] == history.run_ids()
        [skipped] = import_paths(history, [tmp_path / "half"]).skipped
        assert skipped.reason.startswith("8 of 10 pages are read") and not history.problems
        [run_id] = history.run_ids()
        found = readings(history, run_id)
        assert list(found.requests) == [(f"{number:02d}.png", "eager") for number in range(PAGES)]
        assert found.failures == {("03.png", "eager"): "planted"}
        pages = made_up_output.readings(str(tmp_path / "out"))
        assert list(found.results.values()) == [page.result for page in pages if page.result]
        assert history.record(run_id).settings["preset"] == "tiny"


def test_an_output_is_compared_with_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, location = str(tmp_path / "out"), str(tmp_path / "h")
    made(tmp_path / "out", {3: "planted"})
    with RunDirectory.create(tmp_path / "h", record("run-1", backends=("fast",))) as writer:
        for number in {*range(PAGES)} - {3}:
            result = replace(a_result("other" if number == 1 else TEXT), backend="fast")
            writer.add(PageResults(f"{number:02d}.png", results=[result]))
    for names in ((out, "run-1"), ("run-1", out)):
        assert main(["compare", *names, "--history", location, "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        verdicts = {row["image"]: row["verdict"] for row in document["pages"] if "absent" not in row["kinds"]}
        expected = {f"{number:02d}.png": "identical" for number in range(PAGES) if number != 3}
        assert verdicts == expected | {"01.png": "differs"}
