"""How the runs that come with the project are made, and those that are there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from data.history_seed import make
from dsocr_core.base.errors import DsocrError
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
    blocks, differing = {page.name: draw_page(page, 240, 300) for page in pages}, list[str]()

    def pipeline(settings, results):
        made = FabricatedPipeline(blocks, differ=lambda name: name in differing)
        made.settings = settings
        return made

    monkeypatch.setattr(make, "Session", pipeline)
    monkeypatch.setattr(make, "SAMPLES", tmp_path / "samples")
    make.main(target=tmp_path / "seed")
    before = files_of(tmp_path / "seed")
    assert not [name for name in before if name.endswith((".jpg", ".png"))]
    with History(tmp_path / "mine", tmp_path / "seed") as history:
        assert len(history) == len(make.ATTENTIONS) + len(make.VARIANTS)
        assert all(tags == ["example"] for tags in history.runs()["tags"].map(list))
        runs = history.runs(backends=["vendor"])
        assert runs[["pages", "failed", "compared", "passed"]].values.tolist() == [[2, 0, 2, 2]] * 2
        records = [history.record(run_id) for run_id in runs["run_id"]]
    facts = [(of.host, of.settings["checkpoint"], of.settings["attention"]) for of in records]
    assert sorted(facts) == [(None, "data/mini", "eager"), (None, "data/mini", "sdpa")]
    differing.append("receipt.png")
    with pytest.raises(DsocrError, match=r"receipt.png with sdpa attention: "):
        make.main(target=tmp_path / "seed")
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


def test_the_figure_of_a_bench_is_what_sql_gives(seeded: History) -> None:
    run_id = "20261123-120255-4306169d"
    [engine] = json.loads((SEED_LOCATION / "runs" / run_id / "bench.json").read_bytes())["engines"]
    rate = seeded.sql(
        "SELECT median(1000 * (new_tokens - 1) / milliseconds) AS rate FROM timings JOIN readings "
        f"USING (run_id, page) WHERE stage = 'decode' AND run_id = '{run_id}'"
    )["rate"].iloc[0]
    assert rate == pytest.approx(engine["tokens_per_s"]["median"], rel=1e-9)
    record = seeded.record(run_id)
    assert f"{rate:,.0f} tokens/s" in (record.notes or "")
    assert (record.gpu, record.host, record.git_dirty, len(record.git_commit or "")) == (
        "NVIDIA H200", None, False, 40
    )  # fmt: skip
    assert {"gpu_sm_mhz", "gpu_power_w", "load_1m", "driver"} <= record.environment["machine"].keys()


def test_the_old_gelu_is_a_regression_to_review(seeded: History) -> None:
    run_id = "20261122-224122-a5d34156"
    assert seeded.record(run_id).git_dirty is True, "the reference's code is that of a later commit"
    verdicts = [page.verdict for page in open_review(seeded, run_id).pages]
    assert (verdicts.count("within_tolerance"), verdicts.count("identical")) == (3, 11)


@pytest.mark.parametrize("name", ["gap_stages", "flop_gaps"])
def test_runs_that_are_asked_in_parts_give_the_answer_of_all(
    seeded: History, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(QUERIES, name, replace(QUERIES[name], together=3))
    parts = seeded._parts([*seeded._file.entries.values()], 3)
    assert [run.id for part in parts for run in part] == seeded.run_ids() and len(parts) > 3
    answer, sql = seeded.query(name)
    pd.testing.assert_frame_equal(answer, seeded.sql(sql))
    kept = dict(seeded._parts_answered[name])
    last = next(reversed(kept))
    del seeded._parts_answered[name][last]  # as if its runs had changed
    pd.testing.assert_frame_equal(seeded.query(name)[0], answer)
    again = seeded._parts_answered[name]
    assert [key for key in kept if again[key] is not kept[key]] == [last]
