"""Deaths, halves, quarantine: the page that is to blame is found, and no other one."""

from __future__ import annotations

import math

import pytest

from dsocr_core.cluster.mending import Death, Piece, after_death

DIED, LOST = Death("aborted"), Death("its worker was lost", of_worker=True)


def read_with(poison: set[int], pages: int, known: bool) -> tuple[set[int], set[int], int]:
    """Read a shard in which some pages end their process: pages read, quarantined, and deaths."""
    waiting, read, quarantined, deaths = [Piece(0, tuple(range(pages)))], set(), set(), 0
    while waiting:
        piece = waiting.pop()
        bad = [page for page in piece.pages if page in poison]
        if not bad:
            read |= set(piece.pages)
            continue
        deaths += 1
        assert deaths < 500
        good = [page for page in piece.pages if page < bad[0]] if known else []
        read |= set(good)  # in order, up to the page that is to blame
        started = [bad[0]] + [page for page in piece.pages if bad[0] < page <= bad[0] + 2] if known else []
        then = after_death(piece, [page for page in piece.pages if page not in good], started, DIED)
        waiting += then.pieces
        if then.quarantined is not None:
            quarantined.add(then.quarantined)
    return read, quarantined, deaths


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("poison", [{0}, {255}, {17}, {3, 4}, {5, 100, 200}, set()])
def test_the_pages_to_blame_are_quarantined_and_all_others_read(poison: set[int], known: bool) -> None:
    read, quarantined, deaths = read_with(poison, 256, known)
    assert quarantined == poison
    assert read == set(range(256)) - poison
    # Two deaths before halves, then one a half that is to blame.
    assert deaths <= len(poison) * (3 + math.ceil(math.log2(256)))


def test_one_death_is_no_reason_to_halve() -> None:
    piece = Piece(3, (1, 2, 3, 4))
    assert after_death(piece, (1, 2, 3, 4), (2,), DIED).pieces == (Piece(3, (1, 2, 3, 4), deaths=1),)


def test_pages_that_were_read_before_the_death_are_not_read_again() -> None:
    then = after_death(Piece(3, (1, 2, 3, 4)), (3, 4), (3,), DIED)
    assert then.pieces == (Piece(3, (3, 4), whole=False, deaths=1),)


def test_pages_that_no_process_had_begun_are_not_suspect() -> None:
    then = after_death(Piece(0, (1, 2, 3, 4, 5), deaths=1), (2, 3, 4, 5), (2, 3), DIED)
    assert [(piece.pages, piece.suspect) for piece in then.pieces] == [
        ((2,), True), ((3,), True), ((4, 5), False),
    ]  # fmt: skip


def test_a_page_whose_worker_is_lost_for_other_reasons_is_read_three_times_alone() -> None:
    """Machines are also taken away: two losses beside one page say little."""
    piece = Piece(0, (7,), whole=False, deaths=2, suspect=True)
    for _ in range(2):
        then = after_death(piece, (7,), (), LOST)
        assert then.quarantined is None
        (piece,) = then.pieces
    assert after_death(piece, (7,), (), LOST).quarantined == 7


def test_a_scheduler_that_waits_for_several_deaths_counts_them() -> None:
    then = after_death(Piece(0, (1, 2)), (1, 2), (), Death("lost", of_worker=True, count=4))
    assert [piece.pages for piece in then.pieces] == [(1,), (2,)]
