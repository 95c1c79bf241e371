"""Names by content: of a page's file, a checkpoint, the code, and a result by all that decides it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.reading.records import OcrRequest, PageFile

FORMAT = 1  # version of the facts; a new one loses every result
_CONTENT_HASH_BYTES = 256 * 1024 * 1024


def result_key(facts: Mapping[str, object]) -> str:
    """Name a result by everything that decides it."""
    canonical = json.dumps({"format": FORMAT, **facts}, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def read_file(path: Path) -> PageFile:
    """Size and SHA-256 of a file's content. Raises DsocrError when it cannot be read."""
    try:
        with path.open("rb") as handle:
            return PageFile(sha256=hashlib.file_digest(handle, "sha256").hexdigest(), bytes=handle.tell())
    except FileNotFoundError:
        raise DsocrError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:
        words = f"cannot be read ({getattr(error, 'strerror', error)}); check it and its permissions"
        raise DsocrError(f"{path}: {words}") from error


def page_file(path: Path) -> PageFile | None:
    """Size and hash of a page's file; None where it is gone."""
    with suppress(DsocrError):
        return read_file(path)
    return None


def files_of(request: OcrRequest) -> tuple[PageFile | None, ...]:
    """The files of all images of a request, in their order, as recorded in it, else as they are now."""
    file = request.file or page_file(request.image)
    return (file, *(request.more_files or map(page_file, request.more)))


def required_files(request: OcrRequest) -> tuple[PageFile, ...]:
    """Files of all images. An unreadable one raises DsocrError."""
    return (request.file or read_file(request.image), *(request.more_files or map(read_file, request.more)))


def checkpoint_fingerprint(source: str) -> str:
    """Hash what tells checkpoints apart, once as long as no file changes: the published code is part of it.

    Small checkpoints by content, so a clone has its origin's; of large ones the shards by size and time.
    """
    folder, suffixes = Path(source), (".json", ".py", ".safetensors")
    if not folder.is_dir():
        return source
    files = sorted(path for path in folder.iterdir() if path.suffix in suffixes and path.is_file())
    stats = [(path, path.stat()) for path in files]
    return _fingerprint(tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats))


@functools.lru_cache(maxsize=8)
def _fingerprint(files: tuple[tuple[Path, int, int], ...]) -> str:
    digest, small = hashlib.sha256(), sum(size for _, size, _ in files) <= _CONTENT_HASH_BYTES
    for path, size, changed in files:
        digest.update(path.name.encode())
        whole = small or path.suffix != ".safetensors"
        digest.update(path.read_bytes() if whole else f"{size}:{changed}".encode())
    return digest.hexdigest()[:32]


@functools.cache
def code_version() -> str:
    """A hash of the core's files: another clone has the same."""
    digest, core = hashlib.sha256(), PROJECT_ROOT / "dsocr_core"
    for file in sorted(core.rglob("*.py")):
        digest.update(file.relative_to(core).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:12]
