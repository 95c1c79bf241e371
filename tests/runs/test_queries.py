"""Every question against pandas on the rows that were written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from dsocr_core.runs.history import READABLE, History
from dsocr_core.runs.queries import QUERIES
from dsocr_core.runs.queries.query import REQUIRED
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.statements import _LOCKS
from tests.support.made_up_runs import HOSTILE, record, timing, write_run

STAGES = ("sam", "prefill", "decode")


@pytest.fixture(scope="module")
def written() -> pd.DataFrame:
    """Rows of four runs: seeded times, some pages twice, one run with its vendor backend, one profiled."""
    random = np.random.default_rng(7)
    rows = []
    for number in range(4):
        for backend in ("eager", "vendor") if number == 2 else ("eager",):
            for page in range(5 + number):
                for stage in STAGES:
                    for _ in range(2 if page == 1 else 1):
                        milliseconds = float(random.lognormal(3, 0.5))
                        inside = stage == "sam"
                        row = timing(f"p{page}", stage, milliseconds, backend=backend, inside_prefill=inside)
                        rows.append({"run_id": f"run-{number}", **row})
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def history(written: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    root = tmp_path_factory.mktemp("history")
    for number in range(4):
        run_id = f"run-{number}"
        rows = written[written["run_id"] == run_id].to_dict("records")
        write_run(
            root, run_id, [{str(key): value for key, value in row.items()} for row in rows],
            created=f"2026-01-0{number + 1}T00:00:00+00:00",
            backends=("eager", "vendor") if number == 2 else ("eager",),
            engine=("eager", "fast")[number % 2], gpu=("NVIDIA H200", None)[number // 2],
            dtype="bfloat16", preset="gundam", attention="sdpa", host=f"host-{number}",
            git_commit="c" * number,
            profiled=number == 3,
            settings={"preset": "gundam", "infer": {"max_new_tokens": 100 * (number // 2)}},
            environment={} if number else {"driver": "580"},
        )  # fmt: skip
    with History(root) as opened:
        yield opened


def expected_summary(rows: pd.DataFrame) -> pd.DataFrame:
    def of(times: pd.Series) -> dict[str, float]:
        values = times.to_numpy()
        return {
            "n": len(values), "median": np.median(values), "p5": np.quantile(values, 0.05),
            "p95": np.quantile(values, 0.95), "mean": values.mean(), "std": values.std(ddof=1),
        }  # fmt: skip

    groups = rows.groupby(["run_id", "backend", "stage"])["milliseconds"]
    found = [dict(zip(("run_id", "backend", "stage"), key, strict=True)) | of(times) for key, times in groups]
    return pd.DataFrame(found)


def same(left: pd.DataFrame, right: pd.DataFrame, keys: list[str]) -> None:
    columns = list(right.columns)
    left, right = (frame[columns].sort_values(keys).reset_index(drop=True) for frame in (left, right))
    pd.testing.assert_frame_equal(left, right, check_dtype=False, rtol=1e-12)


def test_summary_of_every_run(history: History, written: pd.DataFrame) -> None:
    found = history.query("stage_summary")[0]
    same(found, expected_summary(written), ["run_id", "backend", "stage"])
    assert found.loc[found["stage"] == "sam", "inside_prefill"].all()
    for profiled, names in ((False, ["run-2", "run-1", "run-0"]), (True, ["run-3"])):
        assert history.runs(profiled=profiled)["run_id"].tolist() == names
    assert history.runs(engines=["fast"])["run_id"].tolist() == ["run-3", "run-1"]
    chosen = history.query("stage_summary", run_ids=["run-2"], backends=["vendor"], stages=["decode"])[0]
    assert chosen["run_id"].tolist() == ["run-2"]


def test_a_pages_total_leaves_vision_out(history: History, written: pd.DataFrame) -> None:
    found = history.query("page_totals", run_ids=["run-2"])[0]
    mine = written[(written["run_id"] == "run-2") & (written["stage"] != "sam")]
    totals = mine.groupby(["page", "backend"])["milliseconds"].sum().reset_index()
    same(found, totals, ["page", "backend"])
    assert all(list(stages) == ["decode", "prefill"] for stages in found["stages"])


@pytest.mark.parametrize(
    "filters, runs",
    [
        ({}, "3210"),
        ({"engines": ["fast"]}, "31"),
        ({"engines": ["fast"], "gpus": ["NVIDIA H200"]}, "1"),
        ({"backends": ["vendor"]}, "2"),
        ({"profiled": False}, "210"),
        ({"commits": ["cc", "c"]}, "21"),
        ({"hosts": ["host-0"]}, "0"),
        ({"since": datetime(2026, 1, 2), "until": datetime(2026, 1, 4)}, "21"),
        ({"sources": ["nsys"]}, ""),
        ({"dtypes": ["bfloat16"], "presets": ["gundam"], "attentions": ["sdpa"]}, "3210"),
        ({"text": "RUN-3"}, "3"),
        ({"limit": 2}, "32"),
        ({"engines": []}, ""),
    ],
)
def test_filters_of_the_runs(history: History, filters: dict[str, Any], runs: str) -> None:
    assert "".join(run_id[-1] for run_id in history.runs(**filters)["run_id"]) == runs


def test_what_there_is_to_filter_by(history: History) -> None:
    counted = history.query("filter_values")[0].set_index(["name", "value"])["runs"].to_dict()
    assert counted["engines", "fast"] == counted["gpus", "NVIDIA H200"] == 2
    assert (counted["backends", "eager"], counted["backends", "vendor"]) == (4, 1)


def test_tokens_a_second(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, record("a")) as writer:
        writer.add_rows(
            "readings", [{"page": page, "backend": "eager", "new_tokens": 30} for page in ("p", "q")]
        )
        writer.add_rows("readings", [{"page": "broken", "backend": "eager", "error": "cannot be read"}])
        writer.add_rows("stage_timings", [timing("p", "decode", 100.0), timing("q", "decode", 50.0)])
    # Decode of one page was not measured: no rate, rather than one that is too high.
    with RunDirectory.create(tmp_path, record("b")) as writer:
        writer.add_rows(
            "readings", [{"page": page, "backend": "eager", "new_tokens": 30} for page in ("p", "q")]
        )
        writer.add_rows("stage_timings", [timing("p", "decode", 100.0)])
    # Pages read together share their time: what all decoded a second is what their bench says.
    told = {"eager": {"tokens_per_s": 800.0, "pages_per_s": 5.0}}
    for name, environment in (("c", told), ("d", {})):
        engine = "eager, 2 pages together"
        with RunDirectory.create(tmp_path, record(name, engine=engine, environment=environment)) as writer:
            writer.add_rows("readings", [{"page": "p", "backend": "eager", "new_tokens": 30}])
            writer.add_rows("stage_timings", [timing("p", "decode", 100.0)])
    with History(tmp_path) as history:
        found = history.query("pace")[0].set_index("run_id")
        assert found["tokens_per_s"].fillna(0).to_dict() == {"a": 400.0, "b": 0, "c": 800.0, "d": 0}
        assert found["page_tokens_per_s"].fillna(0).to_dict() == {"a": 400.0, "b": 0, "c": 300.0, "d": 300.0}
        counts = history.runs().set_index("run_id").loc[["a", "b"]]
        assert counts["pages"].to_dict() == {"a": 3, "b": 2} and counts["failed"].to_dict() == {
            "a": 1,
            "b": 0,
        }


def test_imported_means_are_not_taken_for_pages(tmp_path: Path) -> None:
    rows = [
        timing(None, "decode", 800.0, aggregate="mean"), timing(None, "decode", 90.0, aggregate="std"),
        timing(None, "prefill", 70.0, aggregate="mean"), timing("p", "prefill", 60.0),
    ]  # fmt: skip
    write_run(tmp_path, "a", rows, source="llm-perf-opt")
    with History(tmp_path) as history:
        found = history.query("stage_summary")[0].set_index("stage")
    assert found.loc["decode", ["mean", "std"]].tolist() == [800.0, 90.0]
    assert found.loc["decode", ["n", "median", "p5", "p95"]].isna().all()
    assert found.loc["prefill", ["median", "n"]].tolist() == [60.0, 1]


# --- B against A --------------------------------------------------------------------------------


def test_pairs_are_of_the_same_page(history: History, written: pd.DataFrame) -> None:
    def pairs(a: str, backend_a: str, backend_b: str) -> pd.DataFrame:
        found = history.query("coverage", a=a, b="run-2", backend_a=backend_a, backend_b=backend_b)[0]
        return found[found["outcome"] == "compared"]

    found = pairs("run-0", "eager", "vendor")
    medians = written.groupby(["run_id", "backend", "stage", "page"])["milliseconds"].median()
    a = medians.loc["run-0", "eager"].rename("a_ms").reset_index()
    b = medians.loc["run-2", "vendor"].rename("b_ms").reset_index()
    same(found, a.merge(b, on=["stage", "page"]), ["stage", "page"])
    assert len(found) == 5 * len(STAGES)
    of_one_run = pairs("run-2", "vendor", "eager")
    assert len(of_one_run) == 7 * len(STAGES) and not (of_one_run["a_ms"] == of_one_run["b_ms"]).any()
    with_itself = pairs("run-2", "eager", "eager")
    assert (with_itself["a_ms"] == with_itself["b_ms"]).all()


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    # page: (content of its image, error) in A and in B; None where the run does not have the page
    pages: dict[str, tuple[tuple[str | None, str | None] | None, tuple[str | None, str | None] | None]] = {
        "both": (("1", None), ("1", None)),
        "changed": (("1", None), ("2", None)),
        "unknown": ((None, None), ("1", None)),
        "only a": (("1", None), None),
        "only b": (None, ("1", None)),
        "fails in a": ((None, "x"), ("1", None)),
        "fails in b": (("1", None), (None, "x")),
        "less in a": (("1", None), ("1", None)),
        "less in b": (("1", None), ("1", None)),
    }
    for side, run_id in enumerate("ab"):
        with RunDirectory.create(tmp_path, record(run_id)) as writer:
            for page, sides in pages.items():
                if (image := sides[side]) is None:
                    continue
                content, error = image
                sha256 = content * 64 if content else None
                writer.add_rows(
                    "readings", [{"page": page, "backend": "eager", "sha256": sha256, "error": error}]
                )
                if error is None:
                    writer.add_rows("stage_timings", [timing(page, "decode", 5.0)])
                    if page != f"less in {run_id}":
                        writer.add_rows("stage_timings", [timing(page, "sam", 1.0)])
    with History(tmp_path) as history:
        chosen = {"a": "a", "b": "b", "backend_a": "eager", "backend_b": "eager"}
        found = history.query("coverage", **chosen)[0]
        outcomes = {(row.stage, row.page): row.outcome for row in found.itertuples()}
        assert outcomes["sam", "both"] == outcomes["decode", "unknown"] == "compared"
        assert outcomes["sam", "changed"] == "another image under the same name"
        assert outcomes["sam", "only a"] == "page not in B" and outcomes["sam", "only b"] == "page not in A"
        assert (
            outcomes["sam", "fails in b"] == "failed in B" and outcomes["sam", "fails in a"] == "failed in A"
        )
        assert outcomes["sam", "less in b"] == "stage not measured in B"
        assert outcomes["sam", "less in a"] == "stage not measured in A"
        assert outcomes["decode", "less in a"] == "compared"
        assert len(outcomes) == len(found) == 18


# --- from files ---------------------------------------------------------------------------------


def test_kernels_by_share(tmp_path: Path) -> None:
    for run_id in ("a", "b"):
        with RunDirectory.create(tmp_path, record(run_id)) as writer:
            for stage, times in (("decode", [6.0, 3.0, 1.0]), (None, [5.0])):
                rows = [
                    {"stage": stage, "name": f"k{place}", "total_ns": value}
                    for place, value in enumerate(times)
                ]
                writer.add_rows("kernels", rows)
    with History(tmp_path) as history:
        found = history.query("kernels", run_ids=["a"], top=2)[0]
        assert found["name"].tolist() == ["k0", "k0", "k1"]
        assert found["share"].tolist() == [1.0, 0.6, 0.3]
        assert set(history.query("kernels", run_ids=["a", "b"], stages=["decode"])[0]["run_id"]) == {"a", "b"}
        assert history.query("kernels", run_ids=[])[0].empty
        assert history.query("kernels", run_ids=["no such run"])[0].empty


# --- the text of a query ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked(history: History) -> Iterator[Callable[[str], pd.DataFrame]]:
    """Answers to statements as `sql` gives them, in one connection: to make one takes longer than to ask."""
    with duckdb.connect(":memory:", config={"temp_directory": ""}) as connection:
        history._connect(READABLE, connection)
        for lock in _LOCKS:
            connection.execute(lock)
        yield lambda statement: connection.execute(statement).df()


def test_the_sql_that_is_shown_gives_the_same_answer(
    history: History, asked: Callable[[str], pd.DataFrame]
) -> None:
    values: dict[str, Any] = {
        "run_ids": ["run-1", "run-2"], "run_id": "run-1", "page": "p1", "stage": "sam", "backend": "eager",
        "baseline": "run-0", "host": "host-1", "preset": "gundam", "checkpoint": "data/mini",
        "a": "run-0", "b": "run-2", "backend_a": "eager", "backend_b": "vendor",
        "of_runs": ["run-1", "run-2"], "pages": ["p1", "p2"], "steps": [0, 7],
        "pairs": [0, 0], "sides": ["a", "b"], "backends": ["eager", "vendor"], "chosen": [True, False],
    }  # fmt: skip
    for name, query in QUERIES.items():
        needed = {key: values[key] for key, standard in query.parameters.items() if standard is REQUIRED}
        answer, sql = history.query(name, **needed)
        pd.testing.assert_frame_equal(asked(sql), answer)
        assert "$" not in sql
    pd.testing.assert_frame_equal(history.sql(sql), answer)


def test_no_value_becomes_sql(history: History, asked: Callable[[str], pd.DataFrame]) -> None:
    """A list takes all the texts at once, a single value the next of them in turn."""
    before, texts = len(history.sql("SELECT * FROM runs")), itertools.cycle(HOSTILE)
    tried = 0
    for name, query in [*QUERIES.items()] * 2:
        lists = (
            "run_ids", "backends", "stages", "engines", "gpus", "hosts", "commits", "tags", "of_runs",
            "sides", "pages",
        )  # fmt: skip
        given: dict[str, Any] = {}
        for key, standard in query.parameters.items():
            if key in lists:
                given[key] = [*HOSTILE]
            elif key in ("steps", "pairs", "chosen"):
                given[key] = [0] * len(HOSTILE)
            elif standard is REQUIRED or key in ("text", "page", "section", "kind"):
                given[key], tried = next(texts), tried + 1
        answer, sql = history.query(name, **given)
        pd.testing.assert_frame_equal(asked(sql), answer)
    assert tried > len(HOSTILE)
    assert len(history.sql("SELECT * FROM runs")) == before


def test_a_run_says_what_was_not_decoded_as_published(tmp_path: Path) -> None:
    """Runs from before these settings, and runs that name the published values, are the same."""
    published = {"ngram_window": 0, "ngram_whitelist": [], "max_tiles": 9, "tile_size": 640, "exif": True}
    other = published | {"ngram_window": 90, "ngram_whitelist": ["<td>"], "exif": False, "template": "roles"}
    for name, infer in (("old", {}), ("plain", published | {"template": "plain"}), ("other", other)):
        settings = {"prompt": "markdown", "infer": {"max_new_tokens": 9, **infer}}
        write_run(tmp_path, name, [timing("p", "decode", 1.5)], settings=settings)
    with History(str(tmp_path)) as history:
        found = history.runs()
    assert dict(zip(found["run_id"], found["policy"], strict=True)) == {
        "old": "as published",
        "plain": "as published",
        "other": 'exif false, ngram_whitelist ["<td>"], ngram_window 90, template roles',
    }
