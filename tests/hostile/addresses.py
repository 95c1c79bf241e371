"""Paths, run ids and names that lead elsewhere, are no files, or are too long for the system."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from random import Random

from dsocr_core.base.sanitise import name_text, text_name, visible
from dsocr_core.page.documents import expand, load_image
from dsocr_core.runs.history import History
from tests.hostile import tables

_PARTS = (
    "..", ".", "~", "~nosuchuser", "a", "run-0", "run.json", "images.parquet", "/", "//", "\\",
    "\0", "\n", "\x1b[2J",
    "é", "\udcff", "%2e%2e", "x" * 300, "/etc", "passwd", "/dev/zero", "/dev/full",
    "/proc/self/mem", "{}", "'", "*", "",
    "file://", "-", "--out", "?", "#",
)  # fmt: skip


def attempt(random: Random, folder: Path) -> str | None:
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
        return _of_a_run(random, text)
    return None


def _of_a_run(random: Random, text: str) -> str | None:
    history, root = _history()
    run = random.choice((text, "run-0"))
    found = history.file(run, text if run == "run-0" else "run.json")
    if not found.resolve().is_relative_to(root.resolve()):
        return f"file {text!r} of run {run!r} leads to {found}"
    return None


@functools.cache
def _history() -> tuple[History, Path]:
    place = Path(tempfile.mkdtemp(prefix="dsocr-hostile-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    root = place / "history"
    tables.write_runs(root)
    return History(root), root
