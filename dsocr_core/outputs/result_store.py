"""The result cache's files: content-addressed, by all that decides a result.

One JSON file a result, named by a hash of checkpoint, image content, backend and settings. Written under
a temporary name and renamed when whole, so a reader never sees half a file.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dsocr_core.errors import DsocrError
from dsocr_core.outside.untrusted import Refused, parse_json, read_bytes
from dsocr_core.records import OcrRequest, OcrResult, PageFile, result_from_jsonable, to_jsonable
from dsocr_core.settings import PROJECT_ROOT

FORMAT = 1
_MAX_BYTES = 64 * 1024 * 1024
_CONTENT_HASH_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class RecordedResult:
    """`created` is an ISO 8601 time in UTC."""

    result: OcrResult
    created: str


class ResultStore:
    """A folder of results. Reads never fail: a damaged or foreign file is as good as none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, key: str) -> RecordedResult | None:
        file = self._file(key)
        try:
            data = parse_json(read_bytes(file, _MAX_BYTES, follow_links=True), any_number=True)
            if data["format"] != FORMAT:
                return None
            return RecordedResult(result_from_jsonable(data["result"]), str(data["created"]))
        except (Refused, ValueError, LookupError, TypeError, AttributeError, OverflowError):
            return None

    def save(self, key: str, recorded: RecordedResult) -> Path:
        """Write one result; raises DsocrError when it cannot be written, leaving nothing behind."""
        file = self._file(key)
        data = {"format": FORMAT, "created": recorded.created, "result": to_jsonable(recorded.result)}
        temporary = None
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=file.parent, suffix=".part", delete=False, encoding="utf-8"
            ) as handle:
                temporary = Path(handle.name)
                json.dump(data, handle, ensure_ascii=False)
                handle.flush()
                os.fsync(handle.fileno())
            temporary.replace(file)
        except OSError as error:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    temporary.unlink()
            raise DsocrError(f"{file}: the result could not be written ({error.strerror})") from error
        return file

    def _file(self, key: str) -> Path:
        return self.directory / f"{key}.json"


def result_key(facts: Mapping[str, object]) -> str:
    """A name for a result from everything that decides it."""
    canonical = json.dumps({"format": FORMAT, **facts}, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content. Raises DsocrError when it cannot be read."""
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise DsocrError(f"{path}: cannot be read ({error.strerror})") from error


def page_file(path: Path) -> PageFile | None:
    """Read what a page's file holds; None where it is gone by now."""
    try:
        with path.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
            return PageFile(handle.tell(), digest)
    except (OSError, ValueError):
        return None


def file_of(request: OcrRequest) -> PageFile | None:
    """The file of a request as it was taken up, read now where nobody has looked."""
    return request.file or page_file(request.image)


def required_file(request: OcrRequest) -> PageFile:
    """`file_of`. Raises DsocrError when the file cannot be read."""
    file = file_of(request)
    if file is None:
        file_sha256(request.image)  # says why
        raise DsocrError(f"{request.image}: cannot be read")
    return file


def checkpoint_fingerprint(source: str) -> str:
    """Make what tells one checkpoint from another.

    Small checkpoints by content, so a clone has the same fingerprint as its origin; large ones by the
    small files' content and the shards' sizes and times, which costs no read of gigabytes. The published code
    that lies beside the weights is part of it: it decides what the vendor's backend reads.
    """
    directory = Path(source)
    if not directory.is_dir():
        return source
    digest = hashlib.sha256()
    files = sorted(
        path
        for path in directory.iterdir()
        if path.suffix in (".json", ".py", ".safetensors") and path.is_file()
    )
    small = sum(path.stat().st_size for path in files) <= _CONTENT_HASH_BYTES
    for path in files:
        digest.update(path.name.encode())
        if small or path.suffix != ".safetensors":
            digest.update(path.read_bytes())
        else:
            stat = path.stat()
            digest.update(f"{stat.st_size}:{stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]


_DECIDING = (
    "backends", "engine", "inputs", "kernels", "models", "outputs", "vendor", "backend_specs",
    "history/sharded.py", "records.py", "markup.py", "resolution.py", "settings.py",
)  # fmt: skip
"""Rooms and files of the core that make results what they are."""


@functools.cache
def code_version() -> str:
    """A hash of the files that decide results: another clone has the same."""
    digest = hashlib.sha256()
    core = PROJECT_ROOT / "dsocr_core"
    for name in _DECIDING:
        place: Path = core / name
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.relative_to(core).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
