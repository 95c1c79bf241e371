"""Archives of recorded runs, and profiles of other programs: damaged, foreign, swollen."""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path
from random import Random

from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths, read_runs
from dsocr_core.runs.importers.imported import RunFiles
from tests.hostile.damage import damaged
from tests.runs.importers import test_profiles as made_up
from tests.support.imported_files import rows_of
from tests.support.made_up_runs import timing, write_run

_NAMES = (
    "a.txt", "../out.txt", "/abs.txt", "..\\out.txt", "a/" * 500 + "b", "a/" * 20 + "run.json", "n" * 400,
    "é\n.json", "C:/x", "a/./b", "x", "run.json", "result.mmd", "summary.json", "x\0y", "\x1b[31m.png",
)  # fmt: skip


def archives(random: Random, folder: Path) -> str | None:
    """One archive, imported into a new history: nothing is written outside of it."""
    file = folder / "runs.zip"
    content = _archive(random, folder / "runs")
    file.write_bytes(damaged(random, content) if random.random() < 0.4 else content)
    with History(folder / "history") as history:
        taken = {run.run_id for run in import_paths(history, [file]).imported}
        if missing := taken - set(history.run_ids()):
            return f"reported as imported and not there: {sorted(missing)}"
    others = {path.name for path in folder.iterdir()} - {"runs", "runs.zip", "history"}
    return f"an archive wrote {sorted(others)}" if others else None


def _archive(random: Random, runs: Path) -> bytes:
    """Two runs, a file of which may be damaged or not there, and entries that lead elsewhere."""
    for run_id in ("run-0", "run-1"):
        write_run(runs, run_id, [timing("p", "decode", 7.5)])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in runs.rglob("*") if path.is_file() and random.random() < 0.9):
            content = path.read_bytes()
            content = damaged(random, content) if random.random() < 0.2 else content
            archive.writestr(str(path.relative_to(runs)), content)
        for _ in range(random.randint(0, 6)):
            entry = zipfile.ZipInfo(random.choice(_NAMES))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = random.choice((0, 0o100644, 0o120777, 0o010644, 0o040755)) << 16
            archive.writestr(entry, random.choice((b"", b"{}", b"[" * 10**4, b"/etc/passwd", bytes(10**6))))
    return buffer.getvalue()


def profiles(random: Random, folder: Path) -> str | None:
    """One profile, damaged: refused in a line, or its rows are sound."""
    content = random.choice(_profiles())
    if random.random() < 0.15:
        content = content.decode(errors="replace").encode("utf-16")
    file = folder / random.choice(("a.csv", "a.json", "a.txt", "a.sqlite", "a.nsys-rep", "é.jsonl"))
    file.write_bytes(damaged(random, content))
    for run in read_runs(RunFiles(file)) or ():
        rows_of(run)
    return None


@functools.cache
def _profiles() -> list[bytes]:
    """Tables, a database and a trace, as the tests of importers have them."""
    forms = [form for form, _ in made_up.FORMS.values()]
    texts = [made_up.TABLE, made_up.trace(), f"{made_up.NVTX}100.0,{made_up.DECODE}PushPop,:decode\n"]
    every = [*forms, *texts * 3, *[made_up.export()] * 4]
    return [each.encode() if isinstance(each, str) else each for each in every]
