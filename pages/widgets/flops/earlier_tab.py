"""The tab Earlier sweeps of the FLOPs page: an older project's estimates beside the exact model."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analytic_model.earlier_estimates import NOT_EXPLAINED, Estimate, Explained
from dsocr_core.config import ModelConfig, load_config
from pages.widgets.flops import earlier, sweep_charts
from pages.widgets.flops.address import PARAMETERS, key, put, text
from pages.widgets.flops.counting_job import CountedEstimates
from pages.widgets.flops.models import PUBLISHED
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import figure, navigation, resources
from pages.widgets.shared.amounts import amount, percent_of, signed
from pages.widgets.shared.formats import plural
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.tab import open_tab


def draw(selection: Selection, costs: pd.DataFrame) -> None:
    """One sweep of the history, point by point."""
    history = resources.history()
    runs = earlier.runs_with_sweeps(history)
    if not runs:
        st.info("No sweep is in the history. Import one: a folder with vision_sweep.json and the like.")
        if st.button("Import runs", type="primary", key="flops import"):
            navigation.to_import()
        return
    if text("sweep") not in runs:
        put("sweep", runs[0])
    left, middle, right = st.columns([3, 2, 1.6], vertical_alignment="bottom")
    created = history.runs(sources=["sweep"]).set_index("run_id")["created"]
    left.selectbox(
        "Sweep", runs, key=key("sweep"), format_func=lambda run: f"{created[run]:%Y-%m-%d %H:%M} · {run}"
    )
    middle.segmented_control(
        "Of", PARAMETERS["part"].choices, required=True, key=key("part"), width="stretch",
        format_func=earlier.PART_WORDS.__getitem__,
    )  # fmt: skip
    right.segmented_control(
        "Attention", PARAMETERS["estimate_of"].choices, required=True, key=key("estimate_of"), width="stretch"
    )
    points, sql = history.query("sweep_points", run_ids=[text("sweep")])
    found = earlier.explained(selection.config, earlier.estimates(points, text("part"), text("estimate_of")))
    if not found:
        st.info("This sweep has no such estimates.")
        return
    counts = _count(selection.config, [point.estimate for point in found if point.counted_gap is not None])
    frame, causes = earlier.gap_frame(found, counts), cause_frame(found)
    if selection.config != load_config(PUBLISHED):
        _other_model(frame, sql)
        return
    words = _words(frame, found)
    figure.head(words, sql=[sql], earlier_sweep=frame, causes=causes)
    figure.plot(sweep_charts.gaps(frame, list(causes["cause"])), "earlier sweep", words)
    figure.table(_shown_causes(causes), left=("cause", "why"))
    figure.table(_shown(frame), left=("grid",))


def _other_model(frame: pd.DataFrame, sql: str) -> None:
    """The estimates are of the published sizes: of other ones there is the model, and torch's count."""
    words = "The estimates are of the published sizes. Of the model chosen here: the same work, exactly."
    words += _counted_here(frame)
    own = frame[["tiles", "grid", "image_tokens", "exact", "counted_here"]]
    figure.head(words, sql=[sql], earlier_sweep=own)
    shown = _shown(frame)
    figure.table(
        shown[[name for name in ("grid", "image tokens", "exact", "counted here") if name in shown]],
        left=("grid",),
    )


_POLL_S = 0.4


def _count(config: ModelConfig, wanted: list[Estimate]) -> dict[Estimate, int]:
    """What torch counts here of the points that it was run on there; draws the button, or how far it is."""
    work: CountedEstimates | None = st.session_state.get("flops counted estimates")
    mine = work is not None and work.is_of(config, wanted)
    if work is not None and mine and work.running:
        st.fragment(_progress, run_every=_POLL_S)(work)
        return {}
    if work is not None and mine and not work.error and len(work.counts) == len(wanted):
        return work.counts
    if work is not None and mine and work.error:
        show_error(work.error)
    if wanted:
        words = f"Count {plural(len(wanted), 'point')} with torch"
        about = "Our core runs each point that torch was run on there, on the meta device: a few seconds."
        if st.button(words, key="flops count", help=about):
            started = CountedEstimates(config, wanted)
            st.session_state["flops counted estimates"] = started
            started.start(open_tab())
            st.rerun()
    return {}


