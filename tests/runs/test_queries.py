"""Every question against pandas on the rows that were written, and against rows worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from dsocr_core.runs.history import READABLE, History
from dsocr_core.runs.history_file import connect
from dsocr_core.runs.ingest import put
from dsocr_core.runs.queries import QUERIES
from dsocr_core.runs.queries.query import PARAMETER
from dsocr_core.runs.queries.runs import NOTED
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.statements import _LOCKS
from tests.support.made_up_runs import HOSTILE, record, timing, write_run

STAGES = ("sam", "prefill", "decode")
LISTS = ("stages", "tags", "gpus", "commits")


@pytest.fixture(scope="module")
def written() -> pd.DataFrame:
    """Rows of four runs: seeded times, page 1 twice, one run with its vendor backend, one profiled."""
    random = np.random.default_rng(7)
    return pd.DataFrame(
        {"run_id": f"run-{number}"}
        | timing(f"p{page}", stage, random.lognormal(3, 0.5), backend=backend, inside_prefill=stage == "sam")
        for number, backend in [(0, "eager"), (1, "eager"), (2, "eager"), (2, "vendor"), (3, "eager")]
        for page in (1, *range(5 + number))
        for stage in STAGES
    )


@pytest.fixture(scope="module")
def history(written: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    root = tmp_path_factory.mktemp("history")
    for number in range(4):
        rows: Any = written[written["run_id"] == f"run-{number}"].to_dict("records")
        write_run(
            root, f"run-{number}", rows, created=f"2026-01-0{number + 1}T00:00:00+00:00",
            backends=("eager", "vendor") if number == 2 else ("eager",), host=f"host-{number}",
            engine=("eager", "fast")[number % 2], gpu=("NVIDIA H200", None)[number // 2], dtype="bfloat16",
            preset="gundam", attention="sdpa", git_commit="c" * number, profiled=number == 3,
        )  # fmt: skip
    with History(root) as opened:
        yield opened


def test_summaries(history: History, written: pd.DataFrame) -> None:
    found = history.query("stage_summary")[0].set_index(["run_id", "backend", "stage"])
    expected = written.groupby(found.index.names)["milliseconds"].agg(
        n="count", median="median", p5=lambda of: of.quantile(0.05), p95=lambda of: of.quantile(0.95),
        mean="mean", std="std",
    )  # fmt: skip
    pd.testing.assert_frame_equal(found[[*expected]].sort_index(), expected, check_dtype=False, rtol=1e-12)
    assert found["inside_prefill"].tolist() == [stage == "sam" for _, _, stage in found.index]


def test_filters_of_the_runs(history: History) -> None:
    for filters, runs in (
        ({}, "3210"), ({"gpus": ["NVIDIA H200"], "commits": ["c"]}, "1"), ({"backends": ["vendor"]}, "2"),
        ({"profiled": False}, "210"), ({"profiled": True}, "3"), ({"commits": ["cc", "c"]}, "21"),
        ({"limit": 2}, "32"), ({"gpus": []}, ""), ({"trashed": True}, ""), ({"contended": True}, ""),
        ({"tags": ["none"]}, ""),
    ):  # fmt: skip
        assert "".join(run_id[-1] for run_id in history.runs(**filters)["run_id"]) == runs
    counted = history.query("filter_values")[0].set_index(["name", "value"])["runs"].to_dict()
    assert (counted["gpus", "NVIDIA H200"], counted["backends", "vendor"]) == (2, 1)


def test_tokens_a_second(tmp_path: Path) -> None:
    bench = {"eager": {"tokens_per_s": 800.0, "pages_per_s": 5.0}}
    together = "eager, 2 pages together"
    # b: decode of one page was not measured: no rate, rather than one that is too high. c, d: pages read
    # together share their time, and what all decoded a second is what their bench says.
    for name, pages, times, fields in (
        ("a", "pq!", {"p": 100.0, "q": 50.0}, {}),
        ("b", "pq", {"p": 100.0}, {}),
        ("c", "p", {"p": 100.0}, {"engine": together, "environment": bench}),
        ("d", "p", {"p": 100.0}, {"engine": together}),
    ):
        with RunDirectory.create(tmp_path, record(name, **fields)) as writer:
            for page in pages:
                facts = {"error": "cannot be read"} if page == "!" else {"new_tokens": 30}
                writer.add_rows("readings", [{"page": page, "backend": "eager", **facts}])
            writer.add_rows("timings", [timing(page, "decode", spent) for page, spent in times.items()])
    with History(tmp_path) as history:
        found = history.query("pace")[0].set_index("run_id").fillna(0)
        counts = history.runs().set_index("run_id").sort_index()
    assert found["tokens_per_s"].to_dict() == {"a": 400.0, "b": 0, "c": 800.0, "d": 0}
    assert found["page_tokens_per_s"].to_dict() == {"a": 400.0, "b": 0, "c": 300.0, "d": 300.0}
    assert counts["pages"].tolist() == [3, 2, 1, 1] and counts["failed"].tolist() == [1, 0, 0, 0]


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


def test_a_run_says_what_was_not_decoded_as_published(tmp_path: Path) -> None:
    """Runs from before these settings, and runs that name the published values, are the same."""
    published = {"ngram_window": 0, "ngram_whitelist": [], "max_tiles": 9, "tile_size": 640, "exif": True}
    other = published | {"ngram_window": 90, "ngram_whitelist": ["<td>"], "exif": False, "template": "roles"}
    for name, infer in (("old", {}), ("plain", published | {"template": "plain"}), ("other", other)):
        settings = {"prompt": "markdown", "infer": {"max_new_tokens": 9, **infer}}
        write_run(tmp_path, name, [timing("p", "decode", 1.5)], settings=settings)
    with History(str(tmp_path)) as history:
        assert history.runs().set_index("run_id")["policy"].to_dict() == {
            "old": "as published", "plain": "as published",
            "other": 'exif false, ngram_whitelist ["<td>"], ngram_window 90, template roles',
        }  # fmt: skip


def test_a_shapes_time_is_the_median_of_its_pages_and_prefill_is_without_vision(tmp_path: Path) -> None:
    of = {"backend": "eager", "preset": "tiny", "grid_columns": 1, "grid_rows": 1, "prompt_tokens": 9}
    with RunDirectory.create(tmp_path, record("a")) as run:
        for page, new, prefill in (("p", 5, 30.0), ("q", 5, 50.0), ("r", 6, 20.0)):
            run.add_rows("readings", [{"page": page, "new_tokens": new, **of}])
            times = [timing(page, "sam", 10.0, inside_prefill=True), timing(page, "prefill", prefill)]
            run.add_rows("timings", times)
    with History(tmp_path) as history:
        rows = history.sql(
            "SELECT shape, n, milliseconds FROM stage_times WHERE stage = 'prefill' ORDER BY n"
        )
    shapes = ["tiny 1x1, 9 + 6 tokens", "tiny 1x1, 9 + 5 tokens"]
    assert rows.to_numpy().tolist() == [[shapes[0], 1, 10.0], [shapes[1], 2, 30.0]]


# --- B against A --------------------------------------------------------------------------------


_PAGES: dict[str, tuple[str | None, str | None, str, str]] = {
    # content of the image in A and in B ("!" failed, None: no such page), outcome of sam and of decode
    "both": ("1", "1", "compared", "compared"),
    "changed": ("1", "2", *["another image under the same name"] * 2),
    "unknown": ("", "1", "compared", "compared"),
    "only a": ("1", None, *["not in B"] * 2),
    "only b": (None, "1", *["not in A"] * 2),
    "fails in a": ("!", "1", *["failed in A"] * 2),
    "fails in b": ("1", "!", *["failed in B"] * 2),
    "less in a": ("1", "1", "without this stage in A", "compared"),
    "less in b": ("1", "1", "without this stage in B", "compared"),
}


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    for side, run_id in enumerate("ab"):
        with RunDirectory.create(tmp_path, record(run_id)) as writer:
            for page, facts in _PAGES.items():
                if (image := facts[side]) is None:
                    continue
                known = {"error": "x"} if image == "!" else {"sha256": image * 64 or None}
                writer.add_rows("readings", [{"page": page, "backend": "eager", **known}])
                stages = ["decode", "sam"][: 1 + (page != f"less in {run_id}")] if image != "!" else []
                times = [timing(page, stage, ms + side) for stage in stages for ms in (5.0, 7.0, 90.0)]
                others = [timing(page, stage, 1.0, backend="vendor") for stage in stages]
                writer.add_rows("timings", times + others)
    with History(tmp_path) as history:
        found = history.query("coverage", a="a", b="b", backend_a="eager", backend_b="eager")[0]
        own = history.query("coverage", a="a", b="a", backend_a="eager", backend_b="vendor")[0]
    for rows, of_b in ((found, 8.0), (own, 1.0)):
        compared = rows.loc[rows["outcome"] == "compared", ["a_ms", "b_ms"]].drop_duplicates()
        assert compared.values.tolist() == [[7.0, of_b]]
    outcomes = found.pivot(index="page", columns="stage", values="outcome")
    assert {page: tuple(outcomes.loc[page, ["sam", "decode"]]) for page in outcomes.index} == {
        page: facts[2:] for page, facts in _PAGES.items()
    }


def test_kernels_by_share(tmp_path: Path) -> None:
    for run_id in ("a", "b"):
        with RunDirectory.create(tmp_path, record(run_id)) as writer:
            for stage, times in (("decode", [6.0, 3.0, 1.0]), (None, [5.0])):
                rows = [{"stage": stage, "name": f"k{at}", "total_ns": each} for at, each in enumerate(times)]
                writer.add_rows("kernels", rows)
    with History(tmp_path) as history:
        found = history.query("kernels", run_ids=["a"], top=2)[0]
        assert found["name"].tolist() == ["k0", "k0", "k1"] and found["share"].tolist() == [1.0, 0.6, 0.3]
        assert set(history.query("kernels", run_ids=["a", "b"], stages=["decode"])[0]["run_id"]) == {"a", "b"}
        for none in ([], ["no such run"]):
            assert history.query("kernels", run_ids=none)[0].empty


# --- the text of a query ------------------------------------------------------------------------


def test_the_sql_that_is_shown_gives_the_same_answer_and_no_value_becomes_sql(history: History) -> None:
    """A list takes all hostile texts at once, a single value the next of them in turn."""
    texts, plain = itertools.cycle(HOSTILE), {
        "run_ids": ["run-1", "run-2"], "run_id": "run-1", "a": "run-0", "b": "run-2", "backend_a": "eager",
        "backend_b": "vendor", "pairs": [0, 0], "sides": ["a", "b"], "backends": ["eager", "vendor"],
        "chosen": [True, False],
    }  # fmt: skip

    def hostile(name: str) -> object:
        if name in ("pairs", "chosen"):
            return [0] * len(HOSTILE)
        return [*HOSTILE] if name.endswith("s") else next(texts)

    rows = len(history.runs())
    with duckdb.connect(":memory:", config={"temp_directory": ""}) as connection:
        # All tables: to make a connection takes longer than to ask.
        connect(connection, history._made.path)
        put(connection, NOTED, history._annotations.rows)
        history._provide(connection, READABLE, [*history._file.entries.values()])
        for lock in _LOCKS:
            connection.execute(lock)
        for name, query in QUERIES.items():
            names = set(PARAMETER.findall(query.sql))
            needed = {key: plain[key] for key in names - query.optional.keys()}
            asked = [
                {key: hostile(key) for key in sorted(names & {*plain, "kind", *LISTS})} for _ in range(3)
            ]
            for given in (needed, *asked):
                answer, sql = history.query(name, **given)
                again = connection.execute(sql).df()
                if name == "draws":  # in no order
                    answer, again = (
                        frame.sort_values([*frame], ignore_index=True) for frame in (answer, again)
                    )
                pd.testing.assert_frame_equal(again, answer)
    assert len(history.runs()) == rows and len(history.sql(sql)) == len(answer)
