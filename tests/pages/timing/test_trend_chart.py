"""The trend of many runs stays readable: one line for all spreads, words of changes that cover no others."""

from __future__ import annotations

import pandas as pd

from dsocr_core.runs.measures import measure_of
from dsocr_core.runs.statistics import levels
from dsocr_core.runs.timings import newest
from pages.widgets.timing.charts import trend

RUNS = 400


def _rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "condition": "H200, fast", "position": range(RUNS), "value": 100.0, "low": 90.0, "high": 120.0,
            "created": pd.date_range("2026-01-01", periods=RUNS, freq="h"), "of_pages": True, "n": 5,
            "run_id": [f"run-{number}" for number in range(RUNS)], "git_commit": "c" * 40, "mean": 100.0,
            "std": 1.0,
        }
    )  # fmt: skip


def _changes(at: list[int]) -> pd.DataFrame:
    return pd.DataFrame({"first": at, "value": 120.0, "before": 100.0})


def _trend(changes: pd.DataFrame):
    none = pd.DataFrame({"condition": [], "first": [], "last": [], "value": []})
    return trend(_rows(), none, changes, measure_of("decode"), "run")


def test_spreads_of_all_runs_are_one_line_from_low_to_high() -> None:
    figure = _trend(_changes([]))
    spreads, points = figure.data[0], figure.data[1]
    assert spreads.mode == "lines" and len(spreads.x) == 3 * RUNS
    assert list(spreads.y[:6]) == [90.0, 120.0, None, 90.0, 120.0, None] and list(spreads.x[:3]) == [
        0,
        0,
        None,
    ]
    assert points.mode == "markers" and len(points.x) == RUNS and points.error_y.array is None


def test_a_long_condition_takes_two_lines_of_the_legend() -> None:
    name = "H200, fast, 256 pages together, bf16, sdpa, gundam, random:<b>/config.json"
    none = pd.DataFrame({"condition": [], "first": [], "last": [], "value": []})
    figure = trend(_rows().assign(condition=name), none, _changes([]), measure_of("decode"), "run")
    (told,) = [each.name for each in figure.data if each.showlegend]
    lines = told.split("<br>")
    assert len(lines) == 2 and max(map(len, lines)) <= 60
    assert " ".join(lines) == name.replace("<b>", "&lt;b&gt;")


def test_every_change_has_a_line_and_words_only_where_there_is_room() -> None:
    figure = _trend(_changes([100, 101, 102, 103, 104, 300]))
    assert len(figure.layout.shapes) == 6
    # Three rows of words at one place; those of the two first would cover the others.
    assert [(words.x, words.yshift) for words in figure.layout.annotations] == [
        (299.5, 0), (103.5, 0), (102.5, -15), (101.5, -30),
    ]  # fmt: skip
    headline, *others = figure.layout.shapes
    assert (
        headline.x0 == 299.5
        and headline.line.dash == "solid"
        and figure.layout.annotations[0].text == ("<b>1.20x slower</b>")
    )
    assert {line.line.dash for line in others} == {"dash"}


def test_runs_of_a_commit_stand_over_each_other() -> None:
    rows = _rows().assign(git_commit=[f"{number // 100}" * 40 for number in range(RUNS)])
    none = pd.DataFrame({"condition": [], "first": [], "last": [], "value": []})
    figure = trend(rows, none, _changes([200]), measure_of("tokens/s"), "commit")
    assert [*figure.layout.xaxis.ticktext] == ["0000000", "1111111", "2222222", "3333333"]
    assert [*figure.layout.xaxis.tickvals] == [0, 1, 2, 3] and {*figure.data[1].x} == {0, 1, 2, 3}
    assert figure.layout.shapes[0].x0 == 1.5
    assert figure.layout.annotations[0].text == "<b>1.20x faster</b>"  # more tokens a second
    assert figure.layout.yaxis.title.text == "tokens/s" and max(figure.data[1].y) == 100


def test_the_newest_runs_keep_their_levels_and_changes() -> None:
    steps = pd.DataFrame(
        {"condition": "H200, fast", "first": [0, 310, 390], "last": [309, 389, 399], "value": [1.0, 2.0, 3.0]}
    )
    rows, levels, changes = newest(_rows(), steps, _changes([310, 390]), 50)
    assert list(rows["position"]) == list(range(350, 400))
    assert levels[["first", "last"]].values.tolist() == [[350, 389], [390, 399]]
    assert list(changes["first"]) == [390]
    figure = trend(rows, levels, changes, measure_of("decode"), "run")
    assert tuple(figure.layout.xaxis.range) == (349.3, 399.7) and len(figure.data[1].x) == 50


def test_many_series_share_their_lines_and_keep_their_points() -> None:
    """As few lines as a browser draws at once; none of their places is lost."""

    def lines_of(series: int) -> tuple[int, int, list[float]]:
        count = 3 * series
        rows = pd.DataFrame(
            {
                "condition": [f"condition {number % series}" for number in range(count)],
                "position": range(count), "created": pd.date_range("2026-11-01", periods=count, freq="h"),
                "run_id": [f"run-{number}" for number in range(count)], "git_commit": None, "of_pages": True,
                "n": 5, "value": 100.0, "low": 90.0, "high": [101.0 + number for number in range(count)],
                "std": 1.0,
            }
        )  # fmt: skip
        figure = trend(rows, levels(rows.assign(level=0)), _changes([]), measure_of("decode"), "run")
        lines = [trace for trace in figure.data if trace.mode == "lines"]
        highs = sorted(y for line in lines if line.line.width == 1 for y in line.y[1::3])
        return len(lines), len(figure.data) - len(lines), highs

    few, points, highs = lines_of(6)
    assert (few, points) == (12, 6) and highs == [101.0 + number for number in range(18)]
    few, points, highs = lines_of(7)
    assert (few, points) == (2, 7) and highs == [101.0 + number for number in range(21)]
