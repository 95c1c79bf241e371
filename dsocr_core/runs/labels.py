"""Names of runs, pages and kernels in lists and charts: short, unlike one another, as far as recorded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from pathlib import PurePath
from typing import TypeVar

import pandas as pd

from dsocr_core.base.formatting import plural, shortened
from dsocr_core.reading.records import VENDOR, VENDOR_TOKEN_CEILING
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


def _conditions(run: Mapping[str, object]) -> list[str]:
    names = [name for name in CONDITION if has_value(run.get(name))]
    if "gpu" in names and "device" in names:
        names.remove("device")
    words = (BRIEF.get(str(run[name]), str(run[name])).removeprefix("NVIDIA ") for name in names)
    return [short(word, 24) for word in words]


_FIRST = 2
"""Words of a run before its id."""


_DEVIATIONS = {"no_repeat_ngram_size": "n-gram {}", "max_new_tokens": "{} tokens", "draft": "draft {}"}


def _deviations(run: Mapping[str, object], with_model: bool = True) -> list[str]:
    """Settings that are not as published, the draft and the model, as far as a run has them."""
    policy = str(run["policy"]) if has_value(run.get("policy")) else PUBLISHED
    own = [] if policy == PUBLISHED else policy.replace("_", " ").split(", ")
    for name, words in _DEVIATIONS.items():
        if has_value(run.get(name)) and str(run[name]) != str(VENDOR_TOKEN_CEILING):
            own.append(words.format(run[name]))
    return [short(word, 32) for word in (*own, *(model_name(run) if with_model else ()))]


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


_TOGETHER = re.compile(r", (\d+) pages together$")


def engine_name(run: Mapping[str, object], backend: str = "") -> str:
    """The name of what read a run's pages, or of one backend: "fast ×256", "eager vs published code"."""
    backends = list(run["backends"]) if has_value(run.get("backends")) else []  # type: ignore[call-overload]
    if not backend and len(backends) > 1:
        return " vs ".join(engine_name(run, each) for each in backends)
    backend = backend or next(iter(backends), "")
    if backend == VENDOR:
        return "published code"
    engine = _TOGETHER.sub(r" ×\1", str(run["engine"])) if has_value(run.get("engine")) else ""
    return short(engine if engine and engine.startswith(backend) else backend or "engine not known", 40)


def card_name(run: Mapping[str, object]) -> str:
    """The card, else the device, that a run ran on: "H200", "cpu"."""
    found = next((run[name] for name in ("gpu", "device") if has_value(run.get(name))), "device not known")
    return short(str(found).removeprefix("NVIDIA ").removeprefix("GeForce "), 24)


def setting(run: Mapping[str, object], backend: str = "") -> tuple[str, ...]:
    """Facts that the times of a run, or of one of its backends, depend on: engine and card, then the others.

    Preset, model, dtype, attention and deviations from the published settings; "" where one is not recorded,
    as of a backend beside the one whose dtype and attention the run has.
    """
    own = not (has_value(run.get("backends")) and len(run["backends"]) > 1) or str(  # type: ignore[arg-type]
        run.get("engine")
    ).startswith(backend or "\0")
    words = {
        name: short(BRIEF.get(str(run[name]), str(run[name])), 24) if has_value(run.get(name)) else ""
        for name in ("preset", "dtype", "attention")
    }
    model = next(iter(model_name(run)), "").replace("random:published", "random weights")
    return (
        f"{engine_name(run, backend)} on {card_name(run)}", words["preset"], model, words["dtype"] * own,
        words["attention"] * own, ", ".join(_deviations(run, with_model=False)),
    )  # fmt: skip


def setting_names(settings: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A name for each setting: engine and card, and of the rest what tells it from others of that name."""
    there = list(dict.fromkeys(settings))
    names = {each: each[0] for each in there}
    for place in range(1, max(map(len, there), default=0)):
        alike: dict[str, set[str]] = {}
        for each, name in names.items():
            alike.setdefault(name, set()).add(each[place])
        names = {
            each: f"{name}, {each[place]}" if len(alike[name]) > 1 and each[place] else name
            for each, name in names.items()
        }
    return names


def checkout_words(record: RunRecord) -> str:
    """The code that made the run."""
    if record.git_commit is None:
        return "Its commit is not known."
    changed = {True: ", with changes that were not committed", False: "", None: ", perhaps with changes"}
    return f"Made at commit {record.git_commit}{changed[record.git_dirty]}."
