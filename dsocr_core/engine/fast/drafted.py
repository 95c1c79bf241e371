"""Decoding with a draft: groups of passes while the draft is right, groups of single steps while it is not.

The host reads what a group wrote while the next one runs, as without a draft, and only then decides how many
rows the one after has. The place of the draft moves on the device.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from dsocr_core.engine.drafts.pace import COSTS, Pace, Place, costs_on
from dsocr_core.engine.fast.cuda_graph import StepGraph, record, repeated
from dsocr_core.engine.fast.draft_pass import DraftPass, PageDraft, PassLaunches
from dsocr_core.kernels import state as decode_state
from dsocr_core.kernels.verify import draft as draft_state

log = logging.getLogger(__name__)

FIRST_ROWS = 4
PASSES_A_GROUP = 2
"""Passes between two reads: few, so that a draft that is lost costs little."""


class PassGraphs:
    """The passes of a step, one of each number of rows, recorded. The step must be idle when this is made."""

    def __init__(
        self, step_graph: StepGraph, rows: Sequence[int] = tuple(COSTS), launches: PassLaunches | None = None
    ) -> None:
        step = step_graph.step
        self.draft, self.costs = PageDraft(step), COSTS
        self.draft.begin((), 1)
        passes = {k: DraftPass(step, self.draft, k, launches) for k in rows if k > 1}
        self._runs = {k: each.run for k, each in passes.items()}
        if step.device.type == "cuda":
            self.costs = costs_on(torch.cuda.get_device_name(step.device))
            log.info("drafts: compiling the kernels of passes, minutes the first time on a machine")
            # Compiling takes most of the time, and does not hold the interpreter.
            with ThreadPoolExecutor(len(passes)) as pool:
                list(pool.map(torch.inference_mode()(_run), passes.values()))
            torch.cuda.synchronize(step.device)
            self._runs = {k: record(each.run, step.device).replay for k, each in passes.items()}

    def replay(self, rows: int, count: int) -> None:
        """Queue so many passes."""
        repeated(count, self._runs[rows])


def _run(one: DraftPass) -> None:
    one.run()


@dataclass
class _Group:
    """Output of a group, being copied to the host: tokens from new token `number` on, and both states.

    `rows` of a pass, 1 of single steps, of which `count` were queued; at most `most` tokens come of it.
    """

    rows: int
    count: int
    most: int
    number: int
    tokens: Tensor
    state: Tensor
    draft: Tensor
    arrived: torch.cuda.Event | None

    def wait(self) -> tuple[list[int], list[int]]:
        """The sequence's state and its draft's."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.state.tolist(), self.draft.tolist()


class DraftedPage:
    """One page's decoding after `begin_with`; `facts` say afterwards what the draft gave."""

    def __init__(
        self, graph: StepGraph, passes: PassGraphs, draft: Sequence[int] | None, first: int, group: int
    ) -> None:
        """`draft` None is what the page itself has said so far."""
        self._graph, self._passes, self._first, self._group = graph, passes, first, group
        passes.draft.begin(draft or (), first)
        self._own = draft is None
        self._pace, self._place = Pace(passes.costs, hopeful=not self._own), Place(draft)
        self._new: list[int] = []
        self._last = [0] * draft_state.DRAFT_SIZE
        self._made: Counter[int] = Counter()
        self._stepped = False

    @property
    def facts(self) -> dict[str, str]:
        """Passes made, tokens proposed in them and accepted, passes by their rows, and the time won.

        That is estimated: single steps over what passes and steps cost (`drafts.pace.costs_on`).
        """
        passes, drafted, accepted = self._last[draft_state.PASSES : draft_state.RIGHT]
        steps = max(len(self._new) - 1 - passes - accepted, 0)
        cost = steps + sum(self._passes.costs[rows] * count for rows, count in self._made.items())
        rows = " ".join(f"{rows}:{count}" for rows, count in sorted(self._made.items()))
        found = {"passes": str(passes), "drafted": str(drafted), "accepted": str(accepted), "rows": rows}
        return found | ({"won": f"{(steps + passes + accepted) / cost:.2f}"} if cost else {})

    def groups(self, limit: int) -> Iterator[list[int]]:
        """The new tokens a group at a time, from the first one on. Waits for a group's tokens alone."""
        running: _Group | None = self._copied(1, 1, 1, 0)
        while running is not None:
            surely = len(self._new) + running.count
            following = None
            if surely < limit and not self._ends_with(running, limit):
                following = self._queue(limit - surely, running.most)
            fresh, done = self._take(running)
            yield fresh
            if done:
                return
            if following is None and len(self._new) < limit:
                following = self._queue(limit - len(self._new), 0)
            running = following

    def _ends_with(self, running: _Group, limit: int) -> bool:
        """Tell whether more would be queued for nothing if the running group is right.

        So it is where the page or its draft ends with it; and of the draft's first pass all is unknown.
        """
        if running.rows == 1:
            return False
        most = len(self._new) + running.most
        return not self._made or most >= limit or (not self._own and most >= self._place.end)

    def _queue(self, left: int, on_the_way: int) -> _Group:
        """Queue the next group: `left` tokens may still come, of which so many at most are on the way."""
        rows = self._pace.rows
        if rows == 1:
            count = min(self._group, left)
            self._graph.replay(count)
        else:
            if self._own:
                known = len(self._new)
                self._passes.draft.copy_own(self._first, known, known + on_the_way)
                ahead = on_the_way + PASSES_A_GROUP * rows
                self._passes.draft.shift(self._place.earlier(ahead) - self._first)
            elif self._stepped:
                self._passes.draft.shift(self._place.shift - self._first)
            # Before the first pass nobody knows what the draft is worth.
            rows, count = (rows, PASSES_A_GROUP) if self._made else (min(rows, FIRST_ROWS), 1)
            self._passes.replay(rows, count)
        self._stepped = rows == 1
        return self._copied(rows, count, count * rows, on_the_way)

    def _copied(self, rows: int, count: int, most: int, on_the_way: int) -> _Group:
        """Copy what is new since the last group that was read, once it is there."""
        step, number = self._graph.step, len(self._new)
        start = self._first + number
        parts = (step.tokens[start : start + on_the_way + most], step.state, self._passes.draft.state)
        if step.device.type != "cuda":
            tokens, state, draft = (part.clone() for part in parts)
            return _Group(rows, count, most, number, tokens, state, draft, None)
        hosts = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in parts]
        for host, part in zip(hosts, parts, strict=True):
            host.copy_(part, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
        tokens, state, draft = hosts
        return _Group(rows, count, most, number, tokens, state, draft, arrived)

    def _take(self, group: _Group) -> tuple[list[int], bool]:
        """A group's tokens that are new, and whether the sequence is done."""
        state, draft = group.wait()
        done = bool(state[decode_state.DONE])
        # The last token is never fed back: its position is not entered.
        written = state[decode_state.POSITION] + int(done) - self._first + 1
        fresh = [int(token) for token in group.tokens.tolist()[len(self._new) - group.number :]]
        fresh = fresh[: written - len(self._new)]
        right = 0
        for token in fresh:
            self._new.append(token)
            if group.rows == 1 or self._own:
                right += self._place.follow(self._new)
        if group.rows == 1:
            self._pace.took(right, len(fresh) - right)
        else:
            since = [now - before for now, before in zip(draft, self._last, strict=True)]
            self._made[group.rows] += since[draft_state.PASSES]
            self._pace.took(since[draft_state.RIGHT], since[draft_state.WRONG])
            if not self._own:
                self._place.shift = draft[draft_state.SHIFT] + self._first
        self._last = draft
        return fresh, done