def _progress(work: CountedEstimates) -> None:
    if not work.running:
        st.rerun()
    left, right = st.columns([6, 1], vertical_alignment="center")
    left.progress(
        len(work.counts) / len(work.found), f"torch counts: {len(work.counts)} of {len(work.found)} points"
    )
    if right.button("Cancel", key="flops count cancel", width="stretch", disabled=work.cancelling):
        work.cancel()


def _words(frame: pd.DataFrame, found: list[Explained]) -> str:
    share = 100 * frame["gap"] / frame["exact"]
    words = (
        f"{plural(len(frame), 'point')}: the estimate is {percent_of(share.min())} to "
        f"{percent_of(share.max())} off the exact model of the published code. "
    )
    rest = sum(abs(point.unexplained) for point in found)
    words += (
        "The causes add up to each gap, to the last FLOP."
        if not rest
        else (f"{amount(float(rest), 'FLOP')} are not explained.")
    )
    counted = frame["counted"].notna()
    if counted.any():
        off = int(frame.loc[counted, "counted_gap"].abs().max())
        words += f" torch counted {int(counted.sum())} of them: " + (
            "exactly the model's." if not off else f"at most {off:,} FLOP more, transformers' rotary angles."
        )
    return words + _counted_here(frame)


def _counted_here(frame: pd.DataFrame) -> str:
    """A sentence on torch's counts of our core, beside the model's figures; none where it has not counted."""
    here = frame["counted_here"].notna()
    if not here.any():
        return ""
    off = int((frame.loc[here, "counted_here"] - frame.loc[here, "exact"]).abs().max())
    words = f" Counted here, {int(here.sum())} of them are "
    return words + ("exactly the model's." if not off else f"up to {off:,} FLOP off the model.")


def cause_frame(found: list[Explained]) -> pd.DataFrame:
    """Causes with their reason, the range over the points, and the sum: cause, why, least, most, sum."""
    rows: dict[str, dict[str, object]] = {}
    for point in found:
        for cause in point.causes:
            row = rows.setdefault(cause.name, {"cause": cause.name, "why": cause.why, "amounts": []})
            amounts = row["amounts"]
            assert isinstance(amounts, list)
            amounts.append(cause.flops)
    frame = pd.DataFrame(rows.values())
    amounts = frame.pop("amounts")
    return frame.assign(
        least=[min(values) for values in amounts],
        most=[max(values) for values in amounts],
        sum=[sum(values) for values in amounts],
    )


def _shown_causes(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "cause": frame["cause"],
            "smallest": [signed(float(value), "FLOP") for value in frame["least"]],
            "largest": [signed(float(value), "FLOP") for value in frame["most"]],
            "why": [
                why
                if name != "all tiles' tokens, once for each tile"
                else "for T tiles, T times all their tokens"
                for name, why in zip(frame["cause"], frame["why"], strict=True)
            ],
        }
    )


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    causes = frame.columns[frame.columns.get_loc("counted_here") + 1 :]
    return pd.DataFrame(
        {
            "grid": frame["grid"],
            "image tokens": [f"{value:,}" for value in frame["image_tokens"]],
            "estimate": [f"{value:,}" for value in frame["estimate"]],
            "exact": [f"{value:,}" for value in frame["exact"]],
            "counted by torch": ["" if pd.isna(value) else f"{value:,}" for value in frame["counted"]],
            **(
                {"counted here": ["" if pd.isna(value) else f"{value:,}" for value in frame["counted_here"]]}
                if frame["counted_here"].notna().any()
                else {}
            ),
            "gap": [f"{value:+,}".replace("-", "−") for value in frame["gap"]],
            **{
                name: [f"{value:+,}".replace("-", "−") if value else "0" for value in frame[name]]
                for name in causes
                if name != NOT_EXPLAINED or frame[name].any()
            },
        }
    )
