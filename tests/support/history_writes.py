"""What writes into a history, one function a job: done on the directory of a small history."""

from __future__ import annotations

from pathlib import Path

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.exporters import export_runs
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.storage.store import writing
from dsocr_core.runs.store import History
from dsocr_core.runs.writer import RunWriter
from tests.support.made_up_runs import record, timing

NEW = "run-new"


def fill(run: RunWriter, pages: int = 2) -> None:
    """Pages with texts and boxes, and a picture beside them."""
    for number in range(pages):
        page = f"page-{number}"
        row = {"page": page, "backend": "eager", "text_raw": "text " * 20}
        run.add("readings", [row | {"boxes": [{"number": 0, "text": "a box"}]}])
        run.add("stage_timings", [timing(page, "decode", 1.0 + number)])
    with writing(run.directory):
        (run.directory / "viz").mkdir()
        (run.directory / "viz" / "result.mmd").write_text("text " * 50)


def base(root: Path) -> None:
    """Two runs of a history, and a third in a zip."""
    for name in ("run-0", "run-1"):
        with RunWriter(root / "history", record(name, created=f"2026-01-0{int(name[-1]) + 1}")) as run:
            fill(run)
    with RunWriter(root / "elsewhere", record(NEW, created="2026-01-05")) as run:
        fill(run)
    with History(root / "elsewhere") as history:
        export_runs(history, [NEW], root / "new.zip")
    (root / "temporary").mkdir()


def write(root: Path) -> None:
    with RunWriter(root / "history", record(NEW, created="2026-01-05")) as run:
        fill(run)


def read_in(root: Path) -> None:
    """Import the zip."""
    with History(root / "history") as history:
        report = import_paths(history, [root / "new.zip"])
    if not report.imported and not report.known:
        raise DsocrError("; ".join(item.reason for item in report.skipped))


def export(root: Path) -> None:
    with History(root / "history") as history:
        export_runs(history, ["run-0", "run-1"], root / "exported")


def base_trashed(root: Path) -> None:
    """Four runs, of which two are in the trash."""
    base(root)
    write(root)
    with RunWriter(root / "history", record("run-2", created="2026-01-09")) as run:
        fill(run)
    with History(root / "history") as history:
        history.trash([NEW, "run-2"])


def delete(root: Path) -> None:
    with History(root / "history") as history:
        history.empty_trash()


def base_noted(root: Path) -> None:
    """Two runs with some notes."""
    base(root)
    with History(root / "history") as history:
        for number in range(3):
            history.note("run-0", f"note {number}")


def annotate(root: Path) -> None:
    with History(root / "history") as history:
        history.annotate_all("run-1", "verdict", [("page-0", "a", "good"), ("page-1", "b", "bad")])
