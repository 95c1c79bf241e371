"""Recorded runs as the analytic model takes them: the work of a page, its times, and what runs reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path

import pandas as pd

from analytic_model.cards import card_named
from analytic_model.hardware import HARDWARE
from analytic_model.policy import Dtype, Policy
from analytic_model.predict import Prediction, predict
from analytic_model.roofline import least_s, least_work
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.models.family import all_stages, load_config
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.store import History

PUBLISHED = Path(__file__).with_name("published.json")
"""The sizes of the published checkpoint."""
SHAPE = ("width", "height", "preset", "prompt_tokens", "new_tokens")
"""Facts that a run has to record of a page for its work to be counted."""
_OF_EXAMPLES = "published"
"""The folder that held the published config, which comes along, on the examples' GPU machine."""
TOGETHER = "pages together"
"""In the engine of a run whose pages were read so, as `bench` names it."""
SHARED = "pages read together share each step and its weights: the least time of one page is not theirs"
"""Words for the bound that such pages lack."""


@dataclass(frozen=True)
class Recorded:
    """Times of one page's stages."""

    backend: str
    device: str
    """Its name, for people."""
    times: Mapping[Stage, float]
    """Milliseconds; prefill has the vision stages in it. A stage that was not timed is left out."""
    together: bool = False
    """True where pages were read together: they share weights, so one page's bound is none of theirs."""


@dataclass(frozen=True)
class Reading:
    """One page as a backend read it: its work, how it was computed, how long it took."""

    config_path: Path
    size: tuple[int, int]
    """Width and height of the page in pixels."""
    preset: str
    workload: Workload
    attention: str
    dtype: str
    recorded: Recorded


def hardware_key(device: str, dtype: Dtype = "bfloat16") -> str | None:
    """Key of the hardware whose figures are those of a device; None where its peak is not in the list."""
    card = card_named(device)
    if card is None or (card.bfloat16_tflops if dtype == "bfloat16" else card.float32_tflops) is None:
        return None
    return next(key for key, hardware in HARDWARE.items() if hardware is card)


def recorded_workload(size: tuple[int, int], preset: str, positions: int, new_tokens: int) -> Workload:
    """Work of a backend on a page of `size` pixels. Raises DsocrError for a foreign record.

    `positions` are the whole prompt's, the image's span included.
    """
    work = Workload.from_image(*size, preset, decode_tokens=new_tokens)
    return replace(work, prompt_tokens=positions - work.image_tokens)


# --- one page of a run ----------------------------------------------------------------------------


def pages_of(history: History, run: str) -> pd.DataFrame:
    """A run's pages whose work is recorded. Raises DsocrError where there is none."""
    pages, _ = history.query("pages", run_ids=[run])
    pages = pages[pages[list(SHAPE)].notna().all(axis=1) & pages["error"].isna()]
    if pages.empty:
        raise DsocrError(f"run {run}: it does not say what its pages were; choose another run")
    return pages


def usual_page(history: History, run: str, names: list[str]) -> str:
    """The page of median time: the first that a run reads may have the making of its kernels in it."""
    totals, _ = history.query("page_totals", run_ids=[run])
    times = totals[totals["page"].isin(names)].groupby("page")["milliseconds"].sum().sort_values()
    return str(times.index[len(times) // 2]) if len(times) else names[0]


def reading(history: History, pages: pd.DataFrame, run: str, page: str, backend: str) -> Reading:
    """One page of a run as one of its backends read it. `pages` is `pages_of`. Raises DsocrError."""
    found = pages[(pages["page"] == page) & (pages["backend"] == backend)].to_dict("records")
    if not found:
        raise DsocrError(
            f"{backend} did not read {page[:80]} in this run; choose another backend on the left"
        )
    shape, record = found[0], history.record(run)
    size, preset = (int(shape["width"]), int(shape["height"])), str(shape["preset"])
    timed, _ = history.query("page_timings", run_ids=[run], backends=[backend], page=page)
    medians = timed.groupby("stage")["milliseconds"].median().to_dict()
    times = {stage: float(medians[stage.value]) for stage in all_stages() if stage.value in medians}
    attention = record.attention or "not known"
    if backend == VENDOR and attention == "sdpa":
        attention = "eager"  # the record has our engine's; the published decoder knows no SDPA
    return Reading(
        config_of(record),
        size,
        preset,
        recorded_workload(size, preset, int(shape["prompt_tokens"]), int(shape["new_tokens"])),
        attention,
        record.dtype or "not known",
        Recorded(
            backend,
            _device(record, backend),
            times,
            TOGETHER in str(record.engine),
        ),
    )


def _device(record: RunRecord, backend: str) -> str:
    of_backend = record.environment.get(backend)
    device = of_backend.get("device_name") if isinstance(of_backend, dict) else None
    return str(record.gpu or device or record.device or "a device that is not known")


def config_of(record: RunRecord) -> Path:
    """Find the sizes of a run's model on this machine. Raises DsocrError where it names none."""
    checkpoint = Path(str(record.settings.get("checkpoint") or "").removeprefix("random:"))
    if not checkpoint.name:
        raise DsocrError(f"run {record.id}: it does not name its checkpoint; choose a model on the left")
    place = PROJECT_ROOT / checkpoint
    return PUBLISHED if checkpoint.parts[0] == _OF_EXAMPLES and not place.exists() else place


# --- shares of what a card can do -----------------------------------------------------------------


def utilised(history: History, runs: pd.DataFrame, backend: str) -> pd.DataFrame:
    """Say what runs made of their cards on their page of median time: run_id, mfu, floor_share.

    FLOPs that the result needs over the page's whole time and the card's peak, and the least time of its
    stages over that time, by the card's published figures. `runs` are those of the query `runs`; left out are
    runs of cards that are not known, and of pages read together, which share their weights. Raises
    HistoryError.
    """
    known = {
        row.run_id: card
        for row in runs.itertuples()
        if (card := card_named(row.gpu if isinstance(row.gpu, str) else None)) is not None
        and TOGETHER not in str(row.engine)
    }
    pages, _ = history.query("pages", run_ids=[*known])
    totals, _ = history.query("page_totals", run_ids=[*known], backends=[backend])
    pages = pages[pages[list(SHAPE)].notna().all(axis=1) & pages["error"].isna()]
    both = totals.merge(pages, on=["run_id", "page", "backend"]).sort_values("milliseconds")
    predicted: dict[object, Prediction] = {}
    rows = []
    for run, part in both.groupby("run_id"):
        page, record = part.iloc[len(part) // 2], history.record(run)
        if not {Stage.PREFILL, Stage.DECODE} <= {*page["stages"]}:
            continue
        try:
            path, dtype = config_of(record), record.dtype or "not known"
            size = (int(page["width"]), int(page["height"]))
            counts = (int(page["prompt_tokens"]), int(page["new_tokens"]))
            of = (path, size, page["preset"], *counts, dtype)
            if of not in predicted:
                work = recorded_workload(size, str(page["preset"]), *counts)
                policy = least_work(Policy(dtype=dtype))  # type: ignore[arg-type]
                predicted[of] = predict(load_config(path), work, policy)
            seconds, card = page["milliseconds"] / 1e3, known[run]
            flops = sum(stage.cost.flops for stage in predicted[of].stages.values())
            floor_s = least_s(predicted[of], card) or nan
            rows.append(
                (run, flops / seconds / card.peak_flops(predicted[of].policy.dtype), floor_s / seconds)
            )
        except DsocrError:
            continue  # its model is not on this machine, or its card has no such peak
    return pd.DataFrame(rows, columns=["run_id", "mfu", "floor_share"])
