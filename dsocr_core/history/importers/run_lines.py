"""The lines of a run directory's `predictions.jsonl`, and its files as an importer reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsocr_core.history.importers.gallery import PAGE_LIMIT, page_names
from dsocr_core.history.importers.imported import Skipped
from dsocr_core.history.importers.reading import TEXT_LIMIT, as_json, as_text, has_link, mapping, text_or_none
from dsocr_core.history.storage.entries import is_entry_name
from dsocr_core.outputs.artifacts import BACKENDS, PREDICTIONS, folder_key
from dsocr_core.outside.untrusted import Refused, read_bytes
from dsocr_core.outside.visible import text_name
from dsocr_core.records import VENDOR, BackendName, backend_of

ROOTS = ("", f"{VENDOR}/")
"""Where the files of the first backend and those of the vendor lie in the directory."""

MOST_BACKENDS = 64

_PREDICTIONS_LIMIT = 512 * 1024 * 1024


@dataclass(frozen=True)
class Line:
    """One reading, or why there is none."""

    backend: BackendName
    run: str | None
    image: str
    source: str
    data: dict[str, Any]
    root: str = ""
    """Where the backend's files lie, one of `roots_of`."""

    @property
    def folder(self) -> str:
        """The page's folder, by its place in the run directory and in the history."""
        return f"{self.root}viz/{folder_key(text_name(self.image))}"


@dataclass
class Files:
    """The files of one directory that were taken, or named with a reason."""

    directory: Path
    skipped: list[Skipped] = field(default_factory=list)
    looked_at: set[Path] = field(default_factory=set)

    def read(self, place: str, limit: int) -> bytes | None:
        """A file's content; None where there is none, or where it is not taken."""
        file = self.directory / place
        if not (file.is_file() or file.is_symlink()) or has_link(self.directory, place):
            return None
        self.looked_at.add(file)
        try:
            return read_bytes(file, limit)
        except Refused as error:
            self.skip(file, str(error))
            return None

    def skip(self, file: Path, reason: str) -> None:
        self.looked_at.add(file)
        self.skipped.append(Skipped(file, reason))


def roots_of(directory: Path) -> tuple[str, ...]:
    """Where backends' files lie in a run directory: the first one's, the vendor's, those of any others."""
    folder = directory / BACKENDS
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        names = []
    names = [name for name in names if is_entry_name(name)][:MOST_BACKENDS]
    return *ROOTS, *(f"{BACKENDS}/{name}/" for name in names)


def lines_of(files: Files) -> Iterator[Line]:
    """Every line that can be taken, our engine's first; the others are named in `files.skipped`."""
    taken = 0
    for place in roots_of(files.directory):
        content = files.read(f"{place}{PREDICTIONS}", _PREDICTIONS_LIMIT)
        for count, line in enumerate((content or b"").split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                if taken >= PAGE_LIMIT:
                    raise Refused(f"more than {PAGE_LIMIT:,} pages")
                yield _line(place, line)
                taken += 1
            except Refused as error:
                files.skip(files.directory / f"{place}{PREDICTIONS}", f"line {count}: {error}")
                if taken >= PAGE_LIMIT:
                    break


def _line(root: str, content: bytes) -> Line:
    if len(content) > TEXT_LIMIT:
        raise Refused(f"{len(content):,} bytes; at most {TEXT_LIMIT:,} are read")
    data = as_json(as_text(content))
    image, source = text_or_none(data.get("image"), "image"), text_or_none(data.get("source"), "source")
    if image is None or source is None:
        raise Refused("names no image")
    for name in ("text_raw", "error", "preset"):
        text_or_none(data.get(name), name)
    mapping(data.get("environment"), "environment")
    try:
        backend = backend_of(data)
    except KeyError:
        raise Refused("names no backend") from None
    if not is_entry_name(backend) or not _lies_in(backend, root):
        raise Refused(f"backend {backend[:20]!r} does not lie here")
    run = text_or_none(data.get("run"), "run")
    return Line(backend, run if run and is_entry_name(run) else None, image, source, data, root)


def _lies_in(backend: BackendName, root: str) -> bool:
    if root in ROOTS:
        return (root == ROOTS[1]) == (backend == VENDOR)
    return root == f"{BACKENDS}/{backend}/"


def names_of(lines: Iterable[Line]) -> dict[str, str]:
    """What each image is called: as the run called it, longer where two were called the same."""
    sources = {line.image: line.source for line in lines}
    called = Counter(sources.values())
    longer = dict(zip(sources, page_names(sources), strict=True))
    return {image: source if called[source] == 1 else longer[image] for image, source in sources.items()}
