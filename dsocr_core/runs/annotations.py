"""Files of annotations: tags, notes, verdicts, the trash."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

from dsocr_core.runs.record import RecordError, read_document

_NAME = re.compile(r"[0-9]{20}-([0-9a-f]{20})\.json")


def annotation_name(time_ns: int, content: bytes) -> str:
    """Name a new annotation file, by its time and a digest of its content."""
    return f"{time_ns:020d}-{_digest(content)}.json"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


def annotation_rows(name: str, content: bytes) -> list[dict[str, Any]]:
    """The rows of an annotation file. Raises RecordError on a damaged or foreign one."""
    digest = _NAME.fullmatch(name)
    if digest is not None and digest[1] != _digest(content):
        raise RecordError("damaged: it is not what its name says was written")
    data = read_document(content)
    try:
        moment, rows = int(data["time_ns"]), []
        written = datetime.fromtimestamp(moment / 1e9, UTC).replace(tzinfo=None)
        for number, row in enumerate(data["rows"]):
            values = {column: row.get(column) for column in ("run_id", "kind", "page", "name", "value")}
            if not all(value is None or isinstance(value, str) for value in values.values()):
                raise TypeError("a value is not text")
            rows.append(values | {"position": moment + number, "time": written})
        return rows
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise RecordError(f"annotation file: {str(error)[:80]}") from error
