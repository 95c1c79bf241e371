"""Files that the published code writes of a page, of every page of an output: one archive a shard.

It is made of what is committed, after the reading, by any worker: an output without it can get it later, and
no page is read again. `artifacts/SHARD.zip` has a folder a page, named by its number, with `result.mmd`, the
page with its boxes, its pictures and `info.json`; a page that was not read has none.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.temporary import Temporary
from dsocr_core.cluster.comparing import ShardOf, spread
from dsocr_core.cluster.local_files import LocalFiles
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.shards import PageRef
from dsocr_core.page.opener import open_image
from dsocr_core.reading.artifacts import write_page
from dsocr_core.reading.records import CancelToken
from dsocr_core.runs.sharded import Marker, PageReading
from dsocr_core.settings import Settings, settings_of

FOLDER = "artifacts"
MOST_NAMED = 20
"""Pages without artifacts that are named."""


@dataclass
class Written:
    """Outcome of the writing."""

    shards: int = 0
    pages: int = 0
    failures: int = 0
    """Pages whose image cannot be opened any more, say."""
    named: tuple[str, ...] = ()
    """First of these, with their causes."""

    def add(self, other: Written) -> None:
        self.shards += other.shards
        self.pages += other.pages
        self.failures += other.failures
        self.named = (*self.named, *other.named)[:MOST_NAMED]


def write_artifacts(
    output: Output, executor: Executor, in_flight: int, cancel: CancelToken | None = None
) -> Written:
    """Write what is missing of an output's artifacts. Raises OutputError, StorageError, Cancelled."""
    written = Written()
    calls = ((ShardOf(output.store.location, marker),) for marker in _missing(output))
    for shard in spread(write_shard, calls, executor, in_flight, cancel):
        written.add(shard)
    return written


def _missing(output: Output) -> Iterator[Marker]:
    there = set(output.store.names(FOLDER))
    for marker in output.markers(output.marker_names().values()):
        if archive_name(marker) not in there:
            yield marker


def archive_name(marker: Marker) -> str:
    """Pages that were read again are in the archive of their generation, as in its results."""
    return f"{marker.shard}{f'.{marker.generation}' if marker.generation else ''}.zip"


def write_shard(shard: ShardOf) -> Written:
    """A task: the archive of a shard. Raises OutputError, StorageError."""
    settings = settings_of(Output(shard.location).run()["settings"]).of_side("a")
    written = Written(shards=1)
    content = io.BytesIO()
    with Temporary("artifacts") as name:
        folder = Path(name)
        files = LocalFiles(folder, settings.pdf_dpi, settings.max_pixels)
        with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
            for page in shard.pages():
                own = folder / f"{page.number:09d}"
                try:
                    made = _write(page, files, settings, own)
                except (DsocrError, OSError) as error:
                    written.failures += 1
                    written.named += (f"{page.name}: {one_line(error)}",)
                    continue
                written.pages += made
                for file in sorted(own.rglob("*")):
                    if file.is_file():
                        archive.write(file, str(file.relative_to(folder)))
                        file.unlink()
    Output(shard.location).store.put(f"{FOLDER}/{archive_name(shard.marker)}", content.getvalue())
    return written


def _write(page: PageReading, files: LocalFiles, settings: Settings, folder: Path) -> bool:
    """Write the files of a page, False where it was not read. Raises DsocrError, OSError."""
    if page.result is None:
        return False
    image, made = files.image(page.path, PageRef.of(page).page)
    try:
        picture = open_image(image, settings.max_pixels, settings.infer.exif)[0]
    finally:
        if made:
            files.forget(image)
    write_page(page.result, [picture.convert("RGB")], folder)
    return True
