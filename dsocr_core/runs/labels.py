"""Names of runs, pages and kernels in lists and charts: short, unlike one another, as far as recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TypeVar

import pandas as pd

from dsocr_core.base.formatting import plural, shortened
from dsocr_core.reading.records import VENDOR_TOKEN_CEILING
from dsocr_core.runs.record import RunRecord

H = TypeVar("H", bound=Hashable)
PUBLISHED = "as published"
"""Policy of a run whose settings are all those of the published code."""


def has_value(value: object) -> bool:
    """Tell whether a cell holds something: null comes as None, NaN, NaT or NA."""
    return value is not None and not (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def short(text: str, most: int = 60) -> str:
    """One line of at most so many characters, shortened in the middle."""
    return shortened(" ".join("".join(sign if sign.isprintable() else " " for sign in text).split()), most)


def unlike(labels: Mapping[H, str]) -> dict[H, str]:
    """The same labels, numbered where two are equal: a select box tells its options by their labels."""
    used: Counter[str] = Counter()
    made = {}
    for name, label in labels.items():
        used[label] += 1
        made[name] = label if used[label] == 1 else f"{label} ({used[label]})"
    return made


def short_names(names: Iterable[str], most: int = 60) -> dict[str, str]:
    return unlike({name: short(name, most) for name in dict.fromkeys(names)})


def moment(created: pd.Timestamp) -> str:
    return f"{created:%Y-%m-%d %H:%M}"


BRIEF = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "flash_attention_2": "flash"}


CONDITION = ("gpu", "device", "engine", "dtype", "attention", "preset")
"""Columns of a run that its condition is made of."""


def condition(run: Mapping[str, object]) -> str:
    """Conditions under which alone a run's times may be compared, as far as they are recorded: CONDITION."""
    return ", ".join(_conditions(run)) or "unknown conditions"


def _conditions(run: Mapping[str, object], without: Sequence[str] = ()) -> list[str]:
    names = [name for name in CONDITION if name not in without and has_value(run.get(name))]
    if "gpu" in names and "device" in names:
        names.remove("device")
    words = (BRIEF.get(str(run[name]), str(run[name])).removeprefix("NVIDIA ") for name in names)
    return [short(word, 24) for word in words]


_FIRST = 2
"""Words of a run before its id."""


_DEVIATIONS = {"no_repeat_ngram_size": "n-gram {}", "max_new_tokens": "{} tokens", "draft": "draft {}"}


def _deviations(run: Mapping[str, object]) -> list[str]:
    """Settings that are not as published, the draft and the model, as far as a run has them."""
    policy = str(run["policy"]) if has_value(run.get("policy")) else PUBLISHED
    own = [] if policy == PUBLISHED else policy.replace("_", " ").split(", ")
    for name, words in _DEVIATIONS.items():
        if has_value(run.get(name)) and str(run[name]) != str(VENDOR_TOKEN_CEILING):
            own.append(words.format(run[name]))
    return [short(word, 32) for word in (*own, *model_name(run))]


def model_name(run: Mapping[str, object]) -> list[str]:
    """The name of a run's checkpoint, its folder; empty where none is recorded."""
    path = PurePath(str(run["checkpoint"]) if has_value(run.get("checkpoint")) else "")
    return [name] if (name := (path.parent if path.suffix == ".json" else path).name) else []


def run_labels(runs: pd.DataFrame) -> dict[str, str]:
    """One line a run, for select boxes: in what it is rare, its pages, the end of its id, the rest, when.

    What fewest runs have comes first, and what all have alike is left out: "n-gram 6 · 3 pages · fcdfed67".
    """
    rows = runs.to_dict("records")
    conditions = [[*_deviations(run), *_conditions(run)] for run in rows]
    count = Counter(word for words in conditions for word in set(words))
    labels = {}
    for run, words in zip(rows, conditions, strict=True):
        pages = [plural(int(run["pages"]), "page")] if has_value(run.get("pages")) else []
        flags = [word for word in ("profiled", "contended", "trashed") if run.get(word)]
        run_id = str(run["run_id"])
        own = [word for word in words if len(rows) == 1 or count[word] < len(rows)]
        own.sort(key=count.__getitem__)
        first, rest = ", ".join([*flags, *own[:_FIRST]]), ", ".join(own[_FIRST:])
        parts = (first, *pages, run_id[-8:], rest, moment(run["created"]))
        labels[run_id] = " · ".join(filter(None, parts))
    return unlike(labels)


def apart(names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Tell what several conditions have in common, and each without that."""
    parts = {name: name.split(", ") for name in names}
    common = set.intersection(*map(set, parts.values())) if len(parts) > 1 else set()
    own = {
        name: ", ".join(word for word in words if word not in common) or name for name, words in parts.items()
    }
    return ", ".join(word for word in next(iter(parts.values()), []) if word in common), own


def chart_names(runs: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """Two lines a run, for the rows of charts: when and which, under what.

    Engine, dtype and attention of a run with several backends are those of one of them, and left out.
    """
    names = {}
    for run in runs.to_dict("records"):
        several = has_value(run.get("backends")) and len(run["backends"]) > 1
        words = ", ".join(_conditions(run, ("engine", "dtype", "attention") if several else ()))
        when = f"{run['created']:%m-%d %H:%M} {str(run['run_id'])[-8:]}"
        names[str(run["run_id"])] = (when, words or "unknown conditions")
    return names


def checkout_words(record: RunRecord) -> str:
    """The code that made the run."""
    if record.git_commit is None:
        return "Its commit is not known."
    changed = {True: ", with changes that were not committed", False: "", None: ", perhaps with changes"}
    return f"Made at commit {record.git_commit}{changed[record.git_dirty]}."
