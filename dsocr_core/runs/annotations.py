"""Annotations of runs (tags, notes, verdicts, trash), in files that never change."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from dsocr_core.base.bounded_json import parse_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import json_bytes
from dsocr_core.runs.record import SCHEMA_VERSION
from dsocr_core.runs.storage import RunStorage

COLUMNS = ("run_id", "kind", "page", "name", "value")
_FORM = pa.schema({"position": pa.int64(), "time": pa.timestamp("us")} | dict.fromkeys(COLUMNS, pa.string()))
_LATEST_NS = 2**62
"""The year 2116: a file that claims more does not move what is written after it."""


class Annotations:
    """The annotations of some roots; each file is read once. Not for several threads at a time."""

    def __init__(self, roots: Sequence[RunStorage]) -> None:
        self._roots = roots
        self._forget()

    def _forget(self) -> None:
        self._versions: Mapping[tuple[int, str], str] = {}
        self.rows = _FORM.empty_table()
        """All of them; of a kind, page and name the one with the greatest position counts."""
        self.damaged: dict[str, str] = {}
        """Files that cannot be read, and why."""

    def refresh(self) -> bool:
        """Read what came or went; tell whether anything did. Raises StorageError."""
        found = {
            (number, name): version
            for number, root in enumerate(self._roots)
            for name, version in root.annotation_versions().items()
        }
        if found == self._versions:
            return False
        if any(found.get(file) != version for file, version in self._versions.items()):
            self._forget()
        tables = [self.rows]
        for number, name in sorted(found.keys() - self._versions.keys()):
            try:
                if (content := self._roots[number].annotation(name)) is not None:  # else removed just now
                    tables.append(_rows(name, content))
            except DsocrError as error:
                self.damaged[name] = str(error)
        self.rows = pa.concat_tables(tables).combine_chunks()
        self._versions = found
        return True

    def write(self, storage: RunStorage, rows: Sequence[Sequence[str | None]], now: int) -> None:
        """Put a new file of rows, as COLUMNS, behind all that are known. Raises StorageError."""
        # What is said last counts, also where the clock went back or another machine's is ahead.
        at = max(now, min((pc.max(self.rows["position"]).as_py() or 0) + 1, _LATEST_NS))
        named = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        content = json_bytes({"schema_version": SCHEMA_VERSION, "time_ns": at, "rows": named})
        storage.write_annotation(_name(at, content), content)


def _name(time_ns: int, content: bytes) -> str:
    return f"{time_ns:020d}-{hashlib.sha256(content).hexdigest()[:20]}.json"


def _rows(name: str, content: bytes) -> pa.Table:
    """The rows of a file. Raises DsocrError on a damaged or foreign one."""
    found = re.fullmatch(r"([0-9]{20})-[0-9a-f]{20}\.json", name)
    if found is not None and _name(int(found[1]), content) != name:
        raise DsocrError("damaged: it is not what its name says was written")
    data = parse_json(content, any_number=True)
    try:
        at = int(data["time_ns"])
        written = datetime.fromtimestamp(at / 1e9, UTC).replace(tzinfo=None)
        rows = [
            {"position": at + number, "time": written} | {column: row.get(column) for column in COLUMNS}
            for number, row in enumerate(data["rows"])
        ]
        return pa.Table.from_pylist(rows, _FORM)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise DsocrError(f"annotation file: {str(error)[:80]}") from error
