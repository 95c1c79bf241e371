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
from analytic_model.requirements import Target, work_of
from analytic_model.roofline import least_s, least_work
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.untrusted import Refused, parse_json, read_bytes
from dsocr_core.base.words import amount
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import all_stages, inside_prefill, load_config
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.kernel_profiles import figures
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.store import History

PUBLISHED = Path(__file__).with_name("published.json")
"""The sizes of the published checkpoint."""
SHAPE = ("width", "height", "preset", "prompt_tokens", "new_tokens")
"""Facts that a run has to record of a page for its work to be counted."""
_OF_EXAMPLES = "published"
"""The folder that held the published config, which comes along, on the examples' GPU machine."""
_MOST_RUNS = 30
"""Newest runs that are asked what they reached."""
TOGETHER = "pages together"
"""In the engine of a run whose pages were read so, as `bench` names it."""
SHARED = "pages read together share each step and its weights: the least time of one page is not theirs"
"""Words for the bound that such pages lack."""
_BENCH_LIMIT = 4 * 1024 * 1024
"""Bytes of what `bench` wrote beside a run."""


@dataclass(frozen=True)
class Recorded:
    """Times of one page's stages."""

    backend: str
    device: str
    """Its name, for people."""
    times: Mapping[Stage, float]
    """Milliseconds; prefill has the vision stages in it. A stage that was not timed is left out."""
    seconds: float | None = None
    """Time of a page among those of its run; None where it is not known."""
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
            _seconds_a_page(history, record, backend, times),
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


# --- what runs reached ----------------------------------------------------------------------------

_REACHED = [
    "run_id", "backend", "device", "page", "grid", "image_tokens", "together", "seconds", "flops_per_s",
    "bytes_per_s",
]  # fmt: skip


def reached(
    history: History, config: ModelConfig, preset: str, target: Target, policy: Policy
) -> pd.DataFrame:
    """Collect what recorded runs of that model and preset reached: each run's, backend's and grid's median
    page.

    Raises DsocrError and what DuckDB raises.
    """
    # Under a profiler no time is the engine's own.
    runs = history.runs(sources=["dsocr"], profiled=False).head(_MOST_RUNS)
    runs = runs[[same_model(config, history.record(run)) for run in runs["run_id"]]]
    if runs.empty:
        return pd.DataFrame(columns=_REACHED)
    pages, _ = history.query("pages", run_ids=runs["run_id"].tolist())
    times, _ = history.query("page_timings", run_ids=runs["run_id"].tolist())
    pages = pages[pages[list(SHAPE)].notna().all(axis=1) & (pages["preset"] == preset)]
    joined = pages.merge(timed(times, target), on=["run_id", "page", "backend"])
    if target == "pages":
        joined = joined.assign(milliseconds=_of_benches(history, joined))
    of_run = runs.set_index("run_id")
    rows = []
    for (run, backend, *_), part in joined.groupby(["run_id", "backend", "grid_columns", "grid_rows"]):
        row = _reached_row(part, config, target, policy, TOGETHER in str(of_run.at[run, "engine"]))
        if row is not None:
            rows.append({"run_id": run, "backend": backend, "device": of_run.at[run, "gpu"] or "CPU"} | row)
    return pd.DataFrame(rows, columns=_REACHED)


def _reached_row(
    part: pd.DataFrame, config: ModelConfig, target: Target, policy: Policy, together: bool
) -> dict[str, object] | None:
    """The median time of pages of one grid, and the rates of the first of them at that time."""
    seconds = part["milliseconds"] / 1e3
    if target == "tpot":
        seconds = seconds / (part["new_tokens"] - 1).where(part["new_tokens"] > 1)
    middle, first = float(seconds.median()), part.iloc[0]
    try:
        work = recorded_workload(
            (int(first["width"]), int(first["height"])), str(first["preset"]), int(first["prompt_tokens"]),
            int(first["new_tokens"]),
        )  # fmt: skip
    except DsocrError:
        return None
    if not middle > 0:
        return None
    stages = work_of(config, work, target, policy).values()
    moved = sum(stage.compulsory_bytes for stage in stages)
    return {
        "page": first["page"],
        "grid": f"{int(first['grid_columns'])} x {int(first['grid_rows'])}",
        "image_tokens": work.image_tokens,
        "together": together,
        "seconds": middle,
        "flops_per_s": sum(stage.cost.flops for stage in stages) / middle,
        # Pages that are read together share what their weights move.
        "bytes_per_s": float("nan") if together else moved / middle,
    }


def timed(times: pd.DataFrame, target: Target) -> pd.DataFrame:
    """Keep the times that count of each page's stages: run_id, page, backend, milliseconds. Of a page all
    that follow.
    """
    if target == "pages":
        times = times[~times["stage"].isin([stage.value for stage in inside_prefill()])]
    else:
        times = times[times["stage"] == (Stage.PREFILL if target == "ttft" else Stage.DECODE).value]
    return times.groupby(["run_id", "page", "backend"], as_index=False)["milliseconds"].sum()


