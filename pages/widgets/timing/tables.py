"""What the Timing page shows, as DataFrames. Pure: answers of the history in, tables out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsocr_core.history.statistics import NEUTRAL_BAND, change_points, compare_stages
from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.shared.amounts import amount
from pages.widgets.shared.formats import NOT_MEASURED, plural, significant, speed_ratio
from pages.widgets.shared.labels import CONDITION, condition, has_value, short, time_words, unlike

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
    """The query `stage_summary` in the order of the runs, with what is drawn of each stage.

    `value`, `low` and `high` are median, p5 and p95; of an imported run that has nothing else, its mean and
    one standard deviation around it. `of_pages` tells which.
    """
    order = {run_id: number for number, run_id in enumerate(run_ids)}
    rows = summary[summary["run_id"].isin(order)].copy()
    rows["of_pages"] = rows["median"].notna()
    rows["value"] = rows["median"].fillna(rows["mean"])
    rows["low"] = rows["p5"].fillna((rows["mean"] - rows["std"]).clip(lower=0))
    rows["high"] = rows["p95"].fillna(rows["mean"] + rows["std"])
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


def shown_rows(rows: pd.DataFrame, names: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """`stage_rows` for people."""
    return pd.DataFrame(
        {
            "run": [names[run_id][0] for run_id in rows["run_id"]],
            "backend": rows["backend"],
            "stage": [stage_name(stage) for stage in rows["stage"]],
            "n": [f"{int(n):,} p." if has_value(n) else "–" for n in rows["n"]],
            "median": [time_words(value) for value in rows["median"]],
            "p5": [time_words(value) for value in rows["p5"]],
            "p95": [time_words(value) for value in rows["p95"]],
            "mean": [time_words(value) for value in rows["mean"]],
            "std": [time_words(value) for value in rows["std"]],
        }
    )


# --- over time ------------------------------------------------------------------------------------


def trend_rows(trend: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The query `trend` or `page_trend` with `value`, `low`, `high`, `of_pages`, the run's `condition`, its
    `position` among all and the `level` it lies on, counted within its condition.

    Runs of another GPU, engine, preset, checkpoint or token limit are another series: what lies between them
    is no change of speed.
    """
    rows = trend[trend["run_id"].isin(runs["run_id"])].reset_index(drop=True)
    if "milliseconds" in rows:
        rows = rows.assign(median=rows["milliseconds"], n=1, p5=np.nan, p95=np.nan, mean=np.nan, std=np.nan)
    rows["condition"] = _series_names(rows, runs)
    rows["of_pages"] = rows["median"].notna()
    rows["value"] = rows["median"].fillna(rows["mean"]).astype(float)
    rows["low"] = rows["p5"].fillna((rows["mean"] - rows["std"]).clip(lower=0)).astype(float)
    rows["high"] = rows["p95"].fillna(rows["mean"] + rows["std"]).astype(float)
    rows["position"] = range(len(rows))
    level = np.zeros(len(rows), np.int64)
    every = rows["value"].to_numpy()
    for at in rows.groupby("condition").indices.values():
        values = every[at]
        points = change_points(values) if len(at) >= _FEWEST_RUNS else _steps(rows.iloc[at])
        for point in _telling(values, points):
            level[at[point:]] += 1
    return rows.assign(level=level)


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


_FEWEST_RUNS = 6
"""With fewer, `change_points` has no noise between runs to go by."""
_FEWEST_PAGES = 5
_STEP = 0.1
"""By how much two runs alone have to differ: from one run to the next machines drift by some percent."""


def _steps(group: pd.DataFrame) -> list[int]:
    """Where, in a series of few runs, a run's p5 to p95 lies apart from that of the run before."""
    columns = (group[name].tolist() for name in ("n", "low", "high", "value"))
    return [
        number
        for number, ((n, low, high, value), after) in enumerate(pairwise(zip(*columns, strict=True)), start=1)
        if min(n, after[0]) >= _FEWEST_PAGES
        and (after[2] < low or high < after[1])
        and abs(np.log(after[3] / value)) > np.log(1 + _STEP)
    ]


def _telling(values: npt.NDArray[np.float64], points: list[int]) -> list[int]:
    """Change points without those whose two levels have medians within the neutral band."""
    while points:
        medians = [np.nanmedian(part) for part in np.split(values, points)]
        steps = [abs(np.log(after / before)) for before, after in pairwise(medians)]
        least = int(np.argmin(steps))
        if steps[least] > np.log(1 + NEUTRAL_BAND):
            break
        points = [*points[:least], *points[least + 1 :]]
    return points


