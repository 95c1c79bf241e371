"""Frames of the Runs page, pure: runs with names for people, their groups, figures of chosen runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

import pandas as pd

from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.labels import card_name, engine_name, has_value, model_name, setting, setting_names
from dsocr_core.runs.statistics import Ratio

PASSED = ("identical", "within_tolerance")
FIGURES = {
    "pages/s": "Throughput: of pages read together as the bench measured it, else of their own times.",
    "s/page": "Latency: median seconds a page.",
    "tokens/s": "New tokens a second of decode; of pages read together of all, as the bench measured it.",
    "prefill ms": "Median prefill of a page, vision included.",
}
USUAL = ("run", "created", "commit", *FIGURES, "x baseline", "same text", "pages", "marks", "note")
"""Columns that are shown first: what one looks for. The table's own menu has the others."""


@dataclass(frozen=True)
class Listed:
    """Runs of a list, in its order."""

    table: pd.DataFrame
    """A row a run: run_id, group, run (its name), FIGURES, what else is known of it."""
    groups: pd.DataFrame
    """A row a group, the newest first: group, runs, pages/s (the best), trend, same text, newest."""
    fidelity: pd.DataFrame
    """A row a group that was compared, and one for what it was compared with: name, pages_per_s, share,
    pages, reference."""
    baseline: str


def listed(
    runs: pd.DataFrame,
    by: str,
    pace: pd.DataFrame,
    against: Mapping[str, Ratio],
    baseline: str = "",
) -> Listed:
    """The query `runs` by groups: `pace` is that query, `against` is `speed.against_baseline`."""
    records: list[Any] = runs.to_dict("records")
    settings = [setting(run) for run in records]
    names = setting_names(settings)
    groups = [_group(by, run, names[each]) for run, each in zip(records, settings, strict=True)]
    table = _runs(runs, own_pace(pace), against).assign(group=groups)
    table["run"] = [names[each] for each in settings]
    return Listed(table, _groups(table), _fidelity(table, pace), baseline)


def _group(by: str, run: Mapping[str, Any], name: str) -> str:
    if by == "commit":
        return str(run["git_commit"])[:7] if has_value(run["git_commit"]) else "commit not known"
    if by == "model":
        return model_name(run) or "model not known"
    return f"{engine_name(run)} on {card_name(run)}" if by == "engine and card" else name


def _runs(runs: pd.DataFrame, pace: pd.DataFrame, against: Mapping[str, Ratio]) -> pd.DataFrame:
    paces = pace.set_index("run_id").reindex(runs["run_id"])
    changed = runs["git_dirty"].eq(True).fillna(False)  # it may not be known whether files were changed
    compared = runs["compared"].astype(float)
    passed = runs[list(PASSED)].astype(float).sum(axis=1)
    table = pd.DataFrame(
        {
            "run_id": runs["run_id"],
            "created": runs["created"],
            "commit": runs["git_commit"].astype("str").str[:7] + changed.map({True: "+", False: ""}),
            "s/page": paces["page_ms"].astype(float).to_numpy() / 1000,
            "pages/s": paces["pages_per_s"].astype(float).to_numpy(),
            "tokens/s": paces["tokens_per_s"].astype(float).to_numpy(),
            "prefill ms": paces["prefill_ms"].astype(float).to_numpy(),
            "x baseline": [speed(against.get(run_id)) for run_id in runs["run_id"]],
            "same text": (passed / compared.where(compared > 0)).to_numpy(),
            "compared": compared.to_numpy(),
            "pages": runs["pages"].astype("Int64"),
            "marks": [marks(run) for run in runs.to_dict("records")],
            "note": runs["note"].where(runs["note"].notna(), runs["notes"]),
            "kind": runs["source"],
            "backends": [", ".join(names) if has_value(names) else None for names in runs["backends"]],
            **{name: runs[name] for name in ("engine", "dtype", "attention", "preset", "draft", "host")},
            "device": runs["gpu"].astype("str").where(runs["gpu"].notna(), runs["device"].astype("str")),
            "model": [model_name({"checkpoint": path}) or None for path in runs["checkpoint"]],
            "settings": runs["policy"],
            "failed": runs["failed"].astype("Int64"),
            "new tokens": runs["new_tokens"].astype("Int64"),
            "busy": (runs["contended"] | runs["profiled"]).astype(bool),
        }
    )
    return table.astype({"x baseline": float})


