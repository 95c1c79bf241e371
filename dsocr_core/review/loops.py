"""Repetition loops of runs: where they begin, how many pages have one, and which n-gram rule stops them.

By tokens where a backend tells them, by text (`repetition.py`) where not. What a rule would have stopped and
what it would have cost is counted on the tokens as they were written: after its first veto the model would
have written something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dsocr_core.reading.ngram_rule import forbidden_steps
from dsocr_core.reading.records import NgramPolicy, ngram_words
from dsocr_core.review.repetition import find_loop

if TYPE_CHECKING:
    from dsocr_core.runs.store import History

FEWEST_TURNS, FEWEST_TOKENS = 4, 24
"""A loop is at least so many whole turns, and so many tokens."""
TOKEN_LIMIT = 16_384
"""Tokens of a page that are searched; more than any context holds is hostile."""
_LONGEST_PERIOD = 512

CELLS = ("<td>", "</td>")
POLICIES: tuple[tuple[int, int, bool], ...] = (
    (20, 0, False), (35, 0, False), (20, 50, True), (30, 90, True), (40, 90, True),
)  # fmt: skip
"""Size, window, and whether cells are whitelisted: the published two and the vendor's vLLM scripts' three."""


@dataclass(frozen=True)
class TokenLoop:
    """`count` whole turns of `period` tokens from token `start` on."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


