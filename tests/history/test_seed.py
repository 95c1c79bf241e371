"""How the runs that come with the project are made, and those that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.history_seed import make
from dsocr_core.history.exporters import export_runs
from dsocr_core.history.speed import compare_speed
from dsocr_core.history.store import SEED_LOCATION, History
from dsocr_core.settings import PROJECT_ROOT
from tests.support.fabricated_results import FabricatedPipeline, make_samples
from tests.support.made_up_runs import timing, write_run

NO_GPU = ("--gpu", "no-recordings")


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FabricatedPipeline:
    """Made-up samples and backends in the place of the real ones."""
    monkeypatch.chdir(PROJECT_ROOT)
    backends = FabricatedPipeline(make_samples(tmp_path / "samples"))

    def pipeline(settings, results):
        made = FabricatedPipeline(backends.blocks, differ=lambda name: backends.differ(name))
        made.settings = settings
        return made

    monkeypatch.setattr(make, "Session", pipeline)
    monkeypatch.setattr(make, "SAMPLES", tmp_path / "samples")
    return backends


def files_of(place: Path) -> dict[str, bytes]:
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def test_a_run_for_each_attention_without_pictures(samples: FabricatedPipeline, tmp_path: Path) -> None:
    assert make.main([*NO_GPU, "--to", str(tmp_path / "seed")]) == 0
    assert sorted(path.name for path in (tmp_path / "seed").iterdir()) == ["annotations", "runs"]
    assert not [name for name in files_of(tmp_path / "seed") if name.endswith((".jpg", ".png"))]
    with History(tmp_path / "mine", also=[tmp_path / "seed"]) as history:
        assert len(history) == len(make.ATTENTIONS) + len(make.VARIANTS)
        assert all(tags == ["example"] for tags in history.runs()["tags"].map(list))
        runs = history.runs(backends=["vendor"])
        assert sorted(history.record(run_id).settings["attention"] for run_id in runs["run_id"]) == [
            "eager", "sdpa",
        ]  # fmt: skip
        assert runs[["pages", "failed", "compared", "passed"]].values.tolist() == [[4, 0, 4, 4]] * 2
        for run_id in runs["run_id"]:
            record = history.record(run_id)
            assert (record.host, record.settings["checkpoint"], record.backends) == (
                None, "data/mini", ("eager", "vendor"),
            )  # fmt: skip
            assert f"--attention={record.settings['attention']}" in record.command


def test_a_page_that_disagrees_leaves_the_earlier_runs(samples: FabricatedPipeline, tmp_path: Path) -> None:
    assert make.main([*NO_GPU, "--to", str(tmp_path / "seed")]) == 0
    before = files_of(tmp_path / "seed")
    samples.differ = lambda name: name == "receipt_small.png"
    assert make.main([*NO_GPU, "--to", str(tmp_path / "seed")]) == 1
    assert files_of(tmp_path / "seed") == before


def test_runs_of_another_machine_come_along_within_bounds(
    samples: FabricatedPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    write_run(tmp_path / "gpu", "of-a-gpu", [timing("p", "sam", 1.5)], gpu="NVIDIA H200")
    with History(tmp_path / "gpu") as other:
        export_runs(other, ["of-a-gpu"], tmp_path / "gpu.zip", "zip")
    assert make.main([*NO_GPU, str(tmp_path / "gpu.zip"), "--to", str(tmp_path / "seed")]) == 0
    with History(tmp_path / "seed") as history:
        assert len(history) == 6 and history.record("of-a-gpu").gpu == "NVIDIA H200"
    (tmp_path / "bad.zip").write_bytes(b"PK")
    assert make.main([*NO_GPU, str(tmp_path / "bad.zip"), "--to", str(tmp_path / "seed")]) == 1
    monkeypatch.setattr(make, "MOST_BYTES", 1000)
    assert make.main([*NO_GPU, "--to", str(tmp_path / "seed")]) == 1
    assert "more than 1,000" in capsys.readouterr().err
    with History(tmp_path / "seed") as history:
        assert len(history) == 6


@pytest.mark.skipif(
    not (SEED_LOCATION / "runs").is_dir(), reason="no runs were recorded yet: make seed-history"
)
def test_the_runs_that_come_with_the_project(tmp_path: Path) -> None:
    content = files_of(SEED_LOCATION / "runs")
    assert sum(map(len, content.values())) <= make.MOST_BYTES
    assert not [name for name, data in content.items() if str(PROJECT_ROOT).encode() in data]
    with History(tmp_path, also=[SEED_LOCATION]) as history:
        assert not history.problems
        runs = history.runs(sources=["dsocr"], backends=["vendor"])
        runs = runs[runs["device"] == "cpu"]
        assert len(runs) == 2
        assert (runs["identical"] == runs["compared"]).all() and (runs["compared"] == runs["pages"]).all()
        a, b = runs["run_id"].iloc[:2]
        found = compare_speed(history, (a, "eager"), (b, "eager")).set_index("stage")
        assert {"sam", "prefill", "decode"} <= set(found.index)
        assert (found["pages"] == runs["pages"].iloc[0]).all()
