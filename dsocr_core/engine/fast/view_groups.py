"""Views of several sizes as one matrix: the rows of each, and its maps.

Letters: B views of one size, G patches along a view's side, M patches of all views together, C width.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

Groups = list[tuple[int, int]]
"""(B, G) of each view size, in the order of their patches."""


def rows_of(groups: Groups, class_token: bool = False) -> Iterator[tuple[slice, tuple[int, int]]]:
    """The rows of each view size, and the size."""
    start = 0
    for count, side in groups:
        end = start + count * (side**2 + class_token)
        yield slice(start, end), (count, side)
        start = end


def maps(x: Tensor, groups: Groups) -> Iterator[Tensor]:
    """(M, C) -> (B, C, G, G) of each view size, channels last in memory."""
    for rows, (count, side) in rows_of(groups):
        yield x[rows].view(count, side, side, -1).permute(0, 3, 1, 2)


def map_rows(view: Tensor) -> Tensor:
    """(B, C, G, G) -> (B G G, C)"""
    return view.permute(0, 2, 3, 1).reshape(-1, view.shape[1])
