"""Above the list of runs: frames with names for people, one sentence, groups, speed against fidelity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from math import log10, nan
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import amount, percent, plural, significant
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.labels import has_value, model_name, setting, setting_names, short
from pages.widgets.runs import address
from pages.widgets.runs.address import GROUPS, STATE, bound, put, value
from pages.widgets.shared import figure, plots
from pages.widgets.shared.messages import plain

FIGURES = {
    "pages/s": "Throughput: of pages read together as the bench measured it, else of their own times.",
    "s/page": "Latency: median seconds a page.",
    "tokens/s": "New tokens a second of decode; of pages read together of all, as the bench measured it.",
    "prefill ms": "Median prefill of a page, vision included.",
}
USUAL = (
    "run", "created", "marks", "pages/s", "s/page", "passed", "pages", "commit", "tokens/s", "prefill ms",
    "note",
)  # fmt: skip
"""Columns that are shown first, up to the commit on 1,024 pixels. The table's own menu has the others."""


@dataclass(frozen=True)
class Listed:
    """Runs of a list, in its order."""

    table: pd.DataFrame
    """A row a run: run_id, group, run (its name), FIGURES, what else is known of it."""
    groups: pd.DataFrame
    """A row a group, the newest first: group, runs, pages/s (the best), passed, newest, trend."""
    fidelity: pd.DataFrame
    """A row a group that was compared, and one for what it was compared with: name, pages_per_s, share,
    pages, reference."""


def listed(runs: pd.DataFrame, by: str, pace: pd.DataFrame) -> Listed:
    """The query `runs` by groups. `pace` is that query."""
    records: list[Any] = runs.to_dict("records")
    settings = [setting(run) for run in records]
    names = setting_names(settings)
    groups = [_group(by, run, names[each]) for run, each in zip(records, settings, strict=True)]
    table = _runs(runs, own_pace(pace)).assign(group=groups)
    table["run"] = [names[each] for each in settings]
    return Listed(table, _groups(table), _fidelity(table, pace))


def _group(by: str, run: Mapping[str, Any], name: str) -> str:
    if by == "setting":
        return name
    return str(run["git_commit"])[:7] if has_value(run["git_commit"]) else "commit not known"


