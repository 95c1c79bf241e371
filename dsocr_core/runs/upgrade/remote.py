"""A history in an object store taken over: each run is fetched, taken over here and put in its place.

The earlier one lies under `earlier/` until all are there; a call that was stopped puts back what lies nowhere
else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec

from dsocr_core.base.errors import one_line
from dsocr_core.base.temporary import Temporary
from dsocr_core.runs.record import read_document
from dsocr_core.runs.schema import SCHEMA_VERSION
from dsocr_core.runs.storage.store import StorageError
from dsocr_core.runs.upgrade.upgrade import EARLIER, Upgraded, upgrade


def upgrade_url(url: str) -> Upgraded:
    """Take over every run of a history by its URL. Raises StorageError."""
    try:
        store, base = fsspec.core.url_to_fs(url.rstrip("/"), use_listings_cache=False)
        done = Upgraded()
        for run in _names(store, f"{base}/{EARLIER}/runs"):
            if not store.exists(f"{base}/runs/{run}/run.json"):
                if store.exists(f"{base}/runs/{run}"):  # what was put there of the new one
                    store.rm(f"{base}/runs/{run}", recursive=True)
                _move(store, f"{base}/{EARLIER}/runs/{run}", f"{base}/runs/{run}", "run.json")
        for kind, document in (("runs", "run.json"), ("packs", "pack.json")):
            for name in _names(store, f"{base}/{kind}"):
                _take(store, base, f"{kind}/{name}", document, done)
        if store.exists(f"{base}/{EARLIER}"):
            store.rm(f"{base}/{EARLIER}", recursive=True)
    except (OSError, ValueError, ImportError) as error:
        raise StorageError(f"{url}: could not be taken over ({one_line(error, 200)})") from error
    return done


def _names(store: Any, folder: str) -> list[str]:
    if not store.exists(folder):
        return []
    return sorted(str(path).rstrip("/").rpartition("/")[2] for path in store.ls(folder, detail=False))


def _take(store: Any, base: str, entry: str, document: str, done: Upgraded) -> None:
    """One run or pack: what it becomes is put up before anything of it goes."""
    if not store.exists(f"{base}/{entry}/{document}"):
        return
    version = read_document(store.cat_file(f"{base}/{entry}/{document}")).get("schema_version")
    if version == SCHEMA_VERSION and document == "run.json":
        return
    with Temporary("upgrade") as name:
        local = Path(name) / "history"
        store.get(f"{base}/{entry}", str(local / entry), recursive=True)
        found = upgrade(local)
        done.failed |= found.failed
        if found.failed:
            return
        _move(store, f"{base}/{entry}", f"{base}/{EARLIER}/{entry}", document)
        for run in sorted((local / "runs").iterdir()):
            files = sorted(path for path in run.rglob("*") if path.is_file())
            for file in sorted(files, key=lambda file: file.name == "run.json"):  # which makes it one, last
                store.put_file(str(file), f"{base}/runs/{run.name}/{file.relative_to(run).as_posix()}")
            done.runs += 1


def _move(store: Any, source: str, target: str, document: str) -> None:
    """Copy a folder, its document last; then take it away, its document first."""
    files = sorted(store.find(source), key=lambda file: file.rpartition("/")[2] == document)
    for file in files:
        store.copy(file, f"{target}{file.removeprefix(source)}")
    for file in reversed(files):
        store.rm_file(file)
    if store.exists(source):  # where a folder is more than its files
        store.rm(source, recursive=True)
