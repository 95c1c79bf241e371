"""Pages of two sides paired."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from dsocr_core.runs.results import Readings


def pair_pages(
    a: tuple[Readings, str | None], b: tuple[Readings, str | None], folder: bool
) -> list[tuple[str | None, str | None]]:
    """Pages of both sides, given with their backends, as pairs; those that only one side has last.

    `folder`: a side is an output folder of the vendor, one page under another name.
    """
    left, right = (
        [page for page, backend in readings.requests if backend == wanted] for readings, wanted in (a, b)
    )
    pairs: list[tuple[str | None, str | None]] = []

    def match(name_a: Callable[[str], str | None], name_b: Callable[[str], str | None]) -> None:
        """Pair what is left by a name that one page of each side has."""
        here, there = _by_name(left, name_a), _by_name(right, name_b)
        for name, pages in here.items():
            if len(pages) == len(there.get(name, ())) == 1:
                pairs.append((pages[0], there[name][0]))
                left.remove(pages[0])
                right.remove(there[name][0])

    match(str, str)
    if left and right:
        match(lambda page: _content(*a, page), lambda page: _content(*b, page))
        match(lambda page: PurePath(page).stem, lambda page: PurePath(page).stem)
        if folder and len(left) == len(right) == 1:
            match(lambda _: "", lambda _: "")
    # A page of B under the name of an unmatched page of A cannot be: equal names were matched first.
    return [*pairs, *((page, None) for page in left), *((None, page) for page in right)]


def _content(readings: Readings, backend: str | None, page: str) -> str | None:
    file = readings.requests[page, backend].file
    return None if file is None else file.sha256


def _by_name(pages: list[str], name_of: Callable[[str], str | None]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for page in pages:
        if (name := name_of(page)) is not None:
            found.setdefault(name, []).append(page)
    return found