def _groups(table: pd.DataFrame) -> pd.DataFrame:
    """The best and the trend are of runs on a quiet machine without a profiler."""
    rows = []
    for group, part in table.groupby("group", sort=False):
        quiet = part[~part["busy"]].sort_values("created")
        rates, compared = quiet["pages/s"].dropna(), part["compared"].sum()
        passed = (part["same text"] * part["compared"]).sum()
        rows.append(
            {
                "group": group, "runs": len(part), "pages/s": rates.max() if len(rates) else nan,
                "trend": rates.tolist(), "same text": passed / compared if compared else nan,
                "newest": part["created"].max(),
            }
        )  # fmt: skip
    columns = ["group", "runs", "pages/s", "trend", "same text", "newest"]
    return pd.DataFrame(rows, columns=columns).sort_values("newest", ascending=False, ignore_index=True)


def _fidelity(table: pd.DataFrame, pace: pd.DataFrame) -> pd.DataFrame:
    """Best rate and share of pages identical or within tolerance of each compared group, and of its B."""
    compared = table[(table["compared"] > 0) & table["pages/s"].notna()]
    other = pace[pace["backend"] == VENDOR].set_index("run_id")["pages_per_s"].to_dict()
    rows = []
    for group, part in compared.groupby("group", sort=False):
        pages = part["compared"].sum()
        best = part.loc[part["pages/s"].idxmax()]
        share = (part["same text"] * part["compared"]).sum() / pages
        rows.append((group, best["pages/s"], share, int(pages), False, bool(best["busy"])))
        rate = other.get(best["run_id"])
        if has_value(rate) and VENDOR in str(best["backends"]).split(", ")[1:]:
            rows.append((f"published code, as read in {group}", rate, 1.0, int(pages), True, False))
    columns = ["name", "pages_per_s", "share", "pages", "reference", "busy"]
    return pd.DataFrame(rows, columns=columns)


def own_pace(pace: pd.DataFrame) -> pd.DataFrame:
    """One row a run: of our engine where it read, else of whatever did."""
    return pace.sort_values("backend", key=lambda names: names == VENDOR, kind="stable").drop_duplicates(
        "run_id"
    )


def speed(ratio: Ratio | None) -> float | None:
    """Times as fast as the baseline; None where the interval says neither faster, slower nor alike."""
    return None if ratio is None or ratio.verdict == "inconclusive" else 1 / ratio.ratio


def marks(run: Mapping[Any, Any]) -> str | None:
    """Mark what to know of a run's times, its failures and its tags."""
    found = ["busy machine"] * bool(run["contended"]) + ["profiled"] * bool(run["profiled"])
    found += [f"{int(run['failed'])} failed"] if has_value(run["failed"]) and run["failed"] else []
    return ", ".join([*found, *run["tags"]]) or None


def figures(table: pd.DataFrame) -> pd.DataFrame:
    """Figures of chosen runs as rows, a column a run; of two runs B over A as well."""
    rows = {
        **{name: table[name].tolist() for name in FIGURES},
        "same text, %": (100 * table["same text"]).tolist(),
        "pages": table["pages"].astype(float).tolist(),
    }
    letters = [chr(ord("A") + place) for place in range(len(table))]
    found = pd.DataFrame([[name, *of] for name, of in rows.items()], columns=["figure", *letters])
    if len(table) != 2:
        return found
    return found.assign(ratio=(found["B"] / found["A"]).where(found["figure"].isin(FIGURES)))
