"""Texts of a model, answers of servers without sense, and addresses that lead elsewhere."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from dsocr_core.backends.exchange import answer_of, document
from dsocr_core.base.sanitise import name_text, text_name, visible
from dsocr_core.page.documents import expand, load_image
from dsocr_core.reading.markup import page_boxes, parse
from dsocr_core.reading.postprocess import clean_text, result_mmd
from dsocr_core.runs.history import History
from tests.hostile import runs
from tests.hostile.damage import damaged

_PIECES = (
    "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "title", "image", "[[1, 2, 3, 4]]", "[[", "]]", "[", ", ",
    "999", "1e999", "-1e308", "NaN", "Infinity", "9" * 400, "0x10", "None", "true", "__import__('os')", "\0",
    "\ud800", "\u202e", "<script>alert(1)</script>", "[a](javascript:alert(1))", "\\(", "\\]", "|---|", "\n",
    "<｜end▁of▁sentence｜>", "{" * 50, "[" * 300, "(" * 300, "'", '"', "text\n",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e400, 10**30, "", "\ud800", "a\0b", "x" * 20_000, [], {}, [[]], {"\udfff": 1}, [None],
    {"ngram_size": "\ud800"}, {"whitelist_token_ids": [2**40]}, {"type": "text"}, ["\ud83d"],
)  # fmt: skip
_ENDS = ("stop", "", "null", None, "abort", {"type": "length"}, 3, [], "\ud800")
_PARTS = (
    "..", ".", "~", "~nosuchuser", "a", "run-0", "run.json", "images.parquet", "/", "//", "\\", "\0", "\n",
    "\x1b[2J", "é", "\udcff", "%2e%2e", "x" * 300, "/etc", "passwd", "/dev/zero", "/dev/full",
    "/proc/self/mem", "{}", "'", "*", "", "file://", "-", "--out", "?", "#",
)  # fmt: skip


def markup(random: Random, folder: Path) -> str | None:
    """One text, parsed into spans, boxes and plain text: all of it has an answer."""
    text = "".join(random.choices(_PIECES, k=random.choice((1, 5, 40, 400))))
    if random.random() < 0.02:
        text *= 100
    width, height = random.choices((1, 2, 640, 9999), k=2)
    boxes = page_boxes(parse(text), (width, height))
    result_mmd(text)
    parse(clean_text(text))
    for box in boxes:
        if not all(-1e12 < float(side) < 1e12 for side in (box.x1, box.y1, box.x2, box.y2)):
            return f"a box of {box} on a page of {width} x {height}"
    return None


def answers(random: Random, folder: Path) -> str | None:
    """One answer. Raises DsocrError when it is refused."""
    choice = {"message": {random.choice(("content", "thinking")): random.choice(_VALUES)}}
    choice |= {"finish_reason": random.choice(_ENDS), "token_ids": random.choice(_VALUES)}
    choices = random.choice(([choice], [choice], None, [], [None], {}))
    data = {"choices": choices, "usage": random.choice(_VALUES)}
    if random.random() < 0.2:  # Ollama's own form
        data = {"message": choice["message"], "done_reason": choice["finish_reason"], **data}
    answer_of(document(damaged(random, json.dumps(data).encode())))
    return None


def addresses(random: Random, folder: Path) -> str | None:
    """One address, asked of everything that takes one. Raises DsocrError when it is refused."""
    text = random.choice(("", "/")).join(random.choices(_PARTS, k=random.randint(1, 6)))
    if not visible(text).replace("\n", "").isprintable():
        return f"{text!r} steers a terminal"
    if text_name(name_text(text)) != text:
        return f"{text!r} does not come back from its stored name"
    kind = random.randrange(3)
    if kind == 0:
        path = folder / "pipe"
        os.mkfifo(path)
        load_image(path if random.random() < 0.2 else Path(text), 10**6)
    elif kind == 1:
        expand([Path(text)], random.choice((None, "1", text)), folder, 72, 10**6)
    else:
        history, root = _history()
        found = history.directory(text)
        if not found.resolve().is_relative_to(root.resolve()):
            return f"run {text!r} leads to {found}"
    return None


@functools.cache
def _history() -> tuple[History, Path]:
    place = Path(tempfile.mkdtemp(prefix="dsocr-hostile-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    runs.write_runs(place / "history")
    return History(place / "history"), place / "history"
