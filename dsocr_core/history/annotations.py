"""Files of annotations: their rows, and which of them were read before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dsocr_core.errors import DsocrError
from dsocr_core.history.record import RecordError, read_document
from dsocr_core.history.storage.base import Storage

Row = dict[str, Any]
File = tuple[int, str]
"""A file's storage, by its number, and its name there."""


class AnnotationFiles:
    """The annotation files of some storages."""

    def __init__(self, storages: Sequence[Storage]) -> None:
        self.problems: dict[str, str] = {}
        """What could not be read (`annotations/<name>`), with the reason; it is not tried again."""
        self._storages = storages
        self._read: set[File] = set()

    def new(self) -> tuple[list[Row], set[File]]:
        """Rows of files not read before; files that were folded together go by their old names."""
        rows: list[Row] = []
        files: set[File] = set()
        for number, storage in enumerate(self._storages):
            for name in sorted(storage.annotation_names()):
                if (number, name) in self._read or f"annotations/{name}" in self.problems:
                    continue
                try:
                    parts = annotation_parts(name, storage.read_annotation(name))
                except FileNotFoundError:  # folded just now
                    continue
                except DsocrError as error:
                    self.problems[f"annotations/{name}"] = str(error)
                    continue
                for part, of_part in parts.items():
                    if (number, part) not in self._read | files:
                        rows += of_part
                files |= {(number, name), *((number, part) for part in parts)}
        return rows, files

    def remember(self, files: set[File]) -> None:
        """These were taken in."""
        self._read |= files


def annotation_parts(name: str, content: bytes) -> dict[str, list[Row]]:
    """The rows of an annotation file, by the name of the file each part was first written as.

    Raises RecordError on a foreign file.
    """
    data = read_document(content)
    try:
        return {str(part.get("name", name)): _annotation_rows(part) for part in data.get("parts", [data])}
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise RecordError(f"annotation file: {str(error)[:80]}") from error


def _annotation_rows(part: Mapping[str, Any]) -> list[Row]:
    moment = int(part["time_ns"])
    written = datetime.fromtimestamp(moment / 1e9, UTC).replace(tzinfo=None)
    rows = []
    for number, row in enumerate(part["rows"]):
        values = {name: row.get(name) for name in ("run_id", "kind", "page", "name", "value")}
        if not all(value is None or isinstance(value, str) for value in values.values()):
            raise TypeError("a value is not text")
        rows.append(values | {"position": moment + number, "time": written})
    return rows
