"""What `--save` and the app leave in the history."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.errors import Cancelled
from dsocr_core.history.recorder import RunRecorder, save_comparison
from dsocr_core.history.store import History
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.settings import PROJECT_ROOT, Settings, history_location
from tests.support.results import make_result


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.new("RGB", (200, 100), "white").save(path)
    return path


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(history=str(tmp_path / "history"))


def comparison(page: Path) -> Comparison:
    ours = make_result(image=page)
    return Comparison(ours.request, ours, replace(ours, backend="vendor"))


def test_pages_failures_and_parity_become_one_run(settings: Settings, page: Path) -> None:
    both = comparison(page)
    with RunRecorder(settings, "python -m dsocr_core compare page.png") as recorder:
        recorder.add("page.png", both)
        recorder.add("half.png", replace(both, b=None, errors={"vendor": "no such worker"}))
        recorder.add_failure("gone.png", ("eager", "vendor"), "no such file")
    with History(settings.history) as history:
        assert history.runs()["run_id"].tolist() == [recorder.id]
        images = history.sql("select page, backend, error from images order by page, backend")
        assert images.fillna("").values.tolist() == [
            ["gone.png", "eager", "no such file"],
            ["gone.png", "vendor", "no such file"],
            ["half.png", "eager", ""],
            ["half.png", "vendor", "no such worker"],
            ["page.png", "eager", ""],
            ["page.png", "vendor", ""],
        ]
        parity = history.sql("select page, verdict, tokens_equal from parity")
        assert parity.values.tolist() == [["page.png", "pass", True]]


def test_an_error_leaves_no_run(settings: Settings, page: Path) -> None:
    with pytest.raises(RuntimeError), RunRecorder(settings) as recorder:
        recorder.add("page.png", comparison(page))
        raise RuntimeError
    assert recorder.id is None
    with History(settings.history) as history:
        assert history.runs().empty


def test_a_cancelled_run_keeps_what_was_finished(settings: Settings, page: Path) -> None:
    with pytest.raises(Cancelled), RunRecorder(settings, "python -m dsocr_core run page.png") as recorder:
        recorder.add("page.png", comparison(page))
        raise Cancelled
    with pytest.raises(Cancelled), RunRecorder(settings) as nothing:
        raise Cancelled
    assert recorder.id is not None and nothing.id is None
    cut = save_comparison(settings, comparison(page), cancelled=True)
    whole = save_comparison(settings, comparison(page))
    with History(settings.history) as history:
        assert history.runs(text="cancelled")["run_id"].tolist() == [cut, recorder.id]
        assert len(history.tables(recorder.id)["images"]) == 2 and not history.leftovers()
        assert whole is not None and history.record(whole).notes is None


def test_nothing_read_is_nothing_kept(settings: Settings) -> None:
    with RunRecorder(settings) as recorder:
        pass
    assert recorder.id is None and not Path(settings.history).exists()


def test_the_app_keeps_a_page_and_its_picture(settings: Settings, page: Path) -> None:
    name = save_comparison(settings, comparison(page))
    assert name is not None
    assert len(list(Path(settings.history).rglob("result_with_boxes.jpg"))) == 2
    (clean,) = Path(settings.history).rglob("clean/*.jpg")  # one for both backends
    with Image.open(clean) as picture:
        assert picture.size == (200, 100)


def test_the_clean_page_can_be_left_out(settings: Settings, page: Path) -> None:
    assert save_comparison(replace(settings, clean_pages=False), comparison(page)) is not None
    assert not list(Path(settings.history).rglob("clean"))


def test_a_history_that_cannot_be_written_costs_no_result(
    page: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert save_comparison(Settings(history=str(tmp_path / "file")), comparison(page)) is None
    assert "was not recorded" in caplog.text
    assert save_comparison(Settings(history=""), comparison(page)) is None


def test_where_it_lies() -> None:
    assert history_location(Settings()) == str(PROJECT_ROOT / "data/runs/history")
    assert history_location(Settings(history="s3://bucket/runs")) == "s3://bucket/runs"
    assert history_location(Settings(history="/var/runs")) == "/var/runs"


@pytest.mark.parametrize(
    "variable", [None, "NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"]
)
def test_a_run_under_a_profiler_is_marked(
    settings: Settings, page: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    for name in ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    with RunRecorder(settings) as recorder:
        recorder.add("page.png", comparison(page))
    with History(settings.history) as history:
        assert recorder.id is not None and history.record(recorder.id).profiled == (variable is not None)
        in_trends, _ = history.query("trend", stage="decode", backend="eager")
        assert len(in_trends) == (variable is None)
