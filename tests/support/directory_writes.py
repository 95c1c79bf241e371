"""What writes into a run directory and into the result cache, one function a job."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from dsocr_core.outputs.artifacts import RunDirectory
from dsocr_core.outputs.clean import clean_page
from dsocr_core.outputs.result_store import RecordedResult, ResultStore
from dsocr_core.run.lock import writing_into
from tests.support.results import make_result

PAGES = ("a.png", "b.png")


def base(root: Path) -> None:
    """Two pictures, and nothing read."""
    (root / "temporary").mkdir()
    for number, name in enumerate(PAGES):
        Image.new("RGB", (64, 48), (number, 0, 0)).save(root / name)


def base_read(root: Path) -> None:
    """Both pages read."""
    base(root)
    read(root)


def _read(root: Path, text: str, names: tuple[str, ...]) -> None:
    with writing_into(root / "out"):
        directory = RunDirectory(root / "out", {"id": f"run-{text}", "notes": None})
        directory.repair(["eager"])
        for name in names:
            result = make_result(f"<|ref|>{text}<|/ref|><|det|>[[1, 1, 500, 500]]<|/det|>", image=root / name)
            page = Image.open(root / name)
            directory.add(result, page, f"key-{text}", clean_page(result.request, page))
        directory.note("cancelled")


def read(root: Path) -> None:
    _read(root, "first", PAGES)


def read_again(root: Path) -> None:
    """One of the pages with other settings."""
    _read(root, "second", PAGES[:1])


def fail_again(root: Path) -> None:
    """A page that was read before cannot be read."""
    with writing_into(root / "out"):
        directory = RunDirectory(root / "out", {"id": "run-failed"})
        directory.repair(["eager"])
        directory.add_failure("eager", PAGES[0], root / PAGES[0], "damaged")


def cache(root: Path) -> None:
    store = ResultStore(root / "out")
    store.save("key", RecordedResult(make_result("first", image=Path("a.png")), "2026-01-02"))
    store.save("key", RecordedResult(make_result("second", image=Path("a.png")), "2026-01-02"))
