"""Pages read into a run directory, without an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from PIL import Image

from dsocr_core.backends.backend import Opening
from dsocr_core.read.loop import PageOutcome
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.prefetch import PageToRead
from dsocr_core.read.run import RunWriter
from dsocr_core.read.session import Session, Sides
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrRequest, PageFile
from dsocr_core.runs.record import Recording
from dsocr_core.settings import Settings
from tests.support.results import make_result

PAGES = ("a.png", "b.png")


def opened(root: Path) -> AbstractContextManager[RunWriter]:
    session = Session(Settings(device="cpu"), Opening(root / "results"))
    recording = Recording(session.settings, out=root / "out", save=False)
    return RunWriter(Sides([session], compared=False), RunPlan((), root / "out"), [recording]).opened()


def read_into(directory: RunWriter, root: Path, text: str, name: str) -> None:
    """A page as a backend would have read it."""
    file = PageFile(1, hashlib.sha256(name.encode()).hexdigest())
    request = OcrRequest(root / name, "tiny", source=name, file=file)
    result = make_result(f"<|ref|>{text}<|/ref|><|det|>[[1, 1, 500, 500]]<|/det|>", image=root / name)
    page = PageToRead(name, request, {"eager": f"key-{text}"})
    directory.add(PageOutcome(page, (Comparison(request, result),)))


def read(root: Path, text: str = "first", names: Sequence[str] = PAGES) -> None:
    """Pictures, each read unless it was; another text is that of other settings."""
    root.mkdir(exist_ok=True)
    with opened(root) as directory:
        done = {source for _, source, key in directory.done() if key == f"key-{text}"}
        for number, name in enumerate(names):
            Image.new("RGB", (64, 48), (number, 0, 0)).save(root / name)
            if name not in done:
                read_into(directory, root, text, name)
