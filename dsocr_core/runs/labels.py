"""Names of runs, stages and pages in lists and charts: short, unlike one another, as far as recorded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from pathlib import PurePath
from typing import Any, TypeVar

import pandas as pd

from dsocr_core.base.formatting import plural, shortened
from dsocr_core.models.stages import INSIDE_PREFILL, Stage
from dsocr_core.reading.records import VENDOR, VENDOR_TOKEN_CEILING

H = TypeVar("H", bound=Hashable)
Run = Mapping[str, Any]
"""A row of the query `runs`."""


def has_value(value: object) -> bool:
    """Tell whether a cell holds something: null comes as None, NaN, NaT or NA."""
    return value is not None and not (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def short(text: str, most: int = 60) -> str:
    """One line of at most `most` characters, shortened in the middle."""
    return shortened(" ".join("".join(sign if sign.isprintable() else " " for sign in text).split()), most)


def distinct(labels: Mapping[H, str]) -> dict[H, str]:
    """Number labels that are equal: a select box tells its options by their labels."""
    used: Counter[str] = Counter()
    made = {}
    for name, label in labels.items():
        used[label] += 1
        made[name] = label if used[label] == 1 else f"{label} ({used[label]})"
    return made


def short_names(names: Iterable[str], most: int = 60) -> dict[str, str]:
    """Names cut to about `most` characters that still differ, by name."""
    return distinct({name: short(name, most) for name in dict.fromkeys(names)})


# --- stages ---------------------------------------------------------------------------------------

VISION = "vision"
"""All of vision in one, as other programs time it."""
WHOLE = "whole page"
"""The stages that follow one another, summed page by page."""


def in_order(stages: Iterable[str]) -> list[str]:
    """Stages as they run; foreign names after them, the whole page last."""
    before = (Stage.PREPROCESS, Stage.TOKENIZER, VISION, *INSIDE_PREFILL, Stage.PREFILL, Stage.DECODE)
    order = {str(stage): place for place, stage in enumerate((*before, Stage.POSTPROCESS))}
    last = len(order)
    return sorted({*map(str, stages)}, key=lambda stage: (order.get(stage, last + (stage == WHOLE)), stage))


# --- runs -----------------------------------------------------------------------------------------

PUBLISHED = "as published"
"""Policy of a run whose settings are all those of the published code."""
_NO_CARD = "device not known"
_BRIEF = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "flash_attention_2": "flash"}
_DEVIATIONS = {"no_repeat_ngram_size": "n-gram {}", "max_new_tokens": "{} tokens", "draft": "draft {}"}
_TOGETHER = re.compile(r", (\d+) pages together$")


def pages_together(engine: str | None) -> int:
    """Count the pages that a run's engine reads at a time."""
    return int(found[1]) if (found := _TOGETHER.search(engine or "")) else 1


def _brief(run: Run, name: str) -> str:
    """A column's value in short; empty where none is recorded."""
    words = str(run[name]) if has_value(run.get(name)) else ""
    return short(_BRIEF.get(words, words).removeprefix("NVIDIA ").removeprefix("GeForce "), 24)


def _deviations(run: Run) -> str:
    """Settings that are not as published, and the draft, as far as a run has them."""
    policy = str(run["policy"]) if has_value(run.get("policy")) else PUBLISHED
    own = [] if policy == PUBLISHED else policy.replace("_", " ").split(", ")
    for name, words in _DEVIATIONS.items():
        if has_value(run.get(name)) and str(run[name]) != str(VENDOR_TOKEN_CEILING):
            own.append(words.format(run[name]))
    return ", ".join(short(word, 32) for word in own)


def model_name(run: Run) -> str:
    """The name of a run's checkpoint, its folder; empty where none is recorded."""
    path = PurePath(str(run["checkpoint"]) if has_value(run.get("checkpoint")) else "")
    return short((path.parent if path.suffix == ".json" else path).name, 32)


def run_labels(runs: pd.DataFrame) -> dict[str, str]:
    """One line a run, for select boxes: its setting, pages, the end of its id, when."""
    rows = runs.to_dict("records")
    names, labels = setting_names(map(setting, rows)), {}
    for run in rows:
        words = [word for word in ("profiled", "contended", "trashed") if run.get(word)]
        pages = plural(int(run["pages"]), "page") if has_value(run.get("pages")) else ""
        what = ", ".join([*words, names[setting(run)]])
        parts = (what, pages, str(run["run_id"])[-8:], f"{run['created']:%Y-%m-%d %H:%M}")
        labels[str(run["run_id"])] = " · ".join(filter(None, parts))
    return distinct(labels)


def engine_name(run: Run, backend: str = "") -> str:
    """The name of what read a run's pages, or of one backend: "fast ×256", "eager vs published code"."""
    backends = list(run["backends"]) if has_value(run.get("backends")) else []
    if not backend and len(backends) > 1:
        return " vs ".join(engine_name(run, each) for each in backends)
    backend = backend or next(iter(backends), "")
    if backend == VENDOR:
        return "published code"
    engine = _TOGETHER.sub(r" ×\1", str(run["engine"])) if has_value(run.get("engine")) else ""
    source = run.get("source") or "dsocr"
    unknown = "engine not known" if source == "dsocr" else f"import of {source}"
    return short(engine if engine and engine.startswith(backend) else backend or unknown, 40)


def card_name(run: Run) -> str:
    """The card, else the device, that a run ran on: "H200", "cpu"."""
    return _brief(run, "gpu") or _brief(run, "device") or _NO_CARD


def setting(run: Run, backend: str = "") -> tuple[str, ...]:
    """Facts that the times of a run, or of one of its backends, depend on: engine and card, then the others.

    Preset, model, dtype, attention and deviations from the published settings; "" where one is not recorded,
    as of a second backend, whose dtype and attention the run does not have.
    """
    several = has_value(run.get("backends")) and len(run["backends"]) > 1
    own = not several or str(run.get("engine")).startswith(backend or "\0")
    model = model_name(run).replace("random:published", "random weights")
    name = f"{engine_name(run, backend)} on {card_name(run)}".removesuffix(f" on {_NO_CARD}")
    how = _brief(run, "dtype") * own, _brief(run, "attention") * own, _deviations(run)
    return name, _brief(run, "preset"), model, *how


def setting_names(settings: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A name for each setting: engine and card, and of the rest what tells it from others of that name."""
    names = {each: each[0] for each in settings}
    for place in range(1, max(map(len, names), default=0)):
        alike: dict[str, set[str]] = {}
        for each, name in names.items():
            alike.setdefault(name, set()).add(each[place])
        for each, name in names.items():
            names[each] = f"{name}, {each[place]}" if len(alike[name]) > 1 and each[place] else name
    return names
