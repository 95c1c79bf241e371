"""How the runs that come with the project are made, and those that are there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from data.history_seed import make
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.review.review import open_review
from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.runs.queries import QUERIES
from dsocr_core.runs.speed import compare_speed
from tests.support.fabricated_results import FabricatedPipeline, draw_page


def files_of(place: Path) -> dict[str, bytes]:
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def test_a_run_for_each_attention_without_pictures_unless_a_page_disagrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of made-up samples and backends."""
    monkeypatch.chdir(PROJECT_ROOT)
    (tmp_path / "samples").mkdir()
    pages = [tmp_path / "samples" / name for name in ("letter.png", "receipt.png")]
    backends = FabricatedPipeline({page.name: draw_page(page, 240, 300) for page in pages})

    def pipeline(settings, results):
        made = FabricatedPipeline(backends.blocks, differ=lambda name: backends.differ(name))
        made.settings = settings
        return made

    monkeypatch.setattr(make, "Session", pipeline)
    monkeypatch.setattr(make, "SAMPLES", tmp_path / "samples")
    assert make.main(["--to", str(tmp_path / "seed")]) == 0
    before = files_of(tmp_path / "seed")
    assert sorted(path.name for path in (tmp_path / "seed").iterdir()) == ["annotations", "runs"]
    assert not [name for name in before if name.endswith((".jpg", ".png"))]
    with History(tmp_path / "mine", tmp_path / "seed") as history:
        assert len(history) == len(make.ATTENTIONS) + len(make.VARIANTS)
        assert all(tags == ["example"] for tags in history.runs()["tags"].map(list))
        runs = history.runs(backends=["vendor"])
        records = [history.record(run_id) for run_id in runs["run_id"]]
        assert sorted(record.settings["attention"] for record in records) == ["eager", "sdpa"]
        assert runs[["pages", "failed", "compared", "passed"]].values.tolist() == [[2, 0, 2, 2]] * 2
        for record in records:
            assert (record.host, record.settings["checkpoint"]) == (None, "data/mini")
            assert record.backends == ("eager", "vendor")
            assert f"--attention={record.settings['attention']}" in (record.command or "")
    backends.differ = lambda name: name == "receipt.png"
    assert make.main(["--to", str(tmp_path / "seed")]) == 1
    assert files_of(tmp_path / "seed") == before


# --- those that are there -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seeded() -> Iterator[History]:
    with History(SEED_LOCATION) as history:
        yield history


def test_the_runs_that_come_with_the_project(seeded: History) -> None:
    content = files_of(SEED_LOCATION / "runs")
    assert sum(map(len, content.values())) <= make.MOST_BYTES
    assert not [name for name, data in content.items() if str(PROJECT_ROOT).encode() in data]
    assert not seeded.problems
    runs = seeded.runs(backends=["vendor"])
    runs = runs[(runs["source"] == "dsocr") & (runs["device"] == "cpu")]
    assert len(runs) == 2
    assert (runs["identical"] == runs["compared"]).all() and (runs["compared"] == runs["pages"]).all()
    for run_id in runs["run_id"]:  # as the review judges their texts
        assert {page.verdict for page in open_review(seeded, run_id).pages} == {"identical"}
    a, b = runs["run_id"].iloc[:2]
    found = compare_speed(seeded, (a, "eager"), (b, "eager")).set_index("stage")
    assert {"sam", "prefill", "decode"} <= set(found.index)
    assert (found["pages"] == runs["pages"].iloc[0]).all()


def test_a_bench_of_a_gpu_says_command_commit_and_machine_and_no_host(seeded: History) -> None:
    benches = {file.parent.name for file in SEED_LOCATION.glob("runs/*/bench.json")} & {*seeded.run_ids()}
    assert len(benches) == 24
    for run_id in benches:
        record = seeded.record(run_id)
        assert record.command is not None and record.command.startswith("python -m dsocr_core bench")
        assert len(record.git_commit or "") == 40 and record.git_dirty is False
        assert (record.gpu, record.host) == ("NVIDIA H200", None)
        assert {"gpu_sm_mhz", "gpu_power_w", "load_1m", "driver"} <= record.environment["machine"].keys()


def test_the_figure_of_a_bench_is_what_sql_gives(seeded: History) -> None:
    run_id = "20261123-120255-4306169d"
    [engine] = json.loads((SEED_LOCATION / "runs" / run_id / "bench.json").read_bytes())["engines"]
    rate = seeded.sql(
        "SELECT median(1000 * (new_tokens - 1) / milliseconds) AS rate FROM stage_timings JOIN images "
        f"USING (run_id, page) WHERE stage = 'decode' AND run_id = '{run_id}'"
    )["rate"].iloc[0]
    assert rate == pytest.approx(engine["tokens_per_s"]["median"], rel=1e-9)
    assert f"{rate:,.0f} tokens/s" in (seeded.record(run_id).notes or "")


def test_the_old_gelu_is_a_regression_to_review(seeded: History) -> None:
    run_id = "20261122-224122-a5d34156"
    assert seeded.record(run_id).git_dirty is True, "the reference's code is that of a later commit"
    verdicts = [page.verdict for page in open_review(seeded, run_id).pages]
    assert (verdicts.count("within_tolerance"), verdicts.count("identical")) == (3, 11)


@pytest.mark.parametrize(
    ("run_id", "engine", "launches", "ends"),
    [
        ("20261123-230246-ncu-fast", "fast", 76, ("_embed_token", "_take_best")),
        ("20261123-232244-ncu-fast-ops", "fast", 36, ("_embed_token", "_down")),
        ("20261123-113401-ncu-eager", "eager", 388, ("ArgMaxOps", "CUDAFunctor_add<c10::BFloat16>")),
    ],
)
def test_a_profile_has_the_kernels_of_whole_layers(
    seeded: History, run_id: str, engine: str, launches: int, ends: tuple[str, str]
) -> None:
    record = seeded.record(run_id)
    assert record.profiled and record.engine == engine and record.gpu == "NVIDIA H200"
    kernels, _ = seeded.query("kernels", run_ids=[run_id], top=100_000)
    assert kernels["instances"].sum() == launches
    assert kernels["share"].sum() == pytest.approx(1)
    found, _ = seeded.query("launches", run_ids=[run_id])
    assert set(found["stage"]) == {"decode"}
    assert ends[0] in found["kernel"].iloc[0] and ends[1] in found["kernel"].iloc[-1]


@pytest.mark.parametrize("name", ["gap_stages", "flop_gaps"])
def test_runs_that_are_asked_in_parts_give_the_answer_of_all(
    seeded: History, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(QUERIES, name, replace(QUERIES[name], together=3))
    parts = seeded._parts(seeded.run_ids(), 3)
    assert [run for part in parts for run in part] == seeded.run_ids() and len(parts) > 3
    answer, sql = seeded.query(name)
    pd.testing.assert_frame_equal(answer, seeded.sql(sql))
    kept = dict(seeded._parts_answered[name])
    last = next(reversed(kept))
    del seeded._parts_answered[name][last]  # as if its runs had changed
    pd.testing.assert_frame_equal(seeded.query(name)[0], answer)
    again = seeded._parts_answered[name]
    assert [key for key in kept if again[key] is not kept[key]] == [last]