def _runs(runs: pd.DataFrame, pace: pd.DataFrame) -> pd.DataFrame:
    paces = pace.set_index("run_id").reindex(runs["run_id"])
    changed = runs["git_dirty"].eq(True).fillna(False)  # it may not be known whether files were changed
    compared = runs["compared"].astype(float)
    return pd.DataFrame(
        {
            "run_id": runs["run_id"],
            "created": runs["created"],
            "commit": runs["git_commit"].astype("str").str[:7] + changed.map({True: "+", False: ""}),
            "s/page": paces["page_ms"].astype(float).to_numpy() / 1000,
            "pages/s": paces["pages_per_s"].astype(float).to_numpy(),
            "tokens/s": paces["tokens_per_s"].astype(float).to_numpy(),
            "prefill ms": paces["prefill_ms"].astype(float).to_numpy(),
            "passed": (runs["passed"].astype(float) / compared.where(compared > 0)).to_numpy(),
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


def _groups(table: pd.DataFrame) -> pd.DataFrame:
    """The best and the trend are of runs on a quiet machine without a profiler."""
    rows = []
    for group, part in table.groupby("group", sort=False):
        quiet = part[~part["busy"]].sort_values("created")
        rates, compared = quiet["pages/s"].dropna(), part["compared"].sum()
        passed = (part["passed"] * part["compared"]).sum()
        rows.append(
            {
                "group": group, "runs": len(part), "pages/s": rates.max() if len(rates) else nan,
                "trend": rates.tolist(), "passed": passed / compared if compared else nan,
                "newest": part["created"].max(),
            }
        )  # fmt: skip
    columns = ["group", "runs", "pages/s", "passed", "newest", "trend"]
    return pd.DataFrame(rows, columns=columns).sort_values("newest", ascending=False, ignore_index=True)


def _fidelity(table: pd.DataFrame, pace: pd.DataFrame) -> pd.DataFrame:
    """Best rate and share of pages identical or within tolerance of each compared group, and of its B."""
    compared = table[(table["compared"] > 0) & table["pages/s"].notna()]
    other = pace[pace["backend"] == VENDOR].set_index("run_id")["pages_per_s"].to_dict()
    rows = []
    for group, part in compared.groupby("group", sort=False):
        pages = part["compared"].sum()
        best = part.loc[part["pages/s"].idxmax()]
        share = (part["passed"] * part["compared"]).sum() / pages
        rows.append((group, best["pages/s"], share, int(pages), False, bool(best["busy"])))
        rate = other.get(best["run_id"])
        if has_value(rate) and VENDOR in str(best["backends"]).split(", ")[1:]:
            rows.append((f"published code, as read in {group}", rate, 1.0, int(pages), True, False))
    columns = ["name", "pages_per_s", "share", "pages", "reference", "busy"]
    return pd.DataFrame(rows, columns=columns)


def own_pace(pace: pd.DataFrame) -> pd.DataFrame:
    """One row a run: the vendor's only where there is no other."""
    return pace.sort_values("backend", key=lambda names: names == VENDOR, kind="stable").drop_duplicates(
        "run_id"
    )


def marks(run: Mapping[Any, Any]) -> str | None:
    """Mark what to know of a run's times, its failures and its tags."""
    found = ["busy machine"] * bool(run["contended"]) + ["profiled"] * bool(run["profiled"])
    found += [f"{int(run['failed'])} failed"] if has_value(run["failed"]) and run["failed"] else []
    return ", ".join([*found, *run["tags"]]) or None


def figures(table: pd.DataFrame) -> pd.DataFrame:
    """Figures of chosen runs as rows, a column a run; of two runs B over A as well."""
    rows = {
        **{name: table[name].tolist() for name in FIGURES},
        "passed, %": (100 * table["passed"]).tolist(),
        "pages": table["pages"].astype(float).tolist(),
    }
    letters = [chr(ord("A") + place) for place in range(len(table))]
    found = pd.DataFrame([[name, *of] for name, of in rows.items()], columns=["figure", *letters])
    if len(table) != 2:
        return found
    return found.assign(ratio=(found["B"] / found["A"]).where(found["figure"].isin(FIGURES)))


# --- what is drawn --------------------------------------------------------------------------------

ROW = 24
"""Pixels of a row: as high as a target of the pointer has to be."""
_HEIGHT = 300
_COLUMNS = {
    "group": st.column_config.TextColumn(width=170),
    "runs": st.column_config.NumberColumn(width=40),
    "pages/s": st.column_config.NumberColumn(
        "pages/s", width=54, format="%.3g", help="The best of runs on a quiet machine without a profiler."
    ),
    "trend": st.column_config.LineChartColumn("so far", width=58, y_min=0),
    "passed": st.column_config.NumberColumn(
        width=62, format="percent", help="Share of compared pages that are identical or within tolerance."
    ),
    "newest": st.column_config.DatetimeColumn(width=62, format="YY-MM-DD"),
}


def draw(found: Listed, total: int, sql: list[str]) -> None:
    st.markdown(f"**{plain(sentence(found, total))}**")
    left, right = st.columns([37, 63])
    with left:
        _draw_fidelity(found, sql)
    with right:
        _draw_groups(found)


def sentence(found: Listed, total: int) -> str:
    """Count runs and groups, name the fastest, and how many are marked."""
    table, groups = found.table, found.groups
    of_all = f" of {total:,}" if len(table) < total else ""
    words = f"{plural(len(table), 'run')}{of_all} in {plural(len(groups), 'group')}"
    quiet = table[~table["busy"] & table["pages/s"].notna()]
    if len(quiet):
        best = quiet.loc[quiet["pages/s"].idxmax()]
        words += f"; fastest: {best['run']}, {amount(best['pages/s'], 'pages/s')}"
    busy = int(table["busy"].sum())
    are = "is" if busy == 1 else "are"
    return f"{words}. {busy:,} {are} profiled or of a busy machine: marked." if busy else f"{words}."


def _draw_groups(found: Listed) -> None:
    names = list(found.groups["group"])
    wanted = [place for place, name in enumerate(names) if name in value("group")]
    box = f"runs groups {hash(tuple(names)):x} {st.session_state.get('runs groups round', 0)}"

    def take() -> None:
        rows = st.session_state[box]["selection"]["rows"]
        put("group", [names[row] for row in rows if row < len(names)])

    st.selectbox(
        "Group by", GROUPS, **bound("by"), label_visibility="collapsed", on_change=STATE.clear,
        args=("group",), format_func=lambda name: f"Group by {name}",
    )  # fmt: skip
    st.dataframe(
        found.groups, key=box, hide_index=True, row_height=ROW, height=_HEIGHT, placeholder="–",
        selection_mode="multi-row", on_select=take, selection_default={"selection": {"rows": wanted}},
        column_config=_COLUMNS,
    )  # fmt: skip


def _draw_fidelity(found: Listed, sql: list[str]) -> None:
    points = found.fidelity
    own = points[~points["reference"]]
    missing = len(found.groups) - len(own)
    words = "Speed against fidelity, a point a compared group."
    words += f" {plural(missing, 'group')} without a comparison." if missing else ""
    figure.head(words, sql=sql, runs=found.table, groups=found.groups)
    if points.empty:
        st.caption("No run was compared with another backend: `dsocr compare PAGES --save` records one.")
        return
    with st.popover("Cost", key="runs cost"):
        st.number_input(
            "Price of the machine an hour", 0.0, 1e6, format="%g", help="Shows cost a page for pages/s.",
            **bound("price"),
        )  # fmt: skip
    with st.container(height=280, border=False):  # its room before it comes
        st.html(plane_html(points, float(value("price"))))


def plane_html(points: pd.DataFrame, price: float = 0.0) -> str:
    """Pages a second, or what 1,000 pages cost, against the share of pages that passed.

    As HTML: a chart's library is half of what the page costs the browser.
    """
    unit = "cost of 1,000 pages" if price else "pages/s"
    heights = price / 3.6 / points["pages_per_s"] if price else points["pages_per_s"]
    axis, least = plots.log_axis(heights, unit), min(0.95, float(points["share"].min()) - 0.02)
    low, high = axis["range"]

    def up(value: float) -> str:
        return f"bottom:{(log10(value) - low) / (high - low):.1%}"

    ticks = zip(axis["tickvals"], axis["ticktext"], strict=True)
    marks = [f"<small style='{up(value)}'>{text}</small>" for value, text in ticks]
    said = []
    for row, height in zip(points.to_dict("records"), heights, strict=True):
        words = f"{short(row['name'], 60)}: {significant(height)} {unit}, "
        words += f"{percent(100 * row['share'])} of {row['pages']} pages"
        said.append(words)
        shade = plots.NEUTRAL if row["busy"] or row["reference"] else "#3B6FB6"
        fill = "transparent" if row["reference"] else shade
        marks.append(
            f"<i title='{escape(words, quote=True)}' style='left:{(row['share'] - least) / (1 - least):.1%};"
            f"{up(height)};border-color:{shade};background:{fill}'></i>"
        )
    return (
        f"<div class='dsocr-plane' role='img' aria-label='{escape('; '.join(said), quote=True)}'>"
        f"{''.join(marks)}</div><div class='dsocr-axis'><span>{100 * least:.3g}%</span>"
        f"<span>of pages that passed; up: {unit}; ring: published code</span>"
        "<span>100%</span></div>"
    )


def chips(counts: dict[str, int]) -> None:
    """Chips with their counts: runs that alone are listed."""
    options = [name for name in address.VIEWS if name and (counts[name] or value("view") == name)]
    if not options:
        return
    box = "runs view chips"
    st.session_state[box] = value("view") or None
    st.pills(
        "Show only", options, key=box, format_func=lambda name: f"{name} {counts[name]:,}",
        on_change=lambda: put("view", st.session_state[box] or ""), label_visibility="collapsed",
    )  # fmt: skip
