"""Pages and the shards they are cut into: the same inputs make the same shards, on any number of workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from dsocr_core.base.sanitise import text_name
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.sharded import PageReading


class PageRef(NamedTuple):
    """A page that is to be read: its number in the run, its file, and which page of a PDF it is."""

    number: int
    path: str
    """A path or a URL that every worker can open."""
    page: int | None = None
    """Page of a PDF, from 1; None for an image, and for a PDF that could not be counted."""

    @property
    def source(self) -> str:
        """Name the page."""
        return self.path if self.page is None else f"{self.path}#{self.page}"

    @classmethod
    def of(cls, reading: PageReading) -> PageRef:
        page = reading.name.removeprefix(f"{reading.path}#")
        return cls(reading.number, reading.path, None if page == reading.name else int(page))

    def read(self, result: OcrResult) -> PageReading:
        """The page with what was read of it, whatever copy of it the reader had."""
        request = replace(result.request, image=Path(text_name(self.path)), source=self.source)
        return PageReading(self.number, self.source, self.path, replace(result, request=request))

    def failed(self, error: str, quarantined: bool = False) -> PageReading:
        return PageReading(self.number, self.source, self.path, error=error, quarantined=quarantined)


@dataclass(frozen=True)
class Shard:
    """Neighbouring pages of a run, committed together."""

    index: int
    pages: tuple[PageRef, ...]
    key: str
    """A hash of the pages' names and of all that decides their results."""

    @property
    def name(self) -> str:
        return shard_name(self.index, self.key)


def shard_name(index: int, key: str) -> str:
    """Sorts in the order of the shards, up to a billion of them."""
    return f"{index:09d}-{key}"


def shard_key(job: str, pages: Iterable[PageRef]) -> str:
    """The key of a shard; `job` stands for settings, checkpoint and code."""
    digest = hashlib.sha256(job.encode())
    for page in pages:
        digest.update(json.dumps(list(page)).encode() + b"\n")
    return digest.hexdigest()[:16]


def cut(pages: Iterable[PageRef], size: int, job: str) -> Iterator[Shard]:
    """Shards of `size` pages; the last one has what is left."""
    waiting: list[PageRef] = []
    index = 0
    for page in pages:
        waiting.append(page)
        if len(waiting) == size:
            yield _shard(index, waiting, job)
            index, waiting = index + 1, []
    if waiting:
        yield _shard(index, waiting, job)


def _shard(index: int, pages: list[PageRef], job: str) -> Shard:
    return Shard(index, tuple(pages), shard_key(job, pages))
