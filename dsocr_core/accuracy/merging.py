"""Paragraphs that were written in several: which neighbours are read as one before they are matched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsocr_core.accuracy.distances import Budget, distance, nearest_window

CLEAR_MATCH = 0.25
"""Below this distance two blocks are each other's, and neither is merged with anything."""
_PART_OF = 0.6
"""A written part belongs to a true block in which some stretch of its length is nearer than this."""

Span = tuple[int, ...]
"""Written parts that are read as one, neighbours, by their numbers."""


@dataclass(frozen=True)
class _Candidate:
    span: Span
    cost: float


def merged_spans(
    true: Sequence[str], written: Sequence[str], costs: npt.NDArray[np.float64], budget: Budget
) -> list[Span]:
    """Spans of `written` to be read as one, none sharing a part; a span of one part says that it stays alone.

    For each true block without a clear match the best run of neighbours is a candidate; of candidates that
    overlap the cheaper ones by mean cost are taken.
    """
    rows, columns = np.nonzero(costs < CLEAR_MATCH)
    taken = set(columns.tolist())
    free_rows = [row for row in range(len(true)) if row not in set(rows.tolist())]
    starts = [column for column in range(len(written)) if column not in taken]
    candidates = []
    for row in free_rows:
        runs = [_run(true[row], written, start, taken, budget) for start in starts]
        priced = [_Candidate(run, distance(true[row], _joined(written, run))) for run in runs]
        if priced:
            candidates.append(min(priced, key=lambda candidate: candidate.cost))
    candidates.sort(key=lambda candidate: candidate.span[0])
    return [span for group in _overlapping(candidates) for span in _cheapest(group)]


def _joined(written: Sequence[str], run: Span) -> str:
    return " ".join(written[index] for index in run)


def _run(true: str, written: Sequence[str], start: int, taken: set[int], budget: Budget) -> Span:
    """The run of parts from `start` that a true block seems to be made of."""
    run = [start]
    while (after := run[-1] + 1) < len(written) and after not in taken:
        parts = [written[index] for index in run]
        joined = " ".join((*parts, written[after]))
        if distance(true, joined) > distance(true, " ".join(parts)):
            break
        if not all(_is_part(true, part, budget, at_limit=True) for part in parts):
            break
        if not _is_part(true, written[after], budget, at_limit=False):
            break
        run.append(after)
        if len(joined) > len(true):
            break
    return tuple(run)


def _is_part(true: str, part: str, budget: Budget, at_limit: bool) -> bool:
    """Tell whether some stretch of a true block is near enough to a part; never for a part longer than it."""
    nearest = nearest_window(part, true, _PART_OF, budget)
    return nearest is not None and (nearest <= _PART_OF if at_limit else nearest < _PART_OF)


def _overlapping(candidates: Sequence[_Candidate]) -> list[list[_Candidate]]:
    """Candidates by their first part, in groups that share parts."""
    groups: list[list[_Candidate]] = []
    for candidate in candidates:
        members = {index for other in groups[-1] for index in other.span} if groups else set()
        if members.intersection(candidate.span):
            groups[-1].append(candidate)
        else:
            groups.append([candidate])
    return groups


def _cheapest(group: Sequence[_Candidate]) -> list[Span]:
    """Choose among candidates that share no part those of least mean cost; of equal ones the first.

    Choices grow as the benchmark grows them, one candidate after the other, and not by all combinations.
    """
    choices = [[group[0]]]
    for candidate in group[1:]:
        is_placed = False
        for choice in choices:
            same = next((other for other in choice if other.span == candidate.span), None)
            if same is not None:
                is_placed = True
                if same.cost > candidate.cost:
                    choice.remove(same)
                    choice.append(candidate)
            elif not any(set(other.span) & set(candidate.span) for other in choice):
                is_placed = True
                choice.append(candidate)
        if not is_placed:
            choices.append([candidate])
    best = min(choices, key=lambda choice: sum(each.cost for each in choice) / len(choice))
    return [candidate.span for candidate in best]
