"""Names of runs, pages and kernels in lists and charts: short, unlike one another, as far as recorded."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import pandas as pd

from dsocr_core.base.words import plural

H = TypeVar("H", bound=Hashable)


def has_value(value: object) -> bool:
    """Tell whether a cell holds something: null comes as None, NaN, NaT or NA."""
    return value is not None and not (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def short(text: str, most: int = 60) -> str:
    """One line of at most so many characters; the middle goes, as both ends tell names apart."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    if len(line) <= most:
        return line
    head = (most - 1) * 2 // 3
    return f"{line[:head]}…{line[len(line) - (most - 1 - head) :]}"


def unlike(labels: Mapping[H, str]) -> dict[H, str]:
    """The same labels, numbered where two are equal: a select box tells its options by their labels."""
    used: dict[str, int] = {}
    made = {}
    for name, label in labels.items():
        used[label] = used.get(label, 0) + 1
        made[name] = label if used[label] == 1 else f"{label} ({used[label]})"
    return made


def short_names(names: Iterable[str], most: int = 60) -> dict[str, str]:
    return unlike({name: short(name, most) for name in dict.fromkeys(names)})


def moment(created: pd.Timestamp) -> str:
    return f"{created:%Y-%m-%d %H:%M}"


_BRIEF = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "flash_attention_2": "flash"}


CONDITION = ("gpu", "device", "engine", "dtype", "attention", "preset")
"""Columns of a run that its condition is made of."""


def condition(run: Mapping[str, object]) -> str:
    """Conditions of a run's times, under which alone they may be compared: GPU, engine, dtype, attention and
    preset, as far as recorded."""
    return ", ".join(_conditions(run)) or "unknown conditions"


def _conditions(run: Mapping[str, object]) -> list[str]:
    gpu = run.get("gpu") if has_value(run.get("gpu")) else run.get("device")
    values = (gpu, *(run.get(name) for name in CONDITION[2:]))
    return [
        short(_BRIEF.get(str(value), str(value)).removeprefix("NVIDIA "), 24)
        for value in values
        if has_value(value)
    ]


def run_labels(runs: pd.DataFrame) -> dict[str, str]:
    """One line a run, for select boxes: under what, how many pages, the end of its id, and when.

    What all have alike is left out, so that what differs comes first.
    """
    rows = runs.to_dict("records")
    conditions = [_conditions(run) for run in rows]
    alike = set.intersection(*map(set, conditions)) if len(rows) > 1 else set()
    labels = {}
    for run, words in zip(rows, conditions, strict=True):
        pages = [plural(int(run["pages"]), "page")] if has_value(run.get("pages")) else []
        flags = [word for word in ("profiled", "contended", "trashed") if run.get(word)]
        run_id = str(run["run_id"])
        own = ", ".join([*(word for word in words if word not in alike), *pages, *flags])
        parts = (own, run_id[-8:], moment(run["created"]))
        labels[run_id] = " · ".join(filter(None, parts))
    return unlike(labels)


def chart_names(runs: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """Two lines a run, for the rows of charts: when and which, under what."""
    return {
        str(run["run_id"]): (f"{run['created']:%m-%d %H:%M} {str(run['run_id'])[-8:]}", condition(run))
        for run in runs.to_dict("records")
    }
