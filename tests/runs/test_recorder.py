"""What `--save` and the app record in the history."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.read.run import save_comparison
from dsocr_core.reading.parity import Comparison
from dsocr_core.runs.history import History
from dsocr_core.runs.record import CANCELLED, Recording
from dsocr_core.runs.results import PageResults
from dsocr_core.settings import Settings
from tests.support.results import make_result

TWO_BOXES = (
    "<|ref|>title<|/ref|><|det|>[[100, 100, 500, 200]]<|/det|>\n# Hello\n"
    "<|ref|>text<|/ref|><|det|>[[0, 500, 999, 600]]<|/det|>\nWorld\n"
)


@pytest.fixture
def both(tmp_path: Path) -> Comparison:
    page = tmp_path / "page.png"
    Image.new("RGB", (1000, 800), "white").save(page)
    result = make_result(TWO_BOXES, image=page)
    return Comparison(result.request, result, make_result(image=page, backend="vendor"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(history=str(tmp_path / "history"))


def test_pages_failures_and_parity_become_one_run(settings: Settings, both: Comparison) -> None:
    """In the columns that SQL asks; that results read back as they were is a test of the readings."""
    with Recording(settings, "python -m dsocr_core compare page.png") as recorder:
        recorder.add("page.png", both)
        recorder.add("half.png", replace(both, b=None, errors={"b": "no such worker"}))
        recorder.run.add(PageResults.failed("gone.png", ("eager", "vendor"), "no such file"))
    with History(settings.history) as history:
        [run] = history.runs().to_dict("records")
        assert history.record(str(recorder.id)).environment["machine"]["cores"]
        names = sorted(path.name for path in history.directory(run["run_id"]).iterdir())
        images = history.sql("select * from readings order by page, backend").to_dict("records")
        parity = history.sql("from parity order by page").to_dict("records")
        of_page = "where page = 'page.png' and backend = 'eager'"
        times = history.sql(f"from timings {of_page}").to_dict("records")
        boxes = history.sql(f"from boxes {of_page}").to_dict("records")
    assert names == ["SHA256SUMS", "parity.parquet", "readings.parquet", "run.json", "timings.parquet"]
    pages = [(row["page"], row["backend"], str(row["error"])) for row in images]
    assert pages[:2] == [("gone.png", name, "no such file") for name in ("eager", "vendor")]
    assert pages[3] == ("half.png", "vendor", "no such worker")
    figures = ("width", "height", "new_tokens", "prompt_tokens", "text_raw")
    assert [images[4][name] for name in figures] == [1000, 800, len(TWO_BOXES), 5, TWO_BOXES]
    assert [(row["page"], row["verdict"], list(row["reasons"])) for row in parity[:2]] == [
        ("gone.png", "not_comparable", ["could not be read: no such file"]),
        ("half.png", "not_comparable", ["could not be read: B: no such worker"]),
    ]
    # Our text goes on where the vendor's ends: 66 characters, a token each.
    found = [parity[2][name] for name in ("verdict", "boxes_a", "boxes_b", "first_divergence")]
    assert found == ["differs", 2, 1, 66]
    names = ["compared", "passed", "identical", "within_tolerance", "differs", "not_comparable"]
    assert [run[name] for name in names] == [3, 0, 0, 0, 1, 2]
    inside = {each["stage"] for each in times if each["inside_prefill"]}
    assert len(times) == 9 and inside == {"sam", "clip", "projector", "vision_fusion"}
    # 999 is the far side of a page 1000 pixels wide.
    found = [(each["number"], each["label"], each["x1"], each["x2"]) for each in boxes]
    assert found == [(0, "title", 100.0, 500.0), (1, "text", 0.0, 1000.0)]


def test_a_side_of_a_cancelled_comparison_and_a_run_of_one_backend_are_not_compared(
    settings: Settings, both: Comparison
) -> None:
    with Recording(settings) as recorder:
        recorder.add("half.png", replace(both, b=None))
        recorder.run.add(PageResults.failed("gone.png", ("eager",), "no such file"))
    with History(settings.history) as history:
        assert history.sql("select * from parity").empty and recorder.id is not None


def test_a_cancelled_run_keeps_what_was_finished(settings: Settings, both: Comparison) -> None:
    with pytest.raises(Cancelled), Recording(settings, "python -m dsocr_core run page.png") as recorder:
        recorder.add("page.png", both)
        raise Cancelled
    with pytest.raises(Cancelled), Recording(settings) as nothing:
        raise Cancelled
    assert recorder.id is not None and nothing.id is None
    cut, whole = save_comparison(settings, both, cancelled=True), save_comparison(settings, both)
    with History(settings.history) as history:
        noted = history.runs().set_index("run_id")["notes"].fillna("").eq(CANCELLED)
        assert noted[noted].index.tolist() == [cut, recorder.id]
        assert len(history.tables(recorder.id)["readings"]) == 2 and not history.storage.leftovers()
        [_, _, _, name, *_, image] = shlex.split(str(history.record(str(whole)).command))
        assert (name, image) == ("compare", str(both.request.image))


def test_the_app_records_a_page_and_its_picture_where_it_is_wanted(
    settings: Settings, both: Comparison
) -> None:
    assert save_comparison(Settings(history=""), both) is None
    assert save_comparison(replace(settings, clean_pages=False), both) is not None
    assert not list(Path(settings.history).rglob("clean"))
    assert save_comparison(settings, both) is not None
    (clean,) = Path(settings.history).rglob("clean/*.jpg")  # one for both backends
    with Image.open(clean) as picture:
        assert picture.size == (1000, 800)


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nothing"])
def test_a_history_that_cannot_be_written_is_said_before_the_first_page(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    settings = Settings(history=str(tmp_path / place))
    with pytest.raises(DsocrError, match="cannot be written to"), Recording(settings):
        pytest.fail("a page would be read")


@pytest.mark.parametrize("name", ["NSYS_PROFILING_SESSION_ID", "NVTX_INJECTION64_PATH"])
def test_a_run_under_a_profiler_is_marked(
    settings: Settings, both: Comparison, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ids = [save_comparison(settings, both)]
    monkeypatch.setenv(name, "1")
    save_comparison(settings, both)
    with History(settings.history) as history:
        assert len(history) == 2 and history.runs(profiled=False)["run_id"].tolist() == ids
