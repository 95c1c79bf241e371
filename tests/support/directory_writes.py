"""What writes into a run directory, one function a job."""

from __future__ import annotations

import hashlib
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


def base(root: Path) -> None:
    """Two pictures, and nothing read."""
    root.mkdir(exist_ok=True)
    for number, name in enumerate(PAGES):
        Image.new("RGB", (64, 48), (number, 0, 0)).save(root / name)


def base_read(root: Path) -> None:
    """Both pages read."""
    base(root)
    read(root)


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


def _read(root: Path, text: str, names: tuple[str, ...]) -> None:
    with opened(root) as directory:
        done = {source for _, source, key in directory.done() if key == f"key-{text}"}
        for name in names:
            if name not in done:
                read_into(directory, root, text, name)


def read(root: Path) -> None:
    _read(root, "first", PAGES)


def read_again(root: Path) -> None:
    """One of the pages with other settings."""
    _read(root, "second", PAGES[:1])
