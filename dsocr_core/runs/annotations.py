"""Files of annotations: tags, notes, verdicts, the trash."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.record import RecordError, read_document
from dsocr_core.runs.storage.entries import Storage

Row = dict[str, Any]
File = tuple[int, str]
"""A file's storage, by its number, and its name there."""


def read_annotation_files(
    storages: Sequence[Storage], files: Iterable[File], there: Collection[File]
) -> tuple[list[Row], list[File], dict[str, str]]:
    """Rows of these files, those that were read, and why the others were not (`annotations/<name>`).

    A file of earlier versions of the program holds others that were folded into it; of what is still there
    beside it the rows are not given twice.
    """
    rows: list[Row] = []
    read: list[File] = []
    bad: dict[str, str] = {}
    for number, name in files:
        try:
            parts = read_annotations(storages[number], name)
        except FileNotFoundError:  # removed just now
            continue
        except DsocrError as error:
            bad[f"annotations/{name}"] = str(error)
            continue
        read.append((number, name))
        for part, of_part in parts.items():
            if part == name or (number, part) not in there:
                rows += of_part
    return rows, read, bad


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
