"""Which pages are read again after a process died on them, and which one is to blame.

A piece is what a worker is asked for: a whole shard, or pages of one. After the second death the pages that
may be to blame are read in halves, each alone in its process, until one page is left that ends every process
it comes to: it is quarantined, and the others have their results.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

DEATHS_BEFORE_HALVING = 2
WORKER_DEATHS_OF_A_PAGE = 3
"""So often a worker must be lost while it reads one page alone: machines are also lost for other reasons."""


@dataclass(frozen=True)
class Piece:
    """Pages of one shard that are read together."""

    shard: int
    pages: tuple[int, ...]
    """Their numbers in the run."""
    whole: bool = True
    """All of the shard: whoever has read it commits it."""
    deaths: int = 0
    """Processes that ended while they read these pages, or more of the same shard."""
    suspect: bool = False
    """Read alone in a process, as one of its pages may be to blame."""
    alone_deaths: int = 0
    """Of the only page of a suspect piece."""


@dataclass(frozen=True)
class Death:
    """What ended while it read a piece."""

    cause: str
    of_worker: bool = False
    """The whole worker, for which there may be many reasons; else the process that reads."""
    count: int = 1


@dataclass(frozen=True)
class Next:
    """What becomes of the pages that a death left unread."""

    pieces: tuple[Piece, ...] = ()
    quarantined: int | None = None
    """A page that is to blame."""


def after_death(piece: Piece, unread: Collection[int], started: Collection[int], death: Death) -> Next:
    """What to read next. `unread` are pages of the piece without a result; of these the process had begun
    `started`, which is empty where nobody knows.
    """
    rest = tuple(page for page in piece.pages if page in set(unread))
    if not rest:
        return Next()
    deaths = piece.deaths + death.count
    again = replace(piece, pages=rest, whole=False, deaths=deaths)
    if deaths < DEATHS_BEFORE_HALVING and not piece.suspect:
        return Next((replace(again, whole=piece.whole and len(rest) == len(piece.pages)),))
    if len(rest) == 1:
        return _of_one_page(again, piece, death)
    to_blame = tuple(page for page in rest if page in set(started)) or rest
    others = tuple(page for page in rest if page not in set(to_blame))
    pieces = [replace(again, pages=half, suspect=True) for half in _halves(to_blame)]
    if others:
        pieces.append(Piece(piece.shard, others, whole=False))
    return Next(tuple(pieces))


def _of_one_page(again: Piece, before: Piece, death: Death) -> Next:
    was_alone = before.suspect and len(before.pages) == 1
    alone_deaths = before.alone_deaths + (death.count if was_alone else 0)
    needed = WORKER_DEATHS_OF_A_PAGE if death.of_worker else 1
    if alone_deaths >= needed:
        return Next(quarantined=again.pages[0])
    return Next((replace(again, suspect=True, alone_deaths=alone_deaths),))


def _halves(pages: tuple[int, ...]) -> list[tuple[int, ...]]:
    middle = (len(pages) + 1) // 2
    return [half for half in (pages[:middle], pages[middle:]) if half]