def token_loop(tokens: Sequence[int]) -> TokenLoop | None:
    """The longest repetition of tokens; of equally long ones the shortest period. None without one."""
    ids = np.asarray(tokens[:TOKEN_LIMIT], np.int64)  # (N,)
    best: TokenLoop | None = None
    for period in range(1, min(_LONGEST_PERIOD, len(ids) // FEWEST_TURNS) + 1):
        if best is not None and best.end - best.start == len(ids):
            break
        start, length = _longest_run(ids[period:] == ids[:-period])
        count = (length + period) // period
        if count < FEWEST_TURNS or count * period < FEWEST_TOKENS:
            continue
        if best is None or count * period > best.end - best.start:
            best = TokenLoop(start, period, count)
    return best


def _longest_run(true: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[int, int]:
    """Start and length of the longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], true, [False]]).astype(np.int8)))
    if not len(edges):
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    longest = int(np.argmax(lengths))
    return int(edges[2 * longest]), int(lengths[longest])


@dataclass(frozen=True)
class PageLoop:
    """A loop on one page. Tokens are None where the backend does not tell them."""

    page: str
    unit: str
    count: int
    from_character: int | None
    from_token: int | None
    period_tokens: int | None
    stopped_by: tuple[str, ...] | None
    """The rules that would have ended it before its last turn."""


@dataclass(frozen=True)
class PolicyCost:
    """Cost of a rule: what it would have forbidden on pages without a loop."""

    policy: str
    stopped: int
    """Loops that it would have stopped."""
    pages: int
    """Pages without a loop on which it would have forbidden a token."""
    cells: int
    """Those of them where the first token that it forbids is a cell's tag or lies within a cell."""


@dataclass(frozen=True)
class BackendLoops:
    """The pages of one backend of one run."""

    run_id: str
    backend: str | None
    pages: int
    loops: tuple[PageLoop, ...]
    costs: tuple[PolicyCost, ...]
    """Empty where no page has tokens."""

    @property
    def rate(self) -> float:
        return len(self.loops) / self.pages if self.pages else 0.0

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "rate": self.rate}


@dataclass(frozen=True)
class LoopPage:
    """Texts of a page that are searched."""

    page: str
    text: str
    tokens: tuple[int, ...] | None = None
    texts: tuple[str, ...] = ()
    """Each token as text; empty where not recorded."""


def page_loop(page: LoopPage, policies: Mapping[str, NgramPolicy] | None = None) -> PageLoop | None:
    """The page's loop; by tokens where they are known, else by text."""
    loop = token_loop(page.tokens) if page.tokens is not None else None
    if loop is not None and page.tokens is not None:
        unit = "".join(page.texts[loop.start : loop.start + loop.period]) if page.texts else ""
        if not page.texts or any(character.isalnum() for character in _untagged(unit)):
            inside = page.tokens[: loop.end]
            last_turn = loop.end - loop.period
            stopping = tuple(
                name
                for name, policy in (policies or {}).items()
                if any(loop.start <= step < last_turn for step in forbidden_steps(policy, inside))
            )
            character = len("".join(page.texts[: loop.start])) if page.texts else None
            return PageLoop(page.page, unit, loop.count, character, loop.start, loop.period, stopping)
    found = find_loop(page.text)
    if found is None:
        return None
    return PageLoop(page.page, found.unit, found.count, found.start, None, None, None)


def backend_loops(run_id: str, backend: str | None, pages: Iterable[LoopPage]) -> BackendLoops:
    """Loops of one backend's pages, and what each rule would have done."""
    pages = tuple(pages)
    policies = {each.page: policies_for(each) for each in pages}
    loops = tuple(loop for each in pages if (loop := page_loop(each, policies[each.page])) is not None)
    looping = {loop.page for loop in loops}
    told = [each for each in pages if each.tokens is not None]
    costs = []
    for name in policies_for(LoopPage("", "")) if told else ():
        first = [
            (each, steps[0])
            for each in told
            if each.page not in looping
            and (steps := forbidden_steps(policies[each.page][name], each.tokens or ()))
        ]
        stopped = sum(1 for loop in loops if loop.stopped_by and name in loop.stopped_by)
        cells = sum(1 for each, step in first if in_cell(each.texts, step))
        costs.append(PolicyCost(name, stopped, len(first), cells))
    return BackendLoops(run_id, backend, len(pages), loops, tuple(costs))


def policies_for(page: LoopPage) -> dict[str, NgramPolicy]:
    """The rules by name, with the ids that this page's tokens `<td>` and `</td>` have."""
    ids = {text: token for text, token in zip(page.texts, page.tokens or (), strict=False) if text in CELLS}
    exempt = tuple(ids[cell] for cell in CELLS if cell in ids)
    return {
        ngram_words(size, window, CELLS if cells else ()): NgramPolicy(size, window, exempt if cells else ())
        for size, window, cells in POLICIES
    }


def in_cell(texts: Sequence[str], step: int) -> bool:
    """Tell whether a token is a cell's tag or lies between `<td>` and `</td>`."""
    if step >= len(texts):
        return False
    if texts[step] in CELLS:
        return True
    opened = next((text for text in reversed(texts[:step]) if text in CELLS), None)
    return opened == CELLS[0]


def _untagged(text: str) -> str:
    outside, inside = [], False
    for character in text:
        inside = character == "<" or (inside and character != ">")
        if not inside:
            outside.append(character)
    return "".join(outside)


def history_loops(history: History, run_ids: Sequence[str]) -> list[BackendLoops]:
    """Find the loops of recorded runs, backend by backend. Raises DsocrError for a run that is not there."""
    from dsocr_core.runs.results import readings

    found = []
    for run_id in run_ids:
        light = readings(history, run_id, with_steps=False).results
        repeating = [page for (page, _), result in light.items() if _may_matter(result.token_ids or ())]
        groups: dict[str | None, list[LoopPage]] = {}
        whole = readings(history, run_id, repeating).results if repeating else {}
        for (page, backend), result in light.items():
            texts = whole.get((page, backend), result).token_texts
            of_page = LoopPage(page, result.text_raw, result.token_ids, texts)
            groups.setdefault(backend, []).append(of_page)
        found += [backend_loops(run_id, backend, pages) for backend, pages in groups.items()]
    return found


def _may_matter(tokens: Sequence[int]) -> bool:
    """Tell whether anything repeats that a rule could forbid: only then are the tokens' texts read."""
    return token_loop(tokens) is not None or bool(forbidden_steps(min(size for size, *_ in POLICIES), tokens))