def _seconds_a_page(
    history: History, record: RunRecord, backend: str, times: Mapping[Stage, float]
) -> float | None:
    """A page's time in a run: by `bench`'s pages a second, else by its stages; None where neither says it.

    Of pages that were read together the stages' times are no page's own.
    """
    rate = None
    if "bench.json" in history.file_names(record.id):
        rate = bench_rates(history.file(record.id, "bench.json")).get(backend)
    if rate is not None:
        return 1 / rate
    if not {Stage.PREFILL, Stage.DECODE} <= times.keys() or TOGETHER in str(record.engine):
        return None
    return sum(ms for stage, ms in times.items() if stage not in inside_prefill()) / 1e3


def _of_benches(history: History, joined: pd.DataFrame) -> pd.Series:
    """A page's time in `joined`; where `bench` timed whole pages, that: pages together share their time."""
    rates: dict[str, dict[str, float]] = {}
    for run in joined["run_id"].unique():
        if "bench.json" in history.file_names(run):
            rates[run] = bench_rates(history.file(run, "bench.json"))
    columns = joined[["run_id", "backend", "milliseconds"]].itertuples(index=False)
    found = [
        1e3 / rates[run][backend] if backend in rates.get(run, {}) else milliseconds
        for run, backend, milliseconds in columns
    ]
    return pd.Series(found, index=joined.index, dtype=float)


def bench_rates(file: Path) -> dict[str, float]:
    """Pages a second of each engine by what `bench` wrote; those that it does not say are left out."""
    try:
        engines = parse_json(read_bytes(file, _BENCH_LIMIT))["engines"]
        rates = {str(engine["name"]): (engine["pages_per_s"] or {}).get("median") for engine in engines}
    except (Refused, LookupError, TypeError, AttributeError):
        return {}
    return {
        name: float(rate) for name, rate in rates.items() if isinstance(rate, (int, float)) and 0 < rate < 1e9
    }


def same_model(config: ModelConfig, record: RunRecord) -> bool:
    """Tell whether a run read with a model of these sizes; not so where its sizes are not known here."""
    try:
        return load_config(config_of(record)) == config
    except DsocrError:
        return False


def best_words(found: pd.DataFrame, workload: Workload, target: Target) -> str:
    """The best of `reached` on a page of this grid, else of the one nearest to it, which is named.

    Of pages read together, which share weights and time, what they reached stands beside it.
    """
    together = found[found["together"]]
    alone = found[~found["together"]] if len(together) < len(found) else found
    words = _best_of(alone, workload, target)
    if target == "pages" and 0 < len(together) < len(found):
        words += f"; {_best_of(together, workload, target)}"
    return words


def _best_of(found: pd.DataFrame, workload: Workload, target: Target) -> str:
    columns, rows = workload.grid
    grid = f"{columns} x {rows}"
    same = found[found["grid"] == grid]
    if same.empty:
        off = (found["image_tokens"] - workload.image_tokens).abs()
        same = found[off == off.min()]
    best = same.sort_values("seconds").iloc[0]
    did = (
        f"reached {1 / best['seconds']:.3g} pages a second"
        if target == "pages"
        else f"needed {amount(best['seconds'], 's')}"
    )
    where = "" if best["grid"] == grid else f" at {best['grid']} tiles"
    return f"{best['backend']} {did}{where} on {best['device']} (run {str(best['run_id'])[-8:]})"


# --- what a profiler counted ----------------------------------------------------------------------

_POINTS = ["stage", "kind", "intensity", "flops_per_s", "launches"]


def counted_points(history: History, engine: str, hardware: str) -> pd.DataFrame:
    """A point a stage from the newest profile of that engine on that device whose operations were counted.

    All its counted launches together, each at the time that it took alone. Columns as
    `frames.roofline_points`, and launches. Empty without such a profile.
    """
    there = set(history.runs_with("kernel_metrics"))
    runs = history.runs(sources=["dsocr"], engines=[engine], profiled=True)
    for run, gpu in zip(runs["run_id"], runs["gpu"], strict=True):
        if run in there and isinstance(gpu, str) and hardware_key(gpu) == hardware.removesuffix("-measured"):
            launches, _ = history.query("launches", run_ids=[run])
            metrics, _ = history.query("launch_metrics", run_ids=[run])
            if len(points := stage_points(launches, metrics)):
                return points
    return pd.DataFrame(columns=_POINTS)


def stage_points(launches: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Sums of each stage's launches that have FLOPs, bytes and a time."""
    stages = launches.set_index("number")["stage"]
    rows = []
    for number, part in metrics.groupby("number"):
        found = figures(part[["metric", "value", "unit"]].to_dict("records"))
        row = (stages.get(number), found["flops"], found["bytes"], found["duration_s"])
        if isinstance(row[0], str) and all(row):
            rows.append(row)
    sums = pd.DataFrame(rows, columns=["stage", "flops", "bytes", "seconds"]).groupby("stage", as_index=False)
    frame = sums.sum().assign(kind="counted", launches=sums.size()["size"])
    frame["intensity"] = frame["flops"] / frame["bytes"]
    frame["flops_per_s"] = frame["flops"] / frame["seconds"]
    return frame[_POINTS]
