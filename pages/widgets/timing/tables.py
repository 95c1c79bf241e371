"""What the Timing page shows, as DataFrames. Pure: answers of the history in, tables out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd

from dsocr_core.history.statistics import TOTAL, with_levels, with_spread
from dsocr_core.stages import INSIDE_PREFILL, Stage
from dsocr_core.words import plural, significant, speed_ratio
from pages.widgets.shared.labels import CONDITION, condition, has_value, short, unlike
from pages.widgets.shared.table import Column
from pages.widgets.timing.kernel_names import kernel_names

VISION = "vision"
"""All of vision in one, as other programs time it."""
WHOLE = "whole page"
"""The stages that follow one another, summed page by page."""
ORDER: tuple[str, ...] = (
    Stage.PREPROCESS, Stage.TOKENIZER, VISION, *(stage.value for stage in INSIDE_PREFILL), Stage.PREFILL,
    Stage.DECODE, Stage.POSTPROCESS,
)  # fmt: skip
_INSIDE = frozenset(stage.value for stage in INSIDE_PREFILL) | {VISION}


def in_order(stages: Iterable[str]) -> list[str]:
    """Stages as they run; foreign names after them, the whole page last."""
    there = set(stages)
    own = [str(stage) for stage in ORDER if stage in there]
    return [*own, *sorted(there - {*own, WHOLE}), *([WHOLE] if WHOLE in there else [])]


def stage_name(stage: str) -> str:
    return f"prefill › {stage}" if stage in _INSIDE else short(stage, 40)


# --- stages over runs -----------------------------------------------------------------------------


def stage_rows(summary: pd.DataFrame, run_ids: Iterable[str]) -> pd.DataFrame:
    """The query `stage_summary` in the order of the runs, with `statistics.with_spread`."""
    order = {run_id: number for number, run_id in enumerate(run_ids)}
    rows = summary[summary["run_id"].isin(order)]
    rows = with_spread(rows)
    rank = {stage: number for number, stage in enumerate(in_order(rows["stage"]))}
    rows["_run"], rows["_stage"] = rows["run_id"].map(order), rows["stage"].map(rank)
    return rows.sort_values(["_run", "backend", "_stage"], ignore_index=True).drop(columns=["_run", "_stage"])


def stage_spans(rows: pd.DataFrame) -> pd.DataFrame:
    """Where the bars of `stage_rows` lie: run_id, backend, stage, start_ms, ms, inside, of_pages.

    Top-level stages follow one another; vision lies at the head of prefill, or stands for it where prefill
    was not measured.
    """
    spans = []
    for (run_id, backend), group in rows.groupby(["run_id", "backend"], sort=False):
        clock = inner = 0.0
        for row in group.to_dict("records"):
            if not has_value(row["value"]):
                continue
            inside, spent = bool(row["inside_prefill"]), float(row["value"])
            if row["stage"] == Stage.PREFILL:
                inner = 0.0
            elif not inside:
                clock, inner = clock + inner, 0.0
            spans.append(
                {
                    "run_id": run_id, "backend": backend, "stage": row["stage"],
                    "start_ms": clock + inner if inside else clock, "ms": spent, "inside": inside,
                    "of_pages": bool(row["of_pages"]),
                }
            )  # fmt: skip
            inner += spent if inside else 0.0
            clock += 0.0 if inside else spent
    columns = ["run_id", "backend", "stage", "start_ms", "ms", "inside", "of_pages"]
    return pd.DataFrame(spans, columns=columns)


STAGES = {
    "run": Column("run"),
    "backend": Column("backend"),
    "stage": Column("stage", stage_name, left=True),
    "n": Column("pages", "count"),
    **{name: Column(name, "ms") for name in ("median", "p5", "p95", "mean", "std")},
}
"""Columns of `stage_rows` with the runs' names."""


# --- over time ------------------------------------------------------------------------------------


