"""The decode policy: greedy, with the n-gram rule of transformers over the whole sequence."""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

from dsocr_core.records import TopTwo, top_two_steps


class NgramRule:
    """Forbids any token that would repeat an n-gram of the sequence so far, prompt included.

    Updated token by token: a step costs O(1) instead of a scan of the sequence. The rule is
    `NoRepeatNGramLogitsProcessor` of transformers: no window, no exceptions. Size 0 switches it off.
    """

    def __init__(self, size: int, ids: Iterable[int] = ()) -> None:
        if size < 0:
            raise ValueError(f"n-gram size {size} is negative")
        self.size = size
        self._ids: list[int] = []
        self._followers: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for token in ids:
            self.push(token)

    def push(self, token: int) -> None:
        """The sequence grew by one token."""
        self._ids.append(token)
        if 0 < self.size <= len(self._ids):
            self._followers[tuple(self._ids[-self.size : -1])].add(token)

    def banned(self) -> set[int]:
        """Tokens that may not come next."""
        if self.size == 0 or len(self._ids) + 1 < self.size:
            return set()
        return self._followers.get(tuple(self._ids[len(self._ids) - self.size + 1 :]), set())


class BestTwo:
    """The two best logits of every step, on the device until they are read: no step waits for them."""

    def __init__(self) -> None:
        self._ids: list[Tensor] = []
        self._logits: list[Tensor] = []

    def add(self, logits: Tensor, chosen: Tensor) -> None:
        """A step's (V,) logits without the forbidden ones, and the token chosen of them, ()."""
        place = chosen[None]  # (1,)
        rest = logits.scatter(0, place, float("-inf")).max(dim=0, keepdim=True)
        self._ids += [place, rest.indices]
        self._logits += [logits.gather(0, place), rest.values]

    def steps(self) -> tuple[TopTwo, ...]:
        """One a step; copied to the host in two pieces."""
        if not self._ids:
            return ()
        return top_two_steps(torch.cat(self._ids).tolist(), torch.cat(self._logits).tolist())


def greedy(logits: Tensor, banned: set[int], best: BestTwo | None = None) -> int:
    """The best allowed token of (V,) float32 logits; the lowest id on a tie. `best` records the two best."""
    if banned:
        logits = logits.clone()
        logits[list(banned)] = float("-inf")
    chosen = logits.argmax()  # ()
    if best is not None:
        best.add(logits, chosen)
    return int(chosen)
