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
        """Pair what is left by a name that is not ambiguous on either side."""
        there, doubled = _unambiguous(right, name_b)
        here, twice = _unambiguous(left, name_a)
        for name, page in here.items():
            if name in there and name not in doubled | twice:
                pairs.append((page, there[name]))
                left.remove(page)
                right.remove(there[name])

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


def _unambiguous(pages: list[str], name_of: Callable[[str], str | None]) -> tuple[dict[str, str], set[str]]:
    """Name -> page, and the names that several pages have."""
    names: dict[str, str] = {}
    doubled: set[str] = set()
    for page in pages:
        name = name_of(page)
        if name is not None:
            doubled |= {name} & names.keys()
            names[name] = page
    return names, doubled