def trend_rows(trend: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The query `trend` or `page_trend` with `statistics.with_levels`, in series of the runs' conditions.

    Runs of another GPU, engine, preset, checkpoint or token limit are another series: what lies between them
    is no change of speed.
    """
    rows = trend[trend["run_id"].isin(runs["run_id"])].reset_index(drop=True)
    if "milliseconds" in rows:
        rows = rows.assign(median=rows["milliseconds"], n=1, p5=np.nan, p95=np.nan, mean=np.nan, std=np.nan)
    return with_levels(with_spread(rows).assign(condition=_series_names(rows, runs)))


_WORK = {
    "prompt": "prompt {}",
    "max_new_tokens": "limit {}",
    "no_repeat_ngram_size": "n-gram {}",
    "policy": "{}",
}
"""Columns of a trend that say how much work a page is, and their words."""


def _series_names(rows: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    """Of each row what its series is called: the run's condition, the checkpoint where there are several, and
    what else of its work is not as usual."""
    columns = [name for name in CONDITION if name in runs]
    # Many runs, few conditions: each is put into words once.
    of_runs = list(zip(*(runs[name].tolist() for name in columns), strict=True)) or [()] * len(runs)
    worded = {of_run: condition(dict(zip(columns, of_run, strict=True))) for of_run in set(of_runs)}
    conditions = {run_id: worded[of_run] for run_id, of_run in zip(runs["run_id"], of_runs, strict=True)}
    work = [name for name in ("checkpoint", *_WORK) if name in rows and rows[name].nunique(dropna=False) > 1]
    values = {name: ["" if not has_value(value) else str(value) for value in rows[name]] for name in work}
    usual = {name: Counter(found).most_common(1)[0][0] for name, found in values.items()}
    keys = list(zip((conditions[run_id] for run_id in rows["run_id"]), *values.values(), strict=True))
    labels = {}
    for key in dict.fromkeys(keys):
        told = [
            _WORK.get(name, "{}").format(short(value, 30) or "not known")
            for name, value in zip(work, key[1:], strict=True)
            if name == "checkpoint" or value != usual[name]
        ]
        labels[key] = ", ".join([key[0], *told])
    named = unlike(labels)
    return [named[key] for key in keys]


def newest(
    rows: pd.DataFrame, steps: pd.DataFrame, turns: pd.DataFrame, count: int
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The newest `count` runs of `trend_rows`, with what `levels` and `changes` say of them."""
    begin = int(rows["position"].max()) - count + 1
    steps = steps[steps["last"] >= begin]
    return (
        rows[rows["position"] >= begin],
        steps.assign(first=steps["first"].clip(lower=begin)),
        turns[turns["first"] >= begin],
    )


def _speed(ratio: float) -> str:
    """A ratio of times, before over after, as "1.31x faster"."""
    return speed_ratio(1.0, ratio)


CHANGES = {
    "since": Column("since", lambda moment: f"{moment:%Y-%m-%d %H:%M}", left=True),
    "run_id": Column("from run"),
    "commit": Column("commit"),
    "before": Column("before", "ms"),
    "n_before": Column("runs before", "count"),
    "value": Column("after", "ms"),
    "n": Column("runs after", "count"),
    "speed": Column("change", _speed),
    "condition": Column("under"),
}
"""Columns of `told_changes`."""


def told_changes(found: pd.DataFrame) -> pd.DataFrame:
    """`statistics.changes` with both commits in one column and how many times as fast it became."""
    commits = [
        f"{_commit(before)} → {_commit(after)}"
        for before, after in zip(found["commit_before"], found["git_commit"], strict=True)
    ]
    return found.assign(commit=commits, speed=found["before"] / found["value"])


def _commit(value: object) -> str:
    return str(value)[:10] if has_value(value) else "not known"


# --- A against B ----------------------------------------------------------------------------------


def whole_pages(
    totals: pd.DataFrame, pairs: pd.DataFrame, a: tuple[str, str], b: tuple[str, str]
) -> pd.DataFrame:
    """Pages as rows of the query `pairs` of a stage WHOLE, from the query `page_totals`.

    Only pages that `pairs` has, and whose same stages were timed on both sides: a sum that lacks a stage is
    no faster. `a` and `b` are run and backend.
    """

    def side(run: tuple[str, str]) -> pd.DataFrame:
        mine = totals[(totals["run_id"] == run[0]) & (totals["backend"] == run[1])]
        return mine.set_index("page")[["milliseconds", "stages"]]

    both = side(a).add_suffix("_a").join(side(b).add_suffix("_b"), how="inner")
    both = both[both.index.isin(pairs["page"])]
    same = [list(x) == list(y) for x, y in zip(both["stages_a"], both["stages_b"], strict=True)]
    both = both[np.array(same, bool)]
    return pd.DataFrame(
        {"stage": WHOLE, "page": both.index, "a_ms": both["milliseconds_a"].to_numpy(),
         "b_ms": both["milliseconds_b"].to_numpy()}
    )  # fmt: skip


def comparison(found: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """`history.speed.compare_speed` with `speed`, 1 / ratio, and the stages that have no pages in common.

    `rows` are the `stage_rows` of A and B with a column `side`: a stage that has no pairs stays in the
    table, with the reason and no verdict.
    """
    found = found.assign(stage=found["stage"].replace(TOTAL, WHOLE))
    missing = []
    for stage in set(rows["stage"]) - set(found["stage"]):
        of_stage = rows[rows["stage"] == stage].set_index("side")
        sides = {side: of_stage.loc[side] for side in ("a", "b") if side in of_stage.index}
        value = {side: float(row["value"]) for side, row in sides.items()}
        if len(sides) < 2:
            why = f"not measured in {'B' if 'a' in sides else 'A'}"
        elif all(bool(row["of_pages"]) for row in sides.values()):
            why = "no page in both"
        else:
            why = "only a mean is recorded"
        missing.append(
            {
                "stage": stage, "n": 0, "runs_a": 0, "runs_b": 0, "pages": 0,
                "median_a": value.get("a", np.nan),
                "median_b": value.get("b", np.nan), "ratio": np.nan, "low": np.nan, "high": np.nan,
                "verdict": "inconclusive", "why": why,
            }
        )  # fmt: skip
    whole = pd.concat([frame for frame in (found, pd.DataFrame(missing)) if len(frame)] or [found])
    whole = whole.assign(speed=1 / whole["ratio"])
    order = {stage: number for number, stage in enumerate(in_order(whole["stage"]))}
    return whole.sort_values("stage", key=lambda stages: stages.map(order), ignore_index=True)


def single_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Pairs, the largest change first."""
    change = np.log(pairs["a_ms"].where(pairs["a_ms"] > 0) / pairs["b_ms"].where(pairs["b_ms"] > 0)).abs()
    return pairs.loc[change.sort_values(ascending=False, na_position="last", kind="stable").index]


COMPARISON = {
    "stage": Column("stage", stage_name, left=True),
    "median_a": Column("A median", "ms"),
    "median_b": Column("B median", "ms"),
    "speed": Column("B is", _speed),
    "ratio": Column("B / A", "", "Time of B over time of A: below 1 B is faster."),
    "low": Column("95 % from", "", "The interval of B / A."),
    "high": Column("to", ""),
    "pages": Column("pages", "count"),
    "runs_a": Column(
        "runs like A", "count", "Of one commit, machine and setting: the draws of the interval."
    ),
    "runs_b": Column("like B", "count"),
    "verdict": Column("verdict"),
    "why": Column("why"),
}
"""Columns of `comparison`."""
PAGES = {
    "page": Column("page"),
    "a_ms": Column("A", "ms"),
    "b_ms": Column("B", "ms"),
}
"""Columns of `single_pairs`."""


def interval_words(low: float, high: float) -> str:
    """The interval of B's time over A's, as a ratio."""
    return f"{significant(low)} – {significant(high)}" if has_value(low) and has_value(high) else "–"


def left_out(coverage: pd.DataFrame) -> pd.DataFrame:
    """Of the query `coverage`: each reason why a page is not compared, with pages, stages and names."""
    rows = [
        {
            "reason": reason,
            "pages": group["page"].nunique(),
            "stages": ", ".join(in_order(group["stage"])),
            "which pages": ", ".join(short(page, 40) for page in sorted(group["page"].unique())[:8])
            + (", …" if group["page"].nunique() > 8 else ""),
        }
        for reason, group in coverage[coverage["outcome"] != "compared"].groupby("outcome", sort=True)
    ]
    return pd.DataFrame(rows, columns=["reason", "pages", "stages", "which pages"])


_OUTCOMES = {
    "page not in A": "not in A", "page not in B": "not in B",
    "stage not measured in A": "without this stage in A",
    "stage not measured in B": "without this stage in B",
    "another image under the same name": "of another image under the same name",
}  # fmt: skip
"""Outcomes of the query `coverage` as they stand behind a number of pages."""


def coverage_words(coverage: pd.DataFrame) -> str:
    """How many pages are in both, and why the others are not."""
    pages = coverage["page"].nunique()
    compared = coverage.loc[coverage["outcome"] == "compared", "page"].nunique()
    whole = coverage[~coverage["page"].isin(coverage.loc[coverage["outcome"] == "compared", "page"])]
    reasons = whole.drop_duplicates("page")["outcome"].value_counts()
    words = f"{compared:,} of {plural(pages, 'page')} compared."
    if len(reasons):
        left_out = ", ".join(
            f"{count:,} {_OUTCOMES.get(reason, reason)}" for reason, count in reasons.items()
        )
        words += f" Left out: {left_out}."
    return words


# --- kernels --------------------------------------------------------------------------------------


KERNELS = {
    "stage": Column("stage"),
    "kernel": Column("kernel"),
    "share": Column("share", "share", "Of the GPU time of the stage."),
    "total_s": Column("total", "s"),
    "instances": Column("calls", "count"),
    **{f"{name}_s": Column(head, "s") for name, head in
       (("avg", "mean"), ("med", "median"), ("min", "least"), ("max", "most"))},
    "name": Column("full name"),
}  # fmt: skip
"""Columns of `told_kernels`."""


def told_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """The query `kernels` of one run with short names, and times in seconds."""
    return kernels.assign(
        stage=[stage_name(stage) if has_value(stage) else "all stages" for stage in kernels["stage"]],
        kernel=kernel_names(kernels["name"].tolist()),
        **{f"{name}_s": kernels[f"{name}_ns"] / 1e9 for name in ("total", "avg", "med", "min", "max")},
    )