def levels(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a level of `trend_rows`: condition, level, first and last position and time, n, value."""
    names = ("position", "created", "run_id", "git_commit")
    of = {name: rows[name].tolist() for name in names}
    values = rows["value"].to_numpy(float)
    found = []
    for (name, level), at in rows.groupby(["condition", "level"], sort=False).indices.items():
        first, last = at[0], at[-1]
        there = values[at][~np.isnan(values[at])]
        found.append(
            {
                "condition": name, "level": level, "n": len(at),
                "value": float(np.median(there)) if len(there) else float("nan"),
                "first": int(of["position"][first]), "last": int(of["position"][last]),
                "since": of["created"][first], "until": of["created"][last],
                "run_id": of["run_id"][first], "git_commit": of["git_commit"][first],
            }
        )  # fmt: skip
    columns = ["condition", "level", "n", "value", "first", "last", "since", "until", "run_id", "git_commit"]
    return pd.DataFrame(found, columns=columns)


def changes(found: pd.DataFrame) -> pd.DataFrame:
    """Where one level of `levels` follows another: with the level before, in order of time."""
    rows = []
    for _, group in found.groupby("condition", sort=False):
        steps = group.sort_values("level").to_dict("records")
        rows += [
            {**after, "before": before["value"], "n_before": before["n"],
             "commit_before": before["git_commit"]}
            for before, after in pairwise(steps)
        ]  # fmt: skip
    return pd.DataFrame(
        sorted(rows, key=lambda row: int(row["first"])),
        columns=[*found.columns, "before", "n_before", "commit_before"],
    )


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


def shown_changes(found: pd.DataFrame) -> pd.DataFrame:
    """`changes` for people."""
    return pd.DataFrame(
        [
            {
                "since": f"{row['since']:%Y-%m-%d %H:%M}",
                "from run": row["run_id"],
                "commit": f"{_commit(row['commit_before'])} → {_commit(row['git_commit'])}",
                "before": f"{time_words(row['before'])} (n {int(row['n_before'])})",
                "after": f"{time_words(row['value'])} (n {int(row['n'])})",
                "change": speed_ratio(float(row["value"]), float(row["before"])),
                "under": row["condition"],
            }
            for row in found.to_dict("records")
        ]
    )


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


def comparison(pairs: pd.DataFrame, rows: pd.DataFrame, neutral: float = NEUTRAL_BAND) -> pd.DataFrame:
    """One row a stage: n, median_a, median_b, ratio, low, high, verdict, why.

    `rows` are the `stage_rows` of A and B with a column `side`: a stage that has no pairs stays in the
    table, with the reason and no verdict.
    """
    found = compare_stages(pairs, neutral)
    found["why"] = ["too few pages" if not has_value(low) else "" for low in found["low"]]
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
                "stage": stage, "n": 0, "median_a": value.get("a", np.nan),
                "median_b": value.get("b", np.nan), "ratio": np.nan, "low": np.nan, "high": np.nan,
                "verdict": "no evidence", "why": why,
            }
        )  # fmt: skip
    whole = pd.concat([frame for frame in (found, pd.DataFrame(missing)) if len(frame)] or [found])
    order = {stage: number for number, stage in enumerate(in_order(whole["stage"]))}
    return whole.sort_values("stage", key=lambda stages: stages.map(order), ignore_index=True)


def single_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Pairs with the ratio of their times, the largest change first."""
    rows = pairs.assign(ratio=pairs["b_ms"] / pairs["a_ms"].where(pairs["a_ms"] > 0))
    change = np.log(rows["ratio"].where(rows["ratio"] > 0)).abs()
    return rows.loc[change.sort_values(ascending=False, na_position="last", kind="stable").index]


def interval_words(low: float, high: float) -> str:
    """The interval of B's time over A's, as a ratio."""
    return f"{significant(low)} – {significant(high)}" if has_value(low) and has_value(high) else "–"


def shown_comparison(found: pd.DataFrame) -> pd.DataFrame:
    """`comparison` for people: a time ratio below 1 says that B is faster."""
    return pd.DataFrame(
        [
            {
                "stage": stage_name(row["stage"]),
                "A median": time_words(row["median_a"]),
                "B median": time_words(row["median_b"]),
                "B is": speed_ratio(row["median_b"], row["median_a"]) if row["n"] else NOT_MEASURED,
                "B / A": significant(row["ratio"]) if has_value(row["ratio"]) else "–",
                "95 % interval": interval_words(row["low"], row["high"]),
                "n": f"{int(row['n']):,} p.",
                "verdict": row["verdict"],
                "why": row["why"],
            }
            for row in found.to_dict("records")
        ]
    )


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


def kernel_name(full: str) -> str:
    """A kernel's base name, as profilers show it: without result, namespaces, template and arguments."""
    name = full.removeprefix("void ")
    for opened, closed in ("<>", "()"):
        depth, outer = 0, []
        for sign in name:
            depth += sign == opened
            if not depth:
                outer.append(sign)
            depth -= sign == closed and depth > 0
        name = "".join(outer)
    return name.strip().rpartition("::")[2].strip().rpartition(" ")[2] or full


def shown_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """Kernels of one run for people: shares are of the GPU time of their stage."""

    def spent(name: str) -> list[str]:
        return [amount(value / 1e9 if has_value(value) else None, "s") for value in kernels[name]]

    return pd.DataFrame(
        {
            "stage": [stage_name(stage) if has_value(stage) else "all stages" for stage in kernels["stage"]],
            "kernel": [kernel_name(name) for name in kernels["name"]],
            "share": [
                f"{significant(100 * share)} %" if has_value(share) else NOT_MEASURED
                for share in kernels["share"]
            ],
            "total": spent("total_ns"),
            "calls": [
                f"{int(count):,}" if has_value(count) else NOT_MEASURED for count in kernels["instances"]
            ],
            "mean": spent("avg_ns"),
            "median": spent("med_ns"),
            "least": spent("min_ns"),
            "most": spent("max_ns"),
            "full name": kernels["name"],
        }
    )
