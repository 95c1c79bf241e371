"""Answers of servers without sense, and addresses that lead elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

from dsocr_core.backends.exchange import answer_of, document
from dsocr_core.base.sanitise import name_text, text_name, visible
from dsocr_core.page.documents import expand, load_image
from dsocr_core.runs.history import History
from tests.hostile.damage import VALUES, damaged

_ENDS = ("stop", "", "null", None, "abort", {"type": "length"}, 3, [], "\ud800")
_PARTS = (
    "..", ".", "~", "~nosuchuser", "a", "run-0", "run.json", "images.parquet", "/", "//", "\\", "\0", "\n",
    "\x1b[2J", "é", "\udcff", "%2e%2e", "x" * 300, "/etc", "passwd", "/dev/zero", "/dev/full",
    "/proc/self/mem", "{}", "'", "*", "", "file://", "-", "--out", "?", "#",
)  # fmt: skip


def answers(random: Random, folder: Path) -> str | None:
    """One answer. Raises DsocrError when it is refused."""
    choice = {"message": {random.choice(("content", "thinking")): random.choice(VALUES)}}
    choice |= {"finish_reason": random.choice(_ENDS), "token_ids": random.choice(VALUES)}
    choices = random.choice(([choice], [choice], None, [], [None], {}))
    data = {"choices": choices, "usage": random.choice(VALUES)}
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
    match random.randrange(20):
        case 0:
            with History(folder) as history:
                found = history.directory(text)
            if not found.resolve().is_relative_to(folder.resolve()):
                return f"run {text!r} leads to {found}"
        case 1:
            os.mkfifo(folder / "pipe")
            load_image(folder / "pipe", 10**6)
        case number if number % 2:
            load_image(Path(text), 10**6)
        case _:
            expand([Path(text)], random.choice((None, "1", text)), folder, 72, 10**6)
    return None
