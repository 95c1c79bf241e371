"""Zip archives and folders to import: bombs, names that lead out, deep trees, damaged and foreign runs."""

from __future__ import annotations

import functools
import io
import tempfile
import zipfile
from pathlib import Path
from random import Random

from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from tests.hostile import tables
from tests.hostile.damage import damaged

_NAMES = (
    "a.txt", "../out.txt", "/abs.txt", "..\\out.txt", "a/" * 500 + "b", "a/" * 20 + "run.json",
    "n" * 400, "é\n.json",
    "C:/x", "a/./b", "", "run.json", "result.mmd", "result_ori.mmd", "summary.json", "x\0y", "\x1b[31m.png",
)  # fmt: skip


def attempt(random: Random, folder: Path) -> str | None:
    """One archive, imported into a new history. Raises DsocrError when it is refused."""
    file = folder / "runs.zip"
    content = _archive(random)
    file.write_bytes(damaged(random, content) if random.random() < 0.4 else content)
    outside = folder / "outside"
    outside.mkdir()
    with History(folder / "history") as history:
        report = import_paths(history, [file])
        taken = {run.run_id for run in report.imported}
        if not taken <= set(history.run_ids()):
            return f"reported as imported and not there: {sorted(taken - set(history.run_ids()))}"
    strangers = {path.name for path in folder.iterdir()} - {"runs.zip", "history", "outside"}
    return f"an archive wrote {sorted(strangers)}" if strangers or any(outside.iterdir()) else None


@functools.cache
def _run_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as place:
        tables.write_runs(Path(place))
        return {
            str(path.relative_to(place)): path.read_bytes()
            for path in Path(place).rglob("*")
            if path.is_file()
        }


def _archive(random: Random) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _run_files().items():
            if name.endswith("SHA256SUMS") and random.random() < 0.3:
                continue  # a run of before there were checksums: what its tables say is read
            if random.random() < 0.9:
                if name.endswith(".parquet") and random.random() < 0.2:
                    archive.writestr(name, tables.with_other_columns(random, content))
                else:
                    archive.writestr(name, damaged(random, content) if random.random() < 0.15 else content)
        for _ in range(random.randint(0, 6)):
            entry = zipfile.ZipInfo(random.choice(_NAMES) or "x")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = random.choice((0, 0o100644, 0o120777, 0o010644, 0o040755)) << 16
            archive.writestr(entry, random.choice((b"", b"{}", b"[" * 10**4, b"/etc/passwd", bytes(10**6))))
    return buffer.getvalue()
