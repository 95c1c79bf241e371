"""What the history recorded of a review's runs, read with one query a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from dsocr_core.errors import DsocrError
from dsocr_core.history.record import RunRecord
from dsocr_core.history.store import History
from dsocr_core.outputs.artifacts import RESULT_MMD
from dsocr_core.records import SIDES, VENDOR, ModelInputs, StageTiming, TopTwo, top_two_steps
from dsocr_core.review.inputs import SideInputs
from dsocr_core.review.page import Letter, PageSide
from dsocr_core.review.read_with import policy_of
from dsocr_core.stages import Stage

Row = dict[str, Any]
Key = tuple[str, str | None, str]
"""(run id, backend, page)"""

_OF_INPUTS = ("ngram_window", "ngram_whitelist")
"""Policies that the table of inputs has no columns for."""
_MMD_LIMIT = 16 * 1024 * 1024


@dataclass
class Recorded:
    """Rows of images, tokens and inputs of some runs, by run, backend and page, in order."""

    images: dict[Key, Row] = field(default_factory=dict)
    tokens: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    inputs: dict[Key, Row] = field(default_factory=dict)
    named: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """A and B of the runs whose backends were named."""

    def backends(self, run_id: str) -> list[str | None]:
        """Backends of a run, A's first: as they were named, else our engine's."""
        found = dict.fromkeys(backend for run, backend, _ in self.images if run == run_id)
        named = self.named.get(run_id, ())

        def place(backend: str | None) -> tuple[int, bool, bool, str]:
            order = named.index(backend) if backend in named else len(named)
            return order, backend == VENDOR, backend is None, backend or ""

        return sorted(found, key=place)

    def pages(self, run_id: str, backend: str | None) -> list[str]:
        return [page for run, of_backend, page in self.images if (run, of_backend) == (run_id, backend)]


def load(history: History, run_ids: Sequence[str]) -> Recorded:
    """Everything that a review of these runs compares."""
    recorded = Recorded()
    for run_id in run_ids:
        record = history.record(run_id)
        if any(record.settings.get(side) is not None for side in SIDES):
            recorded.named[run_id] = record.backends
    for row in _rows(history, "whole_pages", run_ids):
        recorded.images[row["run_id"], row["backend"], row["page"]] = row
    frame = history.query("tokens", run_ids=list(run_ids))[0]
    columns = (frame[name].tolist() for name in ("run_id", "backend", "page", "token_ids"))
    for run_id, backend, page, tokens in zip(*columns, strict=True):
        if tokens is not None and not isinstance(tokens, float):
            recorded.tokens[run_id, _text(backend), page] = tuple(tokens.tolist())
    for row in _rows(history, "inputs", run_ids):
        recorded.inputs[row["run_id"], row["backend"], row["page"]] = row
    return recorded


def _rows(history: History, query: str, run_ids: Iterable[str], **parameters: Any) -> list[Row]:
    frame = history.query(query, run_ids=list(run_ids), **parameters)[0]
    return rows(frame)


def rows(frame: pd.DataFrame) -> list[Row]:
    """Rows as dictionaries; what is not there is None."""
    columns = [[_value(value) for value in frame[name].tolist()] for name in frame.columns]
    return [dict(zip(frame.columns, values, strict=True)) for values in zip(*columns, strict=True)]


def _value(value: Any) -> Any:
    """None for what pandas puts where there is nothing."""
    missing = (
        value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)
    )
    return None if missing else value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def page_side(recorded: Recorded, letter: Letter, key: Key, history: History) -> PageSide:
    """One side of a page, its boxes not yet read."""
    run_id, backend, page = key
    row = recorded.images[key]
    text, plain = row["text_raw"], False
    if text is None and row["error"] is None:
        text = _folder_text(history, run_id)
        plain = text is not None
    width, height = _whole(row["width"]), _whole(row["height"])
    return PageSide(
        letter=letter,
        page=page,
        run_id=run_id,
        backend=backend,
        error=row["error"],
        text_raw=text,
        token_ids=recorded.tokens.get(key),
        finish_reason=row["finish_reason"],
        new_tokens=_whole(row["new_tokens"]),
        width=width,
        height=height,
        path=row["path"],
        sha256=row["sha256"],
        source=row["source"],
        preset=row["preset"],
        plain=plain,
    )


def side_inputs(recorded: Recorded, key: Key, side: PageSide, history: History) -> SideInputs:
    """What went into that side's model, as far as it was recorded."""
    image, row = recorded.images[key], recorded.inputs.get(key)
    columns, lines = _whole(image["grid_columns"]), _whole(image["grid_rows"])
    grid = (columns, lines) if columns is not None and lines is not None else None
    record = history.record(side.run_id)
    inputs = _model_inputs(row, grid) if row is not None and grid is not None else None
    return SideInputs(
        page=side,
        record=record,
        inputs=None if inputs is None else _with_policy(inputs, record, side),
        prompt=row["prompt"] if row else None,
        prompt_tokens=_whole(image["prompt_tokens"]),
        grid=grid,
    )


