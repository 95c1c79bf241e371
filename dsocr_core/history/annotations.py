"""Files of annotations: their rows, and which of them were read before."""

from __future__ import annotations

import hashlib
import re
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
                    parts = read_annotations(storage, name)
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


_NAME = re.compile(r"[0-9]{20}-([0-9a-f]{20})\.json")


def annotation_name(time_ns: int, content: bytes) -> str:
    """The name of a new annotation file, which holds a digest of its content.

    Files of earlier versions have a shorter number there, which says nothing.
    """
    return f"{time_ns:020d}-{_digest(content)}.json"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


def read_annotations(storage: Storage, name: str) -> dict[str, list[Row]]:
    """The rows of an annotation file, by the name of the file each part was first written as.

    Raises FileNotFoundError, DsocrError on a damaged or foreign file.
    """
    content = storage.read_annotation(name)
    digest = _NAME.fullmatch(name)
    if digest is not None and digest[1] != _digest(content):
        raise RecordError("damaged: it is not what its name says was written")
    return annotation_parts(name, content)


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