def _model_inputs(row: Row, grid: tuple[int, int]) -> ModelInputs | None:
    """None when a value is missing: half of the inputs are none."""
    if any(value is None for value in row.values()):
        return None
    mask = _numbers(row["image_mask"])
    return ModelInputs(
        prompt_ids=_numbers(row["prompt_ids"]),
        image_mask=tuple(zip(mask[::2], mask[1::2], strict=False)),
        grid=grid,
        global_shape=_numbers(row["global_shape"]),
        global_sha256=row["global_sha256"],
        tiles_shape=_numbers(row["tiles_shape"]),
        tiles_sha256=row["tiles_sha256"],
        no_repeat_ngram_size=int(row["no_repeat_ngram_size"]),
        max_new_tokens=int(row["max_new_tokens"]),
        attention=row["attention"],
        dtype=row["dtype"],
        rotary_dtype=row["rotary_dtype"],
    )


def _with_policy(inputs: ModelInputs, record: RunRecord, side: PageSide) -> ModelInputs:
    """With the backend's window and whitelist; older runs and the published code have none."""
    policy = policy_of(record, side.backend)
    return replace(inputs, **{name: policy[name] for name in _OF_INPUTS if name in policy})


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(values.tolist())


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _folder_text(history: History, run_id: str) -> str | None:
    """The `result.mmd` of a run that is one output folder of the vendor; None for any other run."""
    if history.record(run_id).source != "vendor":
        return None
    try:
        names = [name for name in history.file_names(run_id) if name.endswith(f"/{RESULT_MMD}")]
        if len(names) != 1:
            return None
        file = history.file(run_id, names[0])
        if file.stat().st_size > _MMD_LIMIT:
            return None
        return file.read_text(encoding="utf-8", errors="replace")
    except (DsocrError, OSError):
        return None


# --- of one page, when it is shown ----------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """New tokens as texts and the two likeliest of each; empty where not recorded."""

    texts: tuple[str, ...] = ()
    top: tuple[TopTwo, ...] = ()


def steps(history: History, run_ids: Sequence[str], page: str) -> dict[Key, Steps]:
    """What was recorded of the new tokens of runs on a page, one by one."""
    found = {}
    for row in _rows(history, "steps", run_ids, page=page):
        texts = () if row["token_texts"] is None else tuple(map(str, row["token_texts"]))
        top = _top_two(row["top_ids"], row["top_logits"])
        found[row["run_id"], row["backend"], row["page"]] = Steps(texts, top)
    return found


def top_two_at(history: History, wanted: Sequence[tuple[str, str, int]]) -> dict[tuple[Key, int], TopTwo]:
    """The two likeliest of one step on each of some pages, given as run id, page and step; with one query."""
    found: dict[tuple[Key, int], TopTwo] = {}
    if not wanted:
        return found
    runs, pages, indices = ([*column] for column in zip(*wanted, strict=True))
    for row in _rows(history, "top_two", list(dict.fromkeys(runs)), of_runs=runs, pages=pages, steps=indices):
        for top in _top_two(row["top_ids"], row["top_logits"]):
            found[(row["run_id"], row["backend"], row["page"]), int(row["step"])] = top
    return found


def _top_two(ids: Any, logits: Any) -> tuple[TopTwo, ...]:
    """Empty for what is not recorded, and for what no backend of this project wrote."""
    try:
        return top_two_steps(ids.tolist(), logits.tolist()) if ids is not None and logits is not None else ()
    except (TypeError, ValueError):  # another number of logits than of ids, or nulls among them
        return ()


def timings(
    history: History, run_ids: Sequence[str], page: str | None = None
) -> dict[Key, tuple[StageTiming, ...]]:
    """Times of one page or of all, in the order of the stages; stages of other programs are left out."""
    stages = {stage.value: stage for stage in Stage}
    found: dict[Key, dict[Stage, StageTiming]] = {}
    for row in _rows(history, "page_timings", run_ids, page=page):
        if (stage := stages.get(row["stage"])) is not None:
            calls = 1 if row["calls"] is None else int(row["calls"])
            of_page = found.setdefault((row["run_id"], row["backend"], row["page"]), {})
            of_page[stage] = StageTiming(stage, float(row["milliseconds"]), calls)
    return {key: tuple(of[stage] for stage in Stage if stage in of) for key, of in found.items()}
